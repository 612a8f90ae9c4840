/* The rules as text for nft. Nothing of a client's goes into it: names are numbers, addresses are
 * printed from bytes. Rules of a sandbox choose among what is open at all, they never widen it. */
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "gateway/sandbox/net_private.h"

void net_script_add(net_script_t *script, const char *fmt, ...)
{
    va_list args;
    char line[512];
    va_start(args, fmt);
    int n = vsnprintf(line, sizeof(line), fmt, args);
    va_end(args);
    if (n < 0 || (size_t)n >= sizeof(line)) {
        script->failed = true;
        return;
    }
    if (script->size - script->used < (size_t)n + 1) {
        size_t size = script->size * 2 + 8192;
        char *text = realloc(script->text, size);
        if (!text) {
            script->failed = true;
            return;
        }
        script->text = text;
        script->size = size;
    }
    memcpy(script->text + script->used, line, (size_t)n + 1);
    script->used += (size_t)n;
}

void net_script_done(net_script_t *script)
{
    free(script->text);
    memset(script, 0, sizeof(*script));
}

#define ADD(...) net_script_add(script, __VA_ARGS__)

static const char *const CLOSED4[] = {
    "0.0.0.0/8",     "10.0.0.0/8",      "100.64.0.0/10",  "127.0.0.0/8",    "169.254.0.0/16",
    "172.16.0.0/12", "192.0.0.0/24",    "192.0.2.0/24",   "192.88.99.0/24", "192.168.0.0/16",
    "198.18.0.0/15", "198.51.100.0/24", "203.0.113.0/24", "224.0.0.0/3",
};

/* Within 2000::/3, which alone is public: Teredo and other tunnels (they carry IPv4 addresses),
 * documentation. v4-mapped, NAT64, unique-local and link-local addresses lie outside. */
static const char *const CLOSED6[] = {"2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20"};

static void add_closed(net_script_t *script, uint32_t tag)
{
    ADD("add set inet sandal_%04x closed4 { type ipv4_addr; flags interval; }\n", tag);
    ADD("add set inet sandal_%04x closed6 { type ipv6_addr; flags interval; }\n", tag);
    for (size_t i = 0; i < KG_ARRAY_LEN(CLOSED4); i++) {
        ADD("add element inet sandal_%04x closed4 { %s }\n", tag, CLOSED4[i]);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(CLOSED6); i++) {
        ADD("add element inet sandal_%04x closed6 { %s }\n", tag, CLOSED6[i]);
    }
}

/* "ip daddr 1.2.3.0/24 tcp dport 1-5 ": what fits a rule, for one family. */
static void add_match(net_script_t *script, const kg_net_rule_t *rule)
{
    char address[INET6_ADDRSTRLEN] = "";
    if (rule->family == 4 || rule->family == 6) {
        (void)inet_ntop(rule->family == 4 ? AF_INET : AF_INET6, rule->address, address,
                        sizeof(address));
        ADD("%s daddr %s/%u ", rule->family == 4 ? "ip" : "ip6", address, rule->prefix);
    }
    const char *proto = rule->protocol == 6 ? "tcp" : "udp";
    if (rule->port_first == 0 && rule->port_last == 0) {
        if (rule->protocol != 0) {
            ADD("meta l4proto %s ", proto);
        }
        return;
    }
    if (rule->protocol != 0) {
        ADD("%s dport %u-%u ", proto, rule->port_first, rule->port_last);
    } else {
        ADD("meta l4proto { tcp, udp } th dport %u-%u ", rule->port_first, rule->port_last);
    }
}

static bool is_one_address(const kg_net_rule_t *rule)
{
    return (rule->family == 4 && rule->prefix == 32) || (rule->family == 6 && rule->prefix == 128);
}

/* What the operator opens, towards the host itself (input) or beyond it. */
static void add_operators(const kg_nets_t *nets, net_script_t *script, const char *chain, bool host)
{
    for (uint32_t i = 0; i < nets->allow_count; i++) {
        const kg_net_rule_t *rule = &nets->allow[i];
        if (rule->family != 0 && rule->allow && (!host || is_one_address(rule))) {
            ADD("add rule inet sandal_%04x %s ", nets->keeper_tag, chain);
            add_match(script, rule);
            ADD("return\n");
        }
    }
}

