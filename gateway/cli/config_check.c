/* cli: what depends on the host, and rules across options. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "gateway/base/isolation.h"
#include "gateway/base/str.h"
#include "gateway/cli/config.h"
#include "gateway/cli/paths.h"
#include "gateway/pool/host.h"

#define VOLUMES_BYTES_MIN (UINT64_C(256) << 20) /* KG_VOLUMES_BYTES_MIN of the keeper */
#define POOLS_FROM_BYTES (UINT64_C(7) << 30) /* what a host of 8 GiB says that it has, and more */
#define RUNTIME_DIR_MAX 54 /* sun_path less what the keeper and kernels put behind it */

static int replace(char **at, char *text)
{
    if (!text) {
        return -ENOMEM;
    }
    free(*at);
    *at = text;
    return 0;
}

/* The gateway may have another working directory than the person who typed the path. */
static int make_absolute(char **path)
{
    return *path ? replace(path, kg_path_absolute(*path)) : 0;
}

static int make_all_absolute(kg_config_t *config)
{
    int r = make_absolute(&config->tls.cert);
    r = r == 0 ? make_absolute(&config->tls.key) : r;
    for (size_t i = 0; i < config->template_dirs.count && r == 0; i++) {
        r = make_absolute(&config->template_dirs.items[i]);
    }
    for (size_t i = 0; i < config->kernelspec_dirs.count && r == 0; i++) {
        r = make_absolute(&config->kernelspec_dirs.items[i]);
    }
    for (size_t i = 0; i < config->sandbox_files.count && r == 0; i++) {
        r = make_absolute(&config->sandbox_files.items[i]);
    }
    for (size_t i = 0; i < config->listen.count && r == 0; i++) {
        char **at = &config->listen.items[i];
        if (kg_str_starts(*at, "unix:") && (*at)[5] != '\0' && (*at)[5] != '/') {
            KG_AUTO_FREE char *path = kg_path_absolute(*at + 5);
            r = path ? replace(at, kg_strdup_printf("unix:%s", path)) : -ENOMEM;
        }
    }
    return r;
}

/* Who runs it for a machine has room for warm sandboxes; on a laptop they have to be worth it
 * first.
 */
static int choose_pool_fill(kg_config_t *config)
{
    bool roomy = geteuid() == 0 && kg_pool_host_memory() >= POOLS_FROM_BYTES;
    return strcmp(config->pools.fill, "auto") == 0
               ? replace(&config->pools.fill, strdup(roomy ? "start" : "demand"))
               : 0;
}

static int add_jupyter(kg_config_t *config, const kg_option_t *option, kg_err_t *err)
{
    int r = 0;
    char *path = NULL;
    for (size_t n = 0; r == 0 && (path = kg_path_jupyter_kernels(n)) != NULL; n++) {
        if (access(path, F_OK) == 0) {
            r = kg_config_set_text(config, option, path, true, err);
        }
        free(path);
    }
    return r;
}

/* The word `jupyter` among kernelspec_dirs stands for Jupyter's own folders, as far as they are
 * there. */
static int expand_jupyter(kg_config_t *config, kg_err_t *err)
{
    const kg_option_t *option = kg_option_find("kernelspec_dirs");
    kg_strlist_t old = config->kernelspec_dirs;
    config->kernelspec_dirs = (kg_strlist_t){0};
    int r = 0;
    for (size_t i = 0; i < old.count; i++) {
        if (r == 0) {
            r = strcmp(old.items[i], "jupyter") == 0
                    ? add_jupyter(config, option, err)
                    : kg_config_set_text(config, option, old.items[i], true, err);
        }
        free(old.items[i]);
    }
    free(old.items);
    return r;
}

int kg_config_complete(kg_config_t *config, const char *exe_dir, kg_err_t *err)
{
    int r = 0;
    if (!config->state_dir) {
        r = replace(&config->state_dir, kg_path_default_state());
    }
    if (r == 0) {
        r = replace(&config->state_dir, kg_path_absolute(config->state_dir));
    }
    if (r == 0) {
        r = replace(&config->runtime_dir, config->runtime_dir
                                              ? kg_path_absolute(config->runtime_dir)
                                              : kg_path_default_runtime(config->state_dir));
    }
    if (r == 0 && config->template_dirs.count == 0) {
        char *dir = kg_path_default_templates(exe_dir);
        if (dir) {
            r = kg_config_set_text(config, kg_option_find("template_dirs"), dir, true, err);
            free(dir);
        }
    }
    r = r == 0 ? expand_jupyter(config, err) : r;
    r = r == 0 ? make_all_absolute(config) : r;
    r = r == 0 ? choose_pool_fill(config) : r;
    return r < 0 ? kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory") : 0;
}

