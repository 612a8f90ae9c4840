/* The launcher namespace with a real sandal-init inside: what is seen, what is not, who may what,
 * and that nothing stays behind. Without a network. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/base/buf.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/init_proto.h"
#include "gateway/sandbox/launcher.h"
#include "gateway/sandbox/seqsock.h"

#define UID_BASE (0x14000000U + (unsigned)getpid() % 512U * 2U * KG_UID_RANGE)
#define OUT_MAX 8192

/* No network here: the launcher must not even ask. */
int kg_net_attach(
    const kg_nets_t *nets, uint32_t slot, pid_t pid, const kg_net_wish_t *wish, kg_err_t *err)
{
    (void)nets;
    (void)slot;
    (void)pid;
    (void)wish;
    return kg_err_set(err, KG_ERR_NOT_SUPPORTED, "no networks in this test");
}

int kg_net_detach(const kg_nets_t *nets, uint32_t slot)
{
    (void)nets;
    (void)slot;
    return 0;
}

int kg_net_resolv_conf(const kg_nets_t *nets, uint32_t slot, char *out, size_t size)
{
    (void)nets;
    (void)slot;
    return kg_format(out, size, "%s", "");
}

/* --- Rig -------------------------------------------------------------------------------------- */

struct kg_rig;

typedef struct kg_box {
    struct kg_rig *rig;
    char id[KG_KP_ID_MAX];
    kg_kp_create_t request;
    kg_launch_t launch;
    pid_t init; /* 0 = not running */
    int keeper;
    int gateway;
    uint32_t seq;
    char out[OUT_MAX];
} kg_box_t;

typedef struct kg_rig {
    char dir[64];
    char state[80];
    char runtime[80];
    char template_dir[96];
    char init_exe[512];
    kg_root_t roots[2];
    kg_host_t host;
    kg_box_t box;
} kg_rig_t;

static int rig_up(void **state)
{
    kg_rig_t *rig = calloc(1, sizeof(*rig));
    const char *build = getenv("SANDAL_BUILD_DIR");
    char reason[160];
    kg_err_t err = {0};

    assert_non_null(rig);
    *state = rig;
    if (geteuid() != 0) {
        return 0;
    }
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)snprintf(rig->dir, sizeof(rig->dir), "/tmp/test-namespace-XXXXXX");
    assert_non_null(mkdtemp(rig->dir));
    (void)snprintf(rig->state, sizeof(rig->state), "%s/state", rig->dir);
    (void)snprintf(rig->runtime, sizeof(rig->runtime), "%s/run", rig->dir);
    (void)snprintf(rig->template_dir, sizeof(rig->template_dir), "/opt/test-namespace-XXXXXX");
    (void)snprintf(rig->init_exe, sizeof(rig->init_exe), "%s/sandal-init", build ? build : ".");
    assert_int_equal(mkdir(rig->state, 0711), 0);
    assert_int_equal(mkdir(rig->runtime, 0711), 0);
    assert_non_null(mkdtemp(rig->template_dir)); /* not in /tmp, which is the sandbox's own */
    assert_int_equal(chmod(rig->template_dir, 0755), 0);
    rig->roots[0] = (kg_root_t){.name = "first", .rootfs = "host"};
    (void)snprintf(rig->roots[0].prefix, sizeof(rig->roots[0].prefix), "%s", rig->template_dir);
    rig->host = (kg_host_t){
        .init_exe = rig->init_exe,
        .state_dir = rig->state,
        .runtime_dir = rig->runtime,
        .runtime_fd = open(rig->runtime, O_RDONLY | O_DIRECTORY | O_CLOEXEC),
        .is_root = true,
        .uid_base = UID_BASE,
        .slot_count = 2,
        .orphan_s = 60,
        .roots = rig->roots,
        .root_count = 1,
        .nets = {.reason = "none here"},
    };
    assert_int_equal(kg_cgroups_find(&rig->host.cgroups, "/", "test-ns"), 0);
    if (kg_volumes_open(&rig->host.volumes, rig->state, "tmpfs", 0, &err) < 0) {
        fail_msg("%s", err.message);
    }
    if (kg_launcher_namespace.probe(&rig->host, reason) < 0) {
        fail_msg("namespace doesn't work: %s", reason);
    }
    return 0;
}

