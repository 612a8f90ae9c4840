/* run: what a kernel's message means, made ready for the log: copied in canonical form, cut to the
 * run's limits, measured. Pure; a worker does it for big messages. A message that lacks what it
 * needs, or of an unknown type, becomes nothing. */
#include <errno.h>
#include <string.h>

#include "gateway/base/utf8.h"
#include "gateway/run/mapper_int.h"

enum {
    CHUNK = 64 * 1024,
    HEAVY = 1024 * 1024,
    HEAVY_TO_FREE = 4 * 1024 * 1024
};

/* --- text ----------------------------------------------------------------------------------------
 */

/* Canonical copy of at most output_bytes; of what is behind only the tail is kept and the rest
 * counted, so that memory is bounded by the limit, not by the message. */
static int read_text(kg_mapped_t *m, const kg_mapper_opts_t *opts, kg_json_value_t text)
{
    KG_AUTO_BUF kg_buf_t chunk = {0};
    kg_text_ring_t ring = {0};
    uint64_t kept = 0;
    uint64_t behind = 0;
    const char *p = text.raw.data + 1;
    size_t left = text.raw.len - 2;
    int rc = 0;
    while (rc == 0 && left > 0) {
        size_t n = kg_text_raw_floor(p, left, CHUNK);
        kg_json_value_t part = {KG_JSON_STRING, kg_slice(p - 1, n + 2)};
        bool cutting = kept >= opts->limits.output_bytes;
        kg_buf_t *to = cutting ? &chunk : &m->text;
        kg_buf_clear(&chunk);
        size_t before = to->len;
        rc = kg_json_copy_string_body(to, part);
        if (rc == 0 && to->len > before) {
            size_t units = kg_text_units(to->data + before, to->len - before);
            kept += cutting ? 0 : units;
            behind += cutting ? units : 0;
            /* No unit takes more than six bytes as received: what lies further off is no tail. */
            if (cutting && left <= kg_tail_max(&opts->limits) * 6 + CHUNK) {
                rc = kg_text_ring_push(&ring, chunk.data, chunk.len, kg_tail_max(&opts->limits));
            }
        }
        p += n;
        left -= n;
    }
    m->gap = behind - ring.units;
    m->tail = ring.buf; /* ownership moves */
    return rc;
}

static int prepare_stream(kg_mapped_t *m, const kg_mapper_opts_t *opts, kg_json_value_t content)
{
    kg_json_value_t name = kg_json_get(content, "name");
    kg_json_value_t text = kg_json_get(content, "text");
    if (text.type != KG_JSON_STRING || text.raw.len <= 2) {
        return 0;
    }
    m->kind = KG_MAPPED_TEXT;
    m->is_stderr = name.type == KG_JSON_STRING && kg_json_key_eq(name.raw, "stderr");
    return read_text(m, opts, text);
}

/* --- results -------------------------------------------------------------------------------------
 */

static kg_bundle_t *add_bundle(kg_mapped_t *m)
{
    kg_bundle_t *grown = realloc(m->bundles, (m->bundles_len + 1) * sizeof *grown);
    if (!grown) {
        return NULL;
    }
    m->bundles = grown;
    m->bundles[m->bundles_len] = (kg_bundle_t){0};
    return &m->bundles[m->bundles_len++];
}

/* transient.display_id: a string, or a number's digits. Ids are remembered and stand in every
 * event: one that is too long is cut, as if there was none. */
static int read_display_id(kg_bundle_t *b, kg_json_value_t content)
{
    kg_json_value_t id = kg_json_get(kg_json_get(content, "transient"), "display_id");
    int rc = 0;
    if (id.type != KG_JSON_ABSENT && id.raw.len > KG_RUN_ID_MAX) {
        b->over += id.raw.len;
        b->cut += id.raw.len;
        return 0;
    }
    if (id.type == KG_JSON_STRING) {
        rc = kg_json_decode_string(&b->display_id, id);
    } else if (id.type == KG_JSON_NUMBER) {
        rc = kg_json_copy(&b->display_id, id);
    } else {
        return 0;
    }
    b->has_display_id = true;
    return rc;
}

