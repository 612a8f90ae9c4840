/* A sandbox for tests: box_real.c has a keeper and a sandal-init, box_double.c does the same verbs
 * in this process, so that faults of kernels can be tested without either. */
#ifndef SANDAL_TESTS_BOX_H
#define SANDAL_TESTS_BOX_H

#include "gateway/sandbox/client.h"

typedef struct box box_t;

/* Runs the loop until the sandbox is there. NULL and a line on stderr when it cannot be made. */
box_t *box_open(kg_loop_t *loop);
kg_sbx_t *box_sbx(const box_t *box);
/* Names in the run directory, now. */
unsigned box_run_files(const box_t *box);
/* Ends the sandbox under its owner's feet, as a crash of sandal-init would. */
void box_lose(box_t *box);
void box_close(box_t **box);

#endif
