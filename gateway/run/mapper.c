/* run: prepared messages into the log, under the run's limits. Small work on the loop's thread; a
 * message of many MiB takes several calls. */
#include "gateway/run/mapper.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/utf8.h"
#include "gateway/run/mapper_int.h"

int kg_mapper_create(const kg_mapper_opts_t *opts,
                     kg_run_log_t *log,
                     kg_displays_t *displays,
                     const kg_mapper_sink_t *sink,
                     kg_mapper_t **ret_mapper)
{
    int rc = kg_run_log_wake(log);
    kg_mapper_t *m = rc < 0 ? NULL : calloc(1, sizeof *m);
    if (!m) {
        kg_log_settle(log);
        return rc < 0 ? rc : -ENOMEM;
    }
    m->opts = opts;
    m->log = kg_log_hold(log);
    m->displays = displays;
    m->sink = sink ? *sink : (kg_mapper_sink_t){0};
    m->state.input_count = -1;
    m->state.reply_count = -1;
    m->execution_count = -1;
    *ret_mapper = m;
    return 0;
}

void kg_mapper_destroy(kg_mapper_t **mapper)
{
    kg_mapper_t *m = *mapper;
    *mapper = NULL;
    if (!m) {
        return;
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(m->ring); i++) {
        kg_text_ring_fini(&m->ring[i]);
    }
    kg_failure_fini(&m->candidate);
    kg_failure_fini(&m->failure);
    kg_log_release(&m->log);
    free(m);
}

kg_run_log_t *kg_mapper_log(kg_mapper_t *mapper)
{
    return mapper->log;
}

const kg_mapper_state_t *kg_mapper_state(const kg_mapper_t *mapper)
{
    return &mapper->state;
}

void kg_mapper_ended(kg_mapper_t *mapper)
{
    mapper->finished = true;
    mapper->status = KG_RUN_GATEWAY_RESTART;
}

bool kg_mapper_finished(const kg_mapper_t *mapper)
{
    return mapper->finished;
}

kg_run_status_t kg_mapper_status(const kg_mapper_t *mapper)
{
    return mapper->status;
}

/* --- limits --------------------------------------------------------------------------------------
 */

static int cut(kg_mapper_t *m, kg_cut_t what, uint64_t amount)
{
    int rc = kg_log_cut(m->log, what, amount);
    if (m->opts->limits.on_exceed == KG_EXCEED_STOP && !m->stopped && !m->finished) {
        m->stopped = true;
        if (m->sink.stop) {
            m->sink.stop(m->sink.user, what);
        }
    }
    return rc;
}

static bool events_left(const kg_mapper_t *m)
{
    return m->log->body->next_seq < m->opts->limits.events;
}

/* Text past a limit: counted, and its end remembered. */
static int cut_text(kg_mapper_t *m, bool is_stderr, kg_slice_t text, uint64_t units)
{
    int rc = cut(m, is_stderr ? KG_CUT_STDERR : KG_CUT_STDOUT, units);
    if (rc < 0 || m->finished) {
        return rc; /* late output has no end that a tail could follow */
    }
    return kg_text_ring_push(&m->ring[is_stderr], text.data, text.len,
                             kg_tail_max(&m->opts->limits));
}

/* Once something of a stream was cut, all that follows is. */
uint64_t kg_mapper_text_left(const kg_mapper_t *m, bool is_stderr)
{
    kg_cut_t what = is_stderr ? KG_CUT_STDERR : KG_CUT_STDOUT;
    uint64_t kept = m->log->body->account.kept[what];
    if (m->log->body->account.said[what] || kept >= m->opts->limits.output_bytes) {
        return 0;
    }
    return m->opts->limits.output_bytes - kept;
}

int kg_mapper_append_text(kg_mapper_t *m, bool is_stderr, kg_slice_t text)
{
    kg_event_type_t type = is_stderr ? KG_EVENT_STDERR : KG_EVENT_STDOUT;
    kg_cut_t what = is_stderr ? KG_CUT_STDERR : KG_CUT_STDOUT;
    while (text.len > 0) {
        uint64_t left = kg_mapper_text_left(m, is_stderr);
        size_t units = 0;
        size_t n = 0;
        if (left > 0 && events_left(m)) {
            size_t max = left < KG_RUN_TEXT_MAX ? (size_t)left : KG_RUN_TEXT_MAX;
            n = kg_text_split(text.data, text.len, max, &units);
        } else if (left > 0) {
            int rc = cut(m, KG_CUT_EVENTS, 0);
            if (rc < 0) {
                return rc;
            }
        }
        if (n == 0) {
            return cut_text(m, is_stderr, text, kg_text_units(text.data, text.len));
        }
        int rc = kg_log_append_text(m->log, type, 0, kg_slice(text.data, n), units);
        if (rc < 0) {
            return rc;
        }
        m->log->body->account.kept[what] += units;
        text = kg_slice(text.data + n, text.len - n);
    }
    return 0;
}

