/* sandal-init by itself: who may talk to it, roles, what a lost keeper and a lost gateway mean. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fanotify.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init_sock.h"
#include "gateway/sandbox/seqsock.h"
#include "tests/unit/sandbox/init_rig.h"

static uint32_t spawn(kg_init_rig_t *rig, int sock, uint64_t token, const char *script)
{
    int pid = init_rig_sh(rig, sock, token, 0, script, NULL, NULL);
    assert_true(pid > 0);
    return (uint32_t)pid;
}

static void expect_exit(int sock, uint64_t token, int code)
{
    kg_ip_reply_t reply;
    assert_true(init_rig_recv(sock, &reply));
    assert_int_equal(reply.head.verb, KG_IP_EXIT);
    assert_int_equal(reply.exit.token, token);
    assert_int_equal(WEXITSTATUS(reply.exit.status), code);
}

static void first_frame_must_be_hello(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    kg_ip_request_t r;
    kg_ip_reply_t reply;

    init_rig_start(&rig, 0, 60);
    int sock = init_rig_connect(&rig);
    size_t fixed = kg_ip_request_init(&r, KG_IP_REPORT, 0, 0);
    init_rig_send(&rig, sock, &r, fixed, NULL, 0);
    assert_false(init_rig_recv(sock, &reply)); /* closed */
    close(sock);
    sock = init_rig_connect(&rig);
    fixed = kg_ip_request_init(&r, KG_IP_HELLO, 0, 0);
    r.hello.role = 3;
    init_rig_send(&rig, sock, &r, fixed, NULL, 0);
    assert_false(init_rig_recv(sock, &reply));
    close(sock);
    close(init_rig_hello(&rig, KG_IP_ROLE_GATEWAY));
    init_rig_stop(&rig, true);
}

static void silent_connections_are_few(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    kg_ip_reply_t reply;
    int socks[8];

    init_rig_start(&rig, 0, 60);
    for (int i = 0; i < 8; i++) {
        socks[i] = init_rig_connect(&rig);
    }
    int sock = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    assert_false(init_rig_recv(socks[0], &reply)); /* the oldest made room */
    for (int i = 0; i < 8; i++) {
        close(socks[i]);
    }
    close(sock);
    init_rig_stop(&rig, true);
}

static void connect_knows_who_listens(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    init_rig_start(&rig, 0, 60);
    close(init_rig_connect(&rig));
    assert_int_equal(kg_init_sock_connect(rig.sock_path, getpid(), 0), -EPERM);
    init_rig_stop(&rig, true);
    assert_int_equal(kg_init_sock_connect("/nowhere", getpid(), 10), -ETIMEDOUT);
    assert_int_equal(kg_init_sock_connect("/nowhere", rig.pid, 10000), -ESRCH);
}

static void ports_are_reached_without_pacing(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    kg_rig_frame_t f;
    kg_ip_request_t r;
    uint16_t port;
    char name[16] = {0};
    socklen_t len = sizeof(name);
    init_rig_start(&rig, 0, 60);
    int sock = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    int server = init_rig_listen(&port);
    size_t fixed = kg_ip_request_init(&r, KG_IP_CONNECT, 0, 0);
    r.connect.port = port;
    init_rig_send(&rig, sock, &r, fixed, NULL, 0);
    assert_true(init_rig_recv_frame(sock, &f));
    assert_int_equal(f.reply.head.verb, KG_IP_CONNECT);
    assert_int_equal(f.reply.files.error, 0);
    assert_int_equal(f.fd_count, 1);
    assert_int_equal(getsockopt(f.fds[0], IPPROTO_TCP, TCP_CONGESTION, name, &len), 0);
    assert_string_equal(name, "reno");
    close(f.fds[0]);
    close(server);
    close(sock);
    init_rig_stop(&rig, true);
}

