/* The log of a command (exec): text events as a run's, `started` with a pid, and a `result` that
 * says how the process ended. Its meta record has `command`, which makes readers leave out what
 * only code has (text, output, results). */
#ifndef KG_RUN_COMMAND_H
#define KG_RUN_COMMAND_H

#include "gateway/run/mapper.h"

/* How a command ended. KG_RUN_OK, _ERROR (exit code not 0), _TIMEOUT, _KILLED, _OOM, _OUTPUT_LIMIT,
 * _GATEWAY_RESTART. Either exited or a signal. */
typedef struct kg_command_end {
    kg_run_status_t status;
    bool exited;
    int exit_code;
    int signal;
    bool base64;         /* stdout and stderr are base64 */
    const char *message; /* a remark for people, or NULL */
    uint64_t duration_ms;
    uint64_t cpu_ms, peak_memory; /* KG_USAGE_UNKNOWN = null */
    uint64_t wall_ns;             /* wall clock of the end */
} kg_command_end_t;

/* `started` with the pid as seen inside. -EALREADY after the end. */
int kg_mapper_command_started(kg_mapper_t *mapper, int64_t pid);
/* Appends tails and `result`; once (-EALREADY). Not flushed yet. Text that comes after it is late.
 */
int kg_mapper_command_finish(kg_mapper_t *mapper, const kg_command_end_t *end);

/* "SIGKILL", "SIG34" for what has no name. */
#define KG_SIGNAL_NAME_MAX 16
void kg_signal_name(int signum, char ret[KG_SIGNAL_NAME_MAX]);
/* "SIGTERM" or "TERM" to its number; 0 = no such signal. */
int kg_signal_number(const char *name);

#endif
