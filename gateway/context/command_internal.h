/* Inner header of the files command*.c. */
#ifndef KG_CONTEXT_COMMAND_INTERNAL_H
#define KG_CONTEXT_COMMAND_INTERNAL_H

#include "gateway/context/command.h"
#include "gateway/context/internal.h"
#include "gateway/run/command.h"

typedef enum kg_command_state {
    KG_COMMAND_WAKING,   /* its sandbox */
    KG_COMMAND_STARTING, /* the process is being made */
    KG_COMMAND_RUNNING,
    KG_COMMAND_ENDED
} kg_command_state_t;

/* One of its two streams. */
typedef struct kg_command_pipe {
    kg_command_t *command;
    bool is_stderr;
    int fd;
    kg_fdwatch_t *watch;
    kg_utf8_stream_t text;
    unsigned char held[3]; /* base64: what is no whole group yet */
    unsigned held_len;
} kg_command_pipe_t;

struct kg_command {
    kg_sandbox_t *sandbox;
    kg_run_t *run;        /* a reference */
    kg_wait_t *wait;      /* until it has been started */
    kg_wait_t *gone_wait; /* of its delete */

    /* what was asked for */
    json_t *cmd;
    char **argv; /* NULL-terminated */
    json_t *env;
    char *cwd;
    uint64_t timeout_ns;
    kg_mapper_opts_t limits;
    uint32_t retain_s;
    uint16_t columns, rows;

    /* how it goes */
    kg_proc_t *proc;
    int64_t pid;
    uint64_t token;
    uint64_t started_ns, started_wall_ns, ended_wall_ns;
    uint64_t oom_before;
    kg_timer_t *deadline;
    kg_exit_t exit; /* once it has ended */
    kg_command_pipe_t out[2];
    kg_fdwatch_t *in_watch;
    kg_buf_t in;
    kg_command_t *prev, *next; /* of the sandbox */
    int in_fd;                 /* of a pty: stdout's */
    kg_command_state_t state;
    kg_cause_t cause;
    kg_run_status_t status;
    bool root, background, keep_alive, pty, base64, input_open;
    bool in_end;  /* stdin is closed when all of it is written */
    bool killed;  /* by us: the deadline is now that of its exit */
    bool removed; /* deleted: not found any more */
};

/* ---- command_io.c ---- */

/* Takes the descriptors of its process. -errno. */
int kg_command_io_open(kg_command_t *command);
/* All that is in the pipes now, at its end. */
void kg_command_io_drain(kg_command_t *command);
/* Halves of characters and groups that wait for the rest. */
void kg_command_io_flush(kg_command_t *command);
void kg_command_io_close(kg_command_t *command);
bool kg_command_io_open_still(const kg_command_t *command);
void kg_command_text(kg_command_t *command, bool is_stderr, kg_slice_t bytes);

/* ---- command.c ---- */

/* Of a run, with a reference to it; listed in the sandbox. NULL: OOM. */
kg_command_t *kg_command_alloc(kg_sandbox_t *sandbox, kg_run_t *run);

/* ---- command_recover.c: what a later gateway is to know of those in the background ---- */

void kg_command_remember(const kg_command_t *command);
/* It isn't listed any more. */
void kg_command_forget(const kg_command_t *command);

/* ---- command_end.c ---- */

/* Nobody reads it any more, and nothing comes: frees what isn't listed. */
void kg_command_settle(kg_command_t *command);
void kg_command_free(kg_command_t *command);
void kg_command_exited(void *user, const kg_exit_t *exit); /* kg_exit_fn */
void kg_command_finish(kg_command_t *command, const kg_exit_t *exit, const char *message);
int kg_command_deadline_create(kg_command_t *command);
/* Before it has been started: who asked is told, and it goes. */
void kg_command_fail(kg_command_t *command, const kg_err_t *err);

#endif
