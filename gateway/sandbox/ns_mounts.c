/* The sandbox's root: an overlay of [the volume's upper] over [MASK] over [the host's root, or a
 * template's directory]. Mounted in the initial user namespace, or else the marks of MASK are
 * ignored in silence. */
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/ns.h"
#include "gateway/sandbox/ns_mask.h"

#define INSIDE NS_ROOT "/" KG_MASK_ROOT
/* index off: the layer below is another one after each start of the keeper. */
#define OPTIONS "redirect_dir=on,index=off,metacopy=off"

static int fail(kg_err_t *err, int r, const char *what)
{
    (void)kg_err_set(err, r == -ENOSPC || r == -EDQUOT ? KG_ERR_STORAGE_FULL : KG_ERR_INTERNAL,
                     "%s: %s", what, strerrordesc_np(-r));
    return r;
}

static int make_dir(const char *path, uid_t uid)
{
    if (mkdir(path, 0755) < 0) {
        return errno == EEXIST ? 0 : -errno;
    }
    return chown(path, uid, uid) < 0 ? -errno : 0;
}

/* Where MASK can't be mapped its directories of the user are somebody else's. */
static int make_user_dirs(uid_t base)
{
    static const char up[] = NS_VOLUME "/upper/" KG_MASK_ROOT;
    char path[64];
    static const struct {
        const char *name;
        uid_t uid;
    } dirs[] = {{"", 0}, {"/home", 0}, {"/home/user", KG_UID_USER}, {"/workspace", KG_UID_USER}};

    for (size_t i = 0; i < KG_ARRAY_LEN(dirs); i++) {
        int r = kg_format(path, sizeof(path), "%s%s", up, dirs[i].name);
        if (r == 0) {
            r = make_dir(path, base + dirs[i].uid);
        }
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

/* Over its quota overlayfs can't make its work directory and mounts read-only without an error. */
static int mount_writable(const char *where, const char *options)
{
    struct statvfs fs;

    if (mount("overlay", where, "overlay", 0, options) < 0) {
        return -errno;
    }
    if (statvfs(where, &fs) < 0) {
        return -errno;
    }
    if (fs.f_flag & ST_RDONLY) {
        (void)umount2(where, MNT_DETACH);
        return -EDQUOT;
    }
    return 0;
}

/* A template's own tree belongs to the user: so pip installs where the kernels look, and takes
 * away what the template brought. */
static int mount_prefix(const kg_launch_t *launch, const kg_root_t *root, int userns)
{
    char up[160];
    char path[200];
    char options[640];
    bool mapped;
    const uid_t user = launch->base + KG_UID_USER;

    if (access(root->prefix, F_OK) < 0) {
        return 0; /* not built: its kernels can't start either */
    }
    int r = kg_ns_clone_mount(root->prefix, NS_PREFIX, userns, &mapped);
    if (r == 0) {
        r = kg_format(up, sizeof(up), NS_VOLUME "/prefix-%s", root->name);
    }
    if (r == 0) {
        r = make_dir(up, user);
    }
    static const char *const parts[] = {"upper", "work"};
    for (size_t i = 0; i < KG_ARRAY_LEN(parts) && r == 0; i++) {
        r = kg_format(path, sizeof(path), "%s/%s", up, parts[i]);
        if (r == 0) {
            r = make_dir(path, user);
        }
    }
    if (r == 0) {
        r = kg_format(options, sizeof(options),
                      "lowerdir=" NS_PREFIX ",upperdir=%s/upper,workdir=%s/work," OPTIONS, up, up);
    }
    char where[sizeof(INSIDE) + sizeof(root->prefix)];
    if (r == 0) {
        r = kg_format(where, sizeof(where), INSIDE "%s", root->prefix);
    }
    return r < 0 ? r : mount_writable(where, options);
}

static int mount_prefixes(const kg_host_t *host, const kg_launch_t *launch, kg_err_t *err)
{
    KG_AUTO_CLOSE int userns = -1;

    for (size_t i = 0; i < host->root_count; i++) {
        const kg_root_t *root = &host->roots[i];
        if (!kg_ns_is_host(root) || root->prefix[0] != '/') {
            continue;
        }
        if (userns < 0) { /* its files are root's */
            userns = kg_ns_mapping(0, launch->base + KG_UID_USER, 1);
        }
        int r = userns < 0 ? userns : mount_prefix(launch, root, userns);
        if (r < 0) {
            return fail(err, r, "a template's tree can't be mounted");
        }
    }
    return 0;
}

/* Whether dir has path, without following any link of the sandbox's. */
static bool has(int dir, const char *path)
{
    struct open_how how = {
        .flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS,
    };
    KG_AUTO_CLOSE int fd = (int)syscall(SYS_openat2, dir, path, &how, sizeof(how));
    return fd >= 0;
}

/* Looks for what must not be there. What the sandbox itself has made of that name is in its upper.
 */
static int check_canaries(kg_err_t *err)
{
    char text[KG_MASK_CANARIES_MAX + 1];
    KG_AUTO_CLOSE int file = open(NS_MASK "/" KG_MASK_CANARIES, O_RDONLY | O_CLOEXEC);
    KG_AUTO_CLOSE int root = open(INSIDE, O_PATH | O_DIRECTORY | O_CLOEXEC);
    KG_AUTO_CLOSE int upper =
        open(NS_VOLUME "/upper/" KG_MASK_ROOT, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

    ssize_t len = file < 0 ? -1 : read(file, text, sizeof(text) - 1);
    if (len < 0 || root < 0) {
        return fail(err, -errno, "the sandbox's root can't be checked");
    }
    text[len] = '\0';
    for (const char *at = text; at < text + len; at += strlen(at) + 1) {
        if (!has(root, at) || (upper >= 0 && has(upper, at))) {
            continue;
        }
        (void)kg_err_set(err, KG_ERR_INTERNAL,
                         "the sandbox's root shows what it must not: /%s; nothing was started", at);
        return -EPERM;
    }
    return 0;
}

static int mount_layers(const kg_launch_t *launch, const char *volume, int userns, kg_err_t *err)
{
    char mask[128];
    bool mapped = false;
    bool mask_mapped = false;

    int r = kg_ns_mask_name(launch->root, mask, sizeof(mask));
    if (r < 0 || access(mask, F_OK) < 0) {
        return fail(err, r < 0 ? r : -errno, "the template's root filesystem isn't there");
    }
    r = kg_ns_clone_mount(kg_ns_is_host(launch->root) ? "/" : launch->root->rootfs, NS_LOWER,
                          userns, &mapped);
    if (r == 0) {
        r = kg_ns_clone_mount(mask, NS_MASK, userns, &mask_mapped);
    }
    if (r == 0) {
        r = kg_ns_clone_mount(volume, NS_VOLUME, -1, &mapped);
    }
    if (r == 0 && !mask_mapped) {
        r = make_user_dirs(launch->base);
    }
    return r < 0 ? fail(err, r, "the layers of the sandbox's root can't be mounted") : 0;
}

int kg_ns_mounts(
    const kg_host_t *host, const kg_launch_t *launch, const char *volume, int userns, kg_err_t *err)
{
    int r = mount_layers(launch, volume, userns, err);
    if (r < 0) {
        return r;
    }
    r = mount_writable(NS_ROOT, "lowerdir=" NS_MASK ":" NS_LOWER ",upperdir=" NS_VOLUME
                                "/upper,workdir=" NS_VOLUME "/work," OPTIONS);
    if (r < 0) {
        return fail(err, r, "the sandbox's root can't be mounted");
    }
    r = check_canaries(err);
    if (r == 0 && kg_ns_is_host(launch->root)) {
        r = mount_prefixes(host, launch, err);
    }
    return r;
}
