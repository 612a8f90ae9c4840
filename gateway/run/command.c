/* run: commands. Their text is a run's; what differs is how they begin and end. */
#include "gateway/run/command.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/clock.h"
#include "gateway/base/str.h"
#include "gateway/run/command_int.h"

void kg_signal_name(int signum, char ret[KG_SIGNAL_NAME_MAX])
{
    const char *abbrev = sigabbrev_np(signum);
    if (abbrev) {
        (void)snprintf(ret, KG_SIGNAL_NAME_MAX, "SIG%s", abbrev);
    } else {
        (void)snprintf(ret, KG_SIGNAL_NAME_MAX, "SIG%d", signum);
    }
}

int kg_signal_number(const char *name)
{
    const char *bare = kg_str_starts(name, "SIG") ? name + 3 : name;
    for (int i = 1; i < NSIG; i++) {
        const char *abbrev = sigabbrev_np(i);
        if (abbrev && strcmp(abbrev, bare) == 0) {
            return i;
        }
    }
    return 0;
}

int kg_mapper_command_started(kg_mapper_t *m, int64_t pid)
{
    char text[48];
    if (m->finished) {
        return -EALREADY;
    }
    (void)snprintf(text, sizeof text, ",\"pid\":%lld", (long long)pid);
    kg_slice_t part = kg_slice_cstr(text);
    return kg_log_append(m->log,
                         &(kg_log_event_t){.type = KG_EVENT_STARTED, .parts = &part, .count = 1});
}

static int put_number(kg_buf_t *out, const char *name, uint64_t value)
{
    return value == KG_USAGE_UNKNOWN
               ? kg_buf_printf(out, "\"%s\":null", name)
               : kg_buf_printf(out, "\"%s\":%llu", name, (unsigned long long)value);
}

static int put_how(kg_buf_t *out, const kg_command_end_t *end)
{
    char name[KG_SIGNAL_NAME_MAX];
    int rc =
        kg_buf_printf(out, ",\"status\":\"%s\",\"exit_code\":", kg_run_status_name(end->status));
    rc = rc < 0        ? rc
         : end->exited ? kg_buf_printf(out, "%d,\"signal\":null", end->exit_code)
                       : kg_buf_append_cstr(out, "null,\"signal\":");
    if (rc == 0 && !end->exited) {
        kg_signal_name(end->signal, name);
        rc = kg_buf_printf(out, "\"%s\"", name);
    }
    rc = rc < 0 ? rc
                : kg_buf_printf(out, ",\"timed_out\":%s,\"duration_ms\":%llu,",
                                end->status == KG_RUN_TIMEOUT ? "true" : "false",
                                (unsigned long long)end->duration_ms);
    if (rc == 0 && end->base64) {
        rc = kg_buf_append_cstr(out, "\"encoding\":\"base64\",");
    }
    if (rc == 0 && end->message) {
        rc = kg_buf_append_cstr(out, "\"message\":");
        rc = rc < 0 ? rc : kg_json_quote_cstr(out, end->message);
        rc = rc < 0 ? rc : kg_buf_append_char(out, ',');
    }
    return rc;
}

int kg_log_append_command_end(kg_run_log_t *log, const kg_command_end_t *end)
{
    static const char truncated[] = "\"truncated\":";
    KG_AUTO_BUF kg_buf_t out = {0};
    kg_rich_t rich = {.data_src = (uint32_t)end->wall_ns,
                      .data_len = (uint32_t)(end->wall_ns >> 32)};
    int rc = put_how(&out, end);
    rich.data_at = (uint32_t)out.len;
    rc = rc < 0 ? rc : kg_buf_append_cstr(&out, truncated);
    rich.text_at = (uint32_t)out.len;
    rc = rc < 0 ? rc : kg_log_put_truncated(&out, &log->body->account);
    rc = rc < 0 ? rc : kg_buf_append_cstr(&out, KG_LOG_LATE_FIELD);
    rich.main_at = (uint32_t)out.len;
    rc = rc < 0 ? rc : kg_buf_append_cstr(&out, ",\"usage\":{");
    rc = rc < 0 ? rc : put_number(&out, "cpu_ms", end->cpu_ms);
    rc = rc < 0 ? rc : kg_buf_append_char(&out, ',');
    rc = rc < 0 ? rc : put_number(&out, "peak_memory", end->peak_memory);
    rc = rc < 0 ? rc : kg_buf_append_char(&out, '}');
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

int kg_mapper_command_finish(kg_mapper_t *m, const kg_command_end_t *end)
{
    if (m->finished) {
        return -EALREADY;
    }
    int rc = kg_mapper_append_tail(m, false);
    rc = rc < 0 ? rc : kg_mapper_append_tail(m, true);
    rc = rc < 0 ? rc : kg_log_append_command_end(m->log, end);
    if (rc < 0) {
        return rc;
    }
    m->finished = true;
    m->status = end->status;
    return 0;
}
