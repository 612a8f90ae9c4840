/* Limits of a run: what a kernel may produce before output is cut. Public plain data. */
#ifndef KG_RUN_LIMITS_H
#define KG_RUN_LIMITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KG_RUN_OUTPUT_BYTES (UINT64_C(16) << 20) /* default, stdout and stderr each */
#define KG_RUN_RESULT_BYTES (UINT64_C(32) << 20) /* default, all results of a run together */
#define KG_RUN_EVENTS UINT64_C(1000000)          /* default */
/* Ceilings that no operator can raise: a record's length and its seq are 32 bits wide. */
#define KG_RUN_BYTES_CEILING (UINT64_C(1) << 30)
#define KG_RUN_EVENTS_CEILING UINT64_C(100000000)

#define KG_RUN_TEXT_MAX 65536U    /* decoded bytes of one text event */
#define KG_RUN_TAIL_MAX 65536U    /* decoded bytes of the tail that follows a cut stream */
#define KG_RUN_FORMATS_MAX 64U    /* formats of one result; more are cut */
#define KG_RUN_MIME_MAX 256U      /* bytes of a format's name as received; longer ones are cut */
#define KG_RUN_PAYLOADS_MAX 64U   /* results of one reply; more are cut */
#define KG_RUN_ID_MAX 1024U       /* bytes of a display id as received; a longer one is none */
#define KG_RUN_PROMPT_MAX 65536U  /* decoded bytes of a prompt of input() */
#define KG_RUN_DISPLAYS_MAX 4096U /* display ids a context remembers; the oldest go first */
#define KG_RUN_ERROR_MAX 8388608U /* name, message and traceback of an error, each */
#define KG_RUN_APPLY_BYTES                                                                         \
    4194304U                        /* what one kg_mapper_apply writes before it asks for another  \
                                     */
#define KG_RUN_TAKE_BYTES 16777216U /* the same, of what a worker has written already */

#define KG_RUN_WAIT_BYTES 16384U         /* less than this of new output may wait for more, */
#define KG_RUN_WAIT_NS UINT64_C(5000000) /* this long */
/* And so long, where it says no more than that the run has started: longer than a short cell takes,
 * which is over by then. */
#define KG_RUN_START_WAIT_NS UINT64_C(25000000)

/* Bytes of a log that is given up in memory while nobody reads it, and read again as a whole when
 * somebody does: some 0.2 ms. */
#define KG_RUN_REST_MAX 262144U

#define KG_RUN_BUDGET_SANDBOX (UINT64_C(64) << 20) /* default, finished logs of one sandbox */
#define KG_RUN_BUDGET_DAEMON (UINT64_C(1) << 30)   /* default, all finished logs */
#define KG_RUN_BUDGET_FLOOR                                                                        \
    (UINT64_C(16) << 10) /* what the smallest log is charged: it has memory and an inode too */
#define KG_RUN_SLIM_S UINT64_C(3600) /* how long an expired run's Execution stays */
#define KG_RUN_SLIM_MAX 16384U       /* and how many of them */
#define KG_RUN_SLIM_JSON 16384U      /* bytes of one; in a longer one the error is shortened */
#define KG_RUN_SLIM_BYTES (UINT64_C(32) << 20) /* of all of them */

typedef enum kg_on_exceed {
    KG_EXCEED_TRUNCATE,
    KG_EXCEED_STOP
} kg_on_exceed_t;

typedef struct kg_run_limits {
    uint64_t output_bytes; /* UTF-8 bytes of the text as decoded; each stream has this much */
    uint64_t result_bytes; /* bytes of the values in all results' formats and metadata: strings
                              decoded, JSON compact */
    uint64_t events;
    kg_on_exceed_t on_exceed;
    bool no_tail; /* base64: its end alone can't be read */
} kg_run_limits_t;

void kg_run_limits_default(kg_run_limits_t *ret_limits);

#endif
