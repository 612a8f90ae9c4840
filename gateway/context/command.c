/* gateway/context: a command from what a client asked to its process: checked, the sandbox woken,
 * started. Its log begins with the process, so that nothing is left of one that never ran. */
#include "gateway/context/command.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/command_internal.h"

enum {
    SHOWN_MAX = 4096, /* bytes of a command as lists and its log have it */
    EXIT_NOT_EXECUTABLE = 126,
    EXIT_NOT_FOUND = 127,
};

/* ---- checks ---- */

static int too_long(const kg_core_t *core, kg_err_t *err)
{
    int rc = kg_err_set(err, KG_ERR_TOO_LARGE, "cmd: at most %zu bytes and %d strings",
                        core->config.cmd_max, KG_COMMAND_ARGS_MAX);
    kg_err_pointer(err, "/cmd");
    return rc;
}

static int check_argv(const kg_core_t *core, const json_t *argv, kg_err_t *err)
{
    size_t bytes = 0;
    size_t count = json_array_size(argv);
    if (count == 0) {
        return kg_bad(err, "/cmd", "cmd: an argv has at least the program");
    }
    if (count > KG_COMMAND_ARGS_MAX) {
        return too_long(core, err);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *arg = json_array_get(argv, i);
        char pointer[32];
        (void)snprintf(pointer, sizeof(pointer), "/cmd/%zu", i);
        if (!json_is_string(arg) || strlen(json_string_value(arg)) != json_string_length(arg)) {
            return kg_bad(err, pointer, "cmd: every argument is a string without U+0000");
        }
        if (i == 0 && json_string_length(arg) == 0) {
            return kg_bad(err, pointer, "cmd: the program has no name");
        }
        bytes += json_string_length(arg) + 1;
    }
    return bytes > core->config.cmd_max ? too_long(core, err) : 0;
}

static int check_cmd(const kg_core_t *core, const json_t *cmd, kg_err_t *err)
{
    if (json_is_array(cmd)) {
        return check_argv(core, cmd, err);
    }
    size_t len = json_string_length(cmd);
    if (!json_is_string(cmd) || len == 0 || strlen(json_string_value(cmd)) != len) {
        return kg_bad(err, "/cmd", "cmd: a string for sh -c, or an array of strings; no U+0000");
    }
    return len > core->config.cmd_max ? too_long(core, err) : 0;
}

static int check_limit(uint64_t value, uint64_t max, const char *pointer, kg_err_t *err)
{
    return value <= max ? 0 : kg_bad(err, pointer, "at most %llu here", (unsigned long long)max);
}

static int check_pty(const kg_command_opts_t *opts, kg_err_t *err)
{
    if (!opts->pty) {
        return 0;
    }
    if (opts->columns > UINT16_MAX || opts->rows > UINT16_MAX) {
        return kg_bad(err, "/pty", "pty: cols and rows are at most %d", UINT16_MAX);
    }
    if (opts->base64) {
        return kg_bad(err, "/encoding", "a terminal's output is text: encoding is for pipes");
    }
    return 0;
}

