/* Back ends of volumes: one row each. */
#ifndef KG_SANDBOX_VOLUME_PRIVATE_H
#define KG_SANDBOX_VOLUME_PRIVATE_H

#include <stdbool.h>

#include "gateway/sandbox/volume.h"

#define VOL_PATH_MAX 512

typedef struct kg_vol_ops {
    const char *name;
    bool keep; /* kg_volumes_keep */
    /* vols->dir exists; image: STATE/volumes.img, which isn't made for 0 bytes. -errno with a
     * reason in vols->reason. */
    int (*open)(kg_volumes_t *vols, const char *image, uint64_t image_bytes);
    /* path: the volume's directory. It is there afterwards, whoever owns it. */
    int (*make)(const kg_volumes_t *vols, const char *id, const char *path, uint64_t bytes);
    int (*usage)(const kg_volumes_t *vols, const char *id, uint64_t *ret_bytes);
    int (*remove)(const kg_volumes_t *vols, const char *id);
    int (*trim)(const kg_volumes_t *vols, kg_trimmed_t *ret); /* NULL: nothing to trim */
} kg_vol_ops_t;

extern const kg_vol_ops_t vol_btrfs;
extern const kg_vol_ops_t vol_loop;

/* Runs a program of /usr/sbin, /sbin, /usr/bin or /bin with nothing but null for its output.
 * args[0]: its name; NULL at the end. Its exit status, or -ENOENT, -EIO when a signal ended it. */
int vol_exec(const char *const *args);
bool vol_can_exec(const char *name);
/* mount(2), in a translation unit without the kernel's headers that clash with its own. */
int vol_mount(const char *device, const char *path, const char *type, const char *options);
/* A new mount namespace whose mounts don't show elsewhere. */
int vol_own_mounts(void);
/* A sparse file of bytes that isn't there before. */
int vol_make_image(const char *path, uint64_t bytes);

#endif
