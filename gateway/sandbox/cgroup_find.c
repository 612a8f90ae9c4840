/* Which features there are, found by making a group and looking at what is in it: mount options and
 * lists of controllers say less (a controller may be listed and yet not be handed out). */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/cgroup_private.h"

#define NAME_MAX_BYTES 48
#define LEAF "supervisor"
#define MOVE_ROUNDS 4 /* processes may fork while we move them */

typedef struct kg_feature_files {
    const char *name;
    const char *v2_controller; /* NULL: there without one */
    const char *v2_file;
    const char *v1_controller;
    const char *v1_file;
} kg_feature_files_t;

static const kg_feature_files_t FILES[KG_CG_FEATURES] = {
    [KG_CG_MEMORY] = {"memory", "memory", "memory.max", "memory", "memory.limit_in_bytes"},
    [KG_CG_PIDS] = {"pids", "pids", "pids.max", "pids", "pids.max"},
    [KG_CG_CPU] = {"cpu", "cpu", "cpu.max", "cpu", "cpu.cfs_quota_us"},
    [KG_CG_FREEZE] = {"freeze", NULL, "cgroup.freeze", "freezer", "freezer.state"},
    [KG_CG_KILL] = {"kill", NULL, "cgroup.procs", NULL, NULL}, /* v1: by any of the others */
    [KG_CG_ACCOUNT] = {"account", NULL, "cpu.stat", "cpuacct", "cpuacct.usage"},
};

/* One line of mountinfo that is about control groups. */
typedef struct kg_cg_mount {
    bool v2;
    char root[256];
    char point[256];
    char options[256]; /* of the super block: v1's controllers */
} kg_cg_mount_t;

const char *kg_cg_feature_name(kg_cg_feature_t feature)
{
    return FILES[feature].name;
}

/* Is word in a list of words with sep between them? */
static bool listed(const char *list, const char *word, char sep)
{
    size_t len = strlen(word);
    for (const char *at = list; at && *at; at = strchr(at, sep) ? strchr(at, sep) + 1 : NULL) {
        if (strncmp(at, word, len) == 0 && (at[len] == sep || at[len] == '\0' || at[len] == '\n')) {
            return true;
        }
    }
    return false;
}

/* \040 and the like. */
static void unescape(char *s)
{
    char *out = s;
    for (; *s; s++) {
        if (s[0] == '\\' && s[1] >= '0' && s[1] <= '3' && s[2] >= '0' && s[2] <= '7' &&
            s[3] >= '0' && s[3] <= '7') {
            *out++ = (char)(((s[1] - '0') << 6) | ((s[2] - '0') << 3) | (s[3] - '0'));
            s += 3;
        } else {
            *out++ = *s;
        }
    }
    *out = '\0';
}

static bool parse_mount(const char *line, kg_cg_mount_t *ret)
{
    char type[32];
    const char *tail = strstr(line, " - ");

    if (!tail || sscanf(tail, " - %31s %*s %255s", type, ret->options) != 2 ||
        sscanf(line, "%*s %*s %*s %255s %255s", ret->root, ret->point) != 2) {
        return false;
    }
    ret->v2 = strcmp(type, "cgroup2") == 0;
    unescape(ret->root);
    unescape(ret->point);
    return ret->v2 || strcmp(type, "cgroup") == 0;
}

/* The path of our own group in the hierarchy of a v1 controller, or v2's (NULL). */
static int own_path(const char *root, const char *controller, char ret_path[256])
{
    char name[CG_PATH_MAX];
    KG_AUTO_FREE char *line = NULL;
    size_t cap = 0;
    int r = kg_format(name, sizeof(name), "%s/proc/self/cgroup", root);
    FILE *file = r == 0 ? fopen(name, "re") : NULL;

    if (!file) {
        return r < 0 ? r : -errno;
    }
    r = -ENOENT;
    while (r == -ENOENT && getline(&line, &cap, file) > 0) {
        char *list = strchr(line, ':');
        char *path = list ? strchr(list + 1, ':') : NULL;
        if (!path) {
            continue;
        }
        *path++ = '\0';
        path[strcspn(path, "\n")] = '\0';
        if (controller ? listed(list + 1, controller, ',') : list[1] == '\0') {
            r = kg_format(ret_path, 256, "%s", path);
        }
    }
    (void)fclose(file);
    return r;
}

/* Where path, as the hierarchy names it, is seen through a mount that shows root and what is below
 * it. NULL: not there. */
static const char *below(const char *path, const char *root)
{
    size_t len = strlen(root);
    if (strcmp(root, "/") == 0) {
        return path;
    }
    if (strncmp(path, root, len) == 0 && (path[len] == '/' || path[len] == '\0')) {
        return path + len;
    }
    return NULL;
}

