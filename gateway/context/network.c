/* gateway/context: networks as clients ask for them. */
#include "gateway/context/network.h"

#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/base/str.h"

enum {
    PORTS_MAX = 16, /* ranges of one rule */
    V4_IN_V6 = 96,
};

static int bad(kg_err_t *err, const char *pointer, const char *fmt, ...) KG_PRINTF(3, 4);
static int bad(kg_err_t *err, const char *pointer, const char *fmt, ...)
{
    char text[200];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    int rc = kg_err_set(err, KG_ERR_INVALID_REQUEST, "%s", text);
    kg_err_pointer(err, "%s", pointer);
    return rc;
}

/* ---- one rule ---- */

/* ::ffff:a.b.c.d is a.b.c.d. */
static void unmap(kg_net_rule_t *rule)
{
    static const uint8_t mapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (rule->family == 6 && rule->prefix >= V4_IN_V6 && memcmp(rule->address, mapped, 12) == 0) {
        memmove(rule->address, rule->address + 12, 4);
        memset(rule->address + 4, 0, 12);
        rule->family = 4;
        rule->prefix = (uint8_t)(rule->prefix - V4_IN_V6);
    }
}

static void clear_host_bits(kg_net_rule_t *rule)
{
    for (unsigned bit = rule->prefix; bit < (rule->family == 4 ? 32U : 128U); bit++) {
        rule->address[bit / 8] &= (uint8_t) ~(0x80U >> (bit % 8));
    }
}

static int parse_cidr(const char *text, const char *pointer, kg_net_rule_t *rule, kg_err_t *err)
{
    char address[64];
    const char *slash = strchr(text, '/');
    size_t len = slash ? (size_t)(slash - text) : strlen(text);
    uint64_t prefix = 0;
    if (kg_format(address, sizeof(address), "%.*s", (int)len, text)) {
        return bad(err, pointer, "cidr: an address, or a network like 203.0.113.0/24");
    }
    rule->family = inet_pton(AF_INET, address, rule->address) == 1    ? 4
                   : inet_pton(AF_INET6, address, rule->address) == 1 ? 6
                                                                      : 0;
    uint64_t most = rule->family == 4 ? 32 : 128;
    bool fits = rule->family && (!slash || kg_parse_u64(slash + 1, 0, most, &prefix) == 0);
    if (!fits) {
        return bad(err, pointer, "cidr: an address, or a network like 203.0.113.0/24");
    }
    rule->prefix = (uint8_t)(slash ? prefix : most);
    unmap(rule);
    clear_host_bits(rule);
    return 0;
}

static bool label_ok(const char *label, size_t len)
{
    for (size_t i = 0; i < len; i++) {
        char c = label[i];
        bool word = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
        if (!word && !(c == '-' && i > 0 && i + 1 < len)) {
            return false;
        }
    }
    return len > 0 && len <= 63;
}

/* Kept in lower case, without a last dot. */
static int parse_domain(const char *text, const char *pointer, kg_net_rule_t *rule, kg_err_t *err)
{
    size_t len = strlen(text);
    len -= len > 0 && text[len - 1] == '.';
    if (len == 0 || len >= sizeof(rule->domain)) {
        return bad(err, pointer, "domain: 1 to %zu bytes", sizeof(rule->domain) - 1);
    }
    for (size_t i = 0; i < len; i++) {
        rule->domain[i] = (char)(text[i] >= 'A' && text[i] <= 'Z' ? text[i] | 0x20 : text[i]);
    }
    const char *at = kg_str_starts(rule->domain, "*.") ? rule->domain + 2 : rule->domain;
    for (;;) {
        size_t n = strcspn(at, ".");
        if (!label_ok(at, n)) {
            return bad(err, pointer, "domain: a name like example.org, or *.example.org");
        }
        if (!at[n]) {
            return 0;
        }
        at += n + 1;
    }
}

