/* The edge and the timers as seen from above: requests go in by calls, answers are read from
 * memory. Link instead of edge and loop. One server at a time. */
#ifndef TESTS_FAKE_EDGE_H
#define TESTS_FAKE_EDGE_H

#include "gateway/edge/edge.h"
#include "gateway/view/server.h"

/* "Name: value" lines, NULL-terminated; "" of a value is allowed. */
typedef struct fake_request {
    const char *method;
    const char *path;
    const char *query;
    const char *body; /* NULL = none */
    size_t body_len;  /* 0 = strlen */
    const char *headers[12][2];
    bool unix_peer;
    bool tls;
    size_t more; /* bytes that fake_http_more will bring */
} fake_request_t;

/* Starts an exchange and delivers its body. Until fake_http_close it can be read. */
kg_http_t *fake_http(const fake_request_t *request);
int fake_http_status(const kg_http_t *http); /* 0 = not answered */
const char *fake_http_header(const kg_http_t *http,
                             const char *name); /* of the answer, NULL = none */
/* A request whose body is taken in pieces: only its first bytes come with fake_http; these follow.
 * end: nothing comes after them. */
void fake_http_more(kg_http_t *http, const char *bytes, bool end);
int64_t fake_http_length(const kg_http_t *http); /* that was announced; -1 = none */
const char *fake_http_type(const kg_http_t *http);
/* Pulls what there is (at most max bytes a call) and returns all of the body so far. */
const char *fake_http_body(kg_http_t *http, size_t max);
bool fake_http_ended(const kg_http_t *http);   /* whole body is out */
bool fake_http_aborted(const kg_http_t *http); /* cut */
bool fake_http_woken(kg_http_t *http);         /* since the last question */
size_t fake_http_body_max(const kg_http_t *http);
void fake_http_close(kg_http_t **http);

/* NULL when refused: then *ret_status and fake_upgrade_body. */
kg_ws_t *fake_upgrade(const fake_request_t *request, const char *offered, int *ret_status);
const char *fake_upgrade_body(void);
const char *fake_ws_protocol(const kg_ws_t *ws);
void fake_ws_text(kg_ws_t *ws, const char *text);
void fake_ws_bytes(kg_ws_t *ws, const char *data, size_t len, bool binary);
/* Next frame out (answers first, then what the source gives, at most max bytes a pull), or NULL.
 * Valid until the next. */
const char *fake_ws_frame(kg_ws_t *ws, size_t max);
/* Asks the source once; what it gives is thrown away. */
kg_pull_t fake_ws_pull(kg_ws_t *ws, size_t max);
unsigned fake_ws_close_code(const kg_ws_t *ws); /* 0 = open */
bool fake_ws_paused(const kg_ws_t *ws);
void fake_ws_full(kg_ws_t *ws, bool full);     /* sends answer -ENOBUFS */
void fake_ws_queue(kg_ws_t *ws, size_t bytes); /* what kg_ws_queued says */
size_t fake_ws_queue_max(const kg_ws_t *ws);   /* 0: as the server's */
void fake_ws_close(kg_ws_t **ws);

const kg_edge_opts_t *fake_edge_opts(void);
void fake_timer_fire(void);

#endif
