/* run: how a run ended, in the contract's words: tails of what was cut, `error`, `result`. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "gateway/run/mapper_int.h"

/* --- names and messages --------------------------------------------------------------------------
 */

static const char *name_of(kg_run_status_t status)
{
    switch (status) {
    case KG_RUN_TIMEOUT:
        return "TimeoutError";
    case KG_RUN_INTERRUPTED:
        return "Interrupted";
    case KG_RUN_ABORTED:
        return "Aborted";
    case KG_RUN_OOM:
        return "OutOfMemory";
    case KG_RUN_KILLED:
        return "KernelKilled";
    case KG_RUN_EXITED:
        return "KernelExited";
    case KG_RUN_OUTPUT_LIMIT:
        return "OutputLimit";
    case KG_RUN_GATEWAY_RESTART:
        return "GatewayRestart";
    case KG_RUN_OK:
    case KG_RUN_ERROR:
    case KG_RUN_STATUS_COUNT:
        break;
    }
    return "KernelError";
}

static void signal_message(int signum, char *ret, size_t cap)
{
    const char *abbrev = signum > 0 ? sigabbrev_np(signum) : NULL;
    if (abbrev) {
        (void)snprintf(ret, cap, "killed by signal %d (SIG%s)", signum, abbrev);
    } else if (signum > 0) {
        (void)snprintf(ret, cap, "killed by signal %d", signum);
    } else {
        (void)snprintf(ret, cap, "killed");
    }
}

static void message_of(kg_run_status_t status, const kg_run_end_t *end, char *ret, size_t cap)
{
    const char *text = "The kernel ended the run without a reply.";
    switch (status) {
    case KG_RUN_TIMEOUT:
        text = "The code ran longer than its timeout.";
        break;
    case KG_RUN_INTERRUPTED:
        text = "The run was interrupted.";
        break;
    case KG_RUN_ABORTED:
        text = end->started ? "The run was ended by a reset or delete of its context."
                            : "The run was passed over: it did not start.";
        break;
    case KG_RUN_OOM:
        text = "The kernel was killed: out of memory.";
        break;
    case KG_RUN_KILLED:
        signal_message(end->signal, ret, cap);
        return;
    case KG_RUN_EXITED:
        (void)snprintf(ret, cap, "exit code %d", end->exit_code);
        return;
    case KG_RUN_OUTPUT_LIMIT:
        text = "The run was stopped at its output limit.";
        break;
    case KG_RUN_GATEWAY_RESTART:
        text = end->started ? "The gateway was stopped while the code ran."
                            : "The gateway was stopped before the code ran.";
        break;
    case KG_RUN_OK:
    case KG_RUN_ERROR:
    case KG_RUN_STATUS_COUNT:
        break;
    }
    (void)snprintf(ret, cap, "%s", text);
}

/* --- what the kernel said ------------------------------------------------------------------------
 */

static bool said_oom(const kg_failure_t *failure)
{
    return kg_slice_eq_cstr(kg_buf_slice(&failure->name), name_of(KG_RUN_OOM));
}

/* A kernel whose runtime ends it for want of memory (V8 at the limit of its heap) says so by its
 * last error, and then aborts. Another signal came from elsewhere: then it is that one's end. */
static bool ran_out(const kg_mapper_t *m, const kg_run_end_t *end)
{
    return end->status == KG_RUN_KILLED && end->signal == SIGABRT && m->has_candidate &&
           said_oom(&m->candidate);
}

static kg_run_status_t status_of(const kg_mapper_t *m, const kg_run_end_t *end)
{
    if (ran_out(m, end)) {
        return KG_RUN_OOM;
    }
    if (end->status != KG_RUN_OK) {
        return end->status;
    }
    switch (m->state.reply) {
    case KG_REPLY_OK:
        return KG_RUN_OK;
    case KG_REPLY_ABORTED:
        return KG_RUN_ABORTED;
    case KG_REPLY_ABORT:
        return KG_RUN_INTERRUPTED;
    case KG_REPLY_NONE:
    case KG_REPLY_ERROR:
        break;
    }
    return KG_RUN_ERROR;
}

/* The failure that belongs to the run's end: the reply's, with what only the iopub error has. NULL
 * when the kernel told of none. */
static kg_failure_t *failure_of(kg_mapper_t *m)
{
    if (!m->has_failure) {
        return m->has_candidate ? &m->candidate : NULL;
    }
    /* ipykernel 7 replies so when a __repr__ failed: it looks for the error where there is none. */
    bool nameless =
        m->failure.name.len == 0 || kg_slice_eq_cstr(kg_buf_slice(&m->failure.name), "NoneType");
    if (m->has_candidate && nameless) {
        return &m->candidate;
    }
    return &m->failure;
}

