/* The keeper against a gateway that misbehaves, and as its parent: raw frames, crashes, stops. The
 * gateway of these tests is this program itself, called with a first argument. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "gateway/sandbox/init_proto.h"
#include "gateway/sandbox/keeper_proto.h"
#include "gateway/sandbox/seqsock.h"
#include "tests/unit/sandbox/harness.h"

#define ID_A "sbx-tests000000000000001"

/* ---- a raw client ---- */

static kg_kp_reply_t receive(int sock, int *ret_fd)
{
    kg_kp_reply_t raw;
    kg_kp_reply_t reply;
    int fds[KG_SEQ_FDS_MAX] = {-1, -1, -1, -1};
    size_t count = 0;
    size_t len = 0;
    struct pollfd p = {.fd = sock, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_int_equal(kg_seq_recv(sock, &raw, sizeof(raw), &len, fds, &count), 0);
    assert_true(len > 0);
    assert_int_equal(kg_kp_reply_decode(&raw, len, &reply), 0);
    if (ret_fd) {
        *ret_fd = fds[0];
    } else if (count > 0) {
        close(fds[0]);
    }
    return reply;
}

/* ---- sandal-init, raw ---- */

static kg_ip_reply_t init_receive(int sock)
{
    kg_ip_reply_t raw;
    kg_ip_reply_t reply;
    int fds[KG_SEQ_FDS_MAX];
    size_t count = 0;
    size_t len = 0;
    struct pollfd p = {.fd = sock, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 10000), 1);
    assert_int_equal(kg_seq_recv(sock, &raw, sizeof(raw), &len, fds, &count), 0);
    for (size_t i = 0; i < count; i++) {
        close(fds[i]);
    }
    assert_int_equal(kg_ip_reply_decode(&raw, len, &reply), 0);
    return reply;
}

/* Makes this test the gateway of a sandbox. */
static void init_hello(int sock)
{
    kg_ip_request_t r;
    size_t size = kg_ip_request_init(&r, KG_IP_HELLO, 2, 0);
    r.hello.role = KG_IP_ROLE_GATEWAY;
    assert_int_equal(kg_seq_send(sock, &r, size, NULL, 0), 0);
    assert_int_equal(init_receive(sock).head.verb, KG_IP_HELLO);
}

static kg_kp_reply_t
ask(int sock, kg_kp_request_t *r, kg_kp_verb_t verb, const char *id, int *ret_fd)
{
    kg_kp_request_t request;
    size_t size = kg_kp_request_init(&request, verb, 5);
    if (r) {
        memcpy((char *)&request + sizeof(request.head), (char *)r + sizeof(r->head),
               size - sizeof(request.head));
    }
    if (id) { /* the same place in CREATE and KILL */
        (void)snprintf(request.kill.id, sizeof(request.kill.id), "%s", id);
    }
    if (verb == KG_KP_CREATE) {
        (void)snprintf(request.create.launcher, sizeof(request.create.launcher), "none");
    }
    assert_int_equal(kg_seq_send(sock, &request, size, NULL, 0), 0);
    return receive(sock, ret_fd);
}

typedef struct kg_raw {
    kg_harness_t h;
    int sock;
    pid_t pid;
} kg_raw_t;

static int raw_setup(void **state)
{
    kg_raw_t *raw = calloc(1, sizeof(*raw));
    harness_init(&raw->h);
    kg_keeper_private_t opts = {
        .keeper_exe = raw->h.keeper_exe,
        .init_exe = raw->h.init_exe,
        .state_dir = raw->h.state,
        .runtime_dir = raw->h.runtime,
        .uid_base = HARNESS_UID_BASE,
        .uid_count = HARNESS_UID_COUNT,
    };
    assert_int_equal(kg_keeper_start_private(&opts, &raw->pid, &raw->sock), 0);
    *state = raw;
    return 0;
}

static int raw_teardown(void **state)
{
    kg_raw_t *raw = *state;
    int status = -1;
    close(raw->sock);
    if (raw->pid > 0) {
        assert_int_equal(waitpid(raw->pid, &status, 0), raw->pid);
        assert_int_equal(status, 0);
    }
    harness_fini(&raw->h);
    free(raw);
    return 0;
}