/* Where a listening socket would be. */
typedef struct kg_place {
    const char *path; /* of a unix socket; else the rest */
    int family;       /* AF_UNSPEC: both, every address (`*`) */
    union {
        struct in_addr v4;
        struct in6_addr v6;
    } host;
    uint64_t port; /* 0: a free one */
} kg_place_t;

/* Splits HOST:PORT or [V6]:PORT. key: whose value it is. */
static int split_address(const char *key,
                         const char *text,
                         char *host,
                         size_t host_cap,
                         uint64_t *ret_port,
                         kg_err_t *err)
{
    const char *colon = strrchr(text, ':');
    if (!colon || colon == text || kg_parse_u64(colon + 1, 0, 65535, ret_port) < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: `%s` is not HOST:PORT, [IPV6]:PORT or %s", key,
                          text, strcmp(key, "listen") == 0 ? "unix:PATH" : "off");
    }
    size_t len = (size_t)(colon - text);
    if (len >= 2 && text[0] == '[' && text[len - 1] == ']') {
        text++;
        len -= 2;
    } else if (memchr(text, ':', len)) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: write IPv6 as [%.*s]%s", key, (int)len, text,
                          colon);
    }
    if (kg_format(host, host_cap, "%.*s", (int)len, text) < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: the host of `%s` is too long", key, text);
    }
    return 0;
}

static int parse_place(const char *key, const char *text, kg_place_t *ret, kg_err_t *err)
{
    char host[256];
    *ret = (kg_place_t){.family = AF_UNSPEC};
    int r = split_address(key, text, host, sizeof(host), &ret->port, err);
    if (r < 0) {
        return r;
    }
    if (strcmp(host, "*") == 0 && strcmp(key, "listen") != 0) {
        return 0;
    }
    const char *numbers = strcmp(host, "localhost") == 0 ? "127.0.0.1" : host;
    if (inet_pton(AF_INET, numbers, &ret->host.v4) == 1) {
        ret->family = AF_INET;
    } else if (inet_pton(AF_INET6, numbers, &ret->host.v6) == 1) {
        ret->family = AF_INET6;
    } else {
        return kg_err_set(err, KG_ERR_CONFIG,
                          "%s: `%s` is not an IP address (localhost works; 0.0.0.0 is every one)",
                          key, host);
    }
    return 0;
}

static bool every_host(const kg_place_t *place)
{
    return place->family == AF_INET    ? place->host.v4.s_addr == INADDR_ANY
           : place->family == AF_INET6 ? IN6_IS_ADDR_UNSPECIFIED(&place->host.v6)
                                       : true;
}

/* Could not both be listened on. */
static bool collide(const kg_place_t *a, const kg_place_t *b)
{
    if (a->path || b->path) {
        return a->path && b->path && strcmp(a->path, b->path) == 0;
    }
    if (a->port == 0 || a->port != b->port) {
        return false;
    }
    if (a->family == AF_UNSPEC || b->family == AF_UNSPEC) {
        return true;
    }
    size_t size = a->family == AF_INET ? sizeof(a->host.v4) : sizeof(a->host.v6);
    return a->family == b->family &&
           (every_host(a) || every_host(b) || memcmp(&a->host, &b->host, size) == 0);
}

static bool loopback(const kg_place_t *place)
{
    return place->family == AF_INET ? (ntohl(place->host.v4.s_addr) >> 24) == 127
                                    : IN6_IS_ADDR_LOOPBACK(&place->host.v6);
}

static int check_unix(const char *path, kg_err_t *err)
{
    if (*path == '\0') {
        return kg_err_set(err, KG_ERR_CONFIG, "listen: unix: needs a path");
    }
    if (strlen(path) > 107) {
        return kg_err_set(err, KG_ERR_CONFIG, "listen: unix:%s is longer than 107 bytes", path);
    }
    return 0;
}

static int check_listen(const kg_config_t *config, const char *text, kg_place_t *ret, kg_err_t *err)
{
    if (kg_str_starts(text, "unix:")) {
        *ret = (kg_place_t){.path = text + strlen("unix:")};
        return check_unix(ret->path, err);
    }
    int r = parse_place("listen", text, ret, err);
    if (r == 0 && config->no_auth && !loopback(ret)) {
        r = kg_err_set(
            err, KG_ERR_CONFIG,
            "no_auth is refused with listen %s: anyone who reaches that address could run code",
            text);
        kg_err_hint(err, "leave out --no-auth, or listen on 127.0.0.1, [::1] or unix:PATH");
    }
    return r;
}

