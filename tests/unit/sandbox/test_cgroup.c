/* Control groups: what is found in made-up trees. A pretended kernel fills and empties their
 * directories. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/cgroup.h"
#include "gateway/sandbox/cgroup_private.h"

#define MIB (UINT64_C(1) << 20)

static char tree[64];       /* of the pretended kernel */
static const char *lacking; /* a file that it doesn't make */

/* --- The pretended kernel -------------------------------------------------------------------- */

int __real_mkdir(const char *path, mode_t mode);
int __wrap_mkdir(const char *path, mode_t mode);
int __real_rmdir(const char *path);
int __wrap_rmdir(const char *path);
int __real_cg_write(const char *dir, const char *file, const char *text);
int __wrap_cg_write(const char *dir, const char *file, const char *text);

static void put(const char *dir, const char *file, const char *text)
{
    char path[CG_PATH_MAX];
    assert_true(snprintf(path, sizeof(path), "%s/%s", dir, file) < (int)sizeof(path));
    FILE *f = fopen(path, "we");
    assert_non_null(f);
    (void)fputs(text, f);
    (void)fclose(f);
}

static void put_group_file(const char *dir, const char *file)
{
    if (!lacking || strcmp(lacking, file) != 0) {
        put(dir, file, "");
    }
}

static void fill_v2(const char *dir)
{
    static const char *const always[] = {
        "cgroup.type",   "cgroup.controllers", "cgroup.procs",  "cgroup.subtree_control",
        "cgroup.freeze", "cgroup.kill",        "cgroup.events", "cpu.stat"};
    static const char *const handed[][2] = {{"memory", "memory.max"},
                                            {"memory", "memory.swap.max"},
                                            {"pids", "pids.max"},
                                            {"cpu", "cpu.max"}};
    char up[CG_PATH_MAX];
    char text[128] = "";

    for (size_t i = 0; i < KG_ARRAY_LEN(always); i++) {
        put_group_file(dir, always[i]);
    }
    (void)snprintf(up, sizeof(up), "%s/..", dir);
    (void)cg_read(up, "cgroup.subtree_control", text, sizeof(text));
    for (size_t i = 0; i < KG_ARRAY_LEN(handed); i++) {
        if (strstr(text, handed[i][0])) {
            put_group_file(dir, handed[i][1]);
        }
    }
}

static void fill_v1(const char *dir)
{
    static const char *const files[][2] = {{"/memory/", "memory.limit_in_bytes"},
                                           {"/memory/", "memory.memsw.limit_in_bytes"},
                                           {"/pids/", "pids.max"},
                                           {"/cpu/", "cpu.cfs_quota_us"},
                                           {"/cpu/", "cpu.cfs_period_us"},
                                           {"/cpu/", "cpuacct.usage"},
                                           {"/freezer/", "freezer.state"},
                                           {"/", "cgroup.procs"},
                                           {"/", "tasks"}};
    for (size_t i = 0; i < KG_ARRAY_LEN(files); i++) {
        if (strstr(dir, files[i][0])) {
            put_group_file(dir, files[i][1]);
        }
    }
}

static bool pretended(const char *path)
{
    return tree[0] && strncmp(path, tree, strlen(tree)) == 0;
}

int __wrap_mkdir(const char *path, mode_t mode)
{
    int r = __real_mkdir(path, mode);
    if (r == 0 && pretended(path)) {
        (strstr(path, "/unified") ? fill_v2 : fill_v1)(path);
    }
    return r;
}

/* -EBUSY while cgroup.procs names a process; else the files go with it. */
int __wrap_rmdir(const char *path)
{
    char text[64] = "";
    if (pretended(path) && access(path, F_OK) == 0) {
        (void)cg_read(path, "cgroup.procs", text, sizeof(text));
        if (text[0]) {
            errno = EBUSY;
            return -1;
        }
        DIR *dir = opendir(path);
        assert_non_null(dir);
        for (struct dirent *e = readdir(dir); e; e = readdir(dir)) {
            if (e->d_type == DT_REG) {
                (void)unlinkat(dirfd(dir), e->d_name, 0);
            }
        }
        (void)closedir(dir);
    }
    return __real_rmdir(path);
}

/* No controllers are handed down while there are processes in the group, but at the top. What was
 * written into the leaf has left the group. */