static int rig_down(void **state)
{
    kg_rig_t *rig = *state;
    if (rig->dir[0] != '\0') {
        KG_AUTO_CLOSE int tmp = open("/tmp", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        kg_launcher_namespace.close(&rig->host);
        close(rig->host.runtime_fd);
        assert_int_equal(rmdir(rig->runtime), 0); /* nothing of it is left */
        kg_volumes_close(&rig->host.volumes);
        assert_int_equal(kg_fs_remove_tree(tmp, rig->dir + 5), 0);
        KG_AUTO_CLOSE int opt = open("/opt", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        assert_int_equal(kg_fs_remove_tree(opt, rig->template_dir + 5), 0);
    }
    free(rig);
    return 0;
}

#define NEEDS_ROOT()                                                                               \
    if (geteuid() != 0) {                                                                          \
        print_message("[  SKIPPED ] the launcher namespace needs root\n");                         \
        skip();                                                                                    \
    }

/* --- Speaking to sandal-init ------------------------------------------------------------------ */

static void
send_frame(kg_box_t *box, int sock, kg_ip_request_t *request, size_t fixed, kg_buf_t *tail)
{
    char frame[sizeof(*request) + 16384];
    size_t len = tail ? tail->len : 0;
    request->head.seq = ++box->seq;
    assert_true(fixed + len <= sizeof(frame));
    memcpy(frame, request, fixed);
    if (len > 0) {
        memcpy(frame + fixed, tail->data, len);
    }
    assert_int_equal(kg_seq_send(sock, frame, fixed + len, NULL, 0), 0);
}

static void recv_frame(int sock, kg_ip_reply_t *ret, int fds[KG_SEQ_FDS_MAX], size_t *ret_count)
{
    struct pollfd p = {.fd = sock, .events = POLLIN};
    char frame[KG_IP_REPLY_MAX];
    size_t len = 0;
    assert_int_equal(poll(&p, 1, 20000), 1);
    assert_int_equal(kg_seq_recv(sock, frame, sizeof(frame), &len, fds, ret_count), 0);
    assert_true(len > 0);
    assert_int_equal(kg_ip_reply_decode(frame, len, ret), 0);
}

static void hello(kg_box_t *box, int sock, uint32_t role)
{
    kg_ip_request_t request;
    kg_ip_reply_t reply;
    int fds[KG_SEQ_FDS_MAX];
    size_t count = 0;
    size_t fixed = kg_ip_request_init(&request, KG_IP_HELLO, 0, 0);
    request.hello.role = role;
    send_frame(box, sock, &request, fixed, NULL);
    recv_frame(sock, &reply, fds, &count);
    assert_int_equal(reply.head.verb, KG_IP_HELLO);
    assert_int_equal(reply.result.error, 0);
}

static void read_all(kg_box_t *box, int fd)
{
    size_t len = 0;
    for (;;) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        assert_int_equal(poll(&p, 1, 60000), 1);
        ssize_t n = read(fd, box->out + len, sizeof(box->out) - 1 - len);
        if (n <= 0 || len + (size_t)n == sizeof(box->out) - 1) {
            break;
        }
        len += (size_t)n;
    }
    box->out[len] = '\0';
}

/* sh -c script; its exit code, what it said in box->out. */
static int run(kg_box_t *box, bool root, const char *script)
{
    static const char *const strings[] = {"/bin/sh", "-c"};
    static const char *const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"};
    KG_AUTO_BUF kg_buf_t tail = {0};
    kg_ip_request_t request;
    kg_ip_reply_t reply;
    int fds[KG_SEQ_FDS_MAX];
    size_t count = 0;

    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(kg_buf_append(&tail, strings[i], strlen(strings[i]) + 1), 0);
    }
    assert_int_equal(kg_buf_append(&tail, script, strlen(script) + 1), 0);
    for (size_t i = 0; i < 2; i++) {
        assert_int_equal(kg_buf_append(&tail, env[i], strlen(env[i]) + 1), 0);
    }
    assert_int_equal(kg_buf_append(&tail, "", 1), 0);
    size_t fixed = kg_ip_request_init(&request, KG_IP_SPAWN, 0, tail.len);
    request.spawn.token = box->seq + 1;
    request.spawn.argc = 3;
    request.spawn.envc = 2;
    request.spawn.flags = KG_IP_SPAWN_MERGE_STDERR | (root ? KG_IP_SPAWN_ROOT : 0);
    send_frame(box, box->gateway, &request, fixed, &tail);
    recv_frame(box->gateway, &reply, fds, &count);
    if (reply.spawned.error != 0) {
        fail_msg("spawn: %s at step %u", strerrordesc_np(-reply.spawned.error), reply.spawned.step);
    }
    assert_true(count >= 1 && (reply.spawned.fds & KG_IP_FD_STDOUT));
    read_all(box, fds[0]);
    for (size_t i = 0; i < count; i++) {
        close(fds[i]);
    }
    recv_frame(box->gateway, &reply, fds, &count);
    for (size_t i = 0; i < count; i++) {
        close(fds[i]);
    }
    assert_int_equal(reply.head.verb, KG_IP_EXIT);
    fixed = kg_ip_request_init(&request, KG_IP_ACK, 0, 0);
    request.token.token = reply.exit.token;
    send_frame(box, box->gateway, &request, fixed, NULL);
    return WIFEXITED(reply.exit.status) ? WEXITSTATUS(reply.exit.status) : 128;
}