/* All that is listened on: each well formed, and none twice. */
static int check_places(const kg_config_t *config, kg_err_t *err)
{
    const char *proxy = config->proxy_listen ? config->proxy_listen : "off";
    size_t count = config->listen.count + 1;
    KG_AUTO_FREE kg_place_t *places = calloc(count, sizeof(*places));
    int r = 0;

    if (!places) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    for (size_t i = 0; i < count && r == 0; i++) {
        bool last = i == config->listen.count;
        const char *text = last ? proxy : config->listen.items[i];
        if (last && strcmp(proxy, "off") == 0) {
            break;
        }
        r = last ? parse_place("proxy_listen", text, &places[i], err)
                 : check_listen(config, text, &places[i], err);
        for (size_t j = 0; j < i && r == 0; j++) {
            if (collide(&places[i], &places[j])) {
                r = kg_err_set(err, KG_ERR_CONFIG, "%s: `%s` is taken by listen `%s`",
                               last ? "proxy_listen" : "listen", text, config->listen.items[j]);
            }
        }
    }
    return r;
}

static int check_file(const char *key, const char *path, kg_err_t *err)
{
    struct stat st;
    if (path && (stat(path, &st) < 0 || !S_ISREG(st.st_mode))) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: no file %s", key, path);
    }
    return 0;
}

/* What names a variable: letters, digits and _, no digit first; then the end or =. */
static int check_variable(const char *text, kg_err_t *err)
{
    size_t len = strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789");
    if (len == 0 || (text[0] >= '0' && text[0] <= '9') || (text[len] != '=' && text[len] != '\0')) {
        return kg_err_set(err, KG_ERR_CONFIG, "sandbox_env: `%s` is not NAME or NAME=VALUE", text);
    }
    return 0;
}

/* What every sandbox sees must be there, and not by an accident be everything. */
static int check_sandbox_file(const char *path, kg_err_t *err)
{
    struct stat st;

    if (kg_path_is_system(path)) {
        return kg_err_set(err, KG_ERR_CONFIG, "sandbox_files: %s is too much to show", path);
    }
    if (strstr(path, "/../") || strstr(path, "/./") || strstr(path, "//")) {
        return kg_err_set(err, KG_ERR_CONFIG, "sandbox_files: %s is not a plain path", path);
    }
    if (stat(path, &st) < 0 || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode))) {
        return kg_err_set(err, KG_ERR_CONFIG, "sandbox_files: no file or directory %s", path);
    }
    return 0;
}

static int check_sandboxes(const kg_config_t *config, kg_err_t *err)
{
    int r = 0;
    for (size_t i = 0; i < config->sandbox_files.count && r == 0; i++) {
        r = check_sandbox_file(config->sandbox_files.items[i], err);
    }
    for (size_t i = 0; i < config->sandbox_env.count && r == 0; i++) {
        r = check_variable(config->sandbox_env.items[i], err);
    }
    return r;
}

/* TEMPLATE:MIN-MAX or TEMPLATE:N, or with /spawn or /zygote behind the name; whether there is such
 * a template is seen when they are read. */
static bool names_pool(const char *text, size_t len)
{
    static const char *const kinds[] = {"spawn", "zygote"};
    size_t name = strcspn(text, "/:");
    bool known = text[name] == ':';
    for (size_t i = 0; text[name] == '/' && i < KG_ARRAY_LEN(kinds); i++) {
        known = known || (len - name - 1 == strlen(kinds[i]) &&
                          strncmp(text + name + 1, kinds[i], len - name - 1) == 0);
    }
    return name > 0 && known;
}

static int check_pools(const kg_config_t *config, kg_err_t *err)
{
    for (size_t i = 0; i < config->pools.sizes.count; i++) {
        const char *text = config->pools.sizes.items[i];
        const char *colon = strchr(text, ':');
        unsigned min = 0;
        unsigned max = 0;
        if (!colon || !names_pool(text, (size_t)(colon - text)) ||
            kg_pool_size_parse(colon + 1, &min, &max) < 0) {
            return kg_err_set(err, KG_ERR_CONFIG,
                              "pools.sizes: `%s` is not TEMPLATE:MIN-MAX or "
                              "TEMPLATE/zygote:MIN-MAX, both at most %u",
                              text, KG_POOL_SIZE_MAX);
        }
    }
    return 0;
}

#define NETWORK_ALLOW_MAX 64 /* KG_NET_ALLOW_MAX of the keeper */

