/* gateway/view: headers that are arguments. */
#include <string.h>

#include "gateway/api/validate.h"
#include "gateway/base/str.h"
#include "gateway/view/view_priv.h"

enum {
    VALUE_MAX = 8192
};

int kg_route_headers(const kg_op_t *op, const kg_http_head_t *head, json_t *args, kg_err_t *err)
{
    int rc = 0;
    for (const kg_field_t *f = op->fields; rc == 0 && f && f->name; f++) {
        char name[64];
        char text[VALUE_MAX];
        if (f->in != KG_IN_HEADER || kg_format(name, sizeof name, "%s", f->name) < 0) {
            continue;
        }
        for (char *p = name; *p; p++) {
            if (*p == '_') {
                *p = '-';
            }
        }
        kg_slice_t value = kg_http_head_get(head, name);
        if (!value.data) {
            continue;
        }
        if (value.len >= sizeof text || memchr(value.data, '\0', value.len)) {
            int bad = kg_err_set(err, KG_ERR_INVALID_REQUEST, "The header %s is too long.", name);
            kg_err_pointer(err, "/%s", f->name);
            return bad;
        }
        memcpy(text, value.data, value.len);
        text[value.len] = '\0';
        rc = kg_op_put_param(op, KG_IN_HEADER, f->name, text, args, err);
    }
    return rc;
}
