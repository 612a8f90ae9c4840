/* gateway/context: the start after a stop. Sandboxes and contexts come back from the store without
 * processes; runs from their logs. Those that were going end as gateway_restart: at once, or when
 * it is known whether their kernel lives. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/files_priv.h"

/* A row that can't be used is left alone (an operator may bring its template back) and told. */
static int unusable(const kg_store_row_t *row, const char *why)
{
    kg_log(KG_LOG_WARN, "recover.skipped", "id=%s reason=%s", row->id, why);
    return 0;
}

static int load_context(void *user, const kg_store_row_t *row)
{
    kg_sandbox_t *sandbox = user;
    const char *language = NULL;
    const char *tpl = NULL;
    int is_default = 0;
    json_int_t created = 0;
    json_int_t incarnation = 0;
    json_t *body = json_loads(row->body, JSON_REJECT_DUPLICATES, NULL);
    int bad = !body || json_unpack(body, "{s:s, s:s, s:b, s:I, s:I}", "language", &language,
                                   "template", &tpl, "default", &is_default, "created_ns", &created,
                                   "incarnation", &incarnation);
    const char *cwd = json_string_value(json_object_get(body, "cwd"));
    json_t *env = json_object_get(body, "env");
    const kg_tpl_language_t *lang = NULL;
    const kg_template_t *from = bad ? NULL : kg_templates_find(&sandbox->core->templates, tpl);
    for (size_t i = 0; from && i < from->language_count; i++) {
        lang = strcmp(from->languages[i].name, language) == 0 ? &from->languages[i] : lang;
    }
    kg_context_t *context = lang ? kg_context_alloc(sandbox, row->id) : NULL;
    if (!context) {
        kg_kernel_record_wipe(body);
        json_decref(body);
        return unusable(row, bad ? "record" : "template");
    }
    context->lang = lang;
    context->from = from;
    context->is_default = is_default;
    context->created_ns = (uint64_t)created;
    context->incarnation = (unsigned)incarnation;
    context->cwd = cwd ? strdup(cwd) : NULL;
    context->env = json_is_object(env) ? json_incref(env) : NULL;
    kg_kernel_record_load(context, json_object_get(body, "kernel"));
    (void)kg_format(context->name, sizeof(context->name), "%s", row->name ? row->name : "");
    kg_kernel_record_wipe(body);
    json_decref(body);
    return 0;
}

static int load_sandbox(void *user, const kg_store_row_t *row)
{
    kg_core_t *core = user;
    const char *tpl_name = NULL;
    const char *launcher = NULL;
    json_t *metadata = NULL;
    json_int_t created = 0;
    json_int_t timeout = 0;
    json_t *body = json_loads(row->body, JSON_REJECT_DUPLICATES, NULL);
    int bad = !body || json_unpack(body, "{s:s, s:s, s:I, s:I, s:o}", "template", &tpl_name,
                                   "launcher", &launcher, "created_ns", &created, "timeout_s",
                                   &timeout, "metadata", &metadata);
    json_t *env = json_object_get(body, "env");
    json_int_t on_timeout = json_integer_value(json_object_get(body, "on_timeout"));
    const kg_template_t *tpl = bad ? NULL : kg_templates_find(&core->templates, tpl_name);
    kg_sandbox_t *sandbox =
        tpl && kg_id_valid("sbx", row->id) ? kg_sandbox_alloc(core, row->id) : NULL;
    if (!sandbox) {
        json_decref(body);
        core->skipped++;
        return unusable(row, bad ? "record" : "template");
    }
    sandbox->tpl = tpl;
    sandbox->reuse = true;
    sandbox->created_ns = (uint64_t)created;
    kg_sandbox_touch(sandbox);
    sandbox->timeout_s = timeout;
    sandbox->metadata = json_incref(metadata);
    sandbox->env = json_is_object(env) ? json_incref(env) : NULL;
    (void)kg_format(sandbox->owner, sizeof(sandbox->owner), "%s", row->parent);
    (void)kg_format(sandbox->name, sizeof(sandbox->name), "%s", row->name ? row->name : "");
    (void)kg_format(sandbox->launcher, sizeof(sandbox->launcher), "%s", launcher);
    kg_wish_load(&sandbox->wish, launcher, json_object_get(body, "wish"));
    json_t *exposed = json_object_get(body, "exposed");
    sandbox->exposed = json_is_object(exposed) ? json_incref(exposed) : NULL;
    sandbox->on_timeout = on_timeout == KG_ON_TIMEOUT_PAUSE || on_timeout == KG_ON_TIMEOUT_KILL
                              ? (kg_on_timeout_t)on_timeout
                              : KG_ON_TIMEOUT_AUTO;
    if (json_is_true(json_object_get(body, "paused"))) {
        sandbox->pause = KG_PAUSE_PAUSED;
    }
    sandbox->start.kind = kg_start_kind_of(json_string_value(json_object_get(body, "start")));
    sandbox->start.pool = json_is_true(json_object_get(body, "pool"));
    kg_ledger_load(sandbox);
    core->last_created_ns =
        core->last_created_ns > sandbox->created_ns ? core->last_created_ns : sandbox->created_ns;
    json_decref(body);
    return kg_store_context_each(core->store, sandbox->id, load_context, sandbox, NULL);
}

/* ---- runs ---- */

/* Files of logs have names of their own; what is in them tells whose they are. */
static bool is_log(const char *name)
{
    size_t len = strlen(name);
    return len > 4 && name[0] != '.' && strcmp(name + len - 4, ".log") == 0;
}

