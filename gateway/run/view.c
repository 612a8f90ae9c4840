/* run: the Execution, made from the log. Of a `result` only the small fields are stored; text,
 * output, results, stdout and stderr are walks over the events before it (for the event) or over
 * all of them (for the Execution alone, late output in it). JSON string bodies are put one behind
 * the other as they are, never decoded. */
#include <errno.h>

#include "gateway/base/str.h"
#include "gateway/run/reader_int.h"

#define BIT(type) (1U << KG_EVENT_##type)

/* Where the block after that of seq begins, when its own has nothing that is wanted; else 0. */
static uint64_t leave_out(const kg_run_log_t *log, uint32_t seq, uint32_t wanted)
{
    size_t block = seq / KG_LOG_INDEX_STEP;
    while (block + 1 < log->body->index_len && !(log->body->index[block].has & wanted)) {
        block++;
    }
    return block > seq / KG_LOG_INDEX_STEP ? log->body->index[block].off : 0;
}

/* Walks to the next record of the view that has one of the wanted bits; 0 at its end. */
static int
walk(kg_run_reader_t *r, uint32_t wanted, uint64_t *ret_off, kg_rec_t *rec, kg_rich_t *rich)
{
    while (r->walk < r->limit) {
        int rc = kg_reader_head(r, r->walk, rec, rich);
        if (rc < 0) {
            return rc;
        }
        r->walked++;
        *ret_off = r->walk;
        r->walk = kg_rec_next(r->walk, rec);
        if (kg_rec_bit(rec) & wanted) {
            return 1;
        }
        if (rec->type != KG_EVENT_META && rec->seq % KG_LOG_INDEX_STEP == 0) {
            uint64_t next = leave_out(r->log, rec->seq, wanted);
            r->walk = next > 0 ? next : r->walk;
        }
    }
    return 0;
}

/* The record that holds the display's value now: itself, or the last update of its id. */
static int current(kg_run_reader_t *r, uint64_t *off, kg_rec_t *rec, kg_rich_t *rich)
{
    const kg_run_log_t *log = r->log;
    if (rich->did == 0 || rich->did > log->body->updates_len) {
        return 0;
    }
    const kg_log_update_t *update = &log->body->updates[rich->did - 1];
    uint64_t latest = r->execution ? update->live : update->frozen;
    if (latest <= *off) {
        return 0;
    }
    *off = latest;
    return kg_reader_head(r, latest, rec, rich);
}

static bool is_command(const kg_run_reader_t *r)
{
    return r->log->body->meta.command[0] != '\0';
}

static bool is_r(const kg_run_reader_t *r)
{
    return strcmp(r->log->body->meta.language, "r") == 0;
}

/* --- stages -------------------------------------------------------------------------------------
 */

static int stage_head(kg_run_reader_t *r)
{
    if (r->execution) {
        kg_reader_push(r, r->payload, r->rich.text_src, 0);
        uint32_t from = r->rich.text_src + r->rich.text_len;
        kg_reader_push(r, r->payload + from, r->rich.data_at - from, 0);
    } else {
        kg_reader_push(r, r->payload, r->rich.data_at, 0);
    }
    r->stage = r->slim ? KG_VIEW_TAIL : is_command(r) ? KG_VIEW_STDOUT : KG_VIEW_TEXT;
    return 1;
}

/* The body of a Result's text. */
static void push_text(
    kg_run_reader_t *r, uint64_t off, const kg_rec_t *rec, const kg_rich_t *rich, unsigned flags)
{
    kg_reader_push(r, kg_rec_payload(off, rec) + rich->text_src, rich->text_len,
                   KG_SEG_TEXT | flags);
}

static int main_text(kg_run_reader_t *r)
{
    uint64_t off = r->view.main;
    kg_rec_t rec;
    kg_rich_t rich;
    int rc = kg_reader_head(r, off, &rec, &rich);
    rc = rc < 0 ? rc : current(r, &off, &rec, &rich);
    if (rc < 0) {
        return rc;
    }
    push_text(r, off, &rec, &rich, 0);
    r->walk = r->limit;
    return 1;
}