static int check_opts(const kg_core_t *core, const kg_command_opts_t *opts, kg_err_t *err)
{
    const kg_core_config_t *config = &core->config;
    int rc = check_cmd(core, opts->cmd, err);
    rc = rc ? rc : kg_env_check(opts->env, "/env", err);
    rc = rc ? rc : check_pty(opts, err);
    rc =
        rc ? rc
           : check_limit(opts->output_bytes, config->output_bytes_max, "/limits/output_bytes", err);
    rc = rc ? rc : check_limit(opts->events, config->events_max, "/limits/events", err);
    if (!rc && opts->cwd && (!*opts->cwd || strlen(opts->cwd) >= KG_COMMAND_CWD_MAX / 2)) {
        rc = kg_bad(err, "/cwd", "cwd: 1 to %d bytes", KG_COMMAND_CWD_MAX / 2 - 1);
    }
    if (!rc && opts->timeout_ms > (int64_t)KG_RUN_TIMEOUT_MAX_S * 1000) {
        rc = kg_bad(err, "/timeout", "timeout: at most %d seconds, or 0 for none",
                    KG_RUN_TIMEOUT_MAX_S);
    }
    if (!rc && opts->retain_s > KG_RUN_RETAIN_MAX_S) {
        rc = kg_bad(err, "/retain", "retain: at most %d seconds", KG_RUN_RETAIN_MAX_S);
    }
    if (!rc && opts->input.len > KG_COMMAND_INPUT_MAX) {
        rc = kg_err_set(err, KG_ERR_TOO_LARGE, "stdin: at most %u bytes", KG_COMMAND_INPUT_MAX);
        kg_err_pointer(err, "/stdin");
    }
    if (!rc && opts->key && (!*opts->key || strlen(opts->key) > KG_KEY_MAX)) {
        rc = kg_bad(err, "/key", "key: 1 to %d bytes", KG_KEY_MAX);
    }
    return rc;
}

static int check_room(const kg_sandbox_t *sandbox, kg_err_t *err)
{
    unsigned running = kg_commands_running(sandbox);
    if (running < sandbox->core->config.processes_max) {
        return 0;
    }
    int rc = kg_err_set(err, KG_ERR_QUOTA_EXCEEDED,
                        "%u commands run in sandbox %s already, which is the most", running,
                        sandbox->id);
    if (err) {
        err->retry_after_s = 1;
    }
    return rc;
}

/* ---- what was asked for, kept ---- */

static char **copy_argv(const json_t *cmd)
{
    size_t count = json_is_array(cmd) ? json_array_size(cmd) : 3;
    char **argv = calloc(count + 1, sizeof(*argv));
    if (!argv) {
        return NULL;
    }
    for (size_t i = 0; i < count; i++) {
        const char *shell[] = {"/bin/sh", "-c", json_string_value(cmd)};
        const char *arg = json_is_array(cmd) ? json_string_value(json_array_get(cmd, i)) : shell[i];
        argv[i] = strdup(arg);
        if (!argv[i]) {
            for (size_t k = 0; k < i; k++) {
                free(argv[k]);
            }
            free(argv);
            return NULL;
        }
    }
    return argv;
}

/* As lists show it: whole, or the beginning of what is too long for them. */
static json_t *shown(const json_t *cmd)
{
    KG_AUTO_FREE char *text = json_dumps(cmd, JSON_COMPACT | JSON_ENCODE_ANY);
    if (!text) {
        return NULL;
    }
    if (strlen(text) <= SHOWN_MAX) {
        return json_deep_copy(cmd);
    }
    const char *plain = json_is_string(cmd) ? json_string_value(cmd) : text;
    size_t len = strlen(plain);
    size_t n = kg_utf8_floor(plain, len, len < SHOWN_MAX ? len : SHOWN_MAX);
    return json_sprintf("%.*s…", (int)n, plain);
}

static void
choose_limits(const kg_sandbox_t *sandbox, const kg_command_opts_t *opts, kg_run_limits_t *ret)
{
    const kg_core_config_t *config = &sandbox->core->config;
    const kg_template_t *tpl = sandbox->tpl;
    kg_run_limits_default(ret);
    uint64_t bytes = opts->output_bytes  ? opts->output_bytes
                     : tpl->output_bytes ? tpl->output_bytes
                                         : config->output_bytes;
    uint64_t events = opts->events ? opts->events : tpl->events ? tpl->events : config->events;
    ret->output_bytes = bytes < config->output_bytes_max ? bytes : config->output_bytes_max;
    ret->events = events < config->events_max ? events : config->events_max;
    bool stop = opts->on_exceed ? opts->on_exceed == KG_ON_EXCEED_STOP : tpl->stop_on_exceed;
    ret->on_exceed = stop ? KG_EXCEED_STOP : KG_EXCEED_TRUNCATE;
    if (opts->base64) { /* whole groups alone can be read */
        ret->output_bytes -= ret->output_bytes % 4;
        ret->no_tail = true;
    }
}