int kg_mapper_append_tail(kg_mapper_t *m, bool is_stderr)
{
    kg_text_ring_t *ring = &m->ring[is_stderr];
    kg_text_ring_trim(ring, kg_tail_max(&m->opts->limits));
    kg_log_account_t *account = &m->log->body->account;
    kg_cut_t what = is_stderr ? KG_CUT_STDERR : KG_CUT_STDOUT;
    int rc = 0;
    if (ring->units > 0 && !m->log->broken) {
        rc = kg_log_append_text(m->log, is_stderr ? KG_EVENT_STDERR : KG_EVENT_STDOUT, KG_REC_TAIL,
                                kg_buf_slice(&ring->buf), ring->units);
        if (rc == 0 && !m->log->broken) {
            account->cut[what] -= ring->units;
            account->kept[what] += ring->units;
        } else if (rc == 0) {
            account->cut[what] -= ring->units; /* counted once more when it was lost */
        }
    }
    kg_text_ring_fini(ring);
    return rc;
}

/* What was seen as an error and was none becomes stderr text; what was cut of one is told. */
static int settle_failures(kg_mapper_t *m, kg_run_status_t status, const kg_failure_t *failure)
{
    int rc = 0;
    if (m->has_candidate && status == KG_RUN_OK) {
        rc = kg_mapper_say_failure(m, &m->candidate);
    }
    if (rc == 0 && failure && failure->cut > 0 && status != KG_RUN_OK) {
        rc = kg_log_cut(m->log, KG_CUT_RESULT, failure->cut);
    }
    return rc;
}

/* --- the end -------------------------------------------------------------------------------------
 */

static int escape(kg_buf_t *out, const char *text)
{
    return kg_json_escape(out, text, strlen(text));
}

/* Name and message: the owner's, the contract's, or for a plain error the kernel's. */
static int describe(kg_run_status_t status,
                    const kg_run_end_t *end,
                    const kg_failure_t *failure,
                    kg_buf_t *name,
                    kg_buf_t *message)
{
    char made[160];
    bool plain = failure && (status == KG_RUN_ERROR || (status == KG_RUN_OOM && said_oom(failure)));
    message_of(status, end, made, sizeof made);
    int rc = 0;
    if (end->name || !plain || failure->name.len == 0) {
        rc = escape(name, end->name ? end->name : name_of(status));
    } else {
        rc = kg_buf_append_slice(name, kg_buf_slice(&failure->name));
    }
    if (rc < 0) {
        return rc;
    }
    if (end->message || !plain) {
        return escape(message, end->message ? end->message : made);
    }
    return kg_buf_append_slice(message, kg_buf_slice(&failure->message));
}

/* Lines of the traceback as JSON strings. Of an end that the kernel saw otherwise (a timeout is a
 * KeyboardInterrupt to it) the last line says what it was. name and message are escaped. */
static int trace(kg_run_status_t status,
                 const kg_failure_t *failure,
                 const kg_buf_t *name,
                 const kg_buf_t *message,
                 kg_buf_t *out)
{
    if (!failure || failure->traceback.len == 0) {
        return 0;
    }
    int rc = kg_buf_append_slice(out, kg_buf_slice(&failure->traceback));
    if (rc < 0 || status == KG_RUN_ERROR || status == KG_RUN_OK) {
        return rc;
    }
    return kg_buf_printf(out, ",\"%s: %s\"", name->data, message->data);
}

int kg_mapper_finish(kg_mapper_t *m, const kg_run_end_t *end)
{
    if (m->finished) {
        return -EALREADY;
    }
    KG_AUTO_BUF kg_buf_t name = {0};
    KG_AUTO_BUF kg_buf_t message = {0};
    KG_AUTO_BUF kg_buf_t traceback = {0};
    kg_run_status_t status = status_of(m, end);
    const kg_failure_t *failure = failure_of(m);
    int rc = describe(status, end, failure, &name, &message);
    rc = rc < 0 ? rc : trace(status, failure, &name, &message, &traceback);
    rc = rc < 0 ? rc : settle_failures(m, status, failure);
    m->has_candidate = m->has_candidate && rc < 0;
    rc = rc < 0 ? rc : kg_mapper_append_tail(m, false);
    rc = rc < 0 ? rc : kg_mapper_append_tail(m, true);
    if (rc < 0) {
        return rc;
    }
    kg_log_end_t last = {.status = status,
                         .started = end->started,
                         .lost = end->lost,
                         .name = kg_buf_slice(&name),
                         .message = kg_buf_slice(&message),
                         .traceback = kg_buf_slice(&traceback),
                         .usage = end->usage,
                         .execution_count = m->execution_count,
                         .wall_ns = end->wall_ns};
    rc = kg_log_append_end(m->log, &last);
    if (rc < 0) {
        return rc;
    }
    m->finished = true;
    m->status = status;
    kg_failure_fini(&m->candidate);
    kg_failure_fini(&m->failure);
    return 0;
}
