/* gateway/context: sandboxes as the API speaks of them: found, listed, described, changed. */
#include "gateway/context/sandbox.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/context/internal.h"

kg_sandbox_t *
kg_sandbox_find(kg_core_t *core, const char *owner, const char *id_or_name, kg_err_t *err)
{
    kg_sandbox_t *sandbox = NULL;
    HASH_FIND_STR(core->sandboxes, id_or_name, sandbox);
    if (!sandbox || sandbox->deleted || sandbox->hidden || strcmp(sandbox->owner, owner) != 0) {
        for (sandbox = core->sandboxes; sandbox; sandbox = sandbox->hh.next) {
            if (!sandbox->deleted && !sandbox->hidden && sandbox->name[0] &&
                strcmp(sandbox->name, id_or_name) == 0 && strcmp(sandbox->owner, owner) == 0) {
                break;
            }
        }
    }
    if (!sandbox) {
        (void)kg_err_set(err, KG_ERR_SANDBOX_NOT_FOUND, "No sandbox %.64s.", id_or_name);
        kg_err_hint(err, "GET /v1/sandboxes lists them.");
    }
    return sandbox;
}

kg_core_t *kg_sandbox_core(const kg_sandbox_t *sandbox)
{
    return sandbox->core;
}

const char *kg_sandbox_id(const kg_sandbox_t *sandbox)
{
    return sandbox->id;
}

const char *kg_sandbox_owner(const kg_sandbox_t *sandbox)
{
    return sandbox->owner;
}

const char *kg_sandbox_default_context(const kg_sandbox_t *sandbox)
{
    const kg_context_t *context = NULL;
    const kg_context_t *first = NULL;
    DL_FOREACH (sandbox->contexts, context) {
        if (!context->gone && context->is_default) {
            if (strcmp(context->lang->name, kg_language_canonical(sandbox->tpl->main_language)) ==
                0) {
                return context->id;
            }
            first = first ? first : context;
        }
    }
    return first ? first->id : NULL;
}

/* Something of a client's goes on in it. */
bool kg_sandbox_busy(const kg_sandbox_t *sandbox)
{
    if (sandbox->files > 0) {
        return true;
    }
    const kg_context_t *context = NULL;
    if (sandbox->wake_waits || kg_commands_busy(sandbox, true)) {
        return true;
    }
    DL_FOREACH (sandbox->contexts, context) {
        if (context->current || context->jobs || context->ready_waits) {
            return true;
        }
    }
    return false;
}

void kg_sandbox_touch(kg_sandbox_t *sandbox)
{
    sandbox->active_ns = kg_wall_ns();
    sandbox->idle_since_ns = kg_now_ns();
}

static const char *state_name(const kg_sandbox_t *sandbox)
{
    if (sandbox->box == KG_BOX_ENDING) {
        return "stopping";
    }
    if (sandbox->pause == KG_PAUSE_PAUSED || sandbox->pause == KG_PAUSE_RESUMING) {
        return "paused";
    }
    /* After a restart of the daemon its place is made at the first use, within the call. */
    bool files = sandbox->box == KG_BOX_DOWN || sandbox->finding;
    bool usable = sandbox->box == KG_BOX_UP || (files && sandbox->reuse);
    return usable && !sandbox->create_wait ? "running" : "starting";
}

static const char *word(const char *got)
{
    return got[0] ? got : NULL;
}

/* What it got; null where it was not made yet since the daemon started. */
static json_t *isolation_json(const kg_sandbox_t *sandbox)
{
    const kg_isolation_info_t *got = &sandbox->info.isolation_info;
    json_t *out =
        json_pack("{s:s, s:s?, s:s?, s:s?, s:s?, s:s?}", "kind", sandbox->launcher, "userns",
                  word(got->userns), "seccomp", word(got->seccomp), "cgroup", word(got->cgroup),
                  "network", word(got->network), "disk", word(got->disk));
    size_t count = 0;
    const kg_launcher_info_t *rows = kg_keeper_launchers(sandbox->core->keeper, &count);
    for (size_t i = 0; out && i < count; i++) {
        if (strcmp(rows[i].name, sandbox->launcher) == 0 &&
            strstr(rows[i].reason, KG_LAUNCHER_NOT_APART)) {
            (void)json_object_set_new(out, "reason", json_string(rows[i].reason));
        }
    }
    return out;
}

