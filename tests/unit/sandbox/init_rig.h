/* A real sandal-init, started as a launcher would, and its socket spoken to frame by frame. */
#ifndef KG_TEST_SANDBOX_INIT_RIG_H
#define KG_TEST_SANDBOX_INIT_RIG_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/sandbox/init_proto.h"

typedef struct kg_init_rig {
    char dir[64];
    char sock_path[96];
    pid_t pid;
    pid_t inner_pid; /* of init, as it sees itself */
    uid_t base;      /* of the range */
    uid_t uid;       /* of user code */
    uint32_t seq;
} kg_init_rig_t;

/* flags as of init/args.h. Directories workspace, home and run; owner uid. With HAS_ROOT it gets a
 * user namespace of a range of its own, with PIDNS one of pids, a
 * /proc, and a tmpfs as home; for root alone. */
void init_rig_start(kg_init_rig_t *rig, uint32_t flags, unsigned orphan_s);
/* Waits for its exit by itself (kill false), or ends it. */
void init_rig_stop(kg_init_rig_t *rig, bool kill_it);
bool init_rig_lives(const kg_init_rig_t *rig);
int init_rig_connect(kg_init_rig_t *rig); /* no hello */
int init_rig_hello(kg_init_rig_t *rig, uint32_t role);
/* Sends a frame with a tail. */
void init_rig_send(kg_init_rig_t *rig,
                   int sock,
                   kg_ip_request_t *request,
                   size_t fixed,
                   const void *tail,
                   size_t tail_len);
/* The next frame; false at the end of the connection. Fails after 20 s. */
bool init_rig_recv(int sock, kg_ip_reply_t *ret_reply);
/* With its tail and descriptors. */
typedef struct kg_rig_frame {
    kg_ip_reply_t reply;
    const char *tail;
    size_t tail_len;
    int fds[4];
    size_t fd_count;
    char raw[KG_IP_REPLY_MAX];
} kg_rig_frame_t;
bool init_rig_recv_frame(int sock, kg_rig_frame_t *ret_frame);
/* Spawns sh -c script; its answer's pid, with stdout and pidfd if wanted. */
int init_rig_sh(kg_init_rig_t *rig,
                int sock,
                uint64_t token,
                uint32_t flags,
                const char *script,
                int *ret_out,
                int *ret_pidfd);
/* A file request; its answer is the next frame. */
void init_rig_path(kg_init_rig_t *rig,
                   int sock,
                   kg_ip_verb_t verb,
                   const char *path,
                   const char *second,
                   uint32_t flags,
                   kg_rig_frame_t *ret_frame);
/* A listener on loopback, and its port. */
int init_rig_listen(uint16_t *ret_port);

#endif
