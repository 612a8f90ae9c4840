/* Commands (exec): processes of a client's own in a sandbox. What a command prints lies in the log
 * of a run, so that it is followed, replayed and read as a run is; what is asked of the process
 * itself goes by the command. */
#ifndef KG_CONTEXT_COMMAND_H
#define KG_CONTEXT_COMMAND_H

#include "gateway/context/core.h"
#include "gateway/context/run.h"

typedef struct kg_command kg_command_t;

#define KG_COMMAND_INPUT_MAX (1U << 20) /* bytes of input that a process has not read yet */
#define KG_COMMAND_ARGS_MAX 1024        /* strings of an argv */
#define KG_COMMAND_BYTES_MAX 65536U     /* of all of them with their ends, or of a line */
#define KG_COMMAND_CWD_MAX 4096         /* bytes of cwd, with NUL */

/* Borrowed for the call. Zero-initialise, then set timeout_ms and retain_s to -1. */
typedef struct kg_command_opts {
    const json_t *cmd;  /* a string for `sh -c`, or an array of strings: argv */
    const char *cwd;    /* as of contexts; NULL = the workspace */
    const json_t *env;  /* an object of strings, over the sandbox's */
    bool root;          /* as root of the sandbox; where there is none: isolation_unavailable */
    int64_t timeout_ms; /* -1 = default (of a background process: none), 0 = none */
    kg_slice_t input;   /* for stdin; data NULL = none */
    bool input_open;    /* stdin stays open for kg_command_input */
    bool stream;        /* only chooses defaults */
    bool background;
    bool keep_alive; /* a background process counts as activity */
    bool pty;
    unsigned columns, rows; /* of the pty; 0 = 80, 24 */
    bool base64;            /* stdout and stderr as base64, else text with U+FFFD for bad bytes */
    kg_on_disconnect_t on_disconnect; /* default: detach for streams and background, else kill */
    uint64_t output_bytes, events;    /* 0 = default; over the operator's cap: 400 */
    kg_on_exceed_asked_t on_exceed;
    const char *key; /* idempotency, in the sandbox */
    int64_t retain_s;
} kg_command_opts_t;

/* run (borrowed for the call; its process has been started, or could not be executed and has ended
 * with exit code 126 or 127 as in a shell) or NULL and err. */
typedef void kg_command_fn(void *user, kg_run_t *run, const kg_err_t *err);
/* Wakes the sandbox, starts the process, then answers. done's errors: those of kg_sandbox_wake;
 * not_found and forbidden with the pointer /cwd; isolation_unavailable (no root); too_large;
 * quota_exceeded; conflict (files that each process needs are gone). */
int kg_command_new(kg_sandbox_t *sandbox,
                   const kg_command_opts_t *opts,
                   kg_command_fn *done,
                   void *user,
                   kg_err_t *err);

/* By the pid as seen inside, the latest that has or had it; NULL and process_not_found. Those in
 * the foreground are found while they run, others until they are deleted or their log expires. */
kg_command_t *kg_command_find(kg_sandbox_t *sandbox, int64_t pid, kg_err_t *err);
/* The command of a run; NULL for a run of code, and when it is no longer found. */
kg_command_t *kg_command_of(kg_run_t *run);
kg_run_t *kg_command_run(const kg_command_t *command); /* borrowed */
int64_t kg_command_pid(const kg_command_t *command);
/* {pid, cmd, cwd, user, state, status, background, pty, run, started_at, ended_at, exit_code,
 * signal}. New reference or NULL (OOM). */
json_t *kg_command_json(const kg_command_t *command);
json_t *kg_command_list(kg_sandbox_t *sandbox); /* {"items":[…],"next":null}, oldest first */

/* Bytes for its stdin, then its end when eof. Taken into a buffer: queue_full when that is full;
 * conflict when it takes no input (any more). */
int kg_command_input(kg_command_t *command, kg_slice_t bytes, bool eof, kg_err_t *err);
/* By name, to its process group. */
int kg_command_signal(kg_command_t *command, const char *name, kg_err_t *err);
/* conflict when it has no terminal. */
int kg_command_resize(kg_command_t *command, unsigned columns, unsigned rows, kg_err_t *err);
/* SIGKILL for it and all that came of it. It isn't found any more from here on; done runs when it
 * has ended. */
int kg_command_delete(kg_command_t *command, kg_done_fn *done, void *user, kg_err_t *err);

#endif
