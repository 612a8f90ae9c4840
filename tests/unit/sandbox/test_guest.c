/* Two sandal-inits, one for the processes of the other, as with a guest kernel between them; here
 * both have the host's. Then one alone, and the test in the place of the other. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init/init.h"
#include "gateway/sandbox/seqsock.h"
#include "tests/unit/sandbox/init_rig.h"

#define FLOOD 50000U

typedef struct kg_pair_rig {
    kg_init_rig_t outer;
    kg_init_rig_t inner; /* pid 0: the test plays it */
    int link[2];
    int keeper;
    int sock;
} kg_pair_rig_t;

/* Both descriptors as it is to have them, while it is started. */
static void start_with(kg_init_rig_t *rig, uint32_t flag, int link, int oom)
{
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    int old[2];

    (void)fflush(stdout);
    for (int fd = 0; fd < 2; fd++) {
        old[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 100);
    }
    assert_int_equal(dup2(link, KG_INIT_FD_LINK), KG_INIT_FD_LINK);
    assert_int_equal(dup2(oom >= 0 ? oom : null, KG_INIT_FD_OOM), KG_INIT_FD_OOM);
    init_rig_start(rig, flag, 20);
    for (int fd = 0; fd < 2; fd++) {
        if (old[fd] >= 0) {
            assert_int_equal(dup2(old[fd], fd), fd);
            close(old[fd]);
        } else {
            close(fd);
        }
    }
    close(null);
}

static void start_watched(kg_pair_rig_t *p, bool both, int oom)
{
    memset(p, 0, sizeof(*p));
    assert_int_equal(kg_seq_pair(p->link), 0);
    start_with(&p->outer, KG_INIT_FLAG_GUEST, p->link[0], oom);
    kg_closep(&p->link[0]);
    if (both) {
        start_with(&p->inner, KG_INIT_FLAG_INNER, p->link[1], -1);
        kg_closep(&p->link[1]);
    }
    p->keeper = init_rig_hello(&p->outer, KG_IP_ROLE_KEEPER);
    p->sock = init_rig_hello(&p->outer, KG_IP_ROLE_GATEWAY);
}

static void start(kg_pair_rig_t *p, bool both)
{
    start_watched(p, both, -1);
}

/* Both end, the second by the end of the first. */
static void stop(kg_pair_rig_t *p)
{
    init_rig_stop(&p->outer, true);
    if (p->inner.pid > 0) {
        init_rig_stop(&p->inner, false);
    }
    kg_closep(&p->link[1]);
    kg_closep(&p->keeper);
    kg_closep(&p->sock);
}

static void ask_sh(kg_pair_rig_t *p, uint64_t token, uint32_t flags, const char *script)
{
    static const char head[] = "/bin/sh\0-c";
    static const char env[] = "PATH=/usr/bin:/bin";
    kg_ip_request_t r;
    char tail[1024] = {0};
    size_t len = sizeof(head);

    memcpy(tail, head, len);
    memcpy(tail + len, script, strlen(script) + 1);
    len += strlen(script) + 1;
    memcpy(tail + len, env, sizeof(env));
    len += sizeof(env) + 1; /* and an empty cwd */
    size_t fixed = kg_ip_request_init(&r, KG_IP_SPAWN, 0, len);
    r.spawn.token = token;
    r.spawn.argc = 3;
    r.spawn.envc = 1;
    r.spawn.flags = flags;
    if (flags & KG_IP_SPAWN_PTY) {
        r.spawn.columns = r.spawn.rows = 10;
    }
    init_rig_send(&p->outer, p->sock, &r, fixed, tail, len);
}

static void ask_token(kg_pair_rig_t *p, kg_ip_verb_t verb, uint64_t token)
{
    kg_ip_request_t r;
    size_t fixed = kg_ip_request_init(&r, verb, 0, 0);
    r.token.token = token;
    init_rig_send(&p->outer, p->sock, &r, fixed, NULL, 0);
}

