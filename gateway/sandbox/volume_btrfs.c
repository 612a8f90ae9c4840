/* btrfs: STATE/volumes/ID is a subvolume with a limit on what it refers to. By ioctls; only a new
 * image needs mkfs.btrfs. */
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/btrfs_tree.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/loopdev.h"
#include "gateway/sandbox/volume_private.h"

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define PROBE ".probe"
#define ROOT_TREE 1ULL
#define FIRST_ID 256ULL /* of subvolumes */
#define NESTED_MAX 64   /* levels of subvolumes in subvolumes */
#define NO_LIMIT UINT64_MAX

static const uint64_t ALL[2] = {0, UINT64_MAX};

/* --- Trees ----------------------------------------------------------------------------------- */

/* An item of a tree that has been asked for. true goes on. */
typedef bool (*kg_item_fn_t)(void *user,
                             const struct btrfs_ioctl_search_header *head,
                             const void *data);

/* Calls fn for each item of one object and type whose offset is in first..last. */
static int search(int fd,
                  uint64_t tree,
                  uint64_t object,
                  uint32_t type,
                  const uint64_t range[2],
                  kg_item_fn_t fn,
                  void *user)
{
    struct btrfs_ioctl_search_args args = {0};
    struct btrfs_ioctl_search_header head = {0};

    args.key = (struct btrfs_ioctl_search_key){.tree_id = tree,
                                               .min_objectid = object,
                                               .max_objectid = object,
                                               .min_type = type,
                                               .max_type = type,
                                               .min_offset = range[0],
                                               .max_offset = range[1],
                                               .max_transid = UINT64_MAX};
    for (;;) {
        size_t at = 0;
        args.key.nr_items = 4096;
        if (ioctl(fd, BTRFS_IOC_TREE_SEARCH, &args) < 0) {
            return -errno;
        }
        if (args.key.nr_items == 0) {
            return 0;
        }
        for (uint32_t i = 0; i < args.key.nr_items; i++) {
            memcpy(&head, args.buf + at, sizeof(head));
            at += sizeof(head);
            if (!fn(user, &head, args.buf + at)) {
                return 0;
            }
            at += head.len;
        }
        if (head.offset >= range[1]) {
            return 0;
        }
        args.key.min_offset = head.offset + 1;
    }
}

/* --- Limits ---------------------------------------------------------------------------------- */

static int set_limit(int fd, uint64_t bytes)
{
    struct btrfs_ioctl_qgroup_limit_args args = {0}; /* qgroup 0: of the subvolume that fd is in */
    args.lim.flags = BTRFS_QGROUP_LIMIT_MAX_RFER;
    args.lim.max_rfer = bytes == 0 ? NO_LIMIT : bytes;
    return ioctl(fd, BTRFS_IOC_QGROUP_LIMIT, &args) < 0 ? -errno : 0;
}

static int enable_quotas(int fd)
{
    struct btrfs_ioctl_quota_ctl_args args = {.cmd = BTRFS_QUOTA_CTL_ENABLE};
    return ioctl(fd, BTRFS_IOC_QUOTA_CTL, &args) < 0 && errno != EEXIST ? -errno : 0;
}

/* The account of a subvolume that is gone. Newer kernels see to it themselves, or won't do it
 * before the subvolume's blocks are freed: those go when the store is opened next. */
static void drop_account(int fd, uint64_t id)
{
    struct btrfs_ioctl_qgroup_create_args args = {.create = 0, .qgroupid = id};
    (void)ioctl(fd, BTRFS_IOC_QGROUP_CREATE, &args);
}

typedef struct kg_ids {
    uint64_t *items;
    size_t count;
} kg_ids_t;

static bool add_id(kg_ids_t *ids, uint64_t id)
{
    uint64_t *items = realloc(ids->items, (ids->count + 1) * sizeof(*items));
    if (!items) {
        return false;
    }
    ids->items = items;
    ids->items[ids->count++] = id;
    return true;
}

static bool on_account(void *user, const struct btrfs_ioctl_search_header *head, const void *data)
{
    (void)data;
    return head->offset < FIRST_ID || (head->offset >> 48) != 0 || add_id(user, head->offset);
}

static bool on_any(void *user, const struct btrfs_ioctl_search_header *head, const void *data)
{
    bool *any = user;
    (void)head;
    (void)data;
    *any = true;
    return false;
}

