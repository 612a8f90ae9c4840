/* Connection files at their bounds: what a client may send, again, at once, and leave unread. A
 * stock ipykernel in a real (unisolated) sandbox, and a client made of bare sockets. */
#include "gateway/context/connect.h"

#include <dirent.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>
#include <zmq.h>

#include "gateway/context/attach_internal.h"
#include "gateway/context/connect_internal.h"
#include "tests/unit/context/core_rig.h"

enum {
    WAIT_MS = 30000,
    PARTS = 4,
    BUFFERS = 4,
    UNREAD = 5000, /* requests whose replies are more than sockets and libzmq hold */
};

typedef struct client {
    rig_t *rig;
    kg_connection_t *connection;
    kg_wire_key_t key;
    char iopub[256];
    void *zmq;
    void *shell;
    unsigned replies;
    unsigned want_replies;
    uint64_t want_dropped;
} client_t;

/* Whoever reads, another message is one of nobody. */
static void open_client(client_t *c, rig_t *rig, kg_sandbox_t *sbx, int rcvhwm)
{
    static const kg_connect_opts_t opts = {.key_id = "local", .may_restart = true};
    json_t *answer = NULL;
    kg_err_t err = {0};
    const int none = 0;
    *c = (client_t){.rig = rig};
    assert_int_equal(kg_context_connect(main_context(sbx), &opts, &answer, &err), 0);
    const char *key = str_of(answer, "connection.key");
    assert_int_equal(kg_wire_key_set(&c->key, key, strlen(key)), 0);
    c->connection = rig->core->connections->prev; /* the newest */
    char endpoint[256];
    (void)snprintf(endpoint, sizeof(endpoint), "ipc://%s-%d", str_of(answer, "connection.ip"),
                   (int)int_of(answer, "connection.shell_port"));
    (void)snprintf(c->iopub, sizeof(c->iopub), "ipc://%s-%d", str_of(answer, "connection.ip"),
                   (int)int_of(answer, "connection.iopub_port"));
    json_decref(answer);
    c->zmq = zmq_ctx_new();
    c->shell = zmq_socket(c->zmq, ZMQ_DEALER);
    assert_int_equal(zmq_setsockopt(c->shell, ZMQ_SNDHWM, &none, sizeof(none)), 0);
    assert_int_equal(zmq_setsockopt(c->shell, ZMQ_LINGER, &none, sizeof(none)), 0);
    assert_int_equal(zmq_setsockopt(c->shell, ZMQ_RCVHWM, &rcvhwm, sizeof(rcvhwm)), 0);
    assert_int_equal(zmq_connect(c->shell, endpoint), 0);
}

static void close_client(client_t *c)
{
    zmq_close(c->shell);
    zmq_ctx_term(c->zmq);
}

static void send_parts(client_t *c, const char *header, const kg_slice_t *buffers, size_t count)
{
    char signature[KG_WIRE_SIG_LEN + 1];
    const kg_slice_t parts[PARTS] = {kg_slice_cstr(header), kg_slice_cstr("{}"),
                                     kg_slice_cstr("{}"), kg_slice_cstr("{}")};
    kg_wire_sign(&c->key, parts, signature);
    zmq_send(c->shell, "<IDS|MSG>", 9, ZMQ_SNDMORE);
    zmq_send(c->shell, signature, KG_WIRE_SIG_LEN, ZMQ_SNDMORE);
    for (size_t i = 0; i < PARTS; i++) {
        zmq_send(c->shell, parts[i].data, parts[i].len,
                 i + 1 < PARTS || count > 0 ? ZMQ_SNDMORE : 0);
    }
    for (size_t i = 0; i < count; i++) {
        zmq_send(c->shell, buffers[i].data, buffers[i].len, i + 1 < count ? ZMQ_SNDMORE : 0);
    }
}

static void ask(client_t *c, const char *msg_type, unsigned number)
{
    char header[128];
    (void)snprintf(header, sizeof(header), "{\"msg_id\":\"%u\",\"msg_type\":\"%s\"}", number,
                   msg_type);
    send_parts(c, header, NULL, 0);
}

/* Whole messages that have come; a reply's last part tells how it went. */
static unsigned read_replies(client_t *c, char *ret_content, size_t cap)
{
    unsigned count = 0;
    for (;;) {
        int more = 1;
        size_t len = sizeof(more);
        while (more) {
            int n = zmq_recv(c->shell, ret_content, cap - 1, ZMQ_DONTWAIT);
            if (n < 0) {
                return count;
            }
            ret_content[(size_t)n < cap ? (size_t)n : cap - 1] = '\0';
            assert_int_equal(zmq_getsockopt(c->shell, ZMQ_RCVMORE, &more, &len), 0);
        }
        count++;
    }
}

