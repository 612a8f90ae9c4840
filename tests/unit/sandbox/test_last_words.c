/* What a process had written into its memory file when it ended, by every way to end. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/last_words.h"
#include "tests/unit/sandbox/harness.h"

#define ID_A "sbx-tests000000000000001"

static int setup(void **state)
{
    kg_harness_t *h = calloc(1, sizeof(*h));
    harness_init(h);
    harness_start(h);
    *state = h;
    return 0;
}

static int teardown(void **state)
{
    kg_harness_t *h = *state;
    harness_stop(h);
    harness_fini(h);
    free(h);
    return 0;
}

/* say(stream, begin, end, bytes, lost), then what the test appends. */
static const char *const prelude =
    "import ctypes, mmap, os, struct, sys\n"
    "fd = int(os.environ['SANDAL_LAST_WORDS'])\n"
    "m = mmap.mmap(fd, os.fstat(fd).st_size)\n"
    "def say(stream, begin, end, text=b'', lost=0):\n"
    "    at = 4096 + stream * 262144 + begin\n"
    "    m[at:at + len(text)] = text\n"
    "    m[stream * 16:stream * 16 + 16] = struct.pack('IIQ', begin, end, lost)\n";

static kg_answer_t python(kg_harness_t *h, kg_sbx_t *sbx, const char *code, bool last_words)
{
    char script[4096];
    const char *argv[] = {"/usr/bin/python3", "-c", script, NULL};
    const char *env[] = {"PATH=/usr/bin:/bin", "SANDAL_LAST_WORDS=999", NULL};
    kg_spawn_opts_t opts = {.argv = argv, .env = env, .last_words = last_words};
    (void)snprintf(script, sizeof(script), "%s%s", last_words ? prelude : "", code);
    kg_answer_t a = harness_spawn_opts(h, sbx, &opts);
    assert_non_null(a.proc);
    return a;
}

static int words_of(kg_harness_t *h, kg_sbx_t *sbx, const char *code)
{
    kg_answer_t a = python(h, sbx, code, true);
    (void)harness_exit(h, a.proc);
    int fd = kg_proc_take_last_words(a.proc);
    assert_int_equal(kg_proc_take_last_words(a.proc), -1);
    kg_proc_close(&a.proc);
    return fd;
}

static void expect(int fd, unsigned stream, const char *text, uint64_t lost)
{
    char got[64] = "";
    uint64_t got_lost = 77;
    int n = kg_last_words_read(fd, stream, 0, got, sizeof(got) - 1, &got_lost);
    assert_int_equal(n, strlen(text));
    assert_string_equal(got, text);
    assert_int_equal(got_lost, lost);
    if (n > 1) { /* in pieces */
        assert_int_equal(kg_last_words_read(fd, stream, 1, got, 1, &got_lost), 1);
        assert_int_equal(got[0], text[1]);
    }
    assert_int_equal(kg_last_words_read(fd, stream, (size_t)n, got, 8, &got_lost), 0);
}

static void every_end_leaves_them(void **state)
{
    static const char *const ends[] = {
        "os._exit(3)",   "os.kill(os.getpid(), 9)",         "ctypes.string_at(0)",
        "os.abort()",    "os.execv('/bin/true', ['true'])", "sys.exit(0)",
        "os.kill(0, 9)",
    };
    kg_harness_t *h = *state;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    for (size_t i = 0; i < KG_ARRAY_LEN(ends); i++) {
        char code[256];
        (void)snprintf(code, sizeof(code), "say(0, 2, 7, b'hello')\nsay(1, 0, 3, b'bad', 5)\n%s",
                       ends[i]);
        int fd = words_of(h, sbx, code);
        assert_true(fd >= 0);
        expect(fd, 0, "hello", 0);
        expect(fd, 1, "bad", 5);
        close(fd);
    }
    harness_destroy(h, &sbx, false);
}

static void who_lives_has_said_no_last_word(void **state)
{
    kg_harness_t *h = *state;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    kg_answer_t a = python(h, sbx, "import time\nsay(0, 0, 2, b'hi')\ntime.sleep(2)\n", true);
    assert_int_equal(kg_proc_take_last_words(a.proc), -1);
    (void)harness_exit(h, a.proc);
    int fd = kg_proc_take_last_words(a.proc);
    expect(fd, 0, "hi", 0);
    close(fd);
    kg_proc_close(&a.proc);
    harness_destroy(h, &sbx, false);
}

static void a_daemon_left_behind_delays_nothing(void **state)
{
    kg_harness_t *h = *state;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    int fd = words_of(h, sbx,
                      "say(0, 0, 2, b'hi')\n"
                      "if os.fork() == 0: os.setsid(); os.execv('/bin/sleep', ['sleep', '60'])\n"
                      "os._exit(0)");
    expect(fd, 0, "hi", 0);
    close(fd);
    harness_destroy(h, &sbx, false);
}

