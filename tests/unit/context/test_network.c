/* Networks as clients ask for them: what is taken, and what is refused with which pointer. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/context/network.h"

static int parse(const char *text, kg_net_wish_t *wish, kg_err_t *err)
{
    json_t *json = json_loads(text, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    assert_non_null(json);
    *err = (kg_err_t){0};
    int rc = kg_network_parse(json, wish, err);
    json_decref(json);
    return rc;
}

static void taken(const char *text, kg_net_wish_t *wish)
{
    kg_err_t err;
    if (parse(text, wish, &err)) {
        fail_msg("%s: %s (%s)", text, err.message, err.pointer);
    }
}

static void words_are_modes(void **state)
{
    (void)state;
    kg_net_wish_t wish;
    taken("\"none\"", &wish);
    assert_int_equal(wish.mode, KG_NET_NONE);
    taken("\"egress\"", &wish);
    assert_int_equal(wish.mode, KG_NET_EGRESS);
    assert_int_equal(wish.rule_count, 0);
    assert_int_equal(wish.deny_by_default, 0);
    taken("{\"mode\":\"none\",\"reason\":\"no way out\"}", &wish);
    assert_int_equal(wish.mode, KG_NET_NONE);
    taken("{\"mode\":\"egress\"}", &wish);
    assert_int_equal(wish.mode, KG_NET_EGRESS);
    assert_int_equal(wish.deny_by_default, 0);
}

static void rules_are_read(void **state)
{
    (void)state;
    kg_net_wish_t wish;
    taken("{\"allow\":[{\"cidr\":\"93.184.216.77/24\",\"ports\":[443,\"8000-8100\"],"
          "\"protocol\":\"tcp\"},{\"domain\":\"*.Example.ORG.\"}],"
          "\"deny\":[{\"cidr\":\"2606:2800::1\",\"ports\":53,\"protocol\":\"udp\"}]}",
          &wish);
    assert_int_equal(wish.mode, KG_NET_EGRESS);
    assert_int_equal(wish.deny_by_default, 1);
    assert_int_equal(wish.rule_count, 4);
    /* deny first */
    assert_int_equal(wish.rules[0].allow, 0);
    assert_int_equal(wish.rules[0].family, 6);
    assert_int_equal(wish.rules[0].prefix, 128);
    assert_int_equal(wish.rules[0].protocol, 17);
    assert_int_equal(wish.rules[0].port_first, 53);
    static const uint8_t net[4] = {93, 184, 216, 0};
    assert_int_equal(wish.rules[1].allow, 1);
    assert_int_equal(wish.rules[1].family, 4);
    assert_int_equal(wish.rules[1].prefix, 24);
    assert_memory_equal(wish.rules[1].address, net, 4); /* host bits are cleared */
    assert_int_equal(wish.rules[1].port_first, 443);
    assert_int_equal(wish.rules[1].port_last, 443);
    assert_int_equal(wish.rules[2].port_first, 8000);
    assert_int_equal(wish.rules[2].port_last, 8100);
    assert_int_equal(wish.rules[3].family, 0);
    assert_string_equal(wish.rules[3].domain, "*.example.org");
}

static void the_default_follows_from_the_rules(void **state)
{
    (void)state;
    kg_net_wish_t wish;
    taken("{}", &wish);
    assert_int_equal(wish.deny_by_default, 0);
    taken("{\"deny\":[{\"domain\":\"example.org\"}]}", &wish);
    assert_int_equal(wish.deny_by_default, 0);
    taken("{\"allow\":[{\"domain\":\"example.org\"}]}", &wish);
    assert_int_equal(wish.deny_by_default, 1);
    taken("{\"allow\":[{\"domain\":\"example.org\"}],\"default\":\"public\"}", &wish);
    assert_int_equal(wish.deny_by_default, 0);
    taken("{\"default\":\"deny\",\"allow\":null}", &wish);
    assert_int_equal(wish.deny_by_default, 1);
}

/* An IPv4 address is one however it is written. */
static void mapped_addresses_are_ipv4(void **state)
{
    (void)state;
    kg_net_wish_t wish;
    static const uint8_t ten[4] = {10, 0, 0, 0};
    taken("{\"deny\":[{\"cidr\":\"::ffff:10.1.2.3/104\"},{\"cidr\":\"::ffff:0:0/95\"}]}", &wish);
    assert_int_equal(wish.rules[0].family, 4);
    assert_int_equal(wish.rules[0].prefix, 8);
    assert_memory_equal(wish.rules[0].address, ten, 4);
    assert_int_equal(wish.rules[1].family, 6);
}