static void drop_stale_accounts(int fd)
{
    kg_ids_t ids = {0};
    (void)search(fd, BTRFS_QUOTA_TREE_OBJECTID, 0, BTRFS_QGROUP_INFO_KEY, ALL, on_account, &ids);
    for (size_t i = 0; i < ids.count; i++) {
        bool there = false;
        int r = search(fd, ROOT_TREE, ids.items[i], BTRFS_ROOT_ITEM_KEY, ALL, on_any, &there);
        if (r == 0 && !there) {
            drop_account(fd, ids.items[i]);
        }
    }
    free(ids.items);
}

/* --- Subvolumes ------------------------------------------------------------------------------ */

/* The id of the subvolume that fd is in. */
static int subvolume_id(int fd, uint64_t *ret_id)
{
    struct btrfs_ioctl_ino_lookup_args args = {.objectid = BTRFS_FIRST_FREE_OBJECTID};
    if (ioctl(fd, BTRFS_IOC_INO_LOOKUP, &args) < 0) {
        return -errno;
    }
    *ret_id = args.treeid;
    return 0;
}

static int create(int dir, const char *name)
{
    struct btrfs_ioctl_vol_args args = {0};
    int r = kg_format(args.name, sizeof(args.name), "%s", name);
    if (r < 0) {
        return r;
    }
    return ioctl(dir, BTRFS_IOC_SUBVOL_CREATE, &args) < 0 ? -errno : 0;
}

static bool on_child(void *user, const struct btrfs_ioctl_search_header *head, const void *data)
{
    (void)data;
    return add_id(user, head->offset);
}

/* Those that someone made in it. */
static int destroy_nested(int fd, uint64_t id, unsigned depth)
{
    kg_ids_t ids = {0};
    int r = depth < NESTED_MAX ? search(fd, ROOT_TREE, id, BTRFS_ROOT_REF_KEY, ALL, on_child, &ids)
                               : -ELOOP;
    for (size_t i = 0; r == 0 && i < ids.count; i++) {
        struct btrfs_ioctl_vol_args_v2 args = {.flags = BTRFS_SUBVOL_SPEC_BY_ID};
        args.subvolid = ids.items[i];
        r = destroy_nested(fd, ids.items[i], depth + 1);
        if (r == 0 && ioctl(fd, BTRFS_IOC_SNAP_DESTROY_V2, &args) < 0 && errno != ENOENT) {
            r = -errno;
        }
        if (r == 0) {
            drop_account(fd, ids.items[i]);
        }
    }
    free(ids.items);
    return r;
}

static int destroy(int dir, const char *name)
{
    struct btrfs_ioctl_vol_args args = {0};
    uint64_t id = 0;
    KG_AUTO_CLOSE int fd = openat(dir, name, OPEN_DIR);
    int r = fd < 0 ? -errno : subvolume_id(fd, &id);

    if (r == 0) {
        r = kg_format(args.name, sizeof(args.name), "%s", name);
    }
    if (r < 0) {
        return r == -ENOENT ? 0 : r;
    }
    if (ioctl(dir, BTRFS_IOC_SNAP_DESTROY, &args) < 0) {
        r = -errno;
        if (r == -ENOTEMPTY) {
            r = destroy_nested(fd, id, 0);
            r = r == 0 && ioctl(dir, BTRFS_IOC_SNAP_DESTROY, &args) < 0 ? -errno : r;
        }
    }
    if (r == 0) {
        kg_closep(&fd);
        drop_account(dir, id);
    }
    return r;
}

/* Does it work, with a limit? */
static int probe(int dir)
{
    (void)destroy(dir, PROBE);
    int r = create(dir, PROBE);
    if (r < 0) {
        return r;
    }
    KG_AUTO_CLOSE int fd = openat(dir, PROBE, OPEN_DIR);
    r = fd < 0 ? -errno : set_limit(fd, KG_VOLUMES_BYTES_MIN);
    kg_closep(&fd);
    (void)destroy(dir, PROBE);
    return r;
}

/* --- The store ------------------------------------------------------------------------------- */

static int fail(kg_volumes_t *vols, const char *what, int r)
{
    (void)snprintf(vols->reason, sizeof(vols->reason), "%s: %s", what, strerrordesc_np(-r));
    return r;
}

static int open_dir(const kg_volumes_t *vols, int *ret_fd)
{
    int fd = open(vols->dir, OPEN_DIR);
    *ret_fd = fd;
    return fd < 0 ? -errno : 0;
}

