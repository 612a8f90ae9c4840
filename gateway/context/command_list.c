/* gateway/context: commands found, listed, described, signalled. */
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>

#include "gateway/context/command_internal.h"

static bool findable(const kg_command_t *command)
{
    return command->state >= KG_COMMAND_RUNNING && !command->removed &&
           (command->background || command->state == KG_COMMAND_RUNNING);
}

kg_command_t *kg_command_find(kg_sandbox_t *sandbox, int64_t pid, kg_err_t *err)
{
    kg_command_t *command = NULL;
    kg_command_t *found = NULL;
    DL_FOREACH (sandbox->commands, command) {
        /* A pid may have been used before: the last one started has it. */
        found = command->pid == pid && command->pid > 0 && findable(command) ? command : found;
    }
    if (!found) {
        (void)kg_err_set(err, KG_ERR_PROCESS_NOT_FOUND, "No process %lld in sandbox %s.",
                         (long long)pid, sandbox->id);
        kg_err_hint(err, "GET /v1/sandboxes/%s/processes lists them.", sandbox->id);
    }
    return found;
}

kg_command_t *kg_command_of(kg_run_t *run)
{
    return run->command && !run->command->removed ? run->command : NULL;
}

kg_run_t *kg_command_run(const kg_command_t *command)
{
    return command->run;
}

int64_t kg_command_pid(const kg_command_t *command)
{
    return command->pid;
}

static json_t *signal_json(const kg_command_t *command)
{
    char name[KG_SIGNAL_NAME_MAX];
    if (command->state != KG_COMMAND_ENDED || command->exit.exited) {
        return json_null();
    }
    kg_signal_name(command->exit.signal, name);
    return json_string(name);
}

json_t *kg_command_json(const kg_command_t *command)
{
    bool ended = command->state == KG_COMMAND_ENDED;
    bool coded = ended && command->exit.exited;
    json_t *code = coded ? json_integer(command->exit.code) : json_null();
    return json_pack("{s:o, s:O, s:o, s:s, s:s, s:s, s:b, s:b, s:s, s:o, s:o, s:o, s:o, s:b}",
                     "pid", command->pid > 0 ? json_integer(command->pid) : json_null(), "cmd",
                     command->cmd, "cwd", kg_json_cwd(command->cwd), "user",
                     command->root ? "root" : "user", "state", ended ? "exited" : "running",
                     "status", ended ? kg_run_status_name(command->status) : "running",
                     "background", command->background, "pty", command->pty, "run",
                     command->run->id, "started_at", kg_json_time(command->started_wall_ns),
                     "ended_at", kg_json_time(command->ended_wall_ns), "exit_code", code, "signal",
                     signal_json(command), "timed_out", ended && command->status == KG_RUN_TIMEOUT);
}

json_t *kg_command_list(kg_sandbox_t *sandbox)
{
    json_t *items = json_array();
    const kg_command_t *command = NULL;
    DL_FOREACH (sandbox->commands, command) {
        if (findable(command)) {
            (void)json_array_append_new(items, kg_command_json(command));
        }
    }
    return json_pack("{s:o, s:n}", "items", items, "next");
}

static int not_running(const kg_command_t *command, kg_err_t *err)
{
    return kg_err_set(err, KG_ERR_CONFLICT, "process %lld has ended", (long long)command->pid);
}

int kg_command_signal(kg_command_t *command, const char *name, kg_err_t *err)
{
    int number = kg_signal_number(name);
    if (!number) {
        return kg_bad(err, "/signal", "signal: a name like SIGTERM");
    }
    if (command->state != KG_COMMAND_RUNNING) {
        return not_running(command, err);
    }
    kg_sandbox_touch(command->sandbox);
    kg_pause_wake(command->sandbox);
    int rc = kg_proc_signal(command->proc, number, true);
    return rc == -ESRCH ? not_running(command, err)
           : rc         ? kg_err_set(err, KG_ERR_INTERNAL, "the signal could not be sent: %s",
                                     strerrordesc_np(-rc))
                        : 0;
}

int kg_command_resize(kg_command_t *command, unsigned columns, unsigned rows, kg_err_t *err)
{
    if (!command->pty) {
        return kg_err_set(err, KG_ERR_CONFLICT, "process %lld has no terminal",
                          (long long)command->pid);
    }
    if (command->state != KG_COMMAND_RUNNING || command->out[0].fd < 0) {
        return not_running(command, err);
    }
    struct winsize size = {.ws_col = (unsigned short)columns, .ws_row = (unsigned short)rows};
    if (ioctl(command->out[0].fd, TIOCSWINSZ, &size) < 0) {
        return kg_err_set(err, KG_ERR_INTERNAL, "the terminal could not be resized: %s",
                          strerrordesc_np(errno));
    }
    return 0;
}
