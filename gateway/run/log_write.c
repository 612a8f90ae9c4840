/* run: how events become records in the window and on disk, and how they are read back.
 *
 * The window holds the end of the file in memory, up to 64 KiB: appends and live readers meet
 * there. A record of more than half of that is written at once, by pwritev from where it lies. When
 * the disk fails, what the window holds stays there for the readers, with what comes until it is
 * full; later output is dropped and counted, and the few events that a client cannot do without go
 * on in memory. `truncated` says why. */
#include <errno.h>
#include <stdio.h>

#include "gateway/run/log_int.h"
#include "proto/json_scan.h"

/* --- checksum -----------------------------------------------------------------------------------
 */

#define CHECK_SEED UINT64_C(0x9E3779B97F4A7C15)
#define CHECK_MUL UINT64_C(0xD6E8FEB86659FD93)

static inline uint64_t mix(uint64_t hash, uint64_t word)
{
    hash = (hash ^ word) * CHECK_MUL;
    return hash ^ hash >> 32;
}

void kg_check_push(kg_check_t *check, const void *data, size_t len)
{
    const unsigned char *p = data;
    while (len > 0 && (check->have > 0 || len < sizeof check->word)) {
        check->word |= (uint64_t)*p++ << (8 * check->have++);
        len--;
        if (check->have == sizeof check->word) {
            check->hash = mix(check->hash, check->word);
            check->word = 0;
            check->have = 0;
        }
    }
    uint64_t hash = check->hash;
    for (; len >= sizeof check->word; len -= sizeof check->word, p += sizeof check->word) {
        uint64_t word;
        memcpy(&word, p, sizeof word);
        hash = mix(hash, word);
    }
    check->hash = hash;
    if (len > 0) {
        kg_check_push(check, p, len);
    }
}

uint32_t kg_check_end(kg_check_t *check)
{
    uint64_t hash = mix(mix(check->hash, check->word), check->have + CHECK_SEED);
    return (uint32_t)(hash ^ hash >> 32);
}

void kg_check_begin(kg_check_t *check, const kg_rec_t *rec)
{
    *check = (kg_check_t){.hash = CHECK_SEED};
    size_t skip = offsetof(kg_rec_t, len);
    kg_check_push(check, (const char *)rec + skip, sizeof *rec - skip);
}

/* --- records ------------------------------------------------------------------------------------
 */

static bool inside(uint64_t at, uint64_t len, uint64_t total)
{
    return at + len <= total;
}

bool kg_rec_sane(const kg_rec_t *rec, const kg_rich_t *rich)
{
    bool ok = rec->magic == KG_REC_MAGIC && rec->len <= KG_LOG_PAYLOAD_MAX &&
              rec->type < KG_EVENT_COUNT && (rec->rich == 0 || rec->rich == sizeof(kg_rich_t)) &&
              inside(rec->body_off, rec->body_len, rec->len);
    bool needs = rec->type == KG_EVENT_DISPLAY || rec->type == KG_EVENT_UPDATE ||
                 rec->type == KG_EVENT_ERROR || rec->type == KG_EVENT_RESULT;
    if (!ok || needs != (rec->rich > 0)) {
        return false;
    }
    if (rec->type == KG_EVENT_RESULT) {
        return rich->data_at <= rich->text_at &&
               inside(rich->text_at, sizeof KG_LOG_LATE_FIELD - 1, rich->main_at) &&
               inside(rich->main_at, 0, rec->len) &&
               inside(rich->text_src, rich->text_len, rich->data_at);
    }
    if (!needs) {
        return true;
    }
    uint64_t body_end = (uint64_t)rec->body_off + rec->body_len;
    ok = inside(rich->text_src, rich->text_len, rec->len);
    if (rec->type == KG_EVENT_ERROR) {
        return ok && inside(rich->data_src, rich->data_len, rec->len);
    }
    /* What is put in, and where, comes in order. */
    uint64_t at = rec->body_off;
    if (rich->data_len > 0) {
        ok = ok && rich->data_at >= at && inside(rich->data_src, rich->data_len, rec->len);
        at = rich->data_at;
    }
    if (rich->text_at > 0) {
        ok = ok && rich->text_at >= at;
        at = rich->text_at;
    }
    return ok && rich->main_at >= at && rich->main_at < body_end && at <= rec->len;
}

