/* A core that a group of tests shares. */
#include "tests/unit/context/core_rig.h"

#include "gateway/context/internal.h"

rig_t *the_rig(void **state)
{
    rig_t *rig = *state;
    rig->called = false;
    rig->err = (kg_err_t){0};
    return rig;
}

int group_setup(void **state)
{
    rig_t *rig = calloc(1, sizeof(*rig));
    assert_non_null(rig);
    rig_dirs(rig);
    rig_start(rig);
    *state = rig;
    return 0;
}

int group_teardown(void **state)
{
    rig_t *rig = *state;
    rig_stop(rig);
    rig_remove(rig);
    free(rig);
    return 0;
}

void drop(rig_t *rig, kg_sandbox_t *sandbox)
{
    kg_err_t err = {0};
    rig->called = false;
    assert_int_equal(0, kg_sandbox_delete(sandbox, on_done, rig, &err));
    rig_called(rig, 5000);
    assert_int_equal(0, rig->err.code);
}

kg_context_t *main_context(kg_sandbox_t *sandbox)
{
    kg_context_t *context = kg_context_find(sandbox, kg_sandbox_default_context(sandbox), NULL);
    assert_non_null(context);
    return context;
}