static int fill_run(kg_run_t *run, kg_sandbox_t *sandbox)
{
    const kg_run_meta_t *meta = kg_run_log_meta(run->log);
    kg_run_list_in(run, sandbox, meta->run);
    run->started = kg_run_log_started(run->log);
    run->is_command = meta->command[0] != '\0';
    (void)kg_format(run->context_id, sizeof(run->context_id), "%s", meta->context);
    run->key = meta->key[0] ? kg_run_key_new(meta->key, meta->code_hash) : NULL;
    if (!kg_run_log_finished(run->log) && !run->is_command && kg_kernel_awaits_verdict(run)) {
        return 0;
    }
    run->ended = true;
    kg_run_settle(run);
    if (!kg_run_log_finished(run->log)) {
        return kg_run_log_finish_recovered(run->log, true);
    }
    kg_run_flushed(run);
    return 0;
}

/* A log that moved to a file of its own (log_file.c) when the gateway was killed is in its slot
 * still. */
static bool is_known(kg_core_t *core, const kg_run_log_t *log)
{
    return kg_run_table_find(&core->runs, kg_run_log_id(log)) != NULL;
}

/* Lists the run whose log was opened, if that went well: rc is how it went. Takes the reference. */
static void take_run(kg_core_t *core, kg_run_t *run, int rc, const char *where)
{
    kg_sandbox_t *sandbox = NULL;
    bool known = rc == 0 && is_known(core, run->log);
    if (rc == 0 && !known) {
        HASH_FIND_STR(core->sandboxes, kg_run_log_meta(run->log)->sandbox, sandbox);
    }
    if (sandbox && fill_run(run, sandbox) == 0) {
        return;
    }
    if (rc < 0 && rc != -EBADMSG) {
        kg_log(KG_LOG_WARN, "recover.run", "file=%s error=%d", where, -rc);
    }
    if (run->log && !sandbox && (known || !core->skipped)) {
        core->orphan_logs += !known;
        kg_run_log_remove(run->log);
    }
    if (run->sandbox) {
        kg_run_unlist(run);
    }
    kg_run_unref_(&run);
}

static void load_run(kg_core_t *core, const char *name)
{
    kg_err_t err = {0};
    kg_run_t *run = kg_run_alloc(core);
    if (!run) {
        return;
    }
    const kg_run_log_opts_t opts = kg_run_log_opts(run);
    int rc = kg_run_log_recover(&opts, name, &run->log, &err);
    if (rc == -EBADMSG) {
        /* A spare that was never used, or one that was cut before its first record was whole. */
        (void)unlinkat(core->logs_fd, name, 0);
    }
    take_run(core, run, rc, name);
}

static void load_slot(void *user, kg_run_slot_t slot)
{
    kg_core_t *core = user;
    kg_err_t err = {0};
    kg_run_t *run = kg_run_alloc(core);
    if (!run) {
        kg_run_slot_leave(&slot);
        return;
    }
    const kg_run_log_opts_t opts = kg_run_log_opts(run);
    int rc = kg_run_log_recover_slot(&opts, slot, &run->log, &err);
    if (rc == -EBADMSG) {
        kg_run_slot_give(&slot, KG_RUN_SLOT);
    } else if (rc < 0) {
        kg_run_slot_leave(&slot);
    }
    take_run(core, run, rc, "a slot of a pack");
}

/* Files of their own come first: see is_known. */
static void load_file(kg_core_t *core, const char *name)
{
    if (is_log(name)) {
        load_run(core, name);
    } else if (kg_run_pack_named(name)) {
        int rc = kg_run_packs_open(core->packs, name);
        if (rc < 0) {
            kg_log(KG_LOG_WARN, "recover.runs", "file=%s error=%d", name, -rc);
        }
    }
}

static struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe): one thread
}

static int by_creation(const kg_run_t *a, const kg_run_t *b)
{
    uint64_t x = a->log ? kg_run_log_created_wall_ns(a->log) : 0;
    uint64_t y = b->log ? kg_run_log_created_wall_ns(b->log) : 0;
    return x < y ? -1 : x > y;
}

/* What the gateway before had under way. */
static int load_memo(void *user, const kg_store_row_t *row)
{
    kg_sandbox_t *sandbox = user;
    if (kg_uuid_valid(row->id)) {
        return 0; /* a Jupyter session: not this room's */
    }
    bool told = kg_id_valid("run", row->id) ? kg_command_recover(sandbox, row->id, row->body)
                                            : kg_upload_recover(sandbox, row->id, row->body);
    if (!told) {
        (void)kg_store_memo_delete(sandbox->core->store, row->id, NULL);
    }
    return 0;
}

int kg_core_recover(kg_core_t *core, kg_err_t *err)
{
    int rc = kg_store_sandbox_each(core->store, load_sandbox, core, err);
    if (rc) {
        return rc;
    }
    int fd = fcntl(core->logs_fd, F_DUPFD_CLOEXEC, 3);
    DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
    if (!dir) {
        if (fd >= 0) {
            (void)close(fd);
        }
        return kg_err_set(err, KG_ERR_CONFIG, "cannot list the runs: %s", strerrordesc_np(errno));
    }
    for (struct dirent *entry = next_entry(dir); entry; entry = next_entry(dir)) {
        load_file(core, entry->d_name);
    }
    (void)closedir(dir);
    kg_run_packs_each(core->packs, load_slot, core);
    if (core->orphan_logs > 0) {
        kg_log(KG_LOG_INFO, "recover.runs_of_none",
               "removed=%zu remark=\"logs of sandboxes that are no more\"", core->orphan_logs);
    }
    for (kg_sandbox_t *s = core->sandboxes; s; s = s->hh.next) {
        DL_SORT(s->runs, by_creation);
        kg_kernels_recovered(s);
        (void)kg_store_memo_each(core->store, s->id, load_memo, s, NULL);
    }
    return 0;
}
