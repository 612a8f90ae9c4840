/* gateway/compat: what is at which path. */
#include "gateway/compat/request.h"

/* The version whose API this is: clients choose by it what to ask for. */
#define SERVER_VERSION "2.14.0"

static void version(kg_jreq_t *r)
{
    kg_jreq_json_take(r, 200, json_pack("{s:s}", "version", SERVER_VERSION), NULL);
}

/* VS Code asks for it without a key: 200 says that a server is there. */
static void tree(kg_jreq_t *r)
{
    kg_jreq_text(r, 200, "text/html; charset=utf-8",
                 kg_slice_cstr("<!doctype html><title>Sandal</title><p>Sandal serves Jupyter "
                               "kernels here; it has no pages for notebooks.</p>\n"));
}

static const kg_jroute_t routes[] = {
    {"GET", "/api", true, false, version},
    {"GET", "/tree", true, false, tree},
};

const kg_jroute_t *kg_jroutes(size_t *ret_count)
{
    *ret_count = KG_ARRAY_LEN(routes);
    return routes;
}
