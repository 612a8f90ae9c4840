#include "tests/unit/sandbox/init_rig.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init_sock.h"
#include "gateway/sandbox/seqsock.h"

#define RIG_UID_BASE 0x1C000000U

static void make_dirs(const kg_init_rig_t *rig)
{
    static const char *const names[] = {"workspace", "home", "run"};
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        char path[128];
        (void)snprintf(path, sizeof(path), "%s/%s", rig->dir, names[i]);
        assert_int_equal(mkdir(path, 0700), 0);
        if (geteuid() == 0) {
            assert_int_equal(chown(path, rig->uid, rig->uid), 0);
        }
    }
}

static void
say_numbers(const kg_init_rig_t *rig, uint32_t flags, unsigned orphan_s, char args[5][16])
{
    uid_t uid = flags & KG_INIT_FLAG_HAS_ROOT ? 1000 : rig->uid;
    (void)snprintf(args[0], 16, "%u", uid);
    (void)snprintf(args[1], 16, "%u", uid);
    (void)snprintf(args[2], 16, "%u", geteuid() == 0 ? uid + 1 : 0);
    (void)snprintf(args[3], 16, "%u", flags);
    (void)snprintf(args[4], 16, "%u", orphan_s);
}

static _Noreturn void
become_init(const kg_init_rig_t *rig, int sock, uint32_t flags, unsigned orphan_s)
{
    char args[5][16];
    char exe[512];
    char path[128];
    const char *build = getenv("SANDAL_BUILD_DIR");

    (void)snprintf(exe, sizeof(exe), "%s/sandal-init", build ? build : ".");
    say_numbers(rig, flags, orphan_s, args);
    (void)snprintf(path, sizeof(path), "%s/run", rig->dir);
    int dir = open(path, O_RDONLY | O_DIRECTORY);
    sock = fcntl(sock, F_DUPFD, 10);
    dir = fcntl(dir, F_DUPFD, 10);
    (void)snprintf(path, sizeof(path), "%s/workspace", rig->dir);
    if (dir < 0 || dup2(sock, KG_INIT_FD_LISTEN) < 0 || dup2(dir, KG_INIT_FD_RUN_DIR) < 0 ||
        chdir(path) < 0) {
        _exit(98);
    }
    (void)setsid();
    execl(exe, "sandal-init", "sbx-tests", args[0], args[1], args[2], args[3], args[4], NULL);
    _exit(99);
}

static void write_map(pid_t pid, const char *file, uid_t base)
{
    char path[64];
    char text[64];
    (void)snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    int len = snprintf(text, sizeof(text), "0 %u 65536\n", base);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_int_equal(write(fd, text, (size_t)len), len);
    close(fd);
}

/* In a child: namespaces, then the first process in them, whose number goes to `report`. */
static _Noreturn void
enter(const kg_init_rig_t *rig, int sock, uint32_t flags, unsigned orphan_s, int go, int report)
{
    char byte;
    char home[96];
    (void)snprintf(home, sizeof(home), "%s/home", rig->dir);
    if (unshare(CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID) < 0 || write(report, "u", 1) != 1 ||
        read(go, &byte, 1) != 1 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0) {
        _exit(97);
    }
    pid_t pid = fork();
    if (pid == 0) {
        if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
            mount("proc", "/proc", "proc", 0, NULL) < 0 ||
            mount("none", home, "tmpfs", 0, "mode=777") < 0) {
            _exit(96);
        }
        become_init(rig, sock, flags, orphan_s);
    }
    _exit(write(report, &pid, sizeof(pid)) == (ssize_t)sizeof(pid) ? 0 : 95);
}

