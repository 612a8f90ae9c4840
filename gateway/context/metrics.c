/* gateway/context: what a sandbox uses now, and whom its network refused; both asked of the keeper.
 */
#include "gateway/context/metrics.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>

#include "gateway/context/internal.h"

static json_t *known(uint64_t value)
{
    return value == UINT64_MAX ? json_null() : json_integer((json_int_t)value);
}

static json_t *metrics_json(kg_sandbox_t *sandbox, const kg_box_usage_t *usage)
{
    uint64_t cpu_us = usage->cpu_ns / 1000;
    json_t *cpu = usage->cpu_ns == UINT64_MAX ? json_null() : json_real((double)cpu_us / 1e6);
    return json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "sandbox", sandbox->id, "at",
                     kg_json_time(kg_wall_ns()), "cpu_seconds", cpu, "memory_bytes",
                     known(usage->memory_bytes), "memory_peak_bytes",
                     known(usage->memory_peak_bytes), "disk_bytes", known(usage->disk_bytes),
                     "pids", known(usage->pids), "oom_kills", known(usage->oom_kills), "limits",
                     kg_wish_limits_json(&sandbox->wish));
}

/* ---- one question to the keeper ---- */

struct kg_question {
    kg_sandbox_t *sandbox;
    kg_wait_t *wait;
    kg_question_t *prev, *next;
};

static kg_question_t *question_new(kg_sandbox_t *sandbox, kg_json_fn *done, void *user)
{
    kg_question_t *q = calloc(1, sizeof(*q));
    kg_wait_t *wait = q ? kg_wait_new(sandbox->core, KG_WAIT_JSON, user) : NULL;
    if (!wait) {
        free(q);
        return NULL;
    }
    wait->fn.json = done;
    q->sandbox = sandbox;
    q->wait = wait;
    DL_APPEND(sandbox->questions, q);
    return q;
}

void kg_question_free(kg_question_t *q)
{
    if (q->sandbox->sbx) {
        kg_sbx_forget(q->sandbox->sbx, q);
    }
    DL_DELETE(q->sandbox->questions, q);
    kg_core_later_forget(q->sandbox->core, q);
    kg_wait_drop(&q->wait);
    free(q);
}

static void answer(kg_question_t *q, json_t *json, const kg_err_t *err)
{
    kg_err_t why = err ? *err : (kg_err_t){0};
    kg_wait_t *wait = KG_TAKE(q->wait);
    if (!err && !json) {
        (void)kg_oom(&why);
    }
    kg_question_free(q);
    kg_wait_json(&wait, json, json ? NULL : &why);
}

void kg_question_fail(kg_question_t *question, const kg_err_t *err)
{
    answer(question, NULL, err);
}

void kg_questions_fail(kg_sandbox_t *sandbox, const kg_err_t *err)
{
    kg_err_t why = *err;
    while (sandbox->questions) {
        kg_question_fail(sandbox->questions, &why);
    }
    while (sandbox->net_changes) {
        kg_net_change_fail(sandbox->net_changes, &why);
    }
}

void kg_questions_free(kg_sandbox_t *sandbox)
{
    while (sandbox->questions) {
        kg_question_free(sandbox->questions);
    }
    while (sandbox->net_changes) {
        kg_net_change_free(sandbox->net_changes);
    }
}

static void usage_told(void *user, const kg_box_usage_t *usage, const kg_err_t *err)
{
    kg_question_t *q = user;
    answer(q, usage ? metrics_json(q->sandbox, usage) : NULL, err);
}

/* It has no processes: nothing is used. */
static void usage_of_none(void *user)
{
    const kg_box_usage_t none = {.memory_peak_bytes = UINT64_MAX,
                                 .cpu_ns = UINT64_MAX,
                                 .disk_bytes = UINT64_MAX,
                                 .oom_kills = UINT64_MAX};
    usage_told(user, &none, NULL);
}

static int question_failed(kg_question_t *q, int rc, kg_err_t *err)
{
    kg_question_free(q);
    return rc == -ENOMEM ? kg_oom(err)
                         : kg_err_set(err, kg_err_from_errno(rc), "the keeper cannot be asked: %s",
                                      strerrordesc_np(-rc));
}

int kg_sandbox_metrics(kg_sandbox_t *sandbox, kg_json_fn *done, void *user, kg_err_t *err)
{
    kg_question_t *q = question_new(sandbox, done, user);
    if (!q) {
        return kg_oom(err);
    }
    int rc = sandbox->box == KG_BOX_UP ? kg_sbx_box_usage(sandbox->sbx, usage_told, q)
                                       : kg_core_later(sandbox->core, usage_of_none, q);
    return rc ? question_failed(q, rc, err) : 0;
}

