/* sandal-init as pid 1 in namespaces of its own: rights, numbers, ends. As root alone. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/caps.h"
#include "gateway/sandbox/init/args.h"
#include "tests/unit/sandbox/init_rig.h"

#define INSIDE                                                                                     \
    (KG_INIT_FLAG_PIDNS | KG_INIT_FLAG_HAS_ROOT | KG_INIT_FLAG_FILTER | KG_INIT_FLAG_OWN_ROOT)
#define STATUS "grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; id -u; id -g; id -G"

typedef struct kg_inside {
    kg_init_rig_t rig;
    int sock;
    uint64_t token;
} kg_inside_t;

static int setup(void **state)
{
    kg_inside_t *b = calloc(1, sizeof(*b));
    init_rig_start(&b->rig, INSIDE, 60);
    b->sock = init_rig_hello(&b->rig, KG_IP_ROLE_GATEWAY);
    *state = b;
    return 0;
}

static int teardown(void **state)
{
    kg_inside_t *b = *state;
    close(b->sock);
    init_rig_stop(&b->rig, true);
    free(b);
    return 0;
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

static void run_it(kg_inside_t *b, uint32_t flags, const char *script, char *ret_text, size_t cap)
{
    int out = -1;
    kg_ip_reply_t reply;
    assert_true(init_rig_sh(&b->rig, b->sock, ++b->token, flags, script, &out, NULL) > 0);
    read_all(out, ret_text, cap);
    assert_true(init_rig_recv(b->sock, &reply));
    assert_int_equal(reply.head.verb, KG_IP_EXIT);
}

static void user_has_no_capability(void **state)
{
    char text[1024];
    run_it(*state, 0, STATUS, text, sizeof(text));
    assert_string_equal(text, "CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\n"
                              "CapEff:\t0000000000000000\nCapBnd:\t0000000000000000\n"
                              "CapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
                              "1000\n1000\n1000\n");
}

static void root_has_the_engines_set(void **state)
{
    char text[1024];
    char want[1024];
    unsigned long long caps = KG_CAPS_ROOT;

    run_it(*state, KG_IP_SPAWN_ROOT, STATUS, text, sizeof(text));
    (void)snprintf(want, sizeof(want),
                   "CapInh:\t0000000000000000\nCapPrm:\t%016llx\nCapEff:\t%016llx\n"
                   "CapBnd:\t%016llx\nCapAmb:\t0000000000000000\nNoNewPrivs:\t1\nSeccomp:\t2\n"
                   "0\n0\n0\n",
                   caps, caps, caps);
    assert_string_equal(text, want);
}

/* It can drop rights as apt does and own files; no mounts, no namespaces, no hand on sandal-init.
 */
static void root_has_its_limits(void **state)
{
    kg_inside_t *b = *state;
    char text[1024];
    run_it(b, KG_IP_SPAWN_ROOT,
           "setpriv --reuid 1000 --regid 1000 --clear-groups id -u; touch f; "
           "chown 1000 f && echo chowned; mount -t tmpfs none /mnt 2>/dev/null && echo mounted; "
           "unshare -U true 2>/dev/null && echo nested; "
           "cat /proc/1/mem >/dev/null 2>&1 && echo read; "
           "readlink /proc/1/fd/3 /proc/1/exe /proc/1/root; kill -9 1; echo end",
           text, sizeof(text));
    assert_string_equal(text, "1000\nchowned\nend\n");
    assert_true(init_rig_lives(&b->rig));
}

static void pids_inside_and_outside(void **state)
{
    kg_inside_t *b = *state;
    int pidfd = -1;
    char path[64];
    char text[4096];
    char want[64];

    int pid = init_rig_sh(&b->rig, b->sock, 1, 0, "exec sleep 1000", NULL, &pidfd);
    assert_true(pid > 1 && pid < 100);
    (void)snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", pidfd);
    read_all(open(path, O_RDONLY | O_CLOEXEC), text, sizeof(text));
    close(pidfd);
    const char *at = strstr(text, "\nPid:");
    assert_non_null(at);
    pid_t outer = (pid_t)strtol(at + 5, NULL, 10);
    assert_true(outer > 0);
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)outer);
    read_all(open(path, O_RDONLY | O_CLOEXEC), text, sizeof(text));
    (void)snprintf(want, sizeof(want), "\nNSpid:\t%d\t%d\n", (int)outer, pid);
    assert_non_null(strstr(text, want));
    /* the end of sandal-init is everybody's */
    siginfo_t info;
    assert_int_equal(kill(b->rig.pid, SIGKILL), 0);
    assert_int_equal(waitid(P_PID, (id_t)b->rig.pid, &info, WEXITED | WNOWAIT), 0);
    assert_int_equal(kill(outer, 0), -1);
}

