/* DNS messages as the forwarder needs them, and what the rules of a sandbox say of a name. Pure. */
#ifndef KG_SANDBOX_NET_DNS_H
#define KG_SANDBOX_NET_DNS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "gateway/sandbox/net.h"

#define KG_DNS_NAME_MAX 256
#define KG_DNS_HEADER 12

#define KG_DNS_REFUSED 5
#define KG_DNS_SERVFAIL 2

typedef struct kg_dns_question {
    uint16_t id;
    uint16_t type;
    size_t end;                 /* of the question, from the message's beginning */
    char name[KG_DNS_NAME_MAX]; /* lower case, no dot at the end; odd bytes are "?" */
} kg_dns_question_t;
/* A query with one question: 0, or -EBADMSG. */
int kg_dns_query(const uint8_t *bytes, size_t size, kg_dns_question_t *ret);
/* Whether it is an answer to the query of these bytes (id, question). */
bool kg_dns_answers(const uint8_t *bytes, size_t size, const uint8_t *query, size_t question_end);

typedef struct kg_dns_address {
    uint8_t family;
    uint8_t address[16];
    uint32_t ttl;
} kg_dns_address_t;
/* The addresses in an answer; count, at most max. What is malformed ends the list. */
size_t kg_dns_addresses(const uint8_t *bytes, size_t size, kg_dns_address_t *ret, size_t max);
/* The answer to a query that says no; out has room for question.end bytes. */
size_t
kg_dns_say_no(const uint8_t *query, const kg_dns_question_t *question, uint8_t code, uint8_t *out);

/* rule: "example.org", or "*.example.org" with all that is below it. */
bool net_domain_matches(const char *rule, const char *name);
/* Whether a name may be asked for at all: not when a rule denies it whole, nor when only what rules
 * allow is open and none names it. */
bool net_domain_open(const kg_net_wish_t *wish, const char *name);
/* Of one that isn't: fills why and rule. */
void net_domain_why(const kg_net_wish_t *wish, const char *name, kg_net_denied_t *row);

#endif
