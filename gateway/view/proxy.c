/* gateway/view: between the proxy and the sandboxes: what is exposed, who has the token, and
 * connections to ports, for which a sandbox is woken. */
#include "gateway/view/proxy.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/expose.h"
#include "gateway/sandbox/files.h"

#define RETRY_MS 2000

/* A connection that is being brought. */
typedef struct kg_dial {
    struct kg_exposer *exposer;
    struct kg_dial *prev, *next;
    char sandbox[KG_PROXY_NAME_MAX];
    uint16_t port;
    kg_sbx_t *sbx; /* asked; NULL while the sandbox is being woken */
    kg_proxy_connected_fn *done;
    void *user;
} kg_dial_t;

struct kg_exposer {
    kg_core_t *core;
    kg_proxy_t *proxy; /* NULL: it does not run */
    kg_exposer_config_t config;
    char *listen;
    kg_expose_base_t base;
    kg_timer_t *retry; /* for a listener that can't be had yet; NULL: it is not wanted */
    kg_dial_t *dials;
    kg_fn *done;
    void *done_user;
};

static kg_proxy_verdict_t look(void *user, const char *sandbox, uint16_t port, kg_slice_t token)
{
    kg_exposer_t *e = user;
    const char *wanted = NULL;
    const kg_sandbox_t *s = kg_sandbox_by_id(e->core, sandbox);
    if (!s || !kg_sandbox_exposed(s, port, &wanted)) {
        return KG_PROXY_NOT_FOUND;
    }
    if (!wanted) {
        return KG_PROXY_OPEN;
    }
    return token.len == strlen(wanted) && sodium_memcmp(token.data, wanted, token.len) == 0
               ? KG_PROXY_OPEN
               : KG_PROXY_LOCKED;
}

static bool ready(void *user, const char *sandbox, uint16_t port)
{
    kg_exposer_t *e = user;
    const char *token;
    kg_sandbox_t *s = kg_sandbox_by_id(e->core, sandbox);
    if (!s || !kg_sandbox_exposed(s, port, &token) || !kg_sandbox_sbx(s)) {
        return false;
    }
    kg_sandbox_touch(s);
    return true;
}

static void dial_free(kg_dial_t *dial)
{
    if (dial->prev) {
        dial->prev->next = dial->next;
    } else {
        dial->exposer->dials = dial->next;
    }
    if (dial->next) {
        dial->next->prev = dial->prev;
    }
    free(dial);
}

static void dial_end(kg_dial_t *dial, int fd, const kg_err_t *err)
{
    kg_proxy_connected_fn *done = dial->done;
    void *user = dial->user;
    dial_free(dial);
    if (done) {
        done(user, fd, err);
    } else if (fd >= 0) {
        (void)close(fd);
    }
}

static void on_port(void *user, int fd, const kg_err_t *err)
{
    dial_end(user, err ? -1 : fd, err);
}

static void on_awake(void *user, const kg_err_t *err)
{
    kg_dial_t *dial = user;
    kg_err_t gone = {0};
    kg_sandbox_t *s = kg_sandbox_by_id(dial->exposer->core, dial->sandbox);
    kg_sbx_t *sbx = s ? kg_sandbox_sbx(s) : NULL;
    if (err) {
        dial_end(dial, -1, err);
        return;
    }
    if (!sbx || kg_sbx_port_connect(sbx, dial->port, on_port, dial) < 0) {
        (void)kg_err_set(&gone, s ? KG_ERR_INTERNAL : KG_ERR_SANDBOX_NOT_FOUND,
                         "the sandbox cannot be reached");
        dial_end(dial, -1, &gone);
        return;
    }
    dial->sbx = sbx;
}