/* --- results -------------------------------------------------------------------------------------
 */

/* Whether the bundle, cut to what is left, may go to log. */
static int fit(kg_mapper_t *m, kg_bundle_t *b, kg_run_log_t *log, bool *ret_fits)
{
    uint64_t limit = m->opts->limits.result_bytes;
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): a target has its log
    uint64_t kept = log->body->account.kept[KG_CUT_RESULT];
    uint64_t left = kept < limit ? limit - kept : 0;
    *ret_fits = log->body->next_seq < m->opts->limits.events;
    if (!*ret_fits) {
        return log == m->log ? cut(m, KG_CUT_EVENTS, 1) : kg_log_cut(log, KG_CUT_EVENTS, 1);
    }
    /* Also when another log that shows it had less room and it was cut to that. */
    int rc = b->units > left || b->cut > 0 ? kg_bundle_select(b, m->opts, left) : 0;
    if (rc == 0 && b->cut > 0) {
        rc = log == m->log ? cut(m, KG_CUT_RESULT, b->cut) : kg_log_cut(log, KG_CUT_RESULT, b->cut);
    }
    return rc;
}

/* 1 = a part of it is written. */
static int append_bundle(kg_mapper_t *m, kg_bundle_t *b, kg_run_log_t *log, kg_event_type_t type)
{
    bool fits = true;
    int rc = b->fitted ? 0 : fit(m, b, log, &fits);
    if (rc < 0 || !fits) {
        return rc;
    }
    b->fitted = true;
    rc = kg_bundle_append(b, log, type);
    b->fitted = rc == 1;
    if (rc == -E2BIG) { /* escaped, it is longer than a record can be */
        return log == m->log ? cut(m, KG_CUT_RESULT, b->units)
                             : kg_log_cut(log, KG_CUT_RESULT, b->units);
    }
    if (rc == 0) {
        log->body->account.kept[KG_CUT_RESULT] += b->units;
    }
    return rc;
}

static int apply_display(kg_mapper_t *m, kg_bundle_t *b)
{
    if (!b->fitted) {
        b->did = 0;
        if (b->has_display_id && m->displays) {
            b->did = kg_displays_assign(m->displays, kg_buf_slice(&b->display_id), m->log);
        }
        b->main = b->main && !(m->has_main && b->payload);
        m->has_main = m->has_main || b->main;
    }
    return append_bundle(m, b, m->log, KG_EVENT_DISPLAY);
}

/* Every log that shows the id (late where its run is over), and the running one. */
static int find_targets(kg_mapper_t *m, kg_mapped_t *mapped)
{
    const kg_bundle_t *b = &mapped->bundles[0];
    size_t count = 0;
    const kg_display_target_t *found = NULL;
    if (b->has_display_id && m->displays) {
        found = kg_displays_find(m->displays, kg_buf_slice(&b->display_id), &count);
    }
    if (count == 0) {
        return 0;
    }
    mapped->targets = calloc(count + 1, sizeof *mapped->targets);
    if (!mapped->targets) {
        return -ENOMEM;
    }
    bool here = false;
    for (size_t i = 0; i < count; i++) {
        here = here || found[i].log == m->log;
        mapped->targets[i] = found[i];
    }
    if (!here) {
        mapped->targets[count++] = (kg_display_target_t){.log = m->log};
    }
    for (size_t i = 0; i < count; i++) {
        (void)kg_log_hold(mapped->targets[i].log);
    }
    mapped->targets_len = count;
    return 0;
}

static int apply_update(kg_mapper_t *m, kg_mapped_t *mapped)
{
    kg_bundle_t *b = &mapped->bundles[0];
    if (mapped->targets_len == 0 && !b->fitted) {
        int rc = find_targets(m, mapped);
        if (rc < 0) {
            return rc;
        }
    }
    if (mapped->targets_len == 0) {
        return apply_display(m, b); /* nobody knows the id: it is shown now */
    }
    int rc = 0;
    while (rc == 0 && mapped->target < mapped->targets_len) {
        const kg_display_target_t *to = &mapped->targets[mapped->target];
        b->did = to->did;
        rc = append_bundle(m, b, to->log, KG_EVENT_UPDATE);
        mapped->target += rc == 0 ? 1 : 0;
    }
    return rc;
}

