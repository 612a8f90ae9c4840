#include "tests/integ/rig.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/loop/zchan.h"

static const char *const env[] = {"PATH=/usr/bin:/bin", "HOME=/tmp", "LANG=C.UTF-8", NULL};

/* ---- the loop ---- */

static void tick(void *user)
{
    rig_t *rig = user;
    bool over = kg_now_ns() >= rig->wait_until_ns;
    if (over || (rig->waits_for && *rig->waits_for)) {
        rig->timed_out = over;
        kg_loop_stop(rig->loop);
    }
}

bool rig_wait(rig_t *rig, const bool *flag, unsigned ms)
{
    if (flag && *flag) {
        return true;
    }
    rig->waits_for = flag;
    rig->timed_out = false;
    rig->wait_until_ns = kg_now_ns() + ms * KG_NS_PER_MS;
    kg_timer_start(rig->tick, 0, KG_NS_PER_MS);
    kg_loop_run(rig->loop);
    kg_timer_stop(rig->tick);
    rig->waits_for = NULL;
    return !rig->timed_out || (flag && *flag);
}

void rig_turn(rig_t *rig, unsigned ms)
{
    (void)rig_wait(rig, NULL, ms);
}

void rig_await_text(rig_t *rig, kg_buf_t *buf, const char *text)
{
    RIG_AWAIT(rig, strstr(rig_text(buf), text));
}

void rig_await_idle(rig_t *rig)
{
    RIG_AWAIT(rig, kg_kernel_state(rig->kernel) == KG_KERNEL_IDLE);
}

void rig_await_done(rig_t *rig)
{
    assert_true(rig_wait(rig, &rig->done, RIG_PATIENCE_MS));
}

void rig_await_exit(rig_t *rig)
{
    assert_true(rig_wait(rig, &rig->exited, RIG_PATIENCE_MS));
}

const char *rig_text(kg_buf_t *buf)
{
    return buf->data ? buf->data : "";
}

unsigned rig_fds(void)
{
    DIR *d = opendir("/proc/self/fd");
    unsigned n = 0;
    while (d && readdir(d)) { /* NOLINT(concurrency-mt-unsafe) */
        n++;
    }
    if (d) {
        closedir(d);
    }
    return n - 3; /* ".", ".." and the directory itself */
}

void rig_expect_fds(rig_t *rig, unsigned count)
{
    /* Fewer are no leak: ZeroMQ's threads may have had some of the warm-up's open at the count. */
    RIG_AWAIT(rig, rig_fds() <= count);
}

/* ---- sinks ---- */

static void append(kg_buf_t *buf, kg_slice_t bytes)
{
    assert_int_equal(kg_buf_append_slice(buf, bytes), 0);
}

static void on_ready(void *user, kg_json_value_t info)
{
    rig_t *rig = user;
    append(&rig->info, info.raw);
    rig->ready = true;
}

static void on_failed(void *user, const kg_err_t *err)
{
    rig_t *rig = user;
    rig->err = *err;
    rig->failed = true;
}

static void on_state(void *user, kg_kernel_state_t state)
{
    rig_t *rig = user;
    rig->busy += state == KG_KERNEL_BUSY;
    rig->idle += state == KG_KERNEL_IDLE;
}

static void on_output(void *user, bool is_stderr, kg_slice_t bytes)
{
    rig_t *rig = user;
    append(is_stderr ? &rig->fd2 : &rig->fd1, bytes);
}

static void append_text(kg_buf_t *out, kg_json_value_t string)
{
    if (string.type == KG_JSON_STRING) {
        assert_int_equal(kg_json_decode_string(out, string), 0);
        assert_int_equal(kg_buf_append_cstr(out, ""), 0);
    }
}

static void on_orphan(void *user, const kg_jmsg_t *msg)
{
    rig_t *rig = user;
    append_text(&rig->orphan, kg_json_get(msg->content, "text"));
}

static void on_exit_told(void *user, const kg_kernel_exit_t *exit)
{
    rig_t *rig = user;
    rig->exit = *exit;
    rig->done_before_exit = rig->done;
    rig->exited = true;
}

static void on_iopub(void *user, const kg_jmsg_t *msg)
{
    rig_t *rig = user;
    assert_int_equal(kg_buf_printf(&rig->tapped, "%s %s\n", msg->msg_type, msg->parent_id), 0);
}

static const kg_kernel_sink_t kernel_sink = {
    .on_iopub = on_iopub,
    .on_ready = on_ready,
    .on_failed = on_failed,
    .on_state = on_state,
    .on_output = on_output,
    .on_orphan = on_orphan,
    .on_exit = on_exit_told,
};

/* What a mapper does in earnest: reads the content once. */
typedef struct prepared {
    size_t bytes;
    bool out, ahead;
    kg_json_value_t text;
} prepared_t;