static void choose_ways(kg_command_t *command, const kg_command_opts_t *opts)
{
    const kg_core_config_t *config = &command->sandbox->core->config;
    kg_run_t *run = command->run;
    bool lasting = opts->stream || opts->background;
    command->root = opts->root;
    command->background = opts->background;
    command->keep_alive = opts->keep_alive;
    command->pty = opts->pty;
    command->base64 = opts->base64;
    command->columns = (uint16_t)(opts->columns ? opts->columns : 80);
    command->rows = (uint16_t)(opts->rows ? opts->rows : 24);
    command->input_open = opts->input_open || opts->pty;
    command->in_end = !command->input_open;
    command->timeout_ns = opts->timeout_ms >= 0 ? kg_ms((uint64_t)opts->timeout_ms)
                          : opts->background    ? 0
                                                : config->run_timeout_s * KG_NS_PER_S;
    command->retain_s = opts->retain_s >= 0 ? (uint32_t)opts->retain_s : config->retain_s;
    run->on_disconnect = opts->on_disconnect;
    if (run->on_disconnect == KG_ON_DISCONNECT_DEFAULT) {
        run->on_disconnect = lasting ? KG_ON_DISCONNECT_DETACH : KG_ON_DISCONNECT_KILL;
    }
}

/* For its idempotency key. */
static void hash_cmd(const kg_command_opts_t *opts, char ret_hex[33])
{
    unsigned char hash[16];
    crypto_generichash_state state;
    KG_AUTO_FREE char *cmd = json_dumps(opts->cmd, JSON_COMPACT | JSON_ENCODE_ANY);
    const char *parts[] = {"command", cmd ? cmd : "", opts->cwd ? opts->cwd : ""};
    (void)crypto_generichash_init(&state, NULL, 0, sizeof(hash));
    for (size_t i = 0; i < KG_ARRAY_LEN(parts); i++) {
        (void)crypto_generichash_update(&state, (const unsigned char *)parts[i],
                                        strlen(parts[i]) + 1);
    }
    (void)crypto_generichash_final(&state, hash, sizeof(hash));
    (void)sodium_bin2hex(ret_hex, 33, hash, sizeof(hash));
}

static int keep(kg_command_t *command, const kg_command_opts_t *opts)
{
    command->argv = copy_argv(opts->cmd);
    command->cmd = shown(opts->cmd);
    command->env = json_is_object(opts->env) ? json_deep_copy(opts->env) : NULL;
    command->cwd = opts->cwd ? strdup(opts->cwd) : NULL;
    if (opts->key) {
        char hash[sizeof command->run->key->hash];
        hash_cmd(opts, hash);
        command->run->key = kg_run_key_new(opts->key, hash);
    }
    choose_limits(command->sandbox, opts, &command->limits.limits);
    bool bad = !command->argv || !command->cmd || (json_is_object(opts->env) && !command->env) ||
               (opts->cwd && !command->cwd) || (opts->key && !command->run->key) ||
               (opts->input.len && kg_buf_append_slice(&command->in, opts->input));
    return bad ? -ENOMEM : 0;
}

kg_command_t *kg_command_alloc(kg_sandbox_t *sandbox, kg_run_t *run)
{
    kg_command_t *command = calloc(1, sizeof(*command));
    if (!command) {
        return NULL;
    }
    kg_run_ref_(run);
    command->sandbox = sandbox;
    command->run = run;
    command->in_fd = -1;
    for (unsigned i = 0; i < 2; i++) {
        command->out[i] = (kg_command_pipe_t){.command = command, .is_stderr = i == 1, .fd = -1};
    }
    run->is_command = true;
    run->command = command;
    DL_APPEND(sandbox->commands, command);
    return command;
}

static kg_command_t *command_new(kg_sandbox_t *sandbox)
{
    kg_run_t *run = kg_run_alloc(sandbox->core);
    kg_command_t *command = run ? kg_command_alloc(sandbox, run) : NULL;
    if (run) {
        kg_run_unref_(&run);
    }
    return command;
}