/* ---- what idleness does ---- */

int kg_on_timeout_check(const kg_core_t *core,
                        const char *wish,
                        const char *launcher,
                        kg_err_t *err)
{
    if (strcmp(wish, "kill") == 0) {
        return 0;
    }
    if (strcmp(wish, "pause") != 0) {
        return kg_bad(err, "/on_timeout", "on_timeout: \"kill\" or \"pause\"");
    }
    int rc = kg_pause_check(core, launcher, err);
    if (rc) {
        kg_err_hint(err, "Leave on_timeout out, which is kill here. `sandald doctor` says what the "
                         "host lacks.");
        kg_err_pointer(err, "/on_timeout");
    }
    return rc;
}

kg_on_timeout_t kg_on_timeout_of(const char *wish)
{
    return !wish                        ? KG_ON_TIMEOUT_AUTO
           : strcmp(wish, "pause") == 0 ? KG_ON_TIMEOUT_PAUSE
                                        : KG_ON_TIMEOUT_KILL;
}

static bool can_pause(const kg_sandbox_t *sandbox)
{
    return !sandbox->cannot_pause && !kg_pause_check(sandbox->core, sandbox->launcher, NULL);
}

bool kg_sandbox_pauses(const kg_sandbox_t *sandbox)
{
    bool can = can_pause(sandbox);
    return sandbox->on_timeout == KG_ON_TIMEOUT_PAUSE ||
           (sandbox->on_timeout == KG_ON_TIMEOUT_AUTO && can);
}

static const char *memory_stays(const kg_sandbox_t *sandbox)
{
    const char *why =
        sandbox->pause == KG_PAUSE_PAUSED && sandbox->sbx ? kg_sbx_memory_stays(sandbox->sbx) : "";
    return why[0] ? why : NULL;
}

json_t *kg_sandbox_json(const kg_sandbox_t *sandbox)
{
    /* What was to be paused where that can't be (another host, or daemon) stays as it is. */
    bool stays = sandbox->on_timeout == KG_ON_TIMEOUT_PAUSE && !can_pause(sandbox);
    bool ends = sandbox->timeout_s > 0 && !kg_sandbox_busy(sandbox) &&
                sandbox->pause == KG_PAUSE_NO && !stays;
    uint64_t expires = ends ? sandbox->active_ns + (uint64_t)sandbox->timeout_s * KG_NS_PER_S : 0;
    return json_pack("{s:s, s:s?, s:s, s:s, s:o, s:o, s:o, s:I, s:s, s:O, s:o, s:o, s:o, s:b, s:s, "
                     "s:s?, s:s, s:s?}",
                     "id", sandbox->id, "name", sandbox->name[0] ? sandbox->name : NULL, "template",
                     sandbox->tpl->name, "state", state_name(sandbox), "created_at",
                     kg_json_time(sandbox->created_ns), "last_active_at",
                     kg_json_time(sandbox->active_ns), "expires_at", kg_json_time(expires),
                     "timeout", (json_int_t)sandbox->timeout_s, "on_timeout",
                     kg_sandbox_pauses(sandbox) ? "pause" : "kill", "metadata", sandbox->metadata,
                     "network", kg_wish_network_json(&sandbox->wish), "limits",
                     kg_wish_limits_json(&sandbox->wish), "isolation", isolation_json(sandbox),
                     "checkpointable", 0, "start", kg_start_name(sandbox->start), "default_context",
                     kg_sandbox_default_context(sandbox), "node", sandbox->core->node.name,
                     "memory_stays", memory_stays(sandbox));
}

/* ---- lists ---- */

