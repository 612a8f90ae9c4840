/* gateway/api: the one table of operations, in the order of the contract. */
#include <string.h>

#include "gateway/api/fields.h"
#include "gateway/api/handlers.h"
#include "gateway/api/op.h"
#include "gateway/api/validate.h"
#include "gateway/base/mem.h"

#define SBX "/v1/sandboxes/{sandbox}"
#define CTX SBX "/contexts/{context}"
#define RUN SBX "/runs/{run}"
#define FS SBX "/fs"
#define UPLOAD FS "/uploads/{upload}"
#define PID SBX "/processes/{pid}"

#define NONE KG_RIGHT_NONE
#define USE KG_RIGHT_USE
#define BOX KG_RIGHT_SANDBOX
#define ADMIN KG_RIGHT_ADMIN

#define CREATES KG_OP_CREATES
#define READY KG_OP_NEEDS_READY
#define NO_BODY KG_OP_NO_BODY
#define PAGE (KG_OP_HTTP_ONLY | KG_OP_TEXT)
#define TUS (KG_OP_HTTP_ONLY | KG_OP_TUS)
#define RAW_IN KG_OP_RAW_IN
#define RAW_OUT KG_OP_RAW_OUT
#define EVENTS KG_OP_EVENTS

/* In the contract, but not in this build: what is missing stands where others name their answer. */
#define MISSING(name, method, path, what)                                                          \
    {                                                                                              \
        name, method, path, "", NULL, BOX, KG_OP_MISSING, what, kg_do_missing                      \
    }
#define SNAPSHOTS "Snapshots and forks need checkpointing, which this build does not have."

