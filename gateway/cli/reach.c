/* cli: what a user can get at, tried by a child that has become that user: permissions, groups and
 * access lists all count, and no rule of them is written down twice. */
#include "gateway/cli/reach.h"

#include <errno.h>
#include <grp.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/mem.h"

enum {
    PATH_BYTES = 4096,
    ALL_REACHED = 0,
    CANNOT_TRY = 255
};

/* The first folder on the way that the user cannot pass, or path itself: its length. */
static size_t stopped_at(const char *path)
{
    char part[PATH_BYTES];
    size_t len = strlen(path);
    for (size_t i = 1; i < len && i < sizeof(part); i++) {
        if (path[i] != '/') {
            continue;
        }
        memcpy(part, path, i);
        part[i] = '\0';
        if (access(part, X_OK) != 0) {
            return i;
        }
    }
    return len;
}

/* In the child. Says by the exit code which path is out of reach (counted from 1), and writes how
 * much of it can be named. */
static int
try_all(const char *user, uid_t uid, gid_t gid, const kg_reach_t *paths, size_t count, int report)
{
    if (initgroups(user, gid) < 0 || setgid(gid) < 0 || setuid(uid) < 0) {
        return CANNOT_TRY;
    }
    for (size_t i = 0; i < count && i < CANNOT_TRY - 1; i++) {
        if (access(paths[i].path, paths[i].mode) != 0) {
            size_t len = stopped_at(paths[i].path);
            return write(report, &len, sizeof(len)) == sizeof(len) ? (int)i + 1 : CANNOT_TRY;
        }
    }
    return ALL_REACHED;
}

static int refuse(const char *user, const kg_reach_t *missed, size_t stopped_len, kg_err_t *err)
{
    bool whole = stopped_len >= strlen(missed->path);
    if (whole && (missed->mode & W_OK)) {
        int rc = kg_err_set(err, KG_ERR_CONFIG,
                            "the user `%s` (gateway_user), who makes the unix sockets of listen, "
                            "cannot write in %s",
                            user, missed->path);
        kg_err_hint(err,
                    "let that user write there (`install -d -o %s DIR` makes such a directory), "
                    "or listen in another",
                    user);
        return rc;
    }
    int rc = kg_err_set(err, KG_ERR_CONFIG, "the user `%s` (gateway_user) cannot %s %s", user,
                        missed->mode & X_OK ? "get at" : "read", missed->path);
    if (missed->mode & W_OK) {
        kg_err_hint(err,
                    "%.*s lets others not through: listen in another directory, or name another "
                    "user with --gateway-user",
                    (int)stopped_len, missed->path);
        return rc;
    }
    kg_err_hint(err,
                "%.*s lets others not %s: move the tree to where everybody may go (/opt, /srv), "
                "or name another user with --gateway-user",
                (int)stopped_len, missed->path, whole ? "in" : "through");
    return rc;
}

int kg_reach_check(
    const char *user, uid_t uid, gid_t gid, const kg_reach_t *paths, size_t count, kg_err_t *err)
{
    int report[2];
    int status = 0;
    size_t stopped_len = 0;
    if (pipe(report) < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "pipe: %s", strerrordesc_np(errno));
    }
    pid_t child = fork();
    if (child == 0) {
        _exit(try_all(user, uid, gid, paths, count, report[1]));
    }
    (void)close(report[1]);
    bool told = child > 0 &&
                read(report[0], &stopped_len, sizeof(stopped_len)) == (ssize_t)sizeof(stopped_len);
    (void)close(report[0]);
    if (child < 0 || waitpid(child, &status, 0) != child || !WIFEXITED(status) ||
        WEXITSTATUS(status) == CANNOT_TRY) {
        return kg_err_set(err, KG_ERR_CONFIG, "cannot try the rights of the user `%s`", user);
    }
    size_t missed = (size_t)WEXITSTATUS(status);
    return missed && told && missed <= count ? refuse(user, &paths[missed - 1], stopped_len, err)
                                             : 0;
}