static int dial(void *user,
                const char *sandbox,
                uint16_t port,
                kg_proxy_connected_fn *done,
                void *done_user,
                kg_err_t *err)
{
    kg_exposer_t *e = user;
    kg_sandbox_t *s = kg_sandbox_by_id(e->core, sandbox);
    if (!s) {
        return kg_err_set(err, KG_ERR_SANDBOX_NOT_FOUND, "the sandbox has ended");
    }
    kg_dial_t *d = calloc(1, sizeof(*d));
    if (!d) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "no memory for a connection");
    }
    *d = (kg_dial_t){.exposer = e, .port = port, .done = done, .user = done_user, .next = e->dials};
    (void)snprintf(d->sandbox, sizeof(d->sandbox), "%s", sandbox);
    if (d->next) {
        d->next->prev = d;
    }
    e->dials = d;
    int r = kg_sandbox_wake(s, on_awake, d, err);
    if (r < 0) {
        dial_free(d);
    }
    return r;
}

static void forget(void *user, void *done_user)
{
    kg_exposer_t *e = user;
    for (kg_dial_t *d = e->dials; d; d = d->next) {
        if (d->user == done_user) {
            kg_sandbox_t *s = kg_sandbox_by_id(e->core, d->sandbox);
            kg_core_forget(e->core, d);
            if (d->sbx && s && kg_sandbox_sbx(s) == d->sbx) {
                kg_sbx_forget(d->sbx, d);
                dial_free(d);
            } else if (!d->sbx) {
                dial_free(d);
            } else {
                d->done = NULL; /* its sandbox is going: the answer comes yet */
            }
            return;
        }
    }
}

static void woken(void *user, const kg_err_t *err)
{
    (void)user;
    (void)err;
}

static void touch(void *user, const char *sandbox)
{
    kg_exposer_t *e = user;
    kg_sandbox_t *s = kg_sandbox_by_id(e->core, sandbox);
    if (!s) {
        return;
    }
    if (kg_sandbox_sbx(s)) {
        kg_sandbox_touch(s);
    } else {
        (void)kg_sandbox_wake(s, woken, e, NULL);
    }
}

/* "https://host:port" into what addresses are made from. */
static int read_url(const char *url, kg_expose_base_t *base)
{
    base->https = kg_str_starts(url, "https://");
    if (!base->https && !kg_str_starts(url, "http://")) {
        return -EINVAL;
    }
    const char *host = strchr(url, ':') + 3;
    size_t len = strcspn(host, "/");
    char text[sizeof(base->host) + 8];
    if (len == 0 || len >= sizeof(text) || (host[len] == '/' && host[len + 1])) {
        return -EINVAL;
    }
    memcpy(text, host, len);
    text[len] = '\0';
    char *colon = strrchr(text, ':');
    uint64_t port = base->https ? 443 : 80;
    if (colon && !strchr(colon, ']')) {
        *colon = '\0';
        if (kg_parse_u64(colon + 1, 1, 65535, &port) < 0) {
            return -EINVAL;
        }
    }
    base->public_port = (unsigned)port;
    len = strlen(text);
    bool bracket = text[0] == '[' && text[len - 1] == ']';
    return kg_format(base->host, sizeof(base->host), "%.*s", (int)(bracket ? len - 2 : len),
                     text + bracket);
}

static void host_of(const char *listen, kg_expose_base_t *base)
{
    const char *colon = strrchr(listen, ':');
    size_t len = colon ? (size_t)(colon - listen) : 0;
    bool bracket = len > 2 && listen[0] == '[';
    (void)kg_format(base->host, sizeof(base->host), "%.*s", (int)(bracket ? len - 2 : len),
                    listen + bracket);
    if (!base->host[0] || strcmp(base->host, "*") == 0 || strcmp(base->host, "0.0.0.0") == 0 ||
        strcmp(base->host, "::") == 0) {
        memcpy(base->host, "127.0.0.1", sizeof("127.0.0.1"));
    }
}

