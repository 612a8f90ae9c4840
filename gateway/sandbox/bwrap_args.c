/* A directory of the list becomes a read-only bind, a file a copy in the root's own tmpfs: bwrap
 * reads all mounts anew for each one that it makes, so there should be few. */
#include "gateway/sandbox/bwrap_args.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/fsuid.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/ns_mask.h"
#include "gateway/sandbox/ns_mask_list.h"
#include "gateway/sandbox/ns_view.h"

#define PATH_CAP 512
#define TEXT_CAP (1U << 20)
#define FIRST_FD 16 /* above those that launchers give a meaning */

typedef struct kg_bw {
    kg_bw_args_t *args;
    const kg_bw_spec_t *spec;
    char source[256]; /* what the root is made from; "" = the host's */
} kg_bw_t;

/* --- Words ----------------------------------------------------------------------------------- */

void kg_bw_add(kg_bw_args_t *args, ...)
{
    va_list list;
    va_start(list, args);
    for (const char *word = va_arg(list, const char *); word && args->error == 0;
         word = va_arg(list, const char *)) {
        args->error = kg_buf_append(&args->text, word, strlen(word) + 1);
    }
    va_end(list);
}

/* Takes over fd. Its number, as a word. */
static void keep_fd(kg_bw_args_t *args, int fd, char ret_word[16])
{
    int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FIRST_FD);
    if (fd >= 0 && high < 0 && args->error == 0) {
        args->error = -errno;
    }
    kg_closep(&fd);
    if (high >= 0 && args->fd_count == KG_BW_FDS_MAX) {
        args->error = -E2BIG;
        close(high);
        return;
    }
    if (high >= 0) {
        args->fds[args->fd_count++] = high;
        (void)snprintf(ret_word, 16, "%d", high);
    }
}

/* The content of text as a file to read. -1 with args->error. */
static int text_fd(kg_bw_args_t *args, const char *text)
{
    size_t len = strlen(text);
    int fd = memfd_create("sandal", MFD_CLOEXEC);
    if (fd < 0 || write(fd, text, len) != (ssize_t)len || lseek(fd, 0, SEEK_SET) < 0) {
        args->error = errno ? -errno : -EIO;
        kg_closep(&fd);
    }
    return fd;
}

void kg_bw_add_text(kg_bw_args_t *args, const char *option, const char *path, const char *text)
{
    char number[16] = "";
    if (args->error == 0) {
        keep_fd(args, text_fd(args, text), number);
    }
    if (args->error == 0) {
        kg_bw_add(args, "--perms", "0444", option, number, path, NULL);
    }
}

void kg_bw_args_fini(kg_bw_args_t *args)
{
    for (size_t i = 0; i < args->fd_count; i++) {
        close(args->fds[i]);
    }
    kg_buf_fini(&args->text);
    *args = (kg_bw_args_t){0};
}

/* --- The list -------------------------------------------------------------------------------- */

/* bwrap would make them too, but with modes that follow from what is in them. */
static void make_parents(kg_bw_args_t *args, const char *path)
{
    for (const char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        char part[sizeof(args->parents[0])];
        bool made = args->parent_count == KG_BW_PARENTS_MAX ||
                    kg_format(part, sizeof(part), "%.*s", (int)(slash - path), path) < 0;
        for (size_t i = 0; i < args->parent_count && !made; i++) {
            made = strcmp(args->parents[i], part) == 0;
        }
        if (!made) {
            memcpy(args->parents[args->parent_count++], part, sizeof(part));
            kg_bw_add(args, "--perms", "0755", "--dir", part, NULL);
        }
    }
}

static bool is_below_shown(const kg_bw_args_t *args, const char *path)
{
    for (size_t i = 0; i < args->shown_count; i++) {
        size_t len = strlen(args->shown[i]);
        if (strncmp(path, args->shown[i], len) == 0 && (path[len] == '/' || path[len] == '\0')) {
            return true;
        }
    }
    return false;
}

static void show_dir(kg_bw_t *b, const char *from, const char *path)
{
    kg_bw_args_t *args = b->args;
    if (args->shown_count == KG_BW_SHOWN_MAX ||
        kg_format(args->shown[args->shown_count], sizeof(args->shown[0]), "%s", path) < 0) {
        args->error = -E2BIG;
        return;
    }
    args->shown_count++;
    kg_bw_add(args, "--ro-bind", from, path, NULL);
}

