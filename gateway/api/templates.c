/* gateway/api: templates. */
#include "gateway/context/template.h"

#include <errno.h>

#include "gateway/api/call.h"
#include "gateway/api/handlers.h"

void kg_do_templates_list(kg_call_t *call)
{
    kg_call_json_take(call, 200, kg_template_list(call->core));
}

void kg_do_templates_get(kg_call_t *call)
{
    kg_err_t err = {0};
    const kg_template_t *tpl = kg_template_find(call->core, kg_call_string(call, "template"), &err);
    if (tpl) {
        kg_call_json_take(call, 200, kg_template_json(call->core, tpl));
    } else {
        kg_call_fail_rc(call, -ENOENT, &err);
    }
}
