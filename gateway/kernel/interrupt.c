/* Interrupt and kill. Kernels ignore interrupts, or hear them only when their event loop wakes: the
 * ladder ends with SIGKILL for the whole tree. */
#include <errno.h>
#include <signal.h>

#include "gateway/base/str.h"
#include "gateway/kernel/internal.h"

#define GRACE_DEFAULT_NS (2 * KG_NS_PER_S)
#define WAKE_FIRST_NS (20 * KG_NS_PER_MS) /* then four times as long, each */
#define WAKES_MAX 4

/* What is meant to be interrupted is still at it. */
static bool is_at_it(const kg_kernel_t *k)
{
    return kg_kernel_cell_runs(k) && !k->running->replied && !k->running->idled;
}

/* An event loop that sleeps in a cell's own await takes note of the signal only when something
 * wakes it: a request on shell does. It must come after the signal: the barrier's probe does, in
 * kernels that tell when that was; for the others there are a few. */
void kg_interrupt_wake(void *user)
{
    kg_kernel_t *k = user;
    if (!is_at_it(k)) {
        return;
    }
    if (k->link.state == KG_LINK_UP) {
        (void)kg_link_send_info(k, KG_CHANNEL_SHELL, NULL);
    }
    if (++k->wakes < WAKES_MAX) {
        kg_timer_start(k->wake_timer, WAKE_FIRST_NS << (2 * k->wakes), 0);
    }
}

void kg_interrupt_over(kg_kernel_t *k)
{
    k->kill_at_ns = 0;
    kg_timer_stop(k->kill_timer);
    kg_timer_stop(k->wake_timer);
}

static void signal_arrived(void *user, const kg_err_t *err)
{
    (void)err; /* there is no such file */
    kg_barrier_acked(user);
}

/* A signal has no answer of its own; verbs of a sandbox are done in order, and the next one has. */
static int send_signal(kg_kernel_t *k)
{
    char nothing[KG_SBX_NAME_MAX];
    (void)kg_format(nothing, sizeof(nothing), "%s.none", k->name);
    int rc = kg_proc_signal(k->proc, SIGINT, true);
    if (rc == 0) {
        kg_barrier_raise(k);
        (void)kg_sbx_file_unlink(k->sbx, nothing, signal_arrived, k);
    }
    return rc;
}

static int send_interrupt(kg_kernel_t *k)
{
    if (k->interrupt_mode == KG_INTERRUPT_SIGNAL) {
        return send_signal(k);
    }
    KG_AUTO(kg_out_fini) kg_out_t out = {0};
    int rc = kg_request_interrupt(&k->session, &out);
    rc = rc < 0 ? rc : kg_link_send(k, KG_CHANNEL_CONTROL, &out);
    if (rc == 0) {
        kg_barrier_raise(k);
    }
    return rc;
}

/* Before a cell's own code runs, kernels ignore interrupts: one that came too early comes again. */
void kg_interrupt_begun(kg_request_t *req)
{
    kg_kernel_t *k = req->kernel;
    req->begun = true;
    if (req->early && k->running == req && is_at_it(k) && k->link.state == KG_LINK_UP) {
        (void)send_interrupt(k);
    }
}

int kg_kernel_interrupt(kg_kernel_t *k)
{
    if (k->life != KG_LIFE_RUNNING || k->link.state != KG_LINK_UP || k->closing) {
        return -EPIPE;
    }
    if (!k->running) {
        return -EALREADY;
    }
    if (k->running->unsent) {
        kg_barrier_cancel(k, k->running);
        return 0;
    }
    if (!is_at_it(k)) {
        return 0; /* its end is on the way here */
    }
    int rc = send_interrupt(k);
    if (rc < 0) {
        return rc;
    }
    k->running->early = !k->running->begun;
    k->wakes = 0;
    kg_timer_start(k->wake_timer, WAKE_FIRST_NS, 0);
    return 0;
}

int kg_kernel_interrupt_or_kill(kg_kernel_t *k, uint64_t grace_ns)
{
    int rc = kg_kernel_interrupt(k);
    if (rc < 0) {
        return rc;
    }
    uint64_t grace = grace_ns > 0 ? grace_ns : GRACE_DEFAULT_NS;
    uint64_t at = kg_now_ns() + grace;
    if (k->kill_at_ns == 0 || at < k->kill_at_ns) {
        k->kill_at_ns = at;
        kg_timer_start(k->kill_timer, grace, 0);
    }
    return 0;
}

int kg_kernel_kill(kg_kernel_t *k)
{
    if (k->life != KG_LIFE_RUNNING || k->closing) {
        return -EPIPE;
    }
    int rc = kg_kernel_kill_tree(k);
    if (rc == 0) {
        k->exit.killed_by_us = true;
        k->killed = true;
    }
    return rc;
}