static int
parse_target(const json_t *object, const char *pointer, kg_net_rule_t *rule, kg_err_t *err)
{
    char where[96];
    const json_t *cidr = json_object_get(object, "cidr");
    const json_t *domain = json_object_get(object, "domain");
    if (!cidr == !domain) {
        return bad(err, pointer, "a rule has either cidr or domain");
    }
    (void)snprintf(where, sizeof(where), "%s/%s", pointer, cidr ? "cidr" : "domain");
    const json_t *value = cidr ? cidr : domain;
    if (!json_is_string(value) || strlen(json_string_value(value)) != json_string_length(value)) {
        return bad(err, where, "must be a string");
    }
    return cidr ? parse_cidr(json_string_value(value), where, rule, err)
                : parse_domain(json_string_value(value), where, rule, err);
}

static int
parse_protocol(const json_t *object, const char *pointer, kg_net_rule_t *rule, kg_err_t *err)
{
    const json_t *value = json_object_get(object, "protocol");
    const char *word = json_string_value(value);
    if (!value || json_is_null(value) || (word && strcmp(word, "any") == 0)) {
        return 0;
    }
    rule->protocol = word && strcmp(word, "tcp") == 0   ? 6
                     : word && strcmp(word, "udp") == 0 ? 17
                                                        : 0;
    if (!rule->protocol) {
        char where[96];
        (void)snprintf(where, sizeof(where), "%s/protocol", pointer);
        return bad(err, where, "protocol: tcp, udp or any");
    }
    return 0;
}

/* 443, "443" or "8000-8100". */
static bool parse_range(const json_t *value, uint16_t ret[2])
{
    char first[8];
    uint64_t from = 0;
    uint64_t to = 0;
    if (json_is_integer(value)) {
        json_int_t port = json_integer_value(value);
        ret[0] = ret[1] = (uint16_t)port;
        return port >= 1 && port <= UINT16_MAX;
    }
    const char *text = json_string_value(value);
    if (!text || strlen(text) != json_string_length(value)) {
        return false;
    }
    size_t n = strcspn(text, "-");
    if (kg_format(first, sizeof(first), "%.*s", (int)n, text) ||
        kg_parse_u64(first, 1, UINT16_MAX, &from) ||
        kg_parse_u64(text[n] ? text + n + 1 : first, 1, UINT16_MAX, &to) || from > to) {
        return false;
    }
    ret[0] = (uint16_t)from;
    ret[1] = (uint16_t)to;
    return true;
}

/* How many ranges; 0 = all ports. -errno. */
static int
parse_ports(const json_t *object, const char *pointer, uint16_t ret[PORTS_MAX][2], kg_err_t *err)
{
    const json_t *value = json_object_get(object, "ports");
    char where[112];
    if (!value || json_is_null(value)) {
        return 0;
    }
    size_t count = json_is_array(value) ? json_array_size(value) : 1;
    if (count == 0 || count > PORTS_MAX) {
        (void)snprintf(where, sizeof(where), "%s/ports", pointer);
        return bad(err, where, "ports: 1 to %d of them", PORTS_MAX);
    }
    for (size_t i = 0; i < count; i++) {
        const json_t *one = json_is_array(value) ? json_array_get(value, i) : value;
        if (!parse_range(one, ret[i])) {
            (void)snprintf(where, sizeof(where), json_is_array(value) ? "%s/ports/%zu" : "%s/ports",
                           pointer, i);
            return bad(err, where, "ports: 1 to 65535, or a range like \"8000-8100\"");
        }
    }
    return (int)count;
}

static int
known_fields(const json_t *object, const char *const *names, const char *pointer, kg_err_t *err)
{
    const char *key = NULL;
    json_t *value = NULL;
    json_t *walked = (json_t *)(uintptr_t)object;
    json_object_foreach (walked, key, value) {
        const char *const *name = names;
        while (*name && strcmp(*name, key) != 0) {
            name++;
        }
        if (!*name) {
            char where[160];
            (void)snprintf(where, sizeof(where), "%s/%.64s", pointer, key);
            return bad(err, where, "unknown field %.64s", key);
        }
    }
    return 0;
}

static int add(kg_net_wish_t *wish, const kg_net_rule_t *rule, const char *pointer, kg_err_t *err)
{
    if (wish->rule_count == KG_NET_RULES_MAX) {
        return bad(err, pointer, "at most %d rules; each range of ports counts as one",
                   KG_NET_RULES_MAX);
    }
    wish->rules[wish->rule_count++] = *rule;
    return 0;
}

