/* gateway/api: commands and processes. What they print is never a tree here: it is followed like a
 * run. */
#include <errno.h>
#include <math.h>
#include <sodium.h>
#include <string.h>

#include "gateway/api/call.h"
#include "gateway/api/handlers.h"
#include "gateway/base/str.h"
#include "gateway/context/command.h"

static bool is_base64(const kg_call_t *call, const char *name)
{
    const char *value = kg_call_string(call, name);
    return value && strcmp(value, "base64") == 0;
}

static kg_on_disconnect_t disconnect_policy(const char *name)
{
    if (!name) {
        return KG_ON_DISCONNECT_DEFAULT;
    }
    if (strcmp(name, "detach") == 0) {
        return KG_ON_DISCONNECT_DETACH;
    }
    return strcmp(name, "kill") == 0 ? KG_ON_DISCONNECT_KILL : KG_ON_DISCONNECT_INTERRUPT;
}

/* The bytes of a text field, decoded into out where they are written as base64. */
static int bytes_of(const kg_call_t *call,
                    const char *name,
                    const char *encoding,
                    kg_buf_t *out,
                    kg_slice_t *ret,
                    kg_err_t *err)
{
    const json_t *value = kg_call_json(call, name);
    const char *text = json_string_value(value);
    size_t len = json_string_length(value);
    *ret = kg_slice(text, len);
    if (!text || !is_base64(call, encoding)) {
        return 0;
    }
    if (kg_buf_reserve(out, len + 1) < 0) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
    }
    unsigned char *bytes = (unsigned char *)out->data;
    if (sodium_base642bin(bytes, len + 1, text, len, "\r\n", &out->len, NULL,
                          sodium_base64_VARIANT_ORIGINAL) < 0) {
        int rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "%s is not base64.", name);
        kg_err_pointer(err, "/%s", name);
        return rc;
    }
    *ret = kg_buf_slice(out);
    return 0;
}

static void limits_of(const json_t *limits, kg_command_opts_t *opts)
{
    opts->output_bytes = (uint64_t)json_integer_value(json_object_get(limits, "output_bytes"));
    opts->events = (uint64_t)json_integer_value(json_object_get(limits, "events"));
    const char *exceed = json_string_value(json_object_get(limits, "on_exceed"));
    if (exceed) {
        opts->on_exceed = strcmp(exceed, "stop") == 0 ? KG_ON_EXCEED_STOP : KG_ON_EXCEED_TRUNCATE;
    }
}

static void started(void *user, kg_run_t *run, const kg_err_t *err)
{
    kg_call_t *call = user;
    if (!run) {
        kg_call_fail(call, err);
        return;
    }
    kg_command_t *command = kg_command_of(run);
    if (!kg_call_bool(call, "background", false) || !command) {
        bool events = kg_call_bool(call, "stream", false);
        kg_call_follow(call, &(kg_follow_t){.run = run, .after = -1, .events = events});
        return;
    }
    char location[96 + KG_ID_MAX];
    const kg_sandbox_t *sandbox = kg_run_sandbox(run);
    (void)kg_format(location, sizeof location, "/v1/sandboxes/%s/processes/%lld",
                    sandbox ? kg_sandbox_id(sandbox) : "", (long long)kg_command_pid(command));
    kg_call_created_take(call, kg_command_json(command), location);
}