int kg_log_read_head(kg_run_log_t *log, uint64_t off, kg_rec_t *ret_rec, kg_rich_t *ret_rich)
{
    int rc = kg_log_read(log, off, ret_rec, sizeof *ret_rec);
    if (rc < 0) {
        return rc;
    }
    memset(ret_rich, 0, sizeof *ret_rich);
    if (ret_rec->rich == sizeof *ret_rich) {
        rc = kg_log_read(log, off + sizeof *ret_rec, ret_rich, sizeof *ret_rich);
        if (rc < 0) {
            return rc;
        }
    }
    return kg_rec_sane(ret_rec, ret_rich) ? 0 : -EIO;
}

int kg_log_seek(kg_run_log_t *log, uint64_t seq, uint64_t *ret_off)
{
    uint64_t off = 0;
    if (seq >= log->published_seq) {
        *ret_off = log->published;
        return 0;
    }
    if (log->body->index_len > 0) {
        size_t step = (size_t)(seq / KG_LOG_INDEX_STEP);
        off = log->body->index[step < log->body->index_len ? step : log->body->index_len - 1].off;
    }
    while (off < log->published) {
        kg_rec_t rec;
        kg_rich_t rich;
        int rc = kg_log_read_head(log, off, &rec, &rich);
        if (rc < 0) {
            return rc;
        }
        if (rec.type != KG_EVENT_META && rec.seq >= seq) {
            break;
        }
        off = kg_rec_next(off, &rec);
    }
    *ret_off = off;
    return 0;
}

/* --- appending ----------------------------------------------------------------------------------
 */

void kg_log_seal(kg_run_log_t *log)
{
    if (log->body->open == 0) {
        return;
    }
    char *at = log->body->win.data + (log->body->open - log->body->win_off);
    kg_rec_t rec;
    kg_check_t check;
    memcpy(&rec, at, sizeof rec);
    kg_check_begin(&check, &rec);
    kg_check_push(&check, at + sizeof rec, rec.len);
    rec.check = kg_check_end(&check);
    memcpy(at, &rec, sizeof rec);
    log->body->open = 0;
}

void kg_log_break(kg_run_log_t *log, int error)
{
    if (log->broken) {
        return;
    }
    log->broken = true;
    log->error = error;
    log->body->account.reason = kg_err_name(kg_err_from_errno(error));
    kg_log_void_ahead(log);
    kg_log_seal(log);
    (void)kg_log_cut(log, KG_CUT_EVENTS, 0);
}

/* Whether a broken log keeps the event, in memory, when its window is full. */
static bool essential(kg_event_type_t type)
{
    return type != KG_EVENT_STDOUT && type != KG_EVENT_STDERR && type != KG_EVENT_DISPLAY &&
           type != KG_EVENT_UPDATE && type != KG_EVENT_CLEAR;
}

static int lose(kg_run_log_t *log, const kg_rec_t *rec)
{
    if (rec->type == KG_EVENT_STDOUT || rec->type == KG_EVENT_STDERR) {
        kg_cut_t what = rec->type == KG_EVENT_STDOUT ? KG_CUT_STDOUT : KG_CUT_STDERR;
        return kg_log_cut(log, what, rec->units);
    }
    return kg_log_cut(log, KG_CUT_EVENTS, 1);
}

/* Whether a broken log has room for it. After the first thing that was lost there is none: what is
 * kept has no gaps. */