static bool metadata_matches(const kg_sandbox_t *sandbox, const json_t *wanted)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_t *walked = (json_t *)(uintptr_t)wanted;
    json_object_foreach (walked, key, value) {
        const char *have = json_string_value(json_object_get(sandbox->metadata, key));
        const char *want = json_string_value(value);
        if (!have || !want || strcmp(have, want) != 0) {
            return false;
        }
    }
    return true;
}

static int check_filter(const kg_sandbox_filter_t *filter, uint64_t *ret_after, kg_err_t *err)
{
    static const char *const states[] = {"starting", "running", "paused", "stopping"};
    bool known = !filter->state;
    for (size_t i = 0; !known && i < KG_ARRAY_LEN(states); i++) {
        known = strcmp(filter->state, states[i]) == 0;
    }
    if (!known) {
        return kg_bad(err, "/state", "state: one of starting, running, paused, stopping");
    }
    if (filter->limit > KG_LIST_LIMIT_MAX) {
        return kg_bad(err, "/limit", "limit: at most %d", KG_LIST_LIMIT_MAX);
    }
    *ret_after = 0;
    if (filter->after && kg_parse_u64(filter->after, 0, UINT64_MAX, ret_after)) {
        return kg_bad(err, "/after", "after: take `next` of the page before");
    }
    return 0;
}

json_t *kg_sandbox_list(kg_core_t *core,
                        const char *owner,
                        const kg_sandbox_filter_t *filter,
                        kg_err_t *err)
{
    uint64_t after = 0;
    if (check_filter(filter, &after, err)) {
        return NULL;
    }
    unsigned limit = filter->limit ? filter->limit : KG_LIST_LIMIT;
    char next[32] = "";
    const kg_sandbox_t *last = NULL;
    json_t *items = json_array();
    /* The hash keeps the order of insertion, which is that of creation. */
    for (kg_sandbox_t *s = core->sandboxes; s; s = s->hh.next) {
        if (s->deleted || s->hidden || s->created_ns <= after || strcmp(s->owner, owner) != 0 ||
            (filter->state && strcmp(state_name(s), filter->state) != 0) ||
            (filter->metadata && !metadata_matches(s, filter->metadata))) {
            continue;
        }
        if (json_array_size(items) == limit) {
            (void)snprintf(next, sizeof(next), "%" PRIu64, last ? last->created_ns : 0);
            break;
        }
        (void)json_array_append_new(items, kg_sandbox_json(s));
        last = s;
    }
    json_t *out = json_pack("{s:o, s:s?}", "items", items, "next", next[0] ? next : NULL);
    if (!out) {
        (void)kg_oom(err);
    }
    return out;
}

/* ---- changes ---- */

int kg_metadata_check(const json_t *metadata, kg_err_t *err)
{
    if (!metadata || json_is_null(metadata)) {
        return 0;
    }
    if (!json_is_object(metadata) || json_object_size(metadata) > KG_METADATA_MAX) {
        return kg_bad(err, "/metadata", "metadata: an object of at most %d strings",
                      KG_METADATA_MAX);
    }
    const char *key = NULL;
    json_t *value = NULL;
    json_t *walked = (json_t *)(uintptr_t)metadata;
    json_object_foreach (walked, key, value) {
        bool ok = json_is_string(value) && json_string_length(value) <= 1024 && strlen(key) <= 128;
        if (!ok) {
            char pointer[160];
            (void)snprintf(pointer, sizeof(pointer), "/metadata/%.64s", key);
            return kg_bad(err, pointer,
                          "metadata: values are strings of at most 1024 bytes, names at most 128");
        }
    }
    return 0;
}

static int name_free(const kg_sandbox_t *sandbox, const char *name, kg_err_t *err)
{
    kg_err_t ignored = {0};
    kg_sandbox_t *other = kg_sandbox_find(sandbox->core, sandbox->owner, name, &ignored);
    if (other && other != sandbox) {
        int rc = kg_err_set(err, KG_ERR_NAME_TAKEN, "a sandbox of yours has the name \"%s\"", name);
        kg_err_pointer(err, "/name");
        return rc;
    }
    return 0;
}