/* ---- the log ---- */

static void on_stop(void *user, kg_cut_t what)
{
    (void)what;
    kg_command_stop(user, KG_CAUSE_LIMIT);
}

/* What lists need of it after a restart. */
static char *meta_of(const kg_command_t *command)
{
    json_t *json = json_pack("{s:O, s:I, s:I, s:b, s:b}", "cmd", command->cmd, "pid",
                             (json_int_t)command->pid, "token", (json_int_t)command->token,
                             "background", command->background, "pty", command->pty);
    char *text = json ? json_dumps(json, JSON_COMPACT) : NULL;
    json_decref(json);
    return text;
}

static int open_log(kg_command_t *command)
{
    kg_run_t *run = command->run;
    kg_core_t *core = run->core;
    char id[KG_ID_MAX];
    KG_AUTO_FREE char *text = meta_of(command);
    kg_mapper_sink_t sink = {.stop = on_stop, .user = command};
    const kg_run_log_opts_t log = kg_run_log_opts(run);
    kg_id_generate(&core->node, "run", id);
    kg_run_meta_t meta = {
        .run = id,
        .sandbox = command->sandbox->id,
        .owner = command->sandbox->owner,
        .key = run->key ? run->key->text : NULL,
        .code_hash = run->key ? run->key->hash : NULL,
        .command = text,
        .created_wall_ns = kg_wall_ns(),
        .retain_s = command->retain_s,
    };
    run->opts = text ? kg_opts_get(core, &command->limits) : NULL;
    int rc = run->opts ? kg_run_log_create(&log, &meta, &run->log) : -ENOMEM;
    rc = rc ? rc : kg_mapper_create(&run->opts->mapper, run->log, NULL, &sink, &run->mapper);
    if (rc) {
        return rc;
    }
    kg_run_list_in(run, command->sandbox, id);
    kg_run_ref_(run); /* the list's */
    return 0;
}

/* The log, if it is not there yet, and the time. */
static int begin(kg_command_t *command)
{
    kg_core_t *core = command->run->core;
    int rc = command->run->log ? 0 : open_log(command);
    if (rc) {
        return rc;
    }
    command->run->started = true;
    command->started_ns = kg_now_ns();
    command->started_wall_ns = kg_wall_ns();
    core->stats.commands_started++;
    kg_core_refill(core, false);
    return 0;
}

/* Before the process is asked for: a gateway that is killed with the key unwritten would run the
 * command again for the next request. */
static int save_key(kg_command_t *command)
{
    int rc = command->run->key ? open_log(command) : 0;
    if (rc == 0 && command->run->log) {
        kg_run_log_save(command->run->log);
    }
    return rc;
}

/* ---- the process ---- */

/* Last of what is done with it in this turn. */
static void answer(kg_command_t *command)
{
    kg_run_t *run = command->run;
    bool held = !command->background;
    kg_run_ref_(run);
    kg_wait_command(&command->wait, run, NULL);
    if (held && !run->attached && !run->ended) { /* the client has gone meanwhile */
        kg_run_attach(run);
        kg_run_t *left = run;
        kg_run_detach(&left);
    }
    kg_run_unref_(&run);
}

/* No such program: told as a shell tells it, for the client asked for an exit code. */
static void not_executed(kg_command_t *command, const kg_err_t *why)
{
    kg_exit_t exit = {.exited = true,
                      .code = why->code == KG_ERR_NOT_FOUND ? EXIT_NOT_FOUND : EXIT_NOT_EXECUTABLE};
    KG_AUTO_BUF kg_buf_t text = {0};
    kg_err_t oom = {0};
    if (begin(command) || kg_buf_printf(&text, "%s\n", why->message)) {
        (void)kg_oom(&oom);
        kg_command_fail(command, &oom);
        return;
    }
    (void)kg_mapper_text(command->run->mapper, true, kg_buf_slice(&text));
    kg_command_finish(command, &exit, NULL);
    kg_wait_t *wait = KG_TAKE(command->wait);
    kg_run_t *run = command->run;
    kg_run_ref_(run);
    kg_command_settle(command);
    kg_wait_command(&wait, run, NULL);
    kg_run_unref_(&run);
}