int __wrap_cg_write(const char *dir, const char *file, const char *text)
{
    char own[64] = "";
    char moved[64] = "";
    if (pretended(dir) && strcmp(file, "cgroup.subtree_control") == 0 &&
        cg_has(dir, "cgroup.type")) {
        (void)cg_read(dir, "cgroup.procs", own, sizeof(own));
        (void)cg_read(dir, "supervisor/cgroup.procs", moved, sizeof(moved));
        if (own[0] && !moved[0]) {
            return -EBUSY;
        }
        put(dir, "cgroup.procs", "");
    }
    return __real_cg_write(dir, file, text);
}

/* --- Made up trees -------------------------------------------------------------------------- */

static void make_path(const char *below)
{
    char path[CG_PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s%s", tree, below);
    for (char *at = path + strlen(tree) + 1; *at; at++) {
        if (*at == '/') {
            *at = '\0';
            (void)__real_mkdir(path, 0755);
            *at = '/';
        }
    }
    assert_int_equal(__real_mkdir(path, 0755), 0);
}

static int tree_setup(void **state)
{
    (void)state;
    (void)snprintf(tree, sizeof(tree), "/tmp/test-cgroup-XXXXXX");
    assert_non_null(mkdtemp(tree));
    lacking = NULL;
    make_path("/proc/self");
    put(tree, "proc/self/mountinfo", "20 1 8:1 / / rw shared:1 - ext4 /dev/root rw\n");
    put(tree, "proc/self/cgroup", "");
    return 0;
}

static int tree_teardown(void **state)
{
    char command[128];
    (void)state;
    (void)snprintf(command, sizeof(command), "rm -rf %s", tree);
    tree[0] = '\0';
    return system(command); // NOLINT(cert-env33-c): a test's own directory
}

/* A directory of v2 that holds a group, `procs` in it. */
static void v2_group(const char *below, const char *controllers, const char *procs, bool top)
{
    char path[CG_PATH_MAX];
    make_path(below);
    (void)snprintf(path, sizeof(path), "%s%s", tree, below);
    put(path, "cgroup.controllers", controllers);
    put(path, "cgroup.subtree_control", "");
    put(path, "cgroup.procs", procs);
    if (!top) {
        put(path, "cgroup.type", "domain\n");
    }
}

static void v2_tree(const char *procs)
{
    v2_group("/sys/unified", "cpuset cpu io memory pids\n", "", true);
    v2_group("/sys/unified/app.service", "cpu memory pids\n", procs, false);
    put(tree, "proc/self/mountinfo",
        "20 1 8:1 / / rw - ext4 /dev/root rw\n"
        "30 20 0:26 / /sys/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n");
    put(tree, "proc/self/cgroup", "0::/app.service\n");
}

static void v1_tree(void)
{
    make_path("/sys/memory/job one");
    make_path("/sys/pids");
    make_path("/sys/cpu");
    make_path("/sys/freezer");
    put(tree, "proc/self/mountinfo",
        "31 20 0:27 / /sys/memory rw - cgroup cgroup rw,memory\n"
        "32 20 0:28 / /sys/pids rw - cgroup cgroup rw,pids\n"
        "33 20 0:29 /docker/abc /sys/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
        "34 20 0:30 / /sys/freezer rw - cgroup cgroup rw,freezer\n");
    put(tree, "proc/self/cgroup",
        "9:name=systemd:/\n5:memory:/job one\n4:pids:/\n3:cpu,cpuacct:/docker/abc\n2:freezer:/\n");
}

static void assert_file(const char *below, const char *text)
{
    char got[256];
    assert_int_equal(cg_read(tree, below, got, sizeof(got)), 0);
    assert_string_equal(got, text);
}

static void assert_absent(const char *below)
{
    assert_false(cg_has(tree, below));
}

static kg_cgroups_t found(void)
{
    kg_cgroups_t cg;
    assert_int_equal(kg_cgroups_find(&cg, tree, "t"), 0);
    return cg;
}

static void v2_own_group_is_shared_out(void **state)
{
    char me[16];
    const kg_limits_t limits = {.memory_bytes = 64 * MIB, .pids = 20, .cpu_millis = 1500};
    kg_err_t err = {0};
    (void)state;
    (void)snprintf(me, sizeof(me), "%d\n", (int)getpid());
    v2_tree(me);
    kg_cgroups_t cg = found();

    for (int f = 0; f < KG_CG_FEATURES; f++) {
        assert_int_equal(cg.version[f], KG_CG_V2);
        assert_string_equal(cg.reason[f], "");
    }
    assert_string_equal(kg_cgroups_word(&cg), "v2");
    (void)snprintf(me, sizeof(me), "%d", (int)getpid());
    assert_file("sys/unified/app.service/supervisor/cgroup.procs", me);
    assert_file("sys/unified/app.service/cgroup.subtree_control", "+memory +pids +cpu");
    assert_absent("sys/unified/app.service/sandal-t~probe");

    assert_int_equal(kg_cgroup_make(&cg, "a", &limits, &err), 0);
    assert_file("sys/unified/app.service/sandal-t.a/memory.max", "67108864");
    assert_file("sys/unified/app.service/sandal-t.a/memory.swap.max", "0");
    assert_file("sys/unified/app.service/sandal-t.a/pids.max", "20");
    assert_file("sys/unified/app.service/sandal-t.a/cpu.max", "150000 100000");
    assert_int_equal(kg_cgroup_put(&cg, "a", 4711), 0);
    assert_file("sys/unified/app.service/sandal-t.a/cgroup.procs", "4711");
    const kg_limits_t other = {.memory_bytes = 32 * MIB, .cpu_millis = 500};
    put(tree, "sys/unified/app.service/sandal-t.a/cpu.weight", "100");
    assert_int_equal(kg_cgroup_hold(&cg, "a", &other, 10, &err), 0);
    assert_file("sys/unified/app.service/sandal-t.a/memory.max", "33554432");
    assert_file("sys/unified/app.service/sandal-t.a/pids.max", "20");
    assert_file("sys/unified/app.service/sandal-t.a/cpu.max", "50000 100000");
    assert_file("sys/unified/app.service/sandal-t.a/cpu.weight", "10");
    assert_int_equal(kg_cgroup_enter(&cg, "a"), 0);
    assert_file("sys/unified/app.service/sandal-t.a/cgroup.procs", "0");
    int fd = kg_cgroup_fd(&cg, "a");
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(kg_cgroup_remove(&cg, "a"), -EBUSY);
    put(tree, "sys/unified/app.service/sandal-t.a/cgroup.procs", "");
    assert_int_equal(kg_cgroup_remove(&cg, "a"), 0);
    assert_int_equal(kg_cgroup_remove(&cg, "a"), 0);
    assert_absent("sys/unified/app.service/sandal-t.a");
}

/* A keeper that comes after one that was killed: it is in the leaf. */
static void v2_leaf_of_an_earlier_keeper(void **state)
{
    (void)state;
    v2_tree("");
    v2_group("/sys/unified/app.service/supervisor", "", "1\n", false);
    put(tree, "proc/self/cgroup", "0::/app.service/supervisor\n");
    kg_cgroups_t cg = found();
    assert_int_equal(cg.version[KG_CG_MEMORY], KG_CG_V2);
    assert_non_null(strstr(cg.base[KG_CG_MEMORY], "/app.service"));
    assert_null(strstr(cg.base[KG_CG_MEMORY], "supervisor"));
}

/* A shell and what else runs in a login's group are not moved. */
static void v2_strangers_stay(void **state)
{
    (void)state;
    v2_tree("1\n");
    kg_cgroups_t cg = found();
    assert_absent("sys/unified/app.service/supervisor");
    if (geteuid() == 0) {
        assert_int_equal(cg.version[KG_CG_MEMORY], KG_CG_V2);
        assert_null(strstr(cg.base[KG_CG_MEMORY], "app.service"));
        assert_non_null(strstr(cg.reason[KG_CG_MEMORY], "at the top"));
    } else {
        assert_int_equal(cg.version[KG_CG_MEMORY], KG_CG_NONE);
        assert_non_null(strstr(cg.reason[KG_CG_MEMORY], "not delegated"));
        assert_int_equal(cg.version[KG_CG_FREEZE], KG_CG_V2);
    }
}

static void v1_one_group_a_hierarchy(void **state)
{
    const kg_limits_t limits = {.memory_bytes = MIB, .pids = 3, .cpu_millis = 5};
    kg_err_t err = {0};
    (void)state;
    v1_tree();
    kg_cgroups_t cg = found();
    for (int f = 0; f < KG_CG_FEATURES; f++) {
        assert_int_equal(cg.version[f], KG_CG_V1);
    }
    assert_string_equal(kg_cgroups_word(&cg), "v1");
    assert_string_equal(cg.base[KG_CG_CPU], cg.base[KG_CG_ACCOUNT]);
    assert_int_equal(kg_cgroup_make(&cg, "a", &limits, &err), 0);
    assert_file("sys/memory/job one/sandal-t.a/memory.limit_in_bytes", "1048576");
    assert_file("sys/memory/job one/sandal-t.a/memory.memsw.limit_in_bytes", "1048576");
    assert_file("sys/pids/sandal-t.a/pids.max", "3");
    assert_file("sys/cpu/sandal-t.a/cpu.cfs_period_us", "1000000");
    assert_file("sys/cpu/sandal-t.a/cpu.cfs_quota_us", "5000");
    assert_int_equal(kg_cgroup_enter(&cg, "a"), 0);
    assert_file("sys/freezer/sandal-t.a/tasks", "0");
    assert_int_equal(kg_cgroup_put(&cg, "a", 4711), 0);
    static const char *const all[] = {"memory/job one", "pids", "cpu", "freezer"};
    for (size_t i = 0; i < KG_ARRAY_LEN(all); i++) {
        char path[96];
        (void)snprintf(path, sizeof(path), "sys/%s/sandal-t.a/cgroup.procs", all[i]);
        assert_file(path, "4711");
        put(tree, path, "");
    }
    assert_int_equal(kg_cgroup_fd(&cg, "a"), -ENOTSUP);
    assert_int_equal(kg_cgroup_remove(&cg, "a"), 0);
    assert_absent("sys/cpu/sandal-t.a");
}

static void hybrid_takes_the_best_of_both(void **state)
{
    char text[1024];
    (void)state;
    v1_tree();
    assert_int_equal(cg_read(tree, "proc/self/mountinfo", text, sizeof(text)), 0);
    (void)strncat(text, "40 20 0:40 / /sys/unified rw - cgroup2 cgroup2 rw\n", 80);
    put(tree, "proc/self/mountinfo", text);
    assert_int_equal(cg_read(tree, "proc/self/cgroup", text, sizeof(text)), 0);
    (void)strncat(text, "0::/\n", 8);
    put(tree, "proc/self/cgroup", text);
    v2_group("/sys/unified", "hugetlb\n", "1\n", true);

    kg_cgroups_t cg = found();
    assert_int_equal(cg.version[KG_CG_MEMORY], KG_CG_V1);
    assert_int_equal(cg.version[KG_CG_PIDS], KG_CG_V1);
    assert_int_equal(cg.version[KG_CG_CPU], KG_CG_V1);
    assert_int_equal(cg.version[KG_CG_FREEZE], KG_CG_V2);
    assert_int_equal(cg.version[KG_CG_KILL], KG_CG_V2);
    assert_int_equal(cg.version[KG_CG_ACCOUNT], KG_CG_V2);
    assert_string_equal(kg_cgroups_word(&cg), "mixed");
}

static void count_id(void *user, const char *id)
{
    char *text = user;
    (void)strncat(text, id, 16);
    (void)strncat(text, " ", 2);
}

static void leftovers_are_told_once(void **state)
{
    kg_err_t err = {0};
    const kg_limits_t limits = {0};
    char text[64] = "";
    (void)state;
    v1_tree();
    make_path("/sys/memory/job one/sandal-other.x"); /* another keeper's */
    kg_cgroups_t cg = found();
    assert_int_equal(kg_cgroup_make(&cg, "a", &limits, &err), 0);
    make_path("/sys/freezer/sandal-t.b"); /* half of a group */
    assert_int_equal(kg_cgroups_each(&cg, count_id, text), 0);
    assert_string_equal(text, "a b ");
}

static void without_groups(void **state)
{
    const kg_limits_t none = {0};
    const kg_limits_t memory = {.memory_bytes = MIB};
    kg_box_usage_t usage;
    kg_err_t err = {0};
    (void)state;
    kg_cgroups_t cg = found();
    assert_string_equal(kg_cgroups_word(&cg), "none");
    for (int f = 0; f < KG_CG_FEATURES; f++) {
        assert_int_equal(cg.version[f], KG_CG_NONE);
        assert_true(cg.reason[f][0] != '\0');
    }
    assert_int_equal(kg_cgroup_make(&cg, "a", &memory, &err), -EOPNOTSUPP);
    assert_int_equal(err.code, KG_ERR_NOT_SUPPORTED);
    assert_non_null(strstr(err.message, "memory"));
    assert_int_equal(kg_cgroup_make(&cg, "a", &none, &err), 0);
    assert_int_equal(kg_cgroup_enter(&cg, "a"), 0);
    assert_int_equal(kg_cgroup_usage(&cg, "a", &usage), -ENOENT);
    assert_int_equal(kg_cgroup_freeze(&cg, "a", true, 1), -ENOTSUP);
    assert_int_equal(kg_cgroup_kill(&cg, "a"), -ENOTSUP);
    assert_int_equal(kg_cgroup_remove(&cg, "a"), 0);
}

/* The third limit can't be set: nothing is left of the first two. */
static void all_or_nothing(void **state)
{
    const kg_limits_t limits = {.memory_bytes = MIB, .pids = 3, .cpu_millis = 500};
    kg_err_t err = {0};
    (void)state;
    v1_tree();
    kg_cgroups_t cg = found();
    lacking = "cpu.cfs_quota_us";
    assert_true(kg_cgroup_make(&cg, "a", &limits, &err) < 0);
    assert_int_equal(err.code, KG_ERR_INVALID_REQUEST);
    assert_non_null(strstr(err.message, "cpu"));
    assert_absent("sys/memory/job one/sandal-t.a");
    assert_absent("sys/pids/sandal-t.a");
    assert_absent("sys/cpu/sandal-t.a");
}

/* A controller that is listed, but whose files are not there. */
static void what_is_not_there_is_not_promised(void **state)
{
    (void)state;
    v1_tree();
    lacking = "cpu.cfs_quota_us";
    kg_cgroups_t cg = found();
    assert_int_equal(cg.version[KG_CG_CPU], KG_CG_NONE);
    assert_non_null(strstr(cg.reason[KG_CG_CPU], "not built"));
    assert_int_equal(cg.version[KG_CG_ACCOUNT], KG_CG_V1);
}

/* The container's mount shows another part of the hierarchy than where we are. */
static void group_outside_of_the_mount(void **state)
{
    (void)state;
    v1_tree();
    put(tree, "proc/self/cgroup",
        "5:memory:/job one\n4:pids:/../x\n3:cpu,cpuacct:/docker/abcd\n2:freezer:/\n");
    kg_cgroups_t cg = found();
    assert_int_equal(cg.version[KG_CG_CPU], KG_CG_NONE);
    assert_int_equal(cg.version[KG_CG_PIDS], KG_CG_NONE);
    assert_int_equal(cg.version[KG_CG_MEMORY], KG_CG_V1);
    assert_int_equal(cg.version[KG_CG_KILL], KG_CG_V1);
}

static void usage_is_read(void **state)
{
    char me[16];
    const kg_limits_t limits = {0};
    kg_box_usage_t u;
    kg_err_t err = {0};
    (void)state;
    (void)snprintf(me, sizeof(me), "%d\n", (int)getpid());
    v2_tree(me);
    kg_cgroups_t cg = found();
    assert_int_equal(kg_cgroup_make(&cg, "a", &limits, &err), 0);
    assert_int_equal(kg_cgroup_usage(&cg, "a", &u), 0);
    assert_true(u.memory_bytes == UINT64_MAX && u.oom_kills == UINT64_MAX);
    put(tree, "sys/unified/app.service/sandal-t.a/memory.current", "5000\n");
    put(tree, "sys/unified/app.service/sandal-t.a/memory.peak", "9000\n");
    put(tree, "sys/unified/app.service/sandal-t.a/memory.stat",
        "anon 1\ninactive_file_x 7\ninactive_file 1000\n");
    put(tree, "sys/unified/app.service/sandal-t.a/memory.events", "oom 4\noom_kill 3\n");
    put(tree, "sys/unified/app.service/sandal-t.a/pids.current", "12\n");
    put(tree, "sys/unified/app.service/sandal-t.a/cpu.stat", "usage_usec 25\nuser_usec 1\n");
    assert_int_equal(kg_cgroup_usage(&cg, "a", &u), 0);
    assert_int_equal(u.memory_bytes, 4000);
    assert_int_equal(u.memory_peak_bytes, 9000);
    assert_int_equal(u.oom_kills, 3);
    assert_int_equal(u.pids, 12);
    assert_int_equal(u.cpu_ns, 25000);
    assert_true(u.disk_bytes == UINT64_MAX);
}

static void freeze_that_does_not_come_is_taken_back(void **state)
{
    char me[16];
    const kg_limits_t limits = {0};
    kg_err_t err = {0};
    (void)state;
    (void)snprintf(me, sizeof(me), "%d\n", (int)getpid());
    v2_tree(me);
    kg_cgroups_t cg = found();
    assert_int_equal(kg_cgroup_make(&cg, "a", &limits, &err), 0);
    put(tree, "sys/unified/app.service/sandal-t.a/cgroup.events", "populated 1\nfrozen 0\n");
    assert_int_equal(kg_cgroup_freeze(&cg, "a", true, 2), -ETIMEDOUT);
    assert_file("sys/unified/app.service/sandal-t.a/cgroup.freeze", "0");
    put(tree, "sys/unified/app.service/sandal-t.a/cgroup.events", "populated 1\nfrozen 1\n");
    assert_int_equal(kg_cgroup_freeze(&cg, "a", true, 2), 0);
    assert_file("sys/unified/app.service/sandal-t.a/cgroup.freeze", "1");
}

static void memory_is_pressed_out_where_there_is_swap(void **state)
{
    char me[16];
    char why[120];
    const kg_limits_t limits = {.memory_bytes = 1 << 20};
    kg_err_t err = {0};
    (void)state;
    (void)snprintf(me, sizeof(me), "%d\n", (int)getpid());
    v2_tree(me);
    kg_cgroups_t cg = found();
    assert_int_equal(kg_cgroup_make(&cg, "a", &limits, &err), 0);
    assert_false(kg_cgroup_presses(&cg, why));
    assert_non_null(strstr(why, "5.19"));
    put(tree, "sys/unified/app.service/memory.reclaim", "");
    put(tree, "proc/swaps", "Filename\tType\tSize\n");
    assert_false(kg_cgroup_presses(&cg, why));
    assert_non_null(strstr(why, "zram"));
    put(tree, "proc/swaps", "Filename\tType\tSize\n/dev/zram0 partition 1000\n");
    assert_true(kg_cgroup_presses(&cg, why));
    assert_string_equal(why, "");
    put(tree, "sys/unified/app.service/sandal-t.a/memory.reclaim", "");
    put(tree, "sys/unified/app.service/sandal-t.a/memory.current", "5000\n");
    assert_file("sys/unified/app.service/sandal-t.a/memory.swap.max", "0");
    assert_int_equal(kg_cgroup_press(&cg, "a"), 0);
    assert_file("sys/unified/app.service/sandal-t.a/memory.reclaim", "5000");
    assert_file("sys/unified/app.service/sandal-t.a/memory.swap.max", "max");
    put(tree, "sys/unified/app.service/sandal-t.a/cgroup.events", "populated 1\nfrozen 0\n");
    assert_int_equal(kg_cgroup_freeze(&cg, "a", false, 2), 0);
    assert_file("sys/unified/app.service/sandal-t.a/memory.swap.max", "0");
    assert_int_equal(kg_cgroup_press(&cg, "a"), 0); /* a worker's last deed, after the thaw */
    kg_cgroup_unpress(&cg, "a");
    assert_file("sys/unified/app.service/sandal-t.a/memory.swap.max", "0");
}

static void names_are_checked(void **state)
{
    kg_cgroups_t cg;
    (void)state;
    assert_int_equal(kg_cgroups_find(&cg, tree, "a/b"), -EINVAL);
    assert_int_equal(kg_cgroups_find(&cg, tree, "a.b"), -EINVAL);
    assert_int_equal(
        kg_cgroups_find(&cg, tree, "0123456789012345678901234567890123456789012345678"), -EINVAL);
    assert_int_equal(kg_cgroups_find(&cg, tree, "012345678901234567890123456789012345678901234567"),
                     0);
}

int main(void)
{
    const struct CMUnitTest made_up[] = {
        cmocka_unit_test_setup_teardown(v2_own_group_is_shared_out, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(v2_leaf_of_an_earlier_keeper, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(v2_strangers_stay, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(v1_one_group_a_hierarchy, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(hybrid_takes_the_best_of_both, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(leftovers_are_told_once, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(without_groups, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(all_or_nothing, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(what_is_not_there_is_not_promised, tree_setup,
                                        tree_teardown),
        cmocka_unit_test_setup_teardown(group_outside_of_the_mount, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(usage_is_read, tree_setup, tree_teardown),
        cmocka_unit_test_setup_teardown(freeze_that_does_not_come_is_taken_back, tree_setup,
                                        tree_teardown),
        cmocka_unit_test_setup_teardown(memory_is_pressed_out_where_there_is_swap, tree_setup,
                                        tree_teardown),
        cmocka_unit_test_setup_teardown(names_are_checked, tree_setup, tree_teardown),
    };
    return cmocka_run_group_tests_name("cgroup/made_up", made_up, NULL, NULL);
}
