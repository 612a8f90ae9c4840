/* gateway/context: what a sandbox was asked to be held to, and what this host can hold. An explicit
 * wish that cannot be met is refused; a default gives way, and says so. */
#include <math.h>
#include <string.h>
#include <sys/resource.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/internal.h"
#include "gateway/context/network.h"

#define MIB (UINT64_C(1) << 20)

/* It has the host's network, and no groups of its own. */
static bool shares_host(const char *launcher)
{
    return strcmp(launcher, "none") == 0;
}

static bool is_process(const char *launcher)
{
    return strcmp(launcher, "process") == 0;
}

static int unsupported(kg_err_t *err, const char *pointer, const char *fmt, const char *launcher)
{
    char text[160];
    (void)snprintf(text, sizeof(text), "isolation %s %s", launcher, fmt);
    int rc = kg_err_set(err, KG_ERR_NOT_SUPPORTED, "%s", text);
    kg_err_pointer(err, "%s", pointer);
    return rc;
}

/* ---- limits ---- */

typedef struct limit {
    const char *name;
    double least;    /* with less nothing can start */
    double standard; /* the template's, 0 = none */
    double most;     /* the operator's, 0 = none */
} limit_t;

static int
take_limit(const json_t *asked, const limit_t *limit, double *ret, bool *ret_asked, kg_err_t *err)
{
    char pointer[48];
    const json_t *value = json_object_get(asked, limit->name);
    (void)snprintf(pointer, sizeof(pointer), "/limits/%s", limit->name);
    if (!value || json_is_null(value)) {
        *ret = limit->most > 0 && (limit->standard <= 0 || limit->standard > limit->most)
                   ? limit->most
                   : limit->standard;
        return 0;
    }
    double wish = json_number_value(value);
    if (!json_is_number(value) || !(wish > 0) || !isfinite(wish)) {
        return kg_bad(err, pointer, "%s must be a number above 0", limit->name);
    }
    if (wish < limit->least) {
        return kg_bad(err, pointer, "%s is at least %g: with less nothing could start", limit->name,
                      limit->least);
    }
    if (limit->most > 0 && wish > limit->most) {
        return kg_bad(err, pointer, "%s is at most %g here", limit->name, limit->most);
    }
    *ret = wish;
    *ret_asked = true;
    return 0;
}

/* No process can be given more than the daemon may have. */
static double files_max(const kg_core_config_t *c)
{
    struct rlimit own;
    double most = c->sandbox_open_files_max;
    if (getrlimit(RLIMIT_NOFILE, &own) < 0 || own.rlim_max == RLIM_INFINITY) {
        return most;
    }
    return most > 0 && most < (double)own.rlim_max ? most : (double)own.rlim_max;
}

static int unknown_limit(const json_t *asked, const limit_t *rows, size_t count, kg_err_t *err)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_t *walked = (json_t *)(uintptr_t)asked;
    json_object_foreach (walked, key, value) {
        bool known = false;
        for (size_t i = 0; i < count; i++) {
            known = known || strcmp(rows[i].name, key) == 0;
        }
        if (!known) {
            char pointer[96];
            (void)snprintf(pointer, sizeof(pointer), "/limits/%.64s", key);
            return kg_bad(err, pointer, "unknown field %.64s", key);
        }
    }
    return 0;
}

