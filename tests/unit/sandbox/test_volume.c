/* Volumes, as root on real loop devices: limits that hold, the store found again, nothing left. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/loopdev.h"
#include "gateway/sandbox/volume.h"
#include "gateway/sandbox/volume_private.h"

#define MIB (UINT64_C(1) << 20)
#define TRIES 20000 /* of a millisecond */
#define UID 1234567U

static char state_dir[64];
static char image[96];
static kg_volumes_t vols;

static void pause_ms(long ms)
{
    const struct timespec t = {.tv_nsec = ms * 1000000};
    nanosleep(&t, NULL);
}

static int setup(void **state)
{
    (void)state;
    (void)snprintf(state_dir, sizeof(state_dir), "/tmp/test-volume-XXXXXX");
    vols = (kg_volumes_t){0};
    if (!mkdtemp(state_dir)) {
        return -1;
    }
    (void)snprintf(image, sizeof(image), "%s/volumes.img", state_dir);
    return 0;
}

/* Nothing must hold the image, so the device goes too. */
static int teardown(void **state)
{
    char command[128];
    char device[KG_LOOP_NAME_MAX];
    int fd = -1;
    int r = 0;
    (void)state;
    kg_volumes_close(&vols);
    if (access(image, F_OK) == 0) {
        for (int i = 0; i < TRIES && r == 0; i++) {
            r = kg_loop_find(image, device, &fd);
            kg_closep(&fd);
            pause_ms(1);
        }
        if (r != -ENOENT) {
            print_error("%s still has %s\n", device, image);
            return -1;
        }
    }
    (void)snprintf(command, sizeof(command), "rm -rf %s", state_dir);
    return system(command); // NOLINT(cert-env33-c): a test's own directory
}

static void open_store(const char *wish, uint64_t bytes)
{
    kg_err_t err = {0};
    if (geteuid() != 0) {
        skip();
    }
    int r = kg_volumes_open(&vols, state_dir, wish, bytes, &err);
    if (r < 0) {
        fail_msg("%s", err.message);
    }
    if (wish && strcmp(wish, "auto") != 0) {
        assert_string_equal(kg_vol_backend_name(vols.backend), wish);
    }
}

static void make(const char *id, uint64_t bytes, char ret_path[256])
{
    kg_err_t err = {0};
    int r = kg_volume_make(&vols, id, bytes, UID, UID, ret_path, &err);
    if (r < 0) {
        fail_msg("%s", err.message);
    }
}

/* Writes until it is told to stop; how many bytes went, *ret_error. */
static uint64_t fill(const char *dir, const char *name, uint64_t most, int *ret_error)
{
    static unsigned char block[1 << 16];
    char path[512];
    uint64_t done = 0;

    (void)snprintf(path, sizeof(path), "%s/upper/%s", dir, name);
    KG_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    *ret_error = fd < 0 ? errno : 0;
    while (*ret_error == 0 && done < most) {
        memset(block, (int)(done >> 16) + 1, sizeof(block));
        ssize_t n = write(fd, block, sizeof(block));
        *ret_error = n < 0 ? errno : 0;
        done += n < 0 ? 0 : (uint64_t)n;
    }
    if (*ret_error == 0 && fsync(fd) < 0) {
        *ret_error = errno;
    }
    return done;
}

static void drop(const char *dir, const char *name)
{
    char path[512];
    (void)snprintf(path, sizeof(path), "%s/upper/%s", dir, name);
    assert_int_equal(unlink(path), 0);
}

static void assert_mine(const char *path)
{
    char inside[512];
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_uid, UID);
    assert_int_equal(st.st_mode & 07777, 0700);
    (void)snprintf(inside, sizeof(inside), "%s/upper", path);
    assert_int_equal(stat(inside, &st), 0);
    assert_int_equal(st.st_uid, UID);
    (void)snprintf(inside, sizeof(inside), "%s/work", path);
    assert_int_equal(stat(inside, &st), 0);
    assert_int_equal(st.st_uid, UID);
}