/* Only added: which are to go is known to the helper, which follows them. */
static void add_own(const kg_nets_t *nets, net_script_t *script)
{
    uint32_t t = nets->keeper_tag;
    ADD("add set inet sandal_%04x " NET_OWN_SET " { type ipv4_addr; }\n", t);
    for (uint32_t i = 0; i < nets->own_count; i++) {
        struct in_addr own = {.s_addr = htonl(nets->own[i])};
        char text[INET_ADDRSTRLEN] = "";
        (void)inet_ntop(AF_INET, &own, text, sizeof(text));
        ADD("add element inet sandal_%04x " NET_OWN_SET " { %s }\n", t, text);
    }
}

/* Returns when a destination is open at all. Each connection of a sandbox counts in the host's
 * table of connections, therefore the limit. */
static void add_gate(const kg_nets_t *nets, net_script_t *script)
{
    uint32_t t = nets->keeper_tag;
    ADD("add set inet sandal_%04x conns4 { type ipv4_addr; size 65536; flags dynamic; }\n", t);
    ADD("add set inet sandal_%04x conns6 { type ipv6_addr; size 65536; flags dynamic; }\n", t);
    ADD("add chain inet sandal_%04x gate\nflush chain inet sandal_%04x gate\n", t, t);
    ADD("add rule inet sandal_%04x gate oifname \"" NET_ALL_PREFIX "*\" " NET_DENY, t,
        NET_MARK(KG_NET_WHY_NOT_PUBLIC, 0));
    ADD("add rule inet sandal_%04x gate meta l4proto != { tcp, udp, icmp, ipv6-icmp } " NET_DENY, t,
        NET_MARK(KG_NET_WHY_PROTOCOL, 0));
    ADD("add rule inet sandal_%04x gate meta l4proto { tcp, udp } th dport { 53, 853, 5353 "
        "} " NET_DENY,
        t, NET_MARK(KG_NET_WHY_DNS, 0));
    ADD("add rule inet sandal_%04x gate icmp type != echo-request " NET_DENY, t,
        NET_MARK(KG_NET_WHY_PROTOCOL, 0));
    ADD("add rule inet sandal_%04x gate meta l4proto ipv6-icmp icmpv6 type != "
        "echo-request " NET_DENY,
        t, NET_MARK(KG_NET_WHY_PROTOCOL, 0));
    ADD("add rule inet sandal_%04x gate ct state new add @conns4 { ip saddr ct count over %u "
        "} " NET_DENY,
        t, NET_CONNECTIONS_MAX, NET_MARK(KG_NET_WHY_CONNECTIONS, 0));
    ADD("add rule inet sandal_%04x gate ct state new add @conns6 { ip6 saddr ct count over %u "
        "} " NET_DENY,
        t, NET_CONNECTIONS_MAX, NET_MARK(KG_NET_WHY_CONNECTIONS, 0));
    if (nets->routed) { /* behind the router, where none of its addresses is local */
        ADD("add rule inet sandal_%04x gate ip daddr @" NET_OWN_SET " jump host_gate\n", t);
    }
    add_operators(nets, script, "gate", false);
    ADD("add rule inet sandal_%04x gate ip daddr @closed4 " NET_DENY, t,
        NET_MARK(KG_NET_WHY_NOT_PUBLIC, 0));
    ADD("add rule inet sandal_%04x gate ip6 daddr != 2000::/3 " NET_DENY, t,
        NET_MARK(KG_NET_WHY_NOT_PUBLIC, 0));
    ADD("add rule inet sandal_%04x gate ip6 daddr @closed6 " NET_DENY, t,
        NET_MARK(KG_NET_WHY_NOT_PUBLIC, 0));
    if (!nets->ipv6) {
        ADD("add rule inet sandal_%04x gate meta nfproto ipv6 " NET_DENY, t,
            NET_MARK(KG_NET_WHY_NOT_PUBLIC, 0));
    }
}