static void answer(kg_pair_rig_t *p, kg_rig_frame_t *f, kg_ip_verb_t verb)
{
    assert_true(init_rig_recv_frame(p->sock, f));
    assert_int_equal(f->reply.head.verb, verb);
    if (verb != KG_IP_EXIT) {
        assert_int_equal(f->reply.head.seq, p->outer.seq);
    }
}

static void read_all(int fd, char *text, size_t cap)
{
    size_t len = 0;
    ssize_t n = 1;
    while (n > 0 && len < cap - 1) {
        struct pollfd pfd = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&pfd, 1, 20000), 1);
        n = read(fd, text + len, cap - 1 - len);
        len += n > 0 ? (size_t)n : 0;
    }
    text[len] = '\0';
}

static void spawn_has_its_pipes_and_its_end(void **state)
{
    kg_pair_rig_t p;
    kg_rig_frame_t f;
    char text[64];
    (void)state;
    start(&p, true);
    ask_sh(&p, 7, KG_IP_SPAWN_STDIN_PIPE, "cat; echo err >&2; exit 3");
    answer(&p, &f, KG_IP_SPAWN);
    assert_int_equal(f.reply.spawned.error, 0);
    assert_int_equal(f.reply.spawned.token, 7);
    assert_int_equal(f.reply.spawned.fds, KG_IP_FD_STDIN | KG_IP_FD_STDOUT | KG_IP_FD_STDERR);
    assert_int_equal(f.fd_count, 3);
    int fds[3] = {f.fds[0], f.fds[1], f.fds[2]};
    assert_int_equal(write(fds[0], "hello", 5), 5);
    close(fds[0]);
    read_all(fds[1], text, sizeof(text));
    assert_string_equal(text, "hello");
    read_all(fds[2], text, sizeof(text));
    assert_string_equal(text, "err\n");
    answer(&p, &f, KG_IP_EXIT);
    assert_int_equal(f.reply.exit.token, 7);
    assert_true(WIFEXITED(f.reply.exit.status) && WEXITSTATUS(f.reply.exit.status) == 3);

    ask_token(&p, KG_IP_ATTACH, 7); /* as the next gateway would: it is told again */
    answer(&p, &f, KG_IP_ATTACH);
    assert_int_equal(f.reply.spawned.error, 0);
    assert_int_equal(f.fd_count, 0);
    answer(&p, &f, KG_IP_EXIT);
    ask_token(&p, KG_IP_ACK, 7);
    ask_token(&p, KG_IP_USAGE, 7);
    answer(&p, &f, KG_IP_USAGE);
    assert_int_equal(f.reply.usage.error, -ESRCH);
    close(fds[1]);
    close(fds[2]);
    stop(&p);
}

static void forget(const kg_rig_frame_t *f)
{
    for (size_t i = 0; i < f->fd_count; i++) {
        close(f->fds[i]);
    }
}

/* Of a kernel, which is who has last words: each gateway after the first gets its pipes too, with
 * what was written meanwhile, until its end is acknowledged. */
static void pipes_of_a_kernel_are_kept_for_the_next_gateway(void **state)
{
    kg_pair_rig_t p;
    kg_rig_frame_t f;
    char text[64] = {0};
    (void)state;
    start(&p, true);
    ask_sh(&p, 7, KG_IP_SPAWN_LAST_WORDS, "echo out; echo err >&2; exec sleep 1000");
    answer(&p, &f, KG_IP_SPAWN);
    assert_int_equal(f.reply.spawned.fds, KG_IP_FD_STDOUT | KG_IP_FD_STDERR);
    forget(&f);
    for (int round = 0; round < 2; round++) {
        kg_closep(&p.sock);
        p.sock = init_rig_hello(&p.outer, KG_IP_ROLE_GATEWAY);
        ask_token(&p, KG_IP_ATTACH, 7);
        answer(&p, &f, KG_IP_ATTACH);
        assert_int_equal(f.reply.spawned.error, 0);
        assert_int_equal(f.reply.spawned.fds, KG_IP_FD_STDOUT | KG_IP_FD_STDERR);
        assert_int_equal(f.fd_count, 2);
        if (round == 1) {
            break;
        }
        for (int i = 0; i < 2; i++) {
            struct pollfd pfd = {.fd = f.fds[i], .events = POLLIN};
            assert_int_equal(poll(&pfd, 1, 20000), 1);
            assert_int_equal(read(f.fds[i], text, 4), 4);
            assert_string_equal(text, i == 0 ? "out\n" : "err\n");
        }
        forget(&f);
    }
    ask_token(&p, KG_IP_KILL_TREE, 7);
    answer(&p, &f, KG_IP_KILL_TREE);
    answer(&p, &f, KG_IP_EXIT);
    ask_token(&p, KG_IP_ATTACH, 7); /* not yet acknowledged */
    answer(&p, &f, KG_IP_ATTACH);
    assert_int_equal(f.fd_count, 2);
    forget(&f);
    answer(&p, &f, KG_IP_EXIT);
    ask_token(&p, KG_IP_ACK, 7);
    ask_token(&p, KG_IP_ATTACH, 7);
    answer(&p, &f, KG_IP_ATTACH);
    assert_int_equal(f.reply.spawned.error, -ESRCH);
    assert_int_equal(f.fd_count, 0);
    stop(&p);
}

