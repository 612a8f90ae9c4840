/* gateway/context: a sandbox that somebody is about to use: brought up where it is down, woken
 * where it is paused. Who asked is told once, when it can be used or never will be. */
#include "gateway/context/internal.h"

void kg_wake_failed(kg_sandbox_t *sandbox, const kg_err_t *why)
{
    kg_err_t err = *why;
    kg_wait_t *waits = KG_TAKE(sandbox->wake_waits);
    while (waits) {
        kg_wait_t *wait = waits;
        waits = wait->list_next;
        kg_wait_done(&wait, &err);
    }
}

static void usable(kg_sandbox_t *sandbox)
{
    kg_wait_t *waits = KG_TAKE(sandbox->wake_waits);
    while (waits) {
        kg_wait_t *wait = waits;
        waits = wait->list_next;
        kg_wait_done(&wait, NULL);
    }
}

void kg_wake_go(kg_sandbox_t *sandbox)
{
    if (!sandbox->wake_waits) {
        return;
    }
    if (kg_box_usable(sandbox)) {
        usable(sandbox);
    } else if (sandbox->pause != KG_PAUSE_NO) {
        kg_pause_wake(sandbox);
    } else {
        kg_box_ensure(sandbox);
    }
}

static void go_later(void *user)
{
    kg_wake_go(user);
}

static int wake(kg_sandbox_t *sandbox, kg_done_fn *done, void *user, kg_err_t *err)
{
    if (sandbox->deleted || sandbox->box == KG_BOX_ENDING) {
        return kg_err_set(err, KG_ERR_SANDBOX_NOT_FOUND, "sandbox %s is ending", sandbox->id);
    }
    kg_wait_t *wait = kg_wait_new(sandbox->core, KG_WAIT_DONE, user);
    if (!wait || kg_core_later(sandbox->core, go_later, sandbox)) {
        kg_wait_drop(&wait);
        return kg_oom(err);
    }
    wait->fn.done = done;
    LL_APPEND2(sandbox->wake_waits, wait, list_next);
    kg_kernels_stay_awake(sandbox);
    kg_sandbox_touch(sandbox);
    return 0;
}

int kg_sandbox_wake(kg_sandbox_t *sandbox, kg_done_fn *done, void *user, kg_err_t *err)
{
    int rc = kg_core_ready(sandbox->core, err);
    return rc ? rc : wake(sandbox, done, user, err);
}

int kg_sandbox_wake_for_files(kg_sandbox_t *sandbox, kg_done_fn *done, void *user, kg_err_t *err)
{
    bool goes_on = sandbox->core->draining && kg_box_usable(sandbox);
    int rc = goes_on ? 0 : kg_core_ready(sandbox->core, err);
    return rc ? rc : wake(sandbox, done, user, err);
}

kg_sbx_t *kg_sandbox_sbx(const kg_sandbox_t *sandbox)
{
    return kg_box_usable(sandbox) && !kg_sbx_is_lost(sandbox->sbx) ? sandbox->sbx : NULL;
}

kg_sandbox_t *kg_sandbox_by_id(kg_core_t *core, const char *id)
{
    kg_sandbox_t *sandbox = NULL;
    HASH_FIND_STR(core->sandboxes, id, sandbox);
    return sandbox && !sandbox->deleted && !sandbox->hidden ? sandbox : NULL;
}
