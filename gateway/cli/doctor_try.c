/* cli: what `sandald doctor` tries by itself, without a keeper: in a child each, in namespaces of
 * its own, so that nothing is left of it. */
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/base/str.h"
#include "gateway/cli/doctor.h"

#define PLACE "/tmp" /* covered by a tmpfs of the child's own */
#define CRIU_SECONDS 10
#define EXIT_ABSENT 127

static int write_text(const char *path, const char *text)
{
    KG_AUTO_CLOSE int fd = open(path, O_WRONLY | O_CLOEXEC);
    return fd < 0 || write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

/* As who mounts inside. Root needs no user namespace for it. */
static int enter(uid_t uid, gid_t gid)
{
    char users[48];
    char groups[48];
    if (unshare(uid == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) < 0) {
        return -errno;
    }
    (void)snprintf(users, sizeof(users), "0 %u 1", uid);
    (void)snprintf(groups, sizeof(groups), "0 %u 1", gid);
    int r = uid == 0 ? 0 : write_text("/proc/self/setgroups", "deny");
    r = r < 0 || uid == 0 ? r : write_text("/proc/self/uid_map", users);
    return r < 0 || uid == 0 ? r : write_text("/proc/self/gid_map", groups);
}

static int try_overlay(void)
{
    static const char *const dirs[] = {PLACE "/lower", PLACE "/upper", PLACE "/work", PLACE "/all"};
    int r = enter(geteuid(), getegid());
    if (r < 0) {
        return r;
    }
    if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0 ||
        mount("tmpfs", PLACE, "tmpfs", 0, NULL) < 0) {
        return -errno;
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(dirs); i++) {
        if (mkdir(dirs[i], 0700) < 0) {
            return -errno;
        }
    }
    return mount("overlay", dirs[3], "overlay", 0,
                 "lowerdir=" PLACE "/lower,upperdir=" PLACE "/upper,workdir=" PLACE "/work") < 0
               ? -errno
               : 0;
}

/* Its exit code; -1: it ended otherwise, or there was none. */
static int code_of(pid_t pid)
{
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0) {
        if (errno != EINTR) {
            return -1;
        }
    }
    return pid > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

void kg_doctor_overlay(kg_doctor_t *doctor)
{
    pid_t pid = fork();
    if (pid == 0) {
        int r = -try_overlay();
        _exit(r >= 0 && r < 256 ? r : EIO);
    }
    int code = code_of(pid);
    kg_doctor_say(doctor, code == 0 ? KG_FINDING_OK : KG_FINDING_NO, "overlay",
                  code == 0  ? ""
                  : code < 0 ? "it could not be tried"
                             : strerrordesc_np(code));
}

void kg_doctor_checkpoint(kg_doctor_t *doctor)
{
    char said[120];
    pid_t pid = fork();
    if (pid == 0) {
        int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        for (int fd = 0; fd <= 2; fd++) {
            (void)dup2(null, fd);
        }
        (void)alarm(CRIU_SECONDS); /* exec keeps it */
        (void)execlp("criu", "criu", "check", (char *)NULL);
        _exit(EXIT_ABSENT);
    }
    int code = code_of(pid);
    if (code == EXIT_ABSENT) {
        (void)kg_format(said, sizeof(said), "criu is not installed");
    } else {
        (void)kg_format(said, sizeof(said),
                        code == 0 ? "`criu check` is content"
                                  : "`criu check` finds this kernel or user lacking");
    }
    char detail[200];
    (void)kg_format(detail, sizeof(detail),
                    "%s; this version has no snapshots yet, so nothing needs it", said);
    kg_doctor_say(doctor, code == 0 ? KG_FINDING_OK : KG_FINDING_NO, "checkpoint", detail);
}