static void must(kg_box_t *box, bool root, const char *script)
{
    int code = run(box, root, script);
    if (code != 0) {
        fail_msg("%s: %s\nexit %d: %s", root ? "root" : "user", script, code, box->out);
    }
}

static void must_fail(kg_box_t *box, bool root, const char *script)
{
    if (run(box, root, script) == 0) {
        fail_msg("%s could: %s\n%s", root ? "root" : "user", script, box->out);
    }
}

static void must_say(kg_box_t *box, bool root, const char *script, const char *want)
{
    must(box, root, script);
    if (strcmp(box->out, want) != 0) {
        fail_msg("%s: said \"%s\", not \"%s\"", script, box->out, want);
    }
}

/* --- A sandbox -------------------------------------------------------------------------------- */

static void box_init(kg_box_t *box, kg_rig_t *rig)
{
    *box = (kg_box_t){.rig = rig, .id = "sbx-test0000", .keeper = -1, .gateway = -1};
    box->request.limits = (kg_limits_t){.memory_bytes = UINT64_C(512) << 20,
                                        .disk_bytes = UINT64_C(64) << 20,
                                        .cpu_millis = 1000,
                                        .pids = 64,
                                        .nofile = 2048};
    if (rig->host.cgroups.version[KG_CG_MEMORY] == KG_CG_NONE) { /* a host without groups */
        box->request.limits = (kg_limits_t){.disk_bytes = UINT64_C(64) << 20};
    }
    box->launch = (kg_launch_t){
        .id = box->id,
        .slot = 1,
        .base = rig->host.uid_base + KG_UID_RANGE,
        .uid = rig->host.uid_base + KG_UID_RANGE + KG_UID_USER,
        .gid = rig->host.uid_base + KG_UID_RANGE + KG_UID_USER,
        .root = &rig->roots[0],
        .request = &box->request,
    };
}

