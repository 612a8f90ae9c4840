/* DNS messages as the forwarder reads them, from sandboxes and from servers. */
#include <stdlib.h>
#include <string.h>

#include "gateway/sandbox/net_dns.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kg_dns_address_t found[8];
    kg_dns_question_t question;
    kg_net_wish_t wish = {.mode = KG_NET_EGRESS, .rule_count = 1};
    size_t count = kg_dns_addresses(data, size, found, 8);
    if (count > 8) {
        abort();
    }
    if (kg_dns_query(data, size, &question) < 0) {
        return 0;
    }
    if (question.end > size || strlen(question.name) >= sizeof(question.name)) {
        abort();
    }
    (void)strcpy(wish.rules[0].domain, "*.example.org"); // NOLINT: fixed text
    (void)net_domain_open(&wish, question.name);
    uint8_t *out = malloc(question.end);
    if (out) {
        size_t answered = kg_dns_say_no(data, &question, KG_DNS_REFUSED, out);
        if (!kg_dns_answers(out, answered, data, question.end)) {
            abort();
        }
    }
    free(out);
    return 0;
}