static void kill_tree_works_among_inner_pids(void **state)
{
    kg_inside_t *b = *state;
    kg_ip_request_t r;
    kg_ip_reply_t reply;
    char text[1024];
    int out = -1;

    assert_true(init_rig_sh(&b->rig, b->sock, ++b->token, 0,
                            "setsid sleep 1000 >/dev/null 2>&1 & "
                            "(setsid sleep 1001 >/dev/null 2>&1 &) ; echo; exec >&- 2>&-; "
                            "sleep 1002",
                            &out, NULL) > 0);
    read_all(out, text, sizeof(text));
    size_t fixed = kg_ip_request_init(&r, KG_IP_KILL_TREE, 0, 0);
    r.token.token = b->token;
    init_rig_send(&b->rig, b->sock, &r, fixed, NULL, 0);
    for (int i = 0; i < 2; i++) { /* its answer and the exit, in any order */
        assert_true(init_rig_recv(b->sock, &reply));
        assert_true(reply.head.verb == KG_IP_KILL_TREE || reply.head.verb == KG_IP_EXIT);
    }
    run_it(b, 0,
           "for i in $(seq 200); do pgrep -x sleep >/dev/null || break; "
           "timeout 0.05 tail -f /dev/null; done; pgrep -cx sleep",
           text, sizeof(text));
    assert_string_equal(text, "0\n");
}

static void files_by_the_rights_of_user_and_root(void **state)
{
    kg_inside_t *b = *state;
    kg_rig_frame_t f;
    char path[128];
    struct stat st;
    const uint32_t create = KG_IP_FS_WRITE | KG_IP_FS_CREATE;

    (void)snprintf(path, sizeof(path), "%s/root", b->rig.dir);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_int_equal(chown(path, b->rig.base, b->rig.base), 0);
    (void)snprintf(path, sizeof(path), "%s/root/f", b->rig.dir);
    init_rig_path(&b->rig, b->sock, KG_IP_OPEN, path, NULL, create, &f);
    assert_int_equal(f.reply.files.error, -EACCES);
    init_rig_path(&b->rig, b->sock, KG_IP_OPEN, path, NULL, create | KG_IP_FS_ROOT, &f);
    assert_int_equal(f.reply.files.error, 0);
    kg_closep(&f.fds[0]);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_uid, b->rig.base);
    init_rig_path(&b->rig, b->sock, KG_IP_STAT, path, NULL, KG_IP_FS_ROOT, &f);
    assert_int_equal(f.reply.files.error, 0);
    init_rig_path(&b->rig, b->sock, KG_IP_REMOVE, path, NULL, KG_IP_FS_ROOT, &f);
    assert_int_equal(f.reply.files.error, 0);
    init_rig_path(&b->rig, b->sock, KG_IP_REMOVE, "/", NULL, KG_IP_FS_ROOT | KG_IP_FS_RECURSIVE,
                  &f);
    assert_int_equal(f.reply.files.error, -EBUSY);
    init_rig_path(&b->rig, b->sock, KG_IP_OPEN, "/etc/shadow", NULL, KG_IP_FS_READ | KG_IP_FS_ROOT,
                  &f);
    assert_int_equal(f.reply.files.error, -EACCES); /* the host's root is somebody else */
}

static void odd_files_are_left_alone(void **state)
{
    kg_inside_t *b = *state;
    kg_rig_frame_t f;
    const struct {
        const char *path;
        uint32_t flags;
        int error;
    } odd[] = {
        {"/proc/self/mem", KG_IP_FS_WRITE, -EACCES},
        {"/proc/self/oom_score_adj", KG_IP_FS_WRITE, -EACCES},
        {"/proc/self/exe", KG_IP_FS_READ, -ELOOP},
        {"/proc/self/fd/3", KG_IP_FS_READ, -ELOOP},
        {"/proc/1/environ", KG_IP_FS_READ, -EACCES},
        {"/dev/null", KG_IP_FS_READ, -ENXIO},
        {"/dev/zero", KG_IP_FS_READ | KG_IP_FS_ROOT, -ENXIO},
        {"/root/x", KG_IP_FS_READ, -EACCES},
        {"/etc/shadow", KG_IP_FS_READ, -EACCES},
        {"/proc/meminfo", KG_IP_FS_READ, 0},
        {"/", KG_IP_FS_READ, 0},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(odd); i++) {
        init_rig_path(&b->rig, b->sock, KG_IP_OPEN, odd[i].path, NULL, odd[i].flags, &f);
        if (f.reply.files.error != odd[i].error) {
            (void)fprintf(stderr, "%s: %d\n", odd[i].path, f.reply.files.error);
        }
        assert_int_equal(f.reply.files.error, odd[i].error);
        kg_closep(&f.fds[0]);
    }
}