void kg_do_exec(kg_call_t *call)
{
    const json_t *pty = kg_call_json(call, "pty");
    const char *user = kg_call_string(call, "user");
    KG_AUTO_BUF kg_buf_t decoded = {0};
    kg_err_t err = {0};
    kg_command_opts_t opts = {
        .cmd = kg_call_json(call, "cmd"),
        .cwd = kg_call_string(call, "cwd"),
        .env = kg_call_json(call, "env"),
        .root = user && strcmp(user, "root") == 0,
        .timeout_ms = kg_call_ms(call, "timeout", -1),
        .stream = kg_call_bool(call, "stream", false),
        .background = kg_call_bool(call, "background", false),
        .keep_alive = kg_call_bool(call, "keep_alive", false),
        .pty = pty != NULL,
        .columns = (unsigned)json_integer_value(json_object_get(pty, "cols")),
        .rows = (unsigned)json_integer_value(json_object_get(pty, "rows")),
        .base64 = is_base64(call, "encoding"),
        .on_disconnect = disconnect_policy(kg_call_string(call, "on_disconnect")),
        .key = kg_call_string(call, "key"),
        .retain_s = (int64_t)ceil(kg_call_number(call, "retain", -1)),
    };
    limits_of(kg_call_json(call, "limits"), &opts);
    int rc = bytes_of(call, "stdin", "stdin_encoding", &decoded, &opts.input, &err);
    opts.input_open = kg_call_bool(call, "stdin_open", opts.background && !opts.input.data);
    rc = rc ? rc : kg_command_new(call->sandbox, &opts, started, call, &err);
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &err);
    }
}

/* --- Processes ------------------------------------------------------------------------------ */

/* NULL: the call has failed. */
static kg_command_t *find(kg_call_t *call)
{
    kg_err_t err = {0};
    kg_command_t *command = kg_command_find(call->sandbox, kg_call_int(call, "pid", 0), &err);
    if (!command) {
        kg_call_fail(call, &err);
    }
    return command;
}

static void done_or_fail(kg_call_t *call, int rc, const kg_err_t *err)
{
    if (rc < 0) {
        kg_call_fail_rc(call, rc, err);
    } else {
        kg_call_none(call);
    }
}

void kg_do_processes_list(kg_call_t *call)
{
    kg_call_json_take(call, 200, kg_command_list(call->sandbox));
}

void kg_do_processes_get(kg_call_t *call)
{
    const kg_command_t *command = find(call);
    if (command) {
        kg_call_json_take(call, 200, kg_command_json(command));
    }
}

void kg_do_processes_kill(kg_call_t *call)
{
    kg_err_t err = {0};
    kg_command_t *command = find(call);
    int rc = command ? kg_command_delete(command, kg_call_done, call, &err) : 0;
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &err);
    }
}

void kg_do_processes_input(kg_call_t *call)
{
    KG_AUTO_BUF kg_buf_t decoded = {0};
    kg_err_t err = {0};
    kg_slice_t bytes = {0};
    kg_command_t *command = find(call);
    if (!command) {
        return;
    }
    int rc = bytes_of(call, "data", "encoding", &decoded, &bytes, &err);
    bool eof = kg_call_bool(call, "eof", false);
    if (!rc && !bytes.data && !eof) {
        rc = kg_err_set(&err, KG_ERR_INVALID_REQUEST, "Give data, or eof: true, or both.");
        kg_err_pointer(&err, "/data");
    }
    rc = rc ? rc : kg_command_input(command, bytes, eof, &err);
    done_or_fail(call, rc, &err);
}

void kg_do_processes_signal(kg_call_t *call)
{
    kg_err_t err = {0};
    kg_command_t *command = find(call);
    if (command) {
        done_or_fail(call, kg_command_signal(command, kg_call_string(call, "signal"), &err), &err);
    }
}

void kg_do_processes_resize(kg_call_t *call)
{
    kg_err_t err = {0};
    kg_command_t *command = find(call);
    if (command) {
        unsigned columns = (unsigned)kg_call_int(call, "cols", 0);
        unsigned rows = (unsigned)kg_call_int(call, "rows", 0);
        done_or_fail(call, kg_command_resize(command, columns, rows, &err), &err);
    }
}

void kg_do_processes_attach(kg_call_t *call)
{
    const kg_command_t *command = find(call);
    if (!command) {
        return;
    }
    kg_run_t *run = kg_command_run(command);
    if (kg_run_expired(run)) {
        kg_err_t err = {0};
        kg_err_set(&err, KG_ERR_RUN_EXPIRED, "The output of process %lld is no longer kept.",
                   (long long)kg_command_pid(command));
        kg_call_fail(call, &err);
        return;
    }
    kg_call_follow(call, &(kg_follow_t){
                             .run = run,
                             .after = kg_call_int(call, "after", -1),
                             .events = true,
                             .late = kg_call_bool(call, "late", false),
                         });
}
