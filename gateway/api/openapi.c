/* gateway/api: OpenAPI 3.1 and the list of errors, made from their tables. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gateway/api/api.h"
#include "gateway/api/op.h"
#include "gateway/api/schemas.h"

/* --- Fields --------------------------------------------------------------------------------- */

static json_t *field_schema(const kg_field_t *f);

static json_t *values_json(const kg_field_t *f)
{
    json_t *list = json_array();
    for (const char *const *v = f->values; list && *v; v++) {
        json_array_append_new(list, json_string(*v));
    }
    return list;
}

static json_t *string_schema(const kg_field_t *f)
{
    json_t *schema = json_pack("{s:s}", "type", "string");
    if (f->values) {
        json_object_set_new(schema, "enum", values_json(f));
        return schema;
    }
    if (f->min) {
        json_object_set_new(schema, "minLength", json_integer(f->min));
    }
    if (f->max) {
        json_object_set_new(schema, "maxLength", json_integer(f->max));
    }
    if (f->format == KG_FORMAT_NAME) {
        json_object_set_new(schema, "pattern", json_string("^[a-z0-9]([a-z0-9-]*[a-z0-9])?$"));
    }
    return schema;
}

static json_t *number_schema(const kg_field_t *f)
{
    json_t *schema =
        json_pack("{s:s, s:I}", "type", f->type == KG_FIELD_INTEGER ? "integer" : "number",
                  "minimum", (json_int_t)f->min);
    if (f->max) {
        json_object_set_new(schema, "maximum", json_integer(f->max));
    }
    return schema;
}

static json_t *object_schema(const kg_field_t *fields, bool body_only)
{
    json_t *properties = json_object();
    json_t *required = json_array();
    for (const kg_field_t *f = fields; f && f->name; f++) {
        if (body_only && f->in != KG_IN_BODY) {
            continue;
        }
        json_object_set_new(properties, f->name, field_schema(f));
        if (f->required) {
            json_array_append_new(required, json_string(f->name));
        }
    }
    json_t *schema = json_pack("{s:s, s:o, s:b}", "type", "object", "properties", properties,
                               "additionalProperties", 0);
    if (schema && json_array_size(required)) {
        json_object_set(schema, "required", required);
    }
    json_decref(required);
    return schema;
}

static json_t *bare_schema(const kg_field_t *f)
{
    switch (f->type) {
    case KG_FIELD_STRING:
        return string_schema(f);
    case KG_FIELD_INTEGER:
    case KG_FIELD_NUMBER:
        return number_schema(f);
    case KG_FIELD_BOOLEAN:
        return json_pack("{s:s}", "type", "boolean");
    case KG_FIELD_STRINGS:
        return json_pack("{s:s, s:{s:s}}", "type", "array", "items", "type", "string");
    case KG_FIELD_STRING_MAP:
        return json_pack("{s:s, s:{s:s}}", "type", "object", "additionalProperties", "type",
                         "string");
    case KG_FIELD_OBJECT:
        return object_schema(f->fields, false);
    case KG_FIELD_LINES:
        return json_pack("{s:[{s:s}, {s:s, s:{s:s}}]}", "anyOf", "type", "string", "type", "array",
                         "items", "type", "string");
    case KG_FIELD_NAME_OR_OBJECT:
        return json_pack("{s:[o, {s:s}]}", "anyOf", string_schema(f), "type", "object");
    case KG_FIELD_TEXT_OR_OBJECT:
        return json_pack("{s:s}", "type", "object");
    }
    return NULL;
}

static json_t *field_schema(const kg_field_t *f)
{
    json_t *schema = bare_schema(f);
    if (schema && f->doc) {
        json_object_set_new(schema, "description", json_string(f->doc));
    }
    if (schema && f->standard) {
        json_object_set_new(schema, "default", json_loads(f->standard, JSON_DECODE_ANY, NULL));
    }
    return schema;
}

/* --- Operations ----------------------------------------------------------------------------- */