/* ---- refused connections ---- */

static const char *const whys[KG_NET_WHYS] = {
    [KG_NET_WHY_UNKNOWN] = NULL,
    [KG_NET_WHY_RULE] = "rule",
    [KG_NET_WHY_DEFAULT] = "default",
    [KG_NET_WHY_NONE] = "none",
    [KG_NET_WHY_NOT_PUBLIC] = "not_public",
    [KG_NET_WHY_HOST] = "host",
    [KG_NET_WHY_PROTOCOL] = "protocol",
    [KG_NET_WHY_DNS] = "dns",
    [KG_NET_WHY_CONNECTIONS] = "connections",
};

/* The rule that refused it, as it reads; null where that was another set of rules than today's. */
static json_t *rule_json(const kg_sandbox_t *sandbox, const kg_net_denied_t *row)
{
    const kg_net_wish_t *wish = &sandbox->wish.net;
    const kg_net_rule_t *rule = &wish->rules[row->rule < KG_NET_RULES_MAX ? row->rule : 0];
    if (row->why != KG_NET_WHY_RULE || row->rule >= wish->rule_count || rule->allow ||
        row->at_ns < sandbox->net_changed_ns) {
        return json_null();
    }
    char text[INET6_ADDRSTRLEN] = "";
    if (rule->family) {
        (void)inet_ntop(rule->family == 4 ? AF_INET : AF_INET6, rule->address, text, sizeof(text));
    }
    json_t *out = rule->family
                      ? json_pack("{s:o}", "cidr", json_sprintf("%s/%u", text, rule->prefix))
                      : json_pack("{s:s}", "domain", rule->domain);
    if (out && rule->port_first) {
        (void)json_object_set_new(out, "ports",
                                  json_sprintf("%u-%u", rule->port_first, rule->port_last));
    }
    if (out && rule->protocol) {
        (void)json_object_set_new(out, "protocol",
                                  json_string(rule->protocol == 6 ? "tcp" : "udp"));
    }
    return out;
}

static json_t *denied_json(const kg_sandbox_t *sandbox, const kg_net_denied_t *row)
{
    char address[INET6_ADDRSTRLEN] = "";
    const char *protocol = row->protocol == 6                          ? "tcp"
                           : row->protocol == 17                       ? "udp"
                           : row->protocol == 1 || row->protocol == 58 ? "icmp"
                                                                       : NULL;
    bool printed =
        (row->family == 4 || row->family == 6) &&
        inet_ntop(row->family == 4 ? AF_INET : AF_INET6, row->address, address, sizeof(address));
    char domain[KG_NET_DOMAIN_MAX];
    memcpy(domain, row->domain, sizeof(domain));
    domain[sizeof(domain) - 1] = '\0';
    bool named = domain[0] && kg_utf8_valid(domain, strlen(domain));
    return json_pack("{s:o, s:s?, s:s?, s:s?, s:i, s:s?, s:o}", "at", kg_json_time(row->at_ns),
                     "address", printed ? address : NULL, "domain", named ? domain : NULL,
                     "protocol", protocol, "port", (int)row->port, "reason",
                     row->why < KG_NET_WHYS ? whys[row->why] : NULL, "rule",
                     rule_json(sandbox, row));
}

static void log_told(void *user,
                     const kg_net_denied_t *rows,
                     size_t count,
                     uint64_t cursor,
                     uint64_t lost,
                     const kg_err_t *err)
{
    kg_question_t *q = user;
    json_t *items = err ? NULL : json_array();
    for (size_t i = 0; items && i < count; i++) {
        (void)json_array_append_new(items, denied_json(q->sandbox, &rows[i]));
    }
    json_t *json = items ? json_pack("{s:o, s:I, s:I}", "items", items, "cursor",
                                     (json_int_t)cursor, "lost", (json_int_t)lost)
                         : NULL;
    answer(q, json, err);
}

static void log_of_none(void *user)
{
    log_told(user, NULL, 0, 0, 0, NULL);
}

int kg_sandbox_network_log(
    kg_sandbox_t *sandbox, uint64_t cursor, kg_json_fn *done, void *user, kg_err_t *err)
{
    kg_question_t *q = question_new(sandbox, done, user);
    if (!q) {
        return kg_oom(err);
    }
    /* By what it was made with: where a change has closed all since, its log is still there. */
    bool there = sandbox->box == KG_BOX_UP && kg_box_has_interface(sandbox);
    int rc = there ? kg_sbx_network_log(sandbox->sbx, cursor, log_told, q)
                   : kg_core_later(sandbox->core, log_of_none, q);
    return rc ? question_failed(q, rc, err) : 0;
}