static int check_patch(const kg_sandbox_t *sandbox, const kg_sandbox_patch_t *patch, kg_err_t *err)
{
    int rc = patch->name && *patch->name ? kg_obj_name_check(patch->name, err) : 0;
    rc = rc || !patch->name || !*patch->name ? rc : name_free(sandbox, patch->name, err);
    rc = rc ? rc : kg_metadata_check(patch->metadata, err);
    if (!rc && patch->timeout_s > INT32_MAX) {
        rc = kg_bad(err, "/timeout", "timeout: too long");
    }
    if (!rc && patch->on_timeout) {
        rc = kg_on_timeout_check(sandbox->core, patch->on_timeout, sandbox->launcher, err);
    }
    if (!rc && patch->network) {
        kg_wish_t wish = {0};
        rc = kg_wish_network(sandbox->core, sandbox->launcher, patch->network, &wish, err);
        json_decref(wish.network);
    }
    return rc;
}

int kg_sandbox_save(kg_sandbox_t *sandbox, kg_err_t *err)
{
    json_t *body =
        json_pack("{s:i, s:s, s:s, s:I, s:I, s:O, s:O?, s:o, s:i, s:b, s:O?, s:s, s:b}", "v", 1,
                  "template", sandbox->tpl->name, "launcher", sandbox->launcher, "created_ns",
                  (json_int_t)sandbox->created_ns, "timeout_s", (json_int_t)sandbox->timeout_s,
                  "metadata", sandbox->metadata, "env", sandbox->env, "wish",
                  kg_wish_save(&sandbox->wish), "on_timeout", (int)sandbox->on_timeout, "paused",
                  sandbox->pause == KG_PAUSE_PAUSED, "exposed", sandbox->exposed, "start",
                  kg_start_kind_name(sandbox->start.kind), "pool", sandbox->start.pool);
    KG_AUTO_FREE char *text = body ? json_dumps(body, JSON_COMPACT) : NULL;
    json_decref(body);
    if (!text) {
        return kg_oom(err);
    }
    kg_store_row_t row = {sandbox->id, sandbox->owner, sandbox->name[0] ? sandbox->name : NULL,
                          text};
    return kg_store_sandbox_put(sandbox->core->store, &row, err);
}

int kg_sandbox_update(kg_sandbox_t *sandbox, const kg_sandbox_patch_t *patch, kg_err_t *err)
{
    int rc = check_patch(sandbox, patch, err);
    if (rc) {
        return rc;
    }
    json_t *metadata = json_incref(sandbox->metadata);
    if (patch->metadata) {
        json_decref(metadata);
        metadata =
            json_is_object(patch->metadata) ? json_deep_copy(patch->metadata) : json_object();
    }
    if (!metadata) {
        return kg_oom(err);
    }
    json_t *old_metadata = sandbox->metadata;
    int64_t old_timeout = sandbox->timeout_s;
    char old_name[sizeof(sandbox->name)];
    memcpy(old_name, sandbox->name, sizeof(old_name));
    sandbox->metadata = metadata;
    sandbox->timeout_s = patch->timeout_s >= 0 ? patch->timeout_s : old_timeout;
    kg_on_timeout_t old_on_timeout = sandbox->on_timeout;
    if (patch->on_timeout) {
        sandbox->on_timeout = kg_on_timeout_of(patch->on_timeout);
    }
    if (patch->name) {
        (void)kg_format(sandbox->name, sizeof(sandbox->name), "%s", patch->name);
    }
    rc = kg_sandbox_save(sandbox, err);
    if (rc) {
        sandbox->metadata = old_metadata;
        sandbox->timeout_s = old_timeout;
        sandbox->on_timeout = old_on_timeout;
        memcpy(sandbox->name, old_name, sizeof(old_name));
        json_decref(metadata);
        return rc;
    }
    json_decref(old_metadata);
    kg_sandbox_touch(sandbox);
    return 0;
}
