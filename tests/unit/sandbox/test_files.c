/* Files of a sandbox, through client, keeper and sandal-init; as root and as an ordinary user. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "tests/unit/sandbox/box_rig.h"

/* ---- open ---- */

static void files_belong_to_the_user(void **state)
{
    kg_box_t *b = *state;
    const kg_sbx_info_t *info = kg_sbx_info(b->sbx);
    char path[KG_SBX_PATH_MAX + 32];

    write_file(b, "/workspace/a/b/c.txt", "hello");
    kg_files_answer_t a = files_stat(&b->h, b->sbx, "/workspace/a/b/c.txt", true);
    assert_int_equal(a.err.code, OK);
    assert_string_equal(a.row.name, "c.txt");
    assert_int_equal(a.row.stat.type, KG_FS_FILE);
    assert_int_equal(a.row.stat.mode, 0644);
    assert_int_equal(a.row.stat.uid, inner_uid(b));
    assert_int_equal(a.row.stat.gid, inner_uid(b));
    assert_int_equal(a.row.stat.size, 5);
    a = files_stat(&b->h, b->sbx, "/workspace/a/", true);
    assert_int_equal(a.row.stat.type, KG_FS_DIR);
    assert_int_equal(a.row.stat.mode, 0755);
    assert_int_equal(a.row.stat.uid, inner_uid(b));
    (void)snprintf(path, sizeof(path), "%s/a/b/c.txt", info->workspace); /* as the code sees it */
    expect_file(b, path, "hello");
    sh(b, "test \"$(cat a/b/c.txt)\" = hello && rm -r a && mkdir locked && chmod 0 locked && echo "
          "x > mine && chmod 0 mine");
    if (geteuid() != 0 || info->uid != 0) { /* its own modes bind it */
        assert_int_equal(open_code(b, "/workspace/mine", KG_FS_OPEN_READ), KG_ERR_FORBIDDEN);
        assert_int_equal(open_code(b, "/workspace/locked/x", KG_FS_OPEN_READ), KG_ERR_FORBIDDEN);
    }
    assert_int_equal(open_code(b, "/home/user/.profile", RW | KG_FS_OPEN_CREATE), OK);
    assert_int_equal(files_stat(&b->h, b->sbx, "/workspace", true).err.code, OK);
}

static void flags_of_open_mean_what_they_say(void **state)
{
    kg_box_t *b = *state;

    assert_int_equal(open_code(b, "/workspace/f", KG_FS_OPEN_READ), KG_ERR_NOT_FOUND);
    assert_int_equal(open_code(b, "/workspace/d/f", RW | KG_FS_OPEN_CREATE), KG_ERR_NOT_FOUND);
    assert_int_equal(open_code(b, "/workspace/f", RW | KG_FS_OPEN_CREATE | KG_FS_OPEN_EXCLUSIVE),
                     OK);
    assert_int_equal(open_code(b, "/workspace/f", RW | KG_FS_OPEN_CREATE | KG_FS_OPEN_EXCLUSIVE),
                     KG_ERR_CONFLICT);
    assert_int_equal(open_code(b, "/workspace/f", KG_FS_OPEN_READ | KG_FS_OPEN_DIRECTORY),
                     KG_ERR_CONFLICT);
    assert_int_equal(open_code(b, "/workspace/f/g", KG_FS_OPEN_READ), KG_ERR_CONFLICT);
    assert_int_equal(open_code(b, "/workspace", KG_FS_OPEN_WRITE), KG_ERR_CONFLICT);
    assert_int_equal(open_code(b, "/workspace", KG_FS_OPEN_READ | KG_FS_OPEN_DIRECTORY), OK);
    kg_files_answer_t a = files_open(&b->h, b->sbx, "/workspace/f", KG_FS_OPEN_READ, 0);
    assert_true(fcntl(a.fd, F_GETFL) & O_NONBLOCK);
    assert_true(fcntl(a.fd, F_GETFD) & FD_CLOEXEC);
    assert_int_equal(fcntl(a.fd, F_GETFL) & O_ACCMODE, O_RDONLY);
    close(a.fd);
    a = files_open(&b->h, b->sbx, "/workspace/x", RW | KG_FS_OPEN_CREATE, 04751);
    close(a.fd);
    assert_int_equal(files_stat(&b->h, b->sbx, "/workspace/x", true).row.stat.mode, 04751);
}

