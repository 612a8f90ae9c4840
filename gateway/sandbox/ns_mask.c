/* Builds a MASK layer: makes what the list says. Everything is made below the layer's own
 * directory, which nobody else can reach; the source is read without leaving it. */
#include "gateway/sandbox/ns_mask.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/ns_mask_list.h"

#define PATH_CAP 1024
#define FILE_CAP (4U << 20) /* of a copied file */
#define CANARIES_A_PLACE 6
#define DEPTH_MAX 8 /* of directories that the operator names */

typedef struct kg_mask {
    int root;       /* `r` */
    int source;     /* of the lower layer */
    uint64_t mount; /* the source's: what is mounted below it is not in the lower layer */
    const kg_mask_spec_t *spec;
    char at[PATH_CAP]; /* path at work, for the reason */
} kg_mask_t;

/* --- Reading the source ----------------------------------------------------------------------- */

static int source_open(const kg_mask_t *m, const char *path, int flags)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
    };
    long fd = syscall(SYS_openat2, m->source, path, &how, sizeof(how));
    return fd < 0 ? -errno : (int)fd;
}

/* Malloc'd, with a NUL behind; FIFOs and the like never block. */
static int read_file(int fd, char **ret_text, size_t *ret_len)
{
    size_t len = 0;
    KG_AUTO_FREE char *text = malloc(FILE_CAP + 1);

    while (text && len < FILE_CAP) {
        ssize_t n = read(fd, text + len, FILE_CAP - len);
        if (n < 0) {
            return -errno;
        }
        if (n == 0) {
            break;
        }
        len += (size_t)n;
    }
    if (!text || len == FILE_CAP) {
        return text ? -EFBIG : -ENOMEM;
    }
    text[len] = '\0';
    *ret_text = KG_TAKE(text);
    *ret_len = len;
    return 0;
}

/* --- Making ----------------------------------------------------------------------------------- */

/* The layer's own links, absolute ones too, stay within it: never a path of the host's. */
static int layer_open(const kg_mask_t *m, const char *path, int flags)
{
    struct open_how how = {
        .flags = (uint64_t)(unsigned)(flags | O_CLOEXEC),
        .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS,
    };
    long fd = syscall(SYS_openat2, m->root, path, &how, sizeof(how));
    return fd < 0 ? -errno : (int)fd;
}

/* The directory that path is to be made in, made with its parents; *ret_name: what is left. */
static int open_parent(kg_mask_t *m, const char *path, const char **ret_name)
{
    char part[PATH_CAP];
    KG_AUTO_CLOSE int at = layer_open(m, ".", O_PATH | O_DIRECTORY);

    *ret_name = path;
    for (const char *slash = strchr(path, '/'); slash && at >= 0; slash = strchr(*ret_name, '/')) {
        if (kg_format(part, sizeof(part), "%.*s", (int)(slash - *ret_name), *ret_name) < 0) {
            return -ENAMETOOLONG;
        }
        if (mkdirat(at, part, 0755) < 0 && errno != EEXIST) {
            return -errno;
        }
        if (kg_format(part, sizeof(part), "%.*s", (int)(slash - path), path) < 0) {
            return -ENAMETOOLONG;
        }
        close(kg_take_fd(&at));
        at = layer_open(m, part, O_PATH | O_DIRECTORY);
        *ret_name = slash + 1;
    }
    return kg_take_fd(&at);
}

static int set_mark(kg_mask_t *m, const char *path, const char *name, const char *value)
{
    KG_AUTO_CLOSE int fd = layer_open(m, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (fd < 0) {
        return fd;
    }
    return fsetxattr(fd, name, value, strlen(value), 0) < 0 ? -errno : 0;
}

static int make_dir(kg_mask_t *m, const char *path, mode_t mode, uid_t uid)
{
    const char *name;
    KG_AUTO_CLOSE int parent = open_parent(m, path, &name);

    if (parent < 0) {
        return parent;
    }
    if (mkdirat(parent, name, 0755) < 0 && errno != EEXIST) {
        return -errno;
    }
    KG_AUTO_CLOSE int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0 || fchmod(fd, mode ? mode : 0755) < 0 || fchown(fd, uid, uid) < 0) {
        return -errno;
    }
    return 0;
}