static int apply_clear(kg_mapper_t *m, bool wait)
{
    static const char *const fields[] = {",\"wait\":false", ",\"wait\":true"};
    if (!events_left(m)) {
        return cut(m, KG_CUT_EVENTS, 1);
    }
    kg_slice_t part = kg_slice_cstr(fields[wait]);
    return kg_log_append(m->log, &(kg_log_event_t){.type = KG_EVENT_CLEAR,
                                                   .flags = wait ? KG_REC_WAIT : 0U,
                                                   .parts = &part,
                                                   .count = 1});
}

/* --- errors and replies --------------------------------------------------------------------------
 */

static void take_failure(kg_failure_t *to, kg_failure_t *from)
{
    kg_failure_fini(to);
    *to = *from;
    *from = (kg_failure_t){0};
}

/* The traceback's lines, else "name: message", as stderr text. */
int kg_mapper_say_failure(kg_mapper_t *m, const kg_failure_t *f)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    int rc = 0;
    if (f->traceback.len > 2) {
        kg_text_join_t join = {0};
        rc = kg_text_join(&join, &text, f->traceback.data, f->traceback.len);
    } else {
        rc = kg_buf_append_slice(&text, kg_buf_slice(&f->name));
        rc = rc < 0 ? rc : kg_buf_append_cstr(&text, f->message.len > 0 ? ": " : "");
        rc = rc < 0 ? rc : kg_buf_append_slice(&text, kg_buf_slice(&f->message));
    }
    rc = rc < 0 ? rc : kg_buf_append(&text, "\\n", 2);
    return rc < 0 ? rc : kg_mapper_append_text(m, true, kg_buf_slice(&text));
}

/* An iopub error is not a failure before the reply says so; an earlier one was none. After the end
 * it can only be output. */
static int apply_error(kg_mapper_t *m, kg_mapped_t *mapped)
{
    m->state.error_seen = true;
    if (m->finished) {
        return kg_mapper_say_failure(m, &mapped->failure);
    }
    int rc = m->has_candidate ? kg_mapper_say_failure(m, &m->candidate) : 0;
    take_failure(&m->candidate, &mapped->failure);
    m->has_candidate = true;
    return rc;
}

static int apply_reply(kg_mapper_t *m, kg_mapped_t *mapped)
{
    int rc = 0;
    while (rc == 0 && mapped->bundle < mapped->bundles_len) {
        rc = apply_display(m, &mapped->bundles[mapped->bundle]);
        mapped->bundle += rc == 0 ? 1 : 0;
    }
    if (rc == 1) {
        return rc;
    }
    if (rc == 0 && mapped->over > 0) {
        rc = cut(m, KG_CUT_RESULT, mapped->over);
    }
    m->state.replies++;
    m->state.ask_exit = m->state.ask_exit || mapped->ask_exit;
    if (m->state.reply != KG_REPLY_NONE || m->finished) {
        return rc;
    }
    m->state.reply = mapped->reply;
    m->state.reply_count = mapped->count;
    if (mapped->has_failure) {
        take_failure(&m->failure, &mapped->failure);
        m->has_failure = true;
    }
    return rc;
}

/* --- applying ------------------------------------------------------------------------------------
 */

/* What a worker has written already. False when there is no more of it. */
static bool take_ahead(kg_mapper_t *m, kg_mapped_t *mapped)
{
    uint64_t units = 0;
    size_t n = kg_log_take_ahead(m->log, mapped->ahead, KG_RUN_TAKE_BYTES, &units);
    mapped->pos += n;
    m->log->body->account.kept[mapped->is_stderr ? KG_CUT_STDERR : KG_CUT_STDOUT] += units;
    if (n == 0) {
        kg_ahead_unref(&mapped->ahead);
    }
    return n > 0;
}

static int apply_text(kg_mapper_t *m, kg_mapped_t *mapped)
{
    if (mapped->ahead && take_ahead(m, mapped)) {
        return 1;
    }
    size_t left = mapped->text.len - mapped->pos;
    if (left > 0) {
        size_t n = kg_json_escaped_floor(mapped->text.data + mapped->pos, left, KG_RUN_APPLY_BYTES);
        int rc = kg_mapper_append_text(m, mapped->is_stderr,
                                       kg_slice(mapped->text.data + mapped->pos, n));
        mapped->pos += n;
        if (rc < 0 || n < left) {
            return rc < 0 ? rc : 1;
        }
    }
    if (mapped->gap > 0) { /* what is remembered of the end lies before the gap */
        kg_text_ring_fini(&m->ring[mapped->is_stderr]);
        int rc = cut(m, mapped->is_stderr ? KG_CUT_STDERR : KG_CUT_STDOUT, mapped->gap);
        if (rc < 0) {
            return rc;
        }
    }
    if (mapped->tail.len == 0) {
        return 0;
    }
    return cut_text(m, mapped->is_stderr, kg_buf_slice(&mapped->tail),
                    kg_text_units(mapped->tail.data, mapped->tail.len));
}

