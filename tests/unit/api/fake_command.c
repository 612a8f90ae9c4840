/* Commands of the fake core: one process, pid 12, whose log is that of the fake run. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "fake_core.h"
#include "gateway/context/command.h"
#include "gateway/context/expose.h"
#include "gateway/context/metrics.h"

struct kg_command {
    kg_run_t *run;
    kg_sandbox_t *sandbox;
    bool running, background;
    fake_command_t told;
};

static kg_command_t command;

fake_command_t *fake_command(void)
{
    return &command.told;
}

static void keep(char *to, size_t cap, kg_slice_t from)
{
    (void)snprintf(to, cap, "%.*s", (int)(from.len < cap ? from.len : cap - 1),
                   from.data ? from.data : "");
}

int kg_command_new(kg_sandbox_t *sandbox,
                   const kg_command_opts_t *opts,
                   kg_command_fn *done,
                   void *user,
                   kg_err_t *err)
{
    kg_core_t *core = kg_sandbox_core(sandbox);
    const char *line = json_string_value(opts->cmd);
    if (line && strcmp(line, "full") == 0) {
        kg_err_set(err, KG_ERR_QUOTA_EXCEEDED, "Too many.");
        return -EDQUOT;
    }
    command.run = fake_run(core);
    command.sandbox = sandbox;
    command.background = opts->background;
    command.told = (fake_command_t){.opts = *opts};
    command.running = true;
    keep(command.told.cmd, sizeof command.told.cmd,
         kg_slice_cstr(line ? line : json_string_value(json_array_get(opts->cmd, 0))));
    keep(command.told.input, sizeof command.told.input, opts->input);
    done(user, command.run, NULL);
    return 0;
}

kg_command_t *kg_command_find(kg_sandbox_t *sandbox, int64_t pid, kg_err_t *err)
{
    if (command.running && command.sandbox == sandbox && pid == 12) {
        return &command;
    }
    kg_err_set(err, KG_ERR_PROCESS_NOT_FOUND, "No process %lld.", (long long)pid);
    return NULL;
}

kg_command_t *kg_command_of(kg_run_t *run)
{
    return command.run == run ? &command : NULL;
}

kg_run_t *kg_command_run(const kg_command_t *c)
{
    return c->run;
}

int64_t kg_command_pid(const kg_command_t *c)
{
    (void)c;
    return 12;
}

json_t *kg_command_json(const kg_command_t *c)
{
    return json_pack("{s:i, s:s, s:b}", "pid", 12, "state", "running", "background", c->background);
}

json_t *kg_command_list(kg_sandbox_t *sandbox)
{
    bool listed = command.running && command.sandbox == sandbox;
    json_t *items = json_array();
    if (listed) {
        json_array_append_new(items, kg_command_json(&command));
    }
    return json_pack("{s:o, s:n}", "items", items, "next");
}

int kg_command_input(kg_command_t *c, kg_slice_t bytes, bool eof, kg_err_t *err)
{
    if (c->told.eof) {
        kg_err_set(err, KG_ERR_CONFLICT, "No input.");
        return -EEXIST;
    }
    keep(c->told.input, sizeof c->told.input, bytes);
    c->told.eof = eof;
    return 0;
}

int kg_command_signal(kg_command_t *c, const char *name, kg_err_t *err)
{
    (void)err;
    keep(c->told.signal, sizeof c->told.signal, kg_slice_cstr(name));
    return 0;
}

int kg_command_resize(kg_command_t *c, unsigned columns, unsigned rows, kg_err_t *err)
{
    (void)err;
    c->told.columns = columns;
    c->told.rows = rows;
    return 0;
}

int kg_command_delete(kg_command_t *c, kg_done_fn *done, void *user, kg_err_t *err)
{
    (void)err;
    c->running = false;
    done(user, NULL);
    return 0;
}

/* ---- the whole of the sandbox ---- */

int kg_sandbox_pause(kg_sandbox_t *sandbox, kg_sandbox_fn *done, void *user, kg_err_t *err)
{
    if (command.told.eof) { /* as good a sign as any */
        kg_err_set(err, KG_ERR_NOT_SUPPORTED, "No freezer.");
        return -ENOSYS;
    }
    done(user, sandbox, NULL);
    return 0;
}

int kg_sandbox_resume(kg_sandbox_t *sandbox, kg_sandbox_fn *done, void *user, kg_err_t *err)
{
    (void)err;
    done(user, sandbox, NULL);
    return 0;
}

int kg_sandbox_set_network(
    kg_sandbox_t *sandbox, const json_t *network, kg_sandbox_fn *done, void *user, kg_err_t *err)
{
    if (json_is_string(network) && strcmp(json_string_value(network), "none") == 0) {
        kg_err_set(err, KG_ERR_NOT_SUPPORTED, "No network.");
        return -ENOSYS;
    }
    done(user, sandbox, NULL);
    return 0;
}

int kg_sandbox_metrics(kg_sandbox_t *sandbox, kg_json_fn *done, void *user, kg_err_t *err)
{
    (void)sandbox;
    (void)err;
    done(user, json_pack("{s:i}", "memory_bytes", 7), NULL);
    return 0;
}

int kg_sandbox_network_log(
    kg_sandbox_t *sandbox, uint64_t cursor, kg_json_fn *done, void *user, kg_err_t *err)
{
    (void)sandbox;
    (void)err;
    done(user, json_pack("{s:[], s:I}", "items", "cursor", (json_int_t)cursor), NULL);
    return 0;
}

json_t *kg_sandbox_usage_json(kg_sandbox_t *sandbox)
{
    (void)sandbox;
    return json_pack("{s:f}", "active_seconds", 1.5);
}

json_t *kg_core_usage_json(
    kg_core_t *core, const char *owner, unsigned limit, const char *after, kg_err_t *err)
{
    (void)core;
    if (after) {
        kg_err_set(err, KG_ERR_INVALID_REQUEST, "No page %s.", after);
        return NULL;
    }
    return json_pack("{s:s, s:i}", "owner", owner, "limit", (int)limit);
}

/* ---- ports: 8000 can be exposed ---- */

json_t *
kg_sandbox_expose(kg_sandbox_t *sandbox, uint16_t port, kg_expose_token_t token, kg_err_t *err)
{
    (void)sandbox;
    if (port != 8000) {
        kg_err_set(err, KG_ERR_QUOTA_EXCEEDED, "No more ports.");
        return NULL;
    }
    return json_pack("{s:i, s:s?}", "port", port, "token", token ? "secret" : NULL);
}

int kg_sandbox_unexpose(kg_sandbox_t *sandbox, uint16_t port, kg_err_t *err)
{
    (void)sandbox;
    if (port != 8000) {
        kg_err_set(err, KG_ERR_NOT_FOUND, "Port %u is not exposed.", port);
        return -ENOENT;
    }
    return 0;
}