static int make_text(kg_mask_t *m, const char *path, mode_t mode, const char *text, size_t len)
{
    const char *name;
    KG_AUTO_CLOSE int parent = open_parent(m, path, &name);

    if (parent < 0) {
        return parent;
    }
    (void)unlinkat(parent, name, 0);
    KG_AUTO_CLOSE int fd =
        openat(parent, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -errno;
    }
    while (len > 0) {
        ssize_t n = write(fd, text, len);
        if (n < 0) {
            return -errno;
        }
        text += n;
        len -= (size_t)n;
    }
    return fchmod(fd, mode ? mode : 0644) < 0 ? -errno : 0;
}

static int make_link(kg_mask_t *m, const char *path, const char *target)
{
    const char *name;
    KG_AUTO_CLOSE int parent = open_parent(m, path, &name);

    if (parent < 0) {
        return parent;
    }
    (void)unlinkat(parent, name, 0);
    return symlinkat(target, parent, name) < 0 ? -errno : 0;
}

static int make_node(kg_mask_t *m, const kg_mask_row_t *row)
{
    const char *name;
    KG_AUTO_CLOSE int parent = open_parent(m, row->path, &name);

    if (parent < 0) {
        return parent;
    }
    if (mknodat(parent, name, S_IFCHR | 0600, makedev(row->major, row->minor)) < 0 ||
        fchmodat(parent, name, row->mode, 0) < 0) {
        return -errno;
    }
    return 0;
}

/* --- Showing ---------------------------------------------------------------------------------- */

/* A user and password in a URL. */
static bool has_login(const char *text)
{
    for (const char *at = strstr(text, "://"); at; at = strstr(at, "://")) {
        at += 3;
        if (at[strcspn(at, "/@ \t\r\n")] == '@') {
            return true;
        }
    }
    return false;
}

/* any_mode: the operator named it. */
static int show_file(kg_mask_t *m, const char *path, const struct stat *st, bool any_mode)
{
    if (!any_mode && !(st->st_mode & S_IROTH)) {
        return 0;
    }
    KG_AUTO_CLOSE int fd = source_open(m, path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    if (fd < 0) {
        return fd;
    }
    KG_AUTO_FREE char *text = NULL;
    size_t len = 0;
    int r = read_file(fd, &text, &len);
    if (!text || (!any_mode && kg_str_starts(path, "etc/apt/") && has_login(text))) {
        return r;
    }
    return make_text(m, path, 0644 | (st->st_mode & 0111), text, len);
}

static int show_link(kg_mask_t *m, int fd, const char *path)
{
    char target[PATH_CAP];
    ssize_t n = readlinkat(fd, "", target, sizeof(target) - 1);
    if (n < 0) {
        return -errno;
    }
    target[n] = '\0';
    return make_link(m, path, target);
}

static uint64_t mount_of(int fd)
{
    struct statx st = {0};
    return statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &st) < 0 ? 0 : st.stx_mnt_id;
}

static int show_dir(kg_mask_t *m, int fd, const char *path)
{
    char where[PATH_CAP + 1];
    if (mount_of(fd) != m->mount) { /* without /usr there is no system to show */
        return strcmp(path, "usr") == 0 ? -EXDEV : 0;
    }
    int r = kg_format(where, sizeof(where), "/%s", path);
    if (r == 0) {
        r = make_dir(m, path, 0755, 0);
    }
    return r < 0 ? r : set_mark(m, path, "trusted.overlay.redirect", where);
}

static int show(kg_mask_t *m, const char *path)
{
    struct stat st;
    KG_AUTO_CLOSE int fd = source_open(m, path, O_PATH | O_NOFOLLOW);

    if (fd < 0) {
        return fd == -ENOENT || fd == -ENOTDIR ? 0 : fd;
    }
    if (fstat(fd, &st) < 0) {
        return -errno;
    }
    if (S_ISDIR(st.st_mode)) {
        return show_dir(m, fd, path);
    }
    if (S_ISLNK(st.st_mode)) {
        return show_link(m, fd, path);
    }
    return S_ISREG(st.st_mode) ? show_file(m, path, &st, false) : 0;
}

