/* Private to the launcher `namespace`: its steps. Outside means in the worker, in the initial user
 * namespace; inside means in the process that becomes sandal-init. */
#ifndef KG_SANDBOX_NS_H
#define KG_SANDBOX_NS_H

#include <stdbool.h>
#include <sys/types.h>

#include "gateway/sandbox/launcher.h"

/* RUNTIME/namespace: mount points. Relative names only are used below it, for the options of mounts
 * are read by sandboxes. */
#define NS_DIR "namespace"
#define NS_MASKS "masks" /* tmpfs of the keeper's: a layer a root, see ns_mask.h */
#define NS_MASK "m"      /* in a worker's mount namespace: that layer, */
#define NS_LOWER "l"     /* the lower one, */
#define NS_VOLUME "v"    /* the volume, */
#define NS_ROOT "root"   /* and all of them together */
#define NS_HOST_MASK "host"
#define NS_PREFIX "p"  /* and a template's own tree */
#define NS_DONE "done" /* in NS_MASKS: they are complete; what came of trying */

/* --- ns_idmap.c --- */

/* clone3 for a process that waits; 0 in the child. flags: CLONE_*. cgroup_fd: -1, or to be born in.
 */
pid_t kg_ns_clone(uint64_t flags, int cgroup_fd);
/* Writes both maps: inside_first.. to outside_first.., count. */
int kg_ns_write_maps(pid_t pid, uid_t inside_first, uid_t outside_first, unsigned count);
/* A user namespace that exists only to say a mapping. fd or -errno. */
int kg_ns_mapping(uid_t inside_first, uid_t outside_first, unsigned count);
/* The file system at `from` alone, nothing that is mounted below it, as the mount `to` (a
 * directory), with ids mapped by userns (-1: as they are). *ret_mapped tells whether they are: some
 * file systems can't. */
int kg_ns_clone_mount(const char *from, const char *to, int userns, bool *ret_mapped);

/* --- ns_zygote.c: in a worker --- */

typedef void kg_ns_child_fn(void *arg);
/* As kg_ns_clone of CLONE_NEWUSER | CLONE_NEWPID and kg_ns_write_maps for a sandbox that
 * lies in the namespaces of launch->zygote: fn runs in the new process, which becomes the caller's
 * child, and never returns. Its user namespace belongs to the user of the zygote's processes, which
 * lets them join it. */
int kg_ns_clone_below(const kg_launch_t *launch, kg_ns_child_fn *fn, void *arg, pid_t *ret_pid);

/* --- ns_masks.c: in the keeper --- */

/* Makes RUNTIME/namespace and the layers of all roots, once. */
int kg_ns_prepare(const kg_host_t *host, kg_err_t *err);
/* Takes back what prepare made. */
void kg_ns_close(const kg_host_t *host);
/* What was found when it was tried; false: not tried since the layers were made. */
bool kg_ns_verdict(const kg_host_t *host, int *ret_error, char ret_reason[160]);
void kg_ns_verdict_set(const kg_host_t *host, int error, const char reason[160]);
/* The layer of a root (NULL: the host's), in RUNTIME/namespace. */
int kg_ns_mask_name(const kg_root_t *root, char *ret, size_t size);
bool kg_ns_is_host(const kg_root_t *root);

/* --- ns_mounts.c: outside --- */

/* With the working directory in RUNTIME/namespace and a mount namespace of one's own: mounts the
 * sandbox's root at NS_ROOT. volume: holds upper and work. */
int kg_ns_mounts(const kg_host_t *host,
                 const kg_launch_t *launch,
                 const char *volume,
                 int userns,
                 kg_err_t *err);

/* --- launcher_namespace.c: in a worker --- */

/* All of a sandbox: groups, root, network, a sandal-init that has been started. Everything or
 * nothing. link: see kg_ns_inside_t. */
int kg_ns_make(const kg_host_t *host,
               const kg_launch_t *launch,
               bool trial,
               int link,
               pid_t *ret_pid,
               kg_err_t *err);
