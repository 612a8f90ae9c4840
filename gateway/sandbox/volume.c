/* What all back ends have in common, and the two small ones: tmpfs and none. */
#include "gateway/sandbox/volume.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/volume_private.h"

#define OPEN_DIR (O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC)
#define IMAGE_SUFFIX ".img"

/* --- Helpers of back ends -------------------------------------------------------------------- */

static const char *const PROGRAM_DIRS[] = {"/usr/sbin", "/sbin", "/usr/bin", "/bin"};

static int find_program(const char *name, char ret_path[64])
{
    for (size_t i = 0; i < KG_ARRAY_LEN(PROGRAM_DIRS); i++) {
        if (kg_format(ret_path, 64, "%s/%s", PROGRAM_DIRS[i], name) == 0 &&
            access(ret_path, X_OK) == 0) {
            return 0;
        }
    }
    return -ENOENT;
}

bool vol_can_exec(const char *name)
{
    char path[64];
    return find_program(name, path) == 0;
}

/* In the child. The keeper blocks signals and ignores SIGPIPE; a program wants neither. */
static void exec_program(const char *path, const char *const *args)
{
    char *argv[16] = {0};
    char *env[] = {NULL};
    sigset_t none;

    for (size_t i = 0; args[i] && i < KG_ARRAY_LEN(argv) - 1; i++) {
        memcpy(&argv[i], &args[i], sizeof(argv[i])); /* exec only reads them */
    }
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    if (null < 0 || dup2(null, 0) < 0 || dup2(null, 1) < 0 || dup2(null, 2) < 0) {
        _exit(126);
    }
    sigemptyset(&none);
    (void)pthread_sigmask(SIG_SETMASK, &none, NULL);
    (void)signal(SIGPIPE, SIG_DFL);
    execve(path, argv, env);
    _exit(127);
}

int vol_exec(const char *const *args)
{
    char path[64];
    int status = 0;
    int r = find_program(args[0], path);

    if (r < 0) {
        return r;
    }
    pid_t pid = fork();
    if (pid < 0) {
        return -errno;
    }
    if (pid == 0) {
        exec_program(path, args);
    }
    while (waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return -errno;
        }
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -EIO;
}

int vol_mount(const char *device, const char *path, const char *type, const char *options)
{
    unsigned long flags = MS_NOSUID | MS_NODEV | MS_NOATIME;
    return mount(device, path, type, flags, options) < 0 ? -errno : 0;
}

int vol_own_mounts(void)
{
    if (unshare(CLONE_NEWNS) < 0) {
        return -errno;
    }
    return mount(NULL, "/", NULL, MS_REC | MS_SLAVE, NULL) < 0 ? -errno : 0;
}

int vol_make_image(const char *path, uint64_t bytes)
{
    KG_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return -errno;
    }
    if (ftruncate(fd, (off_t)bytes) < 0) {
        int r = -errno;
        (void)unlink(path);
        return r;
    }
    return 0;
}

/* --- Small back ends ------------------------------------------------------------------------- */

static int plain_open(kg_volumes_t *vols, const char *image, uint64_t image_bytes)
{
    (void)vols;
    (void)image;
    (void)image_bytes;
    return 0;
}

static int make_dir(const char *path)
{
    return mkdir(path, 0700) < 0 && errno != EEXIST ? -errno : 0;
}

static int plain_make(const kg_volumes_t *vols, const char *id, const char *path, uint64_t bytes)
{
    (void)vols;
    (void)id;
    return bytes > 0 ? -EOPNOTSUPP : make_dir(path);
}

static int tmpfs_make(const kg_volumes_t *vols, const char *id, const char *path, uint64_t bytes)
{
    char options[64] = "mode=700";
    (void)vols;
    (void)id;
    if (bytes > 0) {
        (void)snprintf(options, sizeof(options), "mode=700,size=%" PRIu64, bytes);
    }
    int r = make_dir(path);
    return r < 0 ? r : vol_mount("sandal", path, "tmpfs", options);
}

/* NOLINTNEXTLINE(readability-non-const-parameter): as the table has it */
static int no_usage(const kg_volumes_t *vols, const char *id, uint64_t *ret_bytes)
{
    (void)vols;
    (void)id;
    (void)ret_bytes;
    return -ENOTSUP;
}

