/* gateway/api: the objects of answers, for OpenAPI and the reference. One row a member, in a small
 * notation: string integer number boolean object any time    types; time is RFC 3339 in UTC Name
 * [Name] {string}                              another schema, a list of it, an object of strings
 * a|b|c =word                                       one of these words, exactly this word a
 * trailing ? allows null, a trailing ~ means that the member may be absent. */
#include "gateway/api/schemas.h"

#include <string.h>

#include "gateway/base/mem.h"

static const kg_schema_row_t rows[] = {
    {"Sandbox", "id", "string", "sbx-…"},
    {NULL, "name", "string?", "Unique per owner"},
    {NULL, "template", "string", ""},
    {NULL, "state", "starting|running|paused|stopping", ""},
    {NULL, "created_at", "time", ""},
    {NULL, "last_active_at", "time", ""},
    {NULL, "expires_at", "time?", "When it ends if it stays idle"},
    {NULL, "timeout", "integer", "Idle seconds; 0 = never"},
    {NULL, "on_timeout", "pause|kill", ""},
    {NULL, "metadata", "{string}", ""},
    {NULL, "network", "SandboxNetwork", "What it got"},
    {NULL, "limits", "SandboxLimits", "What it got"},
    {NULL, "isolation", "SandboxIsolation", "null members: not known before it is up again"},
    {NULL, "checkpointable", "boolean", ""},
    {NULL, "start", "string",
     "How its first kernel was started: spawn or zygote, or by a warm pool: pool (spawned), "
     "pool-zygote (forked)"},
    {NULL, "default_context", "string?",
     "Id of the context that run_code takes when none is named"},
    {NULL, "node", "string", ""},
    {NULL, "memory_stays", "string?",
     "Paused: why its memory is not pressed out to swap or zram; else null"},
    {"SandboxList", "items", "[Sandbox]", ""},
    {NULL, "next", "string?", "Give it as `after` for the next page"},

    {"Context", "id", "string", "A UUID, also its Jupyter kernel id"},
    {NULL, "sandbox", "string", ""},
    {NULL, "name", "string?", "Unique in the sandbox"},
    {NULL, "language", "string", ""},
    {NULL, "kernel", "string", "Name of the kernelspec"},
    {NULL, "state", "starting|idle|busy|restarting|dead", ""},
    {NULL, "execution_count", "integer", ""},
    {NULL, "cwd", "string?", ""},
    {NULL, "queue", "integer", "Runs that wait"},
    {NULL, "incarnation", "integer", "Raised by each fresh kernel"},
    {NULL, "last_exit", "LastExit?", "How the kernel before ended"},
    {NULL, "created_at", "time", ""},
    {NULL, "default", "boolean", "The one that run_code takes for its language"},
    {"LastExit", "code", "integer?", ""},
    {NULL, "signal", "integer?", ""},
    {NULL, "oom", "boolean", "It was killed for want of memory"},
    {NULL, "at", "time", ""},
    {"ContextList", "items", "[Context]", ""},
    {NULL, "next", "string?", ""},
    {"Connection", "id", "string", "con-…"},
    {NULL, "sandbox", "string", ""},
    {NULL, "context", "string", ""},
    {NULL, "transport", "ipc|tcp", ""},
    {NULL, "file", "string", "Path of the connection file on the gateway's machine"},
    {NULL, "created_at", "time", ""},
    {NULL, "clients", "integer", "Identities that have sent something"},
    {NULL, "dropped", "integer", "Messages that were forged, malformed or repeated"},
    {NULL, "lost", "integer", "Messages that a client did not read in time"},
    {"ConnectionList", "items", "[Connection]", ""},
    {NULL, "next", "string?", ""},
    {"NewConnection", "id", "string", "con-…"},
    {NULL, "sandbox", "string", ""},
    {NULL, "context", "string", ""},
    {NULL, "transport", "ipc|tcp", ""},
    {NULL, "file", "string", ""},
    {NULL, "created_at", "time", ""},
    {NULL, "clients", "integer", ""},
    {NULL, "dropped", "integer", ""},
    {NULL, "lost", "integer", ""},
    {NULL, "connection", "ConnectionInfo", "What the file holds"},
    {"ConnectionInfo", "shell_port", "integer", "With ipc the socket is at IP-PORT"},
    {NULL, "iopub_port", "integer", ""},
    {NULL, "stdin_port", "integer", ""},
    {NULL, "control_port", "integer", ""},
    {NULL, "hb_port", "integer", ""},
    {NULL, "ip", "string", ""},
    {NULL, "key", "string", "Shown here alone"},
    {NULL, "transport", "ipc|tcp", ""},
    {NULL, "signature_scheme", "=hmac-sha256", ""},
    {NULL, "kernel_name", "string", ""},
    {"Exposed", "port", "integer", ""},
    {NULL, "url", "string", "The host form where the operator has a domain, else the path form"},
    {NULL, "path_url", "string", "On the proxy's own listener; all sandboxes share its origin"},
    {NULL, "host_url", "string", "An origin of its own"},
    {NULL, "token", "string?", "To be shown as ?sandal_token= or X-Sandal-Token; null: none"},
    {"Interrupted", "id", "string", "The context's, with all its members"},
    {NULL, "interrupted", "boolean", "false: there was nothing to interrupt"},
    {"Completions", "matches", "[string]", ""},
    {NULL, "start", "integer", "In code points"},
    {NULL, "end", "integer", "In code points"},
    {"Inspection", "found", "boolean", ""},
    {NULL, "formats", "object", "MIME types and their values"},
    {"Variable", "name", "string", ""},
    {NULL, "type", "string", ""},
    {NULL, "shape", "any", ""},
    {NULL, "length", "integer?", ""},
    {NULL, "bytes", "integer?", ""},
    {NULL, "preview", "string?", ""},
    {"VariableList", "items", "[Variable]", ""},
    {NULL, "next", "string?", ""},

    {"Entry", "name", "string", "Bytes that are not UTF-8 are told as U+FFFD"},
    {NULL, "name_base64", "string~", "The exact name, where it is not UTF-8"},
    {NULL, "path", "string", "Absolute"},
    {NULL, "path_base64", "string~", "The exact path, where it is not UTF-8"},
    {NULL, "type", "file|dir|symlink|other", ""},
    {NULL, "size", "integer", "Bytes"},
    {NULL, "mode", "string", "Permission bits in octal: 0644"},
    {NULL, "uid", "integer", "As seen inside"},
    {NULL, "gid", "integer", "As seen inside"},
    {NULL, "modified_at", "time?", ""},
    {NULL, "target", "string?", "Of a symlink"},
    {NULL, "target_base64", "string~", ""},
    {"EntryList", "items", "[Entry]", "In the order of their paths, as bytes"},
    {NULL, "next", "string?", "Give it as `after` for the next page"},
    {"FilePart", "encoding", "=base64", ""},
    {NULL, "offset", "integer", ""},
    {NULL, "size", "integer", "Of the whole file; 0 for files that do not tell"},
    {NULL, "eof", "boolean", "Nothing comes after this part"},
    {NULL, "data", "string", ""},
    {"FileWritten", "created", "boolean", "false: it took the place of another"},
    {NULL, "size", "integer", "Bytes"},
    {"FileEvent", "type", "created|modified|deleted|moved|overflow|watching",
     "overflow: some were left out, list anew; watching: first frame of a WebSocket's watch"},
    {NULL, "path", "string~", ""},
    {NULL, "path_base64", "string~", ""},
    {NULL, "from", "string~", "Of moved: the path before"},
    {NULL, "from_base64", "string~", ""},
    {"Upload", "id", "string", ""},
    {NULL, "offset", "integer", "Bytes that have come"},
    {NULL, "length", "integer?", "null: not told yet"},
    {NULL, "done", "boolean", "The file is in its place"},

    {"Result", "type", "string", "The richest format"},
    {NULL, "data", "any", "Its value: base64 for binary types, JSON for JSON types, else text"},
    {NULL, "text", "string", "What a person would read"},
    {NULL, "formats", "object", "The whole bundle"},
    {NULL, "metadata", "object", ""},
    {NULL, "main", "boolean", "The value of the last expression"},
    {NULL, "display_id", "string?", ""},
    {"RunError", "name", "string", ""},
    {NULL, "message", "string", ""},
    {NULL, "traceback", "[string]", ""},
    {NULL, "started", "boolean", "The code began to run"},
    {NULL, "state", "kept|lost", "The context's variables"},
    {"Usage", "queued_ms", "number", ""},
    {NULL, "wall_ms", "number", ""},
    {NULL, "cpu_ms", "number?", ""},
    {NULL, "peak_memory", "integer?", "Bytes"},
    {"Execution", "run", "string", "run-…"},
    {NULL, "context", "string", ""},
    {NULL, "execution_count", "integer?", ""},
    {NULL, "status",
     "ok|error|timeout|interrupted|aborted|oom|killed|exited|output_limit|gateway_restart|queued|"
     "running|waiting",
     "The last three: it has not ended"},
    {NULL, "text", "string~", "The value of the last expression, or what was printed"},
    {NULL, "output", "string~", "The whole transcript"},
    {NULL, "results", "[Result]~", ""},
    {NULL, "stdout", "string~", ""},
    {NULL, "stderr", "string~", ""},
    {NULL, "error", "RunError?~", ""},
    {NULL, "truncated", "object?~", "Bytes cut, by kind; reason: why the log could not be written"},
    {NULL, "late", "boolean~", "Output came after the end"},
    {NULL, "usage", "Usage?~", ""},
    {NULL, "expired", "boolean~", "Its outputs are no longer kept"},
    {"ExecutionList", "items", "[Execution]", "Without outputs"},
    {NULL, "next", "string?", ""},

    {"QueuedEvent", "type", "=queued", ""},
    {NULL, "run", "string", ""},
    {NULL, "seq", "integer", ""},
    {NULL, "position", "integer", ""},
    {"StartedEvent", "type", "=started", ""},
    {NULL, "run", "string", ""},
    {NULL, "seq", "integer", ""},
    {NULL, "context", "string~", "Of a run of code"},
    {NULL, "execution_count", "integer?~", "Of a run of code"},
    {NULL, "pid", "integer~", "Of a command"},
    {"TextEvent", "type", "stdout|stderr", ""},
    {NULL, "run", "string", ""},
    {NULL, "seq", "integer", ""},
    {NULL, "text", "string", ""},
    {NULL, "late", "boolean~", ""},
    {NULL, "tail", "boolean~", "The end of a stream that was cut"},
    {"DisplayEvent", "type", "=display", ""},
    {NULL, "run", "string", ""},
    {NULL, "seq", "integer", ""},
    {NULL, "result", "Result", ""},
    {"UpdateEvent", "type", "=update", ""},
    {NULL, "run", "string", ""},
    {NULL, "seq", "integer", ""},
    {NULL, "display_id", "string", ""},
    {NULL, "result", "Result", ""},
    {"ClearEvent", "type", "=clear", ""},
    {NULL, "run", "string", ""},
    {NULL, "seq", "integer", ""},
    {NULL, "wait", "boolean", ""},
    {"InputEvent", "type", "=input", "The run waits for an answer"},
    {NULL, "run", "string", ""},
    {NULL, "seq", "integer", ""},
    {NULL, "prompt", "string", ""},
    {NULL, "password", "boolean", ""},
    {"ErrorEvent", "type", "=error", ""},
    {NULL, "run", "string", ""},
    {NULL, "seq", "integer", ""},
    {NULL, "error", "RunError", ""},
    {"TruncatedEvent", "type", "=truncated", ""},
    {NULL, "run", "string", ""},
    {NULL, "seq", "integer", ""},
    {NULL, "what", "string", ""},
    {"ResultEvent", "type", "=result",
     "All members of the Execution; the last one but for late output"},
    {NULL, "run", "string", ""},
    {NULL, "seq", "integer", ""},
    {NULL, "status", "string", ""},

    {"SandboxLimits", "memory_mib", "integer?", "null: it has no such limit"},
    {NULL, "cpus", "number?", ""},
    {NULL, "pids", "integer?", ""},
    {NULL, "disk_mib", "integer?", ""},
    {NULL, "open_files", "integer?", "Of each process"},
    {NULL, "reason", "string~", "Why the defaults are not held here"},
    {"SandboxNetwork", "mode", "none|egress|host", ""},
    {NULL, "allow", "any~", "Rules as they were asked for"},
    {NULL, "deny", "any~", ""},
    {NULL, "default", "string~", "deny or public: what no rule names"},
    {NULL, "reason", "string~", "Why it is not what one would expect"},
    {"SandboxIsolation", "kind", "string", "none, process, bubblewrap, runc, namespace, gvisor"},
    {NULL, "userns", "string?", "own, host"},
    {NULL, "seccomp", "string?", "filter, none"},
    {NULL, "cgroup", "string?", "v1, v2, mixed, none"},
    {NULL, "network", "string?", "none, egress, host"},
    {NULL, "disk", "string?", "What holds its disk limit; none: nothing does"},
    {NULL, "reason", "string~", "What this kind does not hold on this host"},
    {"SandboxMetrics", "sandbox", "string", ""},
    {NULL, "at", "time", ""},
    {NULL, "cpu_seconds", "number?", "null, here and below: not known"},
    {NULL, "memory_bytes", "integer?", ""},
    {NULL, "memory_peak_bytes", "integer?", ""},
    {NULL, "disk_bytes", "integer?", ""},
    {NULL, "pids", "integer?", "Processes and threads"},
    {NULL, "oom_kills", "integer?", "Processes that were killed for want of memory"},
    {NULL, "limits", "SandboxLimits", ""},
    {"SandboxUsage", "sandbox", "string", ""},
    {NULL, "template", "string", ""},
    {NULL, "created_at", "time", ""},
    {NULL, "ended_at", "time?", ""},
    {NULL, "active_seconds", "number", "Up and not paused, in use or not"},
    {NULL, "paused_seconds", "number", ""},
    {"UsageList", "active_seconds", "number", "Of all, on other pages too"},
    {NULL, "paused_seconds", "number", ""},
    {NULL, "items", "[SandboxUsage]", "Oldest first"},
    {NULL, "next", "string?", ""},
    {"DeniedConnection", "at", "time", ""},
    {NULL, "address", "string?", "null: the name was refused"},
    {NULL, "domain", "string?", "As it was asked for, where it is known"},
    {NULL, "protocol", "string?", "tcp, udp, icmp"},
    {NULL, "port", "integer", ""},
    {NULL, "reason", "rule|default|none|not_public|host|protocol|dns|connections",
     "What refused it"},
    {NULL, "rule", "any",
     "The rule in `network` that did; null: none, or it is not there any more"},
    {"NetworkLog", "items", "[DeniedConnection]", "Oldest first"},
    {NULL, "cursor", "integer", "Give it to see what comes after"},
    {NULL, "lost", "integer", "Older ones that are no longer kept"},

    {"Process", "pid", "integer?", "As the sandbox sees it; null: it could not be executed"},
    {NULL, "cmd", "any", "As it was asked for"},
    {NULL, "cwd", "string", ""},
    {NULL, "user", "user|root", ""},
    {NULL, "state", "running|exited", ""},
    {NULL, "status", "ok|error|timeout|oom|killed|output_limit|gateway_restart|running",
     "gateway_restart: the gateway was stopped while it ran, which ended it"},
    {NULL, "background", "boolean", ""},
    {NULL, "pty", "boolean", ""},
    {NULL, "run", "string", "run-…, of its log"},
    {NULL, "started_at", "time", ""},
    {NULL, "ended_at", "time?", ""},
    {NULL, "exit_code", "integer?", ""},
    {NULL, "signal", "string?", "SIGKILL and the like"},
    {NULL, "timed_out", "boolean", ""},
    {"ProcessList", "items", "[Process]", ""},
    {NULL, "next", "string?", ""},
    {"CommandUsage", "cpu_ms", "number?", ""},
    {NULL, "peak_memory", "integer?", "Bytes"},
    {"CommandResult", "run", "string", "run-…, of its log"},
    {NULL, "status", "ok|error|timeout|oom|killed|output_limit|gateway_restart|running", ""},
    {NULL, "exit_code", "integer?~", "null: it was ended by a signal"},
    {NULL, "signal", "string?~", "SIGKILL and the like"},
    {NULL, "timed_out", "boolean~", ""},
    {NULL, "stdout", "string~", ""},
    {NULL, "stderr", "string~", ""},
    {NULL, "truncated", "object?~", "Bytes cut, by kind; reason: why the log could not be written"},
    {NULL, "duration_ms", "integer~", ""},
    {NULL, "encoding", "=base64~", "How stdout and stderr are told, when not as text"},
    {NULL, "message", "string~", "A remark on its end"},
    {NULL, "late", "boolean~", "Output came after the end, from what it left behind"},
    {NULL, "usage", "CommandUsage~", ""},
    {NULL, "expired", "boolean~", "Its outputs are no longer kept"},

    {"Template", "name", "string", ""},
    {NULL, "description", "string", ""},
    {NULL, "main_language", "string", ""},
    {NULL, "languages", "[TemplateLanguage]", ""},
    {NULL, "available", "boolean", "Its kernels can be started"},
    {NULL, "reason", "string?", "Why not"},
    {NULL, "limits", "object", "Defaults of its sandboxes"},
    {NULL, "start", "string", "How its kernels are started"},
    {"TemplateLanguage", "name", "string", ""},
    {NULL, "kernel", "string", ""},
    {NULL, "display_name", "string", ""},
    {NULL, "aliases", "[string]", ""},
    {"TemplateList", "items", "[Template]", ""},
    {NULL, "next", "string?", ""},
    {"Key", "id", "string", ""},
    {NULL, "owner", "string", ""},
    {NULL, "name", "string", ""},
    {NULL, "scopes", "[string]", ""},
    {NULL, "created_at", "time", ""},
    {NULL, "last_used_at", "time?", "To the minute"},
    {NULL, "expires_at", "time?", ""},
    {"NewKey", "id", "string", "With all members of a Key"},
    {NULL, "key", "string", "In plain; shown here only"},
    {"KeyList", "items", "[Key]", ""},
    {NULL, "next", "string?", ""},
    {"Health", "status", "string", ""},
    {NULL, "version", "string", ""},
    {"ErrorBody", "code", "string", "Stable; docs/errors.md lists them"},
    {NULL, "message", "string", ""},
    {NULL, "hint", "string~", ""},
    {NULL, "pointer", "string~", "JSON pointer to the field at fault"},
    {"Error", "error", "ErrorBody", ""},
};