static bool fits(kg_run_log_t *log, kg_event_type_t type, size_t total)
{
    if (essential(type)) {
        return true;
    }
    log->full = log->full || log->body->win.len + total > KG_LOG_WINDOW;
    return !log->full;
}

/* Makes room in the window by writing it. The log may be broken afterwards. */
static void make_room(kg_run_log_t *log, size_t need)
{
    if (log->broken || log->body->win.len + need <= KG_LOG_WINDOW) {
        return;
    }
    kg_log_seal(log);
    int rc = kg_log_write_out(log);
    if (rc < 0) {
        kg_log_break(log, rc);
        return;
    }
    log->body->win_off = kg_log_end_off(log);
    kg_buf_clear(&log->body->win);
}

static int put_in_window(kg_run_log_t *log, const kg_slice_t *parts, size_t count)
{
    size_t before = log->body->win.len;
    for (size_t i = 0; i < count; i++) {
        int rc = kg_buf_append_slice(&log->body->win, parts[i]);
        if (rc < 0) {
            log->body->win.len = before;
            return rc;
        }
    }
    return 0;
}

/* Puts a whole record (parts[0] is rec) where it belongs and gives it its seq. */
static int append_record(
    kg_run_log_t *log, kg_rec_t *rec, const kg_slice_t *parts, size_t count, size_t staged)
{
    size_t total = sizeof *rec + rec->rich + rec->len;
    int rc = 0;
    bool big = total > KG_LOG_WINDOW / 2 && !log->broken;
    if (big) {
        kg_log_seal(log);
        rc = kg_log_write_out(log);
        log->body->last = kg_log_end_off(log);
        rc = rc < 0 ? rc : kg_log_write_big(log, parts, count, staged);
        if (rc < 0 && rc != -ENOMEM) {
            kg_log_break(log, rc);
        }
    }
    if (log->broken && !fits(log, (kg_event_type_t)rec->type, total)) {
        return lose(log, rec);
    }
    if (log->broken && big) {
        return -EAGAIN; /* the `truncated` that kg_log_break told took the seq */
    }
    if (!big) {
        log->body->last = kg_log_end_off(log);
        rc = put_in_window(log, parts, count);
    }
    if (rc == 0 && rec->type != KG_EVENT_META) {
        log->body->next_seq++;
    }
    return rc;
}

static const char *suffix_of(unsigned flags)
{
    if (flags & KG_REC_TAIL) {
        return flags & KG_REC_LATE ? ",\"tail\":true,\"late\":true}" : ",\"tail\":true}";
    }
    return flags & KG_REC_LATE ? ",\"late\":true}" : "}";
}

static int prefix_of(const kg_log_at_t *at, kg_event_type_t type, char *ret, size_t cap)
{
    int n = snprintf(ret, cap, "{\"run\":\"%s\",\"seq\":%u,\"type\":\"%s\"", at->run, at->seq,
                     kg_event_name(type));
    return n > 0 && (size_t)n < cap ? n : -EINVAL;
}

static void shift_rich(kg_rich_t *rich, uint32_t by)
{
    rich->data_at += by;
    rich->data_src += by;
    rich->text_at += rich->text_at > 0 ? by : 0;
    rich->text_src += by;
    rich->main_at += by;
}