static void list_id(void *user, const char *id)
{
    char *text = user;
    (void)strncat(text, id, 16);
    (void)strncat(text, " ", 2);
}

static void assert_ids(const char *want)
{
    char text[128] = "";
    assert_int_equal(kg_volumes_each(&vols, list_id, text), 0);
    assert_string_equal(text, want);
}

/* --- btrfs ----------------------------------------------------------------------------------- */

static void btrfs_limit_holds(void **state)
{
    char a[256];
    char b[256];
    int error = 0;
    uint64_t used = 0;
    struct stat st;
    (void)state;
    open_store("btrfs", 512 * MIB);
    assert_true(kg_volumes_keep(&vols));
    make("a", 32 * MIB, a);
    make("b", 32 * MIB, b);
    assert_mine(a);
    uint64_t went = fill(a, "f", 64 * MIB, &error);
    assert_true(error == EDQUOT || error == ENOSPC);
    assert_true(went > 24 * MIB && went <= 32 * MIB);
    assert_int_equal(fill(b, "f", 8 * MIB, &error), 8 * MIB); /* another's limit */
    assert_int_equal(error, 0);
    (void)sync();
    assert_int_equal(kg_volume_usage(&vols, "a", &used), 0);
    assert_true(used > 24 * MIB && used <= 32 * MIB);
    assert_int_equal(kg_volume_usage(&vols, "b", &used), 0);
    assert_true(used >= 8 * MIB && used < 9 * MIB);
    drop(a, "f"); /* what is full can be emptied */
    (void)sync();
    assert_int_equal(fill(a, "g", 8 * MIB, &error), 8 * MIB);
    assert_int_equal(error, 0);
    make("a", 96 * MIB, a); /* as it is, with more room */
    assert_int_equal(fill(a, "h", 64 * MIB, &error), 64 * MIB);
    assert_int_equal(error, 0);
    make("a", 0, a);
    assert_int_equal(fill(a, "i", 64 * MIB, &error), 64 * MIB);
    assert_int_equal(error, 0);
    assert_int_equal(stat(image, &st), 0);
    assert_true((uint64_t)st.st_blocks * 512 < 400 * MIB); /* sparse */
    assert_int_equal(kg_volume_remove(&vols, "a"), 0);
    assert_int_equal(kg_volume_remove(&vols, "a"), 0);
    assert_int_equal(kg_volume_usage(&vols, "a", &used), -ENOENT);
    assert_ids("b ");
}

static void btrfs_whole_store_full(void **state)
{
    char a[256];
    int error = 0;
    (void)state;
    open_store("btrfs", KG_VOLUMES_BYTES_MIN);
    make("a", 0, a);
    uint64_t went = fill(a, "f", 512 * MIB, &error);
    assert_int_equal(error, ENOSPC);
    assert_true(went > 100 * MIB);
    assert_int_equal(kg_volume_remove(&vols, "a"), 0);
    assert_ids("");
}