static void show_file(kg_bw_t *b, const char *from, const char *path, mode_t mode)
{
    char number[16] = "";
    int fd = open(from, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd < 0) {
        return; /* gone since */
    }
    keep_fd(b->args, fd, number);
    kg_bw_add(b->args, "--perms", mode & S_IXOTH ? "0555" : "0444", "--file", number, path, NULL);
}

/* As it is in the source, if it is there. path is absolute, as seen inside. */
static void show(kg_bw_t *b, const char *path)
{
    char from[PATH_CAP];
    char target[PATH_CAP];
    struct stat st;

    if (is_below_shown(b->args, path) ||
        kg_format(from, sizeof(from), "%s%s", b->source, path) < 0 || lstat(from, &st) < 0) {
        return;
    }
    make_parents(b->args, path);
    if (S_ISDIR(st.st_mode)) {
        show_dir(b, from, path);
    } else if (S_ISREG(st.st_mode) && (st.st_mode & S_IROTH)) {
        show_file(b, from, path, st.st_mode);
    } else if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlink(from, target, sizeof(target) - 1);
        if (n > 0) {
            target[n] = '\0';
            kg_bw_add(b->args, "--symlink", target, path, NULL);
        }
    }
}

static struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe): one thread
}

static bool is_one_of(const char *name, const char *const *names)
{
    for (size_t i = 0; names[i]; i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* What is in path and begins with prefix. */
static void show_entries(kg_bw_t *b, const char *path, const char *prefix, const char *const *but)
{
    char name[PATH_CAP];
    DIR *dir = kg_format(name, sizeof(name), "%s%s/", b->source, path) == 0 ? opendir(name) : NULL;

    if (!dir) {
        return;
    }
    for (struct dirent *entry = next_entry(dir); entry; entry = next_entry(dir)) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            kg_str_starts(entry->d_name, prefix) && !is_one_of(entry->d_name, but) &&
            kg_format(name, sizeof(name), "%s/%s", path, entry->d_name) == 0) {
            show(b, name);
        }
    }
    closedir(dir);
}

static void show_row(kg_bw_t *b, const char *path)
{
    static const char *const none[] = {NULL};
    char dir[PATH_CAP];
    size_t len = strlen(path);
    const char *slash = strrchr(path, '/');

    if (path[len - 1] != '*') {
        show(b, path);
    } else if (kg_format(dir, sizeof(dir), "%.*s", (int)(slash - path), path) == 0) {
        char prefix[PATH_CAP];
        (void)kg_format(prefix, sizeof(prefix), "%.*s", (int)(path + len - 1 - slash - 1),
                        slash + 1);
        show_entries(b, dir, prefix, none);
    }
}

static bool in_source(const kg_bw_t *b, const char *path)
{
    char from[PATH_CAP];
    struct stat st;
    return kg_format(from, sizeof(from), "%s%s", b->source, path) == 0 && lstat(from, &st) == 0 &&
           !S_ISLNK(st.st_mode);
}

/* Below what is bound nothing can be made; what is there can be covered. */
static void add_row(kg_bw_t *b, const kg_mask_row_t *row)
{
    char path[PATH_CAP];
    char mode[16];
    bool bound;

    if (kg_format(path, sizeof(path), "/%s", row->path) < 0 || kg_str_starts(path, "/dev") ||
        strcmp(path, "/proc") == 0 || kg_str_starts(path, "/etc/apt")) {
        return; /* dev and proc are bwrap's own; without root there is nothing to install */
    }
    bound = is_below_shown(b->args, path);
    if (bound && !in_source(b, path)) {
        return;
    }
    if (!bound && row->op != KG_MASK_SHOW) {
        make_parents(b->args, path);
    }
    (void)snprintf(mode, sizeof(mode), "%04o", (row->mode ? row->mode : 0755U) & 01777U);
    switch (row->op) {
    case KG_MASK_SHOW:
        show_row(b, path);
        break;
    case KG_MASK_DIR:
        if (bound) {
            kg_bw_add(b->args, "--tmpfs", path, "--remount-ro", path, NULL);
        } else {
            kg_bw_add(b->args, "--perms", mode, "--dir", path, NULL);
        }
        break;
    case KG_MASK_LINK:
        if (!bound) {
            kg_bw_add(b->args, "--symlink", row->text, path, NULL);
        }
        break;
    case KG_MASK_TEXT:
        kg_bw_add_text(b->args, bound ? "--ro-bind-data" : "--file", path, row->text);
        break;
    case KG_MASK_NODE:
        break;
    }
}

static void add_rows(kg_bw_t *b, const kg_mask_row_t *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        add_row(b, &rows[i]);
    }
}

/* --- Texts ----------------------------------------------------------------------------------- */

