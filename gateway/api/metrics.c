/* gateway/api: /metrics in the text format of Prometheus (0.0.4). No label names an owner, a
 * sandbox or a client. */
#include <inttypes.h>

#include "gateway/api/api_priv.h"
#include "gateway/api/handlers.h"
#include "gateway/run/log.h"

typedef struct simple {
    const char *name;
    const char *type;
    const char *help;
    uint64_t value;
} simple_t;

static int put_head(kg_buf_t *out, const char *name, const char *type, const char *help)
{
    return kg_buf_printf(out, "# HELP sandal_%s %s\n# TYPE sandal_%s %s\n", name, help, name, type);
}

static int put_simple(kg_buf_t *out, const simple_t *rows, size_t count)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        rc = put_head(out, rows[i].name, rows[i].type, rows[i].help);
        rc = rc ? rc : kg_buf_printf(out, "sandal_%s %" PRIu64 "\n", rows[i].name, rows[i].value);
    }
    return rc;
}

static int put_core(kg_buf_t *out, const kg_core_stats_t *s)
{
    const simple_t rows[] = {
        {"sandboxes", "gauge", "Sandboxes there are.", s->sandboxes},
        {"contexts", "gauge", "Contexts there are.", s->contexts},
        {"kernels", "gauge", "Kernel processes.", s->kernels},
        {"runs_running", "gauge", "Runs that are running.", s->runs_running},
        {"runs_queued", "gauge", "Runs that wait in a context's queue.", s->runs_queued},
        {"commands_running", "gauge", "Commands that are running.", s->commands_running},
        {"sandboxes_paused", "gauge", "Sandboxes that are paused.", s->sandboxes_paused},
        {"pauses_total", "counter", "Sandboxes paused.", s->pauses},
        {"oom_kills_total", "counter",
         "Processes killed for want of memory, as far as it was told.", s->oom_kills},
        {"log_bytes", "gauge", "Bytes of run logs on disk.", s->log_bytes},
        {"sandboxes_created_total", "counter", "Sandboxes made.", s->sandboxes_created},
        {"sandboxes_ended_total", "counter", "Sandboxes ended.", s->sandboxes_ended},
        {"runs_created_total", "counter", "Runs taken.", s->runs_created},
        {"commands_started_total", "counter", "Commands started.", s->commands_started},
        {"kernels_started_total", "counter", "Kernels that became ready.", s->kernels_started},
        {"kernels_failed_total", "counter", "Kernels that did not become ready.",
         s->kernels_failed},
        {"kernels_died_total", "counter", "Kernels that went by themselves.", s->kernels_died},
        {"kernel_messages_total", "counter", "Messages from kernels.", s->messages},
        {"kernel_message_bytes_total", "counter", "Bytes of messages from kernels.", s->bytes},
        {"kernel_messages_dropped_total", "counter",
         "Messages from kernels that were forged, malformed or over a cap.", s->dropped},
        {"jupyter_connection_files", "gauge", "Connection files there are.", s->connections},
        {"jupyter_connection_dropped_total", "counter",
         "Messages to connection files that were forged, malformed or repeated.",
         s->connection_dropped},
        {"jupyter_connection_lost_total", "counter",
         "Messages that clients of connection files did not read in time.", s->connection_lost},
        {"queue_full_total", "counter", "Runs refused because a queue was full.", s->queue_full},
    };
    return put_simple(out, rows, KG_ARRAY_LEN(rows));
}

typedef struct pool_row {
    const char *name;
    const char *type;
    const char *help;
    size_t at; /* in put_pool_row's values */
} pool_row_t;

/* A template is no owner's: its name may be a label. */
static int put_pool_row(kg_buf_t *out, const kg_core_t *core, const pool_row_t *row)
{
    kg_pool_stats_t s;
    const char *name = NULL;
    const char *start = NULL;
    int rc = put_head(out, row->name, row->type, row->help);
    for (size_t i = 0; rc == 0 && (name = kg_core_pool_stats(core, i, &start, &s)) != NULL; i++) {
        const uint64_t values[] = {s.ready,  s.warming, s.target, s.memory_bytes, s.hits, s.joined,
                                   s.misses, s.made,    s.failed, s.aged,         s.shed};
        rc = kg_buf_printf(out, "sandal_%s{template=\"%s\",start=\"%s\"} %" PRIu64 "\n", row->name,
                           name, start, values[row->at]);
    }
    return rc;
}

static int put_pools(kg_buf_t *out, const kg_core_t *core)
{
    static const pool_row_t rows[] = {
        {"pool_ready", "gauge", "Warm sandboxes that wait.", 0},
        {"pool_warming", "gauge", "Warm sandboxes that are being made.", 1},
        {"pool_target", "gauge", "How many there should be.", 2},
        {"pool_memory_bytes", "gauge", "Their memory.", 3},
        {"pool_hits_total", "counter", "Creates that a waiting one answered.", 4},
        {"pool_joined_total", "counter", "Creates that waited for one in the making.", 5},
        {"pool_misses_total", "counter", "Creates that found none.", 6},
        {"pool_made_total", "counter", "Warm sandboxes that became ready.", 7},
        {"pool_failed_total", "counter",
         "Warm sandboxes that did not become ready, or ended while they waited.", 8},
        {"pool_aged_total", "counter", "Warm sandboxes ended for their age.", 9},
        {"pool_given_back_total", "counter",
         "Warm sandboxes given back: too many, over the budget, or the host was short.", 10},
    };
    kg_pool_stats_t first;
    int rc = 0;
    const char *start = NULL;
    bool any = kg_core_pool_stats(core, 0, &start, &first) != NULL;
    for (size_t i = 0; any && rc == 0 && i < KG_ARRAY_LEN(rows); i++) {
        rc = put_pool_row(out, core, &rows[i]);
    }
    return rc;
}