/* Lays the record out: rec, rich, prefix, the event's parts, suffix; without its check. */
static int lay_out(const kg_log_at_t *at,
                   const kg_log_event_t *event,
                   kg_rec_t *rec,
                   kg_rich_t *rich,
                   char prefix[KG_LOG_PREFIX_MAX],
                   kg_slice_t *parts,
                   size_t *ret_count)
{
    bool meta = event->type == KG_EVENT_META;
    int head = meta ? 0 : prefix_of(at, event->type, prefix, KG_LOG_PREFIX_MAX);
    if (head < 0 || event->count > KG_LOG_PARTS_MAX - 4) {
        return -EINVAL;
    }
    const char *suffix = meta ? "" : suffix_of(event->flags);
    size_t n = 0;
    size_t len = 0;
    parts[n++] = kg_slice((const char *)rec, sizeof *rec);
    parts[n++] = kg_slice((const char *)rich, event->rich ? sizeof *rich : 0);
    parts[n++] = kg_slice(prefix, (size_t)head);
    for (size_t i = 0; i < event->count; i++) {
        parts[n++] = event->parts[i];
    }
    parts[n++] = kg_slice_cstr(suffix);
    for (size_t i = 2; i < n; i++) {
        if (!kg_add_size(len, parts[i].len, &len) || len > KG_LOG_PAYLOAD_MAX) {
            return -E2BIG;
        }
    }
    *rec = (kg_rec_t){.magic = KG_REC_MAGIC,
                      .len = (uint32_t)len,
                      .seq = meta ? UINT32_MAX : at->seq,
                      .type = (uint8_t)event->type,
                      .flags = (uint8_t)event->flags,
                      .rich = (uint16_t)parts[1].len,
                      .body_off = event->body_len > 0 || event->body_off > 0
                                      ? event->body_off + (uint32_t)head
                                      : 0,
                      .body_len = event->body_len,
                      .units = event->units};
    if (event->rich) {
        *rich = *event->rich;
        shift_rich(rich, (uint32_t)head);
        if (event->type == KG_EVENT_RESULT) {
            rich->data_src = event->rich->data_src; /* no place: the wall clock */
            rich->text_src = (uint32_t)(sizeof "{\"run\":\"\"" - 1 + strlen(at->run));
            rich->text_len = (uint32_t)head - rich->text_src;
        }
    }
    *ret_count = n;
    return 0;
}

/* The sum of the bytes from..from+max of the parts goes on; the head (parts[0]) is not in it. */
static void
check_range(kg_check_t *check, const kg_slice_t *parts, size_t count, size_t from, size_t max)
{
    for (size_t i = 0; i < count && max > 0; i++) {
        size_t skip = from < parts[i].len ? from : parts[i].len;
        size_t len = parts[i].len - skip < max ? parts[i].len - skip : max;
        from -= skip;
        max -= len;
        if (i > 0 && len > 0) {
            kg_check_push(check, parts[i].data + skip, len);
        }
    }
}

static kg_log_at_t next_of(const kg_run_log_t *log)
{
    return (kg_log_at_t){.run = log->run, .seq = log->body->next_seq};
}

/* Whether what was staged is the beginning of this very record. */
static bool is_staged(const kg_run_log_t *log, const void *token)
{
    const kg_log_stage_t *s = &log->body->stage;
    return token && s->token == token && s->off == kg_log_end_off(log) &&
           s->seq == log->body->next_seq && !log->broken;
}

/* What was staged for an event that does not come goes. */
static void drop_stage(kg_run_log_t *log)
{
    if (log->body->stage.token && log->fd >= 0) {
        (void)kg_log_trim(log, log->body->written, UINT64_MAX);
    }
    log->body->stage = (kg_log_stage_t){0};
}

int kg_log_stage(kg_run_log_t *log, const kg_log_event_t *event, bool fresh)
{
    kg_log_event_t e = *event;
    kg_rec_t rec;
    kg_rich_t rich;
    char prefix[KG_LOG_PREFIX_MAX];
    kg_slice_t parts[KG_LOG_PARTS_MAX];
    size_t count;
    e.flags |= log->ended ? KG_REC_LATE : 0U;
    kg_log_void_ahead(log);
    kg_log_seal(log);
    const kg_log_at_t at = next_of(log);
    /* Where anything fails here, the append meets it and deals with it. */
    if (log->expired || log->broken || kg_log_open(log, KG_LOG_OWN) < 0 ||
        kg_log_write_out(log) < 0 || lay_out(&at, &e, &rec, &rich, prefix, parts, &count) < 0) {
        return 0;
    }
    size_t total = kg_log_total_of(parts, count);
    if (fresh || !is_staged(log, e.token)) {
        drop_stage(log);
        log->body->stage = (kg_log_stage_t){
            .token = e.token, .off = kg_log_end_off(log), .seq = log->body->next_seq};
        kg_check_begin(&log->body->stage.check, &rec);
    }
    size_t from = log->body->stage.done;
    if (total - from <= KG_RUN_APPLY_BYTES) {
        return 0; /* the append writes the rest */
    }
    if (kg_log_write_range(log, parts, count, from, KG_RUN_APPLY_BYTES) < 0) {
        drop_stage(log);
        return 0;
    }
    check_range(&log->body->stage.check, parts, count, from, KG_RUN_APPLY_BYTES);
    log->body->stage.done += KG_RUN_APPLY_BYTES;
    return 1;
}

