/* The one event loop (libuv). All logic of the gateway runs on its thread; nothing in it blocks.
 * Only this room (and edge, for the loop handle) includes libuv. */
#ifndef KG_LOOP_LOOP_H
#define KG_LOOP_LOOP_H

#include <stdint.h>

#include "gateway/base/err.h"

typedef struct kg_loop kg_loop_t;
typedef void kg_fn(void *user);

int kg_loop_create(kg_loop_t **ret_loop);
/* Runs until stop. Returns 0. */
int kg_loop_run(kg_loop_t *loop);
void kg_loop_stop(kg_loop_t *loop);
/* All handles must be closed and done. Asserts that uv_loop_close is 0. NULLs the caller's pointer.
 */
void kg_loop_destroy(kg_loop_t **loop);
void *kg_loop_uv(kg_loop_t *loop);  /* uv_loop_t *, for edge alone */
void *kg_loop_zmq(kg_loop_t *loop); /* the process's ZeroMQ context (ZMQ_MAX_SOCKETS raised) */

/* Runs fn once, in the next loop turn (or at the end of this one), never from inside the caller.
 * -ENOMEM. */
int kg_loop_later(kg_loop_t *loop, kg_fn *fn, void *user);

/* A hook that runs before the loop sleeps and after it wakes; embedded by its owner. They run in
 * the order in which they were added. */
typedef struct kg_hook {
    kg_fn *before_sleep; /* uv_prepare */
    kg_fn *after_wake;   /* uv_check */
    void *user;
    struct kg_hook *next;
} kg_hook_t;
void kg_loop_hook_add(kg_loop_t *loop, kg_hook_t *hook);
void kg_loop_hook_remove(kg_loop_t *loop, kg_hook_t *hook);

/* Timers. create/start/stop may be called anywhere; close is asynchronous inside, the pointer is
 * dead at once. */
typedef struct kg_timer kg_timer_t;
int kg_timer_create(kg_loop_t *loop, kg_fn *fn, void *user, kg_timer_t **ret_timer);
void kg_timer_start(kg_timer_t *timer, uint64_t after_ns, uint64_t repeat_ns);
void kg_timer_stop(kg_timer_t *timer);
/* Frozen, it keeps what is left of its time and runs nothing; start and stop take effect when it
 * thaws. */
void kg_timer_freeze(kg_timer_t *timer);
void kg_timer_thaw(kg_timer_t *timer);
void kg_timer_close(kg_timer_t **timer); /* NULL ok; fn never runs after it */

/* Readiness of a descriptor (level-triggered). The descriptor stays the caller's; close the watch
 * before it. */
typedef struct kg_fdwatch kg_fdwatch_t;
typedef void kg_fdwatch_fn(void *user, bool readable, bool writable);
int kg_fdwatch_create(
    kg_loop_t *loop, int fd, kg_fdwatch_fn *fn, void *user, kg_fdwatch_t **ret_watch);
int kg_fdwatch_set(kg_fdwatch_t *watch, bool readable, bool writable);
/* Watches for the peer's hang-up (also of its sending half alone), reported as readable, and for
 * room to write. Data that waits to be read wakes nobody. A socket that somebody else already
 * watches is watched through a dup of it. */
int kg_fdwatch_set_hangup(kg_fdwatch_t *watch, bool writable);
void kg_fdwatch_close(kg_fdwatch_t **watch);

typedef void kg_signal_fn(void *user, int signum);
int kg_loop_signal(kg_loop_t *loop, int signum, kg_signal_fn *fn, void *user); /* until destroy */

/* Worker pool: work runs on another thread, done on the loop's. Jobs of one queue run one after the
 * other, in order. */
typedef struct kg_workq kg_workq_t;
int kg_workq_create(kg_loop_t *loop, kg_workq_t **ret_queue);
int kg_workq_submit(kg_workq_t *queue, kg_fn *work, kg_fn *done, void *user);
bool kg_workq_idle(const kg_workq_t *queue);
void kg_workq_close(kg_workq_t **queue); /* pending jobs still run, and their done too */

#endif