static void nothing_said_is_no_file(void **state)
{
    kg_harness_t *h = *state;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    assert_int_equal(words_of(h, sbx, "os._exit(0)"), -1);
    assert_int_equal(words_of(h, sbx, "say(0, 0, 2, b'hi')\nsay(0, 2, 2)\nos._exit(0)"), -1);
    assert_int_equal(words_of(h, sbx, "say(0, 5, 2, b'hi')\nos._exit(0)"), -1);
    assert_int_equal(words_of(h, sbx, "say(0, 0, 262145)\nos._exit(0)"), -1);
    harness_destroy(h, &sbx, false);
}

static void size_is_sealed_and_open_files_are_three(void **state)
{
    kg_harness_t *h = *state;
    char out[256];
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    kg_answer_t a = python(h, sbx,
                           "print(fd, os.fstat(fd).st_size, flush=True)\n"
                           "for size in 0, 1 << 30:\n"
                           "    try: os.ftruncate(fd, size)\n"
                           "    except OSError as e: print(e.errno, flush=True)\n",
                           true);
    harness_read(h, kg_proc_take_stdout(a.proc), out, sizeof(out));
    assert_string_equal(out, "3 528384\n1\n1\n");
    kg_proc_close(&a.proc);
    a = python(h, sbx,
               "import os; print(os.listdir('/proc/self/fd'), os.environ['SANDAL_LAST_WORDS'])",
               false);
    harness_read(h, kg_proc_take_stdout(a.proc), out, sizeof(out));
    assert_string_equal(out, "['0', '1', '2', '3'] 999\n"); /* 3: of listdir */
    (void)harness_exit(h, a.proc);
    assert_int_equal(kg_proc_take_last_words(a.proc), -1);
    kg_proc_close(&a.proc);
    harness_destroy(h, &sbx, false);
}

static void whole_regions_come(void **state)
{
    kg_harness_t *h = *state;
    kg_sbx_t *sbx = harness_sandbox(h, ID_A);
    char *got = malloc(KG_LAST_WORDS_CAP + 1);
    uint64_t lost = 0;
    int fd = words_of(h, sbx,
                      "say(0, 0, 262144, b'a' * 262144, 1 << 40)\n"
                      "say(1, 0, 262144, b'b' * 262144)\nos._exit(0)");
    for (unsigned i = 0; i < 2; i++) {
        assert_int_equal(kg_last_words_read(fd, i, 0, got, KG_LAST_WORDS_CAP + 1, &lost),
                         KG_LAST_WORDS_CAP);
        assert_int_equal(got[0], i ? 'b' : 'a');
        assert_int_equal(got[KG_LAST_WORDS_CAP - 1], i ? 'b' : 'a');
        assert_int_equal(lost, i ? 0 : UINT64_C(1) << 40);
    }
    free(got);
    close(fd);
    harness_destroy(h, &sbx, false);
}

static void what_is_no_memory_file_is_not_read(void **state)
{
    char got[8];
    uint64_t lost = 0;
    int pipes[2];
    (void)state;
    assert_int_equal(pipe2(pipes, O_CLOEXEC), 0);
    assert_int_equal(kg_last_words_read(pipes[0], 0, 0, got, sizeof(got), &lost), -EBADMSG);
    assert_int_equal(kg_last_words_read(-1, 0, 0, got, sizeof(got), &lost), -EBADMSG);
    int fd = memfd_create("short", MFD_CLOEXEC);
    assert_int_equal(kg_last_words_read(fd, 0, 0, got, sizeof(got), &lost), -EBADMSG);
    const kg_last_words_head_t head = {.end = 100};
    assert_int_equal(write(fd, &head, sizeof(head)), sizeof(head));
    assert_int_equal(kg_last_words_read(fd, 0, 0, got, sizeof(got), &lost), 0);
    assert_int_equal(kg_last_words_read(fd, 2, 0, got, sizeof(got), &lost), -EBADMSG);
    close(fd);
    close(pipes[0]);
    close(pipes[1]);
}

static int run_all(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(every_end_leaves_them),
        T(who_lives_has_said_no_last_word),
        T(a_daemon_left_behind_delays_nothing),
        T(nothing_said_is_no_file),
        T(size_is_sealed_and_open_files_are_three),
        T(whole_regions_come),
        cmocka_unit_test(what_is_no_memory_file_is_not_read),
    };
    return cmocka_run_group_tests_name("sandbox last words", tests, NULL, NULL);
}

int main(void)
{
    return harness_run_both(run_all);
}
