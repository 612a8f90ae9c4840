/* Heads of requests and answers on their way through the proxy: collected, checked, written anew.
 * Pure: no socket. */
#ifndef KG_EDGE_PROXY_HEAD_H
#define KG_EDGE_PROXY_HEAD_H

#include <http_parser.h>
#include <strings.h>

#include "gateway/edge/proxy.h"

#define PROXY_HEAD_MAX 32768 /* bytes of one head */
#define PROXY_ROWS_MAX 100   /* lines of one head */
#define PROXY_TOKEN_NAME "sandal_token"

/* Names and values one behind the other in text. */
typedef struct proxy_row {
    uint32_t name, name_len, value, value_len;
} proxy_row_t;

typedef struct proxy_head {
    kg_buf_t text;
    uint32_t url_len; /* at the beginning of text; requests alone */
    unsigned count;
    bool in_value; /* the last row has begun its value */
    bool too_large;
    proxy_row_t rows[PROXY_ROWS_MAX];
} proxy_head_t;

void proxy_head_clear(proxy_head_t *head);
void proxy_head_fini(proxy_head_t *head);
/* For the callbacks of http_parser. Nonzero: too large, or no memory. */
int proxy_head_url(proxy_head_t *head, const char *at, size_t len);
int proxy_head_name(proxy_head_t *head, const char *at, size_t len);
int proxy_head_value(proxy_head_t *head, const char *at, size_t len);
kg_slice_t proxy_head_row_name(const proxy_head_t *head, unsigned row);
kg_slice_t proxy_head_row_value(const proxy_head_t *head, unsigned row);
kg_slice_t proxy_head_get(const proxy_head_t *head, const char *name); /* the first; {NULL,0} */
unsigned proxy_head_times(const proxy_head_t *head, const char *name);
kg_slice_t proxy_trim(kg_slice_t s); /* without blanks and tabs around it */
/* Their first characters are the same, whatever their case: what most names are told apart by,
 * without a call. */
static inline bool proxy_may_be(kg_slice_t name, const char *wanted)
{
    return name.len > 0 && ((name.data[0] ^ wanted[0]) & ~0x20) == 0;
}
static inline bool proxy_is(kg_slice_t name, const char *wanted) /* whatever its case */
{
    return proxy_may_be(name, wanted) && name.len == strlen(wanted) &&
           strncasecmp(name.data, wanted, name.len) == 0;
}
/* Whether it may be passed on as it is. */
bool proxy_row_valid(kg_slice_t name, kg_slice_t value);
/* Whether a comma-separated list has the word, in any of the rows of that name. */
bool proxy_head_lists(const proxy_head_t *head, const char *name, kg_slice_t word);

typedef struct proxy_route {
    bool path_form;
    char sandbox[KG_PROXY_NAME_MAX];
    uint16_t port;
    /* What the program gets, with its query but without our token and our keys. In the head's text
     * or in `own`, as is the token. */
    kg_slice_t path;
    kg_slice_t token;
    bool token_in_query;
    bool add_slash; /* path form without the slash behind the port: to be sent there */
    char prefix[KG_PROXY_NAME_MAX + 16]; /* "/s/SANDBOX/PORT", or "" */
    kg_buf_t own;
} proxy_route_t;
/* 0; -ENOENT: not an address of ours; -EINVAL: no request that can be served; -ENOMEM. */
int proxy_route_find(const proxy_head_t *head, const char *domain, proxy_route_t *ret);
/* Is a token of ours or a key of the daemon in the query of this address? */
bool proxy_query_tells(kg_slice_t url);
void proxy_route_fini(proxy_route_t *route);

typedef struct proxy_forward {
    kg_slice_t peer; /* its address */
    bool https;
    bool upgrade; /* a WebSocket is asked for */
    bool chunked; /* a body of unknown length follows */
    bool http10;
} proxy_forward_t;
/* The head as the program in the sandbox gets it: nothing of ours, nothing of one hop. -ENOMEM. */
int proxy_write_request(const proxy_head_t *head,
                        const http_parser *parser,
                        const proxy_route_t *route,
                        const proxy_forward_t *how,
                        kg_buf_t *out);
/* Whether an answer of this status ends with its head, whatever its head says of a length. */
static inline bool proxy_status_bare(unsigned status)
{
    return status < 200 || status == 204 || status == 304;
}
typedef struct proxy_answer {
    bool chunked;      /* its body is written in chunks by us */
    bool no_length;    /* 1xx and 204 may not tell one */
    bool close;        /* the connection ends with it */
    bool upgrade;      /* 101 */
    kg_slice_t cookie; /* the token to be kept, {NULL,0} = none */
    bool https;
} proxy_answer_t;
int proxy_write_answer(const proxy_head_t *head,
                       const http_parser *parser,
                       const proxy_route_t *route,
                       const proxy_answer_t *how,
                       kg_buf_t *out);
/* Why a request is refused though the parser takes it, or NULL. */
const char *proxy_request_wrong(const proxy_head_t *head, const http_parser *parser);
void proxy_write_cookie(kg_slice_t token, bool https, kg_buf_t *out);

#endif
