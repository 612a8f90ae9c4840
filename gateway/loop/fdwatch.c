/* Readiness of descriptors. An error on one is reported as readable and writable, so that its owner
 * meets it in read or write. */
#include "gateway/loop/loop_priv.h"

#include <errno.h>
#include <stdlib.h>

struct kg_fdwatch {
    uv_poll_t uv;
    kg_fdwatch_fn *fn;
    void *user;
};

static void on_poll(uv_poll_t *handle, int status, int events)
{
    kg_fdwatch_t *watch = handle->data;
    bool failed = status < 0;
    watch->fn(watch->user, failed || (events & (UV_READABLE | UV_DISCONNECT)),
              failed || (events & UV_WRITABLE));
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

int kg_fdwatch_create(
    kg_loop_t *loop, int fd, kg_fdwatch_fn *fn, void *user, kg_fdwatch_t **ret_watch)
{
    kg_fdwatch_t *watch = calloc(1, sizeof(*watch));
    if (!watch) {
        return -ENOMEM;
    }
    int rc = uv_poll_init(&loop->uv, &watch->uv, fd);
    if (rc < 0) {
        free(watch);
        return rc;
    }
    watch->uv.data = watch;
    watch->fn = fn;
    watch->user = user;
    *ret_watch = watch;
    return 0;
}

int kg_fdwatch_set(kg_fdwatch_t *watch, bool readable, bool writable)
{
    int events = (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0);
    return events ? uv_poll_start(&watch->uv, events, on_poll) : uv_poll_stop(&watch->uv);
}

int kg_fdwatch_set_hangup(kg_fdwatch_t *watch, bool writable)
{
    return uv_poll_start(&watch->uv, UV_DISCONNECT | (writable ? UV_WRITABLE : 0), on_poll);
}

void kg_fdwatch_close(kg_fdwatch_t **watch_ptr)
{
    if (!watch_ptr || !*watch_ptr) {
        return;
    }
    kg_fdwatch_t *watch = KG_TAKE(*watch_ptr);
    uv_close((uv_handle_t *)&watch->uv, on_closed);
}