static const kg_op_t ops[] = {
    {"sandboxes.create", "POST", "/v1/sandboxes", "Make a sandbox", kg_fields_sandboxes_create, USE,
     CREATES | READY, "Sandbox", kg_do_sandboxes_create},
    {"sandboxes.list", "GET", "/v1/sandboxes", "List sandboxes", kg_fields_sandboxes_list, USE, 0,
     "SandboxList", kg_do_sandboxes_list},
    {"sandboxes.get", "GET", SBX, "Read a sandbox", kg_fields_sandbox, BOX, 0, "Sandbox",
     kg_do_sandboxes_get},
    {"sandboxes.update", "PATCH", SBX, "Change name, metadata, timeout or network",
     kg_fields_sandboxes_update, USE, 0, "Sandbox", kg_do_sandboxes_update},
    {"sandboxes.delete", "DELETE", SBX, "End a sandbox and all in it", kg_fields_sandbox, USE,
     NO_BODY, "", kg_do_sandboxes_delete},
    {"sandboxes.pause", "POST", SBX "/pause", "Freeze it with all its state",
     kg_fields_sandbox_post, USE, READY, "Sandbox", kg_do_sandboxes_pause},
    {"sandboxes.resume", "POST", SBX "/resume", "Wake it", kg_fields_sandbox_post, BOX, READY,
     "Sandbox", kg_do_sandboxes_resume},
    {"sandboxes.metrics", "GET", SBX "/metrics", "What it uses now", kg_fields_sandbox, BOX, 0,
     "SandboxMetrics", kg_do_sandboxes_metrics},
    {"sandboxes.usage", "GET", SBX "/usage", "How long it was active and paused", kg_fields_sandbox,
     BOX, 0, "SandboxUsage", kg_do_sandboxes_usage},
    {"sandboxes.network_log", "GET", SBX "/network/log", "Connections that were refused",
     kg_fields_network_log, BOX, 0, "NetworkLog", kg_do_sandboxes_network_log},
    {"usage", "GET", "/v1/usage", "Usage of all sandboxes, also of those that have ended",
     kg_fields_usage, USE, 0, "UsageList", kg_do_usage},
    MISSING("sandboxes.fork", "POST", SBX "/fork", SNAPSHOTS),
    MISSING("snapshots.create", "POST", SBX "/snapshots", SNAPSHOTS),
    MISSING("snapshots.list", "GET", "/v1/snapshots", SNAPSHOTS),
    MISSING("snapshots.get", "GET", "/v1/snapshots/{id}", SNAPSHOTS),
    MISSING("snapshots.delete", "DELETE", "/v1/snapshots/{id}", SNAPSHOTS),
    MISSING("sandboxes.restore", "POST", SBX "/restore", SNAPSHOTS),

    {"contexts.list", "GET", SBX "/contexts", "List contexts", kg_fields_sandbox, BOX, 0,
     "ContextList", kg_do_contexts_list},
    {"contexts.create", "POST", SBX "/contexts", "Start a kernel of its own",
     kg_fields_contexts_create, USE, CREATES | READY, "Context", kg_do_contexts_create},
    {"contexts.find", "GET", "/v1/contexts/{context}", "Read a context without naming its sandbox",
     kg_fields_context_any, BOX, 0, "Context", kg_do_contexts_get},
    {"contexts.get", "GET", CTX, "Read a context", kg_fields_context, BOX, 0, "Context",
     kg_do_contexts_get},
    {"contexts.update", "PATCH", CTX, "Change its name", kg_fields_contexts_update, BOX, 0,
     "Context", kg_do_contexts_update},
    {"contexts.delete", "DELETE", CTX, "End a context", kg_fields_context, USE, NO_BODY, "",
     kg_do_contexts_delete},
    {"contexts.reset", "POST", CTX "/reset", "Fresh kernel under the same id",
     kg_fields_context_post, USE, READY, "Context", kg_do_contexts_reset},
    {"contexts.interrupt", "POST", CTX "/interrupt", "Stop the running code, keep the state",
     kg_fields_context_post, BOX, 0, "Interrupted", kg_do_contexts_interrupt},
    MISSING("contexts.fork", "POST", CTX "/fork", SNAPSHOTS),
    {"contexts.complete", "POST", CTX "/complete", "Completions", kg_fields_contexts_complete, BOX,
     READY, "Completions", kg_do_contexts_complete},
    {"contexts.inspect", "POST", CTX "/inspect", "Documentation of a name",
     kg_fields_contexts_inspect, BOX, READY, "Inspection", kg_do_contexts_inspect},
    {"contexts.variables", "GET", CTX "/variables", "Variables with type, shape and preview",
     kg_fields_contexts_variables, BOX, READY, "VariableList", kg_do_contexts_variables},
    {"contexts.connect", "POST", CTX "/connect",
     "Make a connection file for Jupyter clients that speak ZeroMQ", kg_fields_contexts_connect,
     BOX, CREATES | READY | KG_OP_SECRET, "NewConnection", kg_do_contexts_connect},
    {"connections.list", "GET", CTX "/connections", "List connection files", kg_fields_context, BOX,
     0, "ConnectionList", kg_do_connections_list},
    {"connections.delete", "DELETE", CTX "/connections/{connection}", "Revoke a connection file",
     kg_fields_connection, BOX, NO_BODY, "", kg_do_connections_delete},

    {"run_code", "POST", SBX "/run_code", "Run code", kg_fields_run_code, BOX,
     KG_OP_STREAMS | KG_OP_OWN_KEY | READY, "Execution", kg_do_run_code},
    {"runs.list", "GET", SBX "/runs", "List runs, without outputs", kg_fields_runs_list, BOX, 0,
     "ExecutionList", kg_do_runs_list},
    {"runs.get", "GET", RUN, "Read a run", kg_fields_run, BOX, 0, "Execution", kg_do_runs_get},
    {"runs.attach", "GET", RUN "/events", "Follow the events of a run", kg_fields_runs_attach, BOX,
     KG_OP_STREAMS, "Event", kg_do_runs_attach},
    {"runs.input", "POST", RUN "/input", "Answer input()", kg_fields_runs_input, BOX, NO_BODY, "",
     kg_do_runs_input},
    {"runs.interrupt", "DELETE", RUN, "Interrupt a run", kg_fields_run, BOX, NO_BODY, "",
     kg_do_runs_interrupt},

    {"exec", "POST", SBX "/exec", "Run a command", kg_fields_exec, BOX,
     KG_OP_STREAMS | KG_OP_OWN_KEY | READY, "CommandResult", kg_do_exec},
    {"processes.list", "GET", SBX "/processes", "List commands that run, and background ones",
     kg_fields_sandbox, BOX, 0, "ProcessList", kg_do_processes_list},
    {"processes.get", "GET", PID, "Read a process", kg_fields_process, BOX, 0, "Process",
     kg_do_processes_get},
    {"processes.kill", "DELETE", PID, "Kill a process and all that came of it", kg_fields_process,
     BOX, NO_BODY, "", kg_do_processes_kill},
    {"processes.input", "POST", PID "/input", "Write to its stdin or terminal",
     kg_fields_processes_input, BOX, NO_BODY, "", kg_do_processes_input},
    {"processes.signal", "POST", PID "/signal", "Send it a signal", kg_fields_processes_signal, BOX,
     NO_BODY, "", kg_do_processes_signal},
    {"processes.resize", "POST", PID "/resize", "Resize its terminal", kg_fields_processes_resize,
     BOX, NO_BODY, "", kg_do_processes_resize},
    {"processes.attach", "GET", PID "/events", "Follow the output of a process",
     kg_fields_processes_attach, BOX, KG_OP_STREAMS, "Event", kg_do_processes_attach},
    {"fs.read", "GET", FS "/file", "Read a file", kg_fields_fs_read, BOX, RAW_OUT, "FilePart",
     kg_do_fs_read},
    {"fs.write", "PUT", FS "/file", "Write a whole file: it is there when all of it has come",
     kg_fields_fs_write, BOX, RAW_IN | NO_BODY | READY, "FileWritten", kg_do_fs_write},
    {"fs.remove", "DELETE", FS "/file", "Remove a file or a directory", kg_fields_fs_remove, BOX,
     NO_BODY | READY, "", kg_do_fs_remove},
    {"fs.upload", "POST", FS "/uploads", "Begin a resumable upload (tus 1.0)", kg_fields_fs_upload,
     BOX, TUS | RAW_IN | CREATES | READY, "", kg_do_fs_upload},
    {"fs.upload_state", "GET", UPLOAD, "Where an upload is", kg_fields_fs_upload_one, BOX, TUS,
     "Upload", kg_do_fs_upload_state},
    {"fs.upload_append", "PATCH", UPLOAD, "Bytes of an upload", kg_fields_fs_upload_append, BOX,
     TUS | RAW_IN | NO_BODY | READY, "", kg_do_fs_upload_append},
    {"fs.upload_cancel", "DELETE", UPLOAD, "End an upload; what came of it goes",
     kg_fields_fs_upload_one, BOX, TUS | NO_BODY, "", kg_do_fs_upload_cancel},
    {"fs.list", "GET", FS "/dir", "List a directory", kg_fields_fs_list, BOX, 0, "EntryList",
     kg_do_fs_list},
    {"fs.mkdir", "POST", FS "/dir", "Make a directory", kg_fields_fs_mkdir, BOX, CREATES | READY,
     "Entry", kg_do_fs_mkdir},
    {"fs.move", "POST", FS "/move", "Move or rename", kg_fields_fs_move, BOX, READY, "Entry",
     kg_do_fs_move},
    {"fs.stat", "GET", FS "/stat", "What is at a path", kg_fields_fs_stat, BOX, 0, "Entry",
     kg_do_fs_stat},
    {"fs.watch", "GET", FS "/watch", "Follow changes", kg_fields_fs_watch, BOX, EVENTS | READY,
     "FileEvent", kg_do_fs_watch},
    {"expose", "POST", SBX "/expose", "Make a port reachable from outside", kg_fields_expose, USE,
     0, "Exposed", kg_do_expose},
    {"unexpose", "DELETE", SBX "/expose/{port}", "Take a port back", kg_fields_unexpose, USE,
     NO_BODY, "", kg_do_unexpose},

    {"templates.list", "GET", "/v1/templates", "List templates", NULL, USE, 0, "TemplateList",
     kg_do_templates_list},
    {"templates.get", "GET", "/v1/templates/{template}", "Read a template", kg_fields_template, USE,
     0, "Template", kg_do_templates_get},
    {"tools.list", "GET", "/v1/tools", "Definitions for the `tools` field of a model's API",
     kg_fields_tools_list, USE, 0, "ToolList", kg_do_tools_list},
    {"tools.run_code", "POST", "/v1/tools/run_code",
     "Run a model's tool call, answer the block to send back", kg_fields_tools_run_code,
     KG_RIGHT_HANDLER, KG_OP_TEXT_IN | KG_OP_OWN_KEY | READY, "ToolResult", kg_do_tools_run_code},

    {"keys.list", "GET", "/v1/keys", "List API keys", NULL, ADMIN, 0, "KeyList", kg_do_keys_list},
    {"keys.create", "POST", "/v1/keys", "Make an API key; the answer alone shows it in plain",
     kg_fields_keys_create, ADMIN, CREATES | KG_OP_SECRET, "NewKey", kg_do_keys_create},
    {"keys.delete", "DELETE", "/v1/keys/{id}", "End an API key", kg_fields_keys_delete, ADMIN,
     NO_BODY, "", kg_do_keys_delete},

    {"health", "GET", "/healthz", "Alive", NULL, NONE, KG_OP_HTTP_ONLY, "Health", kg_do_health},
    {"ready", "GET", "/readyz", "Ready to take requests", NULL, NONE, KG_OP_HTTP_ONLY, "Health",
     kg_do_ready},
    {"metrics", "GET", "/metrics", "Prometheus metrics", NULL, ADMIN, PAGE, "text/plain",
     kg_do_metrics},
    {"openapi", "GET", "/v1/openapi.yaml", "This description", NULL, NONE, PAGE, "application/yaml",
     kg_do_openapi},
    {"docs", "GET", "/docs", "The reference of operations and objects as a page", NULL, NONE, PAGE,
     "text/html", kg_do_docs},
};