typedef struct kg_made {
    pid_t init;
    int failed;
    kg_err_t err;
} kg_made_t;

/* In a worker, as the keeper does it. */
static _Noreturn void make_in_worker(kg_box_t *box, int sock)
{
    kg_made_t made = {0};
    kg_launched_t launched;
    int fds[2] = {-1, -1};
    const kg_host_t *host = &box->rig->host;

    made.failed = kg_launcher_namespace.create(host, &box->launch, &launched, &made.err);
    for (int i = 0; i < 2 && made.failed == 0; i++) {
        made.init = launched.init_pid;
        fds[i] = kg_launcher_namespace.connect(host, box->id, made.init);
        made.failed = fds[i] < 0 ? fds[i] : 0;
    }
    (void)kg_seq_send(sock, &made, sizeof(made), fds, made.failed == 0 ? 2 : 0);
    _exit(0);
}

static int box_try(kg_box_t *box, kg_err_t *err)
{
    int pair[2];
    int status = 0;
    kg_made_t made = {0};
    size_t len = 0;
    int fds[KG_SEQ_FDS_MAX];
    size_t count = 0;

    assert_int_equal(kg_seq_pair(pair), 0);
    pid_t pid = fork();
    if (pid == 0) {
        make_in_worker(box, pair[1]);
    }
    close(pair[1]);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_int_equal(kg_seq_recv(pair[0], &made, sizeof(made), &len, fds, &count), 0);
    close(pair[0]);
    assert_int_equal(len, sizeof(made));
    box->init = made.init;
    if (made.failed) {
        *err = made.err;
        return made.failed;
    }
    assert_int_equal(count, 2);
    box->keeper = fds[0];
    box->gateway = fds[1];
    hello(box, box->keeper, KG_IP_ROLE_KEEPER);
    hello(box, box->gateway, KG_IP_ROLE_GATEWAY);
    return 0;
}

static void box_start(kg_box_t *box)
{
    kg_err_t err = {0};
    if (box_try(box, &err) < 0) {
        fail_msg("create: %s", err.message);
    }
}

static void box_end(kg_box_t *box)
{
    int status = 0;
    int r = 0;
    kg_closep(&box->keeper);
    kg_closep(&box->gateway);
    kg_launcher_namespace.destroy(&box->rig->host, box->id, box->init);
    assert_int_equal(waitpid(box->init, &status, 0), box->init); /* a child of ours: CLONE_PARENT */
    assert_true(WIFSIGNALED(status));
    box->init = 0;
    r = kg_launcher_namespace.cleanup(&box->rig->host, box->id, box->launch.slot, false);
    assert_int_equal(r, 0);
    assert_int_equal(
        kg_launcher_namespace.cleanup(&box->rig->host, box->id, box->launch.slot, false), 0);
}

/* After each test, also one that failed half-way. */
static int box_down(void **state)
{
    kg_rig_t *rig = *state;
    if (rig->box.init > 0) {
        box_end(&rig->box);
    }
    return 0;
}

#define START(box)                                                                                 \
    kg_box_t *box = &((kg_rig_t *)*state)->box;                                                    \
    NEEDS_ROOT();                                                                                  \
    box_init(box, *state);                                                                         \
    box_start(box)

/* --- Tests ------------------------------------------------------------------------------------ */

static void user_is_nobody_on_the_host(void **state)
{
    char want[64];
    START(box);
    must_say(box, false, "id -u; id -g; id -G; whoami", "1000\n1000\n1000\nuser\n");
    must_say(box, false, "grep -E 'Cap(Inh|Prm|Eff|Bnd|Amb)' /proc/self/status | cut -f2 | sort -u",
             "0000000000000000\n");
    must_say(box, false, "grep -E 'NoNewPrivs|Seccomp:' /proc/self/status | cut -f2", "1\n2\n");
    (void)snprintf(want, sizeof(want), "0 %u 65536\n", box->launch.base);
    must_say(box, false, "echo $(cat /proc/self/uid_map)", want);
    must_say(box, false, "pwd; hostname; cat /etc/hostname",
             "/workspace\nsbx-test0000\nsbx-test0000\n");
}

