/* Inside of the loop room: what loop.c, timer.c, fdwatch.c, workq.c and zchan.c share. */
#ifndef KG_LOOP_LOOP_PRIV_H
#define KG_LOOP_LOOP_PRIV_H

#include <uv.h>

#include "gateway/loop/loop.h"

#define KG_ZMQ_MAX_SOCKETS 20000

typedef struct kg_later {
    kg_fn *fn;
    void *user;
    struct kg_later *next;
} kg_later_t;

typedef struct kg_loop_signal {
    uv_signal_t handle;
    kg_signal_fn *fn;
    void *user;
    struct kg_loop_signal *next;
} kg_loop_signal_t;

struct kg_loop {
    uv_loop_t uv;
    uv_prepare_t prepare;
    uv_check_t check;
    uv_idle_t idle; /* runs while work is left, so that the loop does not sleep */
    void *zmq;
    size_t zchans; /* open ZeroMQ sockets */
    size_t jobs;   /* on the worker pool */
    kg_later_t *later_head;
    kg_later_t **later_tail;
    kg_hook_t *hooks;
    kg_hook_t *hook_next; /* next one of a walk under way; kept true by remove */
    kg_loop_signal_t *signals;
    struct kg_zchan *dirty; /* utlist, doubly linked */
    bool closing;
};

/* zchan.c: reads dirty sockets, each within its budget. True when work is left. */
bool kg_zchan_drain(kg_loop_t *loop);

#endif