static void malformed_frames_are_refused_and_hurt_nothing(void **state)
{
    kg_raw_t *raw = *state;
    char junk[400];
    kg_kp_request_t r;

    memset(junk, 'x', sizeof(junk));
    for (size_t len = 1; len < sizeof(junk); len += 7) {
        assert_int_equal(kg_seq_send(raw->sock, junk, len, NULL, 0), 0);
        kg_kp_reply_t reply = receive(raw->sock, NULL);
        assert_int_equal(reply.head.verb, KG_KP_REFUSED);
        assert_int_equal(reply.refused.status.code, KG_ERR_INVALID_FRAME);
    }
    size_t size = kg_kp_request_init(&r, KG_KP_HELLO, 9);
    r.head.version = KG_KP_VERSION + 1;
    assert_int_equal(kg_seq_send(raw->sock, &r, size, NULL, 0), 0);
    assert_int_equal(receive(raw->sock, NULL).head.verb, KG_KP_REFUSED);
    kg_kp_reply_t reply = ask(raw->sock, NULL, KG_KP_HELLO, NULL, NULL);
    assert_int_equal(reply.hello.keeper_pid, raw->pid);
}

static void nothing_goes_before_hello(void **state)
{
    kg_raw_t *raw = *state;
    assert_int_equal(ask(raw->sock, NULL, KG_KP_CREATE, ID_A, NULL).head.verb, KG_KP_REFUSED);
    assert_int_equal(ask(raw->sock, NULL, KG_KP_HELLO, NULL, NULL).head.verb, KG_KP_HELLO);
}

static void descriptors_sent_along_are_dropped(void **state)
{
    kg_raw_t *raw = *state;
    kg_kp_request_t r;
    int fds[4] = {0, 1, 2, 0};
    assert_int_equal(ask(raw->sock, NULL, KG_KP_HELLO, NULL, NULL).head.verb, KG_KP_HELLO);
    size_t before = harness_open_fds(raw->pid);
    for (int i = 0; i < 50; i++) {
        size_t size = kg_kp_request_init(&r, KG_KP_LAUNCHER_TABLE, 9);
        assert_int_equal(kg_seq_send(raw->sock, &r, size, fds, 4), 0);
        assert_int_equal(receive(raw->sock, NULL).head.verb, KG_KP_LAUNCHER_TABLE);
    }
    assert_int_equal(harness_open_fds(raw->pid), before);
}

static void foreign_ids_and_limits_are_refused(void **state)
{
    kg_raw_t *raw = *state;
    kg_kp_request_t r = {0};
    int sock = -1;
    assert_int_equal(ask(raw->sock, NULL, KG_KP_HELLO, NULL, NULL).head.verb, KG_KP_HELLO);
    kg_kp_reply_t reply = ask(raw->sock, NULL, KG_KP_KILL, "sbx-nobody000000000000", NULL);
    assert_int_equal(reply.kill.status.code, KG_ERR_SANDBOX_NOT_FOUND);
    r.create.limits.memory_bytes = UINT64_C(1) << 30;
    reply = ask(raw->sock, &r, KG_KP_CREATE, ID_A, NULL);
    assert_int_equal(reply.create.status.code, KG_ERR_NOT_SUPPORTED); /* never in silence */
    reply = ask(raw->sock, NULL, KG_KP_LIST, NULL, NULL);
    assert_int_equal(reply.list.total, 0);
    reply = ask(raw->sock, NULL, KG_KP_CREATE, ID_A, &sock);
    assert_int_equal(reply.create.status.code, 0);
    assert_true(sock >= 0);
    reply = ask(raw->sock, NULL, KG_KP_LIST, NULL, NULL);
    assert_int_equal(reply.list.count, 1);
    assert_string_equal(reply.list.rows[0].id, ID_A);
    reply = ask(raw->sock, NULL, KG_KP_KILL, ID_A, NULL);
    assert_int_equal(reply.kill.status.code, 0);
    reply = ask(raw->sock, NULL, KG_KP_KILL, ID_A, NULL);
    assert_int_equal(reply.kill.status.code, KG_ERR_SANDBOX_NOT_FOUND);
    close(sock);
}