static void add_denied(const kg_nets_t *nets, net_script_t *script)
{
    uint32_t t = nets->keeper_tag;
    ADD("add set inet sandal_%04x logged { type ifname; size 65536; flags dynamic, timeout; "
        "timeout 1m; }\n",
        t);
    ADD("add chain inet sandal_%04x denied\nflush chain inet sandal_%04x denied\n", t, t);
    ADD("add rule inet sandal_%04x denied add @logged { iifname limit rate 50/second burst 100 "
        "packets } log group %u snaplen 128 queue-threshold 1\n",
        t, nets->log_group);
    /* A reset comes at once, ICMP messages are limited to one a second. */
    ADD("add rule inet sandal_%04x denied meta l4proto tcp reject with tcp reset\n", t);
    ADD("add rule inet sandal_%04x denied reject with icmpx type admin-prohibited\n", t);
}

/* Sources that aren't the sandbox's own, options that choose a way of their own. */
static void add_prerouting(const kg_nets_t *nets, net_script_t *script)
{
    uint32_t t = nets->keeper_tag;
    ADD("add chain inet sandal_%04x prerouting { type filter hook prerouting priority -310; }\n"
        "flush chain inet sandal_%04x prerouting\n",
        t, t);
    ADD("add rule inet sandal_%04x prerouting iifname != \"" NET_ALL_PREFIX "%04x-*\" accept\n", t,
        t);
    ADD("add rule inet sandal_%04x prerouting icmpv6 type { nd-neighbor-solicit, "
        "nd-neighbor-advert } accept\n",
        t);
    ADD("add rule inet sandal_%04x prerouting ip hdrlength != 5 drop\n", t);
    ADD("add rule inet sandal_%04x prerouting exthdr rt exists drop\n", t);
    ADD("add rule inet sandal_%04x prerouting fib saddr . iif oif missing drop\n", t);
}

static void add_input(const kg_nets_t *nets, net_script_t *script)
{
    uint32_t t = nets->keeper_tag;
    struct in_addr gateway = {.s_addr = htonl(net_gateway(nets))};
    char text[INET_ADDRSTRLEN] = "";
    (void)inet_ntop(AF_INET, &gateway, text, sizeof(text));
    ADD("add chain inet sandal_%04x input { type filter hook input priority -10; }\n"
        "flush chain inet sandal_%04x input\n",
        t, t);
    ADD("add rule inet sandal_%04x input iifname != \"" NET_ALL_PREFIX "%04x-*\" accept\n", t, t);
    ADD("add rule inet sandal_%04x input ip daddr %s udp dport 53 accept\n", t, text);
    ADD("add rule inet sandal_%04x input ip daddr %s tcp dport 53 accept\n", t, text);
    ADD("add rule inet sandal_%04x input icmpv6 type { nd-neighbor-solicit, nd-neighbor-advert } "
        "accept\n",
        t);
    ADD("add rule inet sandal_%04x input iifname vmap @slots\n", t);
    ADD("add rule inet sandal_%04x input jump host_gate\n", t);
    ADD("add rule inet sandal_%04x input accept\n", t);
}

static void add_forward(const kg_nets_t *nets, const net_opened_t *opened, net_script_t *script)
{
    uint32_t t = nets->keeper_tag;
    ADD("add chain inet sandal_%04x plain\nflush chain inet sandal_%04x plain\n", t, t);
    ADD("add rule inet sandal_%04x plain ct state established,related accept\n", t);
    ADD("add rule inet sandal_%04x plain jump gate\n", t);
    ADD("add rule inet sandal_%04x plain accept\n", t);
    ADD("add chain inet sandal_%04x forward { type filter hook forward priority -10; }\n"
        "flush chain inet sandal_%04x forward\n",
        t, t);
    ADD("add rule inet sandal_%04x forward iifname vmap @slots\n", t);
    ADD("add rule inet sandal_%04x forward iifname \"" NET_ALL_PREFIX "%04x-*\" goto plain\n", t,
        t);
    /* What forwards for us alone is no router for its neighbours. */
    for (unsigned i = 0; i < opened->v4_count; i++) {
        ADD("add rule inet sandal_%04x forward meta nfproto ipv4 iifname \"%s\" oifname != "
            "\"" NET_ALL_PREFIX "*\" drop\n",
            t, opened->v4[i]);
    }
    for (unsigned i = 0; i < opened->v6_count; i++) {
        ADD("add rule inet sandal_%04x forward meta nfproto ipv6 iifname \"%s\" oifname != "
            "\"" NET_ALL_PREFIX "*\" drop\n",
            t, opened->v6[i]);
    }
}