/* The disk itself is a btrfs with quotas on. Turning them on for a whole disk is not ours to do. */
static bool disk_will_do(kg_volumes_t *vols)
{
    struct statfs fs;
    KG_AUTO_CLOSE int dir = -1;
    return open_dir(vols, &dir) == 0 && fstatfs(dir, &fs) == 0 && fs.f_type == BTRFS_SUPER_MAGIC &&
           probe(dir) == 0;
}

static int new_image(kg_volumes_t *vols, const char *image, uint64_t bytes)
{
    char part[VOL_PATH_MAX];
    const char *const args[] = {"mkfs.btrfs", "-q",     "-f", "-K",     "-m", "single",
                                "-d",         "single", "-L", "sandal", part, NULL};
    int r = kg_format(part, sizeof(part), "%s.new", image);
    if (r < 0) {
        return r;
    }
    if (!vol_can_exec(args[0])) {
        (void)snprintf(vols->reason, sizeof(vols->reason), "no mkfs.btrfs (package btrfs-progs)");
        return -ENOENT;
    }
    (void)unlink(part);
    r = vol_make_image(part, bytes);
    if (r < 0) {
        return fail(vols, image, r);
    }
    r = vol_exec(args);
    if (r != 0) {
        r = fail(vols, "mkfs.btrfs", r < 0 ? r : -EIO);
    } else if (rename(part, image) < 0) {
        r = fail(vols, image, -errno);
    }
    if (r < 0) {
        (void)unlink(part);
    }
    return r;
}

static int grow_fs(int dir)
{
    struct btrfs_ioctl_vol_args args = {.name = "1:max"};
    return ioctl(dir, BTRFS_IOC_RESIZE, &args) < 0 ? -errno : 0;
}

static int mount_image(kg_volumes_t *vols, const char *image, uint64_t bytes)
{
    char device[KG_LOOP_NAME_MAX];
    struct stat st;
    KG_AUTO_CLOSE int loop = -1;
    KG_AUTO_CLOSE int dir = -1;

    if (stat(image, &st) < 0) {
        return fail(vols, image, -errno);
    }
    bool grows = (uint64_t)st.st_size < bytes;
    if (grows && truncate(image, (off_t)bytes) < 0) {
        return fail(vols, image, -errno);
    }
    int r = kg_loop_attach(image, device, &loop);
    if (r == 0 && grows) {
        r = kg_loop_grow(loop);
    }
    if (r < 0) {
        return fail(vols, "loop device", r);
    }
    r = vol_mount(device, vols->dir, "btrfs", "discard=async");
    if (r < 0) {
        return fail(vols, "mount", r);
    }
    vols->mounted = true;
    r = open_dir(vols, &dir);
    if (r == 0 && (fchmod(dir, 0711) < 0 || (grows && (r = grow_fs(dir)) < 0))) {
        r = r < 0 ? r : -errno;
    }
    if (r == 0) {
        r = enable_quotas(dir);
    }
    if (r == 0) {
        r = probe(dir);
    }
    if (r < 0) {
        kg_closep(&dir);
        kg_volumes_close(vols);
        return fail(vols, "quotas", r);
    }
    drop_stale_accounts(dir);
    return 0;
}

static int btrfs_open(kg_volumes_t *vols, const char *image, uint64_t image_bytes)
{
    uint64_t bytes = image_bytes < KG_VOLUMES_BYTES_MIN ? KG_VOLUMES_BYTES_MIN : image_bytes;
    bool there = access(image, F_OK) == 0;

    if (!there && disk_will_do(vols)) {
        return 0;
    }
    if (!there && image_bytes == 0) {
        (void)snprintf(vols->reason, sizeof(vols->reason), "volumes of back end none are there");
        return -EEXIST;
    }
    int r = vol_own_mounts();
    if (r < 0) {
        return fail(vols, "no right to mount", r);
    }
    r = there ? 0 : new_image(vols, image, bytes);
    if (r == 0) {
        r = mount_image(vols, image, bytes);
    }
    if (r < 0 && !there) {
        (void)unlink(image); /* nothing was in it */
    }
    return r;
}

/* How much of the disk the image takes; it lies beside the directory that it is mounted at. */
static int image_uses(const kg_volumes_t *vols, int64_t *ret)
{
    char image[VOL_PATH_MAX];
    struct stat st;
    int r = kg_format(image, sizeof(image), "%s.img", vols->dir);
    if (r < 0 || stat(image, &st) < 0) {
        return r < 0 ? r : -errno;
    }
    *ret = (int64_t)st.st_blocks * 512;
    return 0;
}

