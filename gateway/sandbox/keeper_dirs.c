/* The directories of a keeper. One keeper a state directory and a runtime directory: each is locked
 * before anything in it is touched, and what was there of another keeper's stays as it was. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/keeper.h"

#define RUNTIME_DIR_MAX 54
#define LOCK_TRIES 50
#define LOCK_PAUSE_MS 100

static int die(const char *what, int r)
{
    (void)fprintf(stderr, "sandal-keeper: %s: %s\n", what, strerrordesc_np(-r));
    return r;
}

/* Sandboxes have other uids than we: every directory on the way must let them through. */
static void warn_if_closed(const char *path)
{
    char part[4096];
    struct stat st;

    for (size_t i = 1; i <= strlen(path) && i < sizeof(part); i++) {
        if (path[i] != '/' && path[i] != '\0') {
            continue;
        }
        memcpy(part, path, i);
        part[i] = '\0';
        if (stat(part, &st) == 0 && !(st.st_mode & S_IXOTH)) {
            kg_log(KG_LOG_WARN, "directory.closed",
                   "path=%s reason=\"sandboxes can't pass it (no x for others)\"", part);
        }
    }
}

/* Who holds the flock on fd, as far as this process may see that; 0 = not known. */
static pid_t lock_holder(int fd)
{
    char line[256];
    char wanted[64];
    struct stat st;
    long pid = 0;
    FILE *locks = fopen("/proc/locks", "re");

    if (locks && fstat(fd, &st) == 0) {
        (void)snprintf(wanted, sizeof(wanted), " %02x:%02x:%llu ", major(st.st_dev),
                       minor(st.st_dev), (unsigned long long)st.st_ino);
        while (pid == 0 && fgets(line, sizeof(line), locks)) {
            /* NUMBER: FLOCK ADVISORY WRITE PID MAJOR:MINOR:INODE ...; one that waits has an arrow
             */
            const char *kind = strstr(line, ": FLOCK ");
            const char *write = kind && strstr(line, wanted) ? strstr(kind, "WRITE ") : NULL;
            pid = write ? strtol(write + strlen("WRITE "), NULL, 10) : 0;
        }
    }
    if (locks) {
        (void)fclose(locks);
    }
    return pid > 0 ? (pid_t)pid : 0;
}

/* " (pid N)", or "" where it isn't known. */
static void name_holder(int fd, char *ret, size_t cap)
{
    pid_t holder = lock_holder(fd);
    ret[0] = '\0';
    if (holder > 0) {
        (void)snprintf(ret, cap, " (pid %d)", (int)holder);
    }
}

/* At once, for whoever looks on. */
static void say_that_it_waits(const char *dir, const char *who)
{
    char text[4096 + 128];
    char quoted[sizeof(text) + 64];
    (void)snprintf(text, sizeof(text), "the end of the daemon%s on the directory %s", who, dir);
    kg_log(KG_LOG_WARN, "keeper.waits", "seconds=%d for=%s", LOCK_TRIES * LOCK_PAUSE_MS / 1000,
           kg_log_quote(text, quoted, sizeof(quoted)));
}

/* flag: the option that names another directory. */
static int lock_dir(int fd, const char *dir, const char *flag)
{
    const struct timespec pause = {.tv_nsec = LOCK_PAUSE_MS * 1000000L};
    char who[40] = "";
    for (int i = 0; i < LOCK_TRIES; i++) { /* one that has just been killed may still be going */
        if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
            return 0;
        }
        if (errno != EWOULDBLOCK) {
            return die(dir, -errno);
        }
        if (i == 0) {
            name_holder(fd, who, sizeof(who));
            say_that_it_waits(dir, who);
        }
        nanosleep(&pause, NULL);
    }
    name_holder(fd, who, sizeof(who));
    (void)fprintf(stderr,
                  "sandal-keeper: a daemon runs on the directory %s already%s: stop that one "
                  "first, or give this one another directory with %s\n",
                  dir, who, flag);
    return -EADDRINUSE;
}

