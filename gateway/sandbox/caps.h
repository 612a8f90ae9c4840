/* Capabilities of what runs in a sandbox. Kernels and `user` have none; `root` has the container
 * engines' default set, within the sandbox's own user namespace. */
#ifndef KG_SANDBOX_CAPS_H
#define KG_SANDBOX_CAPS_H

#include <errno.h>
#include <linux/capability.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#define KG_CAP_BIT(cap) (UINT64_C(1) << (cap))

/* `default_capabilities` of containers.conf. */
#define KG_CAPS_ROOT                                                                               \
    (KG_CAP_BIT(CAP_CHOWN) | KG_CAP_BIT(CAP_DAC_OVERRIDE) | KG_CAP_BIT(CAP_FOWNER) |               \
     KG_CAP_BIT(CAP_FSETID) | KG_CAP_BIT(CAP_KILL) | KG_CAP_BIT(CAP_NET_BIND_SERVICE) |            \
     KG_CAP_BIT(CAP_SETFCAP) | KG_CAP_BIT(CAP_SETGID) | KG_CAP_BIT(CAP_SETPCAP) |                  \
     KG_CAP_BIT(CAP_SETUID) | KG_CAP_BIT(CAP_SYS_CHROOT))
#define KG_CAPS_NONE UINT64_C(0)

/* Takes everything but `keep` out of the bounding set; needs CAP_SETPCAP. -errno. */
static inline int kg_caps_bound(uint64_t keep)
{
    for (int cap = 0; cap < 64 && prctl(PR_CAPBSET_READ, cap) >= 0; cap++) {
        if (!(keep & KG_CAP_BIT(cap)) && prctl(PR_CAPBSET_DROP, cap, 0, 0, 0) < 0) {
            return -errno;
        }
    }
    return 0;
}

/* The effective and permitted set of the caller become `caps`, inheritable and ambient nothing.
 * -errno. */
static inline int kg_caps_set(uint64_t caps)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

    data[0].effective = data[0].permitted = (uint32_t)caps;
    data[1].effective = data[1].permitted = (uint32_t)(caps >> 32);
    if (prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0) < 0 && errno != EINVAL) {
        return -errno;
    }
    return syscall(SYS_capset, &head, data) < 0 ? -errno : 0;
}

/* Read back, not assumed: setresuid may keep what it should have taken, and joining a user
 * namespace gives everything. True when the caller has `caps` exactly, in the bounding set nothing
 * beyond. */
static inline bool kg_caps_are(uint64_t caps)
{
    struct __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3] = {{0}};

    if (syscall(SYS_capget, &head, data) < 0) {
        return false;
    }
    uint64_t effective = data[0].effective | (uint64_t)data[1].effective << 32;
    uint64_t permitted = data[0].permitted | (uint64_t)data[1].permitted << 32;
    uint64_t inheritable = data[0].inheritable | (uint64_t)data[1].inheritable << 32;
    for (int cap = 0; cap < 64; cap++) {
        int bound = prctl(PR_CAPBSET_READ, cap);
        if (bound < 0) {
            break;
        }
        if (bound && !(caps & KG_CAP_BIT(cap))) {
            return false;
        }
    }
    return effective == caps && permitted == caps && inheritable == 0;
}

#endif