/* What was freed can be had after it. Without a flush of what sandboxes have written. */
static int commit(int fd)
{
    __u64 number = 0;
    bool done = ioctl(fd, BTRFS_IOC_START_SYNC, &number) == 0 &&
                ioctl(fd, BTRFS_IOC_WAIT_SYNC, &number) == 0;
    return done ? 0 : -errno;
}

/* The mount option discard=async gives back late, and not all: of block groups of metadata that are
 * in use, what was freed stays. */
static int btrfs_trim(const kg_volumes_t *vols, kg_trimmed_t *ret)
{
    struct fstrim_range all = {.len = UINT64_MAX};
    int64_t before = 0;
    int64_t after = 0;
    bool waiting = false;
    KG_AUTO_CLOSE int dir = -1;
    int r = open_dir(vols, &dir);

    if (r == 0) { /* subvolumes that are deleted, but not freed: before the commit frees what is */
        r = search(dir, ROOT_TREE, BTRFS_ORPHAN_OBJECTID, BTRFS_ORPHAN_ITEM_KEY, ALL, on_any,
                   &waiting);
    }
    r = r == 0 ? image_uses(vols, &before) : r;
    r = r == 0 ? commit(dir) : r;
    if (r == 0 && ioctl(dir, FITRIM, &all) < 0) {
        r = -errno;
    }
    r = r == 0 ? image_uses(vols, &after) : r;
    if (r == 0) {
        *ret = (kg_trimmed_t){.bytes = before - after, .more = waiting};
    }
    return r;
}

/* --- One volume ------------------------------------------------------------------------------ */

static int btrfs_make(const kg_volumes_t *vols, const char *id, const char *path, uint64_t bytes)
{
    KG_AUTO_CLOSE int dir = -1;
    int r = open_dir(vols, &dir);

    (void)path;
    if (r == 0) {
        r = create(dir, id);
        r = r == -EEXIST ? 0 : r;
    }
    if (r < 0) {
        return r;
    }
    KG_AUTO_CLOSE int fd = openat(dir, id, OPEN_DIR);
    r = fd < 0 ? -errno : set_limit(fd, bytes);
    return r;
}

typedef struct kg_account {
    uint64_t id;
    uint64_t bytes;
    bool found;
} kg_account_t;

static bool on_usage(void *user, const struct btrfs_ioctl_search_header *head, const void *data)
{
    kg_account_t *account = user;
    struct btrfs_qgroup_info_item item;
    if (head->len < sizeof(item)) {
        return true;
    }
    memcpy(&item, data, sizeof(item));
    account->bytes = le64toh(item.rfer);
    account->found = true;
    return false;
}

static int btrfs_usage(const kg_volumes_t *vols, const char *id, uint64_t *ret_bytes)
{
    char path[VOL_PATH_MAX];
    kg_account_t account = {0};
    int r = kg_format(path, sizeof(path), "%s/%s", vols->dir, id);
    KG_AUTO_CLOSE int fd = r == 0 ? open(path, OPEN_DIR) : -1;

    if (fd < 0) {
        return r < 0 ? r : -errno;
    }
    r = subvolume_id(fd, &account.id);
    if (r == 0) {
        const uint64_t only[2] = {account.id, account.id};
        r = search(fd, BTRFS_QUOTA_TREE_OBJECTID, 0, BTRFS_QGROUP_INFO_KEY, only, on_usage,
                   &account);
    }
    if (r < 0 || !account.found) {
        return r < 0 ? r : -ENOENT;
    }
    *ret_bytes = account.bytes;
    return 0;
}

static int btrfs_remove(const kg_volumes_t *vols, const char *id)
{
    KG_AUTO_CLOSE int dir = -1;
    int r = open_dir(vols, &dir);
    if (r < 0) {
        return r;
    }
    r = destroy(dir, id);
    return r == -EINVAL ? kg_fs_remove_tree(dir, id) : r; /* not a subvolume */
}

const kg_vol_ops_t vol_btrfs = {
    .name = "btrfs",
    .keep = true,
    .open = btrfs_open,
    .make = btrfs_make,
    .usage = btrfs_usage,
    .remove = btrfs_remove,
    .trim = btrfs_trim,
};