/* Ours alone: nobody else may fill it. */
static int check_own(int fd, const char *path, mode_t mode)
{
    struct stat st = {0};
    if (fstat(fd, &st) < 0 || st.st_uid != geteuid() || (st.st_mode & 022) != 0) {
        return die(path, -EPERM);
    }
    if ((st.st_mode & 0111) != 0111) {
        (void)fchmod(fd, st.st_mode | (mode & 0111));
    }
    return 0;
}

/* The lock of a directory that is there already. 0 with *ret_fd as it was when it isn't. */
static int lock_existing(const char *path, const char *named, const char *flag, int *ret_fd)
{
    KG_AUTO_CLOSE int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0) {
        return errno == ENOENT ? 0 : die(path, -errno);
    }
    int r = lock_dir(fd, named, flag);
    if (r == 0) {
        *ret_fd = kg_take_fd(&fd);
    }
    return r;
}

/* Makes and locks what wasn't there (*fd < 0). */
static int own_dir(const char *path, const char *named, const char *flag, int *fd)
{
    int r = 0;
    if (*fd < 0) {
        r = kg_fs_open_dir(path, 0711, fd);
        r = r < 0 ? die(path, r) : lock_dir(*fd, named, flag);
    }
    return r == 0 ? check_own(*fd, path, 0711) : r;
}

/* STATE belongs to the gateway, what the keeper makes in it doesn't. */
static int make_state(const kg_keeper_t *k)
{
    KG_AUTO_CLOSE int state = -1;
    int r = kg_fs_open_dir(k->opts.state_dir, 0711, &state);
    if (r == 0 && k->gateway_uid != 0 &&
        (fchown(state, k->gateway_uid, k->gateway_gid) < 0 || fchmod(state, 0711) < 0)) {
        r = -errno;
    }
    return r < 0 ? die(k->opts.state_dir, r) : 0;
}

static int take_dirs(kg_keeper_t *k, const char *sandboxes)
{
    static const char state_flag[] = "--state-dir";
    static const char runtime_flag[] = "--runtime-dir";
    const char *state = k->opts.state_dir;
    const char *runtime = k->opts.runtime_dir;

    int r = lock_existing(sandboxes, state, state_flag, &k->host.sandboxes_fd);
    if (r == 0) {
        r = lock_existing(runtime, runtime, runtime_flag, &k->host.runtime_fd);
    }
    if (r == 0) {
        r = keeper_claim_range(k);
    }
    if (r == 0) {
        r = make_state(k);
    }
    if (r == 0) {
        r = own_dir(sandboxes, state, state_flag, &k->host.sandboxes_fd);
    }
    return r == 0 ? own_dir(runtime, runtime, runtime_flag, &k->host.runtime_fd) : r;
}

int keeper_open_dirs(kg_keeper_t *k)
{
    char path[4096];

    k->host.sandboxes_fd = -1;
    k->host.runtime_fd = -1;
    if (kg_format(path, sizeof(path), "%s/sandboxes", k->opts.state_dir) < 0) {
        return die(k->opts.state_dir, -ENAMETOOLONG);
    }
    int r = take_dirs(k, path);
    if (r < 0) {
        return r;
    }
    k->host.state_dir = realpath(k->opts.state_dir, NULL);
    k->host.runtime_dir = realpath(k->opts.runtime_dir, NULL);
    if (!k->host.state_dir || !k->host.runtime_dir) {
        return die("realpath", -errno);
    }
    if (strlen(k->host.runtime_dir) > RUNTIME_DIR_MAX) {
        (void)fprintf(stderr,
                      "sandal-keeper: the runtime directory %s has %zu bytes; unix sockets below "
                      "it allow 54 at most:"
                      " choose a shorter --runtime-dir\n",
                      k->host.runtime_dir, strlen(k->host.runtime_dir));
        return -ENAMETOOLONG;
    }
    k->dirs_held = true;
    if (k->host.is_root) {
        warn_if_closed(path);
        warn_if_closed(k->host.runtime_dir);
    }
    return 0;
}
