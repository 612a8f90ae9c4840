/* gateway/context: background processes over a restart. What is asked for by their list is kept in
 * a memo each; what they printed and how they ended lies in their logs. Those that an earlier
 * gateway started have ended: before it, or because their pipes did with it. */
#include <signal.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/context/command_internal.h"
#include "gateway/run/reader.h"

void kg_command_remember(const kg_command_t *command)
{
    kg_err_t err = {0};
    if (!command->background) {
        return;
    }
    json_t *json =
        json_pack("{s:O, s:I, s:s?, s:b, s:b, s:I}", "cmd", command->cmd, "pid",
                  (json_int_t)command->pid, "cwd", command->cwd, "root", command->root, "pty",
                  command->pty, "started_ns", (json_int_t)command->started_wall_ns);
    KG_AUTO_FREE char *body = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    kg_store_row_t row = {
        .id = command->run->id, .parent = command->sandbox->id, .body = body ? body : "{}"};
    if (kg_store_memo_put(command->sandbox->core->store, &row, &err)) {
        kg_log(KG_LOG_WARN, "command.memo", "run=%s code=%s", command->run->id,
               kg_err_name(err.code));
    }
}

void kg_command_forget(const kg_command_t *command)
{
    if (command->background && command->run->id[0]) {
        (void)kg_store_memo_delete(command->sandbox->core->store, command->run->id, NULL);
    }
}

/* How it ended, from the end of its log; one without an end was cut off by the gateway's. */
static void read_end(kg_command_t *command)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    kg_run_log_t *log = command->run->log;
    command->exit = (kg_exit_t){.signaled = true, .signal = SIGKILL};
    command->status = KG_RUN_GATEWAY_RESTART;
    command->ended_wall_ns = kg_wall_ns();
    if (!kg_run_log_finished(log) || kg_run_log_slim(log, false, &text)) {
        return;
    }
    json_t *json = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, NULL);
    const json_t *code = json_object_get(json, "exit_code");
    const char *name = json_string_value(json_object_get(json, "signal"));
    command->status = kg_run_log_status(log);
    command->ended_wall_ns = kg_run_log_finished_wall_ns(log);
    if (json_is_integer(code)) {
        command->exit = (kg_exit_t){.exited = true, .code = (int)json_integer_value(code)};
    } else if (name) {
        command->exit.signal = kg_signal_number(name);
    }
    json_decref(json);
}

static bool fill(kg_command_t *command, const json_t *memo)
{
    json_t *cmd = json_object_get(memo, "cmd");
    const char *cwd = json_string_value(json_object_get(memo, "cwd"));
    command->background = true;
    command->state = KG_COMMAND_ENDED;
    command->cmd = json_incref(cmd);
    command->cwd = cwd ? strdup(cwd) : NULL;
    command->pid = json_integer_value(json_object_get(memo, "pid"));
    command->root = json_is_true(json_object_get(memo, "root"));
    command->pty = json_is_true(json_object_get(memo, "pty"));
    command->started_wall_ns = (uint64_t)json_integer_value(json_object_get(memo, "started_ns"));
    read_end(command);
    return cmd && (command->cwd || !cwd);
}

bool kg_command_recover(kg_sandbox_t *sandbox, const char *run_id, const char *body)
{
    kg_run_t *run = kg_run_table_find(&sandbox->core->runs, run_id);
    json_t *memo = run && run->is_command && !run->expired && run->sandbox == sandbox
                       ? json_loads(body, JSON_REJECT_DUPLICATES, NULL)
                       : NULL;
    kg_command_t *command = memo ? kg_command_alloc(sandbox, run) : NULL;
    bool good = command && fill(command, memo);
    if (command && !good) {
        kg_command_free(command);
    }
    json_decref(memo);
    return good;
}