/* An earlier keeper was killed; a sandbox lives on and has files open. */
static void btrfs_found_again(void **state)
{
    char a[256];
    char path[512];
    char device[KG_LOOP_NAME_MAX];
    char again[KG_LOOP_NAME_MAX];
    int to_child[2];
    int from_child[2];
    int fd = -1;
    int status = 0;
    (void)state;
    open_store("btrfs", KG_VOLUMES_BYTES_MIN);
    make("a", 32 * MIB, a);
    (void)snprintf(path, sizeof(path), "%s/upper/file", a);
    assert_int_equal(pipe(to_child) + pipe(from_child), 0);
    pid_t pid = fork();
    if (pid == 0) {
        char c;
        int file = unshare(CLONE_NEWNS) == 0 ? open(path, O_WRONLY | O_CREAT, 0600) : -1;
        (void)!write(from_child[1], "1", 1);
        (void)!read(to_child[0], &c, 1);
        _exit(write(file, "hello", 5) == 5 && fsync(file) == 0 ? 0 : 1);
    }
    char c;
    assert_int_equal(read(from_child[0], &c, 1), 1);
    kg_volumes_close(&vols);
    assert_int_equal(access(path, F_OK), -1);
    assert_int_equal(kg_loop_find(image, device, &fd), 0); /* held by the child's mounts */
    kg_closep(&fd);

    open_store(NULL, KG_VOLUMES_BYTES_MIN);
    assert_int_equal(vols.backend, KG_VOL_BTRFS);
    assert_int_equal(kg_loop_find(image, again, &fd), 0);
    kg_closep(&fd);
    assert_string_equal(device, again);
    assert_ids("a ");
    assert_int_equal(write(to_child[1], "1", 1), 1);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    char text[8] = "";
    fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, text, sizeof(text)), 5); /* the same file system, not a copy of it */
    assert_string_equal(text, "hello");
    kg_closep(&fd);
    for (int i = 0; i < 2; i++) {
        close(to_child[i]);
        close(from_child[i]);
    }
}

static void btrfs_survives_and_grows(void **state)
{
    char a[256];
    struct statfs before;
    struct statfs after;
    int error = 0;
    (void)state;
    open_store("btrfs", KG_VOLUMES_BYTES_MIN);
    make("a", 0, a);
    (void)fill(a, "f", MIB, &error);
    assert_int_equal(statfs(vols.dir, &before), 0);
    kg_volumes_close(&vols);
    open_store("auto", 2 * KG_VOLUMES_BYTES_MIN);
    assert_int_equal(vols.backend, KG_VOL_BTRFS);
    assert_int_equal(statfs(vols.dir, &after), 0);
    assert_int_equal(after.f_blocks, 2 * before.f_blocks);
    make("a", 0, a);
    assert_mine(a);
    (void)strncat(a, "/upper/f", 16);
    assert_int_equal(access(a, F_OK), 0);
    kg_volumes_close(&vols);
    open_store("auto", KG_VOLUMES_BYTES_MIN); /* it doesn't shrink */
    assert_int_equal(statfs(vols.dir, &after), 0);
    assert_int_equal(after.f_blocks, 2 * before.f_blocks);
}

static void btrfs_takes_what_is_free(void **state)
{
    struct statfs disk;
    struct stat st;
    (void)state;
    open_store("btrfs", 0);
    assert_int_equal(stat(image, &st), 0);
    assert_int_equal(statfs(state_dir, &disk), 0);
    uint64_t free_bytes = (uint64_t)disk.f_bavail * (uint64_t)disk.f_bsize;
    assert_true((uint64_t)st.st_size > free_bytes / 2 && (uint64_t)st.st_size < free_bytes);
    kg_volumes_close(&vols);
    open_store("btrfs", 0);
    struct stat again;
    assert_int_equal(stat(image, &again), 0);
    assert_int_equal(again.st_size, st.st_size);
}

static void subvolume(const char *dir, const char *name)
{
    struct btrfs_ioctl_vol_args args = {0};
    (void)snprintf(args.name, sizeof(args.name), "%s", name);
    KG_AUTO_CLOSE int fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(ioctl(fd, BTRFS_IOC_SUBVOL_CREATE, &args), 0);
}

static void btrfs_nested_go_too(void **state)
{
    char a[256];
    char path[512];
    (void)state;
    open_store("btrfs", KG_VOLUMES_BYTES_MIN);
    make("a", 0, a);
    (void)snprintf(path, sizeof(path), "%s/upper", a);
    subvolume(path, "one");
    subvolume(path, "two");
    (void)snprintf(path, sizeof(path), "%s/upper/one", a);
    subvolume(path, "three");
    assert_int_equal(kg_volume_remove(&vols, "a"), 0);
    assert_ids("");
    /* Made half by a create that was killed: it is completed. */
    subvolume(vols.dir, "b");
    make("b", 0, a);
    assert_mine(a);
}