typedef int kg_name_fn(kg_mask_t *m, const char *path, void *user);

/* Calls fn for each entry of dir in the source whose name begins with prefix. */
static int each_entry(kg_mask_t *m, const char *dir, const char *prefix, kg_name_fn *fn, void *user)
{
    char path[PATH_CAP];
    const struct dirent *entry;
    int r = 0;
    int fd = source_open(m, dir[0] ? dir : ".", O_RDONLY | O_DIRECTORY | O_NOFOLLOW);

    if (fd < 0) {
        return fd == -ENOENT || fd == -ENOTDIR || fd == -ELOOP ? 0 : fd;
    }
    DIR *open_dir = fdopendir(fd);
    if (!open_dir) {
        r = -errno;
        close(fd);
        return r;
    }
    while (r == 0 && (entry = readdir(open_dir)) != NULL) { // NOLINT(concurrency-mt-unsafe)
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0 ||
            !kg_str_starts(entry->d_name, prefix)) {
            continue;
        }
        r = kg_format(path, sizeof(path), "%s%s%s", dir, dir[0] ? "/" : "", entry->d_name);
        if (r == 0) {
            r = fn(m, path, user);
        }
    }
    (void)closedir(open_dir);
    return r;
}

static int show_one(kg_mask_t *m, const char *path, void *user)
{
    (void)user;
    return show(m, path);
}

static int show_all(kg_mask_t *m, const char *pattern)
{
    char dir[PATH_CAP];
    char prefix[PATH_CAP];
    const char *slash = strrchr(pattern, '/');
    size_t len = slash ? (size_t)(slash - pattern) : 0;

    if (kg_format(dir, sizeof(dir), "%.*s", (int)len, pattern) < 0 ||
        kg_format(prefix, sizeof(prefix), "%s", slash ? slash + 1 : pattern) < 0) {
        return -ENAMETOOLONG;
    }
    prefix[strlen(prefix) - 1] = '\0'; /* the star */
    return each_entry(m, dir, prefix, show_one, NULL);
}

/* --- The list --------------------------------------------------------------------------------- */

static int make_row(kg_mask_t *m, const kg_mask_row_t *row)
{
    int r;
    switch (row->op) {
    case KG_MASK_SHOW:
        return row->path[strlen(row->path) - 1] == '*' ? show_all(m, row->path)
                                                       : show(m, row->path);
    case KG_MASK_DIR:
        r = make_dir(m, row->path, row->mode, row->uid);
        return r < 0 ? r : set_mark(m, row->path, "trusted.overlay.opaque", "y");
    case KG_MASK_LINK:
        return make_link(m, row->path, row->text);
    case KG_MASK_TEXT:
        return make_text(m, row->path, row->mode, row->text, strlen(row->text));
    case KG_MASK_NODE:
        return make_node(m, row);
    }
    return -EINVAL;
}