static size_t descriptors(pid_t pid)
{
    char path[64];
    size_t count = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/fd", (int)pid);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir)) { // NOLINT(concurrency-mt-unsafe): one thread
        count++;
    }
    closedir(dir);
    return count;
}

/* It closes its own ends right after it has answered with copies of them. */
static void await_descriptors(pid_t pid, size_t wanted)
{
    for (int tries = 0; descriptors(pid) != wanted && tries < 5000; tries++) {
        (void)poll(NULL, 0, 1);
    }
    assert_int_equal(descriptors(pid), wanted);
}

/* The test answers that all have started, and acknowledges them in the end. */
static void kept_pipes_have_a_limit_and_are_given_back(void **state)
{
    kg_pair_rig_t p;
    kg_rig_frame_t f;
    (void)state;
    start(&p, false);
    size_t before = descriptors(p.outer.pid);
    for (unsigned i = 0; i <= INIT_GUEST_KEPT_MAX; i++) {
        char frame[4096];
        size_t len = 0;
        size_t count = 0;
        int fds[KG_SEQ_FDS_MAX];
        kg_ip_request_t asked = {0};
        kg_ip_reply_t said;
        struct pollfd pfd = {.fd = p.link[1], .events = POLLIN};
        ask_sh(&p, 100 + i, KG_IP_SPAWN_LAST_WORDS, "true");
        assert_int_equal(poll(&pfd, 1, 20000), 1);
        assert_int_equal(kg_seq_recv(p.link[1], frame, sizeof(frame), &len, fds, &count), 0);
        memcpy(&asked, frame, len < sizeof(asked) ? len : sizeof(asked));
        while (count > 0) {
            close(fds[--count]);
        }
        size_t size = kg_ip_reply_init(&said, KG_IP_SPAWN, asked.head.seq);
        said.spawned.token = 100 + i;
        said.spawned.pid = 2;
        assert_int_equal(kg_seq_send(p.link[1], &said, size, NULL, 0), 0);
        answer(&p, &f, KG_IP_SPAWN);
        assert_int_equal(f.fd_count, 2); /* past the limit too: they are only not kept */
        forget(&f);
    }
    await_descriptors(p.outer.pid, before + 2 * INIT_GUEST_KEPT_MAX);
    for (unsigned i = 0; i <= INIT_GUEST_KEPT_MAX; i++) {
        ask_token(&p, KG_IP_ACK, 100 + i);
    }
    init_rig_path(&p.outer, p.sock, KG_IP_MKDIR, "/workspace/d", NULL, 0, &f); /* behind them */
    await_descriptors(p.outer.pid, before);
    stop(&p);
}

