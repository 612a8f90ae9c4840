/* gateway/context: connection files, from the sockets' birth to the file's end. What comes in and
 * goes out is connect_in.c's and connect_out.c's. Over ipc the directory is the wall: who may not
 * look into it reaches no socket. Over tcp every local user may connect to them, and then only
 * what is signed counts. */
#include "gateway/context/connect.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/connect_internal.h"

enum {
    HWM = 64,           /* messages that libzmq keeps for one peer */
    BEAT_MAX = 1024,    /* bytes of a heartbeat's frame, and of a subscription */
    LINGER_MS = 200,    /* for the last words of a kernel */
    PATH_LEN_MAX = 107, /* sun_path without its NUL */
};

#define FILES_DIR "connections" /* nothing but connection files: servers scan it */
#define SOCKETS_DIR "channels"

/* What connection files call them, and for ipc the numbers behind the sockets' names. */
static const struct {
    kg_zchan_type_t type;
    int64_t frame_max;
    kg_zchan_fn *on_message;
    size_t port; /* in kg_connfile_t */
} kinds[KG_CONNECTION_SOCKETS] = {
    [KG_CHANNEL_SHELL] = {KG_ZCHAN_ROUTER, KG_CONNECTION_FRAME_MAX, kg_connection_request,
                          offsetof(kg_connfile_t, shell_port)},
    [KG_CHANNEL_CONTROL] = {KG_ZCHAN_ROUTER, KG_CONNECTION_FRAME_MAX, kg_connection_request,
                            offsetof(kg_connfile_t, control_port)},
    [KG_CHANNEL_STDIN] = {KG_ZCHAN_ROUTER, KG_CONNECTION_FRAME_MAX, kg_connection_request,
                          offsetof(kg_connfile_t, stdin_port)},
    [KG_CHANNEL_IOPUB] = {KG_ZCHAN_XPUB, BEAT_MAX, kg_connection_subscribed,
                          offsetof(kg_connfile_t, iopub_port)},
    /* A REP socket could not leave a question unanswered; to clients a ROUTER is the same. */
    [KG_HEARTBEAT] = {KG_ZCHAN_ROUTER, BEAT_MAX, kg_connection_beat,
                      offsetof(kg_connfile_t, hb_port)},
};

/* ---- the end ---- */

static void connection_free(kg_connection_t *c)
{
    kg_core_later_forget(c->core, c);
    while (c->peers) {
        kg_peer_free(c->peers);
    }
    kg_attach_close(&c->hears);
    while (c->subscribers) {
        kg_subscriber_free(c->subscribers);
    }
    for (size_t i = 0; i < KG_CONNECTION_SOCKETS; i++) {
        if (!c->tcp && c->sockets[i].zchan) { /* libzmq does not always */
            char name[KG_ID_MAX + 16];
            (void)kg_format(name, sizeof(name), "%s-%zu", c->id, i + 1);
            (void)unlinkat(c->core->channels_fd, name, 0);
        }
        kg_zchan_close(&c->sockets[i].zchan, NULL, NULL);
    }
    kg_timer_close(&c->watch);
    if (c->file[0]) {
        (void)unlinkat(c->core->connections_fd, c->file_name, 0);
        kg_log(KG_LOG_INFO, "connection.ended", "connection=%s dropped=%llu lost=%llu", c->id,
               (unsigned long long)c->dropped, (unsigned long long)c->lost);
    }
    kg_wire_key_fini(&c->key);
    DL_DELETE(c->core->connections, c);
    c->core->connection_count--;
    free(c);
}

static void later(void *user)
{
    kg_connection_t *c = user;
    kg_peer_t *peer = NULL;
    kg_peer_t *next = NULL;
    c->later = false;
    if (!c->context) {
        connection_free(c);
        return;
    }
    DL_FOREACH_SAFE (c->peers, peer, next) {
        if (peer->left) {
            kg_peer_free(peer);
        }
    }
}

void kg_connection_later(kg_connection_t *c)
{
    c->later = c->later || kg_core_later(c->core, later, c) == 0;
}

void kg_connection_drop(kg_connection_t *c)
{
    c->dropped++;
    c->core->stats.connection_dropped++;
}

static void on_end(void *user, bool deleted)
{
    kg_connection_t *c = user;
    (void)deleted;
    c->context = NULL;
    kg_connection_later(c);
}

