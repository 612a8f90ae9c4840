/* cli: `sandald gateway`, started by sandal-keeper: builds the loop, the store, the core and the
 * server, and takes them down again in order. Stop: SIGTERM → no new runs → running ones get their
 * grace → clients read their ends → all is freed. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/buf.h"
#include "gateway/base/log.h"
#include "gateway/cli/args.h"
#include "gateway/cli/commands.h"
#include "gateway/cli/first_key.h"
#include "gateway/cli/paths.h"
#include "gateway/cli/turn.h"
#include "gateway/compat/jupyter.h"
#include "gateway/context/core.h"
#include "gateway/sandbox/confine.h"
#include "gateway/view/proxy.h"
#include "gateway/view/server.h"

#define KEEPER_FD 3
#define CLOSE_GRACE_MS 2000

typedef struct kg_main {
    kg_config_t config;
    kg_turn_t turn;
    kg_loop_t *loop;
    kg_store_t *store;
    kg_keeper_t *keeper;
    kg_core_t *core;
    kg_server_t *server;
    kg_jupyter_t *jupyter;
    kg_exposer_t *exposer;
    bool stopping;
    int status;
} kg_main_t;

static unsigned to_ms(uint64_t ns)
{
    uint64_t ms = ns / KG_NS_PER_MS;
    return ms > UINT32_MAX ? UINT32_MAX : (unsigned)ms;
}

static kg_pool_fill_t pool_fill(const char *fill)
{
    return strcmp(fill, "start") == 0 ? KG_POOL_FILL_START
           : strcmp(fill, "off") == 0 ? KG_POOL_FILL_OFF
                                      : KG_POOL_FILL_DEMAND;
}

static void core_config(const kg_config_t *config, const char *data_home, kg_core_config_t *ret)
{
    kg_core_config_defaults(ret);
    ret->state_dir = config->state_dir;
    ret->template_dirs = (const char *const *)config->template_dirs.items;
    ret->template_dir_count = config->template_dirs.count;
    ret->kernelspec_dirs = (const char *const *)config->kernelspec_dirs.items;
    ret->kernelspec_dir_count = config->kernelspec_dirs.count;
    ret->data_home = data_home;
    ret->sandbox_env = (const char *const *)config->sandbox_env.items;
    ret->sandbox_env_count = config->sandbox_env.count;
    ret->isolation = strcmp(config->isolation, "auto") == 0 ? NULL : config->isolation;
    ret->isolation_min = strcmp(config->isolation_min, "auto") == 0 ? NULL : config->isolation_min;
    ret->sandbox_timeout_s = (unsigned)(config->timeouts.idle / KG_NS_PER_S);
    ret->run_timeout_s = (unsigned)(config->timeouts.run / KG_NS_PER_S);
    ret->interrupt_grace_ms = to_ms(config->timeouts.interrupt_grace);
    ret->kernel_start_timeout_ms = to_ms(config->timeouts.kernel_start);
    ret->drain_grace_ms = to_ms(config->timeouts.drain);
    ret->queue_max = (unsigned)config->limits.queue;
    ret->client_queue_max = (unsigned)config->jupyter.queue;
    ret->client_queue_bytes = config->jupyter.queue_bytes;
    ret->sandboxes_max = (unsigned)config->limits.sandboxes;
    ret->contexts_max = (unsigned)config->limits.contexts;
    ret->processes_max = (unsigned)config->limits.processes;
    ret->files_timeout_ms = to_ms(config->timeouts.files);
    ret->sandbox_memory_mib_max = (unsigned)config->limits.sandbox_memory_mib;
    ret->sandbox_pids_max = (unsigned)config->limits.sandbox_pids;
    ret->sandbox_open_files_max = (unsigned)config->limits.sandbox_open_files;
    ret->sandbox_disk_mib_max = (unsigned)config->limits.sandbox_disk_mib;
    ret->sandbox_cpus_max = (double)config->limits.sandbox_cpus;
    ret->network_none = strcmp(config->network, "none") == 0;
    ret->retain_s = (unsigned)(config->timeouts.retain / KG_NS_PER_S);
    ret->code_max = config->limits.code_bytes;
    ret->cmd_max = config->limits.cmd_bytes;
    ret->sandbox_log_bytes = config->budgets.sandbox_log_bytes;
    ret->daemon_log_bytes = config->budgets.log_bytes;
    ret->output_bytes_max = config->limits.output_bytes;
    ret->result_bytes_max = config->limits.result_bytes;
    ret->events_max = config->limits.events;
    ret->pool_fill = pool_fill(config->pools.fill);
    ret->zygotes_max = (unsigned)config->zygotes.max;
    ret->zygote_per_owner = config->zygotes.per_owner;
    ret->zygote_idle_s = (unsigned)(config->zygotes.idle / KG_NS_PER_S);
    ret->connections_max = (unsigned)config->jupyter.connections;
    ret->owner_connections_max = (unsigned)config->jupyter.owner_connections;
    ret->context_connections_max = (unsigned)config->jupyter.context_connections;
    ret->connect_tcp = config->jupyter.connect_tcp;
    ret->connection_unread_max = config->jupyter.unread_bytes;
    ret->pool_memory_mib = config->pools.memory_mib;
    ret->pool_sizes = (const char *const *)config->pools.sizes.items;
    ret->pool_size_count = config->pools.sizes.count;
}

static void server_config(const kg_config_t *config, kg_turn_t *turn, kg_server_config_t *ret)
{
    *ret = (kg_server_config_t){
        .listen = (const char *const *)config->listen.items,
        .listen_count = config->listen.count,
        .sockets = turn->sockets,
        .tls_cert = config->tls.cert,
        .tls_key = config->tls.key,
        .no_auth = config->no_auth,
        .cors_origins = (const char *const *)config->cors.origins.items,
        .cors_origin_count = config->cors.origins.count,
        .allowed_hosts = (const char *const *)config->allowed_hosts.items,
        .allowed_host_count = config->allowed_hosts.count,
        .connections_max = config->limits.connections,
        .body_max = config->limits.body_bytes,
        .frame_max = config->limits.frame_bytes,
        .runs_per_socket = (unsigned)config->limits.runs_per_socket,
        .calls_per_socket = (unsigned)config->limits.calls_per_socket,
        .pending_max = config->limits.unread_bytes,
        .header_timeout_ms = to_ms(config->timeouts.header),
        .stall_timeout_ms = to_ms(config->timeouts.stall),
        .body_timeout_ms = to_ms(config->timeouts.request),
        .idle_timeout_ms = to_ms(config->timeouts.keepalive),
        .ping_ms = to_ms(config->timeouts.ping),
    };
}

static kg_jupyter_config_t jupyter_config(const kg_config_t *config)
{
    const char *end = config->jupyter.kernel_on_timeout;
    return (kg_jupyter_config_t){
        .kernel_timeout_s = config->jupyter.kernel_timeout / KG_NS_PER_S,
        .kernel_on_timeout = strcmp(end, "auto") == 0 ? NULL : end,
        .env = (const char *const *)config->jupyter.env.items,
        .env_count = config->jupyter.env.count,
        .unread_max = config->jupyter.unread_bytes,
        .reconnect_s = config->jupyter.reconnect / KG_NS_PER_S,
        .missed_max = config->jupyter.missed_bytes,
        .sessions_max = (unsigned)config->jupyter.sessions,
    };
}

static kg_tools_config_t tools_config(const kg_config_t *config)
{
    const char *end = config->tools.session_on_timeout;
    const char *name = config->tools.template_name;
    return (kg_tools_config_t){
        .template_name = name && *name ? name : NULL,
        .session_on_timeout = strcmp(end, "auto") == 0 ? NULL : end,
        .session_timeout_s = config->tools.session_timeout / KG_NS_PER_S,
        .sessions_max = (unsigned)config->tools.sessions,
        .max_tokens = (unsigned)config->tools.max_tokens,
        .call_bytes = config->tools.call_bytes,
        .output_bytes = config->tools.output_bytes,
        .result_bytes = config->tools.result_bytes,
        .images_max = (unsigned)config->tools.images,
        .image_bytes = config->tools.image_bytes,
    };
}

static const char *scheme(const kg_config_t *config)
{
    return config->tls.cert ? "https" : "http";
}

/* A line for people, on stderr beside the log; where that is JSON it is a line of the log. */
static void say(const kg_config_t *config, const char *text, ...) KG_PRINTF(2, 3);