static void *prepare(const void *arg, const kg_jmsg_t *msg)
{
    (void)arg;
    static const char *const names[] = {"name", "text"};
    kg_json_value_t values[2];
    kg_json_get_many(msg->content, names, values, 2);
    prepared_t *p = malloc(sizeof(*p));
    *p = (prepared_t){.bytes = msg->content.raw.len,
                      .out = kg_slice_eq_cstr(values[0].raw, "\"stdout\""),
                      .text = values[1]};
    return p;
}

static void *place(void *user)
{
    rig_t *rig = user;
    rig_t **at = malloc(sizeof(*at));
    *at = rig;
    rig->places++;
    return at;
}

static void ahead(void *at, void *prepared)
{
    prepared_t *p = prepared;
    p->ahead = true;
    (*(rig_t **)at)->ahead++; /* the loop looks when the worker is done */
}

static void place_free(void *at)
{
    (*(rig_t **)at)->places_freed++;
    free(at);
}

static void on_stream(rig_t *rig, const prepared_t *p)
{
    kg_buf_t *to = rig->done ? &rig->late : p->out ? &rig->out : &rig->err_out;
    rig->streams++;
    rig->streams_ahead += p->ahead;
    rig->text_bytes += p->text.raw.len - 2;
    if (p->text.raw.len < 65536 && to->len < 65536) {
        append_text(to, p->text);
    }
    if (rig->on_stream) {
        rig->on_stream(rig);
    }
}

static void on_message(void *user, kg_channel_t channel, const kg_jmsg_t *msg, void *prepared_take)
{
    rig_t *rig = user;
    KG_AUTO_FREE prepared_t *p = prepared_take;
    assert_non_null(p);
    assert_int_equal(p->bytes, msg->content.raw.len);
    rig->prepared++;
    rig->messages++;
    if (channel == KG_CHANNEL_STDIN) {
        rig->inputs++;
        if (rig->answer) {
            assert_int_equal(
                kg_kernel_input_reply(rig->kernel, kg_slice_cstr(rig->answer), msg->header.raw), 0);
        }
    } else if (channel != KG_CHANNEL_IOPUB) {
        rig->replies++;
        kg_slice_t status = kg_json_get(msg->content, "status").raw;
        (void)kg_format(rig->reply_status, sizeof rig->reply_status, "%.*s", (int)status.len,
                        status.data);
    } else if (strcmp(msg->msg_type, "stream") == 0) {
        on_stream(rig, p);
    } else if (strcmp(msg->msg_type, "error") == 0) {
        rig->errors++;
    } else if (strcmp(msg->msg_type, "execute_result") == 0) {
        append_text(&rig->result, kg_json_get(kg_json_get(msg->content, "data"), "text/plain"));
    } else if (strcmp(msg->msg_type, "status") != 0 &&
               strcmp(msg->msg_type, "execute_input") != 0) {
        rig->unknown++;
    }
}

static void on_sent(void *user)
{
    rig_t *rig = user;
    assert_true(kg_request_is_sent(rig->req));
    rig->sent++;
    rig->fd2_when_sent = rig->fd2.len;
}

static void on_done(void *user, const kg_request_end_t *end)
{
    rig_t *rig = user;
    assert_false(rig->done);
    rig->end = *end;
    rig->done = true;
}

static void arg_free(const void *arg)
{
    (*(unsigned *)(uintptr_t)arg)++;
}

static kg_request_sink_t request_sink(rig_t *rig)
{
    return (kg_request_sink_t){
        .prepare = prepare,
        .prepared_free = free,
        .prepare_arg = &rig->arg_freed,
        .prepare_arg_free = arg_free,
        .place = place,
        .ahead = ahead,
        .place_free = place_free,
        .on_sent = on_sent,
        .on_message = on_message,
        .on_done = on_done,
    };
}

/* ---- the kernel ---- */

static char *template_of(const char *text, const char *name, const char *value)
{
    KG_AUTO_BUF kg_buf_t out = {0};
    for (const char *at; (at = strstr(text, name)) != NULL; text = at + strlen(name)) {
        append(&out, kg_slice(text, (size_t)(at - text)));
        append(&out, kg_slice_cstr(value));
    }
    append(&out, kg_slice_cstr(text));
    return kg_buf_steal(&out, NULL);
}

