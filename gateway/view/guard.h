/* Who may speak to us from where: Host and Origin of keyless listeners, CORS, and where a request
 * carries its key. Pure functions over header values. */
#ifndef KG_VIEW_GUARD_H
#define KG_VIEW_GUARD_H

#include "gateway/base/buf.h"
#include "gateway/base/err.h"

/* Borrowed lists of the configuration. */
typedef struct kg_guard {
    bool no_auth;
    const char *const *origins; /* CORS */
    size_t origin_count;
    const char *const *hosts;
    size_t host_count;
} kg_guard_t;

/* What of a request's head matters here. */
typedef struct kg_guard_head {
    kg_slice_t host;
    kg_slice_t origin; /* {NULL,0} = none */
    bool tls;
    bool unix_peer;
} kg_guard_head_t;

/* Keyless: a Host that is loopback, localhost or configured; an Origin that is our own or a
 * configured one. With keys both are free: the key decides. foreign_host, foreign_origin. */
int kg_guard_check(const kg_guard_t *guard, const kg_guard_head_t *head, kg_err_t *err);
/* With keys too: an Origin that is given is our own or a configured one. foreign_origin. */
int kg_guard_check_origin(const kg_guard_t *guard, const kg_guard_head_t *head, kg_err_t *err);
/* cors.origins at the start: each SCHEME://HOST[:PORT], `null` or `*`; without keys neither of the
 * last two, which would let any web page in. config. */
int kg_guard_origins_check(const char *const *origins, size_t count, bool no_auth, kg_err_t *err);
/* Value of Access-Control-Allow-Origin for this Origin; false = no CORS headers. */
bool kg_guard_cors(const kg_guard_t *guard, kg_slice_t origin, char *ret_allow, size_t cap);
/* "127.0.0.1:8717", "[::1]", "localhost": names that lead to this machine. */
bool kg_host_is_loopback(kg_slice_t host);

/* The key of Authorization (Bearer), X-API-Key, or the subprotocol "bearer.KEY"; {NULL,0} when
 * there is none. */
kg_slice_t kg_guard_key(kg_slice_t authorization, kg_slice_t api_key, kg_slice_t protocols);
/* Is name among the comma-separated tokens of list? */
bool kg_list_has(kg_slice_t list, const char *name);

/* "application/json", with charset utf-8 or none. */
bool kg_content_type_is_json(kg_slice_t type);
/* Does Accept name this type itself, with a weight above 0? (Wildcards don't count.) */
bool kg_accept_names(kg_slice_t accept, const char *type);
/* 1 to 128 of letters, digits and -_.:/+= */
bool kg_request_id_sane(kg_slice_t id);

#endif