static void say(const kg_config_t *config, const char *text, ...)
{
    char line[4096 + 256]; /* a path and what stands around it */
    char quoted[sizeof(line) + 64];
    va_list args;
    va_start(args, text);
    (void)vsnprintf(line, sizeof(line), text, args);
    va_end(args);
    if (strcmp(config->log.format, "json") == 0) {
        kg_log(KG_LOG_INFO, "gateway.says", "text=%s", kg_log_quote(line, quoted, sizeof(quoted)));
    } else {
        fprintf(stderr, "%s\n", line);
    }
}

/* What a person wants to know at the start. */
static void announce(const kg_main_t *m)
{
    const kg_config_t *config = &m->config;
    for (size_t i = 0; i < config->listen.count; i++) {
        const char *address = config->listen.items[i];
        if (strncmp(address, "unix:", 5) == 0) {
            say(config, "sandald %s listens on %s", SANDAL_VERSION, address);
        } else {
            const char *colon = strrchr(address, ':');
            say(config, "sandald %s listens on %s://%.*s:%u", SANDAL_VERSION, scheme(config),
                (int)(colon - address), address, kg_server_port(m->server, i));
        }
    }
    if (m->exposer && kg_exposer_port(m->exposer)) {
        say(config, "Exposed ports are served on port %u", kg_exposer_port(m->exposer));
    }
    if (pool_fill(config->pools.fill) == KG_POOL_FILL_START) {
        say(config, "Warm sandboxes are kept ready; --pools-fill demand or off takes less memory");
    }
    if (config->no_auth) {
        say(config, "WARNING: --no-auth: every process of this machine may run code here");
    } else {
        say(config, "The first key is in %s/%s; local clients find it by themselves",
            config->state_dir, KG_FIRST_KEY_FILE);
        if (strncmp(config->listen.items[0], "unix:", 5) != 0) {
            say(config,
                "Try: curl -H \"Authorization: Bearer $(cat %s/%s)\" "
                "%s://127.0.0.1:%u/v1/templates",
                config->state_dir, KG_FIRST_KEY_FILE, scheme(config), kg_server_port(m->server, 0));
        }
    }
    if (strcmp(config->isolation, "none") == 0) {
        say(config, "WARNING: isolation `none`: code runs as an ordinary user of this machine "
                    "and can see its files and network");
    }
    fflush(stderr);
}

