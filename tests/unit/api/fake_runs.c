/* Runs and their logs as seen from above, in memory. */
#include "fake_private.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utlist.h>

/* --- Runs ----------------------------------------------------------------------------------- */

int kg_run_new(kg_sandbox_t *sandbox,
               const kg_run_opts_t *opts,
               kg_run_t **ret_run,
               bool *ret_existing,
               kg_err_t *err)
{
    kg_core_t *core = sandbox->core;
    if (ret_existing) {
        *ret_existing = false;
    }
    if (opts->code.len >= 4 && memcmp(opts->code.data, "full", 4) == 0) {
        kg_err_set(err, KG_ERR_QUEUE_FULL, "The queue is full.");
        err->retry_after_s = 2;
        return -ENOBUFS;
    }
    if (!core->stats.attached) {
        fake_log_clear(&core->log);
    }
    core->have_run = true;
    core->stats.runs_made++;
    core->stats.last_run = *opts;
    snprintf(core->stats.last_code, sizeof core->stats.last_code, "%.*s",
             (int)(opts->code.len < 60 ? opts->code.len : 60), opts->code.data);
    *ret_run = &core->run;
    return 0;
}

kg_run_t *fake_run(kg_core_t *core)
{
    core->have_run = true;
    return &core->run;
}

kg_run_t *kg_run_find(kg_sandbox_t *sandbox, const char *id, kg_err_t *err)
{
    if (sandbox->core->have_run && strcmp(id, FAKE_RUN) == 0) {
        return &sandbox->core->run;
    }
    kg_err_set(err, KG_ERR_RUN_NOT_FOUND, "No run %.60s.", id);
    return NULL;
}

const char *kg_run_id(const kg_run_t *run)
{
    (void)run;
    return FAKE_RUN;
}

const char *kg_run_context_id(const kg_run_t *run)
{
    (void)run;
    return FAKE_CONTEXT;
}

kg_sandbox_t *kg_run_sandbox(const kg_run_t *run)
{
    return &run->core->sandbox;
}

bool kg_run_ended(const kg_run_t *run)
{
    return run->core->log.finished;
}

bool kg_run_expired(const kg_run_t *run)
{
    return run->core->log.expired;
}

kg_run_log_t *kg_run_log_of(kg_run_t *run)
{
    return run->core->log.expired ? NULL : &run->core->log;
}

int kg_run_execution(kg_run_t *run, kg_buf_t *out)
{
    return kg_buf_printf(out, "{\"run\":\"%s\",\"status\":\"%s\"}", FAKE_RUN,
                         run->core->log.expired ? "ok" : "running");
}

int kg_run_list(kg_sandbox_t *sandbox, const kg_run_filter_t *filter, kg_buf_t *out, kg_err_t *err)
{
    (void)sandbox;
    if (filter->context && strcmp(filter->context, "main") != 0) {
        return kg_err_set(err, KG_ERR_CONTEXT_NOT_FOUND, "No such context.");
    }
    return kg_buf_append_cstr(out, "{\"items\":[],\"next\":null}");
}

int kg_run_input(kg_run_t *run, kg_slice_t value, kg_err_t *err)
{
    if (run->core->log.finished) {
        return kg_err_set(err, KG_ERR_NOT_WAITING, "The run does not wait for input.");
    }
    snprintf(run->core->stats.input, sizeof run->core->stats.input, "%.*s",
             (int)(value.len < 60 ? value.len : 60), value.data);
    return 0;
}

int kg_run_interrupt(kg_run_t *run, kg_err_t *err)
{
    (void)err;
    run->core->stats.interrupts++;
    return 0;
}

void kg_run_attach(kg_run_t *run)
{
    run->core->stats.attached++;
}

void kg_run_detach(kg_run_t **run)
{
    if (*run) {
        (*run)->core->stats.attached--;
        *run = NULL;
    }
}

/* --- Logs ----------------------------------------------------------------------------------- */

void fake_log_clear(kg_run_log_t *log)
{
    for (size_t i = 0; i < log->count; i++) {
        free(log->events[i].text);
    }
    free(log->events);
    log->events = NULL;
    log->count = 0;
    log->finished = log->expired = log->late = false;
}

const char *kg_run_status_name(kg_run_status_t status)
{
    return status == KG_RUN_OK ? "ok" : "other";
}

void fake_run_event(kg_core_t *core, kg_event_type_t type, const char *members)
{
    kg_run_log_t *log = &core->log;
    event_t *events = realloc(log->events, (log->count + 1) * sizeof *events);
    size_t cap = strlen(members) + 64;
    char *text = malloc(cap);
    if (!events || !text) {
        abort();
    }
    snprintf(text, cap, "{\"run\":\"%s\",\"seq\":%zu,%s}", FAKE_RUN, log->count, members);
    log->events = events;
    log->events[log->count++] = (event_t){type, text};
    log->late |= log->finished;
}