static kg_kernelspec_t *read_spec(const char *kernel)
{
    char path[512];
    char text[8192];
    (void)kg_format(path, sizeof path, "%s/kernelspecs/%s/kernel.json", SANDAL_INTEG_DIR, kernel);
    FILE *f = fopen(path, "re");
    assert_non_null(f);
    size_t n = fread(text, 1, sizeof text - 1, f);
    fclose(f);
    text[n] = '\0';
    /* A copy's where sandboxes' users cannot reach the build, as below /root. */
    const char *open_build = getenv("SANDAL_OPEN_BUILD"); /* NOLINT(concurrency-mt-unsafe) */
    char fake[512];
    (void)kg_format(fake, sizeof fake, "%s/tests/integ/fake_kernel", open_build ? open_build : "");
    char *filled = template_of(text, "{fake_kernel}", open_build ? fake : SANDAL_FAKE_KERNEL);
    kg_kernelspec_t *spec = NULL;
    kg_err_t err = {0};
    if (kg_kernelspec_parse(kernel, kg_slice_cstr(filled), &spec, &err) < 0) {
        fail_msg("%s: %s", path, err.message);
    }
    free(filled);
    return spec;
}

static void ignore(kg_zchan_t *chan, kg_zmsg_t *msg, void *user)
{
    (void)chan;
    (void)msg;
    (void)user;
}

/* libzmq's own threads and descriptors come with the first socket: not to be counted later. */
static void warm_zmq(kg_loop_t *loop)
{
    const kg_zchan_opts_t opts = {
        .type = KG_ZCHAN_PUB, .endpoint = "inproc://warm", .bind = true, .on_message = ignore};
    kg_zchan_t *chan = NULL;
    assert_int_equal(kg_zchan_open(loop, &opts, &chan, NULL), 0);
    kg_zchan_close(&chan, NULL, NULL);
}

/* ZeroMQ's threads close what the warm-up had in their own time: whoever counts descriptors counts
 * from here on. */
static void settle(rig_t *rig)
{
    unsigned last = rig_fds();
    for (unsigned same = 0, i = 0; same < 4 && i < 200; i++) {
        rig_turn(rig, 5);
        unsigned now = rig_fds();
        same = now == last ? same + 1 : 0;
        last = now;
    }
}

void rig_open(rig_t *rig, const char *kernel, const char *scenario)
{
    *rig = (rig_t){0};
    assert_int_equal(kg_loop_create(&rig->loop), 0);
    warm_zmq(rig->loop);
    assert_int_equal(kg_timer_create(rig->loop, tick, rig, &rig->tick), 0);
    rig->box = box_open(rig->loop);
    assert_non_null(rig->box);
    settle(rig);
    rig->spec = read_spec(kernel);
    (void)kg_format(rig->scenario, sizeof rig->scenario, "FAKE_KERNEL_SCENARIO=%s", scenario);
    rig->opts.spec = rig->spec;
    rig->opts.limits.start_ns = RIG_PATIENCE_MS * KG_NS_PER_MS;
    rig->opts.limits.no_idle_ns = RIG_PATIENCE_MS * KG_NS_PER_MS;
    rig->opts.limits.no_reply_ns = RIG_PATIENCE_MS * KG_NS_PER_MS;
}

int rig_start(rig_t *rig)
{
    const char *whole[8] = {rig->scenario};
    for (size_t i = 0; env[i]; i++) {
        whole[i + 1] = env[i];
    }
    rig->opts.env = whole;
    return kg_kernel_start(rig->loop, box_sbx(rig->box), &rig->opts, &kernel_sink, rig,
                           &rig->kernel, &rig->err);
}

void rig_ready(rig_t *rig)
{
    if (rig_start(rig) < 0 || !rig_wait(rig, &rig->ready, RIG_PATIENCE_MS)) {
        fail_msg("not ready: %s", rig->err.message);
    }
}

static void new_request(rig_t *rig)
{
    kg_request_release(&rig->req);
    kg_buf_t *bufs[] = {&rig->out, &rig->err_out, &rig->result, &rig->late};
    for (size_t i = 0; i < KG_ARRAY_LEN(bufs); i++) {
        kg_buf_fini(bufs[i]);
    }
    rig->done = false;
    rig->sent = 0;
    rig->messages = rig->streams = rig->replies = rig->inputs = rig->errors = rig->unknown = 0;
    rig->prepared = rig->arg_freed = 0;
    rig->places = rig->ahead = rig->streams_ahead = rig->places_freed = 0;
    rig->text_bytes = 0;
    rig->reply_status[0] = '\0';
}

void rig_send(rig_t *rig, const char *code, bool allow_stdin)
{
    new_request(rig);
    const kg_kernel_execute_t args = {
        .code = kg_slice_cstr(code), .store_history = true, .allow_stdin = allow_stdin};
    const kg_request_sink_t sink = request_sink(rig);
    kg_err_t err = {0};
    if (kg_kernel_execute(rig->kernel, &args, &sink, rig, &rig->req, &err) < 0) {
        fail_msg("execute: %s", err.message);
    }
}

void rig_run(rig_t *rig, const char *code)
{
    rig_send(rig, code, false);
    rig_await_done(rig);
}

