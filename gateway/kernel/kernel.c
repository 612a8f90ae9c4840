/* The kernel object: birth, exit, end. The truth about the process comes from its wait status
 * alone, through sandal-init; after it, what the kernel had sent before is delivered first. */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/kernel/internal.h"

#define DRAIN_TICK_NS (10 * KG_NS_PER_MS)
#define DRAIN_MAX_NS (30 * KG_NS_PER_S)      /* a grandchild that goes on publishing */
#define EXIT_AFTER_KILL_NS (5 * KG_NS_PER_S) /* a process in uninterruptible sleep */

static void kill_timer_fired(void *user);
static void drain_timer_fired(void *user);

const char *kg_kernel_state_name(kg_kernel_state_t state)
{
    switch (state) {
    case KG_KERNEL_STARTING:
        return "starting";
    case KG_KERNEL_IDLE:
        return "idle";
    case KG_KERNEL_BUSY:
        return "busy";
    case KG_KERNEL_DEAD:
        return "dead";
    }
    return "unknown";
}

kg_kernel_state_t kg_kernel_state(const kg_kernel_t *k)
{
    if (k->failed || k->closing || k->life == KG_LIFE_EXITED || k->life == KG_LIFE_ENDED) {
        return KG_KERNEL_DEAD;
    }
    if (!k->told_start) {
        return KG_KERNEL_STARTING;
    }
    return k->running ? KG_KERNEL_BUSY : KG_KERNEL_IDLE;
}

pid_t kg_kernel_pid(const kg_kernel_t *k)
{
    return k->pid;
}

const kg_kernel_exit_t *kg_kernel_exit(const kg_kernel_t *k)
{
    bool known = k->exit.proc.exited || k->exit.proc.signaled;
    return known ? &k->exit : NULL;
}

kg_slice_t kg_kernel_stderr_tail(const kg_kernel_t *k)
{
    return kg_slice(k->tail, k->tail_len);
}

uint64_t kg_kernel_start_ns(const kg_kernel_t *k)
{
    return k->ready_ns ? k->ready_ns - k->started_ns : 0;
}

void kg_kernel_stats(const kg_kernel_t *k, kg_kernel_stats_t *ret_stats)
{
    *ret_stats = k->stats;
}

int kg_kernel_usage(kg_kernel_t *k, kg_usage_fn *fn, void *user)
{
    return k->proc && k->life == KG_LIFE_RUNNING && !k->closing ? kg_proc_usage(k->proc, fn, user)
                                                                : -EPIPE;
}

int kg_kernel_kill_tree(kg_kernel_t *k)
{
    return k->proc ? kg_proc_kill_tree(k->proc) : -ESRCH;
}

/* ---- birth and memory ---- */

static void free_kernel(kg_kernel_t *k)
{
    kg_link_fini(k);
    kg_timer_close(&k->request_timer);
    kg_timer_close(&k->kill_timer);
    kg_timer_close(&k->wake_timer);
    kg_timer_close(&k->barrier.timer);
    kg_timer_close(&k->drain_timer);
    kg_spawn_plan_destroy(&k->plan);
    kg_closep(&k->zygote_sock);
    kg_wire_key_fini(&k->session.key);
    sodium_memzero(k->key, sizeof(k->key));
    free(k);
}

void kg_kernel_ref(kg_kernel_t *k)
{
    k->refs++;
}

void kg_kernel_unref(kg_kernel_t *k)
{
    if (--k->refs > 0 || !k->torn) {
        return;
    }
    kg_fn *done = k->close_done;
    void *user = k->close_user;
    free_kernel(k);
    if (done) {
        done(user);
    }
}

static uint64_t or_default(uint64_t value, uint64_t fallback)
{
    return value > 0 ? value : fallback;
}

static kg_kernel_limits_t complete_limits(const kg_kernel_limits_t *l)
{
    return (kg_kernel_limits_t){
        .start_ns = or_default(l->start_ns, 60 * KG_NS_PER_S),
        .nudge_ns = or_default(l->nudge_ns, 500 * KG_NS_PER_MS),
        .no_reply_ns = or_default(l->no_reply_ns, KG_NS_PER_S),
        .no_idle_ns = or_default(l->no_idle_ns, 10 * KG_NS_PER_S),
        .no_idle_max_ns = or_default(l->no_idle_max_ns, 120 * KG_NS_PER_S),
        .exit_drain_ns = or_default(l->exit_drain_ns, 50 * KG_NS_PER_MS),
        .polite_ns = or_default(l->polite_ns, 500 * KG_NS_PER_MS),
    };
}