void fake_run_finish(kg_core_t *core)
{
    core->log.result = core->log.count;
    fake_run_event(core, KG_EVENT_RESULT, "\"type\":\"result\",\"status\":\"ok\"");
    core->log.late = false;
    core->log.finished = true;
    fake_run_flush(core);
}

void fake_run_expire(kg_core_t *core)
{
    core->log.expired = true;
    fake_run_flush(core);
}

void fake_run_flush(kg_core_t *core)
{
    kg_run_watch_t *w, *tmp;
    DL_FOREACH_SAFE (core->log.watches, w, tmp) {
        w->fn(w->user);
    }
}

void fake_run_piece(kg_core_t *core, size_t max)
{
    core->piece = max;
}

kg_run_log_t *kg_run_log_ref(kg_run_log_t *log)
{
    return log;
}

void kg_run_log_unref(kg_run_log_t **log)
{
    *log = NULL;
}

bool kg_run_log_finished(const kg_run_log_t *log)
{
    return log->finished;
}

bool kg_run_log_expired(const kg_run_log_t *log)
{
    return log->expired;
}

bool kg_run_log_late(const kg_run_log_t *log)
{
    return log->late;
}

uint64_t kg_run_log_next_seq(const kg_run_log_t *log)
{
    return log->count;
}

void kg_run_log_watch(kg_run_log_t *log, kg_run_watch_t *watch)
{
    DL_APPEND(log->watches, watch);
    log->core->stats.watches++;
}

void kg_run_log_unwatch(kg_run_log_t *log, kg_run_watch_t *watch)
{
    DL_DELETE(log->watches, watch);
    log->core->stats.watches--;
}

static int reader_new(kg_run_log_t *log, kg_run_reader_t **ret_reader)
{
    kg_run_reader_t *r = calloc(1, sizeof *r);
    if (!r) {
        return -ENOMEM;
    }
    r->log = log;
    log->core->stats.readers++;
    *ret_reader = r;
    return 0;
}

int kg_run_reader_create(kg_run_log_t *log, int64_t after, bool late, kg_run_reader_t **ret_reader)
{
    int rc = reader_new(log, ret_reader);
    if (rc == 0) {
        (*ret_reader)->next = (uint64_t)(after + 1);
        (*ret_reader)->late = late;
        (*ret_reader)->over = log->finished && !late && after >= (int64_t)log->result;
    }
    return rc;
}

int kg_run_reader_execution(kg_run_log_t *log, kg_run_reader_t **ret_reader)
{
    if (!log->finished) {
        return -EAGAIN;
    }
    int rc = reader_new(log, ret_reader);
    if (rc == 0) {
        KG_AUTO_BUF kg_buf_t text = {0};
        rc = kg_buf_printf(&text, "{\"run\":\"%s\",\"status\":\"ok\",\"events\":%zu,\"pad\":\"",
                           FAKE_RUN, log->count);
        for (size_t i = 0; i < log->count; i++) {
            for (const char *p = log->events[i].text; *p; p++) {
                rc = rc < 0 || *p == '"' || *p == '\\' ? rc : kg_buf_append_char(&text, *p);
            }
        }
        rc = rc < 0 ? rc : kg_buf_append_cstr(&text, "\"}");
        (*ret_reader)->text = kg_buf_steal(&text, NULL);
        (*ret_reader)->execution = true;
    }
    return rc;
}

void kg_run_reader_destroy(kg_run_reader_t **reader)
{
    if (*reader) {
        (*reader)->log->core->stats.readers--;
        free((*reader)->text);
        free(*reader);
        *reader = NULL;
    }
}

static int
give(kg_run_reader_t *r, kg_buf_t *out, size_t max, const char *text, kg_read_piece_t *piece)
{
    size_t len = strlen(text) - r->offset;
    size_t cap = r->log->core->piece < max ? r->log->core->piece : max;
    size_t n = len < cap ? len : cap;
    int rc = kg_buf_append(out, text + r->offset, n);
    piece->begin = r->offset == 0;
    piece->end = n == len;
    r->offset = piece->end ? 0 : r->offset + n;
    return rc < 0 ? rc : KG_READ_PIECE;
}

int kg_run_reader_next(kg_run_reader_t *r, kg_buf_t *out, size_t max, kg_read_piece_t *ret_piece)
{
    if (r->log->expired) {
        return KG_READ_EXPIRED;
    }
    if (r->over) {
        return KG_READ_END;
    }
    if (r->execution) {
        int rc = give(r, out, max, r->text, ret_piece);
        r->over = ret_piece->end;
        return rc;
    }
    if (r->next >= r->log->count) {
        return KG_READ_WAIT;
    }
    const event_t *e = &r->log->events[r->next];
    int rc = give(r, out, max, e->text, ret_piece);
    ret_piece->type = e->type;
    ret_piece->seq = (uint32_t)r->next;
    if (ret_piece->end) {
        r->next++;
        r->over = e->type == KG_EVENT_RESULT && !r->late;
    }
    return rc;
}

uint64_t kg_run_reader_seq(const kg_run_reader_t *reader)
{
    return reader->next;
}