/* Completes the sum, with what staging has of it. Returns how many bytes are staged. */
static size_t complete_check(const kg_run_log_t *log,
                             const void *token,
                             kg_rec_t *rec,
                             const kg_slice_t *parts,
                             size_t count)
{
    kg_check_t check;
    size_t staged = is_staged(log, token) ? log->body->stage.done : 0;
    if (staged > 0) {
        check = log->body->stage.check;
    } else {
        kg_check_begin(&check, rec);
    }
    check_range(&check, parts, count, staged, SIZE_MAX);
    rec->check = kg_check_end(&check);
    return staged;
}

int kg_log_append(kg_run_log_t *log, const kg_log_event_t *event)
{
    if (log->expired) {
        return 0;
    }
    kg_log_event_t e = *event;
    e.flags |= log->ended ? KG_REC_LATE : 0U;
    kg_log_void_ahead(log);
    kg_log_seal(log);
    if (log->body->stage.token && !is_staged(log, e.token)) {
        drop_stage(log);
    }
    int rc = -EAGAIN;
    for (unsigned i = 0; rc == -EAGAIN && i < 2; i++) { /* again when the log broke on the way */
        kg_rec_t rec;
        kg_rich_t rich;
        char prefix[KG_LOG_PREFIX_MAX];
        kg_slice_t parts[KG_LOG_PARTS_MAX];
        size_t count;
        const kg_log_at_t at = next_of(log);
        rc = lay_out(&at, &e, &rec, &rich, prefix, parts, &count);
        uint32_t seq = log->body->next_seq;
        if (rc == 0) {
            size_t staged = complete_check(log, e.token, &rec, parts, count);
            make_room(log, sizeof rec + rec.rich + rec.len);
            rc = log->body->next_seq == seq ? append_record(log, &rec, parts, count, staged)
                                            : -EAGAIN;
        }
    }
    log->body->stage = (kg_log_stage_t){0};
    if (rc == 0) {
        log->ended = log->ended || e.type == KG_EVENT_RESULT;
        log->asks = log->asks || e.type == KG_EVENT_INPUT;
        bool start = e.type == KG_EVENT_QUEUED || e.type == KG_EVENT_STARTED;
        log->starts = log->starts || start;
        log->tells = log->tells || !(start || e.type == KG_EVENT_META);
        kg_log_mark_dirty(log);
    }
    return rc;
}

/* Grows the open text record. */
static int join(kg_run_log_t *log, kg_slice_t text, size_t units)
{
    int rc = kg_buf_reserve(&log->body->win, text.len);
    if (rc < 0) {
        return rc;
    }
    size_t at = (size_t)(log->body->open - log->body->win_off);
    kg_rec_t rec;
    memcpy(&rec, log->body->win.data + at, sizeof rec);
    size_t suffix = log->body->open_suffix;
    char tail[40];
    memcpy(tail, log->body->win.data + log->body->win.len - suffix, suffix);
    log->body->win.len -= suffix;
    (void)kg_buf_append_slice(&log->body->win, text);
    (void)kg_buf_append(&log->body->win, tail, suffix);
    rec.len += (uint32_t)text.len;
    rec.body_len += (uint32_t)text.len;
    rec.units += (uint32_t)units;
    memcpy(log->body->win.data + at, &rec, sizeof rec);
    kg_log_mark_dirty(log);
    return 0;
}

