/* How sandal-init is started: `sandal-init ID UID GID KILLER_UID FLAGS ORPHAN_S [ENTRIES]`, cwd =
 * the workspace, and the descriptors below.
 *
 * ID is for people who look at process lists. UID and GID are of user code, KILLER_UID is a third
 * one that ends it where there is no pid namespace (0 when not root); all as sandal-init sees them.
 * When the keeper's connection is gone for ORPHAN_S seconds, everything here ends. ENTRIES is how
 * many of the descriptors from KG_INIT_FD_ENTRIES on are there: then processes can be forked by a
 * zygote.
 *
 * `sandal-init ID minder PID UID GID` is the minder of such a process: see minder.c. */
#ifndef KG_SANDBOX_INIT_ARGS_H
#define KG_SANDBOX_INIT_ARGS_H

#define KG_INIT_FLAG_PIDNS 1U    /* pid 1 of a pid namespace: when it exits, the kernel ends all */
#define KG_INIT_FLAG_HAS_ROOT 2U /* its own uid 0 is the sandbox's root (a user namespace) */
#define KG_INIT_FLAG_FILTER 4U   /* what it starts gets a seccomp filter (filter.h) */
#define KG_INIT_FLAG_OWN_ROOT                                                                      \
    8U                          /* paths are as they are. Without it: file requests reach the cwd, \
                                   as /workspace, and `home` beside it, as /home/user, alone */
#define KG_INIT_FLAG_ZYGOTE 16U /* its processes may be zygotes */
#define KG_INIT_FLAG_GUEST                                                                         \
    32U /* its processes are in another kernel, with a sandal-init of their own at the link */
#define KG_INIT_FLAG_INNER                                                                         \
    64U /* it is that one: the link is its only peer, and its end the end                          \
         */
#define KG_INIT_FLAGS 127U

#define KG_INIT_FD_LINK 0 /* with GUEST or INNER: a connected SEQPACKET socket to the other */
#define KG_INIT_FD_OOM 1  /* with GUEST: what kg_oom_kills reads, or anything else */

/* A bound SEQPACKET socket; sandal-init calls listen itself, so that SO_PEERCRED of whoever
 * connects names it. Peers are taken by SO_PEERCRED: with PIDNS those from outside it (pid 0), else
 * uid 0 under root, or our own uid. */
#define KG_INIT_FD_LISTEN 3
#define KG_INIT_FD_RUN_DIR 4 /* with OWN_ROOT it may be missing: /run/sandal is it then */

/* Of its control groups, open for writing: who writes "0" to each is in them. */
#define KG_INIT_FD_ENTRIES 5
#define KG_INIT_ENTRIES_MAX 6

/* The name that it is bound to where the sandbox has a network namespace of its own: abstract. */
#define KG_INIT_ABSTRACT "sandal-init"

#endif