static void what_is_wrong_is_named(void **state)
{
    (void)state;
    static const struct {
        const char *text, *pointer;
    } rows[] = {
        {"3", "/network"},
        {"\"all\"", "/network"},
        {"[]", "/network"},
        {"{\"x\":1}", "/network/x"},
        {"{\"allow\":{}}", "/network/allow"},
        {"{\"allow\":[3]}", "/network/allow/0"},
        {"{\"allow\":[{}]}", "/network/allow/0"},
        {"{\"allow\":[{\"cidr\":\"1.1.1.1\",\"domain\":\"a.b\"}]}", "/network/allow/0"},
        {"{\"allow\":[{\"cidr\":\"1.1.1.1\",\"y\":1}]}", "/network/allow/0/y"},
        {"{\"deny\":[{\"cidr\":\"1.1.1.1/33\"}]}", "/network/deny/0/cidr"},
        {"{\"deny\":[{\"cidr\":\"1.1.1\"}]}", "/network/deny/0/cidr"},
        {"{\"deny\":[{\"cidr\":\"1.1.1.1/\"}]}", "/network/deny/0/cidr"},
        {"{\"deny\":[{\"cidr\":\"1.1.1.1\\u0000\"}]}", "/network/deny/0/cidr"},
        {"{\"deny\":[{\"cidr\":\"::1/129\"}]}", "/network/deny/0/cidr"},
        {"{\"deny\":[{\"cidr\":7}]}", "/network/deny/0/cidr"},
        {"{\"deny\":[{\"domain\":\"\"}]}", "/network/deny/0/domain"},
        {"{\"deny\":[{\"domain\":\"a..b\"}]}", "/network/deny/0/domain"},
        {"{\"deny\":[{\"domain\":\"-a.b\"}]}", "/network/deny/0/domain"},
        {"{\"deny\":[{\"domain\":\"a b\"}]}", "/network/deny/0/domain"},
        {"{\"deny\":[{\"domain\":\"a.*.b\"}]}", "/network/deny/0/domain"},
        {"{\"deny\":[{\"domain\":\"*\"}]}", "/network/deny/0/domain"},
        {"{\"deny\":[{\"domain\":\"a.b\",\"ports\":0}]}", "/network/deny/0/ports"},
        {"{\"deny\":[{\"domain\":\"a.b\",\"ports\":65536}]}", "/network/deny/0/ports"},
        {"{\"deny\":[{\"domain\":\"a.b\",\"ports\":[]}]}", "/network/deny/0/ports"},
        {"{\"deny\":[{\"domain\":\"a.b\",\"ports\":[1,\"9-8\"]}]}", "/network/deny/0/ports/1"},
        {"{\"deny\":[{\"domain\":\"a.b\",\"ports\":\"1-\"}]}", "/network/deny/0/ports"},
        {"{\"deny\":[{\"domain\":\"a.b\",\"protocol\":\"icmp\"}]}", "/network/deny/0/protocol"},
        {"{\"default\":\"open\"}", "/network/default"},
        {"{\"mode\":\"host\"}", "/network/mode"},
        {"{\"mode\":1}", "/network/mode"},
        {"{\"mode\":\"none\",\"allow\":[{\"domain\":\"a.b\"}]}", "/network/mode"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        kg_net_wish_t wish;
        kg_err_t err;
        if (!parse(rows[i].text, &wish, &err)) {
            fail_msg("%s was taken", rows[i].text);
        }
        assert_int_equal(err.code, KG_ERR_INVALID_REQUEST);
        assert_string_equal(err.pointer, rows[i].pointer);
    }
}

static void rules_have_a_limit(void **state)
{
    (void)state;
    kg_net_wish_t wish;
    kg_err_t err = {0};
    for (int count = KG_NET_RULES_MAX; count <= KG_NET_RULES_MAX + 1; count++) {
        json_t *list = json_array();
        for (int i = 0; i < count; i++) {
            json_array_append_new(list, json_pack("{s:s}", "cidr", "192.0.2.1"));
        }
        json_t *network = json_pack("{s:o}", "deny", list);
        int rc = kg_network_parse(network, &wish, &err);
        assert_int_equal(rc == 0, count == KG_NET_RULES_MAX);
        json_decref(network);
    }
    assert_string_equal(err.pointer, "/network/deny/64");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_modes),
        cmocka_unit_test(rules_are_read),
        cmocka_unit_test(the_default_follows_from_the_rules),
        cmocka_unit_test(mapped_addresses_are_ipv4),
        cmocka_unit_test(what_is_wrong_is_named),
        cmocka_unit_test(rules_have_a_limit),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
