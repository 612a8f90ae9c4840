/* One keeper a uid range: two on the same range would end each other's processes and let their
 * sandboxes reach each other's files. A file BASE-COUNT in a directory of root's is locked as long
 * as the keeper lives; what isn't locked is stale. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/keeper.h"

static struct dirent *next_entry(DIR *dir)
{
    return readdir(dir); // NOLINT(concurrency-mt-unsafe): one thread
}

static bool parse_range(const char *name, uint64_t *ret_base, uint64_t *ret_count)
{
    char text[64];
    if (kg_format(text, sizeof(text), "%s", name) < 0 || !strchr(text, '-')) {
        return false;
    }
    char *dash = strchr(text, '-');
    *dash = '\0';
    return kg_parse_u64(text, 0, UINT32_MAX, ret_base) == 0 &&
           kg_parse_u64(dash + 1, 1, UINT32_MAX, ret_count) == 0;
}

/* True when a living keeper holds the file; one that nobody holds is removed. */
static bool held(int dir, const char *name)
{
    KG_AUTO_CLOSE int fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return false;
    }
    if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        return true;
    }
    (void)unlinkat(dir, name, 0);
    return false;
}

static int look_for_others(const kg_keeper_t *k, int fd)
{
    int r = 0;
    int again = openat(fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = again < 0 ? NULL : fdopendir(again);
    if (!dir) {
        return -errno;
    }
    for (struct dirent *entry = next_entry(dir); entry && r == 0; entry = next_entry(dir)) {
        uint64_t base;
        uint64_t count;
        if (!parse_range(entry->d_name, &base, &count) ||
            base >= k->opts.uid_base + k->opts.uid_count || k->opts.uid_base >= base + count ||
            !held(fd, entry->d_name)) {
            continue;
        }
        (void)fprintf(
            stderr,
            "sandal-keeper: uids from %llu on (%llu) are another keeper's on this machine:"
            " choose another --uid-base\n",
            (unsigned long long)base, (unsigned long long)count);
        r = -EADDRINUSE;
    }
    closedir(dir);
    return r;
}

int keeper_claim_range(kg_keeper_t *k)
{
    char name[64];
    KG_AUTO_CLOSE int dir = -1;

    if (!k->host.is_root) {
        return 0;
    }
    int r = kg_fs_open_dir(KG_UID_RANGES_DIR, 0700, &dir);
    if (r < 0 || flock(dir, LOCK_EX) < 0) { /* held for the look and the claim */
        kg_log(KG_LOG_WARN, "uids.not_claimed", "path=" KG_UID_RANGES_DIR " reason=%s",
               strerrorname_np(r < 0 ? -r : errno));
        return 0;
    }
    r = look_for_others(k, dir);
    if (r < 0) {
        return r;
    }
    (void)snprintf(name, sizeof(name), "%llu-%llu", (unsigned long long)k->opts.uid_base,
                   (unsigned long long)k->opts.uid_count);
    k->range_fd = openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    return k->range_fd < 0 || flock(k->range_fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
}