static void errors_and_signals_come_through(void **state)
{
    kg_pair_rig_t p;
    kg_rig_frame_t f;
    kg_ip_request_t r;
    (void)state;
    start(&p, true);
    ask_sh(&p, 1, KG_IP_SPAWN_PTY, "true");
    answer(&p, &f, KG_IP_SPAWN);
    assert_int_equal(f.reply.spawned.error, -ENOTSUP);
    assert_int_equal(f.reply.spawned.step, KG_IP_STEP_PIPE);

    ask_sh(&p, 2, KG_IP_SPAWN_MERGE_STDERR, "sleep 1000");
    answer(&p, &f, KG_IP_SPAWN);
    assert_int_equal(f.fd_count, 1);
    close(f.fds[0]);
    size_t fixed = kg_ip_request_init(&r, KG_IP_REPORT, 0, 0);
    init_rig_send(&p.outer, p.sock, &r, fixed, NULL, 0);
    answer(&p, &f, KG_IP_REPORT);
    assert_int_equal(f.reply.report.count, 1);
    assert_int_equal(f.reply.report.rows[0].token, 2);
    fixed = kg_ip_request_init(&r, KG_IP_SIGNAL, 0, 0);
    r.signal.token = 2;
    r.signal.signo = SIGTERM;
    init_rig_send(&p.outer, p.sock, &r, fixed, NULL, 0);
    answer(&p, &f, KG_IP_SIGNAL);
    assert_int_equal(f.reply.result.error, 0);
    answer(&p, &f, KG_IP_EXIT);
    assert_int_equal(f.reply.exit.status, SIGTERM);
    ask_token(&p, KG_IP_KILL_TREE, 99);
    answer(&p, &f, KG_IP_KILL_TREE);
    assert_int_equal(f.reply.result.error, -ESRCH);
    stop(&p);
}

static void connect_to(kg_pair_rig_t *p, uint16_t port, kg_rig_frame_t *f)
{
    kg_ip_request_t r;
    size_t fixed = kg_ip_request_init(&r, KG_IP_CONNECT, 0, 0);
    r.connect.port = port;
    init_rig_send(&p->outer, p->sock, &r, fixed, NULL, 0);
    answer(p, f, KG_IP_CONNECT);
}

static void bytes_of_a_port_are_relayed(void **state)
{
    kg_pair_rig_t p;
    kg_rig_frame_t f;
    uint16_t port;
    char text[64];
    (void)state;
    start(&p, true);
    int server = init_rig_listen(&port);
    connect_to(&p, port, &f);
    assert_int_equal(f.reply.files.error, 0);
    assert_int_equal(f.fd_count, 1);
    int ours = f.fds[0];
    int theirs = accept4(server, NULL, NULL, SOCK_CLOEXEC);
    assert_true(theirs >= 0);
    assert_int_equal(write(ours, "question", 8), 8);
    assert_int_equal(shutdown(ours, SHUT_WR), 0); /* an end of one way leaves the other open */
    read_all(theirs, text, sizeof(text));
    assert_string_equal(text, "question");
    assert_int_equal(write(theirs, "answer", 6), 6);
    close(theirs);
    read_all(ours, text, sizeof(text));
    assert_string_equal(text, "answer");
    close(ours);
    close(server);
    connect_to(&p, port, &f); /* nobody listens now */
    assert_int_equal(f.reply.files.error, -ECONNREFUSED);
    assert_int_equal(f.fd_count, 0);
    stop(&p);
}

static void files_are_the_outer_ones_affair(void **state)
{
    kg_pair_rig_t p;
    kg_rig_frame_t f;
    (void)state;
    start(&p, false); /* nobody there */
    init_rig_path(&p.outer, p.sock, KG_IP_MKDIR, "/workspace/d", NULL, 0, &f);
    assert_int_equal(f.reply.files.error, 0);
    stop(&p);
}