static void bad_requests_are_refused_at_once(void **state)
{
    kg_box_t *b = *state;
    char path[KG_FS_PATH_MAX + 1];

    memset(path, 'x', sizeof(path));
    path[0] = '/';
    path[KG_FS_PATH_MAX] = '\0';
    assert_int_equal(kg_fs_stat(b->sbx, path, true, false, NULL, NULL), -ENAMETOOLONG);
    assert_int_equal(kg_fs_stat(b->sbx, "relative", true, false, NULL, NULL), -EINVAL);
    assert_int_equal(kg_fs_stat(b->sbx, "", true, false, NULL, NULL), -EINVAL);
    assert_int_equal(kg_fs_open(b->sbx, "/workspace/x", 0, 0, false, NULL, NULL), -EINVAL);
    assert_int_equal(
        kg_fs_open(b->sbx, "/workspace/x", UINT32_C(256) | KG_FS_OPEN_READ, 0, false, NULL, NULL),
        -EINVAL);
    assert_int_equal(kg_fs_open(b->sbx, "/workspace/x", RW, 010000, false, NULL, NULL), -EINVAL);
    assert_int_equal(kg_fs_list(b->sbx, "/workspace", UINT64_MAX, false, NULL, NULL), -EINVAL);
    kg_fs_move_opts_t move = {.from = "/workspace/x", .to = ""};
    assert_int_equal(kg_fs_move(b->sbx, &move, NULL, NULL), -EINVAL);
    move.to = "/workspace/y";
    move.limit_ms = KG_FS_LIMIT_MS_MAX + 1;
    assert_int_equal(kg_fs_move(b->sbx, &move, NULL, NULL), -EINVAL);
    assert_int_equal(kg_fs_remove(b->sbx, "/workspace/x", true, move.limit_ms, false, NULL, NULL),
                     -EINVAL);
    assert_int_equal(kg_sbx_port_connect(b->sbx, 0, NULL, NULL), -EINVAL);
    path[300] = '\0'; /* one name too long */
    memcpy(path, "/workspace/", 11);
    assert_int_equal(files_stat(&b->h, b->sbx, path, true).err.code, KG_ERR_INVALID_REQUEST);
    /* as long as they may be: whole components, together at the limit */
    for (size_t i = 11; i < KG_FS_PATH_MAX - 1; i++) {
        path[i] = i % 100 == 0 ? '/' : 'y';
    }
    path[KG_FS_PATH_MAX - 1] = '\0';
    assert_int_equal(files_stat(&b->h, b->sbx, path, true).err.code, KG_ERR_NOT_FOUND);
    assert_int_equal(files_mkdir(&b->h, b->sbx, path, 0755, true).err.code, OK);
    assert_int_equal(files_stat(&b->h, b->sbx, path, true).err.code, OK);
    assert_int_equal(kg_fs_stat(b->sbx, "/workspace", true, true, NULL, NULL),
                     0); /* root: the answer says no */
    kg_sbx_forget(b->sbx, NULL);
}