/* The main value, else stdout without its last newline; of a failed run always the latter. */
static int stage_text(kg_run_reader_t *r)
{
    if (!r->opened) {
        kg_reader_push_literal(r, "\"text\":\"");
        r->opened = true;
        return r->view.main > 0 && r->log->status == KG_RUN_OK ? main_text(r) : 1;
    }
    uint64_t off;
    kg_rec_t rec;
    kg_rich_t rich;
    int rc;
    if ((rc = walk(r, BIT(STDOUT), &off, &rec, &rich)) > 0) {
        unsigned strip = r->log->body->meta.ansi ? 0 : KG_SEG_STRIP;
        kg_reader_push(r, kg_rec_payload(off, &rec) + rec.body_off, rec.body_len,
                       KG_SEG_TEXT | KG_SEG_TRIM | strip);
    }
    return rc;
}

/* A value or an error begins on a line of its own, and what follows it too. */
static void push_line_start(kg_run_reader_t *r)
{
    if (r->any && !r->ends_nl) {
        kg_reader_push_literal(r, "\\n");
        r->ends_nl = true;
    }
}

static void push_error(kg_run_reader_t *r, uint64_t off, const kg_rec_t *rec, const kg_rich_t *rich)
{
    uint64_t payload = kg_rec_payload(off, rec);
    push_line_start(r);
    r->strip = (kg_ansi_strip_t){0};
    if (rec->body_len > 0) {
        r->join = (kg_text_join_t){0};
        kg_reader_push(r, payload + rec->body_off, rec->body_len,
                       KG_SEG_TEXT | KG_SEG_JOIN | KG_SEG_STRIP);
        return;
    }
    kg_reader_push(r, payload + rich->text_src, rich->text_len, KG_SEG_TEXT | KG_SEG_STRIP);
    if (rich->data_len > 0) {
        kg_reader_push_literal(r, ": ");
        kg_reader_push(r, payload + rich->data_src, rich->data_len, KG_SEG_TEXT | KG_SEG_STRIP);
    }
}

/* One record's share of the transcript; 1 when it has one. */
static int output_of(kg_run_reader_t *r, uint64_t off, kg_rec_t *rec, kg_rich_t *rich)
{
    if (rec->type == KG_EVENT_ERROR) {
        push_error(r, off, rec, rich);
        r->after_value = true;
        return 1;
    }
    if (rec->type == KG_EVENT_STDOUT || rec->type == KG_EVENT_STDERR) {
        if (r->after_value) {
            push_line_start(r);
        }
        r->after_value = false;
        kg_reader_push(r, kg_rec_payload(off, rec) + rec->body_off, rec->body_len,
                       KG_SEG_TEXT | KG_SEG_STRIP);
        return 1;
    }
    bool value = off == r->view.main || (is_r(r) && (rec->flags & KG_REC_VALUE));
    if (rec->type != KG_EVENT_DISPLAY || !value) {
        return 0;
    }
    int rc = current(r, &off, rec, rich);
    if (rc < 0) {
        return rc;
    }
    push_line_start(r);
    push_text(r, off, rec, rich, KG_SEG_STRIP);
    r->strip = (kg_ansi_strip_t){0};
    r->after_value = true;
    return 1;
}

static int stage_output(kg_run_reader_t *r)
{
    if (!r->opened) {
        kg_reader_push_literal(r, "\",\"output\":\"");
        r->opened = true;
        r->any = r->ends_nl = r->after_value = false;
        return 1;
    }
    uint64_t off;
    kg_rec_t rec;
    kg_rich_t rich;
    int rc;
    const uint32_t wanted = BIT(STDOUT) | BIT(STDERR) | BIT(ERROR) | KG_REC_VALUE_BIT;
    while ((rc = walk(r, wanted, &off, &rec, &rich)) > 0) {
        rc = output_of(r, off, &rec, &rich);
        if (rc != 0) {
            return rc;
        }
    }
    return rc;
}