static int apply_input(kg_mapper_t *m, const kg_mapped_t *mapped)
{
    int rc = mapped->gap > 0 ? cut(m, KG_CUT_RESULT, mapped->gap) : 0;
    if (m->sink.input && !m->finished) {
        m->sink.input(m->sink.user, kg_buf_slice(&mapped->text), mapped->password,
                      kg_buf_slice(&mapped->header));
    }
    return rc;
}

int kg_mapper_apply(kg_mapper_t *m, kg_mapped_t *mapped)
{
    switch (mapped->kind) {
    case KG_MAPPED_NONE:
        return 0;
    case KG_MAPPED_TEXT:
        return apply_text(m, mapped);
    case KG_MAPPED_RESULT:
        return apply_display(m, &mapped->bundles[0]);
    case KG_MAPPED_UPDATE:
        return apply_update(m, mapped);
    case KG_MAPPED_CLEAR:
        return apply_clear(m, mapped->wait);
    case KG_MAPPED_ERROR:
        return apply_error(m, mapped);
    case KG_MAPPED_EXECUTE_INPUT:
        m->state.input_seen = true;
        m->state.input_count = mapped->count >= 0 ? mapped->count : m->state.input_count;
        return 0;
    case KG_MAPPED_STATUS:
        m->state.busy = m->state.busy || mapped->busy;
        m->state.idle = m->state.idle || mapped->idle;
        return 0;
    case KG_MAPPED_INPUT:
        return apply_input(m, mapped);
    case KG_MAPPED_REPLY:
        return apply_reply(m, mapped);
    }
    return 0;
}

int kg_mapper_text(kg_mapper_t *m, bool is_stderr, kg_slice_t utf8)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    while (utf8.len > 0) {
        size_t n = utf8.len < KG_RUN_TEXT_MAX ? utf8.len
                                              : kg_utf8_floor(utf8.data, utf8.len, KG_RUN_TEXT_MAX);
        n = n > 0 ? n : utf8.len;
        kg_buf_clear(&text);
        int rc = kg_json_escape(&text, utf8.data, n);
        rc = rc < 0 ? rc : kg_mapper_append_text(m, is_stderr, kg_buf_slice(&text));
        if (rc < 0) {
            return rc;
        }
        utf8 = kg_slice(utf8.data + n, utf8.len - n);
    }
    return 0;
}

/* --- what the owner tells ------------------------------------------------------------------------
 */

static int append_fields(kg_mapper_t *m, kg_event_type_t type, kg_slice_t fields, uint32_t units)
{
    return kg_log_append(
        m->log, &(kg_log_event_t){.type = type, .units = units, .parts = &fields, .count = 1});
}

int kg_mapper_queued(kg_mapper_t *m, size_t position)
{
    char text[64];
    if (m->finished) {
        return -EALREADY;
    }
    (void)snprintf(text, sizeof text, ",\"position\":%zu", position);
    return append_fields(m, KG_EVENT_QUEUED, kg_slice_cstr(text), 0);
}

int kg_mapper_started(kg_mapper_t *m, int64_t execution_count)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    if (m->finished) {
        return -EALREADY;
    }
    m->execution_count = m->opts->silent || execution_count > INT32_MAX ? -1 : execution_count;
    int rc = kg_buf_append_cstr(&text, ",\"context\":");
    rc = rc < 0 ? rc : kg_json_quote_cstr(&text, m->log->body->meta.context);
    rc = rc < 0 ? rc : kg_buf_append_cstr(&text, ",\"execution_count\":");
    if (rc == 0) {
        rc = m->execution_count < 0 ? kg_buf_append_cstr(&text, "null")
                                    : kg_buf_printf(&text, "%lld", (long long)m->execution_count);
    }
    uint32_t units = m->execution_count < 0 ? 0 : (uint32_t)m->execution_count + 1;
    return rc < 0 ? rc : append_fields(m, KG_EVENT_STARTED, kg_buf_slice(&text), units);
}

int kg_mapper_input(kg_mapper_t *m, kg_slice_t prompt, bool password)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    if (m->finished) {
        return -EALREADY;
    }
    int rc = kg_buf_append_cstr(&text, ",\"prompt\":");
    rc = rc < 0 ? rc : kg_json_quote(&text, prompt.data ? prompt.data : "", prompt.len);
    rc = rc < 0 ? rc : kg_buf_printf(&text, ",\"password\":%s", password ? "true" : "false");
    return rc < 0 ? rc : append_fields(m, KG_EVENT_INPUT, kg_buf_slice(&text), 0);
}