static void btrfs_two_stores(void **state)
{
    char other_dir[80];
    char path[256];
    char other_path[256];
    char other_image[112];
    char command[128];
    kg_volumes_t other;
    kg_err_t err = {0};
    int error = 0;
    (void)state;
    open_store("btrfs", KG_VOLUMES_BYTES_MIN);
    (void)snprintf(other_dir, sizeof(other_dir), "%s-2", state_dir);
    assert_int_equal(mkdir(other_dir, 0755), 0);
    assert_int_equal(kg_volumes_open(&other, other_dir, "btrfs", KG_VOLUMES_BYTES_MIN, &err), 0);
    make("a", 16 * MIB, path);
    assert_int_equal(kg_volume_make(&other, "a", 16 * MIB, UID, UID, other_path, &err), 0);
    assert_int_equal(fill(path, "f", 8 * MIB, &error), 8 * MIB);
    assert_int_equal(fill(other_path, "f", 4 * MIB, &error), 4 * MIB);
    assert_int_equal(kg_volume_remove(&vols, "a"), 0);
    (void)strncat(other_path, "/upper/f", 16);
    assert_int_equal(access(other_path, F_OK), 0);
    kg_volumes_close(&other);
    (void)snprintf(other_image, sizeof(other_image), "%s/volumes.img", other_dir);
    assert_int_equal(access(other_image, F_OK), 0);
    (void)snprintf(command, sizeof(command), "rm -rf %s", other_dir);
    assert_int_equal(system(command), 0); // NOLINT(cert-env33-c): a test's own directory
}

/* What a deleted volume had goes back to the disk, by trims alone: by itself the file system waits
 * longer than this takes. */
static void btrfs_trim_gives_back(void **state)
{
    char a[256];
    struct stat st;
    int error = 0;
    int64_t freed = 0;
    kg_trimmed_t trimmed = {.more = true};
    (void)state;
    open_store("btrfs", KG_VOLUMES_BYTES_MIN);
    assert_true(kg_volumes_trims(&vols));
    make("a", 0, a);
    assert_int_equal(fill(a, "f", 64 * MIB, &error), 64 * MIB);
    assert_int_equal(stat(image, &st), 0);
    assert_true((uint64_t)st.st_blocks * 512 > 64 * MIB);
    assert_int_equal(kg_volume_remove(&vols, "a"), 0);
    for (int i = 0; i < TRIES && trimmed.more; i++) {
        assert_int_equal(kg_volumes_trim(&vols, &trimmed), 0);
        freed += trimmed.bytes;
        pause_ms(1);
    }
    assert_false(trimmed.more); /* that is the one that has given all back */
    assert_true(freed > (int64_t)(60 * MIB));
    assert_int_equal(stat(image, &st), 0);
    assert_true((uint64_t)st.st_blocks * 512 < 16 * MIB);
    make("b", 0, a); /* and it is as good as before */
    assert_int_equal(fill(a, "f", 8 * MIB, &error), 8 * MIB);
}

/* The disk of the state directory isn't ours to trim. */
static void others_are_not_trimmed(void **state)
{
    static const char *const names[] = {"loop", "tmpfs", "none"};
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        kg_trimmed_t trimmed = {.bytes = 1, .more = true};
        open_store(names[i], 0);
        assert_false(kg_volumes_trims(&vols));
        assert_int_equal(kg_volumes_trim(&vols, &trimmed), 0);
        assert_int_equal(trimmed.bytes, 0);
        assert_false(trimmed.more);
        kg_volumes_close(&vols);
    }
}

/* What the kernel refuses is told, here on a directory that isn't of a btrfs. */
static void refused_trim_is_told(void **state)
{
    kg_trimmed_t trimmed = {.bytes = 1};
    kg_volumes_t other = {.backend = KG_VOL_BTRFS, .mounted = true, .dir = "/proc"};
    (void)state;
    assert_int_equal(kg_volumes_trim(&other, &trimmed), -ENOTTY);
    assert_int_equal(trimmed.bytes, 1);
}