/* upload_length is the header upload-length. */
static json_t *parameter_name(const kg_field_t *f)
{
    char name[64];
    (void)snprintf(name, sizeof name, "%s", f->name);
    for (char *p = name; f->in == KG_IN_HEADER && *p; p++) {
        if (*p == '_') {
            *p = '-';
        }
    }
    return json_string(name);
}

static json_t *parameters_json(const kg_op_t *op)
{
    json_t *list = json_array();
    for (const kg_field_t *f = op->fields; list && f && f->name; f++) {
        if (f->in == KG_IN_BODY || f->in == KG_IN_FRAME) {
            continue;
        }
        const char *in = f->in == KG_IN_PATH ? "path" : f->in == KG_IN_HEADER ? "header" : "query";
        json_t *p = json_pack("{s:o, s:s, s:b, s:o}", "name", parameter_name(f), "in", in,
                              "required", f->required, "schema", field_schema(f));
        if (p && f->type == KG_FIELD_STRING_MAP) {
            json_object_set_new(p, "x-form", json_sprintf("%s.NAME=VALUE", f->name));
        }
        json_array_append_new(list, p);
    }
    return list;
}

static bool has_body(const kg_op_t *op, bool *ret_required)
{
    bool any = false;
    *ret_required = false;
    for (const kg_field_t *f = op->fields; f && f->name; f++) {
        any |= f->in == KG_IN_BODY;
        *ret_required |= f->in == KG_IN_BODY && f->required;
    }
    return any;
}

static json_t *content_json(const kg_op_t *op)
{
    if (op->flags & KG_OP_TEXT) {
        return json_pack("{s:{s:{s:s}}}", op->response, "schema", "type", "string");
    }
    if (op->flags & KG_OP_RAW_OUT) {
        return json_pack("{s:{s:{s:s, s:s}}}", "application/octet-stream", "schema", "type",
                         "string", "format", "binary");
    }
    bool events = strcmp(op->response, "Event") == 0 || op->flags & KG_OP_EVENTS;
    json_t *content = json_object();
    if (!events) {
        json_object_set_new(content, "application/json",
                            json_pack("{s:o}", "schema", kg_schema_ref(op->response)));
    }
    if (op->flags & (KG_OP_STREAMS | KG_OP_EVENTS)) {
        const char *event = op->flags & KG_OP_EVENTS ? op->response : "Event";
        json_object_set_new(content, "application/x-ndjson",
                            json_pack("{s:o}", "schema", kg_schema_ref(event)));
        json_object_set_new(content, "text/event-stream",
                            json_pack("{s:o}", "schema", kg_schema_ref(event)));
    }
    return content;
}

static json_t *responses_json(const kg_op_t *op)
{
    json_t *ok = json_pack("{s:s}", "description", op->doc);
    if (!(op->flags & KG_OP_NO_BODY) && op->response[0]) {
        json_object_set_new(ok, "content", content_json(op));
    }
    if (op->flags & KG_OP_CREATES) {
        json_object_set_new(ok, "headers",
                            json_pack("{s:{s:s, s:{s:s}}}", "Location", "description",
                                      "Path of what was made", "schema", "type", "string"));
    }
    const char *status = op->flags & KG_OP_NO_BODY   ? "204"
                         : op->flags & KG_OP_CREATES ? "201"
                                                     : "200";
    return json_pack("{s:o, s:{s:s}}", status, ok, "default", "$ref",
                     "#/components/responses/Error");
}