/* It asks for nothing itself. */
static int no_shutdown(void *user, bool restart, kg_err_t *err)
{
    (void)user;
    (void)restart;
    return kg_err_set(err, KG_ERR_FORBIDDEN, "Only a client can ask for that.");
}

static void on_shutdown(void *user, bool restart)
{
    (void)user;
    (void)restart;
}

/* ---- birth ---- */

static int check_room(const kg_context_t *context, kg_err_t *err)
{
    const kg_core_t *core = context->core;
    const kg_connection_t *c = NULL;
    unsigned here = 0;
    unsigned owned = 0;
    DL_FOREACH (core->connections, c) {
        here += c->context == context;
        owned += c->context && strcmp(kg_sandbox_owner(c->context->sandbox),
                                      kg_sandbox_owner(context->sandbox)) == 0;
    }
    if (here >= core->config.context_connections_max) {
        return kg_err_set(err, KG_ERR_QUOTA_EXCEEDED,
                          "Context %s has %u connection files, which is the most.", context->id,
                          here);
    }
    if (owned >= core->config.owner_connections_max) {
        return kg_err_set(err, KG_ERR_QUOTA_EXCEEDED,
                          "The owner of context %s has %u connection files, which is the most.",
                          context->id, owned);
    }
    if (core->connection_count >= core->config.connections_max) {
        return kg_err_set(err, KG_ERR_QUOTA_EXCEEDED,
                          "There are %u connection files, which is the most.",
                          core->connection_count);
    }
    return 0;
}

static unsigned *port_of(kg_connfile_t *info, size_t socket)
{
    return (unsigned *)(void *)((char *)info + kinds[socket].port);
}

static int open_socket(kg_connection_t *c, size_t i, kg_connfile_t *info, kg_err_t *err)
{
    char endpoint[PATH_LEN_MAX + 32];
    (void)kg_format(endpoint, sizeof(endpoint), "tcp://127.0.0.1:*");
    if (!c->tcp) {
        *port_of(info, i) = (unsigned)i + 1;
        (void)kg_format(endpoint, sizeof(endpoint), "ipc://%s-%zu", info->ip, i + 1);
    }
    c->sockets[i] = (kg_socket_t){.connection = c, .channel = (unsigned)i};
    const kg_zchan_opts_t opts = {
        .type = kinds[i].type,
        .endpoint = endpoint,
        .bind = true,
        .hwm = HWM,
        .frame_max = kinds[i].frame_max,
        .linger_ms = LINGER_MS,
        .no_queue = kinds[i].type == KG_ZCHAN_ROUTER,
        .on_message = kinds[i].on_message,
        .user = &c->sockets[i],
    };
    int rc = kg_zchan_open(c->core->loop, &opts, &c->sockets[i].zchan, err);
    if (rc == 0 && c->tcp) {
        uint64_t port = 0;
        rc = kg_zchan_endpoint(c->sockets[i].zchan, endpoint, sizeof(endpoint));
        const char *colon = strrchr(endpoint, ':');
        if (rc || !colon || kg_parse_u64(colon + 1, 1, UINT16_MAX, &port)) {
            return kg_err_set(err, KG_ERR_INTERNAL, "The port of a socket is not known.");
        }
        *port_of(info, i) = (unsigned)port;
    }
    return rc;
}

static int name_sockets(kg_connection_t *c, const char *state, kg_connfile_t *info, kg_err_t *err)
{
    if (c->tcp) {
        (void)kg_format(info->transport, sizeof(info->transport), "tcp");
        (void)kg_format(info->ip, sizeof(info->ip), "127.0.0.1");
        return 0;
    }
    (void)kg_format(info->transport, sizeof(info->transport), "ipc");
    if (kg_format(info->ip, sizeof(info->ip) - 2, "%s/" SOCKETS_DIR "/%s", state, c->id)) {
        int rc = kg_err_set(err, KG_ERR_NOT_SUPPORTED,
                            "The path of the state directory is too long for sockets: %s", state);
        kg_err_hint(err, "Ask for the transport tcp, where the operator allows it.");
        return rc;
    }
    return 0;
}

