/* gateway/view: the checks against foreign pages. A browser on this machine is the one client of a
 * keyless listener that strangers can steer: by DNS rebinding (a foreign Host) or by plain
 * cross-site requests (a foreign Origin). */
#include "gateway/view/guard.h"

#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "gateway/base/credential.h"
#include "gateway/base/str.h"

static bool same_text(kg_slice_t a, const char *b)
{
    return strlen(b) == a.len && strncasecmp(a.data, b, a.len) == 0;
}

static kg_slice_t trim(kg_slice_t s)
{
    while (s.len > 0 && (*s.data == ' ' || *s.data == '\t')) {
        s = kg_slice(s.data + 1, s.len - 1);
    }
    while (s.len > 0 && (s.data[s.len - 1] == ' ' || s.data[s.len - 1] == '\t')) {
        s.len--;
    }
    return s;
}

/* Cuts the next element off a list. false at the end. */
static bool next_of(kg_slice_t *list, char separator, kg_slice_t *ret)
{
    if (list->len == 0) {
        return false;
    }
    const char *end = memchr(list->data, separator, list->len);
    size_t len = end ? (size_t)(end - list->data) : list->len;
    *ret = trim(kg_slice(list->data, len));
    len += len < list->len;
    *list = kg_slice(list->data + len, list->len - len);
    return true;
}

/* "host:80" -> "host", "[::1]:80" -> "::1". Empty when it is malformed. */
static kg_slice_t host_name(kg_slice_t host)
{
    if (host.len > 0 && host.data[0] == '[') {
        const char *end = memchr(host.data, ']', host.len);
        return end ? kg_slice(host.data + 1, (size_t)(end - host.data) - 1) : kg_slice("", 0);
    }
    const char *colon = memchr(host.data, ':', host.len);
    return colon ? kg_slice(host.data, (size_t)(colon - host.data)) : host;
}

bool kg_host_is_loopback(kg_slice_t host)
{
    char name[64];
    kg_slice_t s = host.len ? host_name(host) : host;
    if (s.len == 0 || s.len >= sizeof name) {
        return false;
    }
    memcpy(name, s.data, s.len);
    name[s.len] = '\0';
    struct in_addr v4;
    struct in6_addr v6;
    if (inet_pton(AF_INET, name, &v4) == 1) {
        return ntohl(v4.s_addr) >> 24 == 127;
    }
    if (inet_pton(AF_INET6, name, &v6) == 1) {
        return IN6_IS_ADDR_LOOPBACK(&v6);
    }
    return strcasecmp(name, "localhost") == 0;
}

static bool host_known(const kg_guard_t *guard, kg_slice_t host)
{
    if (kg_host_is_loopback(host)) {
        return true;
    }
    for (size_t i = 0; host.len && i < guard->host_count; i++) {
        if (same_text(host, guard->hosts[i]) || same_text(host_name(host), guard->hosts[i])) {
            return true;
        }
    }
    return false;
}

static bool origin_listed(const kg_guard_t *guard, kg_slice_t origin)
{
    for (size_t i = 0; i < guard->origin_count; i++) {
        if (same_text(origin, guard->origins[i])) {
            return true;
        }
    }
    return false;
}

static bool origin_own(const kg_guard_head_t *head)
{
    kg_slice_t scheme = kg_slice_cstr(head->tls ? "https://" : "http://");
    if (head->origin.len <= scheme.len ||
        strncasecmp(head->origin.data, scheme.data, scheme.len) != 0) {
        return false;
    }
    kg_slice_t rest = kg_slice(head->origin.data + scheme.len, head->origin.len - scheme.len);
    return rest.len == head->host.len && strncasecmp(rest.data, head->host.data, rest.len) == 0;
}

int kg_guard_check(const kg_guard_t *guard, const kg_guard_head_t *head, kg_err_t *err)
{
    if (!guard->no_auth) {
        return 0;
    }
    if (!head->unix_peer && !host_known(guard, head->host)) {
        int rc = kg_err_set(err, KG_ERR_FOREIGN_HOST,
                            "Without keys only loopback names are served, not this Host.");
        kg_err_hint(err, "Use http://127.0.0.1, or name the host in allowed_hosts.");
        return rc;
    }
    if (head->origin.data && !origin_own(head) && !origin_listed(guard, head->origin)) {
        int rc = kg_err_set(err, KG_ERR_FOREIGN_ORIGIN,
                            "Without keys, pages of other origins are not served.");
        kg_err_hint(err, "Name the origin in cors.origins, or use API keys.");
        return rc;
    }
    return 0;
}

int kg_guard_check_origin(const kg_guard_t *guard, const kg_guard_head_t *head, kg_err_t *err)
{
    char unused[256];
    if (!head->origin.data || origin_own(head) ||
        kg_guard_cors(guard, head->origin, unused, sizeof unused)) {
        return 0;
    }
    int rc = kg_err_set(err, KG_ERR_FOREIGN_ORIGIN, "Pages of other origins are not served here.");
    kg_err_hint(err, "Name the origin in cors.origins.");
    return rc;
}