/* ret_top: where the hierarchy is mounted. ret_own: our own group's directory. */
static int own_group(const char *root, const char *controller, char ret_top[256], char ret_own[256])
{
    char name[CG_PATH_MAX];
    char path[256];
    KG_AUTO_FREE char *line = NULL;
    size_t cap = 0;

    int r = own_path(root, controller, path);
    if (r == 0) {
        r = kg_format(name, sizeof(name), "%s/proc/self/mountinfo", root);
    }
    FILE *file = r == 0 ? fopen(name, "re") : NULL;
    if (!file) {
        return r < 0 ? r : -errno;
    }
    r = -ENOENT;
    while (r == -ENOENT && getline(&line, &cap, file) > 0) {
        kg_cg_mount_t mount;
        if (!parse_mount(line, &mount) || mount.v2 != (controller == NULL) ||
            (controller && !listed(mount.options, controller, ','))) {
            continue;
        }
        const char *rest = below(path, mount.root);
        if (!rest || strstr(rest, "/..")) {
            continue; /* our group is outside of what is mounted */
        }
        r = kg_format(ret_top, 256, "%s%s", root, mount.point);
        if (r == 0) {
            r = kg_format(ret_own, 256, "%s%s", ret_top, strcmp(rest, "/") == 0 ? "" : rest);
        }
    }
    (void)fclose(file);
    return r;
}

/* Makes a group below base, has a look at it, removes it. 0, or -errno of making it. */
static int probe(const kg_cgroups_t *cg,
                 const char *base,
                 kg_cg_version_t version,
                 bool ret_has[KG_CG_FEATURES])
{
    char dir[CG_PATH_MAX];
    size_t len = strlen(cg->prefix) - 1; /* without the dot */
    int r = kg_format(dir, sizeof(dir), "%s/%.*s" CG_PROBE_NAME, base, (int)len, cg->prefix);

    if (r < 0) {
        return r;
    }
    if (mkdir(dir, 0755) < 0 && errno != EEXIST) {
        return -errno;
    }
    for (int f = 0; f < KG_CG_FEATURES; f++) {
        const char *file = version == KG_CG_V2 ? FILES[f].v2_file : FILES[f].v1_file;
        ret_has[f] = file && cg_has(dir, file);
    }
    return rmdir(dir) < 0 ? -errno : 0;
}

typedef struct kg_census {
    size_t others;
    int move_to; /* cgroup.procs of the leaf */
} kg_census_t;

static bool is_ours(pid_t pid)
{
    char path[64];
    char text[512];
    if (pid == getpid() || pid == getppid()) {
        return true;
    }
    (void)snprintf(path, sizeof(path), "/proc/%d", (int)pid);
    if (cg_read(path, "stat", text, sizeof(text)) < 0) {
        return true; /* gone */
    }
    const char *at = strrchr(text, ')');
    return at && at[1] == ' ' && at[2] != '\0' && strtol(at + 3, NULL, 10) == getpid();
}

static void count_others(void *user, pid_t pid)
{
    kg_census_t *census = user;
    if (!is_ours(pid)) {
        census->others++;
    }
}

static void move_pid(void *user, pid_t pid)
{
    const kg_census_t *census = user;
    char text[16];
    int len = snprintf(text, sizeof(text), "%d", (int)pid);
    (void)!write(census->move_to, text, (size_t)len); /* it may be gone; EBUSY later tells */
}

/* May we rearrange this group? systemd marks what it has delegated; a container's top is its own.
 */
static bool group_is_ours(const char *own, const char *top)
{
    char mark[8] = "";
    kg_census_t census = {0};

    if (strcmp(own, top) == 0 ||
        (getxattr(own, "user.delegate", mark, sizeof(mark)) > 0 && mark[0] == '1') ||
        (getxattr(own, "trusted.delegate", mark, sizeof(mark)) > 0 && mark[0] == '1')) {
        return true;
    }
    return cg_each_pid(own, count_others, &census) >= 0 && census.others == 0;
}