int kg_wish_limits(const kg_core_t *core,
                   const kg_template_t *tpl,
                   const char *launcher,
                   const json_t *asked,
                   kg_wish_t *wish,
                   kg_err_t *err)
{
    const kg_core_config_t *c = &core->config;
    const limit_t rows[] = {
        {"memory_mib", KG_WISH_MEMORY_MIB_MIN, tpl->memory_mib, c->sandbox_memory_mib_max},
        {"cpus", KG_WISH_CPUS_MIN, tpl->cpus, c->sandbox_cpus_max},
        {"pids", KG_WISH_PIDS_MIN, tpl->pids, c->sandbox_pids_max},
        {"disk_mib", KG_WISH_DISK_MIB_MIN, tpl->disk_mib, c->sandbox_disk_mib_max},
        {"open_files", KG_WISH_FILES_MIN, tpl->open_files, files_max(c)},
    };
    double values[KG_ARRAY_LEN(rows)] = {0};
    if (asked && !json_is_null(asked) && !json_is_object(asked)) {
        return kg_bad(err, "/limits", "limits must be an object");
    }
    int rc = unknown_limit(asked, rows, KG_ARRAY_LEN(rows), err);
    for (size_t i = 0; i < KG_ARRAY_LEN(rows) && !rc; i++) {
        bool explicit = false;
        rc = take_limit(asked, &rows[i], &values[i], &explicit, err);
        if (!rc && explicit && shares_host(launcher)) {
            char pointer[48];
            (void)snprintf(pointer, sizeof(pointer), "/limits/%s", rows[i].name);
            rc = unsupported(err, pointer, "cannot hold a sandbox to a limit", launcher);
        }
        wish->asked_limits |= explicit ? 1U << i : 0;
    }
    if (!rc && is_process(launcher) && wish->asked_limits & KG_ASKED_DISK) {
        rc =
            unsupported(err, "/limits/disk_mib", "cannot hold a sandbox to a disk limit", launcher);
    }
    if (rc || shares_host(launcher)) {
        return rc;
    }
    wish->limits.memory_bytes = (uint64_t)(values[0] * (double)MIB);
    wish->limits.cpu_millis = (uint32_t)ceil(values[1] * 1000.0);
    wish->limits.pids = (uint32_t)values[2];
    wish->limits.disk_bytes = (uint64_t)(values[3] * (double)MIB);
    wish->limits.nofile = (uint32_t)values[4];
    if (is_process(launcher)) {
        wish->limits.disk_bytes = 0; /* it never can */
    }
    wish->first = wish->limits;
    return 0;
}

static json_t *mib(uint64_t bytes)
{
    return bytes ? json_integer((json_int_t)(bytes / MIB)) : json_null();
}

json_t *kg_wish_limits_json(const kg_wish_t *wish)
{
    const kg_limits_t *l = &wish->limits;
    json_t *out =
        json_pack("{s:o, s:o, s:o, s:o, s:o}", "memory_mib", mib(l->memory_bytes), "cpus",
                  l->cpu_millis ? json_real((double)l->cpu_millis / 1000.0) : json_null(), "pids",
                  l->pids ? json_integer(l->pids) : json_null(), "disk_mib", mib(l->disk_bytes),
                  "open_files", l->nofile ? json_integer(l->nofile) : json_null());
    if (out && wish->limits_reason[0]) {
        (void)json_object_set_new(out, "reason", json_string(wish->limits_reason));
    }
    return out;
}

/* ---- network ---- */

/* The wish as it is kept: without what a record says besides. NULL: OOM. */
static json_t *plain_network(const json_t *asked, const kg_net_wish_t *net)
{
    if (!json_is_object(asked)) {
        return json_deep_copy(asked);
    }
    if (net->mode == KG_NET_NONE) {
        return json_string("none");
    }
    json_t *copy = json_deep_copy(asked);
    (void)json_object_del(copy, "mode");
    (void)json_object_del(copy, "reason");
    return copy;
}

/* {"mode":"host"}: what the record of a sandbox without a network of its own says is no wish. */
static bool says_host(const json_t *asked)
{
    const char *mode = json_string_value(json_object_get(asked, "mode"));
    return mode && strcmp(mode, "host") == 0;
}

