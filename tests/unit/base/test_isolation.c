#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "gateway/base/isolation.h"

static void ranks_are_in_the_contracts_order(void **state)
{
    (void)state;
    static const char *const rising[] = {"none", "process", "bubblewrap", "namespace", "gvisor"};
    for (size_t i = 0; i + 1 < sizeof(rising) / sizeof(rising[0]); i++) {
        assert_true(kg_isolation_rank(rising[i]) < kg_isolation_rank(rising[i + 1]));
    }
    assert_int_equal(kg_isolation_rank("bubblewrap"), kg_isolation_rank("runc"));
    assert_int_equal(kg_isolation_rank("none"), 0);
    assert_int_equal(kg_isolation_rank("concrete"), -1);
    assert_int_equal(kg_isolation_rank("auto"), -1);
}

static void the_floor_is_process_unless_none_is_the_operators_word(void **state)
{
    (void)state;
    assert_string_equal(kg_isolation_floor(NULL, NULL), "process");
    assert_string_equal(kg_isolation_floor(NULL, "namespace"), "process");
    assert_string_equal(kg_isolation_floor(NULL, "none"), "none");
    assert_string_equal(kg_isolation_floor("none", "namespace"), "none");
    assert_string_equal(kg_isolation_floor("bubblewrap", NULL), "bubblewrap");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_are_in_the_contracts_order),
        cmocka_unit_test(the_floor_is_process_unless_none_is_the_operators_word),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
