/* loop: STATE/volumes/ID.img, an ext4 file system a sandbox, mounted at STATE/volumes/ID in the
 * worker's mount namespace alone. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/loopdev.h"
#include "gateway/sandbox/volume_private.h"

#define UNLIMITED_BYTES (UINT64_C(64) << 30) /* of the sparse image, where no limit is wished */
#define E2FSCK_CORRECTED 1
#define BYTES_MIN (UINT64_C(4) << 20) /* an ext4 with a journal */

static int image_path(const kg_volumes_t *vols, const char *id, char ret[VOL_PATH_MAX])
{
    return kg_format(ret, VOL_PATH_MAX, "%s/%s.img", vols->dir, id);
}

static int loop_open(kg_volumes_t *vols, const char *image, uint64_t image_bytes)
{
    (void)image;
    (void)image_bytes;
    int r = access("/dev/loop-control", R_OK | W_OK) < 0 ? -errno : 0;
    if (r < 0) {
        (void)snprintf(vols->reason, sizeof(vols->reason), "no loop devices: %s",
                       strerrordesc_np(-r));
        return r;
    }
    if (!vol_can_exec("mkfs.ext4")) {
        (void)snprintf(vols->reason, sizeof(vols->reason), "no mkfs.ext4 (package e2fsprogs)");
        return -ENOENT;
    }
    r = vol_own_mounts();
    if (r < 0) {
        (void)snprintf(vols->reason, sizeof(vols->reason), "no right to mount: %s",
                       strerrordesc_np(-r));
    }
    return r;
}

/* Under another name until it is whole. */
static int new_image(const kg_volumes_t *vols, const char *id, const char *image, uint64_t bytes)
{
    char part[VOL_PATH_MAX];
    int r = kg_format(part, sizeof(part), "%s/.%s.new", vols->dir, id);

    if (r < 0) {
        return r;
    }
    (void)unlink(part);
    r = vol_make_image(part, bytes);
    if (r == 0) {
        const char *const args[] = {
            "mkfs.ext4", "-q", "-F", "-m", "0", "-E", "nodiscard,lazy_itable_init=1,root_owner=0:0",
            part,        NULL};
        r = vol_exec(args);
        r = r > 0 ? -EIO : r;
    }
    if (r == 0 && rename(part, image) < 0) {
        r = -errno;
    }
    if (r < 0) {
        (void)unlink(part);
    }
    return r;
}

/* Offline: growing a mounted one takes CAP_SYS_RESOURCE, which root doesn't have everywhere. */
static int grow(const char *image, uint64_t bytes)
{
    const char *const check[] = {"e2fsck", "-fp", image, NULL};
    const char *const resize[] = {"resize2fs", image, NULL};

    if (truncate(image, (off_t)bytes) < 0) {
        return -errno;
    }
    int r = vol_exec(check);
    if (r < 0 || r > E2FSCK_CORRECTED) {
        return r < 0 ? r : -EIO;
    }
    r = vol_exec(resize);
    return r > 0 ? -EIO : r;
}

static int loop_make(const kg_volumes_t *vols, const char *id, const char *path, uint64_t bytes)
{
    char image[VOL_PATH_MAX];
    char device[KG_LOOP_NAME_MAX];
    struct stat st = {0};
    KG_AUTO_CLOSE int fd = -1;
    uint64_t size = bytes == 0 ? UNLIMITED_BYTES : bytes;
    size = size < BYTES_MIN ? BYTES_MIN : size;

    int r = image_path(vols, id, image);
    if (r == 0 && access(image, F_OK) < 0) {
        r = new_image(vols, id, image, size);
    }
    if (r == 0 && (stat(image, &st) < 0 || (mkdir(path, 0700) < 0 && errno != EEXIST))) {
        r = -errno;
    }
    if (r < 0) {
        return r;
    }
    bool mounted = kg_loop_find(image, device, &fd) == 0; /* a sandbox of before still has it */
    if (bytes > 0 && (uint64_t)st.st_size < size) {
        r = mounted ? -EBUSY : grow(image, size);
    }
    if (r == 0 && !mounted) {
        r = kg_loop_attach(image, device, &fd);
    }
    return r < 0 ? r : vol_mount(device, path, "ext4", "discard");
}

static int loop_usage(const kg_volumes_t *vols, const char *id, uint64_t *ret_bytes)
{
    char image[VOL_PATH_MAX];
    struct stat st;
    int r = image_path(vols, id, image);

    if (r < 0 || stat(image, &st) < 0) {
        return r < 0 ? r : -errno;
    }
    *ret_bytes = (uint64_t)st.st_blocks * 512;
    return 0;
}

static int loop_remove(const kg_volumes_t *vols, const char *id)
{
    char image[VOL_PATH_MAX];
    int r = image_path(vols, id, image);
    KG_AUTO_CLOSE int dir = open(vols->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    if (r < 0 || dir < 0) {
        return r < 0 ? r : -errno;
    }
    if (unlink(image) < 0 && errno != ENOENT) {
        return -errno;
    }
    return kg_fs_remove_tree(dir, id);
}

const kg_vol_ops_t vol_loop = {
    .name = "loop",
    .keep = true,
    .open = loop_open,
    .make = loop_make,
    .usage = loop_usage,
    .remove = loop_remove,
};
