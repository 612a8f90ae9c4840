/* What `sandald doctor` makes of the keeper's tables. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "gateway/base/mem.h"
#include "gateway/cli/doctor.h"

static void add_launcher(kg_kp_launchers_reply_t *table,
                         const char *name,
                         unsigned rank,
                         bool available,
                         const char *reason)
{
    kg_kp_launcher_row_t *row = &table->rows[table->count++];
    (void)snprintf(row->name, sizeof(row->name), "%s", name);
    row->rank = rank;
    row->available = available;
    (void)snprintf(row->reason, sizeof(row->reason), "%s", reason);
}

static void add_feature(kg_kp_features_reply_t *table,
                        const char *name,
                        bool available,
                        const char *how,
                        const char *reason)
{
    kg_kp_feature_row_t *row = &table->rows[table->count++];
    (void)snprintf(row->name, sizeof(row->name), "%s", name);
    row->available = available;
    (void)snprintf(row->how, sizeof(row->how), "%s", how);
    (void)snprintf(row->reason, sizeof(row->reason), "%s", reason);
}

static kg_kp_launchers_reply_t launchers(bool namespace, bool bubblewrap)
{
    kg_kp_launchers_reply_t table = {0};
    add_launcher(&table, "bubblewrap", 20, bubblewrap,
                 bubblewrap ? "" : "no /usr/bin/bwrap (package bubblewrap)");
    add_launcher(&table, "namespace", 100, namespace,
                 namespace ? "" : "new namespaces: Operation not permitted");
    add_launcher(&table, "none", 0, true, "no isolation");
    return table;
}

static void the_best_is_the_default(void **state)
{
    (void)state;
    static const struct {
        bool namespace, bubblewrap;
        const char *wish, *least, *gets; /* NULL = nothing */
    } rows[] = {
        {true, true, "auto", "auto", "namespace"}, {false, true, "auto", "auto", "bubblewrap"},
        {false, false, "auto", "auto", NULL}, /* none and gvisor are taken by name only */
        {false, false, "none", "auto", "none"},    {true, true, "bubblewrap", "auto", "bubblewrap"},
        {true, false, "bubblewrap", "auto", NULL}, {true, true, "gvisor", "auto", "gvisor"},
        {false, true, "auto", "namespace", NULL},  {true, true, "auto", "gvisor", "gvisor"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_doctor_t doctor = {.is_root = true};
        kg_kp_launchers_reply_t table = launchers(rows[i].namespace, rows[i].bubblewrap);
        add_launcher(&table, "gvisor", 200, true, "");
        kg_doctor_launchers(&doctor, &table, rows[i].wish, rows[i].least);
        assert_int_equal(doctor.good, rows[i].gets != NULL);
        assert_string_equal(doctor.isolation, rows[i].gets ? rows[i].gets : "");
        assert_int_equal(doctor.count, 4);
    }
}

/* By what Docker's default profile makes of each. */
static void in_a_container_the_flags_are_named(void **state)
{
    static const struct {
        const char *name, *reason;
    } rows[] = {
        {"namespace", "no place for the roots of sandboxes: Operation not permitted"},
        {"gvisor", "no place for the roots of sandboxes: Operation not permitted"},
        {"bubblewrap", "bwrap: Can't mount proc on /newroot/proc: Operation not permitted"},
    };
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_doctor_t doctor = {.is_root = true};
        kg_kp_launchers_reply_t table = {0};
        add_launcher(&table, rows[i].name, 1, false, rows[i].reason);
        kg_doctor_launchers(&doctor, &table, "auto", "auto");
        assert_non_null(strstr(doctor.lines[0].remedy, "--cap-add SYS_ADMIN"));
        assert_non_null(strstr(doctor.lines[0].remedy, "systempaths=unconfined"));
    }
}

static void what_is_missing_has_a_remedy(void **state)
{
    static const char *const names[] = {"memory",  "pids", "cpu",    "freeze",  "kill",
                                        "account", "disk", "egress", "overlay", "checkpoint"};
    (void)state;
    for (int root = 0; root < 2; root++) {
        kg_doctor_t doctor = {.is_root = root != 0};
        kg_kp_features_reply_t table = {0};
        kg_kp_launchers_reply_t no = launchers(false, false);
        for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
            add_feature(&table, names[i], false, "", "it is missing");
        }
        kg_doctor_features(&doctor, &table);
        kg_doctor_launchers(&doctor, &no, "auto", "auto");
        assert_int_equal(doctor.count, KG_ARRAY_LEN(names) + 3);
        for (size_t i = 0; i + 1 < doctor.count; i++) { /* the last is `none`, which is there */
            assert_int_equal(doctor.lines[i].finding, KG_FINDING_NO);
            assert_true(doctor.lines[i].detail[0] != '\0');
            assert_true(doctor.lines[i].remedy[0] != '\0');
        }
    }
}