static void root_has_the_engines_capabilities(void **state)
{
    char want[64];
    START(box);
    /* CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE,
     * SYS_CHROOT, SETFCAP */
    (void)snprintf(want, sizeof(want), "%016llx\n", 0x800405fbULL);
    must_say(box, true, "grep -E 'Cap(Prm|Eff|Bnd)' /proc/self/status | cut -f2 | sort -u", want);
    must_say(box, true, "id -u; grep -E 'NoNewPrivs|Seccomp:' /proc/self/status | cut -f2",
             "0\n1\n2\n");
    must(box, true, "touch /usr/bin/x && chown 1000:1000 /usr/bin/x && rm /usr/bin/x");
    must(box, true, "mv /usr/share/doc /usr/share/doc2 && ls /usr/share/doc2 | grep -q .");
    must_fail(box, true, "mount -t tmpfs x /mnt");
    must_fail(box, true, "mknod /tmp/sda b 8 0");
    must_fail(box, true, "echo 1 > /proc/sys/kernel/sysrq");
    must_fail(box, true, "umount /proc/keys");
    must_fail(box, true, "hostname other");
}

static void places_are_the_sandboxs(void **state)
{
    START(box);
    must(box, false,
         "for d in /workspace /home/user /tmp /run/sandal /dev/shm; do"
         " touch $d/x && [ -O $d/x ] || exit 1; done");
    must_fail(box, false, "touch /usr/x");
    must_fail(box, false, "touch /etc/x");
    must_fail(box, false, "ls /root");
    must_fail(box, false, "cat /etc/shadow");
    must(box, false, "echo x > /dev/null && head -c1 /dev/urandom && test -r /dev/zero");
    must_say(box, false, "ls -d /home /opt /workspace", "/home\n/opt\n/workspace\n");
    must_say(box, false, "ls -A /home; ls -A /srv /mnt /media /boot | grep -v :$ | grep .; true",
             "user\n");
    must_say(box, true, "ls -A /root", "");
}

static void host_is_hidden(void **state)
{
    char script[400];
    kg_rig_t *rig = *state;
    char path[200];
    START(box);
    /* Planted after the layers were made, too. */
    (void)snprintf(path, sizeof(path), "%s/planted", rig->state);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    (void)snprintf(
        script, sizeof(script),
        "! ls -d %s && ! ls -d %s && ! ls /etc/ssh /etc/machine-id /var/lib/apt/lists/*_*"
        " && ! ls -d /lost+found",
        rig->state, path);
    must(box, true, script);
    must_say(box, true, "cut -d: -f2 /etc/shadow | sort -u", "*\n");
    /* Names on the host's top that the sandbox has not: none of them. */
    must_say(box, true,
             "ls -A / | grep -vxE '\\.sandal|bin|boot|dev|etc|home|lib|lib32|lib64|libx32|media|"
             "mnt|opt|proc|root|run|sbin|srv|sys|tmp|usr|var|workspace'; true",
             "");
}

static void new_names_on_the_host_stay_hidden(void **state)
{
    char path[] = "/sandal-test-planted-XXXXXX";
    char script[100];
    START(box);
    assert_non_null(mkdtemp(path));
    (void)snprintf(script, sizeof(script), "ls -d %s", path);
    int code = run(box, true, script);
    assert_int_equal(rmdir(path), 0);
    assert_int_not_equal(code, 0);
}