/* Bound, and not yet its user's: asked for again it will be. */
static void a_young_socket_is_not_there_yet(void **state)
{
    kg_pair_rig_t p;
    kg_rig_frame_t f;
    kg_ip_request_t r;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    start(&p, false);
    (void)snprintf(addr.sun_path, sizeof(addr.sun_path), "%s/run/k-1", p.outer.dir);
    int sock = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_int_equal(bind(sock, (struct sockaddr *)&addr, sizeof(addr)), 0);
    assert_int_equal(listen(sock, 1), 0);
    for (int round = 0; round < 2; round++) {
        size_t fixed = kg_ip_request_init(&r, KG_IP_SOCKET_OPEN, 0, 0);
        (void)snprintf(r.name.name, sizeof(r.name.name), "k-1");
        init_rig_send(&p.outer, p.sock, &r, fixed, NULL, 0);
        answer(&p, &f, KG_IP_SOCKET_OPEN);
        assert_int_equal(f.reply.result.error, round == 0 ? -ENOENT : 0);
        assert_int_equal(f.fd_count, round);
        kg_closep(&f.fds[0]);
        assert_int_equal(chown(addr.sun_path, p.outer.uid, p.outer.uid), 0);
    }
    close(sock);
    stop(&p);
}

static void end_of_the_inner_one_is_the_end(void **state)
{
    kg_pair_rig_t p;
    kg_ip_reply_t reply;
    (void)state;
    start(&p, true);
    init_rig_stop(&p.inner, true);
    p.inner.pid = 0;
    assert_false(init_rig_recv(p.sock, &reply));
    init_rig_stop(&p.outer, false);
    close(p.keeper);
    close(p.sock);
}

/* What the memory group of a guest says, of no kill so far. */
static int oom_file(void)
{
    static const char none[] = "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n";
    char path[] = "/tmp/sandal-oom-XXXXXX";
    int oom = mkstemp(path);
    assert_true(oom >= 0);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(pwrite(oom, none, strlen(none), 0), strlen(none));
    return oom;
}

static void count_kill(int oom)
{
    static const char one[] = "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n";
    assert_int_equal(pwrite(oom, one, strlen(one), 0), strlen(one));
}

static void a_guest_out_of_memory_is_the_end(void **state)
{
    kg_pair_rig_t p;
    kg_rig_frame_t f;
    (void)state;
    int oom = oom_file();
    start_watched(&p, true, oom);
    ask_token(&p, KG_IP_USAGE, 5);
    answer(&p, &f, KG_IP_USAGE);
    count_kill(oom);
    assert_false(init_rig_recv_frame(p.sock, &f));
    init_rig_stop(&p.outer, false);
    init_rig_stop(&p.inner, false);
    close(oom);
    close(p.keeper);
    close(p.sock);
}

/* gVisor tells of what the host's kernel has killed as of one that left with a code. It is heard as
 * what it was, or not at all, for the guest ends. */
static void an_end_after_a_kill_for_memory_is_a_kill(void **state)
{
    kg_pair_rig_t p;
    kg_rig_frame_t f;
    kg_ip_reply_t end;
    (void)state;
    int oom = oom_file();
    start_watched(&p, false, oom);
    size_t size = kg_ip_reply_init(&end, KG_IP_EXIT, 0);
    end.exit.token = 7;
    end.exit.status = 1 << 8;
    count_kill(oom);
    assert_int_equal(kg_seq_send(p.link[1], &end, size, NULL, 0), 0);
    assert_true(init_rig_recv_frame(p.sock, &f));
    assert_int_equal(f.reply.head.verb, KG_IP_EXIT);
    assert_true(WIFSIGNALED(f.reply.exit.status));
    assert_int_equal(WTERMSIG(f.reply.exit.status), SIGKILL);
    assert_false(init_rig_recv_frame(p.sock, &f));
    init_rig_stop(&p.outer, false);
    close(p.link[1]);
    close(oom);
    close(p.keeper);
    close(p.sock);
}

