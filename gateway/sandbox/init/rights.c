/* What a fork of sandal-init may do when it acts for the sandbox. Both ways end in a look at what
 * the kernel says that came of it. */
#include <errno.h>
#include <grp.h>
#include <sys/fsuid.h>
#include <unistd.h>

#include "gateway/sandbox/caps.h"
#include "gateway/sandbox/filter.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init/init.h"

static bool only_caps(uint64_t caps)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

    if (syscall(SYS_capget, &head, data) < 0) {
        return false;
    }
    uint64_t effective = data[0].effective | (uint64_t)data[1].effective << 32;
    uint64_t permitted = data[0].permitted | (uint64_t)data[1].permitted << 32;
    return effective == caps && permitted == caps;
}

/* Its own root only where it is the sandbox's. */
static int check_root(const kg_init_t *in)
{
    return in->is_root && (in->flags & KG_INIT_FLAG_HAS_ROOT) ? 0 : -EPERM;
}

int init_become_for_files(const kg_init_t *in, bool root)
{
    if (root && check_root(in) < 0) {
        return -EPERM;
    }
    if (prctl(PR_SET_DUMPABLE, 0) < 0) { /* the sandbox's root has our number and may trace it */
        return -errno;
    }
    if (!in->is_root) {
        return 0;
    }
    if (setgroups(0, NULL) < 0) {
        return -errno;
    }
    if (root) {
        int r = kg_caps_set(KG_CAPS_ROOT);
        return r == 0 && !only_caps(KG_CAPS_ROOT) ? -EPERM : r;
    }
    /* The effective ids alone: who may signal or trace us goes by the real and the saved one. The
     * ids for files come along. */
    if (setresgid((gid_t)-1, in->gid, (gid_t)-1) < 0 ||
        setresuid((uid_t)-1, in->uid, (uid_t)-1) < 0) {
        return -errno;
    }
    int r = kg_caps_set(KG_CAPS_NONE);
    if (r < 0) {
        return r;
    }
    bool good = only_caps(KG_CAPS_NONE) && geteuid() == in->uid && getegid() == in->gid &&
                (uid_t)setfsuid((uid_t)-1) == in->uid && (gid_t)setfsgid((gid_t)-1) == in->gid;
    return good ? 0 : -EPERM;
}

static int load_filter(const kg_init_t *in, kg_filter_t which)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        return -errno;
    }
    return in->flags & KG_INIT_FLAG_FILTER ? kg_filter_load(which) : 0;
}

/* no_new_privs for root too: its uid 0 has the whole bounding set already, so nothing that root
 * runs needs setuid bits or file capabilities; setuid(2) goes on working, as apt's and su's
 * dropping of rights needs. */
static int become_root(const kg_init_t *in)
{
    int r = check_root(in);
    if (r == 0) {
        r = kg_caps_bound(KG_CAPS_ROOT);
    }
    if (r < 0) {
        return r;
    }
    if (setgroups(0, NULL) < 0 || setresgid(0, 0, 0) < 0 || setresuid(0, 0, 0) < 0) {
        return -errno;
    }
    r = load_filter(in, KG_FILTER_ROOT);
    if (r == 0) {
        r = kg_caps_set(KG_CAPS_ROOT);
    }
    return r == 0 && !kg_caps_are(KG_CAPS_ROOT) ? -EPERM : r;
}

int init_become_for_exec(const kg_init_t *in, bool root, bool zygote)
{
    kg_filter_t filter = zygote ? KG_FILTER_ZYGOTE : KG_FILTER_USER;
    if (zygote && !(in->flags & KG_INIT_FLAG_ZYGOTE)) {
        return -EPERM;
    }
    if (root) {
        return become_root(in);
    }
    if (!in->is_root) { /* the bounding set isn't ours to change; no_new_privs makes it nothing */
        int r = kg_caps_set(KG_CAPS_NONE);
        if (r == 0 && !only_caps(KG_CAPS_NONE)) {
            r = -EPERM;
        }
        return r == 0 ? load_filter(in, filter) : r;
    }
    int r = kg_caps_bound(KG_CAPS_NONE);
    if (r < 0) {
        return r;
    }
    if (setgroups(0, NULL) < 0 || setresgid(in->gid, in->gid, in->gid) < 0 ||
        setresuid(in->uid, in->uid, in->uid) < 0) {
        return -errno;
    }
    r = kg_caps_set(KG_CAPS_NONE);
    if (r < 0) {
        return r;
    }
    if (getuid() == 0 || !kg_caps_are(KG_CAPS_NONE)) {
        return -EPERM;
    }
    return load_filter(in, filter);
}