static const char *const events[] = {"QueuedEvent",    "StartedEvent", "TextEvent",  "DisplayEvent",
                                     "UpdateEvent",    "ClearEvent",   "InputEvent", "ErrorEvent",
                                     "TruncatedEvent", "ResultEvent"};

const kg_schema_row_t *kg_schema_rows(size_t *ret_count)
{
    *ret_count = KG_ARRAY_LEN(rows);
    return rows;
}

const char *const *kg_schema_events(size_t *ret_count)
{
    *ret_count = KG_ARRAY_LEN(events);
    return events;
}

json_t *kg_schema_ref(const char *name)
{
    return json_pack("{s:o}", "$ref", json_sprintf("#/components/schemas/%s", name));
}

static json_t *words_json(const char *type, size_t len)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < len;) {
        size_t n = strcspn(type + i, "|");
        n = i + n > len ? len - i : n;
        json_array_append_new(list, json_stringn(type + i, n));
        i += n + 1;
    }
    return json_pack("{s:s, s:o}", "type", "string", "enum", list);
}

static json_t *bare_type(const char *type, size_t len)
{
    static const char *const known[] = {"string", "integer", "number", "boolean", "object"};
    for (size_t i = 0; i < KG_ARRAY_LEN(known); i++) {
        if (strlen(known[i]) == len && strncmp(type, known[i], len) == 0) {
            return json_pack("{s:s}", "type", known[i]);
        }
    }
    if (len == 4 && strncmp(type, "time", len) == 0) {
        return json_pack("{s:s, s:s}", "type", "string", "format", "date-time");
    }
    if (len == 3 && strncmp(type, "any", len) == 0) {
        return json_object();
    }
    if (*type == '=') {
        return json_pack("{s:o}", "const", json_stringn(type + 1, len - 1));
    }
    if (*type == '[') {
        return json_pack("{s:s, s:o}", "type", "array", "items", bare_type(type + 1, len - 2));
    }
    if (*type == '{') {
        return json_pack("{s:s, s:o}", "type", "object", "additionalProperties",
                         bare_type(type + 1, len - 2));
    }
    if (memchr(type, '|', len)) {
        return words_json(type, len);
    }
    char name[40] = "";
    memcpy(name, type, len < sizeof name ? len : sizeof name - 1);
    return kg_schema_ref(name);
}