static bool has_replies(void *arg)
{
    client_t *c = arg;
    char content[4096];
    c->replies += read_replies(c, content, sizeof(content));
    return c->replies >= c->want_replies;
}

static void await_replies(client_t *c, unsigned count)
{
    c->want_replies = count;
    rig_until(c->rig, has_replies, c, WAIT_MS);
}

static bool has_dropped(void *arg)
{
    const client_t *c = arg;
    return c->connection->dropped >= c->want_dropped;
}

static void await_dropped(client_t *c, uint64_t count)
{
    c->want_dropped = count;
    rig_until(c->rig, has_dropped, c, WAIT_MS);
    assert_int_equal(c->connection->dropped, count);
}

/* The same bytes twice are dropped, until so many others came in between. */
static void signatures_are_known_up_to_a_bound(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t c;
    open_client(&c, rig, sbx, 0);
    ask(&c, "kernel_info_request", 1);
    await_replies(&c, 1);
    ask(&c, "kernel_info_request", 1);
    await_dropped(&c, 1);
    for (unsigned i = 0; i < KG_CONNECTION_SEEN - 1; i++) {
        ask(&c, "", i); /* nobody can be answered */
    }
    await_dropped(&c, KG_CONNECTION_SEEN);
    ask(&c, "kernel_info_request", 1); /* the oldest that is known */
    await_dropped(&c, KG_CONNECTION_SEEN + 1);
    ask(&c, "", UINT32_MAX);
    await_dropped(&c, KG_CONNECTION_SEEN + 2);
    assert_int_equal(c.replies, 1);
    ask(&c, "kernel_info_request", 1);
    await_replies(&c, 2);
    close_client(&c);
    drop(rig, sbx);
}

static void messages_are_bounded_in_bytes(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t c;
    static const char one[] = "{\"msg_id\":\"1\",\"msg_type\":\"kernel_info_request\"}";
    static const char two[] = "{\"msg_id\":\"2\",\"msg_type\":\"kernel_info_request\"}";
    const size_t quarter = KG_CONNECTION_MESSAGE_MAX / BUFFERS;
    /* An identity that libzmq makes has five bytes. */
    const size_t beside = 5 + 9 + KG_WIRE_SIG_LEN + sizeof(one) - 1 + 6; /* three times {} */
    KG_AUTO_FREE char *bytes = calloc(1, quarter);
    assert_non_null(bytes);
    kg_slice_t buffers[BUFFERS];
    for (size_t i = 0; i < BUFFERS; i++) {
        buffers[i] = kg_slice(bytes, quarter);
    }
    open_client(&c, rig, sbx, 0);
    buffers[0].len = quarter - beside;
    send_parts(&c, one, buffers, BUFFERS);
    await_replies(&c, 1);
    assert_int_equal(c.connection->dropped, 0);
    buffers[0].len++;
    send_parts(&c, two, buffers, BUFFERS);
    await_dropped(&c, 1);
    assert_int_equal(c.replies, 1);
    close_client(&c);
    drop(rig, sbx);
}

static uint64_t sent_replies(const client_t *c)
{
    return kg_zchan_sent(c->connection->sockets[KG_CHANNEL_SHELL].zchan);
}

static bool all_are_answered(void *arg)
{
    const client_t *c = arg;
    return sent_replies(c) + c->connection->lost == UNREAD;
}

/* Replies that are not read cost no more than what libzmq holds for one peer; the client is
 * forgotten, and known again when it asks for something new. */
static void unread_replies_are_lost_and_counted(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t c;
    open_client(&c, rig, sbx, 1);
    for (unsigned i = 0; i < UNREAD; i++) {
        ask(&c, "no_such_request", i);
    }
    rig_until(rig, all_are_answered, &c, WAIT_MS);
    assert_in_range(c.connection->lost, 1, UNREAD - 1);
    assert_int_equal(kg_zchan_queued(c.connection->sockets[KG_CHANNEL_SHELL].zchan), 0);
    unsigned sent = (unsigned)sent_replies(&c);
    await_replies(&c, sent); /* what was under way */
    ask(&c, "no_such_request", UNREAD);
    await_replies(&c, sent + 1);
    assert_int_equal(c.connection->dropped, 0);
    assert_int_equal(c.connection->peer_count, 1);
    close_client(&c);
    drop(rig, sbx);
}

