/* run: the last events of a run, `error` and `result`, from whoever ends it. */
#include <stdio.h>

#include "gateway/run/log_int.h"

static int append_json_text(kg_buf_t *out, const char *before, kg_slice_t text, const char *after)
{
    int rc = kg_buf_append_cstr(out, before);
    rc = rc < 0 ? rc : kg_buf_append_slice(out, text);
    return rc < 0 ? rc : kg_buf_append_cstr(out, after);
}

/* The error object; rich and body get the places of its parts in out. */
static int put_error(kg_buf_t *out, const kg_log_end_t *end, kg_rich_t *rich, uint32_t *ret_body)
{
    int rc = kg_buf_append_cstr(out, "{\"name\":\"");
    rich->text_src = (uint32_t)out->len;
    rich->text_len = (uint32_t)end->name.len;
    rc = rc < 0 ? rc : append_json_text(out, "", end->name, "\",\"message\":\"");
    rich->data_src = (uint32_t)out->len;
    rich->data_len = (uint32_t)end->message.len;
    rc = rc < 0 ? rc : append_json_text(out, "", end->message, "\",\"traceback\":[");
    *ret_body = (uint32_t)out->len;
    rc = rc < 0 ? rc : append_json_text(out, "", end->traceback, "]");
    return rc < 0 ? rc
                  : kg_buf_printf(out, ",\"started\":%s,\"state\":\"%s\"}",
                                  end->started ? "true" : "false", end->lost ? "lost" : "kept");
}

static int append_error(kg_run_log_t *log,
                        kg_slice_t error,
                        uint32_t body,
                        const kg_rich_t *places,
                        const kg_log_end_t *end)
{
    static const char field[] = ",\"error\":";
    const uint32_t by = sizeof field - 1;
    kg_rich_t rich = *places;
    rich.text_src += by;
    rich.data_src += by;
    const kg_slice_t parts[] = {kg_slice(field, by), error};
    return kg_log_append(log, &(kg_log_event_t){.type = KG_EVENT_ERROR,
                                                .body_off = body + by,
                                                .body_len = (uint32_t)end->traceback.len,
                                                .rich = &rich,
                                                .parts = parts,
                                                .count = 2});
}

_Static_assert(KG_USAGE_UNKNOWN == KG_CUT_UNKNOWN, "both are null");

static int put_number(kg_buf_t *out, const char *name, uint64_t value)
{
    return value == KG_USAGE_UNKNOWN
               ? kg_buf_printf(out, "\"%s\":null", name)
               : kg_buf_printf(out, "\"%s\":%llu", name, (unsigned long long)value);
}

static int put_usage(kg_buf_t *out, const kg_run_usage_t *usage)
{
    int rc = kg_buf_append_cstr(out, ",\"usage\":{");
    rc = rc < 0 ? rc : put_number(out, "queued_ms", usage->queued_ms);
    rc = rc < 0 ? rc : kg_buf_append_char(out, ',');
    rc = rc < 0 ? rc : put_number(out, "wall_ms", usage->wall_ms);
    rc = rc < 0 ? rc : kg_buf_append_char(out, ',');
    rc = rc < 0 ? rc : put_number(out, "cpu_ms", usage->cpu_ms);
    rc = rc < 0 ? rc : kg_buf_append_char(out, ',');
    rc = rc < 0 ? rc : put_number(out, "peak_memory", usage->peak_memory);
    return rc < 0 ? rc : kg_buf_append_char(out, '}');
}

int kg_log_put_truncated(kg_buf_t *out, const kg_log_account_t *account)
{
    char sep = '{';
    for (size_t i = 0; i < KG_CUT_COUNT; i++) {
        if (account->said[i]) {
            int rc = kg_buf_append_char(out, sep);
            rc = rc < 0 ? rc : put_number(out, kg_cut_name((kg_cut_t)i), account->cut[i]);
            if (rc < 0) {
                return rc;
            }
            sep = ',';
        }
    }
    if (account->reason && sep == ',') {
        int rc = kg_buf_printf(out, ",\"reason\":\"%s\"", account->reason);
        if (rc < 0) {
            return rc;
        }
    }
    return kg_buf_append_cstr(out, sep == '{' ? "null" : "}");
}

static int append_result(kg_run_log_t *log, kg_slice_t error, const kg_log_end_t *end)
{
    KG_AUTO_BUF kg_buf_t out = {0};
    int64_t count = log->body->meta.silent ? -1 : end->execution_count;
    kg_rich_t rich = {.data_src = (uint32_t)end->wall_ns,
                      .data_len = (uint32_t)(end->wall_ns >> 32)};
    int rc = kg_buf_append_cstr(&out, ",\"context\":");
    rc = rc < 0 ? rc : kg_json_quote_cstr(&out, log->body->meta.context);
    rc = rc < 0 ? rc : kg_buf_append_cstr(&out, ",\"execution_count\":");
    rc = rc < 0      ? rc
         : count < 0 ? kg_buf_append_cstr(&out, "null")
                     : kg_buf_printf(&out, "%lld", (long long)count);
    rc = rc < 0 ? rc : kg_buf_printf(&out, ",\"status\":\"%s\",", kg_run_status_name(end->status));
    rich.data_at = (uint32_t)out.len;
    rc = rc < 0 ? rc : append_json_text(&out, "\"error\":", error, ",\"truncated\":");
    rich.text_at = (uint32_t)out.len;
    rc = rc < 0 ? rc : kg_log_put_truncated(&out, &log->body->account);
    rc = rc < 0 ? rc : kg_buf_append_cstr(&out, KG_LOG_LATE_FIELD);
    rich.main_at = (uint32_t)out.len;
    rc = rc < 0 ? rc : put_usage(&out, &end->usage);
    if (rc < 0) {
        return rc;
    }
    kg_slice_t part = kg_buf_slice(&out);
    return kg_log_append(log, &(kg_log_event_t){.type = KG_EVENT_RESULT,
                                                .units = (uint32_t)end->status,
                                                .rich = &rich,
                                                .parts = &part,
                                                .count = 1});
}

int kg_log_append_end(kg_run_log_t *log, const kg_log_end_t *end)
{
    KG_AUTO_BUF kg_buf_t error = {0};
    int rc = 0;
    if (end->status == KG_RUN_OK) {
        rc = kg_buf_append_cstr(&error, "null");
    } else {
        kg_rich_t places = {0};
        uint32_t body = 0;
        rc = put_error(&error, end, &places, &body);
        rc = rc < 0 ? rc : append_error(log, kg_buf_slice(&error), body, &places, end);
    }
    return rc < 0 ? rc : append_result(log, kg_buf_slice(&error), end);
}