static json_t *member_json(const kg_schema_row_t *row, bool *ret_optional)
{
    size_t len = strlen(row->type);
    *ret_optional = row->type[len - 1] == '~';
    len -= *ret_optional;
    bool nullable = row->type[len - 1] == '?';
    len -= nullable;
    json_t *schema = bare_type(row->type, len);
    if (nullable && schema) {
        schema = json_pack("{s:[o, {s:s}]}", "anyOf", schema, "type", "null");
    }
    if (schema && *row->doc) {
        json_object_set_new(schema, "description", json_string(row->doc));
    }
    return schema;
}

static json_t *event_json(void)
{
    json_t *list = json_array();
    for (size_t i = 0; list && i < KG_ARRAY_LEN(events); i++) {
        json_array_append_new(list, kg_schema_ref(events[i]));
    }
    return json_pack("{s:o}", "oneOf", list);
}

json_t *kg_schemas_json(void)
{
    json_t *all = json_object();
    json_t *properties = NULL;
    json_t *required = NULL;
    for (size_t i = 0; all && i < KG_ARRAY_LEN(rows); i++) {
        if (rows[i].schema) {
            properties = json_object();
            required = json_array();
            json_object_set_new(all, rows[i].schema,
                                json_pack("{s:s, s:o, s:o}", "type", "object", "properties",
                                          properties, "required", required));
        }
        bool optional = false;
        json_t *member = member_json(&rows[i], &optional);
        if (!member || json_object_set_new(properties, rows[i].name, member) < 0) {
            json_decref(all);
            return NULL;
        }
        if (!optional) {
            json_array_append_new(required, json_string(rows[i].name));
        }
    }
    json_object_set_new(all, "Event", event_json());
    /* Of these the vendors say what is in them. */
    json_object_set_new(all, "ToolList",
                        json_pack("{s:s, s:{s:s}}", "type", "array", "items", "type", "object"));
    json_object_set_new(all, "ToolResult", json_pack("{s:s}", "type", "object"));
    return all;
}