static void state_directory_with_a_long_path(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    static const kg_connect_opts_t opts = {.key_id = "local"};
    const char *usual = rig->core->config.state_dir;
    char path[256];
    json_t *answer = NULL;
    kg_err_t err = {0};
    (void)snprintf(path, sizeof(path), "%s/%0100d", usual, 0);
    assert_int_equal(mkdir(path, 0700), 0);
    rig->core->config.state_dir = path;
    assert_true(kg_context_connect(main_context(sbx), &opts, &answer, &err) < 0);
    rig->core->config.state_dir = usual;
    assert_int_equal(err.code, KG_ERR_NOT_SUPPORTED);
    assert_null(answer);
    assert_int_equal(rig->core->connection_count, 0);
    assert_int_equal(kg_context_attached(main_context(sbx)), 0);
    assert_int_equal(main_context(sbx)->bridge->count, 0);
    drop(rig, sbx);
}

static size_t open_fds(void)
{
    size_t count = 0;
    DIR *dir = opendir("/proc/self/fd");
    assert_non_null(dir);
    while (readdir(dir)) { // NOLINT(concurrency-mt-unsafe): own stream
        count++;
    }
    (void)closedir(dir);
    return count;
}

/* ZMTP 3.0: a greeting, READY of a SUB socket, and its subscription to all. */
static const char zmtp_greeting[64] = "\377\0\0\0\0\0\0\0\1\177\3\0NULL";
static const char zmtp_ready[] = "\4\31\5READY\13Socket-Type\0\0\0\3SUB";
static const char zmtp_subscribe[] = "\0\1\1";

/* A subscriber that comes and goes while the loop does not run: libzmq's own thread serves it. When
 * the loop hears of it, its socket is closed. */
static void subscribe_and_leave(const client_t *c)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t before = open_fds();
    size_t got = 0;
    char answer[256];
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    (void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s", c->iopub + strlen("ipc://"));
    assert_int_equal(connect(fd, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(write(fd, zmtp_greeting, sizeof(zmtp_greeting)), sizeof(zmtp_greeting));
    assert_int_equal(write(fd, zmtp_ready, sizeof(zmtp_ready) - 1), sizeof(zmtp_ready) - 1);
    while (got <= sizeof(zmtp_greeting)) { /* and its READY */
        ssize_t n = read(fd, answer, sizeof(answer));
        assert_true(n > 0);
        got += (size_t)n;
    }
    assert_int_equal(write(fd, zmtp_subscribe, sizeof(zmtp_subscribe) - 1), 3);
    close(fd);
    uint64_t limit = kg_now_ns() + kg_ms(WAIT_MS);
    while (open_fds() > before && kg_now_ns() < limit) {
        sched_yield();
    }
    assert_int_equal(open_fds(), before);
}

static bool has_welcome(void *arg)
{
    char part[512];
    int n = zmq_recv(arg, part, sizeof(part), ZMQ_DONTWAIT);
    return n > 0 && memmem(part, (size_t)n, "iopub_welcome", strlen("iopub_welcome"));
}

/* Those who have gone before they were heard of take nobody's place. */
static void subscribers_that_left_at_once_are_none(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t c;
    open_client(&c, rig, sbx, 0);
    ask(&c, "kernel_info_request", 1);
    await_replies(&c, 1); /* nothing is opened beside any more */
    for (unsigned i = 0; i < KG_CONNECTION_PEERS; i++) {
        subscribe_and_leave(&c);
    }
    void *sub = zmq_socket(c.zmq, ZMQ_SUB);
    assert_int_equal(zmq_setsockopt(sub, ZMQ_SUBSCRIBE, "", 0), 0);
    assert_int_equal(zmq_connect(sub, c.iopub), 0);
    rig_until(rig, has_welcome, sub, WAIT_MS);
    assert_int_equal(c.connection->subscriber_count, 1);
    zmq_close(sub);
    close_client(&c);
    drop(rig, sbx);
}

/* A core that goes with connections in it: no file is left. */
static void core_that_is_destroyed_removes_files(void **state)
{
    rig_t *rig = the_rig(state);
    kg_sandbox_t *sbx = rig_sandbox(rig);
    client_t c;
    open_client(&c, rig, sbx, 0);
    ask(&c, "kernel_info_request", 1);
    await_replies(&c, 1);
    char file[KG_SBX_PATH_MAX];
    memcpy(file, c.connection->file, sizeof(file));
    struct stat st;
    assert_int_equal(stat(file, &st), 0);
    rig_stop(rig);
    assert_int_equal(stat(file, &st), -1);
    assert_int_equal(errno, ENOENT);
    close_client(&c);
    rig_start(rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(signatures_are_known_up_to_a_bound),
        cmocka_unit_test(messages_are_bounded_in_bytes),
        cmocka_unit_test(unread_replies_are_lost_and_counted),
        cmocka_unit_test(state_directory_with_a_long_path),
        cmocka_unit_test(subscribers_that_left_at_once_are_none),
        cmocka_unit_test(core_that_is_destroyed_removes_files),
    };
    return cmocka_run_group_tests(tests, group_setup, group_teardown);
}
