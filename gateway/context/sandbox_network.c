/* gateway/context: other rules for a sandbox that lives. */
#include <errno.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/context/internal.h"

/* One change under way. */
struct kg_net_change {
    kg_sandbox_t *sandbox;
    kg_wait_t *wait;
    kg_wish_t wish; /* network alone */
    kg_net_change_t *prev, *next;
};

void kg_net_change_free(kg_net_change_t *change)
{
    kg_sandbox_t *sandbox = change->sandbox;
    if (sandbox->sbx) {
        kg_sbx_forget(sandbox->sbx, change);
    }
    kg_core_later_forget(sandbox->core, change);
    DL_DELETE(sandbox->net_changes, change);
    kg_wait_drop(&change->wait);
    json_decref(change->wish.network);
    free(change);
}

static void settle(kg_net_change_t *change, const kg_err_t *err)
{
    kg_sandbox_t *sandbox = change->sandbox;
    kg_err_t why = err ? *err : (kg_err_t){0};
    kg_wait_t *wait = KG_TAKE(change->wait);
    if (!err) {
        json_decref(sandbox->wish.network);
        sandbox->wish.network = KG_TAKE(change->wish.network);
        sandbox->wish.net = change->wish.net;
        sandbox->net_changed_ns = kg_wall_ns();
        sandbox->wish.network_reason[0] = '\0';
        (void)kg_sandbox_save(sandbox, NULL);
        kg_sandbox_touch(sandbox);
    } else if (why.code == KG_ERR_NOT_SUPPORTED) {
        kg_err_pointer(&why, "/network");
    }
    kg_net_change_free(change);
    kg_wait_sandbox(&wait, err ? NULL : sandbox, err ? &why : NULL);
}

void kg_net_change_fail(kg_net_change_t *change, const kg_err_t *err)
{
    settle(change, err);
}

static void changed(void *user, const kg_err_t *err)
{
    settle(user, err);
}

/* It has no processes: the next ones start with these rules. */
static void changed_later(void *user)
{
    settle(user, NULL);
}

bool kg_box_has_interface(const kg_sandbox_t *sandbox)
{
    return strcmp(sandbox->info.isolation_info.network, "egress") == 0;
}

/* Interfaces are made with a sandbox, before its first process. */
static int no_interface(kg_err_t *err)
{
    int rc = kg_err_set(err, KG_ERR_NOT_SUPPORTED,
                        "a sandbox that was made with network none has no interface");
    kg_err_pointer(err, "/network");
    kg_err_hint(err, "make a new one with network egress");
    return rc;
}

int kg_sandbox_set_network(
    kg_sandbox_t *sandbox, const json_t *network, kg_sandbox_fn *done, void *user, kg_err_t *err)
{
    kg_net_change_t *change = calloc(1, sizeof(*change));
    kg_wait_t *wait = change ? kg_wait_new(sandbox->core, KG_WAIT_SANDBOX, user) : NULL;
    if (!wait) {
        free(change);
        return kg_oom(err);
    }
    wait->fn.sandbox = done;
    change->sandbox = sandbox;
    change->wait = wait;
    DL_APPEND(sandbox->net_changes, change);
    int rc = kg_wish_network(sandbox->core, sandbox->launcher, network, &change->wish, err);
    if (rc) {
        kg_net_change_free(change);
        return rc;
    }
    bool stays = sandbox->wish.net.mode == KG_NET_NONE && change->wish.net.mode == KG_NET_NONE;
    if (sandbox->box == KG_BOX_UP && !stays && !kg_box_has_interface(sandbox)) {
        kg_net_change_free(change);
        return no_interface(err);
    }
    rc = sandbox->box == KG_BOX_UP && !stays
             ? kg_sbx_network(sandbox->sbx, &change->wish.net, changed, change)
             : kg_core_later(sandbox->core, changed_later, change);
    if (rc) {
        kg_net_change_free(change);
        return kg_err_set(err, kg_err_from_errno(rc), "the keeper cannot be asked: %s",
                          strerrordesc_np(-rc));
    }
    return 0;
}