static int prepare_result(kg_mapped_t *m,
                          const kg_mapper_opts_t *opts,
                          kg_json_value_t content,
                          kg_mapped_kind_t kind,
                          bool is_main)
{
    if (opts->silent) {
        return 0;
    }
    kg_bundle_t *b = add_bundle(m);
    if (!b) {
        return -ENOMEM;
    }
    m->kind = kind;
    int rc =
        kg_bundle_build(b, opts, kg_json_get(content, "data"), kg_json_get(content, "metadata"));
    b->main = is_main;
    return rc < 0 ? rc : read_display_id(b, content);
}

/* --- errors --------------------------------------------------------------------------------------
 */

void kg_failure_fini(kg_failure_t *failure)
{
    kg_buf_fini(&failure->name);
    kg_buf_fini(&failure->message);
    kg_buf_fini(&failure->traceback);
    *failure = (kg_failure_t){0};
}

/* Appends the value as text in canonical escaped form; other than strings as their JSON. */
static int put_text(kg_buf_t *out, kg_json_value_t value)
{
    if (value.type == KG_JSON_STRING) {
        return kg_json_copy_string_body(out, value);
    }
    if (value.type == KG_JSON_ABSENT || value.type == KG_JSON_NULL) {
        return 0;
    }
    KG_AUTO_BUF kg_buf_t json = {0};
    int rc = kg_json_copy(&json, value);
    if (rc == -E2BIG || rc == -EBADMSG) { /* nested too deep */
        return kg_buf_append_cstr(out, "[…]");
    }
    return rc < 0 ? rc : kg_json_escape(out, json.data, json.len);
}

/* Cuts out to at most KG_RUN_ERROR_MAX bytes as decoded. */
static uint64_t cap_text(kg_buf_t *out)
{
    size_t units;
    if (out->len <= KG_RUN_ERROR_MAX) {
        return 0;
    }
    size_t all = kg_text_units(out->data, out->len);
    out->len = kg_text_split(out->data, out->len, KG_RUN_ERROR_MAX, &units);
    out->data[out->len] = '\0';
    return all - units;
}

static int put_line(kg_failure_t *f, kg_json_value_t line, bool ansi)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    kg_ansi_strip_t strip = {0};
    int rc = put_text(&text, line);
    size_t before = f->traceback.len;
    rc = rc < 0 ? rc : kg_buf_append_cstr(&f->traceback, before > 0 ? ",\"" : "\"");
    const char *data = text.data ? text.data : "";
    if (rc == 0) {
        rc = ansi ? kg_buf_append(&f->traceback, data, text.len)
                  : kg_ansi_strip_escaped(&strip, &f->traceback, data, text.len);
    }
    rc = rc < 0 ? rc : kg_buf_append_char(&f->traceback, '"');
    if (rc == 0 && f->traceback.len > KG_RUN_ERROR_MAX) {
        f->cut += kg_text_units(data, text.len);
        f->traceback.len = before;
    }
    return rc;
}

int kg_failure_read(kg_failure_t *f, kg_json_value_t content, bool ansi)
{
    kg_json_value_t lines = kg_json_get(content, "traceback");
    int rc = put_text(&f->name, kg_json_get(content, "ename"));
    rc = rc < 0 ? rc : put_text(&f->message, kg_json_get(content, "evalue"));
    if (rc < 0) {
        return rc;
    }
    f->cut += cap_text(&f->name) + cap_text(&f->message);
    if (lines.type == KG_JSON_ARRAY) {
        kg_json_iter_t it;
        kg_json_value_t line;
        kg_json_iter_init(&it, lines);
        while (rc == 0 && kg_json_iter_next(&it, NULL, &line)) {
            rc = put_line(f, line, ansi);
        }
    } else if (lines.type == KG_JSON_STRING) {
        rc = put_line(f, lines, ansi);
    }
    return rc;
}