static pid_t start_inside(const kg_init_rig_t *rig, int sock, uint32_t flags, unsigned orphan_s)
{
    int go[2];
    int report[2];
    char byte;
    pid_t pid = 0;

    assert_int_equal(pipe2(go, O_CLOEXEC), 0);
    assert_int_equal(pipe2(report, O_CLOEXEC), 0);
    assert_int_equal(prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
    pid_t middle = fork();
    if (middle == 0) {
        enter(rig, sock, flags, orphan_s, go[0], report[1]);
    }
    assert_int_equal(read(report[0], &byte, 1), 1);
    write_map(middle, "uid_map", rig->base);
    write_map(middle, "gid_map", rig->base);
    assert_int_equal(write(go[1], "g", 1), 1);
    assert_int_equal(read(report[0], &pid, sizeof(pid)), sizeof(pid));
    assert_int_equal(waitpid(middle, NULL, 0), middle);
    for (int i = 0; i < 2; i++) {
        close(go[i]);
        close(report[i]);
    }
    return pid;
}

void init_rig_start(kg_init_rig_t *rig, uint32_t flags, unsigned orphan_s)
{
    memset(rig, 0, sizeof(*rig));
    rig->base = RIG_UID_BASE + (unsigned)getpid() % 64 * 65536;
    rig->uid = geteuid() == 0 ? rig->base + 1000 : geteuid();
    (void)snprintf(rig->dir, sizeof(rig->dir), "/tmp/sandal-init-XXXXXX");
    assert_non_null(mkdtemp(rig->dir));
    assert_int_equal(chmod(rig->dir, 0711), 0);
    (void)snprintf(rig->sock_path, sizeof(rig->sock_path), "%s/init.sock", rig->dir);
    make_dirs(rig);
    int sock = kg_init_sock_bind(rig->sock_path);
    assert_true(sock >= 0);
    if (flags & KG_INIT_FLAG_HAS_ROOT) {
        rig->pid = start_inside(rig, sock, flags, orphan_s);
        rig->inner_pid = 1;
        close(sock);
        return;
    }
    rig->pid = fork();
    if (rig->pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL); /* a test that fails leaves nothing behind */
        become_init(rig, sock, flags, orphan_s);
    }
    rig->inner_pid = rig->pid;
    close(sock);
}

void init_rig_stop(kg_init_rig_t *rig, bool kill_it)
{
    int status = -1;
    int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (kill_it) {
        (void)kill(rig->pid, SIGKILL);
    }
    assert_int_equal(waitpid(rig->pid, &status, 0), rig->pid);
    assert_true(kill_it || (WIFEXITED(status) && WEXITSTATUS(status) == 0));
    assert_int_equal(kg_fs_remove_tree(tmp, rig->dir + strlen("/tmp/")), 0);
    close(tmp);
}

