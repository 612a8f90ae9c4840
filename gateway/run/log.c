/* run: the log as its owner and its watchers see it. Events gather in a window, are written and
 * then published (noted) at flush; what is not published yet can still be taken back when the disk
 * fails. All knowledge of a log (index, what was cleared, updates, the end) comes from kg_log_note,
 * which recovery uses as well. */
#include "gateway/run/log.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/run/log_int.h"

static const char *const event_names[KG_EVENT_COUNT] = {"meta",   "queued",  "started",   "stdout",
                                                        "stderr", "display", "update",    "clear",
                                                        "input",  "error",   "truncated", "result"};

const char *kg_event_name(kg_event_type_t type)
{
    return (unsigned)type < KG_EVENT_COUNT ? event_names[type] : "?";
}

static const char *const status_names[KG_RUN_STATUS_COUNT] = {
    "ok",  "error",  "timeout", "interrupted",  "aborted",
    "oom", "killed", "exited",  "output_limit", "gateway_restart"};

const char *kg_run_status_name(kg_run_status_t status)
{
    return (unsigned)status < KG_RUN_STATUS_COUNT ? status_names[status] : "?";
}

const char *kg_cut_name(kg_cut_t cut)
{
    static const char *const names[KG_CUT_COUNT] = {"stdout", "stderr", "result", "events"};
    return (unsigned)cut < KG_CUT_COUNT ? names[cut] : "?";
}

void kg_run_limits_default(kg_run_limits_t *ret_limits)
{
    *ret_limits = (kg_run_limits_t){.output_bytes = KG_RUN_OUTPUT_BYTES,
                                    .result_bytes = KG_RUN_RESULT_BYTES,
                                    .events = KG_RUN_EVENTS,
                                    .on_exceed = KG_EXCEED_TRUNCATE};
}

/* --- birth and end ------------------------------------------------------------------------------
 */

/* Copies meta's strings into one block. */
static int copy_meta(kg_run_log_t *log, const kg_run_meta_t *meta)
{
    const char *const from[] = {meta->run,      meta->sandbox, meta->context,   meta->owner,
                                meta->language, meta->key,     meta->code_hash, meta->command};
    kg_run_meta_t *m = &log->body->meta;
    *m = *meta;
    log->created_wall_ns = meta->created_wall_ns;
    log->retain_s = meta->retain_s;
    (void)kg_format(log->run, sizeof log->run, "%s", meta->run);
    const char **const to[] = {&m->run,      &m->sandbox, &m->context,   &m->owner,
                               &m->language, &m->key,     &m->code_hash, &m->command};
    size_t size = 0;
    for (size_t i = 0; i < KG_ARRAY_LEN(from); i++) {
        size += from[i] ? strlen(from[i]) + 1 : 1;
    }
    char *block = malloc(size);
    if (!block) {
        return -ENOMEM;
    }
    log->body->strings = block;
    for (size_t i = 0; i < KG_ARRAY_LEN(from); i++) {
        size_t n = from[i] ? strlen(from[i]) : 0;
        if (n > 0) {
            memcpy(block, from[i], n);
        }
        block[n] = '\0';
        *to[i] = block;
        block += n + 1;
    }
    return 0;
}

static int meta_field(kg_buf_t *out, const char *name, const char *value)
{
    int rc = kg_buf_printf(out, ",\"%s\":", name);
    return rc < 0 ? rc : kg_json_quote_cstr(out, value);
}

static int append_meta(kg_run_log_t *log)
{
    KG_AUTO_BUF kg_buf_t json = {0};
    const kg_run_meta_t *m = &log->body->meta;
    int rc = kg_buf_printf(
        &json, "{\"version\":1,\"created\":%llu,\"retain\":%u,\"ansi\":%s,\"silent\":%s",
        (unsigned long long)m->created_wall_ns, m->retain_s, m->ansi ? "true" : "false",
        m->silent ? "true" : "false");
    const char *const fields[][2] = {{"run", m->run},
                                     {"sandbox", m->sandbox},
                                     {"context", m->context},
                                     {"owner", m->owner},
                                     {"language", m->language},
                                     {"key", m->key},
                                     {"code_hash", m->code_hash}};
    if (rc == 0 && m->timeout_ms) {
        rc = kg_buf_printf(&json, ",\"timeout\":%llu", (unsigned long long)m->timeout_ms);
    }
    for (size_t i = 0; rc == 0 && i < KG_ARRAY_LEN(fields); i++) {
        rc = meta_field(&json, fields[i][0], fields[i][1]);
    }
    if (rc == 0 && m->command[0]) {
        rc = meta_field(&json, "command", m->command);
    }
    rc = rc < 0 ? rc : kg_buf_append_char(&json, '}');
    if (rc < 0) {
        return rc;
    }
    kg_slice_t part = kg_buf_slice(&json);
    return kg_log_append(log, &(kg_log_event_t){.type = KG_EVENT_META, .parts = &part, .count = 1});
}

