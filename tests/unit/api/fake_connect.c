/* Connection files of the fake context: one can be made, and is listed and ended by its id. */
#include <string.h>

#include "fake_private.h"
#include "gateway/context/connect.h"

static bool there;

int kg_context_connect(kg_context_t *context,
                       const kg_connect_opts_t *opts,
                       json_t **ret_answer,
                       kg_err_t *err)
{
    (void)context;
    if (there) {
        return kg_err_set(err, KG_ERR_QUOTA_EXCEEDED, "full");
    }
    there = true;
    *ret_answer =
        json_pack("{s:s, s:s, s:s, s:b}", "id", "con-1", "transport", opts->tcp ? "tcp" : "ipc",
                  "key_id", opts->key_id, "may_restart", opts->may_restart);
    return 0;
}

json_t *kg_connection_list(const kg_context_t *context, const char *key_id)
{
    (void)context;
    (void)key_id;
    return there ? json_pack("{s:[{s:s}], s:n}", "items", "id", "con-1", "next")
                 : json_pack("{s:[], s:n}", "items", "next");
}

int kg_connection_end(kg_context_t *context, const char *id, const char *key_id, kg_err_t *err)
{
    (void)context;
    (void)key_id;
    if (!there || strcmp(id, "con-1") != 0) {
        return kg_err_set(err, KG_ERR_NOT_FOUND, "none");
    }
    there = false;
    return 0;
}

void kg_connections_end_of_key(kg_core_t *core, const char *key_id)
{
    (void)core;
    (void)key_id;
}