static int make_rows(kg_mask_t *m, const kg_mask_row_t *rows, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        (void)kg_format(m->at, sizeof(m->at), "%s", rows[i].path);
        int r = make_row(m, &rows[i]);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

/* A template's directory: everything at its top, except what the sandbox brings itself. */
static int show_top(kg_mask_t *m, const char *path, void *user)
{
    static const char *const own[] = {"dev", "proc", "sys", "run", "tmp", "workspace"};
    (void)user;
    for (size_t i = 0; i < KG_ARRAY_LEN(own); i++) {
        if (strcmp(path, own[i]) == 0) {
            return 0;
        }
    }
    return show(m, path);
}

static int
make_account_file(kg_mask_t *m, const char *from, const char *to, kg_accounts_t kind, mode_t mode)
{
    KG_AUTO_FREE char *text = NULL;
    KG_AUTO_FREE char *made = NULL;
    size_t len = 0;
    KG_AUTO_CLOSE int fd = source_open(m, from, O_RDONLY | O_NONBLOCK | O_NOCTTY);

    int r = fd < 0 ? fd : read_file(fd, &text, &len);
    if (r == -ENOENT) {
        r = 0;
    }
    made = r == 0 ? kg_mask_accounts(kind, text ? text : "root:x:0:0::/root:/bin/sh\n") : NULL;
    if (!made) {
        return r < 0 ? r : -ENOMEM;
    }
    return make_text(m, to, mode, made, strlen(made));
}

static int make_accounts(kg_mask_t *m)
{
    (void)kg_format(m->at, sizeof(m->at), "etc/passwd");
    int r = make_account_file(m, "etc/passwd", "etc/passwd", KG_ACCOUNTS_PASSWD, 0644);
    if (r == 0) {
        r = make_account_file(m, "etc/group", "etc/group", KG_ACCOUNTS_GROUP, 0644);
    }
    if (r == 0) {
        r = make_account_file(m, "etc/passwd", "etc/shadow", KG_ACCOUNTS_SHADOW, 0600);
    }
    return r < 0 ? r : make_account_file(m, "etc/group", "etc/gshadow", KG_ACCOUNTS_GSHADOW, 0600);
}

static int copy_named(kg_mask_t *m, const char *path, void *user);

/* What the operator names, with all below it: copies, for it may lie outside the lower layer. */
static int copy_path(kg_mask_t *m, const char *path, unsigned depth)
{
    struct stat st;
    KG_AUTO_CLOSE int fd = source_open(m, path, O_PATH | O_NOFOLLOW);

    if (fd < 0 || fstat(fd, &st) < 0) {
        return fd < 0 ? fd : -errno;
    }
    if (S_ISDIR(st.st_mode)) {
        int r = depth == 0 ? -ELOOP : make_dir(m, path, 0755, 0);
        depth--;
        return r < 0 ? r : each_entry(m, path, "", copy_named, &depth);
    }
    if (S_ISLNK(st.st_mode)) {
        return show_link(m, fd, path);
    }
    return S_ISREG(st.st_mode) ? show_file(m, path, &st, true) : 0;
}

static int copy_named(kg_mask_t *m, const char *path, void *user)
{
    const unsigned *depth = user;
    return copy_path(m, path, *depth);
}

static int copy_files(kg_mask_t *m)
{
    kg_mask_t from = *m;
    KG_AUTO_CLOSE int host = -1;

    if (!m->spec->host) {
        host = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
        from.source = host;
    }
    for (size_t i = 0; i < m->spec->file_count; i++) {
        (void)kg_format(m->at, sizeof(m->at), "%s", m->spec->files[i]);
        int r = from.source < 0 ? -ENOENT : copy_path(&from, m->spec->files[i] + 1, DEPTH_MAX);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

/* Beside sandal-init on the host. */
static int make_zygote(kg_mask_t *m)
{
    KG_AUTO_FREE char *text = NULL;
    size_t len = 0;
    const char *slash = strrchr(m->spec->init_exe, '/');
    int r = kg_format(m->at, sizeof(m->at), "%.*s/sandal-zygote.so",
                      (int)(slash ? slash - m->spec->init_exe : 0), m->spec->init_exe);

    KG_AUTO_CLOSE int fd = r < 0 ? -1 : open(m->at, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return 0;
    }
    r = read_file(fd, &text, &len);
    return r < 0 ? r : make_text(m, KG_MASK_ZYGOTE, 0755, text, len);
}

/* Mount points, what the operator names, pid 1. */
static int make_specials(kg_mask_t *m)
{
    KG_AUTO_FREE char *init = NULL;
    size_t len = 0;

    for (size_t i = 0; i < m->spec->dir_count; i++) {
        (void)kg_format(m->at, sizeof(m->at), "%s", m->spec->dirs[i]);
        int r = make_dir(m, m->spec->dirs[i] + 1, 0755, 0);
        if (r < 0) {
            return r;
        }
    }
    int r = copy_files(m);
    if (r < 0) {
        return r;
    }
    (void)kg_format(m->at, sizeof(m->at), "%s", m->spec->init_exe);
    KG_AUTO_CLOSE int fd = open(m->spec->init_exe, O_RDONLY | O_CLOEXEC);
    r = fd < 0 ? -errno : read_file(fd, &init, &len);
    if (r == 0) {
        r = make_text(m, KG_MASK_INIT, 0755, init, len);
    }
    return r < 0 ? r : make_zygote(m);
}

/* --- Canaries --------------------------------------------------------------------------------- */

typedef struct kg_canaries {
    char text[KG_MASK_CANARIES_MAX];
    size_t len;
    unsigned here;
} kg_canaries_t;

static void add_canary(kg_canaries_t *c, const char *path)
{
    size_t len = strlen(path) + 1;
    if (len > 1 && c->len + len <= sizeof(c->text)) {
        memcpy(c->text + c->len, path, len);
        c->len += len;
    }
}

/* An entry of a hidden place that the layer doesn't show. */
static int see_canary(kg_mask_t *m, const char *path, void *user)
{
    kg_canaries_t *c = user;
    struct stat st;

    if (c->here < CANARIES_A_PLACE && fstatat(m->root, path, &st, AT_SYMLINK_NOFOLLOW) < 0 &&
        errno == ENOENT) {
        c->here++;
        add_canary(c, path);
    }
    return 0;
}

static int make_canaries(kg_mask_t *m, int dir)
{
    static const char *const places[] = {"",     "root", "home",    "srv",     "mnt",
                                         "boot", "opt",  "var",     "var/lib", "etc",
                                         "run",  "tmp",  "etc/ssl", "etc/apt"};
    kg_canaries_t c = {.len = 0};

    for (size_t i = 0; i < m->spec->secret_count; i++) {
        add_canary(&c, m->spec->secrets[i] + 1);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(places) && m->spec->host; i++) {
        c.here = 0;
        int r = each_entry(m, places[i], "", see_canary, &c);
        if (r < 0) {
            return r;
        }
    }
    kg_mask_t top = {.root = dir}; /* beside `r` */
    return make_text(&top, KG_MASK_CANARIES, 0600, c.text, c.len);
}

static int build(kg_mask_t *m, int dir)
{
    size_t count = 0;
    const kg_mask_row_t *rows = kg_mask_host_rows(&count);

    int r = m->spec->host ? make_rows(m, rows, count) : each_entry(m, "", "", show_top, NULL);
    if (r == 0) {
        rows = kg_mask_common_rows(&count);
        r = make_rows(m, rows, count);
    }
    if (r == 0) {
        r = make_accounts(m);
    }
    if (r == 0) {
        r = make_specials(m);
    }
    if (r == 0) {
        (void)kg_format(m->at, sizeof(m->at), "canaries");
        r = make_canaries(m, dir);
    }
    return r;
}

int kg_mask_build(int dir, const kg_mask_spec_t *spec, kg_err_t *err)
{
    kg_mask_t m = {.root = -1, .spec = spec, .at = KG_MASK_ROOT};
    KG_AUTO_CLOSE int source = open(spec->source, O_PATH | O_DIRECTORY | O_CLOEXEC);
    KG_AUTO_CLOSE int root = -1;
    int r = 0;

    if (source < 0 || mkdirat(dir, KG_MASK_ROOT, 0755) < 0) {
        r = -errno;
    } else {
        root = openat(dir, KG_MASK_ROOT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        m.root = root;
        m.source = source;
        m.mount = mount_of(source);
        r = root < 0 ? -errno : set_mark(&m, ".", "trusted.overlay.opaque", "y");
    }
    if (r == 0) {
        r = build(&m, dir);
    }
    if (r < 0) {
        return kg_err_set(err, kg_err_from_errno(-r),
                          "the root of sandboxes cannot be laid out: %s: %s", m.at,
                          strerrordesc_np(-r));
    }
    return 0;
}