static void nothing_outside_is_reached(void **state)
{
    kg_box_t *b = *state;
    char script[1024];
    const char *const ways[] = {
        "/etc/passwd",
        "/workspace/../../outside",
        "/workspace/abs",
        "/workspace/up",
        "/workspace/root/etc/passwd",
        "/workspace/proc/self/mem",
        "/workspace/dir/abs",
        "/workspacex",
        "/workspace/./../home/x",
        "/home/userx",
        "/",
        "/proc/self/environ",
        "/home/user/../../outside",
        "/workspace/a/../../../outside",
        "/workspace/exe",
    };

    (void)snprintf(
        script, sizeof(script),
        "mkdir a dir; ln -s %s abs; ln -s ../../../../outside up; ln -s / root; ln -s /proc proc; "
        "ln -s %s dir/abs; ln -s /proc/self/exe exe; ln -s ../../../.. away",
        b->outside, b->outside);
    sh(b, script);
    for (size_t i = 0; i < KG_ARRAY_LEN(ways); i++) {
        const char *w = ways[i];
        kg_err_code_t code = open_code(b, w, KG_FS_OPEN_READ);
        if (code == OK) {
            (void)fprintf(stderr, "%s was opened\n", w);
        }
        assert_int_not_equal(code, OK);
        assert_int_not_equal(open_code(b, w, KG_FS_OPEN_WRITE), OK);
        kg_files_answer_t list = files_list(&b->h, b->sbx, w, NULL);
        assert_int_not_equal(list.err.code, OK);
        free(list.rows);
        assert_int_not_equal(files_watch(&b->h, b->sbx, w, -1).err.code, OK);
        assert_int_not_equal(files_stat(&b->h, b->sbx, w, true).err.code, OK);
    }
    assert_int_equal(open_code(b, "/etc/passwd", KG_FS_OPEN_READ), KG_ERR_FORBIDDEN);
    assert_int_equal(open_code(b, "/workspace/abs", KG_FS_OPEN_READ), KG_ERR_FORBIDDEN);
    assert_int_not_equal(open_code(b, "/workspace/abs", RW | KG_FS_OPEN_TEMPORARY), OK);
    assert_int_not_equal(open_code(b, "/workspace/away/new", RW | KG_FS_OPEN_CREATE), OK);
    assert_int_not_equal(files_mkdir(&b->h, b->sbx, "/workspace/away/new", 0777, true).err.code,
                         OK);
    write_file(b, "/workspace/f", "x");
    assert_int_not_equal(
        files_move(&b->h, b->sbx, "/workspace/f", "/workspace/away/f", true).err.code, OK);
    assert_int_not_equal(
        files_move(&b->h, b->sbx, "/workspace/away/outside", "/workspace/g", true).err.code, OK);
    assert_int_not_equal(files_remove(&b->h, b->sbx, "/workspace/away/outside", true).err.code, OK);
    assert_int_not_equal(files_remove(&b->h, b->sbx, "/workspace", true).err.code, OK);
    assert_int_equal(files_remove(&b->h, b->sbx, "/workspace/root", true).err.code,
                     OK); /* the link */
    assert_int_equal(files_remove(&b->h, b->sbx, "/workspace/abs", false).err.code, OK);
    int fd = open(b->outside, O_RDONLY | O_CLOEXEC);
    expect_text(fd, "theirs");
}

/* The sandbox swaps a directory for a link that leads out, as fast as it can. */
static void swapped_paths_lead_nowhere(void **state)
{
    kg_box_t *b = *state;
    char script[1024];
    unsigned fine = 0;

    (void)snprintf(script, sizeof(script),
                   "exec /usr/bin/python3 -c '\n"
                   "import os\n"
                   "os.mkdir(\"real\"); open(\"real/outside\", \"w\").write(\"mine\")\n"
                   "os.symlink(\"%s\", \"link\")\n"
                   "print(1, flush=True)\n"
                   "while True:\n"
                   "    os.symlink(\"real\", \"t1\"); os.rename(\"t1\", \"d\")\n"
                   "    os.symlink(\"link\", \"t2\"); os.rename(\"t2\", \"d\")\n"
                   "'",
                   b->h.dir);
    kg_proc_t *proc = harness_sh(&b->h, b->sbx, script);
    int out = kg_proc_take_stdout(proc);
    struct pollfd p = {.fd = out, .events = POLLIN};
    assert_int_equal(poll(&p, 1, 20000), 1);
    for (int i = 0; i < 300; i++) {
        kg_files_answer_t a = files_open(&b->h, b->sbx, "/workspace/d/outside", KG_FS_OPEN_READ, 0);
        if (a.fd >= 0) {
            expect_text(a.fd, "mine");
            fine++;
        }
        (void)files_remove(&b->h, b->sbx, "/workspace/d/keep", true);
    }
    (void)printf("# %u of 300 opened\n", fine);
    close(out);
    assert_int_equal(kg_proc_kill_tree(proc), 0);
    (void)harness_exit(&b->h, proc);
    kg_proc_close(&proc);
    int fd = open(b->outside, O_RDONLY | O_CLOEXEC);
    expect_text(fd, "theirs");
}

