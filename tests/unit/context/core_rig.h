/* A core that a group of tests shares. */
#ifndef KG_TESTS_CONTEXT_CORE_RIG_H
#define KG_TESTS_CONTEXT_CORE_RIG_H

#include "tests/unit/context/rig.h"

int group_setup(void **state);
int group_teardown(void **state);
rig_t *the_rig(void **state); /* nothing was called yet */
/* Deletes it and waits for its end. */
void drop(rig_t *rig, kg_sandbox_t *sandbox);
kg_context_t *main_context(kg_sandbox_t *sandbox);

#endif