static void finish(kg_main_t *m)
{
    kg_core_destroy(&m->core);
    kg_keeper_close(&m->keeper);
    kg_loop_stop(m->loop);
}

static void on_exposer_closed(void *user)
{
    finish(user);
}

static void on_closed(void *user)
{
    kg_main_t *m = user;
    kg_jupyter_destroy(&m->jupyter);
    if (m->exposer) {
        kg_exposer_close(&m->exposer, on_exposer_closed, m);
    } else {
        finish(m);
    }
}

static void on_drained(void *user)
{
    kg_main_t *m = user;
    if (m->server) {
        kg_jupyter_stop(m->jupyter);
        kg_server_close(&m->server, CLOSE_GRACE_MS, on_closed, m);
    } else {
        on_closed(m);
    }
}

static void stop(kg_main_t *m)
{
    if (m->stopping) {
        return;
    }
    m->stopping = true;
    kg_log(KG_LOG_INFO, "gateway.stop", "grace_ms=%u", to_ms(m->config.timeouts.drain));
    if (m->server) {
        kg_server_drain(m->server);
    }
    kg_core_drain(m->core, on_drained, m);
}

static void on_signal(void *user, int signum)
{
    kg_log(KG_LOG_INFO, "gateway.signal", "signal=%d", signum);
    stop(user);
}

/* A start that failed, or no keeper any more: the sandboxes are not this gateway's to end, the next
 * one finds them as they are. At once, for that one may wait for the state and for the listeners.
 */
static _Noreturn void leave(kg_main_t *m, int status, const kg_err_t *err)
{
    kg_args_complain(err);
    kg_log(KG_LOG_WARN, "gateway.leave", "status=%d", status);
    kg_core_leave(m->core);
    _exit(status);
}

static int start_exposer(kg_main_t *m, kg_err_t *err)
{
    const kg_config_t *config = &m->config;
    kg_exposer_config_t proxy = {
        .listen = strcmp(config->proxy_listen, "off") == 0 ? "" : config->proxy_listen,
        .domain = config->proxy_domain,
        .public_url = config->proxy_url,
        .connections_max = config->limits.connections,
        .header_timeout_ms = to_ms(config->timeouts.header),
        .idle_timeout_ms = to_ms(config->timeouts.keepalive),
        .stall_timeout_ms = to_ms(config->timeouts.stall),
    };
    return kg_exposer_start(m->core, &proxy, &m->exposer, err);
}

