/* The keeper's table: what zygotes may keep of its slots. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "gateway/sandbox/keeper.h"

#define SLOTS 64
#define ZYGOTES (KEEPER_ZYGOTE_SHARE / KEEPER_ZYGOTES_SHARE)

static int setup(void **state)
{
    kg_keeper_t *k = calloc(1, sizeof(*k));
    assert_non_null(k);
    k->host.is_root = true;
    k->host.uid_base = KEEPER_UID_BASE_DEFAULT;
    k->host.slot_count = SLOTS;
    k->slot_used = calloc(SLOTS, 1);
    assert_non_null(k->slot_used);
    *state = k;
    return 0;
}

static int teardown(void **state)
{
    kg_keeper_t *k = *state;
    while (k->sandboxes) {
        keeper_drop(k, k->sandboxes);
    }
    free(k->slot_used);
    free(k);
    return 0;
}

static void zygotes_keep_no_more_than_half(void **state)
{
    kg_keeper_t *k = *state;
    kg_sb_t *zygotes[ZYGOTES + 1];
    kg_sb_t *sb = NULL;
    char id[KG_KP_ID_MAX];

    for (unsigned i = 0; i < ZYGOTES; i++) {
        (void)snprintf(id, sizeof(id), "sbx-zygote%u", i);
        assert_int_equal(keeper_add_zygote(k, id, &zygotes[i]), 0);
        assert_int_equal(zygotes[i]->slots, SLOTS / KEEPER_ZYGOTE_SHARE);
    }
    assert_int_equal(keeper_add_zygote(k, "sbx-one-more", &zygotes[ZYGOTES]), -EDQUOT);
    for (unsigned i = 0; i < SLOTS - SLOTS / KEEPER_ZYGOTES_SHARE;
         i++) { /* the rest is anybody's */
        (void)snprintf(id, sizeof(id), "sbx-plain%u", i);
        assert_int_equal(keeper_add(k, id, &sb), 0);
    }
    assert_int_equal(keeper_add(k, "sbx-last", &sb), -EDQUOT);
    keeper_drop(k, zygotes[0]);
    assert_int_equal(keeper_add_zygote(k, "sbx-one-more", &zygotes[0]), 0);
}

static void below_a_zygote_there_are_its_own_slots(void **state)
{
    kg_keeper_t *k = *state;
    kg_sb_t *zygote = NULL;
    kg_sb_t *sb = NULL;
    char id[KG_KP_ID_MAX];

    assert_int_equal(keeper_add_zygote(k, "sbx-zygote", &zygote), 0);
    for (uint32_t i = 1; i < zygote->slots; i++) {
        (void)snprintf(id, sizeof(id), "sbx-below%u", i);
        assert_int_equal(keeper_add_below(k, id, zygote, &sb), 0);
        assert_int_equal(sb->base, zygote->base + i * KG_UID_RANGE);
    }
    assert_int_equal(keeper_add_below(k, "sbx-below-last", zygote, &sb), -EDQUOT);
    keeper_drop(k, keeper_find(k, "sbx-below1"));
    assert_int_equal(keeper_add_below(k, "sbx-below-last", zygote, &sb), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(zygotes_keep_no_more_than_half, setup, teardown),
        cmocka_unit_test_setup_teardown(below_a_zygote_there_are_its_own_slots, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