static int parse_rule(
    const json_t *object, bool allow, const char *pointer, kg_net_wish_t *wish, kg_err_t *err)
{
    static const char *const names[] = {"cidr", "domain", "ports", "protocol", NULL};
    kg_net_rule_t rule = {.allow = allow};
    uint16_t ports[PORTS_MAX][2] = {{0}};
    if (!json_is_object(object)) {
        return bad(err, pointer, "a rule is an object with cidr or domain");
    }
    int rc = known_fields(object, names, pointer, err);
    rc = rc ? rc : parse_target(object, pointer, &rule, err);
    rc = rc ? rc : parse_protocol(object, pointer, &rule, err);
    int count = rc ? 0 : parse_ports(object, pointer, ports, err);
    if (rc || count < 0) {
        return rc ? rc : count;
    }
    rc = count ? 0 : add(wish, &rule, pointer, err);
    for (int i = 0; i < count && !rc; i++) {
        rule.port_first = ports[i][0];
        rule.port_last = ports[i][1];
        rc = add(wish, &rule, pointer, err);
    }
    return rc;
}

static int
parse_list(const json_t *network, const char *name, bool allow, kg_net_wish_t *wish, kg_err_t *err)
{
    const json_t *list = json_object_get(network, name);
    char pointer[64];
    if (!list || json_is_null(list)) {
        return 0;
    }
    (void)snprintf(pointer, sizeof(pointer), "/network/%s", name);
    if (!json_is_array(list)) {
        return bad(err, pointer, "%s: a list of rules", name);
    }
    int rc = 0;
    for (size_t i = 0; i < json_array_size(list) && !rc; i++) {
        (void)snprintf(pointer, sizeof(pointer), "/network/%s/%zu", name, i);
        rc = parse_rule(json_array_get(list, i), allow, pointer, wish, err);
    }
    return rc;
}

/* What a sandbox's record says besides its rules is taken back: `mode` as the wish that it is, and
 * `reason` as nothing. */
static int parse_mode(const json_t *network, kg_net_wish_t *wish, kg_err_t *err)
{
    const json_t *mode = json_object_get(network, "mode");
    const char *word = json_string_value(mode);
    bool none = word && strcmp(word, "none") == 0;
    if (mode && !json_is_null(mode) && !none && (!word || strcmp(word, "egress") != 0)) {
        return bad(err, "/network/mode", "mode: none or egress");
    }
    if (none && wish->rule_count > 0) {
        return bad(err, "/network/mode", "mode: with none there are no rules");
    }
    wish->mode = none ? KG_NET_NONE : KG_NET_EGRESS;
    return 0;
}

static int parse_rules(const json_t *network, kg_net_wish_t *wish, kg_err_t *err)
{
    static const char *const names[] = {"allow", "deny", "default", "mode", "reason", NULL};
    const json_t *standard = json_object_get(network, "default");
    const char *word = json_string_value(standard);
    int rc = known_fields(network, names, "/network", err);
    rc = rc ? rc : parse_list(network, "deny", false, wish, err);
    uint32_t denied = wish->rule_count;
    rc = rc ? rc : parse_list(network, "allow", true, wish, err);
    rc = rc ? rc : parse_mode(network, wish, err);
    if (rc) {
        return rc;
    }
    /* Who says what may be reached means nothing else. */
    wish->deny_by_default = wish->rule_count > denied;
    if (!standard || json_is_null(standard)) {
        return 0;
    }
    if (!word || (strcmp(word, "deny") != 0 && strcmp(word, "public") != 0)) {
        return bad(err, "/network/default", "default: deny or public");
    }
    wish->deny_by_default = strcmp(word, "deny") == 0;
    return 0;
}

int kg_network_parse(const json_t *network, kg_net_wish_t *ret_wish, kg_err_t *err)
{
    const char *word = json_string_value(network);
    memset(ret_wish, 0, sizeof(*ret_wish));
    if (json_is_object(network)) {
        return parse_rules(network, ret_wish, err);
    }
    if (word && strcmp(word, "egress") == 0) {
        ret_wish->mode = KG_NET_EGRESS;
        return 0;
    }
    if (word && strcmp(word, "none") == 0) {
        ret_wish->mode = KG_NET_NONE;
        return 0;
    }
    return bad(err, "/network", "network: \"none\", \"egress\", or an object of rules");
}