static void other_uid_is_refused(void **state)
{
    char a[256];
    kg_err_t err = {0};
    (void)state;
    open_store("btrfs", KG_VOLUMES_BYTES_MIN);
    make("a", 0, a);
    assert_int_equal(kg_volume_make(&vols, "a", 0, UID + 1, UID, a, &err), -EEXIST);
    assert_int_equal(err.code, KG_ERR_CONFLICT);
    assert_int_equal(kg_volume_make(&vols, "../x", 0, UID, UID, a, &err), -EINVAL);
    assert_int_equal(kg_volume_remove(&vols, ".."), -EINVAL);
    assert_int_equal(kg_volume_remove(&vols, ""), -EINVAL);
}

/* --- The others ------------------------------------------------------------------------------ */

/* In a namespace of its own, as a worker does it. */
static int in_worker(int (*fn)(void))
{
    int status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(unshare(CLONE_NEWNS) < 0 ? 99 : fn());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static uint64_t worker_limit;
static const char *worker_file;

static int full_as_it_should(void)
{
    char a[256];
    kg_err_t err = {0};
    int error = 0;
    if (kg_volume_make(&vols, "a", worker_limit, UID, UID, a, &err) < 0) {
        (void)fprintf(stderr, "%s\n", err.message);
        return 1;
    }
    assert_mine(a);
    uint64_t went = fill(a, worker_file, worker_limit * 2, &error);
    if (error != ENOSPC || went < worker_limit / 2 || went > worker_limit) {
        (void)fprintf(stderr, "error %d after %llu\n", error, (unsigned long long)went);
        return 2;
    }
    return 0;
}

static void loop_limit_holds(void **state)
{
    uint64_t used = 0;
    char path[512];
    char device[KG_LOOP_NAME_MAX];
    int fd = -1;
    int r = 0;
    (void)state;
    open_store("loop", 0);
    assert_true(kg_volumes_keep(&vols));
    worker_limit = 32 * MIB;
    worker_file = "one";
    assert_int_equal(in_worker(full_as_it_should), 0);
    assert_int_equal(kg_volume_usage(&vols, "a", &used), 0);
    assert_true(used > 16 * MIB && used <= 32 * MIB);
    assert_ids("a ");
    worker_limit = 96 * MIB; /* it keeps its files, and grows */
    worker_file = "two";
    assert_int_equal(in_worker(full_as_it_should), 0);
    assert_int_equal(kg_volume_usage(&vols, "a", &used), 0);
    assert_true(used > 80 * MIB);
    (void)snprintf(path, sizeof(path), "%s/a.img", vols.dir);
    for (int i = 0; i < TRIES && r == 0; i++) { /* the workers are gone, the device follows */
        r = kg_loop_find(path, device, &fd);
        kg_closep(&fd);
        pause_ms(1);
    }
    assert_int_equal(r, -ENOENT);
    assert_int_equal(kg_volume_remove(&vols, "a"), 0);
    assert_int_equal(kg_volume_remove(&vols, "a"), 0);
    assert_ids("");
    assert_int_equal(access(path, F_OK), -1);
}

static void tmpfs_limit_holds(void **state)
{
    uint64_t used;
    (void)state;
    open_store("tmpfs", 0);
    assert_false(kg_volumes_keep(&vols));
    worker_limit = 8 * MIB;
    worker_file = "one";
    assert_int_equal(in_worker(full_as_it_should), 0);
    assert_int_equal(in_worker(full_as_it_should), 0); /* it was lost, so it fits again */
    assert_int_equal(kg_volume_usage(&vols, "a", &used), -ENOTSUP);
    assert_ids("a ");
    assert_int_equal(kg_volume_remove(&vols, "a"), 0);
    assert_ids("");
}

static void none_has_no_limits(void **state)
{
    char a[256];
    kg_err_t err = {0};
    int error = 0;
    (void)state;
    open_store("none", 0);
    assert_int_equal(kg_volume_make(&vols, "a", MIB, UID, UID, a, &err), -EOPNOTSUPP);
    assert_int_equal(err.code, KG_ERR_NOT_SUPPORTED);
    assert_ids("");
    make("a", 0, a);
    assert_mine(a);
    assert_int_equal(fill(a, "f", 2 * MIB, &error), 2 * MIB);
    assert_int_equal(kg_volume_remove(&vols, "a"), 0);
    assert_ids("");
}

static void refused(const char *wish, kg_err_code_t code)
{
    kg_volumes_t out;
    kg_err_t err = {0};
    assert_true(kg_volumes_open(&out, state_dir, wish, KG_VOLUMES_BYTES_MIN, &err) < 0);
    assert_int_equal(err.code, code);
    assert_true(err.message[0] != '\0');
}

/* Volumes of one back end never vanish behind another's. */
static void what_is_there_counts(void **state)
{
    char a[256];
    (void)state;
    open_store("none", 0);
    make("a", 0, a);
    refused("btrfs", KG_ERR_CONFIG);
    refused("loop", KG_ERR_CONFIG);
    refused("tmpfs", KG_ERR_CONFIG);
    open_store("auto", KG_VOLUMES_BYTES_MIN);
    assert_int_equal(vols.backend, KG_VOL_NONE);
    assert_ids("a ");
    assert_int_equal(kg_volume_remove(&vols, "a"), 0);
    open_store("auto", KG_VOLUMES_BYTES_MIN);
    assert_int_equal(vols.backend, KG_VOL_BTRFS);
    refused("none", KG_ERR_CONFIG);
    refused("loop", KG_ERR_CONFIG);
    refused("zfs", KG_ERR_CONFIG);
}

/* An image that is no file system is nobody's to overwrite. */
static void broken_image_is_left_alone(void **state)
{
    struct stat st;
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    assert_int_equal(vol_make_image(image, KG_VOLUMES_BYTES_MIN), 0);
    refused("auto", KG_ERR_NOT_SUPPORTED);
    refused("btrfs", KG_ERR_NOT_SUPPORTED);
    assert_int_equal(stat(image, &st), 0);
    assert_int_equal(st.st_size, KG_VOLUMES_BYTES_MIN);
}

/* Without rights: plain directories, and why. */
static int without_rights(void)
{
    kg_volumes_t out;
    kg_err_t err = {0};
    if (chown(state_dir, UID, UID) < 0 || setgid(UID) < 0 || setuid(UID) < 0) {
        return 1;
    }
    if (kg_volumes_open(&out, state_dir, NULL, KG_VOLUMES_BYTES_MIN, &err) < 0 ||
        out.backend != KG_VOL_NONE || !strstr(out.reason, "btrfs: ") ||
        !strstr(out.reason, "loop: ")) {
        return 2;
    }
    return kg_volumes_open(&out, state_dir, "btrfs", KG_VOLUMES_BYTES_MIN, &err) < 0 &&
                   err.code == KG_ERR_NOT_SUPPORTED && access(image, F_OK) < 0
               ? 0
               : 3;
}

static void rootless_has_none(void **state)
{
    (void)state;
    if (geteuid() != 0) {
        skip();
    }
    assert_int_equal(in_worker(without_rights), 0);
}

#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        T(btrfs_limit_holds),          T(btrfs_whole_store_full),   T(btrfs_found_again),
        T(btrfs_survives_and_grows),   T(btrfs_takes_what_is_free), T(btrfs_nested_go_too),
        T(btrfs_two_stores),           T(other_uid_is_refused),     T(loop_limit_holds),
        T(tmpfs_limit_holds),          T(none_has_no_limits),       T(what_is_there_counts),
        T(broken_image_is_left_alone), T(rootless_has_none),        T(btrfs_trim_gives_back),
        T(others_are_not_trimmed),     T(refused_trim_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