static void foreign_directory_is_a_conflict_and_stays(void **state)
{
    kg_raw_t *raw = *state;
    char path[256];
    kg_kp_request_t r = {.create.flags = KG_KP_CREATE_REUSE};
    assert_int_equal(ask(raw->sock, NULL, KG_KP_HELLO, NULL, NULL).head.verb, KG_KP_HELLO);
    (void)snprintf(path, sizeof(path), "%s/sandboxes/%s", raw->h.state, ID_A);
    assert_int_equal(mkdir(path, 0755), 0);
    assert_int_equal(ask(raw->sock, &r, KG_KP_CREATE, ID_A, NULL).create.status.code,
                     KG_ERR_CONFLICT);
    assert_int_equal(access(path, F_OK), 0);
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(symlink("/tmp", path), 0);
    assert_int_equal(ask(raw->sock, &r, KG_KP_CREATE, ID_A, NULL).create.status.code,
                     KG_ERR_CONFLICT);
    assert_int_equal(unlink(path), 0);
}

static void gateway_that_reads_nothing_stalls_itself_alone(void **state)
{
    kg_raw_t *raw = *state;
    kg_kp_request_t r;
    int sent = 0;
    assert_int_equal(ask(raw->sock, NULL, KG_KP_HELLO, NULL, NULL).head.verb, KG_KP_HELLO);
    for (int i = 0; i < 20000; i++) {
        size_t size = kg_kp_request_init(&r, KG_KP_LIST, 9);
        struct pollfd p = {.fd = raw->sock, .events = POLLOUT};
        if (kg_seq_send(raw->sock, &r, size, NULL, 0) == 0) {
            sent++;
        } else if (poll(&p, 1, 200) == 0) {
            break;
        }
    }
    assert_true(sent < 20000);
    assert_true(harness_rss_kib(raw->pid) < UINT64_C(65536));
    for (int i = 0; i < sent; i++) {
        assert_int_equal(receive(raw->sock, NULL).head.verb, KG_KP_LIST);
    }
}

static kg_ip_reply_t init_token(int sock, kg_ip_verb_t verb, uint64_t token)
{
    kg_ip_request_t r;
    size_t size = kg_ip_request_init(&r, verb, 3, 0);
    r.token.token = token;
    if (verb == KG_IP_SIGNAL) {
        r.signal.signo = SIGKILL;
    }
    assert_int_equal(kg_seq_send(sock, &r, size, NULL, 0), 0);
    return init_receive(sock);
}

static int init_spawn(int sock, uint64_t token, const char *program)
{
    char frame[256];
    kg_ip_request_t r;
    size_t tail = strlen(program) + 2;
    size_t fixed = kg_ip_request_init(&r, KG_IP_SPAWN, 4, tail);
    r.spawn.token = token;
    r.spawn.argc = 1;
    memcpy(frame, &r, fixed);
    memset(frame + fixed, 0, tail);
    memcpy(frame + fixed, program, strlen(program));
    assert_int_equal(kg_seq_send(sock, frame, fixed + tail, NULL, 0), 0);
    kg_ip_reply_t reply = init_receive(sock);
    assert_int_equal(reply.head.verb, KG_IP_SPAWN);
    return reply.spawned.error;
}

static void init_refuses_bad_frames_and_keeps_exits(void **state)
{
    kg_raw_t *raw = *state;
    int sock = -1;
    kg_ip_request_t r;
    assert_int_equal(ask(raw->sock, NULL, KG_KP_HELLO, NULL, NULL).head.verb, KG_KP_HELLO);
    assert_int_equal(ask(raw->sock, NULL, KG_KP_CREATE, ID_A, &sock).create.status.code, 0);
    init_hello(sock);
    assert_int_equal(kg_seq_send(sock, "junk", 4, NULL, 0), 0);
    assert_int_equal(init_receive(sock).head.verb, KG_IP_REFUSED);
    kg_ip_reply_t reply = init_token(sock, KG_IP_USAGE, 99);
    assert_int_equal(reply.usage.error, -ESRCH);
    assert_int_equal(init_token(sock, KG_IP_SIGNAL, 99).result.error, -ESRCH);
    assert_int_equal(init_token(sock, KG_IP_KILL_TREE, 99).result.error, -ESRCH);
    assert_int_equal(init_spawn(sock, 1, "/bin/true"), 0);
    reply = init_receive(sock);
    assert_int_equal(reply.head.verb, KG_IP_EXIT);
    assert_int_equal(reply.exit.token, 1);
    assert_int_equal(init_spawn(sock, 1, "/bin/true"), -EEXIST); /* not acknowledged: still there */
    size_t size = kg_ip_request_init(&r, KG_IP_REPORT, 8, 0);
    assert_int_equal(kg_seq_send(sock, &r, size, NULL, 0), 0);
    reply = init_receive(sock);
    assert_int_equal(reply.report.count, 1);
    assert_int_equal(reply.report.rows[0].token, 1);
    assert_int_equal(reply.report.rows[0].ended, 1);
    size = kg_ip_request_init(&r, KG_IP_ACK, 8, 0);
    r.token.token = 1;
    assert_int_equal(kg_seq_send(sock, &r, size, NULL, 0), 0);
    size = kg_ip_request_init(&r, KG_IP_REPORT, 8, 0);
    assert_int_equal(kg_seq_send(sock, &r, size, NULL, 0), 0);
    assert_int_equal(init_receive(sock).report.count, 0);
    assert_int_equal(ask(raw->sock, NULL, KG_KP_KILL, ID_A, NULL).kill.status.code, 0);
    close(sock);
}

