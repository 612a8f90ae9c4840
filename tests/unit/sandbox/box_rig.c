/* A sandbox for each test of what is in one. */
#include "tests/unit/sandbox/box_rig.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static kg_sbx_t *make_sandbox(kg_harness_t *h, const char *launcher)
{
    kg_answer_t a = harness_create(h, ID_A, launcher, false);
    if (a.failed) {
        (void)fprintf(stderr, "create: %s\n", a.err.message);
    }
    assert_non_null(a.sbx);
    return a.sbx;
}

static int setup_with(void **state, const char *launcher)
{
    kg_box_t *b = calloc(1, sizeof(*b));
    harness_init(&b->h);
    harness_start(&b->h);
    b->sbx = make_sandbox(&b->h, launcher);
    (void)snprintf(b->outside, sizeof(b->outside), "%s/outside", b->h.dir);
    int fd = open(b->outside, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(write(fd, "theirs", 6), 6);
    assert_int_equal(fchmod(fd, 0666), 0);
    close(fd);
    *state = b;
    return 0;
}

int setup(void **state)
{
    return setup_with(state, "none");
}

int setup_namespace(void **state)
{
    return setup_with(state, "namespace");
}

int teardown(void **state)
{
    kg_box_t *b = *state;
    harness_destroy(&b->h, &b->sbx, false);
    harness_stop(&b->h);
    harness_fini(&b->h);
    free(b);
    return 0;
}

void sh(kg_box_t *b, const char *script)
{
    kg_proc_t *proc = harness_sh(&b->h, b->sbx, script);
    kg_exit_t exit = harness_exit(&b->h, proc);
    if (exit.code != 0) {
        char text[1024];
        harness_read(&b->h, kg_proc_take_stderr(proc), text, sizeof(text));
        (void)fprintf(stderr, "%s: %s\n", script, text);
    }
    assert_int_equal(exit.code, 0);
    kg_proc_close(&proc);
}

void expect_text(int fd, const char *want)
{
    char text[256] = "";
    assert_true(fd >= 0);
    ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
    assert_true(n >= 0);
    assert_string_equal(text, want);
    close(fd);
}

void write_file(kg_box_t *b, const char *path, const char *text)
{
    kg_files_answer_t a = files_open(
        &b->h, b->sbx, path, KG_FS_OPEN_WRITE | KG_FS_OPEN_CREATE | KG_FS_OPEN_PARENTS, 0644);
    assert_int_equal(a.err.code, OK);
    assert_int_equal(write(a.fd, text, strlen(text)), strlen(text));
    close(a.fd);
}

void expect_file(kg_box_t *b, const char *path, const char *want)
{
    kg_files_answer_t a = files_open(&b->h, b->sbx, path, KG_FS_OPEN_READ, 0);
    if (a.err.code != OK) {
        (void)fprintf(stderr, "%s\n", a.err.message);
    }
    expect_text(a.fd, want);
}

kg_err_code_t open_code(kg_box_t *b, const char *path, uint32_t flags)
{
    kg_files_answer_t a = files_open(&b->h, b->sbx, path, flags, 0644);
    if (a.fd >= 0) {
        close(a.fd);
    }
    return a.err.code;
}

/* As the sandbox sees itself. */
uid_t inner_uid(const kg_box_t *b)
{
    const kg_sbx_info_t *info = kg_sbx_info(b->sbx);
    return info->own_root ? 1000 : info->uid;
}
