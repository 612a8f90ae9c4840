/* DNS messages of the forwarder, and what rules say of names. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "gateway/sandbox/net_dns.h"

#define BYTES(text) (const uint8_t *)(text), sizeof(text) - 1
#define QUERY "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00"
#define NAME                                                                                       \
    "\x03WwW\x07"                                                                                  \
    "example\x03org\x00"
#define A_IN "\x00\x01\x00\x01"

static void query_reads_one_question(void **state)
{
    (void)state;
    kg_dns_question_t q;
    assert_int_equal(kg_dns_query(BYTES(QUERY NAME A_IN), &q), 0);
    assert_string_equal(q.name, "www.example.org");
    assert_int_equal(q.id, 0x1234);
    assert_int_equal(q.type, 1);
    assert_int_equal(q.end, sizeof(QUERY NAME A_IN) - 1);
    assert_int_equal(kg_dns_query(BYTES(QUERY "\x03"
                                              "a.b\x01\x80\x00" A_IN),
                                  &q),
                     0);
    assert_string_equal(q.name, "a?b.?"); /* a dot in a label is no dot */
    assert_int_equal(kg_dns_query(BYTES(QUERY "\x00" A_IN), &q), 0);
    assert_string_equal(q.name, "");
}

static void query_refuses_what_is_none(void **state)
{
    (void)state;
    kg_dns_question_t q;
    const uint8_t whole[] = QUERY NAME A_IN;
    for (size_t size = 0; size < sizeof(whole) - 1; size++) {
        assert_int_equal(kg_dns_query(whole, size, &q), -EBADMSG);
    }
    assert_int_equal(
        kg_dns_query(BYTES("\x12\x34\x81\x00\x00\x01\x00\x00\x00\x00\x00\x00" NAME A_IN), &q),
        -EBADMSG); /* an answer */
    assert_int_equal(
        kg_dns_query(BYTES("\x12\x34\x28\x00\x00\x01\x00\x00\x00\x00\x00\x00" NAME A_IN), &q),
        -EBADMSG); /* an update */
    assert_int_equal(
        kg_dns_query(BYTES("\x12\x34\x01\x00\x00\x02\x00\x00\x00\x00\x00\x00" NAME A_IN NAME A_IN),
                     &q),
        -EBADMSG);
    assert_int_equal(kg_dns_query(BYTES(QUERY "\xc0\x0c" A_IN), &q), -EBADMSG); /* compressed */
    assert_int_equal(kg_dns_query(BYTES(QUERY NAME "\x00\x01\x00\x03"), &q), -EBADMSG);

    uint8_t longest[12 + 5 * 64 + 8] = QUERY;
    size_t at = 12;
    for (unsigned i = 0; i < 5; i++) {
        longest[at] = 63;
        memset(longest + at + 1, 'a', 63);
        at += 64;
    }
    assert_int_equal(kg_dns_query(longest, sizeof(longest), &q), -EBADMSG);
}

static void answer_must_fit_its_query(void **state)
{
    (void)state;
    const uint8_t query[] = QUERY NAME A_IN;
    uint8_t answer[sizeof(query)];
    kg_dns_question_t q;
    assert_int_equal(kg_dns_query(query, sizeof(query) - 1, &q), 0);
    assert_int_equal(kg_dns_say_no(query, &q, KG_DNS_REFUSED, answer), sizeof(query) - 1);
    assert_int_equal(answer[3] & 15, KG_DNS_REFUSED);
    assert_true(kg_dns_answers(answer, sizeof(query) - 1, query, q.end));
    assert_false(kg_dns_answers(answer, sizeof(query) - 2, query, q.end));
    answer[1] ^= 1;
    assert_false(kg_dns_answers(answer, sizeof(query) - 1, query, q.end));
    answer[1] ^= 1;
    answer[14] ^= 1;
    assert_false(kg_dns_answers(answer, sizeof(query) - 1, query, q.end));
    assert_false(kg_dns_answers(query, sizeof(query) - 1, query, q.end)); /* no answer at all */
}