/* ---- the keeper as parent ---- */

typedef struct kg_parent {
    kg_harness_t h;
    char report[128];
    pid_t pid;
} kg_parent_t;

static void
start_parent(kg_parent_t *p, const char *mode, const char *user, const char *stop_timeout)
{
    char copy[128];
    char base[32];
    char count[32];
    (void)snprintf(p->report, sizeof(p->report), "%s/report", p->h.dir);
    (void)snprintf(copy, sizeof(copy), "%s/gateway", p->h.dir);
    if (access(copy, F_OK) < 0) {
        harness_copy("/proc/self/exe", copy);
    }
    int fd = open(p->report, O_CREAT | O_WRONLY | O_CLOEXEC, 0666);
    assert_int_equal(fchmod(fd, 0666), 0);
    close(fd);
    (void)snprintf(base, sizeof(base), "%u", HARNESS_UID_BASE);
    (void)snprintf(count, sizeof(count), "%u", HARNESS_UID_COUNT);
    p->pid = fork();
    if (p->pid == 0) {
        execl(p->h.keeper_exe, "sandal-keeper", "--gateway-exe", copy, "--init-exe", p->h.init_exe,
              "--state-dir", p->h.state, "--runtime-dir", p->h.runtime, "--gateway-user", user,
              "--uid-base", base, "--uid-count", count, "--stop-timeout", stop_timeout, "--",
              "gateway-of-test", mode, p->report, (char *)NULL);
        _exit(126);
    }
}

static int parent_setup(void **state)
{
    kg_parent_t *p = calloc(1, sizeof(*p));
    harness_init(&p->h);
    *state = p;
    return 0;
}

static int parent_teardown(void **state)
{
    kg_parent_t *p = *state;
    harness_fini(&p->h);
    free(p);
    return 0;
}

