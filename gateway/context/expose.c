/* gateway/context: the table of exposed ports: an object {"8000": TOKEN or null} with the
 * sandbox. */
#include "gateway/context/expose.h"

#include <sodium.h>
#include <stdio.h>

#include "gateway/context/internal.h"

#define TOKEN_BYTES 16

void kg_core_set_expose(kg_core_t *core, const kg_expose_base_t *base)
{
    core->expose = *base;
}

static void port_text(uint16_t port, char ret[8])
{
    (void)snprintf(ret, 8, "%u", port);
}

bool kg_sandbox_exposed(const kg_sandbox_t *sandbox, uint16_t port, const char **ret_token)
{
    char key[8];
    port_text(port, key);
    json_t *row = json_object_get(sandbox->exposed, key);
    *ret_token = json_string_value(row);
    return row != NULL;
}

static json_t *new_token(void)
{
    unsigned char bytes[TOKEN_BYTES];
    char text[2 * TOKEN_BYTES + 1];
    randombytes_buf(bytes, sizeof(bytes));
    (void)sodium_bin2hex(text, sizeof(text), bytes, sizeof(bytes));
    json_t *token = json_string(text);
    sodium_memzero(text, sizeof(text));
    return token;
}

static void port_suffix(const kg_expose_base_t *base, char ret[16])
{
    unsigned usual = base->https ? 443 : 80;
    ret[0] = '\0';
    if (base->public_port != usual) {
        (void)snprintf(ret, 16, ":%u", base->public_port);
    }
}

static json_t *answer(const kg_sandbox_t *sandbox, uint16_t port, kg_err_t *err)
{
    const kg_expose_base_t *base = &sandbox->core->expose;
    const char *token = NULL;
    char path_url[256];
    char host_url[512];
    char suffix[16];
    bool v6 = strchr(base->host, ':');
    port_suffix(base, suffix);
    (void)kg_sandbox_exposed(sandbox, port, &token);
    (void)snprintf(path_url, sizeof(path_url), "%s://%s%s%s%s/s/%s/%u/",
                   base->https ? "https" : "http", v6 ? "[" : "", base->host, v6 ? "]" : "", suffix,
                   sandbox->id, port);
    if (base->domain[0]) {
        (void)snprintf(host_url, sizeof(host_url), "%s://%u-%s.%s%s/",
                       base->https ? "https" : "http", port, sandbox->id, base->domain, suffix);
    } else {
        (void)snprintf(host_url, sizeof(host_url), "http://%u-%s.localhost:%u/", port, sandbox->id,
                       base->port);
    }
    json_t *out = json_pack("{s:i, s:s, s:s, s:s, s:s?}", "port", (int)port, "url",
                            base->domain[0] ? host_url : path_url, "path_url", path_url, "host_url",
                            host_url, "token", token);
    if (!out) {
        (void)kg_oom(err);
    }
    return out;
}

json_t *
kg_sandbox_expose(kg_sandbox_t *sandbox, uint16_t port, kg_expose_token_t wish, kg_err_t *err)
{
    const kg_expose_base_t *base = &sandbox->core->expose;
    const char *old = NULL;
    char key[8];
    if (base->port == 0) {
        (void)kg_err_set(err, KG_ERR_NOT_SUPPORTED, "Ports cannot be exposed: %s",
                         base->why[0] ? base->why : "the proxy is off.");
        kg_err_hint(err, "The operator sets `proxy_listen`.");
        return NULL;
    }
    if (strcmp(sandbox->launcher, "process") == 0) {
        (void)kg_err_set(err, KG_ERR_NOT_SUPPORTED,
                         "Under isolation process there are no sockets but unix ones: nothing can "
                         "listen on port %u.",
                         port);
        kg_err_hint(err, "Make the sandbox with another isolation.");
        return NULL;
    }
    bool there = kg_sandbox_exposed(sandbox, port, &old);
    bool token = wish == KG_TOKEN_NEEDED || (wish == KG_TOKEN_AS_IT_IS && old);
    if (there && token == (old != NULL)) {
        return answer(sandbox, port, err);
    }
    if (!there && json_object_size(sandbox->exposed) >= KG_EXPOSED_MAX) {
        (void)kg_err_set(err, KG_ERR_QUOTA_EXCEEDED, "A sandbox exposes at most %d ports.",
                         KG_EXPOSED_MAX);
        return NULL;
    }
    if (!sandbox->exposed) {
        sandbox->exposed = json_object();
    }
    port_text(port, key);
    json_t *before = json_incref(json_object_get(sandbox->exposed, key));
    if (json_object_set_new(sandbox->exposed, key, token ? new_token() : json_null()) < 0) {
        json_decref(before);
        (void)kg_oom(err);
        return NULL;
    }
    if (kg_sandbox_save(sandbox, err) < 0) { /* as it was */
        if (before) {
            (void)json_object_set(sandbox->exposed, key, before);
        } else {
            (void)json_object_del(sandbox->exposed, key);
        }
        json_decref(before);
        return NULL;
    }
    json_decref(before);
    return answer(sandbox, port, err);
}

int kg_sandbox_unexpose(kg_sandbox_t *sandbox, uint16_t port, kg_err_t *err)
{
    char key[8];
    port_text(port, key);
    json_t *row = json_incref(json_object_get(sandbox->exposed, key));
    if (!row) {
        return kg_err_set(err, KG_ERR_NOT_FOUND, "Port %u is not exposed.", port);
    }
    (void)json_object_del(sandbox->exposed, key);
    int r = kg_sandbox_save(sandbox, err);
    if (r < 0) {
        (void)json_object_set(sandbox->exposed, key, row);
    }
    json_decref(row);
    return r;
}