/* As the sandbox's own user code, which may find the socket's name. */
static void strangers_are_turned_away(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    int status = -1;

    if (geteuid() != 0) {
        skip(); /* same user: as documented */
    }
    init_rig_start(&rig, 0, 60);
    int mine = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    assert_int_equal(chmod(rig.sock_path, 0666), 0);
    pid_t pid = fork();
    if (pid == 0) {
        kg_ip_reply_t reply;
        if (setresuid(rig.uid, rig.uid, rig.uid) < 0) {
            _exit(1);
        }
        int sock = kg_init_sock_connect(rig.sock_path, rig.pid, 1000);
        _exit(sock >= 0 && !init_rig_recv(sock, &reply) ? 0 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    (void)spawn(&rig, mine, 1, "exit 0"); /* the gateway's is untouched */
    close(mine);
    init_rig_stop(&rig, true);
}

static void new_gateway_replaces_the_old(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    kg_ip_reply_t reply;

    init_rig_start(&rig, 0, 60);
    int old = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    (void)spawn(&rig, old, 7, "exit 5");
    expect_exit(old, 7, 5);
    int sock = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    assert_false(init_rig_recv(old, &reply));
    expect_exit(sock, 7, 5); /* nobody has acknowledged it */
    close(old);
    close(sock);
    init_rig_stop(&rig, true);
}

static void orphan_ends_with_all_it_has(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    init_rig_start(&rig, 0, 0);
    int keeper = init_rig_hello(&rig, KG_IP_ROLE_KEEPER);
    int gateway = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    pid_t pid = (pid_t)spawn(&rig, gateway, 1, "sleep 1000");
    close(gateway);
    gateway = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY); /* lives on without a gateway */
    int second = init_rig_hello(&rig, KG_IP_ROLE_KEEPER);
    close(keeper); /* was replaced: doesn't count */
    close(init_rig_hello(&rig, KG_IP_ROLE_GATEWAY));
    assert_true(init_rig_lives(&rig));
    close(second);
    init_rig_stop(&rig, false);
    assert_int_equal(kill(pid, 0), -1);
    close(gateway);
}

static void orphan_waits_for_another_keeper(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    init_rig_start(&rig, 0, 3600);
    close(init_rig_hello(&rig, KG_IP_ROLE_KEEPER));
    close(init_rig_hello(&rig, KG_IP_ROLE_GATEWAY));
    int keeper = init_rig_hello(&rig, KG_IP_ROLE_KEEPER);
    assert_true(init_rig_lives(&rig));
    close(keeper);
    init_rig_stop(&rig, true);
}

/* ---- what outlives a gateway ---- */

static void send_token(kg_init_rig_t *rig, int sock, kg_ip_verb_t verb, uint64_t token)
{
    kg_ip_request_t r;
    size_t fixed = kg_ip_request_init(&r, verb, 0, 0);
    r.token.token = token;
    init_rig_send(rig, sock, &r, fixed, NULL, 0);
}

static void exits_wait_for_the_next_gateway(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    kg_rig_frame_t f;

    init_rig_start(&rig, 0, 60);
    int sock = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    assert_true(init_rig_sh(&rig, sock, 5, KG_IP_SPAWN_LAST_WORDS,
                            "/usr/bin/python3 -c 'import os, struct\n"
                            "os.pwrite(3, b\"words\", 4096)\n"
                            "os.pwrite(3, struct.pack(\"IIQ\", 0, 5, 0), 0)'; exit 9",
                            NULL, NULL) > 0);
    assert_true(init_rig_recv_frame(sock, &f));
    assert_int_equal(f.reply.head.verb, KG_IP_EXIT);
    assert_int_equal(f.fd_count, 1);
    kg_closep(&f.fds[0]);
    close(sock);
    sock = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    assert_true(init_rig_recv_frame(sock, &f)); /* once more, with what came along */
    assert_int_equal(f.reply.head.verb, KG_IP_EXIT);
    assert_int_equal(f.reply.exit.token, 5);
    assert_int_equal(f.fd_count, 1);
    kg_closep(&f.fds[0]);
    send_token(&rig, sock, KG_IP_ATTACH, 5);
    assert_true(init_rig_recv_frame(sock, &f));
    assert_int_equal(f.reply.head.verb, KG_IP_ATTACH);
    assert_int_equal(f.reply.spawned.error, 0);
    kg_closep(&f.fds[0]);
    expect_exit(sock, 5, 9); /* and again for who attaches */
    send_token(&rig, sock, KG_IP_ACK, 5);
    send_token(&rig, sock, KG_IP_ATTACH, 5);
    assert_true(init_rig_recv_frame(sock, &f));
    assert_int_equal(f.reply.spawned.error, -ESRCH);
    close(sock);
    init_rig_stop(&rig, true);
}

static void attached_process_is_the_same(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    kg_rig_frame_t f;

    init_rig_start(&rig, 0, 60);
    int sock = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    int pid = (int)spawn(&rig, sock, 3, "exec sleep 1000");
    close(sock);
    sock = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    send_token(&rig, sock, KG_IP_ATTACH, 3);
    assert_true(init_rig_recv_frame(sock, &f));
    assert_int_equal(f.reply.spawned.pid, pid);
    assert_int_equal(f.reply.spawned.fds, KG_IP_FD_PIDFD);
    assert_int_equal(syscall(SYS_pidfd_send_signal, f.fds[0], SIGKILL, NULL, 0), 0);
    close(f.fds[0]);
    assert_true(init_rig_recv_frame(sock, &f));
    assert_int_equal(f.reply.head.verb, KG_IP_EXIT);
    close(sock);
    init_rig_stop(&rig, true);
}

/* What a kernel prints while no gateway is there waits for the next one. */
static void attached_kernel_has_its_pipes(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    kg_rig_frame_t f;
    char text[16] = "";

    init_rig_start(&rig, 0, 60);
    int sock = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    assert_true(init_rig_sh(&rig, sock, 3, KG_IP_SPAWN_LAST_WORDS,
                            "trap '' PIPE; while [ ! -e go ]; do sleep 0.01; done; echo later; "
                            "exec sleep 1000",
                            NULL, NULL) > 0);
    close(sock);
    sock = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    for (int i = 0; i < 2; i++) { /* each gateway gets them */
        send_token(&rig, sock, KG_IP_ATTACH, 3);
        assert_true(init_rig_recv_frame(sock, &f));
        assert_int_equal(f.reply.spawned.fds, 2 | KG_IP_FD_PIDFD);
        assert_int_equal(f.fd_count, 2);
        if (i == 0) {
            kg_closep(&f.fds[0]);
            kg_closep(&f.fds[1]);
        }
    }
    assert_true(init_rig_sh(&rig, sock, 4, 0, "touch go", NULL, NULL) > 0);
    struct pollfd p = {.fd = f.fds[0], .events = POLLIN};
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_int_equal(read(f.fds[0], text, sizeof(text)), 6);
    assert_memory_equal(text, "later\n", 6);
    kg_closep(&f.fds[0]);
    kg_closep(&f.fds[1]);
    close(sock);
    init_rig_stop(&rig, true);
}

/* Without descriptors left an attach fails: half of a kernel would be silent for ever. */
static void attach_without_descriptors_is_an_error(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    kg_rig_frame_t f;
    struct rlimit usual;

    init_rig_start(&rig, 0, 60);
    int sock = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    assert_true(init_rig_sh(&rig, sock, 3, KG_IP_SPAWN_LAST_WORDS, "exec sleep 1000", NULL, NULL) >
                0);
    assert_int_equal(prlimit(rig.pid, RLIMIT_NOFILE, NULL, &usual), 0);
    struct rlimit none_left = {KG_INIT_FD_RUN_DIR + 1, usual.rlim_max};
    assert_int_equal(prlimit(rig.pid, RLIMIT_NOFILE, &none_left, NULL), 0);
    for (int i = 0; i < 2; i++) { /* it goes on: poll(2) is held to that limit too */
        send_token(&rig, sock, KG_IP_ATTACH, 3);
        assert_true(init_rig_recv_frame(sock, &f));
        assert_int_equal(f.reply.spawned.error, -EMFILE);
        assert_int_equal(f.fd_count, 0);
    }
    assert_int_equal(prlimit(rig.pid, RLIMIT_NOFILE, &usual, NULL), 0);
    send_token(&rig, sock, KG_IP_ATTACH, 3);
    assert_true(init_rig_recv_frame(sock, &f));
    assert_int_equal(f.reply.spawned.error, 0);
    assert_int_equal(f.reply.spawned.fds, 2 | KG_IP_FD_PIDFD);
    kg_closep(&f.fds[0]);
    kg_closep(&f.fds[1]);
    close(sock);
    init_rig_stop(&rig, true);
}

static size_t count_entries(const kg_init_rig_t *rig, const char *name)
{
    char path[128];
    size_t count = 0;
    (void)snprintf(path, sizeof(path), "%s/%s", rig->dir, name);
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir)) {
        count++;
    }
    closedir(dir);
    return count - 2;
}