static void nothing_hangs(void **state)
{
    kg_box_t *b = *state;
    const char *const odd[] = {"/workspace/fifo", "/workspace/sock", "/workspace/tofifo"};

    sh(b, "mkfifo fifo; ln -s fifo tofifo; ln -s loop loop; /usr/bin/python3 -c 'import socket\n"
          "s = socket.socket(socket.AF_UNIX)\ns.bind(\"sock\")'");
    for (size_t i = 0; i < KG_ARRAY_LEN(odd); i++) {
        assert_int_equal(open_code(b, odd[i], KG_FS_OPEN_READ), KG_ERR_CONFLICT);
        assert_int_equal(open_code(b, odd[i], KG_FS_OPEN_WRITE), KG_ERR_CONFLICT);
        assert_int_equal(open_code(b, odd[i], RW | KG_FS_OPEN_CREATE), KG_ERR_CONFLICT);
        assert_int_equal(open_code(b, odd[i], RW | KG_FS_OPEN_TEMPORARY), KG_ERR_CONFLICT);
    }
    kg_files_answer_t a = files_stat(&b->h, b->sbx, "/workspace/fifo", true);
    assert_int_equal(a.row.stat.type, KG_FS_OTHER);
    assert_int_equal(open_code(b, "/workspace/loop", KG_FS_OPEN_READ), KG_ERR_CONFLICT);
    assert_int_equal(open_code(b, "/workspace/loop", RW | KG_FS_OPEN_TEMPORARY), KG_ERR_CONFLICT);
    assert_int_equal(files_remove(&b->h, b->sbx, "/workspace/fifo", false).err.code, OK);
}

/* ---- atomic writes ---- */

static char *temp_of(kg_box_t *b, const char *path, const char *text)
{
    kg_files_answer_t a = files_open(
        &b->h, b->sbx, path, KG_FS_OPEN_WRITE | KG_FS_OPEN_TEMPORARY | KG_FS_OPEN_PARENTS, 0640);
    if (a.err.code != OK) {
        (void)fprintf(stderr, "%s\n", a.err.message);
    }
    assert_int_equal(a.err.code, OK);
    assert_true(a.name[0] == '/');
    assert_int_equal(write(a.fd, text, strlen(text)), strlen(text));
    close(a.fd);
    return strdup(a.name);
}

static void put_is_all_or_nothing(void **state)
{
    kg_box_t *b = *state;
    char *temp = temp_of(b, "/workspace/new/dir/f", "one");

    assert_int_equal(open_code(b, "/workspace/new/dir/f", KG_FS_OPEN_READ), KG_ERR_NOT_FOUND);
    kg_files_answer_t a = files_put(&b->h, b->sbx, temp, "/workspace/new/dir/f");
    assert_int_equal(a.err.code, OK);
    assert_true(a.created);
    assert_int_equal(files_put(&b->h, b->sbx, temp, "/workspace/new/dir/f").err.code,
                     KG_ERR_NOT_FOUND);
    free(temp);
    expect_file(b, "/workspace/new/dir/f", "one");
    assert_int_equal(files_stat(&b->h, b->sbx, "/workspace/new/dir/f", true).row.stat.mode, 0640);

    temp = temp_of(b, "/workspace/new/dir/f", "two");
    expect_file(b, "/workspace/new/dir/f", "one");
    a = files_put(&b->h, b->sbx, temp, "/workspace/new/dir/f");
    assert_false(a.created);
    expect_file(b, "/workspace/new/dir/f", "two");
    free(temp);

    temp = temp_of(b, "/workspace/new/dir/f", "three"); /* given up */
    assert_int_equal(files_put(&b->h, b->sbx, temp, NULL).err.code, OK);
    expect_file(b, "/workspace/new/dir/f", "two");
    free(temp);
    a = files_list(&b->h, b->sbx, "/workspace/new/dir", NULL);
    assert_int_equal(a.count, 1);
    free(a.rows);
    /* nothing but its own temporary files is moved so */
    assert_int_equal(files_put(&b->h, b->sbx, "/workspace/new/dir/f", "/workspace/g").err.code,
                     KG_ERR_NOT_FOUND);
}

