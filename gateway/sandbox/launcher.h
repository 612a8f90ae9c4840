/* Launchers: how a sandbox is made, held and ended. One row each in a table; the keeper knows them
 * only by it. */
#ifndef KG_SANDBOX_LAUNCHER_H
#define KG_SANDBOX_LAUNCHER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "gateway/base/err.h"
#include "gateway/sandbox/cgroup.h"
#include "gateway/sandbox/keeper_proto.h"
#include "gateway/sandbox/limits.h"
#include "gateway/sandbox/net.h"
#include "gateway/sandbox/volume.h"

/* A template that sandboxes may be made from; named on the keeper's command line, never by the
 * gateway. */
typedef struct kg_root {
    char name[64];
    char rootfs[256]; /* "host", or an absolute directory */
    char prefix[256]; /* its own tree, shown at the same path; "" = none */
} kg_root_t;

/* What the keeper gives every launcher. Public plain data; lives as long as the keeper. */
typedef struct kg_host {
    const char *init_exe;
    const char *state_dir;   /* absolute */
    const char *runtime_dir; /* absolute */
    int sandboxes_fd;        /* STATE/sandboxes */
    int runtime_fd;          /* RUNTIME */
    bool is_root;
    bool asks;      /* it is here to tell what works: nothing is taken from earlier trials */
    uid_t uid_base; /* slot s has uid_base + s * KG_UID_RANGE and on */
    uint32_t slot_count;
    unsigned orphan_s; /* how long sandal-init lives on without a keeper */
    const kg_root_t *roots;
    size_t root_count;
    const char *const *shown; /* absolute paths that the operator shows every sandbox with a root of
                                 its own */
    size_t shown_count;
    kg_cgroups_t cgroups;
    kg_volumes_t volumes;
    kg_nets_t nets;
} kg_host_t;

/* What create makes. */
typedef struct kg_launched {
    pid_t init_pid;
    bool own_root;
    bool has_root;
    kg_isolation_info_t isolation;
    char workspace[KG_KP_PATH_MAX];
    char home[KG_KP_PATH_MAX];
    char run_dir[KG_KP_PATH_MAX];
} kg_launched_t;

/* Public plain data: who it is for. */
typedef struct kg_launch {
    const char *id;
    uint32_t slot;
    uid_t base; /* first of its range; rootless: the keeper's own uid */
    uid_t uid;  /* of user code, as the host sees it */
    gid_t gid;
    uid_t killer_uid;
    bool dirs_exist; /* workspace and home are there from before */
    uint32_t slots;  /* how many ranges it has: more than one makes it a zygote */
    pid_t zygote; /* its zygote's sandal-init, 0 = none: it lies in that one's namespaces of users
                     and processes, so that what the zygote forks can join it */
    uid_t zygote_base;
    const kg_root_t *root;
    const kg_kp_create_t *request; /* limits, network */
} kg_launch_t;

/* All functions but probe run in a worker, a fork of the keeper with CLONE_PARENT rights: they may
 * block, and what they mount is in a mount namespace of their own. sandal-init must become the
 * keeper's child (clone3 with CLONE_PARENT, or as an orphan: the keeper is a subreaper). */
typedef struct kg_launcher {
    const char *name;
    unsigned rank; /* higher isolates better; 0 is never taken unless named */
    bool egress;   /* it can give a network, by host->nets, which are opened before */
    bool holds;    /* its limits of memory, cpu and pids are those of host->cgroups */
    bool zygotes;  /* it can make one sandbox below another */
    bool volumes;  /* its files are on host->volumes, which are opened before its first create */
    /* Limits that it can hold, of a create or later: 0, or -errno and why not. NULL: any. */
    int (*check)(const kg_limits_t *limits, kg_err_t *err);
    /* 0 when it works on this host, found by trying; else -errno and why. May leave a remark on 0.
     */
    int (*probe)(const kg_host_t *host, char ret_reason[160]);
    /* Everything or nothing: on failure it has taken back what it made. */
    int (*create)(const kg_host_t *host,
                  const kg_launch_t *launch,
                  kg_launched_t *ret_launched,
                  kg_err_t *err);
    /* A connection to its sandal-init (init_sock.h), to be called at any time in its life. fd or
     * -errno. */
    int (*connect)(const kg_host_t *host, const char *id, pid_t init_pid);
    /* Begins its end: init dies, whatever else can be killed at once too. In the keeper, quick. */
    void (*destroy)(const kg_host_t *host, const char *id, pid_t init_pid);
    /* Gives back all that may be left of id when no process of it lives: cgroups, network, run
     * directory, mounts, and its files unless keep_files. Of a create that was killed half-way too.
     * Idempotent. */
    int (*cleanup)(const kg_host_t *host, const char *id, uint32_t slot, bool keep_files);
    /* NULL where it can't. In the keeper, at most some ms. */
    int (*pause)(const kg_host_t *host, const char *id, bool frozen, kg_err_t *err);
    int (*usage)(const kg_host_t *host, const char *id, kg_box_usage_t *ret);
    /* The keeper ends: takes back what probe made. NULL: nothing. */
    void (*close)(const kg_host_t *host);
} kg_launcher_t;

/* The rows there are, best first. */
const kg_launcher_t *const *kg_launchers(size_t *ret_count);
const kg_launcher_t *kg_launcher_find(const char *name);

extern const kg_launcher_t kg_launcher_namespace;
extern const kg_launcher_t kg_launcher_bubblewrap;
extern const kg_launcher_t kg_launcher_runc;
extern const kg_launcher_t kg_launcher_gvisor;
extern const kg_launcher_t kg_launcher_process;
extern const kg_launcher_t kg_launcher_none;

#endif