static json_t *operation_json(const kg_op_t *op)
{
    size_t tag = strcspn(op->name, ".");
    json_t *o = json_pack("{s:s, s:s, s:[o], s:o}", "operationId", op->name, "summary", op->doc,
                          "tags", json_stringn(op->name, tag), "parameters", parameters_json(op));
    bool required;
    if (has_body(op, &required)) {
        json_object_set_new(o, "requestBody",
                            json_pack("{s:b, s:{s:{s:o}}}", "required", required, "content",
                                      "application/json", "schema",
                                      object_schema(op->fields, true)));
    }
    if (op->flags & KG_OP_RAW_IN) {
        const char *type =
            op->flags & KG_OP_TUS ? "application/offset+octet-stream" : "application/octet-stream";
        json_object_set_new(o, "requestBody",
                            json_pack("{s:{s:{s:{s:s, s:s}}}}", "content", type, "schema", "type",
                                      "string", "format", "binary"));
    }
    for (const kg_field_t *f = op->fields; op->flags & KG_OP_TEXT_IN && f->name; f++) {
        if (f->in == KG_IN_FRAME && f->required) {
            json_object_set_new(o, "requestBody",
                                json_pack("{s:b, s:{s:{s:o}}}", "required", 1, "content",
                                          "application/json", "schema", field_schema(f)));
        }
    }
    json_object_set_new(o, "responses", responses_json(op));
    if (op->right == KG_RIGHT_NONE) {
        json_object_set_new(o, "security", json_array());
    }
    if (!(op->flags & KG_OP_HTTP_ONLY)) {
        json_object_set_new(o, "x-websocket-op", json_string(op->name));
    }
    return o;
}

static json_t *paths_json(void)
{
    size_t count;
    const kg_op_t *ops = kg_ops(&count);
    json_t *paths = json_object();
    for (size_t i = 0; paths && i < count; i++) {
        if (ops[i].flags & KG_OP_MISSING) {
            continue;
        }
        json_t *item = json_object_get(paths, ops[i].path);
        if (!item) {
            item = json_object();
            json_object_set_new(paths, ops[i].path, item);
        }
        char method[8] = "";
        for (size_t k = 0; ops[i].method[k] && k < sizeof method - 1; k++) {
            method[k] = (char)(ops[i].method[k] | 0x20);
        }
        json_object_set_new(item, method, operation_json(&ops[i]));
    }
    return paths;
}

json_t *kg_openapi_json(void)
{
    json_t *components =
        json_pack("{s:{s:{s:s, s:s}, s:{s:s, s:s, s:s}}, s:{s:{s:s, s:{s:{s:o}}}}, s:o}",
                  "securitySchemes", "bearer", "type", "http", "scheme", "bearer", "key", "type",
                  "apiKey", "in", "header", "name", "X-API-Key", "responses", "Error",
                  "description", "An error; code is stable", "content", "application/json",
                  "schema", kg_schema_ref("Error"), "schemas", kg_schemas_json());
    return json_pack(
        "{s:s, s:{s:s, s:s, s:s, s:{s:s, s:s}}, s:[{s:s}], s:[{s:[]}, {s:[]}], s:o, s:o}",
        "openapi", "3.1.0", "info", "title", "Sandal", "version", SANDAL_VERSION, "description",
        "Self-hosted code interpreter. Every operation with x-websocket-op is also one of the "
        "WebSocket at /v1/ws "
        "(subprotocol sandal.v1), with the same fields.",
        "license", "name", "Apache-2.0", "identifier", "Apache-2.0", "servers", "url",
        "http://127.0.0.1:8717", "security", "bearer", "key", "paths", paths_json(), "components",
        components);
}

int kg_openapi_yaml(kg_buf_t *out)
{
    json_t *doc = kg_openapi_json();
    int rc = doc ? kg_yaml_dump(doc, out) : -ENOMEM;
    json_decref(doc);
    return rc;
}

/* --- Pages ---------------------------------------------------------------------------------- */

int kg_errors_markdown(kg_buf_t *out)
{
    int rc = kg_buf_append_cstr(
        out, "# Error codes\n\nMade from the table in `gateway/base/err.h`. An error is\n"
             "`{\"error\":{\"code\",\"message\",\"hint\"?,\"pointer\"?}}`; `code` is stable, "
             "`pointer` is the JSON pointer of\n"
             "the field at fault. Over a WebSocket the same object stands in a `failure`. Where no "
             "closer hint is known\nit is the one below.\n\n| code | HTTP status | hint "
             "|\n|---|---|---|\n");
    for (unsigned i = 1; rc == 0 && i < KG_ERR_COUNT; i++) {
        kg_err_t err = {.code = (kg_err_code_t)i};
        rc = kg_buf_printf(out, "| `%s` | %d | %s |\n", kg_err_name(err.code),
                           kg_err_status(err.code), kg_err_hint_of(&err));
    }
    return rc;
}
