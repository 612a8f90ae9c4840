#include "tests/unit/context/rig.h"

#include <ftw.h>
#include <signal.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysinfo.h>
#include <sys/wait.h>

#include "gateway/base/clock.h"
#include "gateway/base/log.h"
#include "gateway/run/reader.h"
#include "tests/uid_range.h"

/* ---- places ---- */

static void write_file(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(0, fclose(file));
    assert_int_equal(0, chmod(path, 0644));
}

static void copy_startup(const char *to, const char *name)
{
    char command[512];
    (void)snprintf(command, sizeof(command), "install -m 644 %s/%s %s/", TEST_STARTUP, name, to);
    assert_int_equal(0, system(command)); // NOLINT(cert-env33-c)
}

static void make_template(rig_t *rig)
{
    char dir[192];
    char path[256];
    (void)snprintf(dir, sizeof(dir), "%s/testpy", rig->templates);
    assert_int_equal(0, mkdir(dir, 0755));
    (void)snprintf(path, sizeof(path), "%s/template.json", dir);
    write_file(path, "{\"name\":\"testpy\",\"description\":\"d\",\"main_language\":\"python\","
                     "\"languages\":{\"python\":{\"kernel\":\"kernel.json\",\"aliases\":[\"py\"]},"
                     "\"broken\":{\"kernel\":\"broken.json\"}},"
                     "\"home_skel\":\"{template_dir}/skel\",\"env\":{\"FROM_TEMPLATE\":\"yes\"}}");
    (void)snprintf(path, sizeof(path), "%s/kernel.json", dir);
    write_file(
        path,
        "{\"argv\":[\"/usr/bin/"
        "python3\",\"-m\",\"ipykernel_launcher\",\"-f\",\"{connection_file}\","
        "\"--HistoryManager.enabled=False\"],\"display_name\":\"p\",\"language\":\"python\","
        "\"interrupt_mode\":\"message\",\"env\":{\"PYTHONPATH\":\"{template_dir}/startup\"}}");
    (void)snprintf(path, sizeof(path), "%s/broken.json", dir);
    write_file(
        path,
        "{\"argv\":[\"/bin/sh\",\"-c\",\"echo it is broken >&2; exit 7\",\"{connection_file}\"],"
        "\"display_name\":\"b\",\"language\":\"broken\"}");
    char quick[192];
    (void)snprintf(quick, sizeof(quick), "%s/nodebug", rig->templates);
    assert_int_equal(0, mkdir(quick, 0755));
    (void)snprintf(path, sizeof(path), "%s/template.json", quick);
    write_file(path, "{\"name\":\"nodebug\",\"description\":\"d\",\"main_language\":\"python\","
                     "\"languages\":{\"python\":{\"kernel\":\"kernel.json\"}},\"debugger\":false}");
    (void)snprintf(path, sizeof(path), "%s/kernel.json", quick);
    write_file(path,
               "{\"argv\":[\"/usr/bin/"
               "python3\",\"-m\",\"ipykernel_launcher\",\"-f\",\"{connection_file}\","
               "\"--HistoryManager.enabled=False\"],\"display_name\":\"p\",\"language\":\"python\","
               "\"interrupt_mode\":\"message\",\"env\":{\"PYTHONPATH\":"
               "\"{template_dir}/../testpy/startup:${PYTHONPATH}\"}}");
    char other[192];
    (void)snprintf(other, sizeof(other), "%s/unlucky", rig->templates);
    assert_int_equal(0, mkdir(other, 0755));
    (void)snprintf(path, sizeof(path), "%s/template.json", other);
    write_file(path, "{\"name\":\"unlucky\",\"description\":\"d\",\"main_language\":\"bad\","
                     "\"languages\":{\"bad\":{\"kernel\":\"k.json\"}}}");
    (void)snprintf(path, sizeof(path), "%s/k.json", other);
    write_file(path, "{\"argv\":[\"/bin/sh\",\"-c\",\"exit 9\",\"{connection_file}\"],"
                     "\"display_name\":\"b\",\"language\":\"bad\"}");
    char bare[192];
    (void)snprintf(bare, sizeof(bare), "%s/bare", rig->templates);
    assert_int_equal(0, mkdir(bare, 0755));
    (void)snprintf(path, sizeof(path), "%s/template.json", bare);
    write_file(path, "{\"name\":\"bare\",\"description\":\"d\",\"main_language\":\"python\","
                     "\"languages\":{},\"env\":{\"FROM_TEMPLATE\":\"yes\"}}");
    (void)snprintf(path, sizeof(path), "%s/startup", dir);
    assert_int_equal(0, mkdir(path, 0755));
    copy_startup(path, "sandal_context.py");
    char hidden[300];
    (void)snprintf(hidden, sizeof(hidden), "%s/no_debugger", path);
    assert_int_equal(0, mkdir(hidden, 0755));
    copy_startup(hidden, "no_debugger/debugpy.py");
    (void)snprintf(path, sizeof(path), "%s/skel", dir);
    assert_int_equal(0, mkdir(path, 0755));
    (void)snprintf(path, sizeof(path), "%s/skel/.cached", dir);
    write_file(path, "x");
}

