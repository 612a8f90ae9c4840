/* Private to the launchers of OCI runtimes: `runc`, `gvisor`. The keeper mounts the root and writes
 * the bundle, the runtime makes namespaces and mounts in it what the bundle names. */
#ifndef KG_SANDBOX_OCI_H
#define KG_SANDBOX_OCI_H

#include <stdio.h>

#include "gateway/sandbox/launcher.h"
#include "gateway/sandbox/ns.h"

/* RUNTIME/oci/ID: the bundle, what the runtime says, its own records. */
#define OCI_DIR "oci"
#define OCI_STATE "state"
#define OCI_LOG "log"
#define OCI_PID "pid"
#define OCI_PATH_MAX 512

#define OCI_PLACE_MAX 32
#define OCI_TRIED "/run/sandal-tried"

/* A runtime, by its command line. */
typedef struct kg_oci {
    const char *kind;             /* the isolation's name */
    const char *program;          /* its name, and that of its package */
    const char *const *flags;     /* before the command; NULL at the end, as the next */
    const char *const *run_words; /* of `run` */
    int fd;                       /* the one that is passed to the container's process */
} kg_oci_t;

/* --- oci_config.c: pure but for a look at which views there are --- */

typedef struct kg_oci_spec {
    const char *id; /* letters, digits, dashes: written as it is, as all words of the bundle are */
    uid_t base;
    const kg_limits_t *limits;
    const char *root;    /* where the sandbox's root is mounted, */
    const char *run;     /* and what becomes its /run (kg_ns_show) */
    const char *cgroup;  /* where the runtime makes groups of its own */
    pid_t cgroup_holder; /* whose cgroup namespace it is to have; 0 = a new one */
    const char *tmp;     /* what becomes its /tmp; NULL = one of its own */
    bool guest;          /* in a kernel of its own (init/args.h: INNER), which has its own covers */
    unsigned orphan_s;
} kg_oci_spec_t;

/* Writes config.json. The caller looks at the stream for errors. */
void kg_oci_config(FILE *out, const kg_oci_spec_t *spec);

/* --- oci_bundle.c: in workers --- */

/* Where a runtime gets at the sandbox's root. It goes there with the rights of the sandbox's range,
 * for which the keeper's own directories are closed: so a tmpfs that all may enter is laid over a
 * directory of the host, in the worker's mount namespace alone, with the root that is mounted at
 * NS_ROOT as `root` in it. */
int kg_oci_place(char ret_place[OCI_PLACE_MAX]);
/* Makes RUNTIME/oci/ID with config.json in it. */
int kg_oci_bundle(const kg_host_t *host, const kg_oci_t *oci, const kg_oci_spec_t *spec);
/* As launchers' probe: is it there, and what fn says, which makes one and ends it; or has said of
 * this program since the machine's start. */
int kg_oci_probe(const kg_oci_t *oci,
                 const kg_host_t *host,
                 kg_ns_trial_fn *fn,
                 char ret_reason[160]);
void kg_oci_close(const kg_host_t *host);

/* --- oci_run.c: in workers --- */

/* Where the program is; NULL. */
const char *kg_oci_find(const kg_oci_t *oci, char ret[OCI_PATH_MAX]);
/* Runs `PROGRAM --root RUNTIME/oci/ID/state --log … FLAGS… WORDS… ID`; words end with NULL. pass:
 * becomes its descriptor oci->fd, -1 = none. in_groups: in the sandbox's control groups. 0 when it
 * exits so; else -errno with its own last words. */
int kg_oci_run(const kg_host_t *host,
               const kg_oci_t *oci,
               const char *id,
               const char *const *words,
               int pass,
               bool in_groups,
               kg_err_t *err);
/* Runs the bundle of id, detached; the process that the runtime names. */
int kg_oci_start(const kg_host_t *host,
                 const kg_oci_t *oci,
                 const char *id,
                 int pass,
                 bool in_groups,
                 pid_t *ret_pid,
                 kg_err_t *err);
/* Kills it, and waits until it is dead. 0: nothing. */
void kg_oci_end(pid_t pid);
/* Has the runtime forget a container that is dead, and removes its directory. Idempotent. */
int kg_oci_forget(const kg_host_t *host, const kg_oci_t *oci, const char *id);

#endif