int kg_run_log_create(const kg_run_log_opts_t *opts,
                      const kg_run_meta_t *meta,
                      kg_run_log_t **ret_log)
{
    if (!meta->run || !kg_id_valid("run", meta->run)) {
        return -EINVAL;
    }
    KG_AUTO(kg_run_log_unref) kg_run_log_t *log = kg_log_new(opts);
    if (!log) {
        return -ENOMEM;
    }
    log->opts.dirty = NULL; /* the meta record alone is not worth a flush */
    int rc = copy_meta(log, meta);
    rc = rc < 0 ? rc : append_meta(log);
    if (rc < 0) {
        return rc;
    }
    log->opts.dirty = opts->dirty;
    log->dirty = false;
    *ret_log = KG_TAKE(log);
    return 0;
}

/* --- watchers -----------------------------------------------------------------------------------
 */

void kg_run_log_watch(kg_run_log_t *log, kg_run_watch_t *watch)
{
    watch->prev = NULL;
    watch->next = log->watches;
    if (log->watches) {
        log->watches->prev = watch;
    }
    log->watches = watch;
}

void kg_run_log_unwatch(kg_run_log_t *log, kg_run_watch_t *watch)
{
    if (!watch->prev && !watch->next && log->watches != watch) {
        return;
    }
    if (log->cursor == watch) {
        log->cursor = watch->next;
    }
    if (watch->prev) {
        watch->prev->next = watch->next;
    } else {
        log->watches = watch->next;
    }
    if (watch->next) {
        watch->next->prev = watch->prev;
    }
    watch->prev = watch->next = NULL;
    kg_log_settle(log);
}

/* A watcher may unwatch any (the cursor moves on with it), and may drop the last reference. */
static void notify(kg_run_log_t *log)
{
    log->cursor = log->watches;
    while (log->cursor) {
        kg_run_watch_t *watch = log->cursor;
        log->cursor = watch->next;
        watch->fn(watch->user);
    }
}

/* --- publishing ---------------------------------------------------------------------------------
 */

void kg_log_mark_dirty(kg_run_log_t *log)
{
    if (!log->dirty) {
        log->dirty = true;
        if (log->opts.dirty) {
            log->opts.dirty(log->opts.user, log);
        }
    }
}

static void note_index(kg_log_body_t *body, uint64_t off, const kg_rec_t *rec)
{
    size_t block = rec->seq / KG_LOG_INDEX_STEP;
    if (block + 1 == body->index_len) {
        body->index[block].has |= kg_rec_bit(rec);
        return;
    }
    if (rec->seq % KG_LOG_INDEX_STEP != 0 || block != body->index_len) {
        return;
    }
    if (body->index_len == body->index_cap) {
        size_t cap = body->index_cap ? body->index_cap * 2 : 4;
        kg_log_block_t *grown = realloc(body->index, cap * sizeof *grown);
        if (!grown) {
            return; /* seeking walks further then */
        }
        body->index = grown;
        body->index_cap = cap;
    }
    body->index[body->index_len++] = (kg_log_block_t){.off = off, .has = kg_rec_bit(rec)};
}

static void note_update(const kg_run_log_t *log, uint64_t off, uint32_t did)
{
    kg_log_body_t *body = log->body;
    if (did == 0 || did > KG_LOG_DISPLAYS_MAX) {
        return;
    }
    if (did > body->updates_len) {
        size_t len = did < 4 ? 4 : (size_t)did * 2;
        kg_log_update_t *grown = realloc(body->updates, len * sizeof *grown);
        if (!grown) {
            return; /* the display keeps its older value in the Execution; the event is there */
        }
        memset(grown + body->updates_len, 0, (len - body->updates_len) * sizeof *grown);
        body->updates = grown;
        body->updates_len = len;
    }
    body->updates[did - 1].live = off;
    if (!log->finished) {
        body->updates[did - 1].frozen = off;
    }
}

static void note_view(kg_log_view_t *view, uint64_t off, const kg_rec_t *rec)
{
    if (rec->type == KG_EVENT_CLEAR) {
        if (rec->flags & KG_REC_WAIT) {
            view->pending = true;
        } else {
            *view = (kg_log_view_t){.from = off};
        }
    } else if (kg_rec_is_output(rec) && view->pending) {
        *view = (kg_log_view_t){.from = off};
    }
    if (rec->type == KG_EVENT_DISPLAY && (rec->flags & (KG_REC_MAIN | KG_REC_VALUE))) {
        view->main = off;
    }
}