static int plain_remove(const kg_volumes_t *vols, const char *id)
{
    KG_AUTO_CLOSE int dir = open(vols->dir, OPEN_DIR);
    return dir < 0 ? -errno : kg_fs_remove_tree(dir, id);
}

static const kg_vol_ops_t vol_none = {
    .name = "none",
    .keep = true,
    .open = plain_open,
    .make = plain_make,
    .usage = no_usage,
    .remove = plain_remove,
};

static const kg_vol_ops_t vol_tmpfs = {
    .name = "tmpfs",
    .open = plain_open,
    .make = tmpfs_make,
    .usage = no_usage,
    .remove = plain_remove,
};

static const kg_vol_ops_t *const BACKENDS[] = {
    [KG_VOL_NONE] = &vol_none,
    [KG_VOL_BTRFS] = &vol_btrfs,
    [KG_VOL_LOOP] = &vol_loop,
    [KG_VOL_TMPFS] = &vol_tmpfs,
};

/* --- The store ------------------------------------------------------------------------------- */

const char *kg_vol_backend_name(kg_vol_backend_t backend)
{
    return BACKENDS[backend]->name;
}

bool kg_volumes_keep(const kg_volumes_t *vols)
{
    return BACKENDS[vols->backend]->keep;
}

static struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe): one thread
}

/* The id of a volume whose entry this is, or false. */
static bool entry_id(const kg_volumes_t *vols, const struct dirent *entry, char ret_id[256])
{
    size_t len = strlen(entry->d_name);
    size_t suffix = strlen(IMAGE_SUFFIX);

    if (entry->d_name[0] == '.') {
        return false;
    }
    memcpy(ret_id, entry->d_name, len + 1);
    if (vols->backend != KG_VOL_LOOP) {
        return entry->d_type == DT_DIR;
    }
    if (len <= suffix || strcmp(ret_id + len - suffix, IMAGE_SUFFIX) != 0) {
        return false;
    }
    ret_id[len - suffix] = '\0';
    return true;
}

int kg_volumes_each(const kg_volumes_t *vols, void (*fn)(void *user, const char *id), void *user)
{
    char id[256];
    DIR *dir = opendir(vols->dir);

    if (!dir) {
        return -errno;
    }
    for (struct dirent *entry = next_entry(dir); entry; entry = next_entry(dir)) {
        if (entry_id(vols, entry, id)) {
            fn(user, id);
        }
    }
    closedir(dir);
    return 0;
}

typedef struct kg_found {
    const char *dir;
    const char *inside; /* what a volume has in it */
    bool any;
} kg_found_t;

static void found_one(void *user, const char *id)
{
    char path[VOL_PATH_MAX];
    kg_found_t *found = user;
    found->any = found->any || !found->inside ||
                 (kg_format(path, sizeof(path), "%s/%s/%s", found->dir, id, found->inside) == 0 &&
                  access(path, F_OK) == 0);
}

/* Whose volumes are there from before? -1 = nobody's. Those of tmpfs are empty by now. */
static int earlier_backend(const kg_volumes_t *store, const char *image)
{
    kg_volumes_t look = *store;
    kg_found_t images = {.dir = look.dir};
    kg_found_t plain = {.dir = look.dir, .inside = "upper"};

    if (access(image, F_OK) == 0) {
        return KG_VOL_BTRFS;
    }
    look.backend = KG_VOL_LOOP;
    (void)kg_volumes_each(&look, found_one, &images);
    if (images.any) {
        return KG_VOL_LOOP;
    }
    look.backend = KG_VOL_NONE;
    (void)kg_volumes_each(&look, found_one, &plain);
    return plain.any ? KG_VOL_NONE : -1;
}

static int try_backend(kg_volumes_t *ret,
                       const kg_volumes_t *blank,
                       kg_vol_backend_t backend,
                       const char *image,
                       uint64_t image_bytes)
{
    kg_volumes_t vols = *blank;
    vols.backend = backend;
    int r = BACKENDS[backend]->open(&vols, image, image_bytes);
    *ret = vols;
    return r;
}