static int put_wall_times(kg_buf_t *out, const kg_core_stats_t *s)
{
    uint64_t below = 0;
    int rc = put_head(out, "run_duration_seconds", "histogram", "Wall time of runs that ended.");
    for (unsigned i = 0; rc == 0 && i < KG_RUN_WALL_BUCKETS; i++) {
        below += s->runs_by_wall[i];
        rc = kg_buf_printf(out, "sandal_run_duration_seconds_bucket{le=\"%g\"} %" PRIu64 "\n",
                           kg_run_wall_bound_ms(i) / 1000.0, below);
    }
    below += s->runs_by_wall[KG_RUN_WALL_BUCKETS];
    return rc ? rc
              : kg_buf_printf(out,
                              "sandal_run_duration_seconds_bucket{le=\"+Inf\"} %" PRIu64
                              "\nsandal_run_duration_seconds_sum %.3f\n"
                              "sandal_run_duration_seconds_count %" PRIu64 "\n",
                              below, (double)s->run_wall_ns / 1e9, below);
}

static int put_runs(kg_buf_t *out, const kg_core_stats_t *s)
{
    int rc = put_head(out, "runs_total", "counter", "Runs that ended, by status.");
    for (unsigned i = 0; rc == 0 && i < KG_RUN_STATUS_COUNT; i++) {
        rc = kg_buf_printf(out, "sandal_runs_total{status=\"%s\"} %" PRIu64 "\n",
                           kg_run_status_name((kg_run_status_t)i), s->runs_by_status[i]);
    }
    return rc ? rc : put_wall_times(out, s);
}

static int put_api(kg_buf_t *out, const kg_api_t *api)
{
    static const char *const classes[] = {"2xx", "4xx", "5xx"};
    size_t count;
    const kg_op_t *ops = kg_ops(&count);
    int rc = put_head(out, "calls_total", "counter",
                      "Answered calls, by operation and class of status.");
    for (size_t i = 0; rc == 0 && i < count * 3; i++) {
        uint64_t n = api->counts[i / 3].by_class[i % 3];
        if (n) {
            rc = kg_buf_printf(out, "sandal_calls_total{op=\"%s\",class=\"%s\"} %" PRIu64 "\n",
                               ops[i / 3].name, classes[i % 3], n);
        }
    }
    rc = rc ? rc : put_head(out, "errors_total", "counter", "Errors told to clients, by code.");
    for (unsigned i = 1; rc == 0 && i < KG_ERR_COUNT; i++) {
        if (api->errors[i]) {
            rc = kg_buf_printf(out, "sandal_errors_total{code=\"%s\"} %" PRIu64 "\n",
                               kg_err_name((kg_err_code_t)i), api->errors[i]);
        }
    }
    return rc;
}

static int put_edge(kg_buf_t *out, const kg_api_t *api)
{
    kg_api_gauges_t g = {0};
    if (api->gauges) {
        api->gauges(api->user, &g);
    }
    const simple_t rows[] = {
        {"connections", "gauge", "Connections of clients.", g.connections},
        {"websockets", "gauge", "WebSocket connections.", g.websockets},
        {"streams", "gauge", "Runs that are followed by a client.", g.streams},
        {"calls_pending", "gauge", "Calls that wait for their answer.", api->pending},
        {"received_bytes_total", "counter", "Bytes of bodies and messages from clients.",
         g.received_bytes},
        {"sent_bytes_total", "counter", "Bytes of answers, events and messages to clients.",
         g.sent_bytes},
    };
    return put_simple(out, rows, KG_ARRAY_LEN(rows));
}

static int put_all(kg_buf_t *out, const kg_api_t *api)
{
    kg_core_stats_t stats;
    kg_core_stats(api->core, &stats);
    uint64_t up = api->clock->now_ns(api->clock->user) - api->started_ns;
    int rc = put_head(out, "build_info", "gauge", "Version of the daemon.");
    rc = rc ? rc : kg_buf_printf(out, "sandal_build_info{version=\"%s\"} 1\n", SANDAL_VERSION);
    rc = rc ? rc : put_head(out, "uptime_seconds", "gauge", "Seconds since the start.");
    rc = rc ? rc : kg_buf_printf(out, "sandal_uptime_seconds %.3f\n", (double)up / 1e9);
    rc = rc ? rc : put_core(out, &stats);
    rc = rc ? rc : put_pools(out, api->core);
    rc = rc ? rc : put_runs(out, &stats);
    rc = rc ? rc : put_api(out, api);
    return rc ? rc : put_edge(out, api);
}

void kg_do_metrics(kg_call_t *call)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    int rc = put_all(&text, call->api);
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &(kg_err_t){0});
        return;
    }
    kg_call_text(call, &(kg_answer_t){
                           .status = 200,
                           .type = "text/plain; version=0.0.4; charset=utf-8",
                           .body = kg_buf_slice(&text),
                       });
}
