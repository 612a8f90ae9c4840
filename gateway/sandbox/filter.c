/* The programs that filter_gen made, and how they are loaded. Part of sandal-init and the keeper:
 * libc only. */
#include "gateway/sandbox/filter.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/profile/filter_programs.h"

const struct sock_filter *kg_filter_program(kg_filter_t which, size_t *ret_count)
{
    switch (which) {
    case KG_FILTER_ROOT:
        *ret_count = KG_ARRAY_LEN(filter_root);
        return filter_root;
    case KG_FILTER_ZYGOTE:
        *ret_count = KG_ARRAY_LEN(filter_zygote);
        return filter_zygote;
    case KG_FILTER_FORWARDER:
        *ret_count = KG_ARRAY_LEN(filter_forwarder);
        return filter_forwarder;
    case KG_FILTER_USER:
    case KG_FILTER_COUNT:
    default:
        *ret_count = KG_ARRAY_LEN(filter_user);
        return filter_user;
    }
}

int kg_filter_load(kg_filter_t which)
{
    size_t count;
    const struct sock_filter *borrowed = kg_filter_program(which, &count);
    union {
        const struct sock_filter *ro;
        struct sock_filter *rw;
    } program = {.ro = borrowed}; /* the kernel only reads it */
    const struct sock_fprog fprog = {.len = (unsigned short)count, .filter = program.rw};

    return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &fprog, 0, 0) < 0 ? -errno : 0;
}
