/* gateway/context: promises to call back. A promise is kept once, or forgotten with the client that
 * it was made to. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>

#include "gateway/context/files.h"
#include "gateway/context/internal.h"

kg_wait_t *kg_wait_new(kg_core_t *core, kg_wait_kind_t kind, void *user)
{
    kg_wait_t *wait = calloc(1, sizeof(*wait));
    if (wait) {
        wait->core = core;
        wait->kind = kind;
        wait->user = user;
        DL_APPEND(core->waits, wait);
    }
    return wait;
}

/* Off every list before the call: the callee may ask for anything. */
static bool take(kg_wait_t **wait, kg_wait_t *ret)
{
    if (!*wait) {
        return false;
    }
    kg_wait_t *w = KG_TAKE(*wait);
    DL_DELETE(w->core->waits, w);
    *ret = *w;
    kg_run_unref_(&w->run);
    free(w);
    return !ret->forgotten;
}

void kg_wait_sandbox(kg_wait_t **wait, kg_sandbox_t *sandbox, const kg_err_t *err)
{
    kg_wait_t w;
    if (take(wait, &w) && w.fn.sandbox) {
        w.fn.sandbox(w.user, sandbox, err);
    }
}

void kg_wait_context(kg_wait_t **wait, kg_context_t *context, const kg_err_t *err)
{
    kg_wait_t w;
    if (take(wait, &w) && w.fn.context) {
        w.fn.context(w.user, context, err);
    }
}

void kg_wait_reply(kg_wait_t **wait, kg_slice_t json, const kg_err_t *err)
{
    kg_wait_t w;
    if (take(wait, &w) && w.fn.reply) {
        w.fn.reply(w.user, json, err);
    }
}

void kg_wait_json(kg_wait_t **wait, json_t *json_take, const kg_err_t *err)
{
    kg_wait_t w;
    if (take(wait, &w) && w.fn.json) {
        w.fn.json(w.user, json_take, err);
    } else {
        json_decref(json_take);
    }
}

void kg_wait_command(kg_wait_t **wait, kg_run_t *run, const kg_err_t *err)
{
    kg_wait_t w;
    if (take(wait, &w) && w.fn.command) {
        w.fn.command(w.user, run, err);
    }
}

void kg_wait_done(kg_wait_t **wait, const kg_err_t *err)
{
    kg_wait_t w;
    if (take(wait, &w) && w.fn.done) {
        w.fn.done(w.user, err);
    }
}

void kg_wait_drop(kg_wait_t **wait)
{
    kg_wait_t w;
    (void)take(wait, &w);
}

void kg_core_forget(kg_core_t *core, const void *user)
{
    kg_wait_t *wait = NULL;
    DL_FOREACH (core->waits, wait) {
        wait->forgotten = wait->forgotten || wait->user == user;
    }
    kg_files_forget(core, user);
}

int kg_core_later(kg_core_t *core, kg_fn *fn, void *user)
{
    kg_later_item_t *item = calloc(1, sizeof(*item));
    if (!item) {
        return -ENOMEM;
    }
    item->fn = fn;
    item->user = user;
    LL_APPEND(core->later, item);
    kg_timer_start(core->later_timer, 0, 0);
    return 0;
}

void kg_core_later_forget(kg_core_t *core, const void *user)
{
    kg_later_item_t *item = NULL;
    LL_FOREACH (core->later, item) {
        if (item->user == user) {
            item->fn = NULL;
        }
    }
}

static void done_later(void *user)
{
    kg_wait_t *wait = user;
    kg_wait_done(&wait, NULL);
}

void kg_wait_done_later(kg_wait_t *wait)
{
    if (kg_core_later(wait->core, done_later, wait)) {
        done_later(wait);
    }
}

int kg_oom(kg_err_t *err)
{
    return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
}

int kg_bad(kg_err_t *err, const char *pointer, const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    int rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "%s", text);
    kg_err_pointer(err, "%s", pointer);
    return rc;
}

json_t *kg_json_time(uint64_t wall_ns)
{
    char text[KG_TIME_LEN];
    if (!wall_ns) {
        return json_null();
    }
    kg_time_format(wall_ns, text);
    return json_string(text);
}
