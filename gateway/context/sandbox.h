/* Sandboxes as the API speaks of them. */
#ifndef KG_CONTEXT_SANDBOX_H
#define KG_CONTEXT_SANDBOX_H

#include <string.h>

#include "gateway/context/core.h"

/* What a create asks for. Borrowed for the call. NULL, -1 = not asked for. JSON values may be of
 * any type: what is wrong is refused with its pointer. */
typedef struct kg_sandbox_opts_api {
    const char *template_name;
    const char *name;
    const json_t *metadata;
    const json_t *env;
    int64_t timeout_s;      /* -1 = default, 0 = never */
    const char *on_timeout; /* "pause", "kill"; NULL = pause where it can be, else kill */
    const json_t *limits;   /* memory_mib, cpus, pids, disk_mib, open_files */
    const json_t *network;  /* "none", "egress", or rules */
    const char *isolation;  /* the least that will do */
    int checkpointable;     /* -1, 0, 1 */
} kg_sandbox_opts_api_t;

/* sandbox (borrowed for the call) or NULL and err. */
typedef void kg_sandbox_fn(void *user, kg_sandbox_t *sandbox, const kg_err_t *err);
/* Answers when the default context's kernel is ready (base: when the sandbox is). A create that
 * fails leaves nothing. */
int kg_sandbox_new(kg_core_t *core,
                   const char *owner,
                   const kg_sandbox_opts_api_t *opts,
                   kg_sandbox_fn *done,
                   void *user,
                   kg_err_t *err);
/* By id or name; NULL and sandbox_not_found. */
kg_sandbox_t *
kg_sandbox_find(kg_core_t *core, const char *owner, const char *id_or_name, kg_err_t *err);
kg_core_t *kg_sandbox_core(const kg_sandbox_t *sandbox);
const char *kg_sandbox_id(const kg_sandbox_t *sandbox);
const char *kg_sandbox_owner(const kg_sandbox_t *sandbox);
const char *kg_sandbox_default_context(const kg_sandbox_t *sandbox); /* its id, or NULL: none yet */
const char *kg_sandbox_name(const kg_sandbox_t *sandbox);            /* or NULL */
/* One value of its metadata, or NULL. */
const char *kg_sandbox_metadata(const kg_sandbox_t *sandbox, const char *key);
/* Metadata of a sandbox that was made for a kernel of a Jupyter client: what was asked for, the id
 * of the API key that started it, and its id, where the client chose one. */
#define KG_JUPYTER_META_SPEC "jupyter.kernelspec"
#define KG_JUPYTER_META_KEY "jupyter.key"
#define KG_JUPYTER_META_ID "jupyter.kernel_id"
/* It was made for a kernel that a Jupyter client with this key started. */
static inline bool kg_sandbox_started_by(const kg_sandbox_t *sandbox, const char *key_id)
{
    const char *key = kg_sandbox_metadata(sandbox, KG_JUPYTER_META_KEY);
    return kg_sandbox_metadata(sandbox, KG_JUPYTER_META_SPEC) && key && strcmp(key, key_id) == 0;
}
/* Those of owner (NULL: of all), oldest first, until each returns false. It must not make or delete
 * any. */
typedef bool kg_sandbox_each_fn(void *user, kg_sandbox_t *sandbox);
void kg_sandbox_each(kg_core_t *core, const char *owner, kg_sandbox_each_fn *each, void *user);
/* All fields of api.md 9. New reference or NULL (OOM). */
json_t *kg_sandbox_json(const kg_sandbox_t *sandbox);

typedef struct kg_sandbox_filter {
    const char *state;      /* NULL = any */
    const json_t *metadata; /* object of strings, each must be equal; NULL = any */
    unsigned limit;         /* 0 = 100; at most 1000 */
    const char *after;      /* `next` of the page before */
} kg_sandbox_filter_t;
/* {"items":[…],"next":…}, oldest first. NULL and err. */
json_t *kg_sandbox_list(kg_core_t *core,
                        const char *owner,
                        const kg_sandbox_filter_t *filter,
                        kg_err_t *err);

/* Borrowed; NULL, -1 = leave. metadata replaces the whole object, a JSON null empties it; name ""
 * takes it away. */
typedef struct kg_sandbox_patch {
    const char *name;
    const json_t *metadata;
    int64_t timeout_s;
    const char *on_timeout;
    const json_t *network; /* checked here alone: kg_sandbox_set_network */
} kg_sandbox_patch_t;
int kg_sandbox_update(kg_sandbox_t *sandbox, const kg_sandbox_patch_t *patch, kg_err_t *err);
/* Other rules from now on, for what runs in it too. done's errors: not_supported. */
int kg_sandbox_set_network(
    kg_sandbox_t *sandbox, const json_t *network, kg_sandbox_fn *done, void *user, kg_err_t *err);

/* Freezes all of it; done when it is (at once if it is already). busy while it starts,
 * not_supported where the host cannot. Whoever needs it wakes it. */
int kg_sandbox_pause(kg_sandbox_t *sandbox, kg_sandbox_fn *done, void *user, kg_err_t *err);
int kg_sandbox_resume(kg_sandbox_t *sandbox, kg_sandbox_fn *done, void *user, kg_err_t *err);

/* Ends it: runs are aborted, kernels killed, files and record removed. It isn't found any more from
 * here on. done (may be NULL; err NULL = fine) runs when no process of it is left. */
int kg_sandbox_delete(kg_sandbox_t *sandbox, kg_done_fn *done, void *user, kg_err_t *err);
/* Something counts as activity: puts the idle deadline off. Runs and kernel requests do so by
 * themselves. */
void kg_sandbox_touch(kg_sandbox_t *sandbox);

/* ---- for what works in a sandbox without a kernel: exec, files, exposed ports ---- */

/* Makes it fit for use: brought up if it is down, woken if it is paused; counts as activity.
 * done's err NULL: kg_sandbox_sbx has it now. */
int kg_sandbox_wake(kg_sandbox_t *sandbox, kg_done_fn *done, void *user, kg_err_t *err);
/* The same, but one that is up stays fit while the daemon drains: its files can be read to the end.
 * (What writes is refused before.) */
int kg_sandbox_wake_for_files(kg_sandbox_t *sandbox, kg_done_fn *done, void *user, kg_err_t *err);
/* Borrowed for the loop turn; what was asked of it meanwhile fails when it goes. NULL when it isn't
 * up: wake it first. */
kg_sbx_t *kg_sandbox_sbx(const kg_sandbox_t *sandbox);
/* By id alone, for those who proved their right before and come back in a later turn; NULL when it
 * has gone. */
kg_sandbox_t *kg_sandbox_by_id(kg_core_t *core, const char *id);

#endif