static int empty_group(const char *own)
{
    char leaf[CG_PATH_MAX];
    kg_census_t census = {0};

    int r = kg_format(leaf, sizeof(leaf), "%s/" LEAF, own);
    if (r == 0 && mkdir(leaf, 0755) < 0 && errno != EEXIST) {
        r = -errno;
    }
    if (r == 0) {
        r = kg_format(leaf, sizeof(leaf), "%s/" LEAF "/cgroup.procs", own);
    }
    if (r < 0) {
        return r;
    }
    KG_AUTO_CLOSE int fd = open(leaf, O_WRONLY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    census.move_to = fd;
    r = cg_each_pid(own, move_pid, &census);
    return r < 0 ? r : 0;
}

/* Hands the controllers that base has to its children. */
static int enable(const char *base, bool may_move)
{
    char have[512] = "";
    char handed[512] = "";
    char text[64] = "";

    int r = cg_read(base, "cgroup.controllers", have, sizeof(have));
    if (r == 0) {
        r = cg_read(base, "cgroup.subtree_control", handed, sizeof(handed));
    }
    if (r < 0) {
        return r;
    }
    for (int f = 0; f < KG_CG_FEATURES; f++) {
        const char *name = FILES[f].v2_controller;
        if (name && listed(have, name, ' ') && !listed(handed, name, ' ')) {
            size_t len = strlen(text);
            (void)snprintf(text + len, sizeof(text) - len, "%s+%s", len ? " " : "", name);
        }
    }
    if (text[0] == '\0') {
        return 0;
    }
    r = cg_write(base, "cgroup.subtree_control", text);
    for (int i = 0; i < MOVE_ROUNDS && r == -EBUSY && may_move; i++) {
        r = empty_group(base);
        if (r == 0) {
            r = cg_write(base, "cgroup.subtree_control", text);
        }
    }
    return r;
}

/* The group of v2 below which ours are made: our own, or as root the top. */
static void choose_v2_base(char own[256], const char *top, char ret_remark[120])
{
    size_t len = strlen(own);
    size_t leaf = strlen("/" LEAF);

    if (len > leaf && strcmp(own + len - leaf, "/" LEAF) == 0) {
        own[len - leaf] = '\0'; /* moved there by an earlier one, or by systemd */
    }
    int r = enable(own, group_is_ours(own, top));
    if (r == 0) {
        return;
    }
    if (geteuid() == 0 && strcmp(own, top) != 0 && enable(top, false) == 0) {
        (void)snprintf(ret_remark, 120,
                       "made at the top of the hierarchy: the daemon's own group is "
                       "not delegated to it");
        memmove(own, top, strlen(top) + 1);
        return;
    }
    (void)snprintf(ret_remark, 120, "%s: own group is not delegated (systemd: Delegate=yes)",
                   strerrordesc_np(-r));
}

static void find_v2(kg_cgroups_t *cg, const char *root)
{
    char top[256];
    char own[256];
    char remark[120] = "";
    bool has[KG_CG_FEATURES] = {false};

    int r = own_group(root, NULL, top, own);
    if (r < 0) {
        (void)snprintf(remark, sizeof(remark), "no cgroup v2 is mounted");
    } else {
        choose_v2_base(own, top, remark);
        r = probe(cg, own, KG_CG_V2, has);
        if (r < 0) {
            (void)snprintf(remark, sizeof(remark), "no cgroup v2 can be made below its own: %s",
                           strerrordesc_np(-r));
        }
    }
    for (int f = 0; f < KG_CG_FEATURES; f++) {
        (void)snprintf(cg->reason[f], sizeof(cg->reason[f]), "%s", remark);
        if (r == 0 && has[f]) {
            cg->version[f] = KG_CG_V2;
            (void)kg_format(cg->base[f], sizeof(cg->base[f]), "%s", own);
        }
    }
}

static void find_v1(kg_cgroups_t *cg, const char *root, kg_cg_feature_t f)
{
    char top[256];
    char own[256];
    bool has[KG_CG_FEATURES] = {false};

    int r = own_group(root, FILES[f].v1_controller, top, own);
    if (r < 0) {
        if (cg->reason[f][0] == '\0') {
            (void)snprintf(cg->reason[f], sizeof(cg->reason[f]), "neither v1 nor v2 has it here");
        }
        return;
    }
    r = probe(cg, own, KG_CG_V1, has);
    if (r == 0 && has[f]) {
        cg->version[f] = KG_CG_V1;
        (void)kg_format(cg->base[f], sizeof(cg->base[f]), "%s", own);
        cg->reason[f][0] = '\0';
        return;
    }
    (void)snprintf(cg->reason[f], sizeof(cg->reason[f]), "cgroup v1 %s: %s", FILES[f].v1_controller,
                   r < 0 ? strerrordesc_np(-r) : "not built into the kernel");
}

/* Killing needs a list of processes, which every hierarchy has. */
static void find_v1_kill(kg_cgroups_t *cg)
{
    static const kg_cg_feature_t order[] = {KG_CG_PIDS, KG_CG_MEMORY, KG_CG_FREEZE, KG_CG_CPU,
                                            KG_CG_ACCOUNT};
    for (size_t i = 0; i < KG_ARRAY_LEN(order); i++) {
        if (cg->version[order[i]] != KG_CG_NONE) {
            cg->version[KG_CG_KILL] = cg->version[order[i]];
            memcpy(cg->base[KG_CG_KILL], cg->base[order[i]], sizeof(cg->base[0]));
            cg->reason[KG_CG_KILL][0] = '\0';
            return;
        }
    }
}

int kg_cgroups_find(kg_cgroups_t *ret, const char *root, const char *name)
{
    kg_cgroups_t cg = {0};

    if (strlen(name) > NAME_MAX_BYTES || strpbrk(name, "/.~")) {
        return -EINVAL;
    }
    int r = kg_format(cg.prefix, sizeof(cg.prefix), "sandal-%s.", name);
    if (r < 0) {
        return r;
    }
    root = strcmp(root, "/") == 0 ? "" : root;
    r = kg_format(cg.proc, sizeof(cg.proc), "%s/proc", root);
    if (r < 0) {
        return r;
    }
    find_v2(&cg, root);
    for (kg_cg_feature_t f = 0; f < KG_CG_FEATURES; f++) {
        if (cg.version[f] == KG_CG_NONE && FILES[f].v1_controller) {
            find_v1(&cg, root, f);
        }
    }
    if (cg.version[KG_CG_KILL] == KG_CG_NONE) {
        find_v1_kill(&cg);
    }
    *ret = cg;
    return 0;
}