/* What whoever has taken over the inner one may say. */
static void unasked_answers_are_dropped(void **state)
{
    kg_pair_rig_t p;
    kg_rig_frame_t f;
    kg_ip_reply_t lie;
    kg_ip_request_t asked = {0};
    char frame[4096];
    size_t len = 0;
    (void)state;
    start(&p, false);
    size_t size = kg_ip_reply_init(&lie, KG_IP_SIGNAL, 12345);
    assert_int_equal(kg_seq_send(p.link[1], &lie, size, NULL, 0), 0);
    ask_token(&p, KG_IP_USAGE, 5);
    struct pollfd pfd = {.fd = p.link[1], .events = POLLIN};
    assert_int_equal(poll(&pfd, 1, 20000), 1);
    assert_int_equal(kg_seq_recv(p.link[1], frame, sizeof(frame), &len, NULL, NULL), 0);
    memcpy(&asked, frame, len < sizeof(asked) ? len : sizeof(asked));
    assert_int_equal(asked.head.verb, KG_IP_USAGE);
    size = kg_ip_reply_init(&lie, KG_IP_SIGNAL, asked.head.seq); /* of another verb */
    assert_int_equal(kg_seq_send(p.link[1], &lie, size, NULL, 0), 0);
    size = kg_ip_reply_init(&lie, KG_IP_USAGE, asked.head.seq);
    lie.usage.processes = 4;
    assert_int_equal(kg_seq_send(p.link[1], &lie, size, NULL, 0), 0);
    answer(&p, &f, KG_IP_USAGE);
    assert_int_equal(f.reply.usage.processes, 4);
    assert_int_equal(kg_seq_send(p.link[1], "nonsense", 8, NULL, 0), 0);
    assert_false(init_rig_recv_frame(p.sock, &f));
    init_rig_stop(&p.outer, false);
    close(p.link[1]);
    close(p.keeper);
    close(p.sock);
}

static void requests_past_the_limit_are_refused(void **state)
{
    kg_pair_rig_t p;
    kg_rig_frame_t f;
    (void)state;
    start(&p, false);
    for (unsigned i = 0; i < INIT_GUEST_WAITS_MAX; i++) {
        ask_token(&p, KG_IP_USAGE, 5);
    }
    ask_token(&p, KG_IP_KILL_TREE, 5);
    answer(&p, &f, KG_IP_KILL_TREE);
    assert_int_equal(f.reply.result.error, -EAGAIN);
    stop(&p);
}

/* Ends that nobody asked for, while the gateway doesn't read: they wait over there. */
static void ends_wait_while_the_gateway_reads_nothing(void **state)
{
    kg_pair_rig_t p;
    kg_rig_frame_t f;
    kg_ip_reply_t end;
    unsigned sent = 0;
    int r = 0;
    (void)state;
    start(&p, false);
    size_t size = kg_ip_reply_init(&end, KG_IP_EXIT, 0);
    assert_int_equal(fcntl(p.link[1], F_SETFL, O_NONBLOCK), 0);
    while (sent < FLOOD) {
        struct pollfd room = {.fd = p.link[1], .events = POLLOUT};
        end.exit.token = sent + 1;
        r = kg_seq_send(p.link[1], &end, size, NULL, 0);
        if (r == -EAGAIN && poll(&room, 1, 500) == 0) {
            break;
        }
        assert_true(r == 0 || r == -EAGAIN);
        sent += r == 0;
    }
    assert_int_equal(r, -EAGAIN);
    for (unsigned i = 0; i < sent; i++) {
        answer(&p, &f, KG_IP_EXIT);
        assert_int_equal(f.reply.exit.token, i + 1);
    }
    stop(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(spawn_has_its_pipes_and_its_end),
        cmocka_unit_test(pipes_of_a_kernel_are_kept_for_the_next_gateway),
        cmocka_unit_test(kept_pipes_have_a_limit_and_are_given_back),
        cmocka_unit_test(errors_and_signals_come_through),
        cmocka_unit_test(bytes_of_a_port_are_relayed),
        cmocka_unit_test(files_are_the_outer_ones_affair),
        cmocka_unit_test(a_young_socket_is_not_there_yet),
        cmocka_unit_test(end_of_the_inner_one_is_the_end),
        cmocka_unit_test(a_guest_out_of_memory_is_the_end),
        cmocka_unit_test(an_end_after_a_kill_for_memory_is_a_kill),
        cmocka_unit_test(unasked_answers_are_dropped),
        cmocka_unit_test(requests_past_the_limit_are_refused),
        cmocka_unit_test(ends_wait_while_the_gateway_reads_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