void rig_send_ask(rig_t *rig, kg_ask_what_t what, const char *code, unsigned deadline_ms)
{
    new_request(rig);
    const kg_kernel_ask_t ask = {
        .what = what, .code = kg_slice_cstr(code), .deadline_ns = deadline_ms * KG_NS_PER_MS};
    const kg_request_sink_t sink = request_sink(rig);
    kg_err_t err = {0};
    assert_int_equal(kg_kernel_ask(rig->kernel, &ask, &sink, rig, &rig->req, &err), 0);
}

void rig_ask(rig_t *rig, kg_ask_what_t what, const char *code, unsigned deadline_ms)
{
    rig_send_ask(rig, what, code, deadline_ms);
    rig_await_done(rig);
}

/* ---- the kernel's process ---- */

void rig_go(rig_t *rig)
{
    assert_int_equal(kill(kg_kernel_pid(rig->kernel), SIGUSR1), 0);
}

/* The fields of its stat from the state on, or "" when it is gone. */
static const char *process_stat(rig_t *rig, char *buf, size_t size)
{
    (void)kg_format(buf, size, "/proc/%d/stat", (int)kg_kernel_pid(rig->kernel));
    FILE *f = fopen(buf, "re");
    size_t n = f ? fread(buf, 1, size - 1, f) : 0;
    buf[n] = '\0';
    if (f) {
        fclose(f);
    }
    const char *after_name = strrchr(buf, ')');
    return after_name ? after_name + 2 : "";
}

void rig_stand_still_until_dead(rig_t *rig)
{
    char buf[512];
    for (unsigned i = 0; !strchr("ZX", process_stat(rig, buf, sizeof buf)[0]); i++) {
        assert_true(i < RIG_PATIENCE_MS);
        usleep(1000);
    }
}

uint64_t rig_user_ticks(rig_t *rig)
{
    char buf[512];
    unsigned long ticks = 0;
    /* NOLINTNEXTLINE(cert-err34-c) */
    (void)!sscanf(process_stat(rig, buf, sizeof buf),
                  "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu", &ticks);
    return ticks;
}

static void on_suspended(void *user, const kg_err_t *err)
{
    rig_t *rig = user;
    rig->link_err = err ? *err : (kg_err_t){0};
    rig->suspended = true;
}

static void on_resumed(void *user, const kg_err_t *err)
{
    rig_t *rig = user;
    rig->link_err = err ? *err : (kg_err_t){0};
    rig->resumed = true;
}

void rig_suspend(rig_t *rig)
{
    rig->suspended = false;
    assert_int_equal(kg_kernel_suspend(rig->kernel, on_suspended, rig, &rig->err), 0);
    assert_true(rig_wait(rig, &rig->suspended, RIG_PATIENCE_MS));
}

void rig_begin_resume(rig_t *rig)
{
    rig->resumed = false;
    assert_int_equal(kg_kernel_resume(rig->kernel, on_resumed, rig, &rig->err), 0);
}

void rig_resume(rig_t *rig)
{
    rig_begin_resume(rig);
    assert_true(rig_wait(rig, &rig->resumed, RIG_PATIENCE_MS));
}

static void on_usage(void *user, const kg_usage_t *usage, const kg_err_t *err)
{
    rig_t *rig = user;
    assert_null(err);
    rig->usage = *usage;
    rig->used = true;
}

bool rig_usage(rig_t *rig)
{
    rig->used = false;
    int rc = kg_kernel_usage(rig->kernel, on_usage, rig);
    if (rc == -ENOSYS) {
        return false;
    }
    assert_int_equal(rc, 0);
    assert_true(rig_wait(rig, &rig->used, RIG_PATIENCE_MS));
    return true;
}

static void on_closed(void *user)
{
    rig_t *rig = user;
    rig->closed = true;
}

void rig_close_kernel(rig_t *rig, kg_kernel_close_mode_t mode)
{
    rig->closed = false;
    bool running = rig->kernel != NULL;
    kg_kernel_close(&rig->kernel, mode, on_closed, rig);
    assert_null(rig->kernel);
    if (running) {
        assert_true(rig_wait(rig, &rig->closed, RIG_PATIENCE_MS));
    }
}

void rig_close(rig_t *rig)
{
    rig_close_kernel(rig, KG_KERNEL_CLOSE_NOW);
    new_request(rig);
    RIG_AWAIT(rig, box_run_files(rig->box) == 0); /* unlinks are asked for, not waited for */
    box_close(&rig->box);
    kg_kernelspec_destroy(&rig->spec);
    kg_timer_close(&rig->tick);
    kg_buf_t *bufs[] = {&rig->info, &rig->fd1, &rig->fd2, &rig->orphan, &rig->tapped};
    for (size_t i = 0; i < KG_ARRAY_LEN(bufs); i++) {
        kg_buf_fini(bufs[i]);
    }
    kg_loop_destroy(&rig->loop);
}