static int
open_best(kg_volumes_t *ret, const kg_volumes_t *blank, const char *image, uint64_t bytes)
{
    char why[2][160];

    if (try_backend(ret, blank, KG_VOL_BTRFS, image, bytes) == 0) {
        return 0;
    }
    memcpy(why[0], ret->reason, sizeof(why[0]));
    if (try_backend(ret, blank, KG_VOL_LOOP, image, bytes) == 0) {
        (void)snprintf(ret->reason, sizeof(ret->reason), "btrfs: %.140s", why[0]);
        return 0;
    }
    memcpy(why[1], ret->reason, sizeof(why[1]));
    (void)try_backend(ret, blank, KG_VOL_NONE, image, bytes);
    (void)snprintf(ret->reason, sizeof(ret->reason), "btrfs: %.70s; loop: %.70s", why[0], why[1]);
    return 0;
}

static int backend_by_name(const char *name)
{
    for (size_t i = 0; i < KG_ARRAY_LEN(BACKENDS); i++) {
        if (strcmp(name, BACKENDS[i]->name) == 0) {
            return (int)i;
        }
    }
    return -1;
}

static int open_wished(kg_volumes_t *ret,
                       const kg_volumes_t *blank,
                       kg_vol_backend_t backend,
                       const char *image,
                       uint64_t bytes,
                       kg_err_t *err)
{
    int r = try_backend(ret, blank, backend, image, bytes);
    if (r == 0) {
        return 0;
    }
    (void)kg_err_set(err, r == -ENOSPC ? KG_ERR_STORAGE_FULL : KG_ERR_NOT_SUPPORTED,
                     "volumes of back end %s don't work here: %s", kg_vol_backend_name(backend),
                     ret->reason);
    kg_err_hint(err,
                "volumes.backend names another one; sandald doctor tells what this host can do");
    return r;
}

static int prepare(kg_volumes_t *blank, const char *state_dir, char image[256], kg_err_t *err)
{
    int dir = -1;
    int r = kg_format(blank->dir, sizeof(blank->dir), "%s/volumes", state_dir);
    if (r == 0) {
        r = kg_format(image, 256, "%s/volumes" IMAGE_SUFFIX, state_dir);
    }
    if (r < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "the state directory's path is too long");
    }
    r = kg_fs_open_dir(blank->dir, 0711, &dir);
    if (r < 0) {
        return kg_err_set(err, kg_err_from_errno(r), "%s: %s", blank->dir, strerrordesc_np(-r));
    }
    close(dir);
    return 0;
}

/* Sparse or not, what the disk can't take is no size. */
static uint64_t default_bytes(const char *dir, const char *image)
{
    struct statvfs fs;
    if (access(image, F_OK) == 0 || statvfs(dir, &fs) < 0) {
        return KG_VOLUMES_BYTES_MIN;
    }
    uint64_t bytes = (uint64_t)fs.f_bavail * fs.f_frsize / 5 * 4;
    bytes -= bytes % (1U << 20);
    return bytes < KG_VOLUMES_BYTES_MIN ? KG_VOLUMES_BYTES_MIN : bytes;
}

int kg_volumes_open(
    kg_volumes_t *ret, const char *state_dir, const char *wish, uint64_t image_bytes, kg_err_t *err)
{
    kg_volumes_t blank = {0};
    kg_volumes_t vols;
    char image[256];
    int wished = -1;

    if (wish && strcmp(wish, "auto") != 0) {
        wished = backend_by_name(wish);
        if (wished < 0) {
            return kg_err_set(err, KG_ERR_CONFIG, "there is no back end \"%.32s\" of volumes",
                              wish);
        }
    }
    int r = prepare(&blank, state_dir, image, err);
    if (r < 0) {
        return r;
    }
    image_bytes = image_bytes == 0 ? default_bytes(blank.dir, image) : image_bytes;
    int earlier = earlier_backend(&blank, image);
    if (earlier == KG_VOL_NONE && (wished < 0 || wished == KG_VOL_BTRFS)) {
        /* On a disk that is a btrfs they may be subvolumes. Nothing may be mounted over them. */
        r = try_backend(&vols, &blank, KG_VOL_BTRFS, image, 0);
        earlier = r == 0 ? KG_VOL_BTRFS : KG_VOL_NONE;
    }
    if (earlier >= 0 && wished >= 0 && wished != earlier) {
        (void)kg_err_set(err, KG_ERR_CONFIG, "%s has volumes of back end %s, not %s", state_dir,
                         kg_vol_backend_name((kg_vol_backend_t)earlier), wish);
        kg_err_hint(err, "set volumes.backend to what is there, or remove %.80s and %.80s",
                    blank.dir, image);
        return -kg_err_errno(KG_ERR_CONFIG);
    }
    wished = wished < 0 ? earlier : wished;
    r = wished < 0 ? open_best(&vols, &blank, image, image_bytes)
                   : open_wished(&vols, &blank, (kg_vol_backend_t)wished, image, image_bytes, err);
    if (r == 0) {
        *ret = vols;
    }
    return r;
}

