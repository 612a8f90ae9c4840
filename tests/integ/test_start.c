/* Starts that go well, slowly, or wrong. */
#include "tests/integ/cases.h"

static void start_plain_readyWithInfoAndFewDescriptors(void **state)
{
    (void)state;
    rig_t rig;
    rig_open(&rig, "fake", "");
    unsigned before = rig_fds();
    assert_int_equal(rig_start(&rig), 0);
    assert_int_equal(kg_kernel_state(rig.kernel), KG_KERNEL_STARTING);
    kg_err_t err = {0};
    const kg_kernel_execute_t args = {.code = kg_slice_cstr("early")};
    const kg_request_sink_t none = {0};
    assert_true(kg_kernel_execute(rig.kernel, &args, &none, NULL, &rig.req, &err) < 0);
    assert_int_equal(err.code, KG_ERR_STARTING);
    assert_true(rig_wait(&rig, &rig.ready, RIG_PATIENCE_MS));
    assert_int_equal(kg_kernel_state(rig.kernel), KG_KERNEL_IDLE);
    assert_non_null(strstr(rig_text(&rig.info), "\"implementation\":\"fake\""));
    rig_turn(&rig, 1200); /* the sockets' own descriptors go a second later, by this loop */
    unsigned after = rig_fds();
    printf("descriptors of an idle kernel: %u; ready after %.1f ms\n", after - before,
           (double)kg_kernel_start_ns(rig.kernel) / 1e6);
    assert_true(after - before <= 12);
    rig_close_kernel(&rig, KG_KERNEL_CLOSE_POLITE);
    rig_expect_fds(&rig, before);
    rig_close(&rig);
}

static void start_slowBind_ready(void **state)
{
    (void)state;
    rig_t rig;
    rig_open(&rig, "fake", "slow_bind:400");
    rig_ready(&rig);
    rig_run(&rig, "print hello");
    assert_string_equal(rig_text(&rig.out), "hello");
    rig_close(&rig);
}

static void start_dies(const char *scenario, const char *text, const char *tail)
{
    rig_t rig;
    rig_open(&rig, "fake", scenario);
    assert_int_equal(rig_start(&rig), 0);
    assert_true(rig_wait(&rig, &rig.failed, RIG_PATIENCE_MS));
    assert_false(rig.ready);
    assert_int_equal(rig.err.code, KG_ERR_KERNEL_START_FAILED);
    assert_int_equal(kg_kernel_state(rig.kernel), KG_KERNEL_DEAD);
    if (!strstr(rig.err.message, text) || !strstr(rig.err.message, tail)) {
        fail_msg("%s: %s", scenario, rig.err.message);
    }
    rig_turn(&rig, 50); /* nothing more comes */
    assert_false(rig.exited);
    rig_close(&rig);
}

static void start_exitBeforeBind_failedWithStatusAndStderr(void **state)
{
    (void)state;
    start_dies("exit_before_bind:7", "exited with status 7", "leaving before bind");
    start_dies("exit_before_info:3", "exited with status 3", "leaving before kernel_info");
}

static void start_segfaultBeforeBind_failedWithSignal(void **state)
{
    (void)state;
    start_dies("segfault_before_bind", "signal 11 (SIGSEGV)", "");
}

static void start_hangs(const char *scenario, const char *text)
{
    rig_t rig;
    rig_open(&rig, "fake", scenario);
    rig.opts.limits.start_ns = 1500 * KG_NS_PER_MS; /* enough to come as far as it hangs */
    assert_int_equal(rig_start(&rig), 0);
    assert_true(rig_wait(&rig, &rig.failed, RIG_PATIENCE_MS));
    assert_int_equal(rig.err.code, KG_ERR_KERNEL_TIMEOUT);
    if (!strstr(rig.err.message, text)) {
        fail_msg("%s: %s", scenario, rig.err.message);
    }
    rig_close(&rig);
}

static void start_hangs_timeoutNamesTheStep(void **state)
{
    (void)state;
    start_hangs("hang_before_bind", "did not open its sockets");
    start_hangs("hang_before_bind", "hanging before bind");
    start_hangs("mute", "did not answer kernel_info");
    start_hangs("silent_iopub:1000000", "nothing came on iopub");
}

static void start_muteChannel_readyByTheOther(void **state)
{
    (void)state;
    const char *const scenarios[] = {"mute_shell", "mute_control", "welcome", "silent_iopub:6"};
    for (size_t i = 0; i < KG_ARRAY_LEN(scenarios); i++) {
        rig_t rig;
        rig_open(&rig, "fake", scenarios[i]);
        rig_ready(&rig);
        rig_run(&rig, "print a\nresult 2");
        assert_int_equal(rig.end.how, KG_REQUEST_DONE);
        assert_string_equal(rig_text(&rig.out), "a");
        assert_string_equal(rig_text(&rig.result), "2");
        rig_close(&rig);
    }
}

static void start_noSuchProgram_failed(void **state)
{
    (void)state;
    rig_t rig;
    rig_open(&rig, "fake", "");
    free(rig.spec->argv[0]);
    rig.spec->argv[0] = strdup("/nonexistent/kernel");
    assert_int_equal(rig_start(&rig), 0);
    assert_true(rig_wait(&rig, &rig.failed, RIG_PATIENCE_MS));
    assert_int_equal(rig.err.code, KG_ERR_KERNEL_START_FAILED);
    assert_non_null(strstr(rig.err.message, "cannot be started"));
    rig_close(&rig);
}

