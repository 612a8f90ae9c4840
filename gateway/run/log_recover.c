/* run: a log file read again after a restart. Every record is checked (sizes, places, sum); what
 * follows the last good one was torn by a crash and is cut. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/run/command_int.h"
#include "gateway/run/log_int.h"

enum {
    CHUNK = 64 * 1024
};

/* Whether rec's sum fits what is on disk behind its head. */
static bool sum_fits(kg_run_log_t *log, uint64_t off, const kg_rec_t *rec, char *chunk)
{
    kg_check_t check;
    kg_check_begin(&check, rec);
    uint64_t at = off + sizeof *rec;
    uint64_t end = kg_rec_next(off, rec);
    while (at < end) {
        size_t n = end - at < CHUNK ? (size_t)(end - at) : CHUNK;
        if (kg_log_read(log, at, chunk, n) < 0) {
            return false;
        }
        kg_check_push(&check, chunk, n);
        at += n;
    }
    return kg_check_end(&check) == rec->check;
}

/* --- meta ---------------------------------------------------------------------------------------
 */

/* Decodes a string member; embedded NULs end it. */
static int meta_string(kg_json_value_t object, const char *name, kg_buf_t *ret)
{
    kg_json_value_t value = kg_json_get(object, name);
    if (value.type == KG_JSON_ABSENT && strcmp(name, "command") == 0) {
        return kg_buf_append_char(ret, '\0'); /* a run of code */
    }
    if (value.type != KG_JSON_STRING) {
        return -EBADMSG;
    }
    int rc = kg_json_decode_string(ret, value);
    return rc < 0 ? rc : kg_buf_append_char(ret, '\0');
}

static int64_t meta_int(kg_json_value_t object, const char *name)
{
    int64_t n = 0;
    return kg_json_int(kg_json_get(object, name), &n) < 0 || n < 0 ? 0 : n;
}

static int read_meta(kg_run_log_t *log, const char *json, size_t len)
{
    static const char *const names[] = {"run",      "sandbox", "context",   "owner",
                                        "language", "key",     "code_hash", "command"};
    kg_run_meta_t *m = &log->body->meta;
    const char **const to[] = {&m->run,      &m->sandbox, &m->context,   &m->owner,
                               &m->language, &m->key,     &m->code_hash, &m->command};
    kg_json_value_t object;
    if (kg_json_check(kg_slice(json, len), 4, &object) < 0 || object.type != KG_JSON_OBJECT) {
        return -EBADMSG;
    }
    KG_AUTO_BUF kg_buf_t block = {0};
    size_t starts[KG_ARRAY_LEN(names)] = {0};
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        starts[i] = block.len;
        int rc = meta_string(object, names[i], &block);
        if (rc < 0) {
            return rc;
        }
    }
    size_t size;
    log->body->strings = kg_buf_steal(&block, &size);
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        *to[i] = log->body->strings + starts[i];
    }
    m->created_wall_ns = (uint64_t)meta_int(object, "created");
    int64_t retain = meta_int(object, "retain");
    m->retain_s = retain > UINT32_MAX ? UINT32_MAX : (uint32_t)retain;
    m->timeout_ms = (uint64_t)meta_int(object, "timeout");
    m->ansi = kg_json_get(object, "ansi").type == KG_JSON_TRUE;
    m->silent = kg_json_get(object, "silent").type == KG_JSON_TRUE;
    if (!kg_id_valid("run", m->run) || strlen(m->run) >= sizeof log->run) {
        return -EBADMSG;
    }
    memcpy(log->run, m->run, strlen(m->run) + 1);
    log->created_wall_ns = m->created_wall_ns;
    log->retain_s = m->retain_s;
    return 0;
}

static int recover_meta(kg_run_log_t *log, uint64_t size, char *chunk)
{
    kg_rec_t rec;
    kg_rich_t rich;
    if (size < sizeof rec) {
        return -EBADMSG;
    }
    int rc = kg_log_read(log, 0, &rec, sizeof rec);
    if (rc < 0) {
        return rc; /* what cannot be read may be a log */
    }
    if (kg_log_read_head(log, 0, &rec, &rich) < 0 || rec.type != KG_EVENT_META || rec.len > CHUNK ||
        kg_rec_next(0, &rec) > size || !sum_fits(log, 0, &rec, chunk)) {
        return -EBADMSG;
    }
    rc = kg_log_read(log, kg_rec_payload(0, &rec), chunk, rec.len);
    return rc < 0 ? rc : read_meta(log, chunk, rec.len);
}