bool init_rig_lives(const kg_init_rig_t *rig)
{
    siginfo_t info = {0};
    return waitid(P_PID, (id_t)rig->pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == 0;
}

int init_rig_connect(kg_init_rig_t *rig)
{
    int fd = kg_init_sock_connect(rig->sock_path, rig->pid, 10000);
    assert_true(fd >= 0);
    return fd;
}

int init_rig_hello(kg_init_rig_t *rig, uint32_t role)
{
    kg_ip_request_t request;
    kg_ip_reply_t reply;
    int sock = init_rig_connect(rig);
    size_t fixed = kg_ip_request_init(&request, KG_IP_HELLO, 0, 0);

    request.hello.role = role;
    init_rig_send(rig, sock, &request, fixed, NULL, 0);
    assert_true(init_rig_recv(sock, &reply));
    assert_int_equal(reply.head.verb, KG_IP_HELLO);
    assert_int_equal(reply.result.error, 0);
    assert_int_equal(reply.result.pid, rig->inner_pid);
    return sock;
}

void init_rig_send(kg_init_rig_t *rig,
                   int sock,
                   kg_ip_request_t *request,
                   size_t fixed,
                   const void *tail,
                   size_t tail_len)
{
    char frame[4096];
    request->head.seq = ++rig->seq;
    assert_true(fixed + tail_len <= sizeof(frame));
    memcpy(frame, request, fixed);
    if (tail_len > 0) {
        memcpy(frame + fixed, tail, tail_len);
    }
    assert_int_equal(kg_seq_send(sock, frame, fixed + tail_len, NULL, 0), 0);
}

bool init_rig_recv_frame(int sock, kg_rig_frame_t *f)
{
    struct pollfd p = {.fd = sock, .events = POLLIN};
    size_t len = 0;

    for (size_t i = 0; i < KG_ARRAY_LEN(f->fds); i++) {
        f->fds[i] = -1;
    }
    assert_int_equal(poll(&p, 1, 20000), 1);
    int r = kg_seq_recv(sock, f->raw, sizeof(f->raw), &len, f->fds, &f->fd_count);
    if (r == -EPIPE || (r == 0 && len == 0)) {
        return false;
    }
    assert_int_equal(r, 0);
    assert_int_equal(kg_ip_reply_decode_tail(f->raw, len, &f->reply, &f->tail, &f->tail_len), 0);
    return true;
}

bool init_rig_recv(int sock, kg_ip_reply_t *ret_reply)
{
    kg_rig_frame_t frame;
    if (!init_rig_recv_frame(sock, &frame)) {
        return false;
    }
    for (size_t i = 0; i < frame.fd_count; i++) {
        close(frame.fds[i]);
    }
    *ret_reply = frame.reply;
    return true;
}

int init_rig_sh(kg_init_rig_t *rig,
                int sock,
                uint64_t token,
                uint32_t flags,
                const char *script,
                int *ret_out,
                int *ret_pidfd)
{
    static const char head[] = "/bin/sh\0-c";
    static const char env[] = "PATH=/usr/bin:/bin";
    kg_ip_request_t r;
    kg_rig_frame_t f;
    char tail[2048] = {0};
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
    r.spawn.flags = flags | KG_IP_SPAWN_MERGE_STDERR;
    init_rig_send(rig, sock, &r, fixed, tail, len);
    assert_true(init_rig_recv_frame(sock, &f));
    assert_int_equal(f.reply.head.verb, KG_IP_SPAWN);
    if (f.reply.spawned.error != 0) {
        return f.reply.spawned.error;
    }
    assert_int_equal(f.reply.spawned.fds, KG_IP_FD_STDOUT | KG_IP_FD_PIDFD);
    assert_int_equal(f.fd_count, 2);
    if (ret_out) {
        *ret_out = kg_take_fd(&f.fds[0]);
    }
    if (ret_pidfd) {
        *ret_pidfd = kg_take_fd(&f.fds[1]);
    }
    kg_closep(&f.fds[0]);
    kg_closep(&f.fds[1]);
    return f.reply.spawned.pid;
}

void init_rig_path(kg_init_rig_t *rig,
                   int sock,
                   kg_ip_verb_t verb,
                   const char *path,
                   const char *second,
                   uint32_t flags,
                   kg_rig_frame_t *ret_frame)
{
    kg_ip_request_t r;
    char tail[2048];
    size_t len = strlen(path) + 1;

    memcpy(tail, path, len);
    if (second) {
        memcpy(tail + len, second, strlen(second) + 1);
        len += strlen(second) + 1;
    }
    size_t fixed = kg_ip_request_init(&r, verb, 0, len);
    r.path.flags = flags;
    r.path.mode = 0644;
    init_rig_send(rig, sock, &r, fixed, tail, len);
    if (ret_frame) {
        assert_true(init_rig_recv_frame(sock, ret_frame));
        assert_int_equal(ret_frame->reply.head.verb, verb);
        assert_int_equal(ret_frame->reply.head.seq, rig->seq);
    }
}

int init_rig_listen(uint16_t *ret_port)
{
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof(addr);
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&addr, len), 0);
    assert_int_equal(listen(fd, 4), 0);
    assert_int_equal(getsockname(fd, (struct sockaddr *)&addr, &len), 0);
    *ret_port = ntohs(addr.sin_port);
    return fd;
}