static int wait_exit(pid_t pid)
{
    int status = -1;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

/* Lines that the gateways have written so far; waits for as many as wanted. */
static size_t read_report(kg_parent_t *p, size_t wanted, char *text, size_t cap)
{
    const struct timespec pause = {.tv_nsec = 10000000};
    for (int i = 0; i < 1500; i++) {
        size_t lines = 0;
        int fd = open(p->report, O_RDONLY | O_CLOEXEC);
        ssize_t n = read(fd, text, cap - 1);
        close(fd);
        text[n > 0 ? n : 0] = '\0';
        for (ssize_t c = 0; c < n; c++) {
            lines += text[c] == '\n';
        }
        if (lines >= wanted) {
            return lines;
        }
        nanosleep(&pause, NULL);
    }
    fail_msg("report: only \"%s\"", text);
    return 0;
}

static void gateway_code_is_the_keepers(void **state)
{
    kg_parent_t *p = *state;
    start_parent(p, "exit7", "", "5");
    assert_int_equal(wait_exit(p->pid), 7);
}

static void gateway_crash_leaves_sandboxes_to_the_next_one(void **state)
{
    kg_parent_t *p = *state;
    char text[1024];
    int pids[5];
    start_parent(p, "crash-once", "", "5");
    /* "init sleeper" of the first life, then "again gateway init listed" of the second. */
    (void)read_report(p, 2, text, sizeof(text));
    assert_int_equal(
        sscanf(text, "%d %d\nagain %d %d %d", &pids[0], &pids[1], &pids[2], &pids[3], &pids[4]), 5);
    assert_int_equal(pids[3], pids[0]); /* attached to the same sandal-init */
    assert_int_equal(pids[4], 1);
    assert_true(harness_alive(pids[0]));
    assert_true(harness_alive(pids[1]));
    assert_true(harness_alive(pids[2]));
    assert_int_equal(kill(p->pid, SIGTERM), 0);
    assert_int_equal(wait_exit(p->pid), 128 + SIGTERM);
    assert_false(harness_alive(pids[0]));
    assert_false(harness_alive(pids[1]));
    assert_false(harness_alive(pids[2]));
}

static void gateway_that_fails_leaves_sandboxes_to_the_next_keeper(void **state)
{
    kg_parent_t *p = *state;
    char text[1024];
    int pids[5];
    start_parent(p, "fail-once", "", "5");
    assert_int_equal(wait_exit(p->pid), 7);
    start_parent(p, "fail-once", "", "5");
    (void)read_report(p, 2, text, sizeof(text));
    assert_int_equal(
        sscanf(text, "%d %d\nagain %d %d %d", &pids[0], &pids[1], &pids[2], &pids[3], &pids[4]), 5);
    assert_int_equal(pids[3], pids[0]); /* attached to the same sandal-init */
    assert_true(harness_alive(pids[0]));
    assert_true(harness_alive(pids[1]));
    assert_int_equal(kill(p->pid, SIGTERM), 0);
    assert_int_equal(wait_exit(p->pid), 128 + SIGTERM);
    assert_false(harness_alive(pids[0]));
    assert_false(harness_alive(pids[1]));
}

static void gateway_that_keeps_crashing_is_given_up(void **state)
{
    kg_parent_t *p = *state;
    char text[1024];
    start_parent(p, "crash", "", "5");
    assert_int_equal(wait_exit(p->pid), 1);
    assert_int_equal(read_report(p, 6, text, sizeof(text)), 6); /* the first, and five more */
}

static void stop_waits_for_the_gateway_then_ends_sandboxes(void **state)
{
    kg_parent_t *p = *state;
    char text[256];
    int pids[2];
    start_parent(p, "drain", "", "20");
    (void)read_report(p, 1, text, sizeof(text));
    assert_int_equal(sscanf(text, "%d %d", &pids[0], &pids[1]), 2);
    assert_int_equal(kill(p->pid, SIGHUP), 0);
    (void)read_report(p, 2, text, sizeof(text));
    assert_non_null(strstr(text, "hup\n"));
    assert_int_equal(kill(p->pid, SIGTERM), 0);
    assert_int_equal(wait_exit(p->pid), 5); /* the gateway's own, after it has drained */
    (void)read_report(p, 3, text, sizeof(text));
    assert_non_null(strstr(text, "drained\n"));
    assert_false(harness_alive(pids[0]));
    assert_false(harness_alive(pids[1]));
}

static void stop_timeout_kills_a_stubborn_gateway(void **state)
{
    kg_parent_t *p = *state;
    char text[256];
    start_parent(p, "stubborn", "", "1");
    (void)read_report(p, 1, text, sizeof(text));
    assert_int_equal(kill(p->pid, SIGINT), 0);
    assert_int_equal(wait_exit(p->pid), 128 + SIGKILL);
}

static void gateway_has_no_rights(void **state)
{
    kg_parent_t *p = *state;
    char text[2048];
    if (geteuid() != 0 || !getpwnam("nobody")) { // NOLINT(concurrency-mt-unsafe)
        skip();
    }
    start_parent(p, "rights", "nobody", "5");
    assert_int_equal(wait_exit(p->pid), 0);
    (void)read_report(p, 1, text, sizeof(text));
    assert_non_null(strstr(text, "Uid:\t65534\t65534\t65534\t65534\n"));
    assert_non_null(strstr(text, "Groups:\t \n"));
    assert_non_null(strstr(text, "CapInh:\t0000000000000000\n"));
    assert_non_null(strstr(text, "CapPrm:\t0000000000000000\n"));
    assert_non_null(strstr(text, "CapEff:\t0000000000000000\n"));
    assert_non_null(strstr(text, "CapBnd:\t0000000000000000\n"));
    assert_non_null(strstr(text, "NoNewPrivs:\t1\n"));
    assert_non_null(strstr(text, "fds 0123\n"));
}

static void bad_options_are_named(void **state)
{
    kg_parent_t *p = *state;
    const char *rows[][3] = {
        {"--uid-base", "0", NULL},
        {"--uid-base", "x", NULL},
        {"--uid-count", "65535", NULL},
        {"--stop-timeout", "-1", NULL},
        {"--nonsense", NULL, NULL},
        {"--log-level", "loud", NULL},
        {NULL, NULL, NULL},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        pid_t pid = fork();
        if (pid == 0) {
            int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
            dup2(null, 2);
            execl(p->h.keeper_exe, "sandal-keeper", rows[i][0], rows[i][1], (char *)NULL);
            _exit(126);
        }
        assert_int_equal(wait_exit(pid), 2);
    }
}

static void long_runtime_directory_is_refused(void **state)
{
    kg_parent_t *p = *state;
    (void)snprintf(p->h.runtime, sizeof(p->h.runtime), "/tmp/%060d", 0);
    start_parent(p, "exit7", "", "5");
    assert_int_equal(wait_exit(p->pid), 1);
    (void)rmdir(p->h.runtime);
}

static void second_keeper_on_one_state_is_refused(void **state)
{
    kg_parent_t *p = *state;
    char text[64];
    start_parent(p, "stubborn", "", "0");
    (void)read_report(p, 1, text, sizeof(text));
    pid_t first = p->pid;
    start_parent(p, "exit7", "", "5");
    assert_int_equal(wait_exit(p->pid), 1);
    assert_int_equal(kill(first, SIGTERM), 0);
    assert_int_equal(wait_exit(first), 128 + SIGKILL);
}

static void second_keeper_on_the_same_uids_is_refused(void **state)
{
    kg_parent_t *p = *state;
    char text[64];
    if (geteuid() != 0) {
        skip();
    }
    start_parent(p, "stubborn", "", "0");
    (void)read_report(p, 1, text, sizeof(text));
    pid_t first = p->pid;
    (void)snprintf(p->h.state, sizeof(p->h.state), "%s/other", p->h.dir);
    start_parent(p, "exit7", "", "5");
    assert_int_equal(wait_exit(p->pid), 1);
    assert_int_equal(kill(first, SIGTERM), 0);
    assert_int_equal(wait_exit(first), 128 + SIGKILL);
    start_parent(p, "exit7", "", "5"); /* free again */
    assert_int_equal(wait_exit(p->pid), 7);
}

/* ---- this program as the gateway ---- */

static void report_line(const char *path, const char *line)
{
    int fd = open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
    (void)!write(fd, line, strlen(line));
    close(fd);
}

/* Makes a sandbox with a sleeper by raw frames; returns its init's and the sleeper's pid as a line.
 */
static void make_sandbox(char *ret_line, size_t cap)
{
    char frame[256];
    const char tail[] = "sh\0-c\0sleep 1000\0PATH=/usr/bin:/bin\0";
    int sock = -1;
    kg_ip_request_t r;
    (void)ask(3, NULL, KG_KP_HELLO, NULL, NULL);
    kg_kp_reply_t made = ask(3, NULL, KG_KP_CREATE, ID_A, &sock);
    init_hello(sock);
    size_t fixed = kg_ip_request_init(&r, KG_IP_SPAWN, 4, sizeof(tail));
    r.spawn.token = 1;
    r.spawn.argc = 3;
    r.spawn.envc = 1;
    memcpy(frame, &r, fixed);
    memcpy(frame + fixed, tail, sizeof(tail));
    (void)kg_seq_send(sock, frame, fixed + sizeof(tail), NULL, 0);
    kg_ip_reply_t spawned = init_receive(sock);
    (void)snprintf(ret_line, cap, "%d %d\n", made.create.init_pid, spawned.spawned.pid);
}

/* The second life: what it finds of the first. */
static void find_sandbox(char *ret_line, size_t cap)
{
    int sock = -1;
    (void)ask(3, NULL, KG_KP_HELLO, NULL, NULL);
    kg_kp_reply_t list = ask(3, NULL, KG_KP_LIST, NULL, NULL);
    kg_kp_reply_t found = ask(3, NULL, KG_KP_ATTACH, ID_A, &sock);
    init_hello(sock);
    (void)snprintf(ret_line, cap, "again %d %d %d\n", (int)getpid(), found.create.init_pid,
                   (int)list.list.total);
}

static void report_rights(const char *report)
{
    char status[4096];
    char text[5000];
    char fds[64] = "";
    size_t at = 0;
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    ssize_t n = read(fd, status, sizeof(status) - 1);
    close(fd);
    status[n > 0 ? n : 0] = '\0';
    for (int i = 0; i < 20; i++) {
        if (fcntl(i, F_GETFD) >= 0) {
            fds[at++] = (char)('0' + i);
        }
    }
    (void)snprintf(text, sizeof(text), "%sfds %s\n", status, fds);
    report_line(report, text);
}

static int drain(const char *report)
{
    char line[64];
    sigset_t set;
    int signo = 0;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGHUP);
    sigprocmask(SIG_BLOCK, &set, NULL);
    make_sandbox(line, sizeof(line));
    report_line(report, line);
    while (signo != SIGTERM) {
        (void)sigwait(&set, &signo);
        if (signo == SIGHUP) {
            report_line(report, "hup\n");
        }
    }
    sleep(1);
    report_line(report, "drained\n");
    return 5;
}