/* Nobody begins a connection to a sandbox. After the forward chains of all keepers here: where a
 * sandbox of another keeper tries, that one refuses it, and tells it in its log. */
static void add_guard(const kg_nets_t *nets, net_script_t *script)
{
    uint32_t t = nets->keeper_tag;
    ADD("add chain inet sandal_%04x guard { type filter hook forward priority -9; }\n"
        "flush chain inet sandal_%04x guard\n",
        t, t);
    ADD("add rule inet sandal_%04x guard oifname \"" NET_ALL_PREFIX "%04x-*\" ct state != "
        "{ established, related } drop\n",
        t, t);
}

static void add_masquerade(const kg_nets_t *nets, net_script_t *script)
{
    uint32_t t = nets->keeper_tag;
    struct in_addr pool = {.s_addr = htonl(nets->pool)};
    struct in6_addr pool6 = net_gateway6(nets);
    char text[INET_ADDRSTRLEN] = "";
    char text6[INET6_ADDRSTRLEN] = "";
    memset(&pool6.s6_addr[8], 0, 8);
    (void)inet_ntop(AF_INET, &pool, text, sizeof(text));
    (void)inet_ntop(AF_INET6, &pool6, text6, sizeof(text6));
    ADD("add chain inet sandal_%04x post { type nat hook postrouting priority 100; }\n"
        "flush chain inet sandal_%04x post\n",
        t, t);
    ADD("add rule inet sandal_%04x post ip saddr %s/%u oifname != \"" NET_ALL_PREFIX
        "*\" masquerade\n",
        t, text, NET_POOL_BITS);
    ADD("add rule inet sandal_%04x post ip6 saddr %s/64 oifname != \"" NET_ALL_PREFIX
        "*\" masquerade\n",
        t, text6);
}

void net_rules_base(const kg_nets_t *nets, const net_opened_t *opened, net_script_t *script)
{
    uint32_t t = nets->keeper_tag;
    ADD("add table inet sandal_%04x\n", t);
    ADD("add map inet sandal_%04x slots { type ifname : verdict; }\n", t);
    add_closed(script, t);
    add_denied(nets, script);
    ADD("add chain inet sandal_%04x host_gate\nflush chain inet sandal_%04x host_gate\n", t, t);
    add_operators(nets, script, "host_gate", true);
    ADD("add rule inet sandal_%04x host_gate " NET_DENY, t, NET_MARK(KG_NET_WHY_HOST, 0));
    if (nets->routed) {
        add_own(nets, script);
    }
    add_gate(nets, script);
    add_prerouting(nets, script);
    add_input(nets, script);
    add_forward(nets, opened, script);
    add_guard(nets, script);
    add_masquerade(nets, script);
}

/* A set per domain rule and family, filled as names are asked for. */
static void add_domain_rule(const kg_nets_t *nets,
                            uint32_t slot,
                            uint32_t generation,
                            unsigned index,
                            const kg_net_rule_t *rule,
                            net_script_t *script)
{
    for (unsigned family = 4; family <= 6; family += 2) {
        ADD("add set inet sandal_%04x d%04x_%u_%u_%u { type %s; flags timeout; size 2048; "
            "timeout %us; }\n",
            nets->keeper_tag, slot, generation, index, family,
            family == 4 ? "ipv4_addr" : "ipv6_addr", NET_NAME_SECONDS);
        ADD("add rule inet sandal_%04x r%04x %s daddr @d%04x_%u_%u_%u ", nets->keeper_tag, slot,
            family == 4 ? "ip" : "ip6", slot, generation, index, family);
        add_match(script, rule);
        if (rule->allow) {
            ADD("ct mark set %u accept\n", generation);
        } else {
            ADD(NET_DENY, NET_MARK(KG_NET_WHY_RULE, index));
        }
    }
}

