/* gateway/context: runs as they are listed and read: what has come of each so far, the Execution of
 * those that have ended, with outputs or without. */
#include <errno.h>
#include <string.h>

#include "gateway/context/internal.h"
#include "gateway/run/reader.h"

enum {
    PIECE = 65536, /* bytes of an Execution that are read at once */
};

static int write_progress(const kg_run_t *run, kg_buf_t *out)
{
    if (run->is_command) {
        return kg_buf_printf(out, "{\"run\":\"%s\",\"status\":\"running\"}", run->id);
    }
    bool waits = run->live && run->live->input_header.len > 0;
    const char *status = run->started ? (waits ? "waiting" : "running") : "queued";
    int rc = kg_buf_printf(
        out, "{\"run\":\"%s\",\"context\":\"%s\",\"status\":\"%s\",\"execution_count\":", run->id,
        run->context_id, status);
    if (run->started && !run->silent && run->context) {
        rc = rc ? rc
                : kg_buf_printf(out, "%llu}", (unsigned long long)run->context->execution_count);
    } else {
        rc = rc ? rc : kg_buf_append_cstr(out, "null}");
    }
    return rc;
}

static int write_slim(kg_run_t *run, kg_buf_t *out)
{
    if (run->expired) {
        const kg_run_slim_t *slim = kg_run_budget_slim(run->core->budget, run->id);
        if (slim) {
            return kg_buf_append_slice(out, slim->json);
        }
        return kg_buf_printf(out, "{\"run\":\"%s\",\"context\":\"%s\",\"expired\":true}", run->id,
                             run->context_id);
    }
    int rc =
        run->log && kg_run_log_finished(run->log) ? kg_run_log_slim(run->log, false, out) : -EAGAIN;
    return rc == -EAGAIN ? write_progress(run, out) : rc;
}

int kg_run_execution(kg_run_t *run, kg_buf_t *out)
{
    if (run->expired || !run->log || !kg_run_log_finished(run->log)) {
        return write_slim(run, out);
    }
    kg_run_reader_t *reader = NULL;
    int rc = kg_run_reader_execution(run->log, &reader);
    while (!rc) {
        kg_read_piece_t piece;
        int got = kg_run_reader_next(reader, out, PIECE, &piece);
        if (got == KG_READ_END) {
            break;
        }
        rc = got == KG_READ_PIECE ? 0 : (got < 0 ? got : -ESTALE);
    }
    kg_run_reader_destroy(&reader);
    return rc;
}

/* What runs say of the context that a client names, by *id. One that has gone has its runs still,
 * and those alone know of it. */
static int find_context(kg_sandbox_t *sandbox, const char *wanted, const char **id, kg_err_t *err)
{
    const kg_context_t *context = kg_context_find(sandbox, wanted, NULL);
    const kg_run_t *run = context ? NULL : sandbox->runs;
    while (run && strcmp(run->context_id, wanted) != 0) {
        run = run->next;
    }
    if (!context && !run) {
        (void)kg_context_find(sandbox, wanted, err);
        kg_err_pointer(err, "/context");
        return -ENOENT;
    }
    *id = context ? context->id : wanted;
    return 0;
}

static int find_after(kg_sandbox_t *sandbox, const char *after, kg_run_t **ret, kg_err_t *err)
{
    kg_run_t *run = kg_run_table_find(&sandbox->core->runs, after);
    if (!run || run->sandbox != sandbox) {
        return kg_bad(err, "/after", "after: no such run (any more)");
    }
    *ret = run;
    return 0;
}

/* The list's head points at its tail by prev, so it is walked backwards without a length. */
static kg_run_t *older(const kg_sandbox_t *sandbox, kg_run_t *run)
{
    return !run || run == sandbox->runs ? NULL : run->prev;
}

int kg_run_list(kg_sandbox_t *sandbox, const kg_run_filter_t *filter, kg_buf_t *out, kg_err_t *err)
{
    unsigned limit = filter->limit ? filter->limit : KG_LIST_LIMIT;
    const char *context = NULL;
    kg_run_t *at = sandbox->runs ? sandbox->runs->prev : NULL;
    const kg_run_t *last = NULL;
    unsigned count = 0;
    if (limit > KG_LIST_LIMIT_MAX) {
        return kg_bad(err, "/limit", "limit: at most %d", KG_LIST_LIMIT_MAX);
    }
    int rc = filter->context ? find_context(sandbox, filter->context, &context, err) : 0;
    if (filter->after && !rc) {
        rc = find_after(sandbox, filter->after, &at, err);
        at = rc ? NULL : older(sandbox, at);
    }
    if (rc) {
        return rc;
    }
    rc = kg_buf_append_cstr(out, "{\"items\":[");
    for (; at && !rc; at = older(sandbox, at)) {
        if (at->is_command || (context && strcmp(at->context_id, context) != 0)) {
            continue;
        }
        if (count == limit) {
            break;
        }
        rc = count++ ? kg_buf_append_char(out, ',') : 0;
        rc = rc ? rc : write_slim(at, out);
        last = at;
    }
    rc = rc             ? rc
         : (at && last) ? kg_buf_printf(out, "],\"next\":\"%s\"}", last->id)
                        : kg_buf_append_cstr(out, "],\"next\":null}");
    return rc ? kg_oom(err) : 0;
}