static int start_proxy(kg_exposer_t *e,
                       const kg_exposer_config_t *config,
                       kg_expose_base_t *base,
                       kg_err_t *err)
{
    kg_proxy_handler_t handler = {look, ready, dial, forget, touch, e};
    kg_proxy_opts_t opts = {
        .listen = config->listen,
        .domain = base->domain[0] ? base->domain : NULL,
        .https = base->https,
        .connections_max = config->connections_max,
        .header_timeout_ms = config->header_timeout_ms,
        .idle_timeout_ms = config->idle_timeout_ms,
        .stall_timeout_ms = config->stall_timeout_ms,
    };
    int r = kg_proxy_create(kg_core_loop(e->core), &opts, &handler, &e->proxy, err);
    if (r == 0) {
        base->port = kg_proxy_port(e->proxy);
        base->public_port = base->public_port ? base->public_port : base->port;
    }
    return r;
}

/* Who has the address may leave, as a daemon that stops. */
static void try_to_start(void *user)
{
    kg_exposer_t *e = user;
    kg_err_t why = {0};
    char text[300];
    bool again = e->base.why[0];
    if (start_proxy(e, &e->config, &e->base, &why) == 0) {
        e->base.why[0] = '\0';
        if (again) {
            kg_log(KG_LOG_INFO, "proxy.there", "port=%u", e->base.port);
        }
    } else {
        kg_timer_start(e->retry, RETRY_MS * KG_NS_PER_MS, 0);
        (void)kg_format(e->base.why, sizeof(e->base.why), "%.200s", why.message);
        if (!again) {
            kg_log(KG_LOG_WARN, "proxy.not_there", "reason=%s retry_ms=%d",
                   kg_log_quote(why.message, text, sizeof(text)), RETRY_MS);
        }
    }
    kg_core_set_expose(e->core, &e->base);
}

static void exposer_free(kg_exposer_t *e)
{
    kg_timer_close(&e->retry);
    free(e->listen);
    free(e);
}

static int make_retry(kg_exposer_t *e, const kg_exposer_config_t *config)
{
    e->config = *config;
    e->config.domain = NULL; /* in the base */
    e->config.public_url = NULL;
    e->listen = strdup(config->listen);
    e->config.listen = e->listen;
    return e->listen ? kg_timer_create(kg_core_loop(e->core), try_to_start, e, &e->retry) : -ENOMEM;
}

int kg_exposer_start(kg_core_t *core,
                     const kg_exposer_config_t *config,
                     kg_exposer_t **ret_exposer,
                     kg_err_t *err)
{
    kg_expose_base_t base = {.port = 0};
    bool off = !config->listen || !config->listen[0];
    if (config->domain && kg_format(base.domain, sizeof(base.domain), "%s", config->domain) < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "proxy_domain is too long.");
    }
    if (!off) {
        host_of(config->listen, &base);
    }
    if (config->public_url && config->public_url[0] && read_url(config->public_url, &base) < 0) {
        return kg_err_set(err, KG_ERR_CONFIG,
                          "proxy_url \"%s\" is not of the form https://HOST[:PORT].",
                          config->public_url);
    }
    kg_exposer_t *e = calloc(1, sizeof(*e));
    if (!e) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for the proxy.");
    }
    e->core = core;
    e->base = base;
    if (!off && make_retry(e, config) < 0) {
        exposer_free(e);
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "No memory for the proxy.");
    }
    kg_core_set_expose(core, &base);
    if (!off) {
        try_to_start(e);
    }
    *ret_exposer = e;
    return 0;
}

unsigned kg_exposer_port(const kg_exposer_t *exposer)
{
    return exposer->proxy ? kg_proxy_port(exposer->proxy) : 0;
}

static void exposer_closed(void *user)
{
    kg_exposer_t *e = user;
    kg_fn *done = e->done;
    void *done_user = e->done_user;
    while (e->dials) {
        dial_free(e->dials);
    }
    exposer_free(e);
    done(done_user);
}

void kg_exposer_close(kg_exposer_t **exposer, kg_fn *done, void *user)
{
    kg_exposer_t *e = KG_TAKE(*exposer);
    kg_core_forget(e->core, e);
    kg_timer_close(&e->retry);
    e->done = done;
    e->done_user = user;
    if (e->proxy) {
        kg_proxy_close(&e->proxy, exposer_closed, e);
    } else {
        (void)kg_loop_later(kg_core_loop(e->core), exposer_closed, e);
    }
}