/* Home is another file system here. */
static void moves_between_file_systems(void **state)
{
    kg_inside_t *b = *state;
    kg_rig_frame_t f;
    char from[128];
    char to[128];
    char text[256];

    run_it(b, 0,
           "mkdir -p t/d; echo -n one > t/a; chmod 640 t/a; ln -s /none t/l; mkfifo t/p; "
           "touch -d 2001-02-03 t/d; chmod 500 t/d; echo -n old > ../home/old",
           text, sizeof(text));
    assert_string_equal(text, "");
    (void)snprintf(from, sizeof(from), "%s/workspace/t", b->rig.dir);
    (void)snprintf(to, sizeof(to), "%s/home/old", b->rig.dir);
    init_rig_path(&b->rig, b->sock, KG_IP_RENAME, from, to, 0, &f);
    assert_int_equal(f.reply.files.error, -EEXIST);
    init_rig_path(&b->rig, b->sock, KG_IP_RENAME, from, to, KG_IP_FS_OVERWRITE, &f);
    assert_int_equal(f.reply.files.error, -ENOTDIR); /* a directory doesn't replace a file */
    (void)snprintf(to, sizeof(to), "%s/home/new", b->rig.dir);
    init_rig_path(&b->rig, b->sock, KG_IP_RENAME, from, to, 0, &f);
    assert_int_equal(f.reply.files.error, 0);
    assert_int_equal(f.reply.files.created, 1);
    run_it(b, 0,
           "ls -A; cd ../home; ls -A; cd new; stat -c '%n %a %F' *; cat a; readlink l; "
           "stat -c %y d | cut -c1-10",
           text, sizeof(text));
    assert_string_equal(text, "new\nold\na 640 regular file\nd 500 directory\nl 777 symbolic link\n"
                              "p 644 fifo\none/none\n2001-02-03\n");
    (void)snprintf(from, sizeof(from), "%s/workspace", b->rig.dir);
    (void)snprintf(to, sizeof(to), "%s/home/x", b->rig.dir);
    run_it(b, 0, "echo > still", text, sizeof(text));
    init_rig_path(&b->rig, b->sock, KG_IP_RENAME, from, to, 0, &f);
    assert_int_equal(f.reply.files.error, -EACCES); /* its directory isn't the user's */
    run_it(b, 0, "ls . ../home", text, sizeof(text));
    assert_string_equal(text, ".:\nstill\n\n../home:\nnew\nold\n");
}

/* User code that finds the socket: by its pid it is inside, whatever its uid. */
static void insiders_are_turned_away(void **state)
{
    kg_inside_t *b = *state;
    char script[512];
    char text[128];

    assert_int_equal(chmod(b->rig.sock_path, 0666), 0);
    (void)snprintf(script, sizeof(script),
                   "/usr/bin/python3 -c 'import socket\n"
                   "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
                   "s.connect(\"%s\")\nprint(len(s.recv(100)))'",
                   b->rig.sock_path);
    run_it(b, 0, script, text, sizeof(text));
    assert_string_equal(text, "0\n");
    run_it(b, KG_IP_SPAWN_ROOT, script, text, sizeof(text));
    assert_string_equal(text, "0\n");
}

int main(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(user_has_no_capability),
        T(root_has_the_engines_set),
        T(root_has_its_limits),
        T(pids_inside_and_outside),
        T(kill_tree_works_among_inner_pids),
        T(files_by_the_rights_of_user_and_root),
        T(odd_files_are_left_alone),
        T(moves_between_file_systems),
        T(insiders_are_turned_away),
    };
    if (geteuid() != 0) {
        return 77; /* skipped: namespaces with a range of ids are root's to make */
    }
    return cmocka_run_group_tests_name("sandal-init in namespaces", tests, NULL, NULL);
}