static void start_log(kg_command_t *command)
{
    kg_err_t err = {0};
    int rc = begin(command);
    rc = rc ? rc : kg_mapper_command_started(command->run->mapper, command->pid);
    rc = rc ? rc : kg_command_io_open(command);
    rc = rc ? rc : kg_command_deadline_create(command);
    if (rc) {
        (void)kg_proc_kill_tree(command->proc);
        (void)kg_err_set(&err, kg_err_from_errno(rc), "the command could not be followed");
        kg_command_fail(command, &err);
        return;
    }
    command->state = KG_COMMAND_RUNNING;
    kg_command_remember(command);
    kg_proc_on_exit(command->proc, kg_command_exited, command);
    if (command->timeout_ns) {
        kg_timer_start(command->deadline, command->timeout_ns, 0);
    }
    kg_sandbox_touch(command->sandbox);
    answer(command);
}

static void spawned(void *user, kg_proc_t *proc, const kg_err_t *err)
{
    kg_command_t *command = user;
    if (proc) {
        command->proc = proc;
        command->pid = kg_proc_inner_pid(proc);
        command->token = kg_proc_token(proc);
        start_log(command);
        return;
    }
    bool program =
        (err->code == KG_ERR_NOT_FOUND || err->code == KG_ERR_FORBIDDEN) && !err->pointer[0];
    if (program) {
        not_executed(command, err);
    } else {
        kg_command_fail(command, err);
    }
}

/* Package managers want their helpers; templates speak of user code's places alone. */
static int add_sbin(kg_env_t *env)
{
    const char *path = kg_env_get(env, "PATH", 4);
    KG_AUTO_FREE char *more =
        kg_strdup_printf("%s%s/usr/local/sbin:/usr/sbin:/sbin", path ? path : "", path ? ":" : "");
    return more ? kg_env_set(env, "PATH", more) : -ENOMEM;
}

static int process_env(const kg_command_t *command, kg_env_t *env)
{
    const kg_sandbox_t *sandbox = command->sandbox;
    int rc = kg_sandbox_env(sandbox, sandbox->tpl, env);
    bool as_root = command->root;
    rc = rc ? rc : kg_env_set(env, "HOME", as_root ? "/root" : sandbox->info.home);
    rc = rc || !as_root ? rc : kg_env_set(env, "USER", "root");
    rc = rc || !as_root ? rc : kg_env_set(env, "LOGNAME", "root");
    rc = rc || !as_root ? rc : add_sbin(env);
    rc = rc || !command->pty ? rc : kg_env_set(env, "TERM", "xterm-256color");
    rc = rc ? rc : kg_env_merge_json(env, sandbox->env);
    return rc ? rc : kg_env_merge_json(env, command->env);
}

static int start(kg_command_t *command, kg_err_t *err)
{
    KG_AUTO(kg_env_fini) kg_env_t env = {0};
    char cwd[KG_COMMAND_CWD_MAX];
    kg_sbx_t *sbx = kg_sandbox_sbx(command->sandbox);
    if (!sbx) {
        return kg_err_set(err, KG_ERR_SANDBOX_NOT_FOUND, "the sandbox is gone");
    }
    if (command->root && !command->sandbox->info.has_root) {
        int rc = kg_err_set(err, KG_ERR_ISOLATION_UNAVAILABLE,
                            "isolation %s gives a sandbox no root of its own",
                            command->sandbox->launcher);
        kg_err_pointer(err, "/user");
        kg_err_hint(err, "A sandbox made with isolation namespace has one.");
        return rc;
    }
    if (process_env(command, &env)) {
        return kg_oom(err);
    }
    if (kg_sandbox_dir(command->sandbox, command->cwd, cwd, sizeof(cwd))) {
        return kg_bad(err, "/cwd", "cwd is too long");
    }
    kg_spawn_opts_t opts = {
        .argv = (const char *const *)(void *)command->argv,
        .env = (const char *const *)(void *)env.items,
        .cwd = cwd,
        .stdin_pipe = !command->pty && (command->in.len > 0 || command->input_open),
        .root = command->root,
        .pty = command->pty,
        .columns = command->columns,
        .rows = command->rows,
    };
    if (save_key(command)) {
        return kg_oom(err);
    }
    command->state = KG_COMMAND_STARTING;
    command->oom_before = kg_box_oom_kills(command->sandbox);
    return kg_sbx_spawn(sbx, &opts, spawned, command, err);
}