static void remedies_fit_the_reason(void **state)
{
    kg_doctor_t doctor = {.is_root = true};
    kg_kp_features_reply_t table = {0};
    (void)state;
    add_feature(&table, "disk", false, "", "btrfs: no mkfs.btrfs (package btrfs-progs); loop: …");
    add_feature(&table, "disk", true, "loop", "btrfs: no mkfs.btrfs (package btrfs-progs)");
    add_feature(&table, "disk", true, "btrfs", "");
    add_feature(&table, "egress", false, "", "");
    kg_doctor_features(&doctor, &table);
    assert_non_null(strstr(doctor.lines[0].remedy, "btrfs-progs"));
    assert_int_equal(doctor.lines[1].finding, KG_FINDING_LIMITED);
    assert_string_equal(doctor.lines[1].detail, "loop: btrfs: no mkfs.btrfs (package btrfs-progs)");
    assert_int_equal(doctor.lines[2].finding, KG_FINDING_OK);
    assert_string_equal(doctor.lines[2].remedy, "");
    assert_string_equal(doctor.lines[3].detail, "not there");
}

/* In plain words, with what to change; a kind that keeps sandboxes apart is simply fine. */
static void sandboxes_that_reach_each_other_are_told_of(void **state)
{
    kg_doctor_t doctor = {.is_root = false};
    kg_kp_launchers_reply_t table = {0};
    (void)state;
    add_launcher(&table, "process", 10, true,
                 "host files by Landlock (ABI 2); " KG_LAUNCHER_NOT_APART " (…)");
    add_launcher(&table, "process", 10, true,
                 "host files by Landlock (ABI 6); same user as the daemon");
    kg_doctor_launchers(&doctor, &table, "process", "auto");
    assert_true(doctor.good);
    assert_int_equal(doctor.lines[0].finding, KG_FINDING_LIMITED);
    assert_non_null(strstr(doctor.lines[0].detail, "reach each other"));
    assert_non_null(strstr(doctor.lines[0].remedy, "Linux 6.12"));
    assert_non_null(strstr(doctor.lines[0].remedy, "root"));
    assert_non_null(strstr(doctor.lines[0].remedy, "one owner"));
    assert_int_equal(doctor.lines[1].finding, KG_FINDING_OK);
    assert_string_equal(doctor.lines[1].remedy, "");
}

static void text_and_json_say_the_same(void **state)
{
    kg_doctor_t doctor = {.is_root = true};
    kg_kp_launchers_reply_t table = launchers(true, false);
    char *text = NULL;
    size_t size = 0;
    (void)state;
    kg_doctor_launchers(&doctor, &table, "auto", "auto");
    FILE *out = open_memstream(&text, &size);
    assert_non_null(out);
    kg_doctor_print(&doctor, out);
    assert_int_equal(fclose(out), 0);
    assert_non_null(strstr(text, "no       bubblewrap       no /usr/bin/bwrap"));
    assert_non_null(strstr(text, "-> install the package bubblewrap\n"));
    assert_non_null(strstr(text, "ok       namespace\n"));
    assert_non_null(strstr(text, "isolation namespace"));
    free(text);

    json_t *made = kg_doctor_json(&doctor);
    assert_non_null(made);
    assert_true(json_is_true(json_object_get(made, "ok")));
    assert_string_equal(json_string_value(json_object_get(made, "isolation")), "namespace");
    json_t *first = json_array_get(json_object_get(made, "checks"), 0);
    assert_string_equal(json_string_value(json_object_get(first, "state")), "no");
    assert_string_equal(json_string_value(json_object_get(first, "name")), "bubblewrap");
    json_decref(made);
}

static void lines_past_the_limit_are_dropped(void **state)
{
    kg_doctor_t doctor = {0};
    (void)state;
    for (size_t i = 0; i < KG_DOCTOR_LINES_MAX; i++) {
        assert_non_null(kg_doctor_add(&doctor, KG_FINDING_OK, "x"));
    }
    assert_null(kg_doctor_add(&doctor, KG_FINDING_OK, "x"));
    assert_int_equal(doctor.count, KG_DOCTOR_LINES_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_is_the_default),
        cmocka_unit_test(in_a_container_the_flags_are_named),
        cmocka_unit_test(what_is_missing_has_a_remedy),
        cmocka_unit_test(remedies_fit_the_reason),
        cmocka_unit_test(sandboxes_that_reach_each_other_are_told_of),
        cmocka_unit_test(text_and_json_say_the_same),
        cmocka_unit_test(lines_past_the_limit_are_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