static int write_file(kg_connection_t *c, const char *state, kg_connfile_t *info, kg_err_t *err)
{
    char path[KG_SBX_PATH_MAX];
    char text[2 * 32 + 1];
    kg_wire_key_generate(&c->key, text);
    (void)kg_format(info->key, sizeof(info->key), "%s", text);
    sodium_memzero(text, sizeof(text));
    (void)kg_format(info->signature_scheme, sizeof(info->signature_scheme), "hmac-sha256");
    (void)kg_format(info->kernel_name, sizeof(info->kernel_name), "%s",
                    c->context->lang->spec->name);
    if (kg_format(path, sizeof(path), "%s/" FILES_DIR "/kernel-%s.json", state, c->id)) {
        return kg_err_set(err, KG_ERR_CONFIG, "state directory: path too long");
    }
    int rc = kg_connfile_write(c->core->connections_fd, strrchr(path, '/') + 1, info, err);
    if (rc == 0) {
        memcpy(c->file, path, sizeof(path));
        c->file_name = strrchr(c->file, '/') + 1;
    }
    return rc;
}

static json_t *describe(const kg_connection_t *c)
{
    char created[KG_TIME_LEN];
    kg_time_format(c->created_ns, created);
    return json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I}", "id", c->id, "sandbox",
                     c->context->sandbox->id, "context", c->context->id, "transport",
                     c->tcp ? "tcp" : "ipc", "file", c->file, "created_at", created, "clients",
                     (json_int_t)c->peer_count, "dropped", (json_int_t)c->dropped, "lost",
                     (json_int_t)c->lost);
}

static int answer(const kg_connection_t *c, const kg_connfile_t *info, json_t **ret, kg_err_t *err)
{
    json_t *out = describe(c);
    json_t *inner = json_pack(
        "{s:i, s:i, s:i, s:i, s:i, s:s, s:s, s:s, s:s, s:s}", "shell_port", (int)info->shell_port,
        "iopub_port", (int)info->iopub_port, "stdin_port", (int)info->stdin_port, "control_port",
        (int)info->control_port, "hb_port", (int)info->hb_port, "ip", info->ip, "key", info->key,
        "transport", info->transport, "signature_scheme", info->signature_scheme, "kernel_name",
        info->kernel_name);
    if (!out || json_object_set_new(out, "connection", inner) < 0) {
        json_decref(out);
        return kg_oom(err);
    }
    *ret = out;
    return 0;
}

static int build(kg_connection_t *c, json_t **ret_answer, kg_err_t *err)
{
    static const kg_attach_sink_t sink = {.part = KG_ATTACH_HEARS,
                                          .on_message = kg_connection_hears,
                                          .may_shutdown = no_shutdown,
                                          .on_shutdown = on_shutdown,
                                          .on_end = on_end};
    kg_connfile_t info = {0};
    KG_AUTO_FREE char *state = realpath(c->core->config.state_dir, NULL);
    int rc = state ? kg_attach_open(c->context, &sink, c, &c->hears, err)
                   : kg_err_set(err, KG_ERR_CONFIG, "%s: %s", c->core->config.state_dir,
                                strerrordesc_np(errno));
    rc = rc ? rc : kg_timer_create(c->core->loop, kg_connection_watch, c, &c->watch);
    rc = rc ? rc : name_sockets(c, state, &info, err);
    for (size_t i = 0; i < KG_CONNECTION_SOCKETS && rc == 0; i++) {
        rc = open_socket(c, i, &info, err);
    }
    rc = rc ? rc : write_file(c, state, &info, err);
    rc = rc ? rc : answer(c, &info, ret_answer, err);
    sodium_memzero(&info, sizeof(info));
    return rc;
}

int kg_context_connect(kg_context_t *context,
                       const kg_connect_opts_t *opts,
                       json_t **ret_answer,
                       kg_err_t *err)
{
    kg_core_t *core = context->core;
    if (opts->tcp && !core->config.connect_tcp) {
        int rc = kg_err_set(err, KG_ERR_NOT_SUPPORTED,
                            "Connection files of this gateway are for the transport ipc alone.");
        kg_err_hint(err, "The operator sets `jupyter.connect_tcp`.");
        return rc;
    }
    int rc = check_room(context, err);
    if (rc) {
        return rc;
    }
    kg_connection_t *c = calloc(1, sizeof(*c));
    if (!c) {
        return kg_oom(err);
    }
    c->core = core;
    c->context = context;
    c->tcp = opts->tcp;
    c->may_restart = opts->may_restart;
    c->created_ns = kg_wall_ns();
    kg_id_generate(&core->node, "con", c->id);
    (void)kg_format(c->key_id, sizeof(c->key_id), "%s", opts->key_id);
    DL_APPEND(core->connections, c);
    core->connection_count++;
    rc = build(c, ret_answer, err);
    if (rc) {
        connection_free(c);
        return rc;
    }
    kg_log(KG_LOG_INFO, "connection.made", "connection=%s context=%s transport=%s key=%s", c->id,
           context->id, c->tcp ? "tcp" : "ipc", c->key_id);
    return 0;
}