/* --- the others ----------------------------------------------------------------------------------
 */

static int64_t read_count(kg_json_value_t content)
{
    int64_t n;
    return kg_json_int(kg_json_get(content, "execution_count"), &n) < 0 || n < 0 ? -1 : n;
}

static int prepare_input(kg_mapped_t *m, const kg_jmsg_t *msg)
{
    kg_json_value_t prompt = kg_json_get(msg->content, "prompt");
    m->kind = KG_MAPPED_INPUT;
    m->password = kg_json_get(msg->content, "password").type == KG_JSON_TRUE;
    int rc = prompt.type == KG_JSON_STRING ? kg_json_decode_string(&m->text, prompt) : 0;
    if (rc == 0 && m->text.len > KG_RUN_PROMPT_MAX) {
        size_t keep = kg_utf8_floor(m->text.data, m->text.len, KG_RUN_PROMPT_MAX);
        m->gap = m->text.len - keep;
        m->text.len = keep;
        m->text.data[keep] = '\0';
    }
    return rc < 0 ? rc : kg_json_copy(&m->header, msg->header);
}

/* A pager's text is a result, and so is text that was meant for the next cell. */
static int read_payload(kg_mapped_t *m, const kg_mapper_opts_t *opts, kg_json_value_t payload)
{
    kg_json_value_t source = kg_json_get(payload, "source");
    if (source.type != KG_JSON_STRING || opts->silent) {
        return 0;
    }
    kg_json_value_t data = kg_json_get(payload, "data");
    kg_json_value_t text = kg_json_get(payload, "text");
    bool page = kg_json_key_eq(source.raw, "page") && data.type == KG_JSON_OBJECT;
    bool next = kg_json_key_eq(source.raw, "set_next_input") && text.type == KG_JSON_STRING;
    if (!page && !next) {
        return 0;
    }
    kg_bundle_t *b = add_bundle(m);
    if (!b) {
        return -ENOMEM;
    }
    int rc = page ? kg_bundle_build(b, opts, data, (kg_json_value_t){0})
                  : kg_bundle_build_plain(b, opts, text);
    b->main = page;
    b->payload = true;
    return rc;
}

static int read_payloads(kg_mapped_t *m, const kg_mapper_opts_t *opts, kg_json_value_t list)
{
    kg_json_iter_t it;
    kg_json_value_t payload;
    int rc = 0;
    if (list.type != KG_JSON_ARRAY) {
        return 0;
    }
    kg_json_iter_init(&it, list);
    while (rc == 0 && kg_json_iter_next(&it, NULL, &payload)) {
        kg_json_value_t source = kg_json_get(payload, "source");
        if (source.type == KG_JSON_STRING && kg_json_key_eq(source.raw, "ask_exit")) {
            /* exit(True) is about the front end alone */
            m->ask_exit = m->ask_exit || kg_json_get(payload, "keepkernel").type != KG_JSON_TRUE;
        } else if (m->bundles_len == KG_RUN_PAYLOADS_MAX) {
            m->over += payload.raw.len;
        } else {
            rc = read_payload(m, opts, payload);
        }
    }
    return rc;
}

static int prepare_reply(kg_mapped_t *m, const kg_mapper_opts_t *opts, kg_json_value_t content)
{
    static const struct {
        const char *name;
        kg_reply_status_t status;
    } known[] = {{"ok", KG_REPLY_OK},
                 {"error", KG_REPLY_ERROR},
                 {"aborted", KG_REPLY_ABORTED},
                 {"abort", KG_REPLY_ABORT}};
    kg_json_value_t status = kg_json_get(content, "status");
    m->kind = KG_MAPPED_REPLY;
    m->count = read_count(content);
    m->reply = KG_REPLY_OK;
    for (size_t i = 0; status.type == KG_JSON_STRING && i < KG_ARRAY_LEN(known); i++) {
        m->reply = kg_json_key_eq(status.raw, known[i].name) ? known[i].status : m->reply;
    }
    int rc = read_payloads(m, opts, kg_json_get(content, "payload"));
    if (rc == 0 && m->reply != KG_REPLY_OK) {
        m->has_failure = true;
        rc = kg_failure_read(&m->failure, content, opts->ansi);
    }
    return rc;
}