/* As launchers' connect and destroy. */
int kg_ns_connect(const kg_host_t *host, const char *id, pid_t init_pid);
void kg_ns_destroy(const kg_host_t *host, const char *id, pid_t init_pid);

/* --- ns_root.c: in a worker --- */

/* A mount namespace of the caller's own, the working directory in RUNTIME/namespace. */
int kg_ns_enter_place(const kg_host_t *host, kg_err_t *err);
/* After that: makes or takes the sandbox's volume and mounts its root, kg_ns_mounts. trial: a
 * volume that goes with the mount namespace. *ret_volume is set when there is one to be taken back.
 */
int kg_ns_root(const kg_host_t *host,
               const kg_launch_t *launch,
               bool trial,
               int userns,
               bool *ret_volume,
               kg_err_t *err);
/* Waits for what has been killed in them. */
void kg_ns_remove_groups(const kg_host_t *host, const char *id);
/* Whom trials are made for: slot 0, no limits, no network. Borrows request. */
kg_launch_t kg_ns_trial_launch(const kg_host_t *host, const kg_kp_create_t *request);
/* Runs fn in a child of its own and gives what it says; -EIO when it died, -ETIMEDOUT when it
 * had to be killed. */
typedef int kg_ns_trial_fn(const kg_host_t *host, kg_err_t *err);
int kg_ns_trial(const kg_host_t *host, kg_ns_trial_fn *fn, kg_err_t *err);

/* As launchers' cleanup, pause and usage. */
int kg_ns_cleanup(const kg_host_t *host, const char *id, uint32_t slot, bool keep_files);
int kg_ns_pause(const kg_host_t *host, const char *id, bool frozen, kg_err_t *err);
int kg_ns_usage(const kg_host_t *host, const char *id, kg_box_usage_t *ret);

/* --- ns_show.c --- */

#define NS_RUN_BYTES (UINT64_C(16) << 20) /* of the tmpfs at /run */

/* Of each of its other tmpfs: half of its memory, which is what Linux gives one by itself; their
 * pages count as the sandbox's. */
uint64_t kg_ns_tmpfs_bytes(const kg_limits_t *limits);
/* Fills `run`, the empty directory that is or becomes the sandbox's /run. first: the sandbox's root
 * as the caller sees it. */
int kg_ns_show(const kg_launch_t *launch, const char *run, uid_t first, const char *resolv_conf);
/* Gives a process (0: the caller) as many processors as the limit amounts to; which, by slot, so
 * that sandboxes don't all sit on the first ones. */
int kg_ns_take_cpus(pid_t pid, uint32_t slot, uint32_t cpu_millis);
/* Files of KG_MASK_VIEW, if they are there, that cover those of /proc of the same name. */
const char *const *kg_ns_proc_views(size_t *ret_count);
/* The container engines' lists: what is covered (and /proc/fs, which names the host's disks), and
 * what is made read-only. */
const char *const *kg_ns_proc_masked(size_t *ret_count);
const char *const *kg_ns_proc_fixed(size_t *ret_count);

/* --- ns_inside.c --- */

typedef struct kg_ns_inside {
    const kg_host_t *host;
    const kg_launch_t *launch;
    const char *cgroup_id;       /* groups to enter, NULL = none */
    int entries[KG_CG_FEATURES]; /* where it lies in a zygote instead of cgroup_id:
                                    kg_cgroup_entries; sandal-init keeps them */
    size_t entry_count;
    int link;   /* to its processes in a guest kernel (init/args.h); -1 = none */
    int oom;    /* with link: kg_cgroup_oom_fd, or -1 */
    int go;     /* one byte when mounts and maps are there; its end: give up */
    int report; /* where kg_ns_report_t goes when it has its namespaces and groups, and on failure;
                   closed by exec */
    char resolv_conf[1024];
} kg_ns_inside_t;

typedef struct kg_ns_report {
    int error; /* -errno, or 0 */
    char step[60];
} kg_ns_report_t;

/* Never returns. */
_Noreturn void kg_ns_inside(const kg_ns_inside_t *in);

#endif
