/* What OCI launchers do alike: where the root is shown to the runtime, the bundle's directory, the
 * trial. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/ns.h"
#include "gateway/sandbox/ns_mask.h"
#include "gateway/sandbox/oci.h"

static int show_root(const char *place)
{
    char path[OCI_PLACE_MAX];

    int r = kg_format(path, sizeof(path), "%s/root", place);
    if (r < 0) {
        return r;
    }
    if (mkdir(path, 0755) < 0 ||
        mount(NS_ROOT "/" KG_MASK_ROOT, path, NULL, MS_BIND | MS_REC, NULL) < 0) {
        return -errno;
    }
    return 0;
}

int kg_oci_place(char ret_place[OCI_PLACE_MAX])
{
    static const char *const places[] = {"/mnt", "/media", "/srv"};
    struct stat st;

    for (size_t i = 0; i < KG_ARRAY_LEN(places); i++) {
        if (lstat(places[i], &st) == 0 && S_ISDIR(st.st_mode)) {
            if (mount("sandal", places[i], "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") < 0) {
                return -errno;
            }
            (void)kg_format(ret_place, OCI_PLACE_MAX, "%s", places[i]);
            return show_root(ret_place);
        }
    }
    return -ENOENT;
}

static int write_config(int dir, const kg_oci_spec_t *spec)
{
    int fd = openat(dir, "config.json", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    FILE *out = fd < 0 ? NULL : fdopen(fd, "w");

    if (!out) {
        int r = -errno;
        kg_closep(&fd);
        return r;
    }
    kg_oci_config(out, spec);
    int r = ferror(out) ? -EIO : 0;
    return fclose(out) != 0 ? -errno : r;
}

int kg_oci_bundle(const kg_host_t *host, const kg_oci_t *oci, const kg_oci_spec_t *spec)
{
    if (mkdirat(host->runtime_fd, OCI_DIR, 0700) < 0 && errno != EEXIST) {
        return -errno;
    }
    (void)kg_oci_forget(host, oci, spec->id); /* of an earlier life */
    KG_AUTO_CLOSE int all =
        openat(host->runtime_fd, OCI_DIR, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int r = all < 0 ? -errno : kg_fs_make_dir(all, spec->id, 0700, (uid_t)-1, (gid_t)-1);
    if (r < 0) {
        return r;
    }
    KG_AUTO_CLOSE int dir = openat(all, spec->id, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    return dir < 0 ? -errno : write_config(dir, spec);
}

/* --- Trials ----------------------------------------------------------------------------------- */

/* A trial takes up to half a second, and the keeper stands still meanwhile. So what worked is kept
 * until the machine starts anew, by the program's file: a mark below OCI_TRIED. */
static int mark_name(const kg_oci_t *oci, const char *program, char ret[OCI_PATH_MAX])
{
    struct stat st;
    if (stat(program, &st) < 0) {
        return -errno;
    }
    return kg_format(ret, OCI_PATH_MAX, OCI_TRIED "/%s-%llx-%llx-%llx", oci->program,
                     (unsigned long long)st.st_dev, (unsigned long long)st.st_ino,
                     (unsigned long long)st.st_ctim.tv_sec);
}

static bool has_worked(const char *mark)
{
    struct stat st;
    return lstat(mark, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == 0;
}

static void keep_mark(const char *mark)
{
    KG_AUTO_CLOSE int dir = -1;
    if (kg_fs_open_dir(OCI_TRIED, 0700, &dir) == 0) {
        int fd = open(mark, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        kg_closep(&fd);
    }
}

int kg_oci_probe(const kg_oci_t *oci,
                 const kg_host_t *host,
                 kg_ns_trial_fn *fn,
                 char ret_reason[160])
{
    char program[OCI_PATH_MAX];
    char mark[OCI_PATH_MAX];
    kg_err_t err = {0};

    if (!host->is_root) {
        (void)snprintf(ret_reason, 160, "needs a daemon that runs as root");
        return -EPERM;
    }
    if (!kg_oci_find(oci, program)) {
        (void)snprintf(ret_reason, 160, "there is no %s (package %s)", oci->program, oci->program);
        return -ENOENT;
    }
    int r = kg_ns_prepare(host, &err);
    bool named = mark_name(oci, program, mark) == 0;
    if (r == 0 && !(named && !host->asks && has_worked(mark))) {
        r = kg_ns_trial(host, fn, &err);
        if (r == 0 && named) {
            keep_mark(mark);
        }
    }
    (void)snprintf(ret_reason, 160, "%.159s", r < 0 ? err.message : "");
    return r;
}

void kg_oci_close(const kg_host_t *host)
{
    (void)unlinkat(host->runtime_fd, OCI_DIR, AT_REMOVEDIR);
}