static void template_tree_belongs_to_the_user(void **state)
{
    char script[400];
    char path[200];
    struct stat st;
    kg_rig_t *rig = *state;
    NEEDS_ROOT();
    (void)snprintf(path, sizeof(path), "%s/file", rig->template_dir);
    close(open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
    START(box);
    (void)snprintf(script, sizeof(script),
                   "cd %s && [ -O file ] && rm file && mkdir new && touch new/x",
                   rig->template_dir);
    must(box, false, script);
    assert_int_equal(stat(path, &st), 0); /* the host's is as it was */
}

static void limits_are_shown(void **state)
{
    START(box);
    if (box->request.limits.cpu_millis == 0) {
        print_message("[  SKIPPED ] no control groups here, so no limits to show\n");
        skip();
    }
    must_say(box, false,
             "nproc; grep -c ^processor /proc/cpuinfo; cat /sys/devices/system/cpu/online",
             "1\n1\n0\n");
    must_say(box, false, "grep -E '^Mem(Total|Available)' /proc/meminfo | tr -s ' '",
             "MemTotal: 524288 kB\nMemAvailable: 524288 kB\n");
    must_say(box, false, "python3 -c 'import os; print(os.cpu_count())'", "1\n");
    must_say(box, false, "ulimit -Hn", "2048\n");
    must_fail(box, false, "head -c 100M /dev/zero > /workspace/big");
    must(box, false, "rm /workspace/big");
}

static void network_is_loopback_alone(void **state)
{
    START(box);
    must_say(box, false, "grep : /proc/net/dev | cut -d: -f1 | tr -d ' '", "lo\n");
    must(
        box, false,
        "python3 -c 'import socket as s\n"
        "a=s.socket(); a.bind((\"127.0.0.1\", 80)); a.listen(); s.create_connection((\"127.0.0.1\","
        " 80), 5)'");
    must_fail(box, false, "python3 -c 'import socket; socket.socket(17, 3)'");
    must_fail(box, true, "python3 -c 'import socket; socket.socket(17, 3)'");
}

static void init_is_out_of_reach(void **state)
{
    START(box);
    must_say(box, false, "cat /proc/1/comm; ls /proc | grep -cx 1", "sandal-init\n1\n");
    must_fail(box, false, "kill -0 1");
    must_fail(box, false, "ls /proc/1/root/");
    must_fail(box, false, "cat /proc/1/environ /proc/1/mem");
    must_fail(box, true,
              "python3 -c 'import ctypes, sys\n"
              "sys.exit(ctypes.CDLL(None).ptrace(16, 1, 0, 0) != 0)'");
    /* What listens may be connected to by name, and closes. */
    must(box, false,
         "python3 -c 'import socket as s\n"
         "a=s.socket(s.AF_UNIX, s.SOCK_SEQPACKET); a.settimeout(10)\n"
         "a.connect(\"\\0sandal-init\"); assert a.recv(10) == b\"\"'");
    must(box, false, "true"); /* it lives */
}

static void namespaces_are_its_own(void **state)
{
    static const char *const names[] = {"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"};
    START(box);
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        char path[64];
        char ours[64] = "";
        char script[80];
        (void)snprintf(path, sizeof(path), "/proc/self/ns/%s", names[i]);
        assert_true(readlink(path, ours, sizeof(ours) - 1) > 0);
        (void)snprintf(script, sizeof(script), "readlink %s", path);
        must(box, false, script);
        box->out[strcspn(box->out, "\n")] = '\0';
        assert_string_not_equal(box->out, ours);
    }
    must_fail(box, false, "unshare -U true");
    must_fail(box, true, "unshare -m true");
    must_say(box, false, "cut -d: -f3 /proc/self/cgroup | grep -c sandal; true",
             "0\n"); /* paths begin at its own groups */
}