/* Malloc'd, cut at TEXT_CAP; NULL when it can't be read. */
static char *read_text(const char *path)
{
    size_t len = 0;
    ssize_t n = 1;
    KG_AUTO_FREE char *text = malloc(TEXT_CAP + 1);
    KG_AUTO_CLOSE int fd = open(path, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (!text || fd < 0) {
        return NULL;
    }
    while (n > 0 && len < TEXT_CAP) {
        n = read(fd, text + len, TEXT_CAP - len);
        len += n > 0 ? (size_t)n : 0;
    }
    text[len] = '\0';
    return n < 0 ? NULL : KG_TAKE(text);
}

static void add_owned(kg_bw_t *b, const char *option, const char *path, char *text)
{
    if (!text && b->args->error == 0) {
        b->args->error = -ENOMEM;
    }
    if (text) {
        kg_bw_add_text(b->args, option, path, text);
        free(text);
    }
}

static void add_accounts(kg_bw_t *b)
{
    static const struct {
        const char *path;
        kg_accounts_t kind;
    } files[] = {{"/etc/passwd", KG_ACCOUNTS_PASSWD}, {"/etc/group", KG_ACCOUNTS_GROUP}};

    for (size_t i = 0; i < KG_ARRAY_LEN(files); i++) {
        char from[PATH_CAP];
        if (kg_format(from, sizeof(from), "%s%s", b->source, files[i].path) < 0) {
            continue;
        }
        KG_AUTO_FREE char *text = read_text(from);
        add_owned(b, "--file", files[i].path, kg_mask_accounts(files[i].kind, text ? text : ""));
    }
}

/* What /proc would say of the machine, for programs that size themselves by it. */
static void add_view(kg_bw_t *b)
{
    const kg_limits_t *limits = &b->spec->launch->request->limits;
    unsigned host_cpus = (unsigned)sysconf(_SC_NPROCESSORS_ONLN);
    unsigned cpus = kg_view_cpus(limits->cpu_millis, host_cpus);
    char text[32];

    (void)snprintf(text, sizeof(text), cpus > 1 ? "0-%u\n" : "0\n", cpus - 1);
    kg_bw_add_text(b->args, "--file", KG_MASK_VIEW "/cpus", text);
    kg_bw_add_text(b->args, "--file", KG_MASK_VIEW "/hostname", "sandbox\n");
    kg_bw_add_text(b->args, "--file", KG_MASK_VIEW "/hosts",
                   "127.0.0.1 localhost sandbox\n::1 localhost ip6-localhost ip6-loopback\n");
    kg_bw_add_text(b->args, "--file", KG_MASK_VIEW "/resolv.conf", b->spec->resolv_conf);
    if (limits->memory_bytes > 0) {
        add_owned(b, "--ro-bind-data", "/proc/meminfo", kg_view_meminfo(limits->memory_bytes));
    }
    if (cpus < host_cpus) {
        KG_AUTO_FREE char *info = read_text("/proc/cpuinfo");
        KG_AUTO_FREE char *stat = read_text("/proc/stat");
        if (info && stat) {
            add_owned(b, "--ro-bind-data", "/proc/cpuinfo", kg_view_cpuinfo(info, cpus));
            add_owned(b, "--ro-bind-data", "/proc/stat", kg_view_stat(stat, cpus));
        }
    }
}

/* --- All of it ------------------------------------------------------------------------------- */

static void add_namespaces(kg_bw_args_t *args, bool network)
{
    char id[16];
    (void)snprintf(id, sizeof(id), "%u", KG_BW_UID);
    kg_bw_add(args, "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-uts",
              "--unshare-cgroup-try", "--hostname", "sandbox", "--uid", id, "--gid", id,
              "--cap-drop", "ALL", "--as-pid-1", NULL);
    if (network) {
        kg_bw_add(args, "--unshare-net", NULL);
    }
}

static void add_tmpfs(kg_bw_args_t *args, uint64_t bytes, const char *perms, const char *path)
{
    char size[24];
    if (bytes > 0) { /* beyond the memory limit it would only kill */
        (void)snprintf(size, sizeof(size), "%llu", (unsigned long long)bytes);
        kg_bw_add(args, "--size", size, NULL);
    }
    kg_bw_add(args, "--perms", perms, "--tmpfs", path, NULL);
}

/* A template's directory: all that is at its top, and in its etc, except what is the sandbox's. */
static void add_directory_root(kg_bw_t *b)
{
    static const char *const not_at_top[] = {"dev", "etc", "home",      "proc", "run",
                                             "sys", "tmp", "workspace", NULL};
    static const char *const not_in_etc[] = {"hosts", "hostname", "resolv.conf", "mtab", "passwd",
                                             "group", "shadow",   "gshadow",     NULL};
    show_entries(b, "", "", not_at_top);
    kg_bw_add(b->args, "--dir", "/etc", NULL);
    show_entries(b, "/etc", "", not_in_etc);
}

/* The trees of templates, at the path that they were made for. */
static void add_prefixes(kg_bw_t *b)
{
    const kg_host_t *host = b->spec->host;
    const kg_root_t *own = b->spec->launch->root;
    kg_bw_args_t *args = b->args;

    for (size_t i = 0; i < host->root_count; i++) {
        const kg_root_t *root = &host->roots[i];
        bool on_host = strcmp(root->rootfs, "host") == 0 && b->source[0] == '\0';
        if ((on_host || root == own) && root->prefix[0] && !is_below_shown(args, root->prefix) &&
            access(root->prefix, F_OK) == 0) {
            make_parents(args, root->prefix);
            show_dir(b, root->prefix, root->prefix);
        }
    }
}

/* By the sandbox's user, as whom bwrap runs. */
static bool in_reach(const kg_bw_t *b, const char *path)
{
    const kg_launch_t *l = b->spec->launch;
    int root_uid = setfsuid(l->uid);
    int root_gid = setfsgid(l->gid);
    KG_AUTO_CLOSE int fd = open(path, O_PATH | O_CLOEXEC);
    (void)setfsgid((gid_t)root_gid);
    (void)setfsuid((uid_t)root_uid);
    return fd >= 0;
}

/* What the operator shows every sandbox, with the rights that it has on the host. */
static void add_shown(kg_bw_t *b)
{
    const kg_host_t *host = b->spec->host;
    for (size_t i = 0; i < host->shown_count; i++) {
        const char *path = host->shown[i];
        if (is_below_shown(b->args, path) || access(path, F_OK) < 0) {
            continue;
        }
        if (!in_reach(b, path)) {
            kg_log(KG_LOG_WARN, "bubblewrap.not_shown",
                   "path=%s reason=\"out of the sandbox's reach on the host\"", path);
            continue;
        }
        make_parents(b->args, path);
        kg_bw_add(b->args, "--ro-bind", path, path, NULL);
    }
}

int kg_bw_build(kg_bw_args_t *args, const kg_bw_spec_t *spec, kg_err_t *err)
{
    kg_bw_t b = {.args = args, .spec = spec};
    const kg_root_t *root = spec->launch->root;
    uint64_t memory = spec->launch->request->limits.memory_bytes;
    size_t count = 0;

    if (root && strcmp(root->rootfs, "host") != 0) {
        (void)kg_format(b.source, sizeof(b.source), "%s", root->rootfs);
    }
    add_namespaces(args, !spec->network_is_there);
    if (b.source[0]) {
        add_directory_root(&b);
    } else {
        const kg_mask_row_t *rows = kg_mask_host_rows(&count);
        add_rows(&b, rows, count);
    }
    add_prefixes(&b);
    add_shown(&b);
    kg_bw_add(args, "--dev", "/dev", NULL);
    add_tmpfs(args, memory, "1777", "/dev/shm");
    kg_bw_add(args, "--proc", "/proc", NULL);
    /* Its user owns the ipc namespace, so bwrap's own look at rights would leave the settings of
     * that open. */
    kg_bw_add(args, "--ro-bind", "/proc/sys", "/proc/sys", NULL);
    add_tmpfs(args, memory, "0755", "/run");
    add_tmpfs(args, memory, "1777", "/tmp");
    if (!is_below_shown(args, "/var/tmp") || in_source(&b, "/var/tmp")) {
        add_tmpfs(args, memory, "1777", "/var/tmp");
    }
    const kg_mask_row_t *rows = kg_mask_common_rows(&count);
    add_rows(&b, rows, count);
    add_accounts(&b);
    add_view(&b);
    kg_bw_add(args, "--bind", spec->paths->workspace, "/workspace", "--bind", spec->paths->home,
              "/home/user", "--bind", spec->paths->run_dir, "/run/sandal", NULL);
    kg_bw_add(args, "--ro-bind", spec->host->init_exe, KG_BW_INIT, "--remount-ro", "/", "--chdir",
              "/workspace", NULL);
    return args->error < 0 ? kg_err_set(err, kg_err_from_errno(args->error),
                                        "the sandbox's root can't be laid out: %s",
                                        strerrordesc_np(-args->error))
                           : 0;
}
