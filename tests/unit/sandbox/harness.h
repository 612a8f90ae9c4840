/* A real keeper in a directory of its own, and calls that wait for the client's callbacks. */
#ifndef KG_TEST_SANDBOX_HARNESS_H
#define KG_TEST_SANDBOX_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/sandbox/client.h"

/* By pid: keepers of other tests must not have the same uids. */
#define HARNESS_UID_BASE (0x80000000U + (unsigned)getpid() % 768U * HARNESS_UID_COUNT)
#define HARNESS_UID_COUNT (32U * KG_UID_RANGE)

typedef struct kg_harness {
    char dir[64];
    char state[96];
    char runtime[96];
    char keeper_exe[128];
    char init_exe[128];
    kg_loop_t *loop;
    kg_keeper_t *keeper;
    pid_t keeper_pid;
    unsigned orphan_s; /* of the keeper's options */
    unsigned create_timeout_s;
    kg_timer_t *guard;
    unsigned uid_base; /* 0 = HARNESS_UID_BASE */
    bool timed_out;
    bool ready;
    bool keeper_lost;
} kg_harness_t;

/* One answer, whatever the callback. */
typedef struct kg_answer {
    kg_harness_t *h;
    bool come;
    kg_sbx_t *sbx;
    kg_proc_t *proc;
    kg_exit_t exit;
    kg_usage_t usage;
    int fd;
    bool failed;
    kg_err_t err;
} kg_answer_t;

void harness_copy(const char *from, const char *to);
/* Copies of the programs, so that a user without rights in the build directory can run them. */
void harness_init(kg_harness_t *h);
void harness_start(kg_harness_t *h); /* keeper, client; waits for READY */
void harness_stop(kg_harness_t *h);  /* closes the client, waits for the keeper */
void harness_fini(kg_harness_t *h);
void harness_wait(kg_harness_t *h, const bool *flag); /* fails after 20 s */
void harness_spin(kg_harness_t *h, unsigned ms);

kg_answer_t harness_create_opts(kg_harness_t *h, const kg_sandbox_opts_t *opts);
kg_answer_t harness_create(kg_harness_t *h, const char *id, const char *launcher, bool reuse);
kg_sbx_t *harness_sandbox(kg_harness_t *h, const char *id);
void harness_destroy(kg_harness_t *h, kg_sbx_t **sbx, bool keep_files);
kg_answer_t harness_spawn_opts(kg_harness_t *h, kg_sbx_t *sbx, const kg_spawn_opts_t *opts);
kg_answer_t harness_attach_proc(kg_harness_t *h, kg_sbx_t *sbx, uint64_t token);
/* sh -c script */
kg_proc_t *harness_sh(kg_harness_t *h, kg_sbx_t *sbx, const char *script);
kg_exit_t harness_exit(kg_harness_t *h, kg_proc_t *proc);
int harness_socket(kg_harness_t *h, kg_sbx_t *sbx, const char *name);
kg_answer_t harness_write(kg_harness_t *h, kg_sbx_t *sbx, const char *name, kg_slice_t bytes);
/* Reads all of a pipe until its end (blocking on the loop's side is fine in a test). */
void harness_read(kg_harness_t *h, int fd, char *ret_text, size_t cap);
/* True when the process is there and not a zombie. */
bool harness_alive(pid_t pid);
void harness_wait_gone(kg_harness_t *h, pid_t pid);
size_t harness_count_uid(uid_t uid);
size_t harness_open_fds(pid_t pid);
uint64_t harness_rss_kib(pid_t pid);
/* Runs the group as root and then, in a child, as an ordinary user; or only as who we are. */
int harness_run_both(int (*run)(void));

void harness_on_done(void *user, const kg_err_t *err);

#endif