const kg_op_t *kg_ops(size_t *ret_count)
{
    *ret_count = KG_ARRAY_LEN(ops);
    return ops;
}

static const kg_op_t *by_name(const char *name)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(ops); i++) {
        if (strcmp(ops[i].name, name) == 0) {
            return &ops[i];
        }
    }
    return NULL;
}

const kg_op_t *kg_op_find(const char *name)
{
    const kg_op_t *op = by_name(name);
    return op && !(op->flags & KG_OP_HTTP_ONLY) ? op : NULL;
}

static const char *nearest(const char *name)
{
    unsigned best = 4;
    const char *found = NULL;
    for (size_t i = 0; i < KG_ARRAY_LEN(ops); i++) {
        unsigned d = kg_edit_distance(ops[i].name, name, 3);
        if (d < best && d < strlen(ops[i].name) / 2 && !(ops[i].flags & KG_OP_HTTP_ONLY)) {
            best = d;
            found = ops[i].name;
        }
    }
    return found;
}

int kg_op_unknown(const char *name, kg_err_t *err)
{
    const kg_op_t *op = by_name(name);
    if (op) {
        int rc = kg_err_set(err, KG_ERR_NOT_FOUND, "'%s' is an operation of HTTP alone.", name);
        kg_err_hint(err, "%s %s", op->method, op->path);
        kg_err_pointer(err, "/op");
        return rc;
    }
    const char *near = nearest(name);
    int rc = kg_err_set(err, KG_ERR_NOT_FOUND, "No operation '%.60s'.", name);
    kg_err_hint(err, near ? "Did you mean '%s'?" : "GET /v1/openapi.yaml lists them.%s",
                near ? near : "");
    kg_err_pointer(err, "/op");
    return rc;
}
