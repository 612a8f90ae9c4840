/* Contexts: one live kernel each, under an id that outlives kernels. */
#ifndef KG_CONTEXT_CONTEXT_H
#define KG_CONTEXT_CONTEXT_H

#include "gateway/context/core.h"

/* Borrowed; NULL = not asked for. language: a language, an alias, or a kernelspec's name; NULL =
 * the template's main one. cwd relative to the workspace, or below /workspace or /home/user. env:
 * an object of strings. */
typedef struct kg_context_opts {
    const char *language;
    const char *name;
    const char *cwd;
    const json_t *env;
} kg_context_opts_t;

/* context (borrowed for the call) or NULL and err. */
typedef void kg_context_fn(void *user, kg_context_t *context, const kg_err_t *err);
/* Answers when its kernel is ready. */
int kg_context_new(kg_sandbox_t *sandbox,
                   const kg_context_opts_t *opts,
                   kg_context_fn *done,
                   void *user,
                   kg_err_t *err);
/* By id or name (unique in the sandbox); NULL and context_not_found. */
kg_context_t *kg_context_find(kg_sandbox_t *sandbox, const char *id_or_name, kg_err_t *err);
/* By id alone, for GET /v1/contexts/{id}. */
kg_context_t *
kg_context_find_any(kg_core_t *core, const char *owner, const char *id, kg_err_t *err);
const char *kg_context_id(const kg_context_t *context);
kg_sandbox_t *kg_context_sandbox(const kg_context_t *context);
/* All fields of api.md 9. New reference or NULL (OOM). */
json_t *kg_context_json(const kg_context_t *context);
json_t *kg_context_list(kg_sandbox_t *sandbox); /* {"items":[…],"next":null} */

/* What is shown of it elsewhere than in /v1. Strings are borrowed. */
typedef struct kg_context_look {
    const char *name; /* NULL = none */
    const char *language;
    const char *template_name; /* whose kernel it is */
    const char *display_name;  /* of its kernelspec, like its metadata */
    const char *metadata;      /* compact JSON object */
    const char *state;         /* starting, idle, busy, restarting, dead */
    uint64_t active_ns;        /* its sandbox's last use, wall clock */
    unsigned incarnation;
    bool message_interrupt; /* its kernel is interrupted by a message */
    bool is_default;
} kg_context_look_t;
void kg_context_look(const kg_context_t *context, kg_context_look_t *ret_look);
/* Those of the sandbox, until each returns false. It must not make or delete any. */
typedef bool kg_context_each_fn(void *user, kg_context_t *context);
void kg_context_each(kg_sandbox_t *sandbox, kg_context_each_fn *each, void *user);

int kg_context_rename(kg_context_t *context,
                      const char *name,
                      kg_err_t *err); /* "" takes the name away */
/* Fresh kernel under the same id: the running run ends aborted (started), the queued ones aborted
 * (not started). Answers when the new kernel is ready. */
int kg_context_reset(kg_context_t *context, kg_context_fn *done, void *user, kg_err_t *err);
/* Interrupts the running run, if there is one (*ret_interrupted says so); queued ones follow. */
int kg_context_interrupt(kg_context_t *context, bool *ret_interrupted, kg_err_t *err);
/* Ends it, runs as by reset. It isn't found any more from here on. done (may be NULL) runs when its
 * kernel is gone. */
int kg_context_delete(kg_context_t *context, kg_done_fn *done, void *user, kg_err_t *err);

/* json: canonical JSON text of the whole answer (kernel content is never made a tree), or {NULL,0}
 * and err. */
typedef void kg_context_reply_fn(void *user, kg_slice_t json, const kg_err_t *err);
/* A busy context answers 409 busy, unless wait_ms > 0: then the request takes its place in the
 * queue, for so long. */
/* {"matches":[…],"start":N,"end":N}; cursor in code points, SIZE_MAX = at the end. */
int kg_context_complete(kg_context_t *context,
                        kg_slice_t code,
                        size_t cursor,
                        unsigned wait_ms,
                        kg_context_reply_fn *done,
                        void *user,
                        kg_err_t *err);
/* {"found":BOOL,"formats":{…}} */
int kg_context_inspect(kg_context_t *context,
                       kg_slice_t code,
                       size_t cursor,
                       unsigned detail,
                       unsigned wait_ms,
                       kg_context_reply_fn *done,
                       void *user,
                       kg_err_t *err);
/* {"items":[{"name","type","shape","length","bytes","preview"}],"next":null}; 501 for kernels whose
 * template has none. */
int kg_context_variables(
    kg_context_t *context, unsigned wait_ms, kg_context_reply_fn *done, void *user, kg_err_t *err);

#endif