static void kernel_interfaces_are_covered(void **state)
{
    static const char *const files[] = {"/proc/kcore", "/proc/keys", "/proc/timer_list",
                                        "/proc/interrupts", "/proc/sched_debug"};
    char script[200];
    START(box);
    for (size_t i = 0; i < KG_ARRAY_LEN(files); i++) {
        (void)snprintf(script, sizeof(script), "[ ! -e %s ] || [ $(head -c 10 %s | wc -c) = 0 ]",
                       files[i], files[i]);
        must(box, true, script);
    }
    must_say(box, true, "ls -A /proc/fs /proc/acpi /proc/scsi 2>&1 | grep -v : | grep .; true", "");
    must_fail(box, true, "echo b > /proc/sysrq-trigger");
    must_fail(box, true, "dmesg");
    must_fail(box, true, "ls /sys/kernel /sys/firmware /sys/class");
}

static void frozen_and_thawed(void **state)
{
    kg_err_t err = {0};
    START(box);
    if (box->rig->host.cgroups.version[KG_CG_FREEZE] == KG_CG_NONE) {
        print_message("[  SKIPPED ] no freezer here\n");
        skip();
    }
    assert_int_equal(kg_launcher_namespace.pause(&box->rig->host, box->id, true, &err), 0);
    assert_int_equal(kg_launcher_namespace.pause(&box->rig->host, box->id, false, &err), 0);
    must(box, false, "true");
    kg_box_usage_t usage;
    assert_int_equal(kg_launcher_namespace.usage(&box->rig->host, box->id, &usage), 0);
    assert_true(usage.pids == UINT64_MAX || (usage.pids >= 1 && usage.pids < 64));
}

static void worker_killed_half_way_leaves_nothing(void **state)
{
    kg_box_t *box = &((kg_rig_t *)*state)->box;
    kg_err_t err = {0};
    int status = 0;
    NEEDS_ROOT();
    box_init(box, *state);
    for (useconds_t after_us = 0; after_us < 8000; after_us += 400) {
        pid_t pid = fork();
        if (pid == 0) {
            kg_launched_t launched;
            (void)kg_launcher_namespace.create(&box->rig->host, &box->launch, &launched, &err);
            (void)pause();
        }
        (void)usleep(after_us); /* wherever it is by then */
        (void)kill(pid, SIGKILL);
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(
            kg_launcher_namespace.cleanup(&box->rig->host, box->id, box->launch.slot, false), 0);
        while (waitpid(-1, &status, 0) >
               0) { /* its first process has died with it, or was killed */
            continue;
        }
    }
    box_start(box); /* nothing is in the way */
    must(box, false, "true");
}

static void impossible_wishes_are_refused(void **state)
{
    kg_box_t *box = &((kg_rig_t *)*state)->box;
    kg_err_t err = {0};
    NEEDS_ROOT();
    box_init(box, *state);
    box->request.network.mode = KG_NET_EGRESS;
    assert_true(box_try(box, &err) < 0);
    assert_int_equal(err.code, KG_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(err.message, "none here"));
    box->request.network.mode = KG_NET_HOST;
    assert_true(box_try(box, &err) < 0);
    box->request.network.mode = KG_NET_NONE;
    const kg_root_t missing = {.name = "missing", .rootfs = "/nowhere"};
    box->launch.root = &missing;
    assert_true(box_try(box, &err) < 0);
    assert_non_null(strstr(err.message, "root filesystem"));
    box->launch.root = &box->rig->roots[0];
    box_start(box);
}

#define T(f) cmocka_unit_test_teardown(f, box_down)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(user_is_nobody_on_the_host),
        T(root_has_the_engines_capabilities),
        T(places_are_the_sandboxs),
        T(host_is_hidden),
        T(new_names_on_the_host_stay_hidden),
        T(template_tree_belongs_to_the_user),
        T(limits_are_shown),
        T(network_is_loopback_alone),
        T(init_is_out_of_reach),
        T(namespaces_are_its_own),
        T(kernel_interfaces_are_covered),
        T(frozen_and_thawed),
        T(worker_killed_half_way_leaves_nothing),
        T(impossible_wishes_are_refused),
    };
    return cmocka_run_group_tests(tests, rig_up, rig_down);
}
