/* DNS messages: what is read here comes from hostile code and from the network. */
#include <ctype.h>
#include <errno.h>
#include <string.h>
#include <strings.h>

#include "gateway/sandbox/net_dns.h"

#define TYPE_A 1
#define TYPE_AAAA 28
#define CLASS_IN 1

static uint16_t get16(const uint8_t *at)
{
    return (uint16_t)(at[0] << 8 | at[1]);
}

static uint32_t get32(const uint8_t *at)
{
    return (uint32_t)get16(at) << 16 | get16(at + 2);
}

static char plain_char(uint8_t c)
{
    if (c <= ' ' || c >= 0x7f || c == '.') {
        return '?';
    }
    return (char)tolower(c);
}

/* A name without compression, as in a question. The offset behind it, or 0. */
static size_t read_name(const uint8_t *bytes, size_t size, size_t at, char ret[KG_DNS_NAME_MAX])
{
    size_t used = 0;
    for (;;) {
        if (at >= size || bytes[at] > 63) {
            return 0;
        }
        size_t label = bytes[at++];
        if (label == 0) {
            ret[used] = '\0';
            return at;
        }
        if (label > size - at || used + label + 2 > KG_DNS_NAME_MAX) {
            return 0;
        }
        if (used > 0) {
            ret[used++] = '.';
        }
        for (size_t i = 0; i < label; i++) {
            ret[used++] = plain_char(bytes[at++]);
        }
    }
}

/* Behind a name, compressed or not; 0 when it runs out. */
static size_t skip_name(const uint8_t *bytes, size_t size, size_t at)
{
    while (at < size) {
        uint8_t label = bytes[at];
        if (label == 0) {
            return at + 1;
        }
        if (label >= 0xc0) {
            return size - at >= 2 ? at + 2 : 0;
        }
        if (label > 63) {
            return 0;
        }
        at += 1U + label;
    }
    return 0;
}

int kg_dns_query(const uint8_t *bytes, size_t size, kg_dns_question_t *ret)
{
    kg_dns_question_t question;
    if (size < KG_DNS_HEADER || (bytes[2] & 0xf8) != 0 || get16(bytes + 4) != 1) {
        return -EBADMSG; /* an answer, another operation, no or more questions */
    }
    if (get16(bytes + 6) != 0 || get16(bytes + 8) != 0) {
        return -EBADMSG;
    }
    size_t at = read_name(bytes, size, KG_DNS_HEADER, question.name);
    if (at == 0 || size - at < 4 || get16(bytes + at + 2) != CLASS_IN) {
        return -EBADMSG;
    }
    question.id = get16(bytes);
    question.type = get16(bytes + at);
    question.end = at + 4;
    *ret = question;
    return 0;
}

bool kg_dns_answers(const uint8_t *bytes, size_t size, const uint8_t *query, size_t question_end)
{
    return size >= question_end && (bytes[2] & 0x80) && memcmp(bytes, query, 2) == 0 &&
           get16(bytes + 4) == 1 &&
           memcmp(bytes + KG_DNS_HEADER, query + KG_DNS_HEADER, question_end - KG_DNS_HEADER) == 0;
}

size_t kg_dns_addresses(const uint8_t *bytes, size_t size, kg_dns_address_t *ret, size_t max)
{
    size_t count = 0;
    if (size < KG_DNS_HEADER) {
        return 0;
    }
    size_t at = KG_DNS_HEADER;
    for (unsigned i = get16(bytes + 4); i > 0; i--) {
        at = skip_name(bytes, size, at);
        if (at == 0 || size - at < 4) {
            return 0;
        }
        at += 4;
    }
    for (unsigned i = get16(bytes + 6); i > 0 && count < max; i--) {
        at = skip_name(bytes, size, at);
        if (at == 0 || size - at < 10) {
            break;
        }
        unsigned type = get16(bytes + at);
        size_t length = get16(bytes + at + 8);
        uint32_t ttl = get32(bytes + at + 4);
        at += 10;
        if (length > size - at) {
            break;
        }
        if ((type == TYPE_A && length == 4) || (type == TYPE_AAAA && length == 16)) {
            memset(&ret[count], 0, sizeof(ret[count]));
            ret[count].family = type == TYPE_A ? 4 : 6;
            ret[count].ttl = ttl;
            memcpy(ret[count].address, bytes + at, length);
            count++;
        }
        at += length;
    }
    return count;
}

size_t
kg_dns_say_no(const uint8_t *query, const kg_dns_question_t *question, uint8_t code, uint8_t *out)
{
    memcpy(out, query, question->end);
    out[2] = (uint8_t)(0x80 | (query[2] & 0x01)); /* an answer; "recursion desired" as it was */
    out[3] = (uint8_t)(0x80 | code);
    memset(out + 6, 0, 6);
    return question->end;
}

bool net_domain_matches(const char *rule, const char *name)
{
    bool below = rule[0] == '*' && rule[1] == '.';
    const char *domain = below ? rule + 2 : rule;
    size_t have = strlen(name);
    size_t want = strlen(domain);
    if (want == 0 || have < want || strcasecmp(name + have - want, domain) != 0) {
        return false;
    }
    return have == want || (below && name[have - want - 1] == '.');
}

void net_domain_why(const kg_net_wish_t *wish, const char *name, kg_net_denied_t *row)
{
    row->why = wish->mode == KG_NET_EGRESS ? KG_NET_WHY_DEFAULT : KG_NET_WHY_NONE;
    for (uint32_t i = 0; i < wish->rule_count && i < KG_NET_RULES_MAX; i++) {
        const kg_net_rule_t *rule = &wish->rules[i];
        bool whole = rule->protocol == 0 && rule->port_first == 0 && rule->port_last == 0;
        if (rule->family == 0 && !rule->allow && whole && net_domain_matches(rule->domain, name)) {
            row->why = KG_NET_WHY_RULE;
            row->rule = (uint8_t)i;
            return;
        }
    }
}

bool net_domain_open(const kg_net_wish_t *wish, const char *name)
{
    if (wish->mode != KG_NET_EGRESS) {
        return false;
    }
    for (uint32_t i = 0; i < wish->rule_count && i < KG_NET_RULES_MAX; i++) {
        const kg_net_rule_t *rule = &wish->rules[i];
        if (rule->family != 0 || !net_domain_matches(rule->domain, name)) {
            continue;
        }
        bool whole = rule->protocol == 0 && rule->port_first == 0 && rule->port_last == 0;
        if (rule->allow || whole) {
            return rule->allow;
        }
    }
    return !wish->deny_by_default;
}
