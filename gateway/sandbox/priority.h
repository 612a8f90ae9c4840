/* What an operator may have given the daemon over other processes (chrt, ionice, a unit's
 * OOMScoreAdjust=) is not for what serves strangers: a loop under a real-time policy knows no limit
 * of a control group and takes the machine. */
#ifndef KG_SANDBOX_PRIORITY_H
#define KG_SANDBOX_PRIORITY_H

#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gateway/base/mem.h"

#define KG_IOPRIO_WHO_PROCESS 1 /* linux/ioprio.h of newer headers */
#define KG_IOPRIO_USUAL 0       /* IOPRIO_CLASS_NONE: what niceness says */

/* For the calling process, of one thread, and all that it starts: SCHED_OTHER, the input and output
 * priority that follows from niceness, no leave to raise either (RLIMIT_RTPRIO, RLIMIT_NICE), and a
 * place before others when the host runs out of memory that is no better than the usual one.
 * Niceness itself stays as it is. What the system refuses is left: each step only gives up. See
 * sched(7), ioprio_set(2), proc_pid_oom_score_adj(5). */
static inline void kg_priority_usual(void)
{
    const struct sched_param no_priority = {0};
    const struct rlimit none = {0, 0};
    char text[16] = "";
    KG_AUTO_CLOSE int oom = open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC);

    (void)sched_setscheduler(0, SCHED_OTHER, &no_priority);
    (void)syscall(SYS_ioprio_set, KG_IOPRIO_WHO_PROCESS, 0, KG_IOPRIO_USUAL);
    (void)setrlimit(RLIMIT_RTPRIO, &none);
    (void)setrlimit(RLIMIT_NICE, &none);
    if (oom >= 0 && read(oom, text, sizeof(text) - 1) > 0 && text[0] == '-') {
        (void)!write(oom, "0", 1);
    }
}

#endif
