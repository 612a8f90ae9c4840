/* The keeper's part: one tmpfs with a layer a root, and whether the launcher works. The tmpfs lives
 * in the keeper's own mount namespace and ends with it; sandboxes that live on keep theirs. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/ns.h"
#include "gateway/sandbox/ns_mask.h"

#define PREFIXES_MAX 32
#define TMPFS_MAGIC_NUMBER 0x01021994

bool kg_ns_is_host(const kg_root_t *root)
{
    return !root || strcmp(root->rootfs, "host") == 0;
}

int kg_ns_mask_name(const kg_root_t *root, char *ret, size_t size)
{
    if (kg_ns_is_host(root)) {
        return kg_format(ret, size, NS_MASKS "/" NS_HOST_MASK);
    }
    return kg_format(ret, size, NS_MASKS "/%s", root->name);
}

static int own_mounts(void)
{
    char ours[64] = "";
    char theirs[64] = "";
    char path[48];

    (void)kg_format(path, sizeof(path), "/proc/%d/ns/mnt", (int)getppid());
    if (readlink("/proc/self/ns/mnt", ours, sizeof(ours) - 1) > 0 &&
        readlink(path, theirs, sizeof(theirs) - 1) > 0 && strcmp(ours, theirs) != 0) {
        return 0; /* else it is the parent's, or we may not know */
    }
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0) {
        return -errno;
    }
    return 0;
}

static int open_place(const kg_host_t *host, int *ret_fd)
{
    static const char *const points[] = {NS_MASKS,  NS_MASK, NS_LOWER,
                                         NS_VOLUME, NS_ROOT, NS_PREFIX};
    char path[4096];
    KG_AUTO_CLOSE int fd = -1;

    int r = kg_format(path, sizeof(path), "%s/" NS_DIR, host->runtime_dir);
    if (r == 0) {
        r = kg_fs_open_dir(path, 0700, &fd);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(points) && r == 0; i++) {
        if (mkdirat(fd, points[i], 0700) < 0 && errno != EEXIST) {
            r = -errno;
        }
    }
    if (r == 0) {
        *ret_fd = kg_take_fd(&fd);
    }
    return r;
}

static bool is_tmpfs(int fd)
{
    struct statfs fs;
    return fstatfs(fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC_NUMBER;
}

/* An own tmpfs at NS_MASKS: a descriptor of it. */
static int open_masks(const kg_host_t *host, int place)
{
    char path[4096];
    KG_AUTO_CLOSE int fd = openat(place, NS_MASKS, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (fd < 0) {
        return -errno;
    }
    if (faccessat(fd, NS_DONE, F_OK, 0) == 0 && is_tmpfs(fd)) {
        return kg_take_fd(&fd);
    }
    int r = kg_format(path, sizeof(path), "%s/" NS_DIR "/" NS_MASKS, host->runtime_dir);
    if (r < 0) {
        return r;
    }
    if (mount("sandal", path, "tmpfs", MS_NOSUID, "mode=700,size=64m") < 0) {
        return -errno;
    }
    close(kg_take_fd(&fd));
    fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return fd < 0 ? -errno : kg_take_fd(&fd);
}

static int build_layer(const kg_host_t *host, int masks, const kg_root_t *root, kg_err_t *err)
{
    const char *prefixes[PREFIXES_MAX];
    const char *secrets[] = {host->state_dir, host->runtime_dir};
    bool is_host = kg_ns_is_host(root);
    const char *name = is_host ? NS_HOST_MASK : root->name;
    kg_mask_spec_t spec = {
        .source = is_host ? "/" : root->rootfs,
        .host = is_host,
        .init_exe = host->init_exe,
        .dirs = prefixes,
        .files = host->shown,
        .file_count = host->shown_count,
        .secrets = secrets,
        .secret_count = KG_ARRAY_LEN(secrets),
    };

    for (size_t i = 0; i < host->root_count && is_host; i++) {
        const kg_root_t *other = &host->roots[i];
        if (kg_ns_is_host(other) && other->prefix[0] == '/' && spec.dir_count < PREFIXES_MAX) {
            prefixes[spec.dir_count++] = other->prefix;
        }
    }
    if (mkdirat(masks, name, 0755) < 0) {
        return errno == EEXIST ? 0 /* the host's, for another template */ : -errno;
    }
    KG_AUTO_CLOSE int dir = openat(masks, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int r = dir < 0 ? -errno : kg_mask_build(dir, &spec, err);
    if (r < 0) {
        (void)kg_fs_remove_tree(masks, name);
    }
    return r;
}

int kg_ns_prepare(const kg_host_t *host, kg_err_t *err)
{
    KG_AUTO_CLOSE int place = -1;
    KG_AUTO_CLOSE int masks = -1;

    int r = own_mounts();
    if (r == 0) {
        r = open_place(host, &place);
    }
    if (r == 0) {
        masks = open_masks(host, place);
        r = masks < 0 ? masks : 0;
    }
    if (r < 0) {
        return kg_err_set(err, kg_err_from_errno(-r), "no place for the roots of sandboxes: %s",
                          strerrordesc_np(-r));
    }
    if (faccessat(masks, NS_DONE, F_OK, 0) == 0) {
        return 0;
    }
    r = build_layer(host, masks, NULL, err);
    for (size_t i = 0; i < host->root_count && r == 0; i++) {
        kg_err_t own = {0};
        if (build_layer(host, masks, &host->roots[i], &own) < 0) { /* creates from it will fail */
            kg_log(KG_LOG_WARN, "template.no_root", "name=%s reason=\"%s\"", host->roots[i].name,
                   own.message);
        }
    }
    return r;
}

void kg_ns_close(const kg_host_t *host)
{
    static const char *const parts[] = {NS_MASK, NS_LOWER, NS_VOLUME, NS_ROOT, NS_PREFIX, NS_MASKS};
    char path[4096];
    KG_AUTO_CLOSE int fd =
        openat(host->runtime_fd, NS_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    if (fd < 0) {
        return;
    }
    if (kg_format(path, sizeof(path), "%s/" NS_DIR "/" NS_MASKS, host->runtime_dir) == 0) {
        (void)umount2(path, MNT_DETACH);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(parts); i++) {
        (void)unlinkat(fd, parts[i], AT_REMOVEDIR);
    }
    (void)unlinkat(host->runtime_fd, NS_DIR, AT_REMOVEDIR);
}

static int done_path(const kg_host_t *host, char *ret, size_t size)
{
    return kg_format(ret, size, "%s/" NS_DIR "/" NS_MASKS "/" NS_DONE, host->runtime_dir);
}

bool kg_ns_verdict(const kg_host_t *host, int *ret_error, char ret_reason[160])
{
    char path[4096];
    struct {
        int error;
        char reason[160];
    } said = {0};

    if (done_path(host, path, sizeof(path)) < 0) {
        return false;
    }
    KG_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || read(fd, &said, sizeof(said)) != (ssize_t)sizeof(said) || !is_tmpfs(fd)) {
        return false;
    }
    *ret_error = said.error;
    memcpy(ret_reason, said.reason, sizeof(said.reason));
    return true;
}

void kg_ns_verdict_set(const kg_host_t *host, int error, const char reason[160])
{
    char path[4096];
    struct {
        int error;
        char reason[160];
    } say = {.error = error};

    (void)kg_format(say.reason, sizeof(say.reason), "%s", reason);
    if (done_path(host, path, sizeof(path)) == 0) {
        KG_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        (void)!write(fd, &say, sizeof(say));
    }
}