static void put_goes_through_links(void **state)
{
    kg_box_t *b = *state;

    sh(b, "mkdir data; echo -n old > data/f; ln -s data/f one; ln -s one two; ln -s data/none "
          "dangling");
    char *temp = temp_of(b, "/workspace/two", "new");
    assert_int_equal(strncmp(temp, "/workspace/data/", 16), 0); /* beside the file itself */
    assert_false(files_put(&b->h, b->sbx, temp, "/workspace/two").created);
    free(temp);
    expect_file(b, "/workspace/data/f", "new");
    assert_int_equal(files_stat(&b->h, b->sbx, "/workspace/two", false).row.stat.type,
                     KG_FS_SYMLINK);
    temp = temp_of(b, "/workspace/dangling", "there");
    assert_true(files_put(&b->h, b->sbx, temp, "/workspace/dangling").created);
    free(temp);
    expect_file(b, "/workspace/data/none", "there");
    /* a directory came into its place meanwhile: the file waits, and can be put elsewhere */
    temp = temp_of(b, "/workspace/late", "late");
    sh(b, "mkdir late");
    assert_int_equal(files_put(&b->h, b->sbx, temp, "/workspace/late").err.code, KG_ERR_CONFLICT);
    assert_int_equal(files_put(&b->h, b->sbx, temp, "/workspace/late/f").err.code, OK);
    free(temp);
    expect_file(b, "/workspace/late/f", "late");
    assert_int_equal(open_code(b, "/workspace/late", RW | KG_FS_OPEN_TEMPORARY), KG_ERR_CONFLICT);
}

static void on_open_never(void *user, int fd, const char *name, const kg_err_t *err)
{
    (void)user;
    (void)fd;
    (void)name;
    (void)err;
    fail();
}

static void forgotten_temporary_files_go(void **state)
{
    kg_box_t *b = *state;
    int mark = 0;
    assert_int_equal(kg_fs_open(b->sbx, "/workspace/f", RW | KG_FS_OPEN_TEMPORARY, 0644, false,
                                on_open_never, &mark),
                     0);
    kg_sbx_forget(b->sbx, &mark);
    kg_files_answer_t a = {0};
    for (int i = 0; i < 100; i++) { /* it comes, and goes */
        harness_spin(&b->h, 20);
        free(a.rows);
        a = files_list(&b->h, b->sbx, "/workspace", NULL);
        if (i > 2 && a.count == 0) {
            break;
        }
    }
    assert_int_equal(a.count, 0);
    free(a.rows);
}

/* ---- directories ---- */

static void any_name_comes_through(void **state)
{
    kg_box_t *b = *state;
    const char *const names[] = {
        "\xff\xfe bad", "new\nline", "\xe4\xbd\xa0\xe5\xa5\xbd", " ", "-rf", "\x01", "*"};

    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        char path[64];
        (void)snprintf(path, sizeof(path), "/workspace/%s", names[i]);
        write_file(b, path, "x");
        assert_string_equal(files_stat(&b->h, b->sbx, path, true).row.name, names[i]);
    }
    sh(b, "ln -s \"$(printf 'to\\377')\" link");
    kg_files_answer_t a = files_list(&b->h, b->sbx, "/workspace", NULL);
    assert_int_equal(a.count, KG_ARRAY_LEN(names) + 1);
    for (size_t i = 0; i < KG_ARRAY_LEN(names); i++) {
        size_t found = 0;
        for (size_t n = 0; n < a.count; n++) {
            found += strcmp(a.rows[n].name, names[i]) == 0;
        }
        assert_int_equal(found, 1);
    }
    free(a.rows);
    kg_files_answer_t s = files_stat(&b->h, b->sbx, "/workspace/link", false);
    assert_string_equal(s.row.target, "to\xff");
    s = files_stat(&b->h, b->sbx, "/workspace/\xff no", true);
    assert_string_equal(s.err.message, "/workspace/? no: No such file or directory");
}

static int compare_names(const void *a, const void *b)
{
    const kg_files_row_t *x = a;
    const kg_files_row_t *y = b;
    return strcmp(x->name, y->name);
}

