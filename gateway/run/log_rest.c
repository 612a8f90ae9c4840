/* run: what is kept of a log in memory, and for how long. A finished log in a budget that nobody
 * reads, watches or may append to is at rest: its body goes, and all that is known of it is what
 * lists and budgets ask for. The first reader, or mapper, wakes it by the walk that a recovery
 * makes. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "gateway/run/log_int.h"

kg_run_log_t *kg_log_new(const kg_run_log_opts_t *opts)
{
    kg_run_log_t *log = calloc(1, sizeof *log);
    kg_log_body_t *body = calloc(1, sizeof *body);
    if (!log || !body) {
        free(log);
        free(body);
        return NULL;
    }
    log->body = body;
    log->refs = 1;
    log->opts = *opts;
    log->fd = -1;
    log->execution_count = -1;
    return log;
}

/* What grows with the log. */
static void body_clear(kg_log_body_t *body)
{
    kg_buf_fini(&body->win);
    free(body->index);
    free(body->updates);
    body->index = NULL;
    body->updates = NULL;
    body->index_len = body->index_cap = body->updates_len = 0;
    body->open = 0;
}

static void body_free(kg_log_body_t *body)
{
    body_clear(body);
    free(body->strings);
    free(body);
}

static void close_file(kg_run_log_t *log)
{
    if (log->fd >= 0) {
        (void)close(log->fd);
        log->fd = -1;
    }
}

/* --- references ---------------------------------------------------------------------------------
 */

kg_run_log_t *kg_run_log_ref(kg_run_log_t *log)
{
    log->refs++;
    return log;
}

void kg_run_log_unref(kg_run_log_t **log)
{
    kg_run_log_t *l = *log;
    *log = NULL;
    if (!l || --l->refs > 0) {
        return;
    }
    close_file(l);
    if (l->slot.pack) {
        kg_run_slot_leave(&l->slot);
    }
    if (l->body) {
        kg_log_void_ahead(l);
        body_free(l->body);
    }
    free(l);
}

kg_run_log_t *kg_log_hold(kg_run_log_t *log)
{
    log->writers++;
    return kg_run_log_ref(log);
}

void kg_log_release(kg_run_log_t **log)
{
    if (*log) {
        (*log)->writers--;
        kg_log_settle(*log);
        kg_run_log_unref(log);
    }
}

/* --- rest ----------------------------------------------------------------------------------------
 */

void kg_log_close(kg_run_log_t *log)
{
    kg_log_body_t *body = log->body;
    if (!log->finished || log->dirty || log->expired ||
        (body && body->written < kg_log_end_off(log))) {
        return;
    }
    if (body && log->readers > 0 && body->win.len <= KG_LOG_WINDOW_READ) {
        return; /* from memory they have it sooner than from the file */
    }
    if (body) {
        body->win_off = kg_log_end_off(log);
        kg_buf_fini(&body->win);
    }
    if (log->readers == 0) {
        close_file(log);
    }
}

/* Whether its file tells all that it has, and is quick to tell it. What was cut after the end was
 * counted in memory only. */
static bool told_by_file(const kg_run_log_t *log)
{
    const kg_log_body_t *body = log->body;
    return log->finished && log->published == body->written &&
           log->published == kg_log_end_off(log) && log->published <= KG_RUN_REST_MAX &&
           !log->dirty && !log->news && !log->broken && !log->late_cut;
}

void kg_log_settle(kg_run_log_t *log)
{
    kg_log_close(log);
    if (!log->body) {
        return;
    }
    if (log->expired) {
        body_clear(log->body);
    }
    bool needed = log->writers > 0 || log->readers > 0 || log->watches;
    if (!needed && (log->expired || (log->charge.place && told_by_file(log)))) {
        body_free(log->body);
        log->body = NULL;
    }
}

/* --- awake --------------------------------------------------------------------------------------
 */

/* All of the file into the window. */
static int read_all(kg_run_log_t *log)
{
    kg_buf_t *win = &log->body->win;
    int rc = kg_buf_reserve(win, (size_t)log->published);
    log->body->win_off = log->published; /* it is on disk */
    rc = rc < 0 ? rc : kg_log_read(log, 0, win->data, (size_t)log->published);
    if (rc == 0) {
        win->len = (size_t)log->published;
        log->body->win_off = 0;
        log->body->written = log->published;
    }
    return rc;
}

/* What the walk finds must be what was known. */
static int read_again(kg_run_log_t *log, const kg_run_log_t *was)
{
    uint64_t end;
    int rc = read_all(log);
    rc = rc < 0 ? rc : kg_log_walk(log, was->published, &end);
    if (rc < 0) {
        return rc;
    }
    bool same = end == was->published && log->published_seq == was->published_seq &&
                log->result_off == was->result_off &&
                log->finished_wall_ns == was->finished_wall_ns && strcmp(log->run, was->run) == 0;
    return same && log->finished ? 0 : -EIO;
}

int kg_run_log_wake(kg_run_log_t *log)
{
    if (log->body) {
        return 0;
    }
    if (log->expired) {
        return -ESTALE;
    }
    kg_log_body_t *body = calloc(1, sizeof *body);
    if (!body) {
        return -ENOMEM;
    }
    const kg_run_log_t was = *log;
    log->body = body;
    log->finished = log->ended = log->late = false; /* as before the first record */
    log->published_seq = 0;
    int rc = read_again(log, &was);
    if (rc < 0) {
        int fd = log->fd;
        *log = was;
        log->fd = fd;
        body_free(body);
    }
    kg_log_close(log);
    return rc == -EBADMSG || rc == -ENOENT ? -EIO : rc;
}