void kg_volumes_close(kg_volumes_t *vols)
{
    if (vols->mounted && umount2(vols->dir, 0) < 0) {
        (void)umount2(vols->dir, MNT_DETACH);
    }
    vols->mounted = false;
}

bool kg_volumes_trims(const kg_volumes_t *vols)
{
    return vols->mounted && BACKENDS[vols->backend]->trim;
}

int kg_volumes_trim(const kg_volumes_t *vols, kg_trimmed_t *ret)
{
    if (!kg_volumes_trims(vols)) {
        *ret = (kg_trimmed_t){0};
        return 0;
    }
    return BACKENDS[vols->backend]->trim(vols, ret);
}

/* --- One volume ------------------------------------------------------------------------------ */

/* The directory and the two in it, of uid. */
static int make_inside(const char *path, uid_t uid, gid_t gid)
{
    static const char *const parts[] = {"upper", "work"};
    struct stat st;
    KG_AUTO_CLOSE int dir = open(path, OPEN_DIR);

    if (dir < 0 || fstat(dir, &st) < 0) {
        return -errno;
    }
    if (st.st_uid != uid && st.st_uid != 0) {
        return -EEXIST; /* of another range than it is to run in now */
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(parts); i++) {
        int r = kg_fs_make_dir(dir, parts[i], 0755, uid, gid);
        if (r < 0 && r != -EEXIST) {
            return r;
        }
    }
    return fchown(dir, uid, gid) < 0 || fchmod(dir, 0700) < 0 ? -errno : 0;
}

static bool id_valid(const char *id)
{
    return id[0] != '\0' && id[0] != '.' && !strchr(id, '/') && strlen(id) <= 64;
}

int kg_volume_make(const kg_volumes_t *vols,
                   const char *id,
                   uint64_t bytes,
                   uid_t uid,
                   gid_t gid,
                   char ret_path[256],
                   kg_err_t *err)
{
    char path[256];
    kg_err_code_t code = KG_ERR_INTERNAL;
    int r = id_valid(id) ? kg_format(path, sizeof(path), "%s/%s", vols->dir, id) : -EINVAL;

    if (r == 0) {
        r = BACKENDS[vols->backend]->make(vols, id, path, bytes);
    }
    if (r == 0) {
        r = make_inside(path, uid, gid);
    }
    if (r == 0) {
        memcpy(ret_path, path, sizeof(path));
        return 0;
    }
    if (r == -ENOSPC || r == -EDQUOT) {
        code = KG_ERR_STORAGE_FULL;
    } else if (r == -EOPNOTSUPP) {
        code = KG_ERR_NOT_SUPPORTED;
    } else if (r == -EEXIST) {
        code = KG_ERR_CONFLICT;
    }
    (void)kg_err_set(err, code, "the sandbox's volume can't be made: %s",
                     r == -EOPNOTSUPP ? "a disk limit can't be held here" : strerrordesc_np(-r));
    if (r == -EOPNOTSUPP && vols->reason[0]) {
        kg_err_hint(err, "%s", vols->reason);
    }
    return r;
}

int kg_volume_usage(const kg_volumes_t *vols, const char *id, uint64_t *ret_bytes)
{
    return id_valid(id) ? BACKENDS[vols->backend]->usage(vols, id, ret_bytes) : -EINVAL;
}

int kg_volume_remove(const kg_volumes_t *vols, const char *id)
{
    return id_valid(id) ? BACKENDS[vols->backend]->remove(vols, id) : -EINVAL;
}