#define ANSWER2 "\x12\x34\x81\x80\x00\x01\x00\x03\x00\x00\x00\x00" NAME A_IN

static void addresses_are_found_in_answers(void **state)
{
    (void)state;
    kg_dns_address_t found[4];
    const uint8_t answer[] =
        ANSWER2 "\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x09\x00\x02\xc0\x10"          /* CNAME */
                "\xc0\x10\x00\x01\x00\x01\x00\x00\x01\x02\x00\x04\x01\x02\x03\x04"  /* A */
                "\xc0\x10\x00\x1c\x00\x01\x00\x00\x00\x07\x00\x10 2001:db8::1234!"; /* AAAA */
    size_t size = sizeof(answer) - 1;
    assert_int_equal(kg_dns_addresses(answer, size, found, 4), 2);
    assert_int_equal(found[0].family, 4);
    assert_int_equal(found[0].ttl, 0x102);
    assert_memory_equal(found[0].address, "\x01\x02\x03\x04", 4);
    assert_int_equal(found[1].family, 6);
    assert_int_equal(kg_dns_addresses(answer, size, found, 1), 1);
    for (size_t cut = 0; cut < size; cut++) {
        assert_true(kg_dns_addresses(answer, cut, found, 4) <= 1);
    }
}

static void names_fit_rules(void **state)
{
    (void)state;
    assert_true(net_domain_matches("example.org", "example.org"));
    assert_true(net_domain_matches("Example.ORG", "example.org"));
    assert_false(net_domain_matches("example.org", "a.example.org"));
    assert_true(net_domain_matches("*.example.org", "example.org"));
    assert_true(net_domain_matches("*.example.org", "a.b.example.org"));
    assert_false(net_domain_matches("*.example.org", "notexample.org"));
    assert_false(net_domain_matches("*.example.org", "example.org.evil"));
    assert_false(net_domain_matches("", ""));
    assert_false(net_domain_matches("*.", "org"));
}

static void put(kg_net_wish_t *wish, bool allow, const char *domain, uint16_t port)
{
    kg_net_rule_t *rule = &wish->rules[wish->rule_count++];
    rule->allow = allow;
    rule->port_first = port;
    rule->port_last = port;
    (void)snprintf(rule->domain, sizeof(rule->domain), "%s", domain);
}

static void first_rule_decides_about_a_name(void **state)
{
    (void)state;
    kg_net_wish_t wish = {.mode = KG_NET_EGRESS};
    assert_true(net_domain_open(&wish, "anything"));
    put(&wish, true, "good.bad.org", 0);
    put(&wish, false, "*.bad.org", 0);
    put(&wish, false, "half.org", 80); /* a part of it: the name is needed for the rest */
    assert_true(net_domain_open(&wish, "good.bad.org"));
    assert_false(net_domain_open(&wish, "other.bad.org"));
    kg_net_denied_t row = {0};
    net_domain_why(&wish, "other.bad.org", &row);
    assert_int_equal(row.why, KG_NET_WHY_RULE);
    assert_string_equal(wish.rules[row.rule].domain, "*.bad.org");
    assert_true(net_domain_open(&wish, "half.org"));
    assert_true(net_domain_open(&wish, "else.org"));
    wish.deny_by_default = 1;
    assert_true(net_domain_open(&wish, "good.bad.org"));
    assert_false(net_domain_open(&wish, "else.org"));
    wish.mode = KG_NET_NONE;
    assert_false(net_domain_open(&wish, "good.bad.org"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(query_reads_one_question),
        cmocka_unit_test(query_refuses_what_is_none),
        cmocka_unit_test(answer_must_fit_its_query),
        cmocka_unit_test(addresses_are_found_in_answers),
        cmocka_unit_test(names_fit_rules),
        cmocka_unit_test(first_rule_decides_about_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
