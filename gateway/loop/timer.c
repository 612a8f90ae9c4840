/* Timers of the loop. libuv counts in milliseconds from a clock that it reads once a turn; ours are
 * rounded up and never fire early. */
#include "gateway/loop/loop_priv.h"

#include <errno.h>
#include <stdlib.h>

#include "gateway/base/clock.h"

struct kg_timer {
    uv_timer_t uv;
    kg_fn *fn;
    void *user;
    bool frozen;
    bool pending; /* frozen, and was running or was started meanwhile */
    uint64_t left_ms, repeat_ms;
};

static void on_timer(uv_timer_t *handle)
{
    kg_timer_t *timer = handle->data;
    timer->fn(timer->user);
}

static void on_closed(uv_handle_t *handle)
{
    free(handle->data);
}

int kg_timer_create(kg_loop_t *loop, kg_fn *fn, void *user, kg_timer_t **ret_timer)
{
    kg_timer_t *timer = calloc(1, sizeof(*timer));
    if (!timer) {
        return -ENOMEM;
    }
    uv_timer_init(&loop->uv, &timer->uv);
    timer->uv.data = timer;
    timer->fn = fn;
    timer->user = user;
    *ret_timer = timer;
    return 0;
}

static uint64_t ms_up(uint64_t ns)
{
    return ns / KG_NS_PER_MS + (ns % KG_NS_PER_MS ? 1 : 0);
}

static void start(kg_timer_t *timer, uint64_t after_ms, uint64_t repeat_ms)
{
    timer->pending = timer->frozen;
    timer->left_ms = after_ms;
    timer->repeat_ms = repeat_ms;
    if (!timer->frozen) {
        uv_update_time(timer->uv.loop);
        uv_timer_start(&timer->uv, on_timer, after_ms, repeat_ms);
    }
}

void kg_timer_start(kg_timer_t *timer, uint64_t after_ns, uint64_t repeat_ns)
{
    /* One more, for the part of a millisecond that the loop's clock has dropped. */
    start(timer, after_ns ? ms_up(after_ns) + 1 : 0, ms_up(repeat_ns));
}

void kg_timer_stop(kg_timer_t *timer)
{
    timer->pending = false;
    uv_timer_stop(&timer->uv);
}

void kg_timer_freeze(kg_timer_t *timer)
{
    if (timer->frozen) {
        return;
    }
    timer->frozen = true;
    timer->pending = uv_is_active((const uv_handle_t *)&timer->uv);
    if (timer->pending) {
        uv_update_time(timer->uv.loop);
        timer->left_ms = uv_timer_get_due_in(&timer->uv);
        timer->repeat_ms = uv_timer_get_repeat(&timer->uv);
        uv_timer_stop(&timer->uv);
    }
}

void kg_timer_thaw(kg_timer_t *timer)
{
    if (!timer->frozen) {
        return;
    }
    timer->frozen = false;
    if (timer->pending) {
        start(timer, timer->left_ms, timer->repeat_ms);
    }
}

void kg_timer_close(kg_timer_t **timer_ptr)
{
    if (!timer_ptr || !*timer_ptr) {
        return;
    }
    kg_timer_t *timer = KG_TAKE(*timer_ptr);
    uv_close((uv_handle_t *)&timer->uv, on_closed);
}