void kg_log_note(kg_run_log_t *log, uint64_t off, const kg_rec_t *rec, const kg_rich_t *rich)
{
    if (rec->type == KG_EVENT_META) {
        return;
    }
    note_index(log->body, off, rec);
    log->published_seq = rec->seq + 1;
    note_view(&log->body->live, off, rec);
    if (rec->flags & KG_REC_LATE) {
        log->late = true;
    }
    if (rec->type == KG_EVENT_STARTED) {
        log->started = true;
        log->execution_count = (int64_t)rec->units - 1;
    } else if (rec->type == KG_EVENT_UPDATE) {
        note_update(log, off, rich->did);
    } else if (rec->type == KG_EVENT_RESULT && !log->finished) {
        log->finished = true;
        log->result_off = off;
        log->body->frozen = log->body->live;
        log->status = rec->units < KG_RUN_STATUS_COUNT ? (kg_run_status_t)rec->units : KG_RUN_ERROR;
        log->finished_wall_ns = (uint64_t)rich->data_len << 32 | rich->data_src;
    }
}

/* Makes everything that was written visible. */
static int publish(kg_run_log_t *log)
{
    uint64_t end = kg_log_end_off(log);
    while (log->published < end) {
        kg_rec_t rec;
        kg_rich_t rich;
        int rc = kg_log_read_head(log, log->published, &rec, &rich);
        if (rc < 0) {
            return rc;
        }
        kg_log_note(log, log->published, &rec, &rich);
        log->published = kg_rec_next(log->published, &rec);
        log->news = true;
    }
    return 0;
}

/* A broken log tries the disk once more when it has ended. */
static bool may_write(kg_run_log_t *log)
{
    if (!log->broken) {
        return true;
    }
    bool again = log->ended && !log->retried;
    log->retried = log->retried || again;
    return again;
}

bool kg_run_log_may_wait(const kg_run_log_t *log)
{
    return !log->ended && !log->asks && !log->broken && !log->expired &&
           kg_log_end_off(log) - log->published < KG_RUN_WAIT_BYTES;
}

bool kg_run_log_only_starts(const kg_run_log_t *log)
{
    return !log->tells;
}

static void write_out(kg_run_log_t *log)
{
    kg_log_seal(log);
    log->starts = false;
    if (may_write(log)) {
        int rc = kg_log_write_out(log);
        if (rc < 0 && !log->broken) {
            kg_log_break(log, rc);
        }
    }
}

void kg_run_log_save(kg_run_log_t *log)
{
    if (log->body && !log->expired) {
        write_out(log);
    }
}

void kg_run_log_save_start(kg_run_log_t *log)
{
    if (log->starts) {
        kg_run_log_save(log);
    }
}

int kg_run_log_flush(kg_run_log_t *log)
{
    int told = 0;
    log->dirty = log->asks = log->tells = false;
    if (log->expired || !log->body) {
        return 0;
    }
    write_out(log);
    int rc = publish(log);
    if (rc < 0) { /* the file cannot be read back: what is still in memory goes on without it */
        kg_log_break(log, rc);
        log->published = log->published < log->body->win_off ? log->body->win_off : log->published;
        (void)publish(log);
    }
    if (log->error < 0) {
        told = log->error;
        log->error = 0;
    }
    log->dirty = false;
    if (log->news) {
        KG_AUTO(kg_run_log_unref) kg_run_log_t *hold = kg_run_log_ref(log);
        log->news = false;
        notify(hold);
        kg_log_settle(hold);
    }
    return told;
}

void kg_run_log_remove(kg_run_log_t *log)
{
    if (log->expired) {
        return;
    }
    KG_AUTO(kg_run_log_unref) kg_run_log_t *hold = kg_run_log_ref(log);
    if (log->body) {
        kg_log_void_ahead(log);
    }
    uint64_t size = kg_run_log_size(log);
    log->expired = true;
    if (log->fd >= 0) {
        (void)close(log->fd);
        log->fd = -1;
    }
    if (log->slot.pack) {
        kg_run_slot_give(&log->slot, size);
    } else if (log->name[0] && log->opts.spares) {
        kg_run_spares_give(log->opts.spares, log->name, size);
    } else if (log->name[0]) {
        (void)unlinkat(log->opts.dirfd, log->name, 0);
    }
    kg_log_settle(log);
    notify(hold);
}

/* --- getters ------------------------------------------------------------------------------------
 */

const char *kg_run_log_id(const kg_run_log_t *log)
{
    return log->run;
}

uint64_t kg_run_log_created_wall_ns(const kg_run_log_t *log)
{
    return log->created_wall_ns;
}

const kg_run_meta_t *kg_run_log_meta(const kg_run_log_t *log)
{
    return log->body ? &log->body->meta : NULL;
}

uint64_t kg_run_log_size(const kg_run_log_t *log)
{
    return kg_log_end_off(log);
}

uint64_t kg_run_log_next_seq(const kg_run_log_t *log)
{
    return log->published_seq;
}

bool kg_run_log_started(const kg_run_log_t *log)
{
    return log->started;
}

int64_t kg_run_log_execution_count(const kg_run_log_t *log)
{
    return log->execution_count;
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

bool kg_run_log_broken(const kg_run_log_t *log)
{
    return log->broken;
}

kg_run_status_t kg_run_log_status(const kg_run_log_t *log)
{
    return log->status;
}

uint64_t kg_run_log_finished_wall_ns(const kg_run_log_t *log)
{
    return log->finished_wall_ns;
}