static int gateway_main(const char *mode, const char *report)
{
    char line[64];
    struct stat st;

    if (strcmp(mode, "exit7") == 0) {
        return 7;
    }
    if (strcmp(mode, "rights") == 0) {
        report_rights(report);
        return 0;
    }
    if (strcmp(mode, "drain") == 0) {
        return drain(report);
    }
    bool once = strcmp(mode, "crash-once") == 0 || strcmp(mode, "fail-once") == 0;
    if (once && stat(report, &st) == 0 && st.st_size > 0) {
        find_sandbox(line, sizeof(line));
        report_line(report, line);
        pause(); /* SIGTERM has its default here; the keeper's code for it is 128 + 15 */
    }
    if (once) {
        make_sandbox(line, sizeof(line));
        report_line(report, line);
        if (strcmp(mode, "fail-once") == 0) {
            return 7;
        }
    } else if (strcmp(mode, "stubborn") == 0) {
        (void)signal(SIGTERM, SIG_IGN);
        report_line(report, "up\n");
        for (;;) {
            pause();
        }
    } else {
        report_line(report, "crash\n");
    }
    (void)raise(SIGKILL);
    return 0;
}

static int run(void)
{
#define RAW(name) cmocka_unit_test_setup_teardown(name, raw_setup, raw_teardown)
#define PARENT(name) cmocka_unit_test_setup_teardown(name, parent_setup, parent_teardown)
    const struct CMUnitTest tests[] = {
        RAW(malformed_frames_are_refused_and_hurt_nothing),
        RAW(nothing_goes_before_hello),
        RAW(descriptors_sent_along_are_dropped),
        RAW(foreign_ids_and_limits_are_refused),
        RAW(foreign_directory_is_a_conflict_and_stays),
        RAW(gateway_that_reads_nothing_stalls_itself_alone),
        RAW(init_refuses_bad_frames_and_keeps_exits),
        PARENT(gateway_code_is_the_keepers),
        PARENT(gateway_crash_leaves_sandboxes_to_the_next_one),
        PARENT(gateway_that_fails_leaves_sandboxes_to_the_next_keeper),
        PARENT(gateway_that_keeps_crashing_is_given_up),
        PARENT(stop_waits_for_the_gateway_then_ends_sandboxes),
        PARENT(stop_timeout_kills_a_stubborn_gateway),
        PARENT(gateway_has_no_rights),
        PARENT(bad_options_are_named),
        PARENT(long_runtime_directory_is_refused),
        PARENT(second_keeper_on_one_state_is_refused),
        PARENT(second_keeper_on_the_same_uids_is_refused),
    };
    return cmocka_run_group_tests_name("keeper", tests, NULL, NULL);
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[0], "gateway-of-test") == 0) {
        return gateway_main(argv[1], argv[2]);
    }
    return harness_run_both(run);
}
