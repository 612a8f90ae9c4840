/* Ownership helpers: cleanup attributes, TAKE, checked arithmetic. The only place with
 * compiler-specific code. */
#ifndef KG_BASE_MEM_H
#define KG_BASE_MEM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#define KG_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define KG_UNUSED __attribute__((unused))
#define KG_PUBLIC __attribute__((visibility("default"))) /* of a shared module */
#define KG_NODISCARD __attribute__((warn_unused_result))
#define KG_ARRAY_LEN(a) (sizeof(a) / sizeof((a)[0]))

/* Declares a local that owns: KG_AUTO(kg_foo_destroyp) kg_foo_t *foo = NULL; */
#define KG_AUTO(fn) __attribute__((cleanup(fn)))

/* Moves ownership out of p and leaves NULL behind. */
#define KG_TAKE(p)                                                                                 \
    (__extension__({                                                                               \
        __typeof__(p) kg_take_ = (p);                                                              \
        (p) = NULL;                                                                                \
        kg_take_;                                                                                  \
    }))

/* Moves a descriptor out of fd and leaves -1 behind. */
static inline int kg_take_fd(int *fd)
{
    int out = *fd;
    *fd = -1;
    return out;
}

/* Cleanup functions for KG_AUTO. */
static inline void kg_freep(void *p)
{
    void **pp = p;
    free(*pp);
    *pp = NULL;
}

static inline void kg_closep(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

#define KG_AUTO_FREE KG_AUTO(kg_freep)
#define KG_AUTO_CLOSE KG_AUTO(kg_closep)

/* Checked arithmetic on peers' numbers: true when the result fits and was stored. */
static inline bool kg_add_size(size_t a, size_t b, size_t *ret)
{
    return !__builtin_add_overflow(a, b, ret);
}

static inline bool kg_mul_size(size_t a, size_t b, size_t *ret)
{
    return !__builtin_mul_overflow(a, b, ret);
}

#define kg_container_of(ptr, type, member) ((type *)(void *)((char *)(ptr)-offsetof(type, member)))

#endif
