/* The event loop: libuv, with a prepare and a check hook around its sleep. Both drain the dirty
 * ZeroMQ sockets and run what was put off with kg_loop_later; whatever is left over keeps an idle
 * handle active, which makes the next poll return at once. */
#include "gateway/loop/loop_priv.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <zmq.h>

#include "gateway/base/log.h"

static void keep_awake(uv_idle_t *handle)
{
    (void)handle;
}

static void run_laters(kg_loop_t *loop)
{
    kg_later_t *list = loop->later_head;
    loop->later_head = NULL;
    loop->later_tail = &loop->later_head;
    while (list) {
        kg_later_t *later = list;
        list = later->next;
        later->fn(later->user);
        free(later);
    }
}

static void run_hooks(kg_loop_t *loop, bool before_sleep)
{
    for (kg_hook_t *hook = loop->hooks; hook; hook = loop->hook_next) {
        loop->hook_next = hook->next;
        kg_fn *fn = before_sleep ? hook->before_sleep : hook->after_wake;
        if (fn) {
            fn(hook->user);
        }
    }
    loop->hook_next = NULL;
}

static void update_idle(kg_loop_t *loop, bool work_left)
{
    if (loop->closing) {
        return;
    }
    if (work_left || loop->later_head) {
        uv_idle_start(&loop->idle, keep_awake);
    } else {
        uv_idle_stop(&loop->idle);
    }
}

static void on_prepare(uv_prepare_t *handle)
{
    kg_loop_t *loop = handle->data;
    kg_zchan_drain(loop);
    run_laters(loop);
    run_hooks(loop, true);
    update_idle(loop, loop->dirty != NULL);
}

static void on_check(uv_check_t *handle)
{
    kg_loop_t *loop = handle->data;
    run_hooks(loop, false);
    kg_zchan_drain(loop);
    run_laters(loop);
    /* What is left is seen by the prepare hook of the next turn, before the next sleep. */
}

int kg_loop_create(kg_loop_t **ret_loop)
{
    kg_loop_t *loop = calloc(1, sizeof(*loop));
    if (!loop) {
        return -ENOMEM;
    }
    /* The loop is made before any thread of ours is. An operator's own value wins. */
    (void)setenv("UV_THREADPOOL_SIZE", "2", 0); // NOLINT(concurrency-mt-unsafe)
    int rc = uv_loop_init(&loop->uv);
    if (rc < 0) {
        free(loop);
        return rc;
    }
    loop->later_tail = &loop->later_head;
    loop->uv.data = loop;
    uv_prepare_init(&loop->uv, &loop->prepare);
    uv_check_init(&loop->uv, &loop->check);
    uv_idle_init(&loop->uv, &loop->idle);
    loop->prepare.data = loop;
    loop->check.data = loop;
    uv_prepare_start(&loop->prepare, on_prepare);
    uv_check_start(&loop->check, on_check);
    *ret_loop = loop;
    return 0;
}

int kg_loop_run(kg_loop_t *loop)
{
    uv_run(&loop->uv, UV_RUN_DEFAULT);
    return 0;
}

void kg_loop_stop(kg_loop_t *loop)
{
    uv_stop(&loop->uv);
}

static void signal_closed(uv_handle_t *handle)
{
    free(handle->data);
}

/* Lets jobs of the pool come home and closing handles finish; a handle that somebody forgot would
 * keep this from ending, so turns without jobs are counted. */
static void run_out(kg_loop_t *loop)
{
    for (int turns = 0; turns < 1000; turns++) {
        kg_zchan_drain(loop);
        run_laters(loop);
        if (!uv_run(&loop->uv, loop->jobs > 0 ? UV_RUN_ONCE : UV_RUN_NOWAIT) && !loop->later_head) {
            return;
        }
        if (loop->jobs > 0) {
            turns = 0;
        }
    }
}