int kg_wish_network(const kg_core_t *core,
                    const char *launcher,
                    const json_t *asked,
                    kg_wish_t *wish,
                    kg_err_t *err)
{
    bool explicit = asked && !json_is_null(asked) && !(shares_host(launcher) && says_host(asked));
    int rc = explicit ? kg_network_parse(asked, &wish->net, err) : 0;
    if (rc) {
        return rc;
    }
    if (explicit && shares_host(launcher)) {
        return unsupported(err, "/network",
                           "has no network of its own: code reaches what this host reaches",
                           launcher);
    }
    if (explicit && is_process(launcher) && wish->net.mode != KG_NET_NONE) {
        return unsupported(err, "/network", "has no network", launcher);
    }
    if (explicit) {
        json_t *copy = plain_network(asked, &wish->net);
        json_decref(wish->network);
        wish->network = copy;
        wish->network_reason[0] = '\0';
        return copy ? 0 : kg_oom(err);
    }
    wish->net.mode = shares_host(launcher)                               ? KG_NET_HOST
                     : core->config.network_none || is_process(launcher) ? KG_NET_NONE
                                                                         : KG_NET_EGRESS;
    if (shares_host(launcher) || (is_process(launcher) && !core->config.network_none)) {
        (void)kg_format(wish->network_reason, sizeof(wish->network_reason), "isolation %s %s",
                        launcher,
                        shares_host(launcher) ? "has no network of its own: code reaches what this "
                                                "host reaches"
                                              : "has no network");
    }
    wish->first_mode = wish->net.mode;
    return 0;
}

json_t *kg_wish_network_json(const kg_wish_t *wish)
{
    const char *mode = wish->net.mode == KG_NET_HOST     ? "host"
                       : wish->net.mode == KG_NET_EGRESS ? "egress"
                                                         : "none";
    json_t *out = json_pack("{s:s}", "mode", mode);
    if (out && json_is_object(wish->network)) {
        (void)json_object_update_missing(out, wish->network);
        (void)json_object_set_new(out, "default",
                                  json_string(wish->net.deny_by_default ? "deny" : "public"));
    }
    if (out && wish->network_reason[0]) {
        (void)json_object_set_new(out, "reason", json_string(wish->network_reason));
    }
    return out;
}

/* ---- what gives way ---- */

/* Steps, each from what was there first: without the disk's limit, without any, without egress, and
 * both together. What was asked for stays. */
enum {
    STEP_DISK = 1,
    STEP_LIMITS,
    STEP_EGRESS,
    STEP_EGRESS_DISK,
    STEP_EGRESS_LIMITS,
    STEPS
};

static void apply(kg_wish_t *wish, unsigned step)
{
    bool all = step == STEP_LIMITS || step == STEP_EGRESS_LIMITS;
    bool disk = all || step == STEP_DISK || step == STEP_EGRESS_DISK;
    unsigned asked = wish->asked_limits;
    wish->limits = wish->first;
    wish->limits.disk_bytes = disk && !(asked & KG_ASKED_DISK) ? 0 : wish->first.disk_bytes;
    wish->limits.memory_bytes = all && !(asked & KG_ASKED_MEMORY) ? 0 : wish->first.memory_bytes;
    wish->limits.cpu_millis = all && !(asked & KG_ASKED_CPUS) ? 0 : wish->first.cpu_millis;
    wish->limits.pids = all && !(asked & KG_ASKED_PIDS) ? 0 : wish->first.pids;
    if (!wish->network) {
        bool none = step >= STEP_EGRESS && wish->first_mode == KG_NET_EGRESS;
        wish->net.mode = none ? KG_NET_NONE : wish->first_mode;
    }
}

static void keep_reason(char ret[KG_WISH_REASON_MAX], const kg_err_t *why)
{
    (void)kg_format(ret, KG_WISH_REASON_MAX, "%.*s", KG_WISH_REASON_MAX - 1, why->message);
}