static int stage_results(kg_run_reader_t *r)
{
    if (!r->opened) {
        kg_reader_push_literal(r, "\",\"results\":[");
        r->opened = true;
        r->first = true;
        return 1;
    }
    uint64_t off;
    kg_rec_t rec;
    kg_rich_t rich;
    int rc;
    if ((rc = walk(r, BIT(DISPLAY), &off, &rec, &rich)) > 0) {
        bool is_main = off == r->view.main || (!is_r(r) && (rec.flags & KG_REC_MAIN));
        rc = current(r, &off, &rec, &rich);
        if (rc < 0) {
            return rc;
        }
        uint64_t payload = kg_rec_payload(off, &rec);
        if (!r->first) {
            kg_reader_push_literal(r, ",");
        }
        r->first = false;
        kg_reader_push_span(r, payload, &rich, rec.body_off, rich.main_at);
        kg_reader_push_literal(r, is_main ? "true" : "false");
        uint32_t after = rich.main_at + (rec.flags & KG_REC_MAIN ? 4 : 5); /* true, false */
        uint32_t stop = rec.body_off + rec.body_len;
        if (after < stop) {
            kg_reader_push(r, payload + after, stop - after, 0);
        }
        return 1;
    }
    return rc;
}

static int stage_stream(kg_run_reader_t *r, kg_event_type_t type, const char *literal)
{
    if (!r->opened) {
        kg_reader_push_literal(r, literal);
        r->opened = true;
        return 1;
    }
    uint64_t off;
    kg_rec_t rec;
    kg_rich_t rich;
    int rc;
    if ((rc = walk(r, 1U << type, &off, &rec, &rich)) > 0) {
        kg_reader_push(r, kg_rec_payload(off, &rec) + rec.body_off, rec.body_len, 0);
    }
    return rc;
}

/* From `error` to the value of `late`. The numbers of `truncated` go on after the end: the
 * Execution alone has them as they are now. */
static int push_account(kg_run_reader_t *r)
{
    const kg_rich_t *rich = &r->rich;
    if (!r->execution || !r->log->late_cut) {
        kg_reader_push(r, r->payload + rich->data_at, rich->main_at - rich->data_at, 0);
        return 0;
    }
    KG_AUTO_BUF kg_buf_t text = {0};
    int rc = kg_log_put_truncated(&text, &r->log->body->account);
    rc = rc < 0 ? rc : kg_format(r->truncated, sizeof r->truncated, "%s", text.data);
    kg_reader_push(r, r->payload + rich->data_at, rich->text_at - rich->data_at, 0);
    kg_reader_push_literal(r, r->truncated);
    kg_reader_push_literal(r, KG_LOG_LATE_FIELD);
    return rc;
}

static int stage_tail(kg_run_reader_t *r)
{
    const kg_rich_t *rich = &r->rich;
    if (!r->slim) {
        kg_reader_push_literal(r, "\",");
    }
    int rc = push_account(r);
    if (rc < 0) {
        return rc;
    }
    kg_reader_push_literal(r, r->execution && r->log->late ? "true" : "false");
    if (r->tells_expired) {
        kg_reader_push_literal(r, ",\"expired\":true");
    }
    kg_reader_push(r, r->payload + rich->main_at, r->rec.len - rich->main_at, 0);
    r->stage = KG_VIEW_DONE;
    return 1;
}

/* --- the whole ----------------------------------------------------------------------------------
 */

void kg_view_begin(kg_run_reader_t *r)
{
    if (!r->slim) {
        r->view = r->execution ? r->log->body->live : r->log->body->frozen;
    }
    r->limit = r->execution ? r->log->published : r->log->result_off;
    r->walk = r->view.from;
    r->stage = KG_VIEW_HEAD;
    r->opened = false;
}

static int stage(kg_run_reader_t *r)
{
    switch (r->stage) {
    case KG_VIEW_HEAD:
        return stage_head(r);
    case KG_VIEW_TEXT:
        return stage_text(r);
    case KG_VIEW_OUTPUT:
        return stage_output(r);
    case KG_VIEW_RESULTS:
        return stage_results(r);
    case KG_VIEW_STDOUT:
        return stage_stream(r, KG_EVENT_STDOUT,
                            is_command(r) ? "\"stdout\":\"" : "],\"stdout\":\"");
    case KG_VIEW_STDERR:
        return stage_stream(r, KG_EVENT_STDERR, "\",\"stderr\":\"");
    case KG_VIEW_TAIL:
        return stage_tail(r);
    case KG_VIEW_DONE:
        break;
    }
    return 0;
}

int kg_view_next(kg_run_reader_t *r)
{
    while (r->stage != KG_VIEW_DONE) {
        int rc = stage(r);
        if (rc != 0) {
            return rc;
        }
        r->stage++;
        r->walk = r->view.from;
        r->opened = false;
        r->strip = (kg_ansi_strip_t){0};
        r->held_nl = false;
    }
    return 0;
}
