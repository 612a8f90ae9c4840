/* cli: the directories that `serve` makes, and those where its unix sockets come. The keeper and
 * the gateway look again when they take them; here it is said which key is at fault, before
 * anything is made. */
#include "gateway/cli/dirs_check.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/cli/paths.h"

/* Of the path of state_dir: the places that put names behind it have 256 bytes and more. */
#define STATE_DIR_MAX 200

static int refuse(const char *key, const char *path, const char *why, kg_err_t *err)
{
    int r = kg_err_set(err, KG_ERR_CONFIG, "%s: %s: %s", key, path, why);
    const char *flag = strcmp(key, "state_dir") == 0 ? "state" : "runtime";
    kg_err_hint(err, "name another directory with --%s-dir: one that can be made, or is its own",
                flag);
    return r;
}

char *kg_dirs_there(const char *path)
{
    KG_AUTO_FREE char *part = strdup(path);
    struct stat st;
    while (part && lstat(part, &st) < 0) {
        char *slash = strrchr(part, '/');
        if (errno != ENOENT || !slash) {
            return NULL;
        }
        slash[slash == part] = '\0';
    }
    return KG_TAKE(part);
}

/* What the kernel shows there are no files, and nobody can make any, though the mode says so. */
static bool of_the_kernel(const char *path)
{
    static const unsigned long magics[] = {PROC_SUPER_MAGIC, SYSFS_MAGIC, CGROUP_SUPER_MAGIC,
                                           CGROUP2_SUPER_MAGIC};
    struct statfs fs;
    bool found = false;
    for (size_t i = 0; i < KG_ARRAY_LEN(magics) && statfs(path, &fs) == 0; i++) {
        found = found || (unsigned long)fs.f_type == magics[i];
    }
    return found;
}

/* A directory in which we may make others. */
static int check_open(const char *key, const char *dir, kg_err_t *err)
{
    struct stat st;
    if (stat(dir, &st) < 0) {
        return refuse(key, dir, strerrordesc_np(errno), err);
    }
    if (!S_ISDIR(st.st_mode)) {
        return refuse(key, dir, "not a directory", err);
    }
    if (faccessat(AT_FDCWD, dir, W_OK | X_OK, AT_EACCESS) < 0) {
        return refuse(key, dir, strerrordesc_np(errno), err);
    }
    return of_the_kernel(dir) ? refuse(key, dir, "no directory can be made in it", err) : 0;
}

/* Each part of the path that is there, and the names of the others. */
static int check_makeable(const char *key, const char *path, kg_err_t *err)
{
    struct stat st;
    KG_AUTO_FREE char *there = kg_dirs_there(path);
    if (!there) {
        return refuse(key, path, strerrordesc_np(errno), err);
    }
    KG_AUTO_FREE char *real = realpath(path, NULL); /* a / behind it, or a link, hides nothing */
    if (real && kg_path_is_system(real)) {
        return refuse(key, path, "the whole system has it, and the daemon would take it over", err);
    }
    if (strcmp(there, path) == 0 && lstat(path, &st) == 0 && S_ISLNK(st.st_mode)) {
        return refuse(key, path, "a symbolic link", err);
    }
    return check_open(key, there, err);
}

/* As sandal-keeper asks of what it has made, when it finds it again. */
static int check_own(const char *key, const char *path, kg_err_t *err)
{
    struct stat st;
    if (lstat(path, &st) < 0) {
        return errno == ENOENT ? 0 : refuse(key, path, strerrordesc_np(errno), err);
    }
    if (S_ISDIR(st.st_mode) && st.st_uid == geteuid() && (st.st_mode & 022) == 0) {
        return 0;
    }
    return refuse(key, path,
                  "not a directory that belongs to who starts the daemon, and to nobody else", err);
}

static int check_state(const char *state, kg_err_t *err)
{
    KG_AUTO_FREE char *sandboxes = kg_strdup_printf("%s/sandboxes", state);
    if (strlen(state) > STATE_DIR_MAX) {
        return kg_err_set(err, KG_ERR_CONFIG, "state_dir: longer than %d bytes", STATE_DIR_MAX);
    }
    if (!sandboxes) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    int r = check_makeable("state_dir", state, err);
    return r == 0 ? check_own("state_dir", sandboxes, err) : r;
}

static int check_runtime(const char *runtime, kg_err_t *err)
{
    int r = check_makeable("runtime_dir", runtime, err);
    return r == 0 ? check_own("runtime_dir", runtime, err) : r;
}

/* dir[0..len) is state_dir, which will be there; or, where the gateway's user makes all, above it.
 */
static bool comes_with_state(const char *dir, size_t len, const char *state)
{
    if (strncmp(state, dir, len) != 0) {
        return false;
    }
    const char *rest = state + len;
    return rest[strspn(rest, "/")] == '\0' || (*rest == '/' && geteuid() != 0);
}

static int check_socket(const char *path, const char *state, kg_err_t *err)
{
    struct stat st;
    const char *slash = strrchr(path, '/');
    KG_AUTO_FREE char *dir = slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
    if (!dir) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    if ((stat(dir, &st) < 0 || !S_ISDIR(st.st_mode)) &&
        !comes_with_state(dir, strlen(dir), state)) {
        int r =
            kg_err_set(err, KG_ERR_CONFIG, "listen: unix:%s: there is no directory %s", path, dir);
        kg_err_hint(err, "make it, as the user who makes the socket, or listen in another");
        return r;
    }
    if (lstat(path, &st) == 0 && !S_ISSOCK(st.st_mode)) {
        return kg_err_set(err, KG_ERR_CONFIG,
                          "listen: unix:%s is there already and is not a socket", path);
    }
    return 0;
}

int kg_dirs_check(const kg_config_t *config, kg_err_t *err)
{
    int r = check_state(config->state_dir, err);
    r = r == 0 ? check_runtime(config->runtime_dir, err) : r;
    for (size_t i = 0; i < config->listen.count && r == 0; i++) {
        const char *text = config->listen.items[i];
        if (kg_str_starts(text, "unix:/")) {
            r = check_socket(text + strlen("unix:"), config->state_dir, err);
        }
    }
    return r;
}