static void temporary_files_go_with_their_gateway(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    kg_rig_frame_t f;
    char kept[128];
    const struct timespec nap = {.tv_nsec = 10000000};

    init_rig_start(&rig, 0, 60);
    int sock = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    for (int i = 0; i < KG_IP_TEMPS_MAX; i++) {
        init_rig_path(&rig, sock, KG_IP_OPEN, "/workspace/f", NULL, KG_IP_FS_TEMPORARY, &f);
        assert_int_equal(f.reply.files.error, 0);
        (void)snprintf(kept, sizeof(kept), "%s", f.tail);
        kg_closep(&f.fds[0]);
    }
    init_rig_path(&rig, sock, KG_IP_OPEN, "/workspace/f", NULL, KG_IP_FS_TEMPORARY, &f);
    assert_int_equal(f.reply.files.error, -EUSERS);
    init_rig_path(&rig, sock, KG_IP_PUT_IN_PLACE, kept, "/workspace/kept", 0, &f);
    assert_int_equal(f.reply.files.error, 0);
    assert_int_equal(count_entries(&rig, "workspace"), KG_IP_TEMPS_MAX);
    close(sock);
    sock = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    for (int i = 0; i < 1000 && count_entries(&rig, "workspace") > 1; i++) {
        nanosleep(&nap, NULL);
    }
    assert_int_equal(count_entries(&rig, "workspace"), 1);
    init_rig_path(&rig, sock, KG_IP_STAT, "/workspace/kept", NULL, 0, &f);
    assert_int_equal(f.reply.files.error, 0);
    close(sock);
    init_rig_stop(&rig, true);
}

