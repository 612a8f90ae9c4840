/* A keeper for each test of the client. */
#ifndef KG_TEST_SANDBOX_CLIENT_RIG_H
#define KG_TEST_SANDBOX_CLIENT_RIG_H

#include "tests/unit/sandbox/harness.h"

#define ID_A "sbx-tests000000000000001"
#define ID_B "sbx-tests000000000000002"

int setup(void **state);
int teardown(void **state);
bool is_root(void);
/* A process that has left its parent and session behind, and what follows it in the shell; its pid.
 */
pid_t start_daemon(kg_harness_t *h, kg_sbx_t *sbx, const char *then, kg_proc_t **ret_proc);
void on_lost(void *user, const kg_err_t *err); /* kg_sbx_lost_fn; user as of harness_on_done */

#endif