static void close_inEveryStepOfTheStart_leavesNothing(void **state)
{
    (void)state;
    for (unsigned ms = 0; ms < 60; ms += 4) {
        rig_t rig;
        rig_open(&rig, "fake", "");
        unsigned before = rig_fds();
        assert_int_equal(rig_start(&rig), 0);
        rig_turn(&rig, ms);
        rig_close_kernel(&rig, ms % 8 ? KG_KERNEL_CLOSE_NOW : KG_KERNEL_CLOSE_POLITE);
        rig_expect_fds(&rig, before);
        rig_close(&rig);
    }
}

typedef struct crowd {
    kg_kernel_t *kernels[16];
    unsigned ready;
    bool all_ready;
    bool closed[16];
} crowd_t;

static void crowd_ready(void *user, kg_json_value_t info)
{
    (void)info;
    crowd_t *crowd = user;
    crowd->all_ready = ++crowd->ready == KG_ARRAY_LEN(crowd->kernels);
}

static void crowd_closed(void *user)
{
    *(bool *)user = true;
}

static size_t rss_bytes(void)
{
    FILE *f = fopen("/proc/self/statm", "re");
    unsigned long total = 0;
    unsigned long resident = 0;
    assert_int_equal(fscanf(f, "%lu %lu", &total, &resident), 2); /* NOLINT(cert-err34-c) */
    fclose(f);
    return resident * 4096;
}

/* The budget of an idle context is 256 KiB; this is the kernel's part of it. */
static void start_many_smallEach(void **state)
{
    (void)state;
    rig_t rig;
    rig_open(&rig, "fake", "");
    rig_ready(&rig); /* what comes once comes here */
    crowd_t crowd = {0};
    const kg_kernel_sink_t sink = {.on_ready = crowd_ready};
    const kg_kernel_opts_t opts = {.spec = rig.spec};
    size_t before = rss_bytes();
    for (size_t i = 0; i < KG_ARRAY_LEN(crowd.kernels); i++) {
        kg_err_t err = {0};
        assert_int_equal(kg_kernel_start(rig.loop, box_sbx(rig.box), &opts, &sink, &crowd,
                                         &crowd.kernels[i], &err),
                         0);
    }
    assert_true(rig_wait(&rig, &crowd.all_ready, RIG_PATIENCE_MS));
    size_t each = (rss_bytes() - before) / KG_ARRAY_LEN(crowd.kernels);
    printf("memory of an idle kernel in this process: %zu KiB\n", each / 1024);
    /* meson has the allocator write into all memory, sanitizers have their own: no measure then */
    bool plain = !getenv("MALLOC_PERTURB_"); /* NOLINT(concurrency-mt-unsafe) */
#if !defined(__SANITIZE_ADDRESS__) && !defined(__clang__)
    assert_true(!plain || each < 256 * 1024);
#else
    (void)plain;
#endif
    for (size_t i = 0; i < KG_ARRAY_LEN(crowd.kernels); i++) {
        kg_kernel_close(&crowd.kernels[i], KG_KERNEL_CLOSE_NOW, crowd_closed, &crowd.closed[i]);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(crowd.kernels); i++) {
        assert_true(rig_wait(&rig, &crowd.closed[i], RIG_PATIENCE_MS));
    }
    rig_close(&rig);
}

/* Of a kernel that cannot be taken over it is said why, and nothing is left. */
static void adopt_nobodyThere_failed(void **state)
{
    (void)state;
    rig_t rig;
    kg_kernel_memo_t memo = {.name = "kabcdefgh", .session = "sandal-00", .token = 77};
    memset(memo.key, 'a', sizeof(memo.key) - 1);
    assert_true(kg_kernel_memo_valid(&memo));
    rig_open(&rig, "fake", "");
    rig.opts.memo = &memo;
    assert_int_equal(rig_start(&rig), 0);
    assert_true(rig_wait(&rig, &rig.failed, 5000));
    assert_int_equal(rig.err.code, KG_ERR_KERNEL_START_FAILED);
    assert_non_null(strstr(rig.err.message, "cannot be taken over"));
    assert_null(kg_kernel_exit(rig.kernel));
    rig_close(&rig);
}

static void memo_ofALiveKernel_isWhole_othersAreRefused(void **state)
{
    (void)state;
    rig_t rig;
    kg_kernel_memo_t memo = {0};
    rig_open(&rig, "fake", "");
    rig_ready(&rig);
    assert_int_equal(kg_kernel_memo(rig.kernel, &memo), 0);
    assert_true(kg_kernel_memo_valid(&memo));
    kg_kernel_memo_t bad = memo;
    memcpy(bad.name, "../aaaaaa", sizeof(bad.name));
    assert_false(kg_kernel_memo_valid(&bad));
    bad = memo;
    bad.session[3] = '"';
    assert_false(kg_kernel_memo_valid(&bad));
    bad = memo;
    bad.key[10] = '\0';
    assert_false(kg_kernel_memo_valid(&bad));
    bad = memo;
    bad.token = 0;
    assert_false(kg_kernel_memo_valid(&bad));
    rig_close_kernel(&rig, KG_KERNEL_CLOSE_NOW);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(start_plain_readyWithInfoAndFewDescriptors),
        cmocka_unit_test(start_slowBind_ready),
        cmocka_unit_test(start_exitBeforeBind_failedWithStatusAndStderr),
        cmocka_unit_test(start_segfaultBeforeBind_failedWithSignal),
        cmocka_unit_test(start_hangs_timeoutNamesTheStep),
        cmocka_unit_test(start_muteChannel_readyByTheOther),
        cmocka_unit_test(start_noSuchProgram_failed),
        cmocka_unit_test(start_many_smallEach),
        cmocka_unit_test(adopt_nobodyThere_failed),
        cmocka_unit_test(memo_ofALiveKernel_isWhole_othersAreRefused),
        cmocka_unit_test(close_inEveryStepOfTheStart_leavesNothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