/* --- records ------------------------------------------------------------------------------------
 */

/* What the account needs to go on: which kinds were told, what was kept. */
static void recount(kg_run_log_t *log, const kg_rec_t *rec)
{
    if (rec->type == KG_EVENT_STDOUT) {
        log->body->account.kept[KG_CUT_STDOUT] += rec->units;
    } else if (rec->type == KG_EVENT_STDERR) {
        log->body->account.kept[KG_CUT_STDERR] += rec->units;
    } else if (rec->type == KG_EVENT_DISPLAY || rec->type == KG_EVENT_UPDATE) {
        log->body->account.kept[KG_CUT_RESULT] += rec->units;
    } else if (rec->type == KG_EVENT_TRUNCATED && rec->units < KG_CUT_COUNT) {
        log->body->account.said[rec->units] = true;
        log->body->account.cut[rec->units] = KG_CUT_UNKNOWN;
        log->late_cut = log->late_cut || (rec->flags & KG_REC_LATE);
    }
}

/* Notes all good records; returns where they end. */
static uint64_t recover_records(kg_run_log_t *log, uint64_t size, char *chunk)
{
    uint64_t off = 0;
    for (;;) {
        kg_rec_t rec;
        kg_rich_t rich;
        if (size - off < sizeof rec || kg_log_read_head(log, off, &rec, &rich) < 0 ||
            kg_rec_next(off, &rec) > size) {
            return off;
        }
        bool first = off == 0;
        bool fits = first ? rec.type == KG_EVENT_META
                          : rec.type != KG_EVENT_META && rec.seq == log->body->next_seq &&
                                rec.seq < UINT32_MAX - 1 &&
                                log->ended == ((rec.flags & KG_REC_LATE) != 0);
        if (!fits || !sum_fits(log, off, &rec, chunk)) {
            return off;
        }
        kg_log_note(log, off, &rec, &rich);
        recount(log, &rec);
        log->body->next_seq += first ? 0 : 1;
        log->ended = log->finished;
        off = kg_rec_next(off, &rec);
    }
}

int kg_log_walk(kg_run_log_t *log, uint64_t size, uint64_t *ret_end)
{
    KG_AUTO_FREE char *chunk = malloc(CHUNK);
    if (!chunk) {
        return -ENOMEM;
    }
    int rc = recover_meta(log, size, chunk);
    if (rc < 0) {
        return rc;
    }
    *ret_end = recover_records(log, size, chunk);
    log->body->next_did = (uint32_t)log->body->updates_len; /* not given again: who gave them
                                                               is gone */
    return 0;
}

/* What a file holds is read from there. */
static int begin_file(kg_run_log_t *log, uint64_t *ret_size)
{
    struct stat st;
    if (fstat(log->fd, &st) < 0) {
        return -errno;
    }
    if (!S_ISREG(st.st_mode)) {
        return -EBADMSG;
    }
    *ret_size = (uint64_t)st.st_size;
    log->body->win_off = log->published = *ret_size; /* all of it is on disk */
    return 0;
}

/* How many of len bytes are before the zeros at their end. */
static size_t before_zeros(const char *bytes, size_t len)
{
    static const char zeros[512];
    while (len >= sizeof zeros && memcmp(bytes + len - sizeof zeros, zeros, sizeof zeros) == 0) {
        len -= sizeof zeros;
    }
    while (len > 0 && bytes[len - 1] == '\0') {
        len--;
    }
    return len;
}

/* A slot is read once, and is as long as what is in it: no record ends with a zero. So nothing is
 * written to it but over what is torn, and a full disk is no reason to lose a run. */
static int begin_slot(kg_run_log_t *log, uint64_t *ret_size)
{
    kg_buf_t *win = &log->body->win;
    const kg_log_spot_t spot = kg_log_spot(log);
    int rc = kg_buf_reserve(win, KG_RUN_SLOT);
    rc = rc < 0 ? rc : kg_log_read_at(spot.fd, win->data, KG_RUN_SLOT, spot.off);
    if (rc == 0) {
        win->len = before_zeros(win->data, KG_RUN_SLOT);
        *ret_size = win->len;
    }
    return rc;
}