static void start_server(kg_main_t *m)
{
    kg_err_t err = {0};
    kg_server_config_t config;
    kg_tools_config_t tools = tools_config(&m->config);
    server_config(&m->config, &m->turn, &config);
    config.tools = &tools;
    int r = m->config.no_auth ? 0 : kg_first_key(m->store, m->config.state_dir, &err);
    if (r == 0) {
        r = start_exposer(m, &err);
    }
    if (r == 0) {
        r = kg_server_start(m->core, &config, &m->server, &err);
    }
    if (r == 0) {
        kg_jupyter_config_t jupyter = jupyter_config(&m->config);
        r = kg_jupyter_create(m->server, &jupyter, &m->jupyter, &err);
    }
    if (r < 0) {
        leave(m, 2, &err);
    }
    announce(m);
}

static void on_keeper(void *user, kg_keeper_event_t event, const kg_err_t *err)
{
    kg_main_t *m = user;
    if (event == KG_KEEPER_LOST) {
        leave(m, 1, err);
    }
    kg_core_keeper_event(m->core, event, err);
    if (!m->server && !m->stopping) {
        start_server(m);
    }
}

static void raise_nofile(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static int parse_effective(int argc, char **argv, kg_config_t *config, kg_err_t *err)
{
    if (argc != 3 || strcmp(argv[1], "--effective") != 0) {
        int r =
            kg_err_set(err, KG_ERR_CONFIG, "`sandald gateway` is started by sandal-keeper alone");
        kg_err_hint(err, "use `sandald serve`");
        return r;
    }
    json_error_t where;
    json_t *root = json_loads(argv[2], JSON_REJECT_DUPLICATES, &where);
    if (!root) {
        return kg_err_set(err, KG_ERR_CONFIG, "--effective: %s", where.text);
    }
    int r = kg_config_load_json(config, root, "--effective", err);
    json_decref(root);
    return r;
}

static int build(kg_main_t *m, const char *data_home, kg_err_t *err)
{
    kg_log_level_t level = KG_LOG_INFO;
    kg_log_level_parse(m->config.log.level, &level);
    kg_log_init(level, strcmp(m->config.log.format, "json") == 0);
    raise_nofile();
#ifndef __SANITIZE_ADDRESS__
    int confined = kg_confine_gateway(err);
    if (confined < 0) {
        return confined;
    }
#endif
    if (kg_loop_create(&m->loop) < 0) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "the event loop cannot be made");
    }
    int r = kg_turn_take(&m->config, &m->turn, err);
    if (r == 0) {
        r = kg_store_open(m->config.state_dir, &m->store, err);
    }
    if (r == 0) {
        r = kg_keeper_connect(m->loop, KEEPER_FD, on_keeper, m, &m->keeper, err);
    }
    if (r == 0) {
        kg_core_config_t config;
        core_config(&m->config, data_home, &config);
        r = kg_core_create(m->loop, m->keeper, m->store, &config, &m->core, err);
    }
    if (r == 0 && (kg_loop_signal(m->loop, SIGTERM, on_signal, m) < 0 ||
                   kg_loop_signal(m->loop, SIGINT, on_signal, m) < 0)) {
        r = kg_err_set(err, KG_ERR_INTERNAL, "signals cannot be watched");
    }
    return r;
}

static void tear_down(kg_main_t *m)
{
    kg_jupyter_destroy(&m->jupyter);
    kg_core_destroy(&m->core);
    kg_keeper_close(&m->keeper);
    kg_store_close(&m->store);
    if (m->loop) {
        kg_loop_destroy(&m->loop);
    }
    kg_turn_end(&m->turn);
    kg_config_fini(&m->config);
}

int kg_command_gateway(int argc, char **argv)
{
    kg_err_t err = {0};
    kg_main_t m = {.turn = {.lock_fd = -1}};
    KG_AUTO_FREE char *data_home = kg_path_data_home();
    signal(SIGPIPE, SIG_IGN);
    umask(077);
    int r = kg_config_init(&m.config, &err);
    if (r == 0) {
        r = parse_effective(argc, argv, &m.config, &err);
    }
    bool configured = r == 0;
    if (r == 0) {
        r = build(&m, data_home, &err);
    }
    if (r == 0) {
        kg_loop_run(m.loop);
    } else {
        kg_args_complain(&err);
        m.status = configured && m.turn.lock_fd >= 0 ? 1 : 2;
    }
    tear_down(&m);
    return m.status;
}