static void ten_thousand_entries_are_listed(void **state)
{
    kg_box_t *b = *state;
    char want[32];
    unsigned calls = 0;

    for (int i = 0; i < 10; i++) { /* a busy machine takes its time for each thousand */
        char script[128];
        (void)snprintf(script, sizeof(script),
                       "mkdir -p many; cd many; seq -f 'entry-%%05g' %d %d | xargs touch", i * 1000,
                       i * 1000 + 999);
        sh(b, script);
    }
    kg_files_answer_t a = files_list(&b->h, b->sbx, "/workspace/many", &calls);
    assert_int_equal(a.err.code, OK);
    assert_int_equal(a.count, 10000);
    assert_true(calls >= 10000 / KG_FS_LIST_ROWS);
    qsort(a.rows, a.count, sizeof(*a.rows), compare_names);
    for (size_t i = 0; i < a.count; i++) {
        (void)snprintf(want, sizeof(want), "entry-%05zu", i);
        assert_string_equal(a.rows[i].name, want);
    }
    free(a.rows);
    assert_int_equal(files_remove(&b->h, b->sbx, "/workspace/many", false).err.code,
                     KG_ERR_CONFLICT);
    assert_int_equal(files_remove(&b->h, b->sbx, "/workspace/many", true).err.code, OK);
    assert_int_equal(files_stat(&b->h, b->sbx, "/workspace/many", true).err.code, KG_ERR_NOT_FOUND);
    /* entries as big as they can be: fewer in a frame */
    sh(b, "mkdir big; cd big; /usr/bin/python3 -c 'import os\n"
          "for i in range(60): os.symlink(\"t\" * 4000, \"%03d\" % i + \"n\" * 252)'");
    a = files_list(&b->h, b->sbx, "/workspace/big", &calls);
    assert_int_equal(a.count, 60);
    assert_true(calls > 4);
    free(a.rows);
}

static void mkdir_makes_parents_when_asked(void **state)
{
    kg_box_t *b = *state;
    assert_int_equal(files_mkdir(&b->h, b->sbx, "/workspace/a/b", 0700, false).err.code,
                     KG_ERR_NOT_FOUND);
    assert_int_equal(files_mkdir(&b->h, b->sbx, "/workspace/a/b/", 0700, true).err.code, OK);
    assert_int_equal(files_stat(&b->h, b->sbx, "/workspace/a/b", true).row.stat.mode, 0700);
    assert_int_equal(files_mkdir(&b->h, b->sbx, "/workspace/a/b", 0700, true).err.code, OK);
    assert_int_equal(files_mkdir(&b->h, b->sbx, "/workspace/a/b", 0700, false).err.code,
                     KG_ERR_CONFLICT);
    assert_int_equal(files_mkdir(&b->h, b->sbx, "/workspace", 0700, true).err.code, OK);
    write_file(b, "/workspace/f", "");
    assert_int_equal(files_mkdir(&b->h, b->sbx, "/workspace/f", 0700, true).err.code,
                     KG_ERR_CONFLICT);
    assert_int_equal(files_mkdir(&b->h, b->sbx, "/workspace/f/x", 0700, true).err.code,
                     KG_ERR_CONFLICT);
    assert_int_equal(files_mkdir(&b->h, b->sbx, "/workspace/a/..", 0700, false).err.code,
                     KG_ERR_CONFLICT);
}

static void move_overwrites_only_when_asked(void **state)
{
    kg_box_t *b = *state;
    write_file(b, "/workspace/a", "a");
    write_file(b, "/workspace/b", "b");
    assert_int_equal(files_move(&b->h, b->sbx, "/workspace/a", "/workspace/b", false).err.code,
                     KG_ERR_CONFLICT);
    expect_file(b, "/workspace/b", "b");
    assert_int_equal(files_move(&b->h, b->sbx, "/workspace/a", "/workspace/b", true).err.code, OK);
    expect_file(b, "/workspace/b", "a");
    assert_int_equal(files_move(&b->h, b->sbx, "/workspace/a", "/workspace/c", true).err.code,
                     KG_ERR_NOT_FOUND);
    sh(b, "mkdir d full; echo > full/x; ln -s nowhere l");
    assert_int_equal(files_move(&b->h, b->sbx, "/workspace/d", "/workspace/full", true).err.code,
                     KG_ERR_CONFLICT);
    assert_int_equal(files_move(&b->h, b->sbx, "/workspace/full", "/workspace/d", false).err.code,
                     KG_ERR_CONFLICT);
    assert_int_equal(files_move(&b->h, b->sbx, "/workspace/full", "/workspace/d", true).err.code,
                     OK);
    assert_int_equal(files_move(&b->h, b->sbx, "/workspace/d", "/workspace/d/in", false).err.code,
                     KG_ERR_INVALID_REQUEST);
    assert_int_equal(files_move(&b->h, b->sbx, "/workspace/l", "/workspace/m", false).err.code,
                     OK); /* the link itself */
    assert_int_equal(files_stat(&b->h, b->sbx, "/workspace/m", false).row.stat.type, KG_FS_SYMLINK);
    assert_int_equal(files_move(&b->h, b->sbx, "/workspace/b", "/home/user/b", false).err.code, OK);
    expect_file(b, "/home/user/b", "a");
}