/* Connections bear the generation of the rules that let them through: after a change they are
 * looked at again. */
void net_rules_slot(const kg_nets_t *nets,
                    uint32_t slot,
                    uint32_t generation,
                    const kg_net_wish_t *wish,
                    net_script_t *script)
{
    uint32_t t = nets->keeper_tag;
    char name[IFNAMSIZ];
    net_interface(nets, slot, name);
    ADD("add chain inet sandal_%04x r%04x\nflush chain inet sandal_%04x r%04x\n", t, slot, t, slot);
    ADD("add rule inet sandal_%04x r%04x ct state established,related ct mark %u accept\n", t, slot,
        generation);
    if (wish->mode == KG_NET_EGRESS) {
        ADD("add rule inet sandal_%04x r%04x fib daddr type local jump host_gate\n", t, slot);
        ADD("add rule inet sandal_%04x r%04x jump gate\n", t, slot);
        for (uint32_t i = 0; i < wish->rule_count && i < KG_NET_RULES_MAX; i++) {
            const kg_net_rule_t *rule = &wish->rules[i];
            if (rule->family == 0) {
                add_domain_rule(nets, slot, generation, i, rule, script);
                continue;
            }
            ADD("add rule inet sandal_%04x r%04x ", t, slot);
            add_match(script, rule);
            if (rule->allow) {
                ADD("ct mark set %u accept\n", generation);
            } else {
                ADD(NET_DENY, NET_MARK(KG_NET_WHY_RULE, i));
            }
        }
    }
    if (wish->mode == KG_NET_EGRESS && !wish->deny_by_default) {
        ADD("add rule inet sandal_%04x r%04x ct mark set %u accept\n", t, slot, generation);
    } else {
        ADD("add rule inet sandal_%04x r%04x " NET_DENY, t, slot,
            NET_MARK(wish->mode == KG_NET_EGRESS ? KG_NET_WHY_DEFAULT : KG_NET_WHY_NONE, 0));
    }
    ADD("add element inet sandal_%04x slots { \"%s\" : goto r%04x }\n", t, name, slot);
}

static void drop_set(net_script_t *script, uint32_t tag, const char *name, unsigned family)
{
    /* Made if it isn't there, so that the script never fails for that. */
    ADD("add set inet sandal_%04x %s { type %s; flags timeout; size 2048; timeout %us; }\n", tag,
        name, family == 4 ? "ipv4_addr" : "ipv6_addr", NET_NAME_SECONDS);
    ADD("delete set inet sandal_%04x %s\n", tag, name);
}

void net_rules_drop(const kg_nets_t *nets,
                    uint32_t slot,
                    uint32_t generation,
                    const kg_net_wish_t *wish,
                    bool chain_too,
                    net_script_t *script)
{
    uint32_t t = nets->keeper_tag;
    char name[IFNAMSIZ];
    net_interface(nets, slot, name);
    if (chain_too) {
        ADD("add chain inet sandal_%04x r%04x\n", t, slot);
        ADD("add element inet sandal_%04x slots { \"%s\" : goto r%04x }\n", t, name, slot);
        ADD("delete element inet sandal_%04x slots { \"%s\" : goto r%04x }\n", t, name, slot);
        ADD("flush chain inet sandal_%04x r%04x\ndelete chain inet sandal_%04x r%04x\n", t, slot, t,
            slot);
    }
    for (uint32_t i = 0; i < wish->rule_count && i < KG_NET_RULES_MAX; i++) {
        for (unsigned family = 4; wish->rules[i].family == 0 && family <= 6; family += 2) {
            char set[64];
            (void)snprintf(set, sizeof(set), "d%04x_%u_%u_%u", slot, generation, i, family);
            drop_set(script, t, set, family);
        }
    }
}