static void read_all(int fd, char *ret_text, size_t cap)
{
    size_t len = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 20000), 1);
        ssize_t n = read(fd, ret_text + len, cap - 1 - len);
        assert_true(n >= 0);
        if (n == 0) {
            break;
        }
        len += (size_t)n;
    }
    ret_text[len] = '\0';
    close(fd);
}

/* As many as may be at work: all held up in opening a file that fanotify lets nobody have. */
static void stuck_requests_hold_nothing_else_up(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    kg_rig_frame_t f;
    char path[128];
    char text[16];
    int out = -1;

    init_rig_start(&rig, 0, 60);
    (void)snprintf(path, sizeof(path), "%s/workspace/stuck", rig.dir);
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(fchmod(fd, 0666), 0);
    close(fd);
    int gate = fanotify_init(FAN_CLASS_CONTENT | FAN_CLOEXEC, O_RDONLY);
    if (gate < 0 || fanotify_mark(gate, FAN_MARK_ADD, FAN_OPEN_PERM, AT_FDCWD, path) < 0) {
        init_rig_stop(&rig, true);
        skip(); /* needs root, and a kernel that has it */
    }
    int sock = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    for (int i = 0; i < KG_IP_JOBS_MAX; i++) {
        init_rig_path(&rig, sock, KG_IP_OPEN, "/workspace/stuck", NULL, KG_IP_FS_READ, NULL);
    }
    init_rig_path(&rig, sock, KG_IP_STAT, "/workspace", NULL, 0, &f); /* no place for it */
    assert_int_equal(f.reply.files.error, -EUSERS);
    assert_true(init_rig_sh(&rig, sock, 1, 0, "echo alive", &out, NULL) > 0);
    read_all(out, text, sizeof(text));
    assert_string_equal(text, "alive\n");
    expect_exit(sock, 1, 0);
    close(gate); /* lets all of them through */
    for (int i = 0; i < KG_IP_JOBS_MAX; i++) {
        assert_true(init_rig_recv_frame(sock, &f));
        assert_int_equal(f.reply.head.verb, KG_IP_OPEN);
        assert_int_equal(f.reply.files.error, 0);
        kg_closep(&f.fds[0]);
    }
    init_rig_path(&rig, sock, KG_IP_STAT, "/workspace", NULL, 0, &f);
    assert_int_equal(f.reply.files.error, 0);
    close(sock);
    init_rig_stop(&rig, true);
}

static void signals_of_the_sandbox_miss_file_requests(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    kg_rig_frame_t f;
    int out = -1;
    char byte;

    if (geteuid() != 0) {
        skip(); /* same user: as documented */
    }
    init_rig_start(&rig, 0, 60);
    int sock = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    assert_true(init_rig_sh(&rig, sock, 1, 0, "while :; do kill -9 -1; echo; done", &out, NULL) >
                0);
    for (int i = 0; i < 100; i++) {
        struct pollfd p = {.fd = out, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 20000), 1); /* it is at it */
        assert_int_equal(read(out, &byte, 1), 1);
        init_rig_path(&rig, sock, KG_IP_STAT, "/workspace", NULL, 0, &f);
        assert_int_equal(f.reply.files.error, 0);
    }
    close(out);
    close(sock);
    init_rig_stop(&rig, true);
}