static void woken(void *user, const kg_err_t *err)
{
    kg_command_t *command = user;
    kg_err_t why = {0};
    if (err) {
        kg_command_fail(command, err);
    } else if (start(command, &why)) {
        kg_command_fail(command, &why);
    }
}

/* ---- idempotency ---- */

/* 1: *ret is it; 0: none; busy while it is being started. */
static int
find_key(kg_sandbox_t *sandbox, const char *key, const char *hash, kg_run_t **ret, kg_err_t *err)
{
    const kg_command_t *command = NULL;
    DL_FOREACH (sandbox->commands, command) {
        if (command->state < KG_COMMAND_RUNNING && command->run->key &&
            strcmp(command->run->key->text, key) == 0) {
            int rc = kg_err_set(err, KG_ERR_BUSY, "the command with this key is being started");
            kg_err_pointer(err, "/key");
            return rc;
        }
    }
    return kg_run_find_key(sandbox, key, hash, ret, err);
}

/* ---- the call ---- */

static void answer_known(void *user)
{
    kg_wait_t *wait = user;
    kg_run_t *run = KG_TAKE(wait->run);
    kg_wait_command(&wait, run, NULL);
    kg_run_unref_(&run);
}

static int tell_known(kg_run_t *run, kg_command_fn *done, void *user, kg_err_t *err)
{
    kg_wait_t *wait = kg_wait_new(run->core, KG_WAIT_COMMAND, user);
    if (!wait || kg_core_later(run->core, answer_known, wait)) {
        kg_wait_drop(&wait);
        return kg_oom(err);
    }
    wait->fn.command = done;
    wait->run = run;
    kg_run_ref_(run);
    return 0;
}

static int make(kg_sandbox_t *sandbox,
                const kg_command_opts_t *opts,
                kg_command_fn *done,
                void *user,
                kg_err_t *err)
{
    kg_command_t *command = command_new(sandbox);
    kg_wait_t *wait = command ? kg_wait_new(sandbox->core, KG_WAIT_COMMAND, user) : NULL;
    if (!wait || keep(command, opts)) {
        kg_wait_drop(&wait);
        kg_command_free(command);
        return kg_oom(err);
    }
    choose_ways(command, opts);
    wait->fn.command = done;
    command->wait = wait;
    int rc = kg_sandbox_wake(sandbox, woken, command, err);
    if (rc) {
        kg_wait_drop(&command->wait);
        kg_command_free(command);
    }
    return rc;
}

int kg_command_new(kg_sandbox_t *sandbox,
                   const kg_command_opts_t *opts,
                   kg_command_fn *done,
                   void *user,
                   kg_err_t *err)
{
    char hash[33];
    kg_run_t *known = NULL;
    int rc = kg_core_ready(sandbox->core, err);
    rc = rc ? rc : check_opts(sandbox->core, opts, err);
    if (!rc && opts->key) {
        hash_cmd(opts, hash);
        rc = find_key(sandbox, opts->key, hash, &known, err);
        if (known) {
            return tell_known(known, done, user, err);
        }
    }
    rc = rc ? rc : check_room(sandbox, err);
    return rc ? rc : make(sandbox, opts, done, user, err);
}