static int create_timers(kg_kernel_t *k)
{
    int rc = kg_link_init(k);
    if (rc == 0) {
        rc = kg_timer_create(k->loop, kg_request_timer_fired, k, &k->request_timer);
    }
    if (rc == 0) {
        rc = kg_timer_create(k->loop, kill_timer_fired, k, &k->kill_timer);
    }
    if (rc == 0) {
        rc = kg_timer_create(k->loop, kg_interrupt_wake, k, &k->wake_timer);
    }
    if (rc == 0) {
        rc = kg_timer_create(k->loop, kg_barrier_timer_fired, k, &k->barrier.timer);
    }
    return rc == 0 ? kg_timer_create(k->loop, drain_timer_fired, k, &k->drain_timer) : rc;
}

int kg_kernel_start(kg_loop_t *loop,
                    kg_sbx_t *sbx,
                    const kg_kernel_opts_t *opts,
                    const kg_kernel_sink_t *sink,
                    void *user,
                    kg_kernel_t **ret_kernel,
                    kg_err_t *err)
{
    kg_kernel_t *k = calloc(1, sizeof(*k));
    int zygote = opts->forked ? opts->zygote_sock : -1;
    if (!k) {
        kg_closep(&zygote);
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    k->loop = loop;
    k->sbx = sbx;
    k->sink = *sink;
    k->user = user;
    k->limits = complete_limits(&opts->limits);
    k->pipes[0].fd = k->pipes[1].fd = -1;
    k->zygote_sock = zygote;
    int rc = create_timers(k);
    if (rc < 0) {
        rc = kg_err_set(err, kg_err_from_errno(rc), "no timers for the kernel");
    } else {
        rc = opts->memo ? kg_kernel_adopt_begin(k, opts, err) : kg_kernel_start_begin(k, opts, err);
    }
    if (rc < 0) {
        free_kernel(k);
        return rc;
    }
    k->interrupt_mode = opts->spec->interrupt_mode;
    k->plain_output = opts->spec->plain_output;
    *ret_kernel = k;
    return 0;
}

/* ---- exit ---- */

static void remove_files(kg_kernel_t *k)
{
    char name[KG_SBX_NAME_MAX];
    (void)kg_format(name, sizeof(name), "%s.json", k->name);
    (void)kg_sbx_file_unlink(k->sbx, name, NULL, NULL);
    for (unsigned port = 1; port <= 5; port++) {
        (void)kg_format(name, sizeof(name), "%s-%u", k->name, port);
        (void)kg_sbx_file_unlink(k->sbx, name, NULL, NULL);
    }
}

static void describe_exit(const kg_kernel_t *k, const kg_exit_t *exit, kg_err_t *err)
{
    const char *when = k->adopted ? "while no gateway was there" : "before it was ready";
    if (exit->signaled) {
        const char *name = sigabbrev_np(exit->signal);
        kg_err_set(err, KG_ERR_KERNEL_START_FAILED, "the kernel was killed by signal %d (SIG%s) %s",
                   exit->signal, name ? name : "?", when);
    } else if (exit->exited) {
        kg_err_set(err, KG_ERR_KERNEL_START_FAILED, "the kernel exited with status %d %s",
                   exit->code, when);
    } else {
        kg_err_set(err, KG_ERR_KERNEL_START_FAILED,
                   "the sandbox was lost before the kernel was ready");
    }
}

static void finish_exit(kg_kernel_t *k)
{
    kg_output_drain(k);
    kg_output_last_words(k);
    kg_inbox_clear(k);
    kg_link_close(k);
    k->life = KG_LIFE_ENDED;
    kg_request_end_all(k, KG_REQUEST_DEAD);
    if (!k->closing && k->sink.on_exit) {
        k->sink.on_exit(k->user, &k->exit);
    }
}

static void close_step(kg_kernel_t *k);

static void drain_timer_fired(void *user)
{
    kg_kernel_t *k = user;
    if (k->closing) {
        close_step(k);
        return;
    }
    unsigned ticks = (unsigned)(k->limits.exit_drain_ns / DRAIN_TICK_NS) + 1;
    if (kg_inbox_quiet(k, ticks) || kg_now_ns() - k->exit_ns >= DRAIN_MAX_NS) {
        kg_timer_stop(k->drain_timer);
        finish_exit(k);
    }
}

static void teardown(kg_kernel_t *k);

void kg_kernel_on_proc_exit(void *user, const kg_exit_t *exit)
{
    kg_kernel_t *k = user;
    k->exit.proc = *exit;
    k->life = KG_LIFE_EXITED;
    k->exit_ns = kg_now_ns();
    (void)kg_kernel_kill_tree(k); /* children that outlived it */
    kg_log(KG_LOG_INFO, "kernel.exit", "kernel=%s pid=%d code=%d signal=%d lost=%d killed=%d",
           k->name, (int)k->pid, exit->code, exit->signal, exit->lost, k->exit.killed_by_us);
    if (k->closing) {
        teardown(k);
        return;
    }
    kg_interrupt_over(k);
    kg_barrier_drop(k);
    kg_timer_stop(k->link.timer);
    kg_timer_stop(k->link.deadline);
    if (!k->told_start) {
        kg_err_t err = {0};
        describe_exit(k, exit, &err);
        k->life = KG_LIFE_ENDED;
        kg_kernel_start_failed(k, &err);
    } else if (k->failed) {
        k->life = KG_LIFE_ENDED;
    } else {
        k->quiet_ticks = 0;
        kg_timer_start(k->drain_timer, DRAIN_TICK_NS, DRAIN_TICK_NS);
    }
}

/* ---- end ---- */

static void orphan_requests(kg_kernel_t *k)
{
    while (k->requests) {
        kg_request_t *req = k->requests;
        k->requests = req->next;
        req->kernel = NULL; /* its owner frees it by release */
        req->next = req->prev = NULL;
    }
}

/* The process is gone, or will never tell. Frees everything; memory goes with the last reference.
 */
static void teardown(kg_kernel_t *k)
{
    if (k->torn) {
        return;
    }
    k->torn = true;
    kg_kernel_ref(k);
    kg_timer_stop(k->kill_timer);
    kg_sbx_forget(k->sbx, k);
    remove_files(k);
    kg_output_close(k);
    kg_proc_close(&k->proc);
    kg_inbox_clear(k);
    kg_link_close(k);
    kg_workq_close(&k->workq);
    kg_workq_close(&k->tidyq);
    kg_request_end_all(k, KG_REQUEST_CLOSED);
    orphan_requests(k);
    kg_kernel_unref(k);
}

static void kill_for_close(kg_kernel_t *k)
{
    k->killed = true;
    (void)kg_kernel_kill_tree(k);
    kg_timer_start(k->kill_timer, EXIT_AFTER_KILL_NS, 0);
}

static void kill_timer_fired(void *user)
{
    kg_kernel_t *k = user;
    if (!k->closing) {
        k->kill_at_ns = 0;
        if (k->running) {
            (void)kg_kernel_kill(k);
        }
    } else if (!k->killed) {
        kill_for_close(k);
    } else {
        kg_log(KG_LOG_WARN, "kernel.unkillable", "kernel=%s pid=%d", k->name, (int)k->pid);
        teardown(k);
    }
}

/* In the first turn after the close. */
static void close_step(kg_kernel_t *k)
{
    kg_timer_stop(k->drain_timer);
    kg_kernel_ref(k);
    kg_request_end_all(k, KG_REQUEST_CLOSED);
    if (k->life == KG_LIFE_EXITED || k->life == KG_LIFE_ENDED) {
        teardown(k);
    }
    kg_kernel_unref(k);
}

void kg_kernel_close_goes_on(kg_kernel_t *k)
{
    if (k->life == KG_LIFE_RUNNING) {
        kill_for_close(k);
    } else {
        teardown(k);
    }
}

static bool ask_shutdown(kg_kernel_t *k)
{
    KG_AUTO(kg_out_fini) kg_out_t out = {0};
    return k->link.state == KG_LINK_UP && kg_request_shutdown(&k->session, false, &out) == 0 &&
           kg_link_send(k, KG_CHANNEL_CONTROL, &out) == 0;
}

void kg_kernel_close(kg_kernel_t **kernel, kg_kernel_close_mode_t mode, kg_fn *done, void *user)
{
    kg_kernel_t *k = *kernel;
    if (!k) {
        return;
    }
    *kernel = NULL;
    k->closing = true;
    k->close_done = done;
    k->close_user = user;
    kg_interrupt_over(k);
    kg_barrier_drop(k);
    kg_timer_stop(k->request_timer);
    kg_timer_stop(k->link.timer);
    kg_timer_stop(k->link.deadline);
    if (k->life == KG_LIFE_RUNNING) {
        bool asked = mode == KG_KERNEL_CLOSE_POLITE && !k->failed && !k->killed && ask_shutdown(k);
        k->killed = !asked;
        if (!asked) {
            (void)kg_kernel_kill_tree(k);
        }
        kg_timer_start(k->kill_timer, asked ? k->limits.polite_ns : EXIT_AFTER_KILL_NS, 0);
    }
    kg_timer_start(k->drain_timer, 0, 0); /* nothing runs from inside this call */
}