/* ---- those there are ---- */

static bool is_listed(const kg_connection_t *c, const kg_context_t *context, const char *key_id)
{
    return c->context == context && (!key_id || strcmp(c->key_id, key_id) == 0);
}

json_t *kg_connection_list(const kg_context_t *context, const char *key_id)
{
    json_t *items = json_array();
    const kg_connection_t *c = NULL;
    DL_FOREACH (context->core->connections, c) {
        if (is_listed(c, context, key_id) && json_array_append_new(items, describe(c)) < 0) {
            json_decref(items);
            return NULL;
        }
    }
    return items ? json_pack("{s:o, s:n}", "items", items, "next") : NULL;
}

int kg_connection_end(kg_context_t *context, const char *id, const char *key_id, kg_err_t *err)
{
    kg_connection_t *c = NULL;
    DL_FOREACH (context->core->connections, c) {
        if (is_listed(c, context, key_id) && strcmp(c->id, id) == 0) {
            connection_free(c);
            return 0;
        }
    }
    return kg_err_set(err, KG_ERR_NOT_FOUND, "No connection %.64s at context %s.", id, context->id);
}

void kg_connections_end_of_key(kg_core_t *core, const char *key_id)
{
    kg_connection_t *c = NULL;
    kg_connection_t *next = NULL;
    DL_FOREACH_SAFE (core->connections, c, next) {
        if (strcmp(c->key_id, key_id) == 0) {
            connection_free(c);
        }
    }
}

void kg_connections_tick(kg_core_t *core)
{
    kg_connection_t *c = NULL;
    kg_connection_t *next = NULL;
    DL_FOREACH_SAFE (core->connections, c, next) {
        /* Keyless loopback has no key that could end. */
        if (kg_id_valid("key", c->key_id) &&
            kg_store_key_lives(core->store, c->key_id, kg_wall_ns(), NULL) == 0) {
            connection_free(c);
        }
    }
}

/* ---- the directories ---- */

/* What a gateway that was killed left behind: nobody listens there any more. */
static void purge(int dirfd)
{
    int copy = fcntl(dirfd, F_DUPFD_CLOEXEC, 3);
    DIR *dir = copy < 0 ? NULL : fdopendir(copy);
    if (!dir) {
        kg_closep(&copy);
        return;
    }
    for (const struct dirent *e; (e = readdir(dir));) { // NOLINT(concurrency-mt-unsafe): own stream
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0) {
            (void)unlinkat(dirfd, e->d_name, 0);
        }
    }
    (void)closedir(dir);
}

static int open_dir(const kg_core_t *core, const char *name, int *ret_fd, kg_err_t *err)
{
    char path[512];
    if (kg_format(path, sizeof(path), "%s/%s", core->config.state_dir, name)) {
        return kg_err_set(err, KG_ERR_CONFIG, "state directory: path too long");
    }
    int fd = mkdir(path, 0700) < 0 && errno != EEXIST
                 ? -1
                 : open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fchmod(fd, 0700) < 0) {
        int rc = kg_err_set(err, KG_ERR_CONFIG, "%s: %s", path, strerrordesc_np(errno));
        kg_closep(&fd);
        return rc;
    }
    purge(fd);
    *ret_fd = fd;
    return 0;
}

int kg_connections_create(kg_core_t *core, kg_err_t *err)
{
    int rc = open_dir(core, SOCKETS_DIR, &core->channels_fd, err);
    return rc ? rc : open_dir(core, FILES_DIR, &core->connections_fd, err);
}

void kg_connections_destroy(kg_core_t *core)
{
    while (core->connections) {
        connection_free(core->connections);
    }
    kg_closep(&core->connections_fd);
    kg_closep(&core->channels_fd);
}
