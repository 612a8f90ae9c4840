/* A keeper for each test of the client. */
#include "tests/unit/sandbox/client_rig.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int setup(void **state)
{
    kg_harness_t *h = calloc(1, sizeof(*h));
    harness_init(h);
    harness_start(h);
    *state = h;
    return 0;
}

int teardown(void **state)
{
    kg_harness_t *h = *state;
    if (h->keeper) {
        harness_stop(h);
    }
    harness_fini(h);
    free(h);
    return 0;
}

bool is_root(void)
{
    return geteuid() == 0;
}

/* A process that starts a daemon (double fork, own session) and tells its pid. */
static const char *const daemon_script = "python=/usr/bin/python3; $python -c '\n"
                                         "import os, sys, time\n"
                                         "if os.fork() == 0:\n"
                                         "    os.setsid()\n"
                                         "    if os.fork() == 0:\n"
                                         "        print(os.getpid(), flush=True)\n"
                                         "        n = os.open(\"/dev/null\", os.O_RDWR)\n"
                                         "        os.dup2(n, 1); os.dup2(n, 2)\n"
                                         "        time.sleep(1000)\n"
                                         "    os._exit(0)\n"
                                         "os.wait()\n"
                                         "'; exec >&-; exec 2>&-; ";

pid_t start_daemon(kg_harness_t *h, kg_sbx_t *sbx, const char *then, kg_proc_t **ret_proc)
{
    char script[1024];
    char text[64];
    (void)snprintf(script, sizeof(script), "%s%s", daemon_script, then);
    *ret_proc = harness_sh(h, sbx, script);
    harness_read(h, kg_proc_take_stdout(*ret_proc), text, sizeof(text));
    pid_t pid = (pid_t)strtol(text, NULL, 10);
    assert_true(pid > 1);
    assert_true(harness_alive(pid));
    return pid;
}

void on_lost(void *user, const kg_err_t *err)
{
    harness_on_done(user, err);
}