static int recover_bytes(kg_run_log_t *log)
{
    kg_log_body_t *body = log->body;
    uint64_t size = 0;
    uint64_t end = 0;
    int rc = kg_log_open(log, 0);
    rc = rc < 0 ? rc : log->slot.pack ? begin_slot(log, &size) : begin_file(log, &size);
    rc = rc < 0 ? rc : kg_log_walk(log, size, &end);
    if (rc == 0 && end < size) {
        rc = kg_log_trim(log, end, size);
    }
    if (rc < 0) {
        return rc;
    }
    body->written = log->published = end;
    if (log->slot.pack) {
        body->win.len = (size_t)end;
    } else {
        body->win_off = end;
    }
    return 0;
}

static int recover(kg_run_log_t *log, const char *name, kg_run_log_t **ret_log, kg_err_t *err)
{
    int rc = recover_bytes(log);
    if (rc == -EBADMSG) {
        (void)kg_err_set(err, KG_ERR_INTERNAL, "%s is not a run's log", name);
    } else if (rc < 0) {
        (void)kg_err_set(err, kg_err_from_errno(rc), "%s: %s", name, strerrordesc_np(-rc));
    }
    if (rc == 0) {
        kg_log_close(log);
        *ret_log = kg_run_log_ref(log);
    }
    return rc;
}

static kg_run_log_t *log_for(const kg_run_log_opts_t *opts, const char *name, kg_err_t *err)
{
    kg_run_log_t *log = kg_log_new(opts);
    if (!log) {
        (void)kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "%s: out of memory", name);
    }
    return log;
}

int kg_run_log_recover(const kg_run_log_opts_t *opts,
                       const char *name,
                       kg_run_log_t **ret_log,
                       kg_err_t *err)
{
    KG_AUTO(kg_run_log_unref) kg_run_log_t *log = log_for(opts, name, err);
    if (!log) {
        return -ENOMEM;
    }
    size_t len = strlen(name);
    if (len == 0 || len >= sizeof log->name || strchr(name, '/')) {
        (void)kg_err_set(err, KG_ERR_INTERNAL, "%.64s is not the name of a log", name);
        return -EBADMSG;
    }
    memcpy(log->name, name, len + 1);
    return recover(log, name, ret_log, err);
}

int kg_run_log_recover_slot(const kg_run_log_opts_t *opts,
                            kg_run_slot_t slot,
                            kg_run_log_t **ret_log,
                            kg_err_t *err)
{
    KG_AUTO(kg_run_log_unref) kg_run_log_t *log = log_for(opts, "slot", err);
    if (!log) {
        return -ENOMEM;
    }
    log->slot = slot;
    int rc = recover(log, "slot", ret_log, err);
    if (rc < 0) {
        log->slot.pack = NULL; /* the caller's still */
    }
    return rc;
}

int kg_run_log_finish_recovered(kg_run_log_t *log, bool lost)
{
    if (log->ended) {
        return 0;
    }
    if (log->body->meta.command[0]) {
        const kg_command_end_t gone = {
            .status = KG_RUN_GATEWAY_RESTART,
            .signal = SIGKILL,
            .message = "The gateway was stopped while the command ran.",
            .cpu_ms = KG_USAGE_UNKNOWN,
            .peak_memory = KG_USAGE_UNKNOWN,
            .wall_ns = kg_wall_ns(),
        };
        return kg_log_append_command_end(log, &gone);
    }
    static const char message[] = "The gateway was stopped while the code ran.";
    static const char alive[] = "The gateway was stopped while the code ran. The kernel lives, and "
                                "may have gone on with it; "
                                "what it printed until the gateway was back is lost.";
    static const char unstarted[] = "The gateway was stopped before the code ran.";
    const kg_log_end_t end = {
        .status = KG_RUN_GATEWAY_RESTART,
        .started = log->started,
        .lost = lost,
        .name = kg_slice_cstr("GatewayRestart"),
        .message = kg_slice_cstr(!log->started ? unstarted
                                 : lost        ? message
                                               : alive),
        .usage = {KG_USAGE_UNKNOWN, KG_USAGE_UNKNOWN, KG_USAGE_UNKNOWN, KG_USAGE_UNKNOWN},
        .execution_count = log->execution_count,
        .wall_ns = kg_wall_ns()};
    return kg_log_append_end(log, &end);
}