static void remove_takes_what_it_is_told(void **state)
{
    kg_box_t *b = *state;
    char script[256];
    (void)snprintf(script, sizeof(script),
                   "mkdir -p d/e/f; echo > d/e/x; mkdir d/locked; echo > d/locked/y; chmod 0 "
                   "d/locked; ln -s %s d/out; mkdir empty",
                   b->outside);
    sh(b, script);
    assert_int_equal(files_remove(&b->h, b->sbx, "/workspace/none", true).err.code,
                     KG_ERR_NOT_FOUND);
    assert_int_equal(files_remove(&b->h, b->sbx, "/workspace/empty", false).err.code, OK);
    assert_int_equal(files_remove(&b->h, b->sbx, "/workspace/d", false).err.code, KG_ERR_CONFLICT);
    assert_int_equal(files_remove(&b->h, b->sbx, "/workspace/d", true).err.code, OK);
    assert_int_equal(files_stat(&b->h, b->sbx, "/workspace/d", false).err.code, KG_ERR_NOT_FOUND);
    assert_int_equal(access(b->outside, F_OK), 0);
}

static void never_stat(void *user, const kg_fs_entry_t *entry, const kg_err_t *err)
{
    (void)entry;
    kg_files_answer_t *a = user;
    a->come = true;
    a->err = *err;
    kg_loop_stop(a->h->loop);
}

static void lost_sandbox_fails_file_requests(void **state)
{
    kg_box_t *b = *state;
    kg_files_answer_t a = {.h = &b->h};
    assert_int_equal(kill(kg_sbx_info(b->sbx)->init_pid, SIGSTOP), 0);
    assert_int_equal(kg_fs_stat(b->sbx, "/workspace", true, false, never_stat, &a), 0);
    assert_int_equal(kill(kg_sbx_info(b->sbx)->init_pid, SIGKILL), 0);
    harness_wait(&b->h, &a.come);
    assert_int_not_equal(a.err.code, OK);
    assert_int_equal(kg_fs_stat(b->sbx, "/workspace", true, false, never_stat, &a), -EPIPE);
    assert_int_equal(kg_sbx_port_connect(b->sbx, 1, NULL, NULL), -EPIPE);
}
static int run(void)
{
#define T(name) cmocka_unit_test_setup_teardown(name, setup, teardown)
    const struct CMUnitTest tests[] = {
        T(files_belong_to_the_user),
        T(flags_of_open_mean_what_they_say),
        T(bad_requests_are_refused_at_once),
        T(nothing_outside_is_reached),
        T(swapped_paths_lead_nowhere),
        T(nothing_hangs),
        T(put_is_all_or_nothing),
        T(put_goes_through_links),
        T(forgotten_temporary_files_go),
        T(any_name_comes_through),
        T(ten_thousand_entries_are_listed),
        T(mkdir_makes_parents_when_asked),
        T(move_overwrites_only_when_asked),
        T(remove_takes_what_it_is_told),
        T(lost_sandbox_fails_file_requests),
    };
#define N(name) cmocka_unit_test_setup_teardown(name, setup_namespace, teardown)
    const struct CMUnitTest inside[] = {
        N(files_belong_to_the_user),
        N(flags_of_open_mean_what_they_say),
        N(nothing_hangs),
        N(put_is_all_or_nothing),
        N(put_goes_through_links),
        N(forgotten_temporary_files_go),
        N(any_name_comes_through),
        N(ten_thousand_entries_are_listed),
        N(mkdir_makes_parents_when_asked),
        N(move_overwrites_only_when_asked),
    };
    if (geteuid() != 0) {
        return cmocka_run_group_tests_name("sandbox files, rootless", tests, NULL, NULL);
    }
    return cmocka_run_group_tests_name("sandbox files, root", tests, NULL, NULL) +
           cmocka_run_group_tests_name("sandbox files, namespace", inside, NULL, NULL);
}

int main(void)
{
    (void)signal(SIGPIPE, SIG_IGN);
    return harness_run_both(run);
}