/* The place could not be made as asked: without what nobody asked for it may be. */
bool kg_wish_relax(kg_wish_t *wish, const kg_err_t *why)
{
    if (why->code != KG_ERR_NOT_SUPPORTED) {
        return false;
    }
    while (wish->step + 1 < STEPS) {
        kg_limits_t before = wish->limits;
        uint32_t mode = wish->net.mode;
        apply(wish, ++wish->step);
        if (mode == wish->net.mode && memcmp(&before, &wish->limits, sizeof(before)) == 0) {
            continue;
        }
        bool egress = wish->step >= STEP_EGRESS;
        if (wish->step == STEP_EGRESS) { /* it failed without limits too */
            keep_reason(wish->network_reason, why);
            wish->limits_reason[0] = '\0';
        } else if (!egress || wish->network_reason[0]) {
            keep_reason(wish->limits_reason, why);
        } else {
            keep_reason(wish->network_reason, why);
            keep_reason(wish->limits_reason, why);
        }
        return true;
    }
    return false;
}

static bool is_told(kg_core_t *core, const kg_wish_t *wish)
{
    for (unsigned i = 0; i < core->gave_way_count; i++) {
        if (strcmp(core->gave_way[i].network, wish->network_reason) == 0 &&
            strcmp(core->gave_way[i].limits, wish->limits_reason) == 0) {
            return true;
        }
    }
    if (core->gave_way_count < KG_ARRAY_LEN(core->gave_way)) { /* beyond it, each is told */
        struct kg_gave_way *row = &core->gave_way[core->gave_way_count++];
        memcpy(row->network, wish->network_reason, sizeof(row->network));
        memcpy(row->limits, wish->limits_reason, sizeof(row->limits));
    }
    return false;
}

void kg_wish_made(kg_core_t *core, const kg_wish_t *wish, const char *id)
{
    if (wish->step != 0) {
        kg_log(is_told(core, wish) ? KG_LOG_DEBUG : KG_LOG_WARN, "sandbox.relaxed",
               "sandbox=%s network=\"%s\" limits=\"%s\"", id, wish->network_reason,
               wish->limits_reason);
    }
}

json_t *kg_wish_save(const kg_wish_t *wish)
{
    return json_pack("{s:O?, s:I, s:I, s:I, s:I, s:I, s:i, s:i, s:s, s:s}", "network",
                     wish->network, "memory_bytes", (json_int_t)wish->limits.memory_bytes,
                     "disk_bytes", (json_int_t)wish->limits.disk_bytes, "cpu_millis",
                     (json_int_t)wish->limits.cpu_millis, "pids", (json_int_t)wish->limits.pids,
                     "open_files", (json_int_t)wish->limits.nofile, "asked_limits",
                     (int)wish->asked_limits, "mode", (int)wish->net.mode, "network_reason",
                     wish->network_reason, "limits_reason", wish->limits_reason);
}

static uint64_t number(const json_t *object, const char *name)
{
    json_int_t n = json_integer_value(json_object_get(object, name));
    return n > 0 ? (uint64_t)n : 0;
}

static void text(const json_t *object, const char *name, char *ret, size_t cap)
{
    const char *value = json_string_value(json_object_get(object, name));
    (void)kg_format(ret, cap, "%s", value ? value : "");
}

void kg_wish_load(kg_wish_t *wish, const char *launcher, const json_t *saved)
{
    json_t *network = json_object_get(saved, "network");
    wish->limits.memory_bytes = number(saved, "memory_bytes");
    wish->limits.disk_bytes = number(saved, "disk_bytes");
    wish->limits.cpu_millis = (uint32_t)number(saved, "cpu_millis");
    wish->limits.pids = (uint32_t)number(saved, "pids");
    wish->limits.nofile = (uint32_t)number(saved, "open_files");
    wish->asked_limits = (unsigned)number(saved, "asked_limits");
    wish->net.mode = saved                   ? (uint32_t)number(saved, "mode")
                     : shares_host(launcher) ? KG_NET_HOST
                                             : KG_NET_NONE;
    text(saved, "network_reason", wish->network_reason, sizeof(wish->network_reason));
    text(saved, "limits_reason", wish->limits_reason, sizeof(wish->limits_reason));
    wish->first = wish->limits;
    wish->first_mode = wish->net.mode;
    if (network && !json_is_null(network) && kg_network_parse(network, &wish->net, NULL) == 0) {
        wish->network = json_incref(network);
    }
}