static void no_root_where_there_is_none(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    kg_rig_frame_t f;
    init_rig_start(&rig, 0, 60);
    int sock = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    assert_int_equal(init_rig_sh(&rig, sock, 1, KG_IP_SPAWN_ROOT, "id", NULL, NULL), -ENOTSUP);
    init_rig_path(&rig, sock, KG_IP_STAT, "/workspace", NULL, KG_IP_FS_ROOT, &f);
    assert_int_equal(f.reply.files.error, -EPERM);
    close(sock);
    init_rig_stop(&rig, true);
}

static void bad_frames_are_refused_and_cost_nothing(void **state)
{
    (void)state;
    kg_init_rig_t rig;
    kg_rig_frame_t f;
    kg_ip_reply_t reply;
    kg_ip_request_t r;
    char *big = calloc(1, KG_IP_FRAME_MAX + 100);

    init_rig_start(&rig, 0, 60);
    int sock = init_rig_hello(&rig, KG_IP_ROLE_GATEWAY);
    assert_int_equal(kg_seq_send(sock, "junk", 4, NULL, 0), 0);
    assert_true(init_rig_recv(sock, &reply));
    assert_int_equal(reply.head.verb, KG_IP_REFUSED);
    assert_int_equal(kg_seq_send(sock, big, KG_IP_FRAME_MAX + 100, NULL, 0), 0);
    assert_true(init_rig_recv(sock, &reply));
    assert_int_equal(reply.head.verb, KG_IP_REFUSED);
    size_t fixed = kg_ip_request_init(&r, KG_IP_STAT, 0, 9);
    init_rig_send(&rig, sock, &r, fixed, "relative", 9);
    assert_true(init_rig_recv(sock, &reply));
    assert_int_equal(reply.head.verb, KG_IP_REFUSED);
    assert_int_equal(reply.head.seq, rig.seq);
    const int fds[4] = {0, 1, 2, sock}; /* descriptors that nobody asked for */
    (void)kg_ip_request_init(&r, KG_IP_REPORT, 77, 0);
    assert_int_equal(kg_seq_send(sock, &r, sizeof(r.head), fds, 4), 0);
    assert_true(init_rig_recv(sock, &reply));
    assert_int_equal(reply.head.verb, KG_IP_REPORT);
    init_rig_path(&rig, sock, KG_IP_STAT, "/workspace", NULL, 0, &f);
    assert_int_equal(f.reply.files.error, 0);
    fixed = kg_ip_request_init(&r, KG_IP_HELLO, 78, 0);
    r.hello.role = KG_IP_ROLE_KEEPER; /* roles are for good */
    assert_int_equal(kg_seq_send(sock, &r, fixed, NULL, 0), 0);
    assert_true(init_rig_recv(sock, &reply));
    assert_int_equal(reply.result.error, -EPROTO);
    free(big);
    close(sock);
    init_rig_stop(&rig, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(first_frame_must_be_hello),
        cmocka_unit_test(silent_connections_are_few),
        cmocka_unit_test(connect_knows_who_listens),
        cmocka_unit_test(ports_are_reached_without_pacing),
        cmocka_unit_test(strangers_are_turned_away),
        cmocka_unit_test(new_gateway_replaces_the_old),
        cmocka_unit_test(orphan_ends_with_all_it_has),
        cmocka_unit_test(orphan_waits_for_another_keeper),
        cmocka_unit_test(exits_wait_for_the_next_gateway),
        cmocka_unit_test(attached_process_is_the_same),
        cmocka_unit_test(attached_kernel_has_its_pipes),
        cmocka_unit_test(attach_without_descriptors_is_an_error),
        cmocka_unit_test(temporary_files_go_with_their_gateway),
        cmocka_unit_test(stuck_requests_hold_nothing_else_up),
        cmocka_unit_test(signals_of_the_sandbox_miss_file_requests),
        cmocka_unit_test(no_root_where_there_is_none),
        cmocka_unit_test(bad_frames_are_refused_and_cost_nothing),
    };
    (void)signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests_name("sandal-init", tests, NULL, NULL);
}