/* SCHEME://HOST[:PORT], as browsers write it: nothing behind it, not even a slash. */
static bool origin_shaped(const char *text)
{
    static const char word[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
    const char *colon = strstr(text, "://");
    if (!colon || colon == text || strspn(text, word) != (size_t)(colon - text)) {
        return false;
    }
    const char *host = colon + strlen("://");
    size_t len = strlen(host);
    size_t name = strcspn(host, host[0] == '[' ? "]" : ":");
    if (host[0] == '[' && host[name++] != ']') {
        return false;
    }
    uint64_t port;
    return name > 0 && strcspn(host, "/?#@\\ \t\r\n*") == len &&
           (host[name] == '\0' ||
            (host[name] == ':' && kg_parse_u64(host + name + 1, 1, 65535, &port) == 0));
}

int kg_guard_origins_check(const char *const *origins, size_t count, bool no_auth, kg_err_t *err)
{
    for (size_t i = 0; i < count; i++) {
        bool any = strcmp(origins[i], "*") == 0 || strcmp(origins[i], "null") == 0;
        int rc = 0;
        if (any && no_auth) {
            rc =
                kg_err_set(err, KG_ERR_CONFIG,
                           "cors.origins: without keys `%s` would let any web page in", origins[i]);
            kg_err_hint(err, "name the origins, or leave out --no-auth");
        } else if (!any && !origin_shaped(origins[i])) {
            rc = kg_err_set(err, KG_ERR_CONFIG,
                            "cors.origins: `%s` is not an origin like https://app.example.org, "
                            "with a port or without, and nothing behind it",
                            origins[i]);
        }
        if (rc < 0) {
            return rc;
        }
    }
    return 0;
}

bool kg_guard_cors(const kg_guard_t *guard, kg_slice_t origin, char *ret_allow, size_t cap)
{
    if (!origin.data || origin.len == 0 || origin.len >= cap) {
        return false;
    }
    bool any = false;
    for (size_t i = 0; i < guard->origin_count; i++) {
        any |= strcmp(guard->origins[i], "*") == 0;
    }
    if (!any && !origin_listed(guard, origin)) {
        return false;
    }
    memcpy(ret_allow, any ? "*" : origin.data, any ? 1 : origin.len);
    ret_allow[any ? 1 : origin.len] = '\0';
    return true;
}

kg_slice_t kg_guard_key(kg_slice_t authorization, kg_slice_t api_key, kg_slice_t protocols)
{
    kg_slice_t key = kg_credential_after(authorization, "bearer");
    if (key.len > 0) {
        return key;
    }
    if (api_key.len > 0) {
        return trim(api_key);
    }
    kg_slice_t item;
    while (next_of(&protocols, ',', &item)) {
        key = kg_credential_of_protocol(item);
        if (key.len > 0) {
            return key;
        }
    }
    return kg_slice(NULL, 0);
}

bool kg_list_has(kg_slice_t list, const char *name)
{
    kg_slice_t item;
    while (next_of(&list, ',', &item)) {
        if (kg_slice_eq_cstr(item, name)) {
            return true;
        }
    }
    return false;
}

bool kg_content_type_is_json(kg_slice_t type)
{
    kg_slice_t part;
    if (!next_of(&type, ';', &part) || !same_text(part, "application/json")) {
        return false;
    }
    while (next_of(&type, ';', &part)) {
        if (part.len >= 8 && strncasecmp(part.data, "charset=", 8) == 0) {
            kg_slice_t value = kg_slice(part.data + 8, part.len - 8);
            if (!same_text(value, "utf-8") && !same_text(value, "\"utf-8\"") &&
                !same_text(value, "utf8")) {
                return false;
            }
        }
    }
    return true;
}

/* "q=0", "q=0.0", …: not wanted. */
static bool weight_zero(kg_slice_t params)
{
    kg_slice_t part;
    while (next_of(&params, ';', &part)) {
        if (part.len >= 3 && strncasecmp(part.data, "q=0", 3) == 0) {
            size_t i = 3;
            while (i < part.len && (part.data[i] == '.' || part.data[i] == '0')) {
                i++;
            }
            return i == part.len;
        }
    }
    return false;
}

bool kg_accept_names(kg_slice_t accept, const char *type)
{
    kg_slice_t item;
    while (next_of(&accept, ',', &item)) {
        kg_slice_t name;
        if (next_of(&item, ';', &name) && same_text(name, type) && !weight_zero(item)) {
            return true;
        }
    }
    return false;
}

bool kg_request_id_sane(kg_slice_t id)
{
    if (id.len == 0 || id.len > 128) {
        return false;
    }
    for (size_t i = 0; i < id.len; i++) {
        char c = id.data[i];
        bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
        if (!letter && !strchr("-_.:/+=", c)) {
            return false;
        }
    }
    return true;
}