void kg_loop_destroy(kg_loop_t **loop_ptr)
{
    if (!loop_ptr || !*loop_ptr) {
        return;
    }
    kg_loop_t *loop = KG_TAKE(*loop_ptr);
    loop->closing = true;
    while (loop->signals) {
        kg_loop_signal_t *sig = loop->signals;
        loop->signals = sig->next;
        uv_close((uv_handle_t *)&sig->handle, signal_closed);
    }
    uv_close((uv_handle_t *)&loop->prepare, NULL);
    uv_close((uv_handle_t *)&loop->check, NULL);
    uv_close((uv_handle_t *)&loop->idle, NULL);
    run_out(loop);
    int rc = uv_loop_close(&loop->uv);
    if (rc != 0) {
        kg_log(KG_LOG_ERROR, "loop.leak", "error=%s", uv_err_name(rc));
        assert(rc == 0);
        return; /* freeing it would be worse than the leak */
    }
    if (loop->zmq) {
        assert(loop->zchans == 0); /* zmq_ctx_term would block */
        zmq_ctx_term(loop->zmq);
    }
    free(loop);
}

void *kg_loop_uv(kg_loop_t *loop)
{
    return &loop->uv;
}

void *kg_loop_zmq(kg_loop_t *loop)
{
    if (!loop->zmq) {
        loop->zmq = zmq_ctx_new();
        if (loop->zmq) {
            zmq_ctx_set(loop->zmq, ZMQ_MAX_SOCKETS, KG_ZMQ_MAX_SOCKETS);
            zmq_ctx_set(loop->zmq, ZMQ_IO_THREADS, 1);
            zmq_ctx_set(loop->zmq, ZMQ_BLOCKY, 0);      /* LINGER 0 where nobody says otherwise */
            if (sched_getscheduler(0) == SCHED_BATCH) { /* manners.h: the loop's own thread alone */
                zmq_ctx_set(loop->zmq, ZMQ_THREAD_SCHED_POLICY, SCHED_OTHER);
            }
        }
    }
    return loop->zmq;
}

int kg_loop_later(kg_loop_t *loop, kg_fn *fn, void *user)
{
    kg_later_t *later = malloc(sizeof(*later));
    if (!later) {
        return -ENOMEM;
    }
    *later = (kg_later_t){.fn = fn, .user = user};
    *loop->later_tail = later;
    loop->later_tail = &later->next;
    return 0;
}

void kg_loop_hook_add(kg_loop_t *loop, kg_hook_t *hook)
{
    kg_hook_t **at = &loop->hooks;
    while (*at) {
        at = &(*at)->next;
    }
    hook->next = NULL;
    *at = hook;
}

void kg_loop_hook_remove(kg_loop_t *loop, kg_hook_t *hook)
{
    for (kg_hook_t **at = &loop->hooks; *at; at = &(*at)->next) {
        if (*at == hook) {
            *at = hook->next;
            break;
        }
    }
    if (loop->hook_next == hook) {
        loop->hook_next = hook->next;
    }
    hook->next = NULL;
}

static void on_signal(uv_signal_t *handle, int signum)
{
    kg_loop_signal_t *sig = handle->data;
    sig->fn(sig->user, signum);
}

int kg_loop_signal(kg_loop_t *loop, int signum, kg_signal_fn *fn, void *user)
{
    kg_loop_signal_t *sig = calloc(1, sizeof(*sig));
    if (!sig) {
        return -ENOMEM;
    }
    int rc = uv_signal_init(&loop->uv, &sig->handle);
    if (rc < 0) {
        free(sig);
        return rc;
    }
    sig->handle.data = sig;
    sig->fn = fn;
    sig->user = user;
    rc = uv_signal_start(&sig->handle, on_signal, signum);
    if (rc < 0) {
        uv_close((uv_handle_t *)&sig->handle, signal_closed);
        return rc;
    }
    sig->next = loop->signals;
    loop->signals = sig;
    return 0;
}
