/* A kernel whose process stands still: its deadlines stand still too. */
#include "gateway/kernel/internal.h"

static void each_timer(kg_kernel_t *k, void (*fn)(kg_timer_t *timer))
{
    kg_timer_t *const timers[] = {k->request_timer, k->kill_timer,  k->wake_timer,
                                  k->barrier.timer, k->drain_timer, k->link.timer,
                                  k->link.deadline};
    for (size_t i = 0; i < KG_ARRAY_LEN(timers); i++) {
        if (timers[i]) {
            fn(timers[i]);
        }
    }
}

void kg_kernel_stop_clock(kg_kernel_t *k)
{
    if (k->stopped_ns) {
        return;
    }
    k->stopped_ns = kg_now_ns();
    each_timer(k, kg_timer_freeze);
}

static void shift(uint64_t *moment_ns, uint64_t by_ns)
{
    *moment_ns += *moment_ns ? by_ns : 0;
}

void kg_kernel_start_clock(kg_kernel_t *k)
{
    if (!k->stopped_ns) {
        return;
    }
    uint64_t stood = kg_now_ns() - k->stopped_ns;
    k->stopped_ns = 0;
    for (kg_request_t *req = k->requests; req; req = req->next) {
        shift(&req->deadline_ns, stood);
        shift(&req->replied_ns, stood);
        shift(&req->iopub_ns, stood);
    }
    shift(&k->request_timer_ns, stood);
    shift(&k->kill_at_ns, stood);
    shift(&k->barrier.since_ns, stood);
    shift(&k->link.since_ns, stood);
    shift(&k->exit_ns, stood);
    each_timer(k, kg_timer_thaw);
}