static bool
can_join(const kg_run_log_t *log, kg_event_type_t type, unsigned flags, size_t len, size_t units)
{
    if (log->body->open == 0 || log->broken || log->body->win.len + len > KG_LOG_WINDOW) {
        return false;
    }
    kg_rec_t rec;
    memcpy(&rec, log->body->win.data + (log->body->open - log->body->win_off), sizeof rec);
    return rec.type == type && rec.flags == flags && rec.units + units <= KG_RUN_TEXT_MAX;
}

/* The event of a text; parts is what it consists of. */
static kg_log_event_t
text_event(kg_event_type_t type, unsigned flags, kg_slice_t text, size_t units, kg_slice_t parts[3])
{
    static const char field[] = ",\"text\":\"";
    parts[0] = kg_slice(field, sizeof field - 1);
    parts[1] = text;
    parts[2] = kg_slice("\"", 1);
    return (kg_log_event_t){.type = type,
                            .flags = flags,
                            .body_off = sizeof field - 1,
                            .body_len = (uint32_t)text.len,
                            .units = (uint32_t)units,
                            .parts = parts,
                            .count = 3};
}

int kg_log_lay_out_text(const kg_log_at_t *at,
                        kg_event_type_t type,
                        unsigned flags,
                        kg_slice_t text,
                        size_t units,
                        kg_log_text_t *ret)
{
    kg_slice_t parts[3];
    kg_rich_t rich;
    kg_check_t check;
    const kg_log_event_t event = text_event(type, flags, text, units, parts);
    int rc = lay_out(at, &event, &ret->rec, &rich, ret->prefix, ret->parts, &ret->count);
    if (rc == 0) {
        ret->parts[1] = (kg_slice_t){0}; /* a text has no rich head */
        kg_check_begin(&check, &ret->rec);
        check_range(&check, ret->parts, ret->count, 0, SIZE_MAX);
        ret->rec.check = kg_check_end(&check);
    }
    return rc;
}

int kg_log_append_text(
    kg_run_log_t *log, kg_event_type_t type, unsigned flags, kg_slice_t text, size_t units)
{
    if (log->expired || text.len == 0) {
        return 0;
    }
    flags |= log->ended ? KG_REC_LATE : 0U;
    if (can_join(log, type, flags, text.len, units)) {
        return join(log, text, units);
    }
    kg_slice_t parts[3];
    const kg_log_event_t event = text_event(type, flags, text, units, parts);
    int rc = kg_log_append(log, &event);
    if (rc == 0 && !log->broken && log->body->last >= log->body->win_off) {
        log->body->open_suffix = (uint32_t)strlen(suffix_of(flags)) + 1;
        log->body->open = log->body->last;
    }
    return rc;
}

int kg_log_cut(kg_run_log_t *log, kg_cut_t what, uint64_t amount)
{
    log->late_cut = log->late_cut || log->ended;
    log->late = log->late || log->ended; /* it came, kept or not */
    if (log->body->account.cut[what] != KG_CUT_UNKNOWN) {
        log->body->account.cut[what] += amount;
    }
    if (log->body->account.said[what]) {
        return 0;
    }
    log->body->account.said[what] = true;
    char field[96];
    const char *reason = log->body->account.reason;
    (void)snprintf(field, sizeof field, ",\"what\":\"%s\"%s%s%s", kg_cut_name(what),
                   reason ? ",\"reason\":\"" : "", reason ? reason : "", reason ? "\"" : "");
    kg_slice_t part = kg_slice_cstr(field);
    return kg_log_append(
        log, &(kg_log_event_t){
                 .type = KG_EVENT_TRUNCATED, .units = (uint32_t)what, .parts = &part, .count = 1});
}
