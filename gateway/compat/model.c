/* gateway/compat: kernels as Jupyter's clients see them. */
#include "gateway/compat/model.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "gateway/base/str.h"
#include "gateway/context/attach.h"

void kg_jupyter_time(uint64_t wall_ns, char ret[KG_JUPYTER_TIME_MAX])
{
    time_t seconds = (time_t)(wall_ns / KG_NS_PER_S);
    struct tm tm;
    char date[24] = "1970-01-01T00:00:00";
    if (gmtime_r(&seconds, &tm)) {
        (void)strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    }
    snprintf(ret, KG_JUPYTER_TIME_MAX, "%s.%06uZ", date,
             (unsigned)(wall_ns % KG_NS_PER_S / (KG_NS_PER_S / 1000000)));
}

json_t *kg_jupyter_kernel_json(const kg_jupyter_t *jupyter, const kg_kernel_ref_t *kernel)
{
    (void)jupyter;
    kg_context_look_t look;
    char active[KG_JUPYTER_TIME_MAX];
    kg_context_look(kernel->context, &look);
    kg_jupyter_time(look.active_ns, active);
    return json_pack("{s:s, s:s, s:s, s:s, s:i}", "id", kernel->id, "name", look.template_name,
                     "last_activity", active, "execution_state", look.state, "connections",
                     (int)kg_context_attached(kernel->context));
}

void kg_jupyter_label(const kg_context_t *context, char ret[KG_JUPYTER_LABEL_MAX])
{
    kg_context_look_t look;
    const kg_sandbox_t *sandbox = kg_context_sandbox(context);
    const char *box = kg_sandbox_name(sandbox);
    kg_context_look(context, &look);
    (void)kg_format(ret, KG_JUPYTER_LABEL_MAX, "%s%s%s (%s)", box ? box : "", box ? "/" : "",
                    look.name ? look.name : look.language, kg_sandbox_id(sandbox));
}

typedef struct walk {
    const kg_principal_t *who;
    kg_kernel_each_fn *each;
    void *user;
    bool over;
} walk_t;

static bool walk_context(void *user, kg_context_t *context)
{
    walk_t *w = user;
    kg_kernel_ref_t kernel;
    kg_kernel_of(context, w->who, &kernel);
    w->over = !w->each(w->user, &kernel);
    return !w->over;
}

static bool walk_sandbox(void *user, kg_sandbox_t *sandbox)
{
    walk_t *w = user;
    if (kg_auth_allow(w->who, KG_RIGHT_SANDBOX, kg_sandbox_id(sandbox), NULL) == 0) {
        kg_context_each(sandbox, walk_context, w);
    }
    return !w->over;
}

void kg_kernel_each(kg_core_t *core, const kg_principal_t *who, kg_kernel_each_fn *each, void *user)
{
    walk_t w = {.who = who, .each = each, .user = user};
    kg_sandbox_each(core, who->key.owner, walk_sandbox, &w);
}
