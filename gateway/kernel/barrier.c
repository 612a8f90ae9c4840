/* Keeps an interrupt from the request behind the one it was meant for. Control, signals and shell
 * are not ordered among each other: an interrupt that was sent while a cell ended would hit what
 * the kernel does next. So once one was sent, nothing more goes out on shell after the end of its
 * request before the kernel said that it has arrived, and answered a kernel_info that was sent
 * after that: its main loop has run, and the interrupt was taken by the cell, by nothing, or by
 * that kernel_info (which is then never answered, and asked again).
 *
 * What has to wait is kept as a finished message with its request, and sent in order. Kernels that
 * were not interrupted pay nothing. */
#include <inttypes.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/kernel/internal.h"

#define AGAIN_NS (100 * KG_NS_PER_MS) /* the probe is asked again, should it have been hit */
#define HOLD_MAX_NS (2 * KG_NS_PER_S) /* from the end of the request */

static void ask(kg_kernel_t *k)
{
    kg_barrier_t *b = &k->barrier;
    if (k->link.state != KG_LINK_UP) {
        return; /* kg_barrier_link_up goes on */
    }
    if (b->acks_due == 0 && kg_link_send_info(k, KG_CHANNEL_SHELL, b->probe) < 0) {
        b->probe[0] = '\0';
    }
    if (!kg_kernel_cell_runs(k)) {
        kg_timer_start(b->timer, AGAIN_NS, 0);
    }
}

void kg_barrier_raise(kg_kernel_t *k)
{
    k->barrier.up = true;
    k->barrier.acks_due++;
    k->barrier.probe[0] = '\0';
}

void kg_barrier_acked(kg_kernel_t *k)
{
    kg_barrier_t *b = &k->barrier;
    if (b->up && b->acks_due > 0 && --b->acks_due == 0) {
        ask(k); /* while the cell runs: it also wakes an event loop that sleeps in an await */
    }
}

bool kg_barrier_holds(const kg_kernel_t *k)
{
    return k->barrier.up && !kg_kernel_cell_runs(k);
}

/* ---- what waits ---- */

static kg_request_t *oldest_unsent(const kg_kernel_t *k)
{
    kg_request_t *found = NULL;
    for (kg_request_t *req = k->requests; req; req = req->next) {
        if (req->unsent && !req->ended && !req->cancelled) {
            found = req;
        }
    }
    return found;
}

static void send_waiting(kg_kernel_t *k)
{
    for (kg_request_t *req; !k->closing && !k->barrier.up && (req = oldest_unsent(k)) != NULL;) {
        int rc = kg_link_send(k, KG_CHANNEL_SHELL, &req->out);
        if (rc < 0) {
            kg_log(KG_LOG_ERROR, "kernel.send", "kernel=%s errno=%d", k->name, -rc);
            kg_request_end(req, KG_REQUEST_UNSENT);
            continue;
        }
        req->unsent = false;
        kg_out_fini(&req->out);
        kg_request_hold(req);
        if (!req->released && req->sink.on_sent) {
            req->sink.on_sent(req->user);
        }
        kg_request_drop(req);
    }
}

static void lower(kg_kernel_t *k)
{
    kg_barrier_drop(k);
    if (!kg_kernel_cell_runs(k)) {
        kg_output_drain(k); /* words about the interrupt, written before the probe was answered */
    }
    send_waiting(k);
}

void kg_barrier_drop(kg_kernel_t *k)
{
    kg_barrier_t *b = &k->barrier;
    b->up = false;
    b->acks_due = 0;
    b->probe[0] = '\0';
    kg_timer_stop(b->timer);
}

/* ---- what happens to it ---- */

void kg_barrier_on_info(kg_kernel_t *k, const char *parent_id)
{
    kg_barrier_t *b = &k->barrier;
    if (k->closing || !b->up || !b->probe[0] || strcmp(b->probe, parent_id) != 0) {
        return;
    }
    b->probe[0] = '\0';
    if (kg_kernel_cell_runs(k) && !k->running->replied) {
        return; /* a kernel that answers beside its cells: this proves nothing yet */
    }
    lower(k);
}

void kg_barrier_request_over(kg_kernel_t *k)
{
    kg_barrier_t *b = &k->barrier;
    if (!b->up) {
        return;
    }
    b->since_ns = kg_now_ns();
    if (b->probe[0]) {
        kg_timer_start(b->timer, AGAIN_NS, 0); /* it was asked while the request still ran */
    } else {
        ask(k);
    }
}

void kg_barrier_link_up(kg_kernel_t *k)
{
    if (kg_barrier_holds(k)) {
        kg_barrier_request_over(k);
    }
}

void kg_barrier_cancel(kg_kernel_t *k, kg_request_t *req)
{
    req->cancelled = true;
    kg_timer_start(k->barrier.timer, 0, 0); /* no callback from inside the caller's call */
}

void kg_barrier_timer_fired(void *user)
{
    kg_kernel_t *k = user;
    kg_barrier_t *b = &k->barrier;
    if (k->closing || k->life != KG_LIFE_RUNNING) {
        return;
    }
    if (k->running && k->running->cancelled) {
        kg_request_end(k->running, KG_REQUEST_UNSENT);
    }
    if (!kg_barrier_holds(k) || k->closing) {
        return;
    }
    uint64_t held = kg_now_ns() - b->since_ns;
    if (held >= HOLD_MAX_NS && k->link.state == KG_LINK_UP) {
        kg_log(KG_LOG_WARN, "kernel.interrupt_untold", "kernel=%s acks_due=%u ms=%" PRIu64, k->name,
               b->acks_due, held / KG_NS_PER_MS);
        lower(k);
        return;
    }
    ask(k);
}