static int prepare(kg_mapped_t *m, const kg_mapper_opts_t *opts, const kg_jmsg_t *msg)
{
    kg_json_value_t content = msg->content;
    const char *type = msg->msg_type;
    if (strcmp(type, "stream") == 0) {
        return prepare_stream(m, opts, content);
    }
    if (strcmp(type, "status") == 0) {
        kg_json_value_t state = kg_json_get(content, "execution_state");
        m->kind = KG_MAPPED_STATUS;
        m->busy = state.type == KG_JSON_STRING && kg_json_key_eq(state.raw, "busy");
        m->idle = state.type == KG_JSON_STRING && kg_json_key_eq(state.raw, "idle");
        return 0;
    }
    if (strcmp(type, "execute_result") == 0 || strcmp(type, "pyout") == 0) {
        return prepare_result(m, opts, content, KG_MAPPED_RESULT, true);
    }
    if (strcmp(type, "display_data") == 0) {
        return prepare_result(m, opts, content, KG_MAPPED_RESULT, false);
    }
    if (strcmp(type, "update_display_data") == 0) {
        return prepare_result(m, opts, content, KG_MAPPED_UPDATE, false);
    }
    if (strcmp(type, "clear_output") == 0) {
        m->kind = KG_MAPPED_CLEAR;
        m->wait = kg_json_get(content, "wait").type == KG_JSON_TRUE;
        return 0;
    }
    if (strcmp(type, "error") == 0) {
        m->kind = KG_MAPPED_ERROR;
        return kg_failure_read(&m->failure, content, opts->ansi);
    }
    if (strcmp(type, "execute_input") == 0) {
        m->kind = KG_MAPPED_EXECUTE_INPUT;
        m->count = read_count(content);
        return 0;
    }
    if (strcmp(type, "execute_reply") == 0) {
        return prepare_reply(m, opts, content);
    }
    return strcmp(type, "input_request") == 0 ? prepare_input(m, msg) : 0;
}

kg_mapped_t *kg_mapper_prepare(const kg_mapper_opts_t *opts, const kg_jmsg_t *msg)
{
    KG_AUTO(kg_mapped_destroy) kg_mapped_t *m = calloc(1, sizeof *m);
    if (!m) {
        return NULL;
    }
    m->count = -1;
    return prepare(m, opts, msg) < 0 ? NULL : KG_TAKE(m);
}

void kg_mapped_destroy(kg_mapped_t **mapped)
{
    kg_mapped_t *m = *mapped;
    *mapped = NULL;
    if (!m) {
        return;
    }
    for (size_t i = 0; i < m->bundles_len; i++) {
        kg_bundle_fini(&m->bundles[i]);
    }
    free(m->bundles);
    for (size_t i = 0; i < m->targets_len; i++) {
        kg_log_release(&m->targets[i].log);
    }
    free(m->targets);
    kg_ahead_unref(&m->ahead);
    kg_buf_fini(&m->text);
    kg_buf_fini(&m->tail);
    kg_buf_fini(&m->header);
    kg_failure_fini(&m->failure);
    free(m);
}

bool kg_mapped_heavy(const kg_mapped_t *mapped)
{
    return mapped->text.cap >= HEAVY_TO_FREE && mapped->targets_len == 0;
}

bool kg_mapper_heavy(const kg_jmsg_t *msg)
{
    return msg->content.raw.len >= HEAVY;
}