void rig_dirs(rig_t *rig)
{
    (void)snprintf(rig->dir, sizeof(rig->dir), "/tmp/kgc-XXXXXX");
    assert_non_null(mkdtemp(rig->dir));
    assert_int_equal(0, chmod(rig->dir, 0755));
    (void)snprintf(rig->state, sizeof(rig->state), "%s/state", rig->dir);
    (void)snprintf(rig->runtime, sizeof(rig->runtime), "%s/r", rig->dir);
    (void)snprintf(rig->templates, sizeof(rig->templates), "%s/templates", rig->dir);
    assert_int_equal(0, mkdir(rig->state, 0755));
    assert_int_equal(0, mkdir(rig->templates, 0755));
    make_template(rig);
    rig->uid_base = test_uid_base(0xe0000000U, 0x200000U, 120, (unsigned)getpid());
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
    (void)st;
    (void)type;
    (void)ftw;
    return remove(path);
}

void rig_remove(rig_t *rig)
{
    (void)nftw(rig->dir, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

/* ---- the loop ---- */

/* How much longer than on a machine of one's own things may take: by the processes that want to
 * run. */
static uint64_t slack(void)
{
    double load = 0;
    unsigned now = 0;
    FILE *file = fopen("/proc/loadavg", "r");
    if (file) {
        (void)!fscanf(file, "%lf %*f %*f %u", &load, &now); // NOLINT(cert-err34-c)
        (void)fclose(file);
    }
    uint64_t most = now > load ? now : (uint64_t)load;
    return 2 + 2 * most / (uint64_t)get_nprocs();
}

static void on_poll(void *user)
{
    rig_t *rig = user;
    uint64_t now = kg_now_ns();
    if (rig->pred && rig->pred(rig->pred_arg)) {
        kg_loop_stop(rig->loop);
    } else if (now > rig->give_up_ns &&
               (!rig->pred || now > rig->give_up_ns + rig->give_up_after_ns * slack())) {
        rig->timed_out = true;
        kg_loop_stop(rig->loop);
    }
}

static uint64_t spin(rig_t *rig, bool (*pred)(void *arg), void *arg, unsigned ms)
{
    uint64_t begun = kg_now_ns();
    rig->pred = pred;
    rig->pred_arg = arg;
    rig->give_up_after_ns = ms * KG_NS_PER_MS;
    rig->give_up_ns = begun + rig->give_up_after_ns;
    rig->timed_out = false;
    kg_timer_start(rig->poll, 0, KG_NS_PER_MS);
    (void)kg_loop_run(rig->loop);
    kg_timer_stop(rig->poll);
    return (kg_now_ns() - begun) / KG_NS_PER_MS;
}

uint64_t rig_until(rig_t *rig, bool (*pred)(void *arg), void *arg, unsigned ms)
{
    uint64_t took = spin(rig, pred, arg, ms);
    if (rig->timed_out) {
        fail_msg("not within %u ms", ms);
    }
    return took;
}

void rig_turn(rig_t *rig, unsigned ms)
{
    (void)spin(rig, NULL, NULL, ms);
}

static bool was_called(void *arg)
{
    return ((rig_t *)arg)->called;
}

void rig_called(rig_t *rig, unsigned ms)
{
    (void)rig_until(rig, was_called, rig, ms);
}

/* ---- start and stop ---- */

static void on_keeper(void *user, kg_keeper_event_t event, const kg_err_t *err)
{
    rig_t *rig = user;
    if (rig->core) {
        kg_core_keeper_event(rig->core, event, err);
    }
    rig->called = true;
}

void rig_start(rig_t *rig)
{
    const char *dirs[] = {rig->templates};
    kg_keeper_private_t opts = {
        .keeper_exe = getenv("SANDAL_TEST_KEEPER"),
        .init_exe = getenv("SANDAL_TEST_INIT"),
        .state_dir = rig->state,
        .runtime_dir = rig->runtime,
        /* Others' keepers on this machine kill by uid too. */
        .uid_base = rig->uid_base,
        .uid_count = 0x200000,
    };
    kg_core_config_t config;
    kg_err_t err = {0};
    int fd = -1;
    assert_non_null(opts.keeper_exe);
    assert_true(sodium_init() >= 0);
    kg_log_init(getenv("SANDAL_TEST_LOG") ? KG_LOG_DEBUG : KG_LOG_ERROR, false);
    assert_int_equal(0, kg_loop_create(&rig->loop));
    assert_int_equal(0, kg_timer_create(rig->loop, on_poll, rig, &rig->poll));
    assert_int_equal(0, kg_keeper_start_private(&opts, &rig->keeper_pid, &fd));
    rig->called = false;
    assert_int_equal(0, kg_keeper_connect(rig->loop, fd, on_keeper, rig, &rig->keeper, &err));
    rig_called(rig, 5000);
    if (kg_store_open(rig->state, &rig->store, &err)) {
        fail_msg("%s", err.message);
    }
    kg_core_config_defaults(&config);
    config.state_dir = rig->state;
    config.template_dirs = dirs;
    config.template_dir_count = 1;
    config.default_template = "testpy";
    config.isolation = "none";
    config.interrupt_grace_ms = 3000; /* kernels that heed an interrupt do so by then */
    config.drain_grace_ms = 500;
    config.queue_max = 3;
    config.kernel_start_timeout_ms = 120000;
    if (kg_core_create(rig->loop, rig->keeper, rig->store, &config, &rig->core, &err)) {
        fail_msg("%s", err.message);
    }
}

void rig_stop_core(rig_t *rig)
{
    kg_core_destroy(&rig->core);
    kg_store_close(&rig->store);
}

void rig_stop(rig_t *rig)
{
    rig_stop_core(rig);
    rig_turn(rig, 700); /* what is being closed */
    kg_keeper_close(&rig->keeper);
    kg_timer_t *poll = KG_TAKE(rig->poll);
    kg_timer_close(&poll);
    kg_loop_destroy(&rig->loop);
    assert_int_equal(rig->keeper_pid, waitpid(rig->keeper_pid, NULL, 0));
}

/* ---- callbacks ---- */

static void note(rig_t *rig, const kg_err_t *err)
{
    rig->called = true;
    rig->err = err ? *err : (kg_err_t){0};
}

void on_sandbox(void *user, kg_sandbox_t *sandbox, const kg_err_t *err)
{
    rig_t *rig = user;
    rig->sandbox = sandbox;
    note(rig, err);
}

void on_context(void *user, kg_context_t *context, const kg_err_t *err)
{
    rig_t *rig = user;
    rig->context = context;
    note(rig, err);
}

void on_reply(void *user, kg_slice_t json, const kg_err_t *err)
{
    rig_t *rig = user;
    (void)snprintf(rig->reply, sizeof(rig->reply), "%.*s", (int)json.len,
                   json.data ? json.data : "");
    note(rig, err);
}

void on_done(void *user, const kg_err_t *err)
{
    note(user, err);
}

/* ---- doing ---- */

int rig_create(rig_t *rig, const kg_sandbox_opts_api_t *opts)
{
    rig->called = false;
    rig->err = (kg_err_t){0};
    if (kg_sandbox_new(rig->core, OWNER, opts, on_sandbox, rig, &rig->err) == 0) {
        rig_called(rig, 40000);
        rig->called = false;
    }
    return (int)rig->err.code;
}

static kg_sandbox_t *made(rig_t *rig, const char *tpl)
{
    kg_sandbox_opts_api_t opts = {.template_name = tpl, .timeout_s = -1, .checkpointable = -1};
    if (rig_create(rig, &opts)) {
        fail_msg("create: %s: %s", kg_err_name(rig->err.code), rig->err.message);
    }
    assert_non_null(rig->sandbox);
    return rig->sandbox;
}

kg_sandbox_t *rig_sandbox(rig_t *rig)
{
    return made(rig, NULL);
}

kg_sandbox_t *rig_bare(rig_t *rig)
{
    return made(rig, "bare");
}

kg_run_opts_t rig_opts(const char *code)
{
    return (kg_run_opts_t){.code = kg_slice_cstr(code), .timeout_ms = -1, .retain_s = -1};
}

kg_run_t *rig_run(rig_t *rig, kg_sandbox_t *sandbox, const kg_run_opts_t *opts)
{
    kg_run_t *run = NULL;
    kg_err_t err = {0};
    (void)rig;
    if (kg_run_new(sandbox, opts, &run, NULL, &err)) {
        fail_msg("run: %s: %s", kg_err_name(err.code), err.message);
    }
    kg_run_attach(run);
    return run;
}

static bool run_ended(void *arg)
{
    return kg_run_ended(arg);
}

json_t *rig_end(rig_t *rig, kg_run_t *run, unsigned ms)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    (void)rig_until(rig, run_ended, run, ms);
    assert_int_equal(0, kg_run_execution(run, &text));
    json_error_t at;
    json_t *json = json_loadb(text.data, text.len, JSON_REJECT_DUPLICATES, &at);
    if (!json) {
        fail_msg("%s: %s", at.text, text.data);
    }
    if (getenv("SANDAL_TEST_LOG")) {
        print_message("%s\n", text.data);
    }
    kg_run_detach(&run);
    return json;
}

json_t *rig_exec(rig_t *rig, kg_sandbox_t *sandbox, const char *code)
{
    kg_run_opts_t opts = rig_opts(code);
    return rig_end(rig, rig_run(rig, sandbox, &opts), 40000);
}

void rig_events(kg_run_t *run, kg_buf_t *out)
{
    kg_run_reader_t *reader = NULL;
    kg_read_piece_t piece;
    assert_int_equal(0,
                     kg_run_reader_create(kg_run_log_of(run), KG_READ_FROM_START, false, &reader));
    while (kg_run_reader_next(reader, out, 65536, &piece) == KG_READ_PIECE) {
        if (piece.end) {
            assert_int_equal(0, kg_buf_append_char(out, '\n'));
        }
    }
    kg_run_reader_destroy(&reader);
}

bool rig_has(kg_run_t *run, const char *text)
{
    KG_AUTO_BUF kg_buf_t events = {0};
    rig_events(run, &events);
    return events.data && strstr(events.data, text);
}

typedef struct wanted {
    kg_run_t *run;
    const char *text;
} wanted_t;

static bool has(void *arg)
{
    wanted_t *w = arg;
    return rig_has(w->run, w->text);
}

void rig_until_has(rig_t *rig, kg_run_t *run, const char *text, unsigned ms)
{
    wanted_t w = {run, text};
    (void)rig_until(rig, has, &w, ms);
}

static const json_t *at_path(const json_t *object, const char *path)
{
    char key[64];
    while (*path) {
        size_t n = strcspn(path, ".");
        (void)snprintf(key, sizeof(key), "%.*s", (int)n, path);
        object = json_object_get(object, key);
        path += n + (path[n] == '.');
    }
    return object;
}

const char *str_of(const json_t *object, const char *path)
{
    const char *s = json_string_value(at_path(object, path));
    return s ? s : "(none)";
}

int64_t int_of(const json_t *object, const char *path)
{
    const json_t *value = at_path(object, path);
    return json_is_integer(value) ? json_integer_value(value) : -1;
}

void rig_expect(
    rig_t *rig, kg_sandbox_t *sandbox, const char *code, const char *status, const char *text)
{
    json_t *e = rig_exec(rig, sandbox, code);
    assert_string_equal(status, str_of(e, "status"));
    if (text) {
        assert_string_equal(text, str_of(e, "text"));
    }
    json_decref(e);
}