static int check_isolation(const kg_config_t *config, kg_err_t *err)
{
    if (strcmp(config->isolation, "auto") == 0 || strcmp(config->isolation_min, "auto") == 0 ||
        kg_isolation_rank(config->isolation) >= kg_isolation_rank(config->isolation_min)) {
        return 0;
    }
    return kg_err_set(err, KG_ERR_CONFIG, "isolation: %s is weaker than isolation_min, %s",
                      config->isolation, config->isolation_min);
}

static int check_network(const kg_config_t *config, kg_err_t *err)
{
    if (config->network_allow.count > NETWORK_ALLOW_MAX) {
        return kg_err_set(err, KG_ERR_CONFIG, "network_allow: at most %d", NETWORK_ALLOW_MAX);
    }
    for (size_t i = 0; i < config->network_allow.count; i++) {
        const char *text = config->network_allow.items[i];
        const char *slash = strchr(text, '/');
        unsigned char bytes[16];
        char address[INET6_ADDRSTRLEN];
        uint64_t bits = 0;
        bool v6 = strchr(text, ':') != NULL;
        if (!slash || kg_format(address, sizeof(address), "%.*s", (int)(slash - text), text) < 0 ||
            inet_pton(v6 ? AF_INET6 : AF_INET, address, bytes) != 1 ||
            kg_parse_u64(slash + 1, 0, v6 ? 128 : 32, &bits) < 0) {
            return kg_err_set(err, KG_ERR_CONFIG, "network_allow: \"%s\" is not ADDRESS/BITS",
                              text);
        }
    }
    return 0;
}

/* Labels of letters, digits, _ and inner hyphens, with dots between them. */
static bool domain_ok(const char *text)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-";
    for (;;) {
        size_t n = strspn(text, word);
        if (n == 0 || n > 63 || text[0] == '-' || text[n - 1] == '-' ||
            (text[n] && text[n] != '.')) {
            return false;
        }
        if (!text[n]) {
            return true;
        }
        text += n + 1;
    }
}

static int check_proxy(const kg_config_t *config, kg_err_t *err)
{
    const char *url = config->proxy_url ? config->proxy_url : "";
    const char *domain = config->proxy_domain ? config->proxy_domain : "";
    if (domain[0] && !domain_ok(domain)) {
        return kg_err_set(err, KG_ERR_CONFIG,
                          "proxy_domain: \"%s\" is not a name like box.example.org", domain);
    }
    if (url[0] && !kg_str_starts(url, "http://") && !kg_str_starts(url, "https://")) {
        return kg_err_set(err, KG_ERR_CONFIG, "proxy_url: \"%s\" is not https://HOST[:PORT]", url);
    }
    return 0;
}

int kg_config_check(const kg_config_t *config, kg_err_t *err)
{
    int r = 0;
    if (config->listen.count == 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "listen: at least one address is needed");
    }
    r = check_places(config, err);
    if (r == 0 && config->runtime_dir && strlen(config->runtime_dir) > RUNTIME_DIR_MAX) {
        r = kg_err_set(
            err, KG_ERR_CONFIG,
            "runtime_dir: longer than %d bytes: the path of a kernel's socket would not fit",
            RUNTIME_DIR_MAX);
    }
    if (r == 0 && !config->tls.cert != !config->tls.key) {
        r = kg_err_set(err, KG_ERR_CONFIG, "tls.cert and tls.key go together");
    }
    if (r == 0) {
        r = check_file("tls.cert", config->tls.cert, err);
    }
    if (r == 0) {
        r = check_file("tls.key", config->tls.key, err);
    }
    if (r == 0) {
        r = check_sandboxes(config, err);
    }
    r = r == 0 ? check_pools(config, err) : r;
    r = r == 0 ? check_isolation(config, err) : r;
    r = r == 0 ? check_network(config, err) : r;
    r = r == 0 ? check_proxy(config, err) : r;
    if (r == 0 && config->volumes.bytes != 0 && config->volumes.bytes < VOLUMES_BYTES_MIN) {
        r = kg_err_set(err, KG_ERR_CONFIG, "volumes.bytes: 0, or 256MiB at least");
    }
    if (r == 0 && config->uid_count % 65536 != 0) {
        r = kg_err_set(err, KG_ERR_CONFIG,
                       "uid_count must be a multiple of 65536, the user ids of one sandbox");
    }
    if (r == 0 && config->uid_base + config->uid_count > UINT32_MAX) {
        r = kg_err_set(err, KG_ERR_CONFIG, "uid_base + uid_count is past the last user id");
    }
    return r;
}
