/* A Jupyter kernel that misbehaves on demand: fake_kernel CONNECTION_FILE [SCENARIO].
 *
 * SCENARIO (or FAKE_KERNEL_SCENARIO in the environment) is a fault of the start, NAME or
 * NAME:NUMBER: exit_before_bind:STATUS  segfault_before_bind  hang_before_bind  slow_bind:MS
 *   exit_before_info:STATUS  mute  mute_shell  mute_control  silent_iopub:COUNT  welcome
 *
 * Code is a list of commands, one a line; what isn't one is answered with itself as result:
 *   print T | stderr T | result T | fd1 T | fd2 T | display ID T | update ID T | orphan T
 *   error | error_but_ok | sleep MS | stubborn MS | freeze MS | input PROMPT | input_twice PROMPT
 *   flood N | flood_display N | big BYTES | stamped BYTES | clear
 *   interrupts | late_interrupts MS (are answered so late) | deaf N (kernel_infos on shell)
 *   missing_idle | missing_reply | missing_both | double_reply | reply_first MS | idle_first MS
 *   bad_signature [BYTES] | garbage | no_delimiter | short | unknown_type | invalid_utf8 |
 * huge_header BYTES deep LEVELS | late MS T exit STATUS | exit_after_reply STATUS | segfault | kill
 *   over T (on fd 1, when all else of the cell was sent)
 *
 * "held" in the place of MS: until SIGUSR1, which may come before. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "tests/integ/fake.h"

#define HELD UINT64_MAX

static volatile sig_atomic_t got_sigint;
static volatile sig_atomic_t got_go;
static volatile sig_atomic_t executing;
static volatile sig_atomic_t sigints;
static volatile sig_atomic_t stray_sigints;

static void on_sigint(int signum)
{
    (void)signum;
    got_sigint = 1;
    sigints = sigints + 1;
    stray_sigints = stray_sigints + !executing;
}

static void on_sigusr1(int signum)
{
    (void)signum;
    got_go = 1;
}

static bool take_go(void)
{
    bool go = got_go;
    got_go = 0;
    return go;
}

/* Lets time pass, and answers nothing, as one thread does. */
static void freeze(uint64_t ms)
{
    if (ms != HELD) {
        fake_sleep_ms(ms);
        return;
    }
    while (!take_go()) {
        fake_sleep_ms(2);
    }
}

static void handle(fake_t *f, request_t *r);

static void serve_control(fake_t *f)
{
    request_t r;
    uint64_t late = f->late_interrupt_ns;
    if (late && (late == HELD ? take_go() : kg_now_ns() >= late)) {
        f->late_interrupt_ns = 0;
        fake_reply(f, &f->late_interrupt, "interrupt_reply", "{\"status\":\"ok\"}");
        fake_request_fini(&f->late_interrupt);
    }
    while (fake_receive(f, CONTROL, &r)) {
        handle(f, &r);
        fake_request_fini(&r);
    }
}

/* true when interrupted, be it by what came earlier in the cell */
static bool nap(fake_t *f, uint64_t ms, bool stubborn)
{
    uint64_t end = ms == HELD ? 0 : kg_now_ns() + ms * KG_NS_PER_MS;
    while (!f->stop && (ms == HELD ? !take_go() : kg_now_ns() < end)) {
        serve_control(f);
        if (!stubborn && (got_sigint || f->interrupted)) {
            return true;
        }
        fake_sleep_ms(2);
    }
    return false;
}

/* ---- commands ---- */

static void ask_input(fake_t *f, const request_t *r, const char *prompt)
{
    KG_AUTO_BUF kg_buf_t content = {0};
    KG_AUTO_BUF kg_buf_t header = {0};
    fake_must(kg_buf_append_cstr(&content, "{\"password\":false,\"prompt\":"), "input");
    fake_must(kg_json_quote_cstr(&content, prompt), "input");
    fake_must(kg_buf_append_cstr(&content, "}"), "input");
    fake_make_header(f, "input_request", &header);
    const kg_slice_t parts[4] = {kg_buf_slice(&header), kg_buf_slice(&r->header),
                                 kg_slice_cstr("{}"), kg_buf_slice(&content)};
    fake_send_signed(f, STDIN, kg_buf_slice(&r->identity), parts);
}

static void read_input(fake_t *f, const request_t *r)
{
    request_t answer;
    while (!fake_receive(f, STDIN, &answer)) {
        serve_control(f);
        if (got_sigint || f->interrupted || f->stop) {
            f->error = true;
            return;
        }
        fake_sleep_ms(2);
    }
    kg_json_value_t content;
    KG_AUTO_BUF kg_buf_t value = {0};
    fake_must(kg_json_check(kg_buf_slice(&answer.content), 32, &content), "input_reply");
    fake_must(kg_json_decode_string(&value, kg_json_get(content, "value")), "input_reply");
    fake_must(kg_buf_append_cstr(&value, ""), "input_reply");
    fake_stream(f, r, "stdout", value.data);
    fake_request_fini(&answer);
}

static void flood(fake_t *f, const request_t *r, uint64_t n)
{
    uint64_t begin = kg_now_ns();
    for (uint64_t i = 0; i < n; i++) {
        char text[32];
        fake_must(kg_format(text, sizeof text, "%llu\n", (unsigned long long)i), "flood");
        fake_stream(f, r, "stdout", text);
    }
    double seconds = (double)(kg_now_ns() - begin) / 1e9;
    char text[64];
    fake_must(
        kg_format(text, sizeof text, "sent %.0f/s\n", (double)n / (seconds > 0 ? seconds : 1)),
        "flood");
    fake_stream(f, r, "stderr", text);
}

static void flood_display(fake_t *f, const request_t *r, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        char text[32];
        fake_must(kg_format(text, sizeof text, "%llu", (unsigned long long)i), "flood_display");
        fake_text_message(f, r, "display_data",
                          "{\"metadata\":{},\"transient\":{},\"data\":{\"text/plain\":", text,
                          "}}");
    }
}

static void big(fake_t *f, const request_t *r, uint64_t bytes, bool stamped)
{
    KG_AUTO_BUF kg_buf_t content = {0};
    fake_must(kg_buf_append_cstr(&content, "{\"name\":\"stdout\",\"text\":\""), "big");
    fake_must(kg_buf_reserve(&content, bytes + 16), "big");
    memset(content.data + content.len, 'x', bytes);
    content.len += bytes;
    fake_must(kg_buf_append_cstr(&content, "\"}"), "big");
    (stamped ? fake_publish_stamped : fake_publish_raw)(f, "stream", kg_buf_slice(&r->header),
                                                        kg_buf_slice(&content));
}

static void bad_frames(fake_t *f, const char *what)
{
    void *s = f->sockets[IOPUB];
    if (strcmp(what, "garbage") == 0) {
        static const char noise[] = "\x00\xff\xfe{{{\"\\u12";
        for (int i = 0; i < 8; i++) {
            fake_send_frame(s, kg_slice(noise, sizeof noise - 1), true);
        }
        fake_send_frame(s, kg_slice("", 0), false);
        fake_send_frame(s, kg_slice(noise, 3), false);
        fake_send_frame(s, kg_slice_cstr("<IDS|MSG>"), false);
    } else if (strcmp(what, "no_delimiter") == 0) {
        for (int i = 0; i < 6; i++) {
            fake_send_frame(s, kg_slice_cstr("{}"), i < 5);
        }
    } else { /* short */
        fake_send_frame(s, kg_slice_cstr("<IDS|MSG>"), true);
        fake_send_frame(s, kg_slice_cstr("00"), true);
        fake_send_frame(s, kg_slice_cstr("{}"), false);
    }
}

static void huge_header(fake_t *f, const request_t *r, uint64_t bytes)
{
    KG_AUTO_BUF kg_buf_t header = {0};
    fake_must(kg_buf_append_cstr(&header, "{\"msg_type\":\"stream\",\"msg_id\":\"h\",\"x\":\""),
              "header");
    fake_must(kg_buf_reserve(&header, bytes + 16), "header");
    memset(header.data + header.len, 'h', bytes);
    header.len += bytes;
    fake_must(kg_buf_append_cstr(&header, "\"}"), "header");
    const kg_slice_t parts[4] = {kg_buf_slice(&header), kg_buf_slice(&r->header),
                                 kg_slice_cstr("{}"),
                                 kg_slice_cstr("{\"name\":\"stdout\",\"text\":\"huge\"}")};
    fake_send_signed(f, IOPUB, kg_slice_cstr("x"), parts);
}

static void deep(fake_t *f, const request_t *r, uint64_t levels)
{
    KG_AUTO_BUF kg_buf_t content = {0};
    fake_must(kg_buf_append_cstr(&content, "{\"data\":"), "deep");
    for (uint64_t i = 0; i < levels; i++) {
        fake_must(kg_buf_append_char(&content, '['), "deep");
    }
    for (uint64_t i = 0; i < levels; i++) {
        fake_must(kg_buf_append_char(&content, ']'), "deep");
    }
    fake_must(kg_buf_append_char(&content, '}'), "deep");
    fake_publish_raw(f, "display_data", kg_buf_slice(&r->header), kg_buf_slice(&content));
}

static void send_error(fake_t *f, const request_t *r)
{
    fake_publish(f, "error", r,
                 "{\"ename\":\"FakeError\",\"evalue\":\"as asked\",\"traceback\":[\"FakeError: as "
                 "asked\"]}");
}

static void end_process(const char *how, uint64_t number)
{
    fake_sleep_ms(20); /* what was published leaves first */
    if (strcmp(how, "segfault") == 0) {
        struct rlimit none = {0, 0};
        setrlimit(RLIMIT_CORE, &none);
        signal(SIGSEGV, SIG_DFL);
        raise(SIGSEGV);
    }
    if (strcmp(how, "kill") == 0) {
        raise(SIGKILL);
    }
    _exit((int)number);
}

/* Commands that shape the end of the request. */
static bool command_end(fake_t *f, const char *verb, const char *arg, uint64_t number)
{
    if (strcmp(verb, "error") == 0) {
        f->error = true;
    } else if (strcmp(verb, "missing_idle") == 0) {
        f->missing_idle = true;
    } else if (strcmp(verb, "missing_reply") == 0) {
        f->missing_reply = true;
    } else if (strcmp(verb, "missing_both") == 0) {
        f->missing_idle = f->missing_reply = true;
    } else if (strcmp(verb, "double_reply") == 0) {
        f->double_reply = true;
    } else if (strcmp(verb, "reply_first") == 0) {
        f->reply_gap_ms = number;
    } else if (strcmp(verb, "idle_first") == 0) {
        f->idle_gap_ms = number;
    } else if (strcmp(verb, "exit_after_reply") == 0) {
        f->exit_after_reply = (int)number;
    } else if (strcmp(verb, "late") == 0) {
        f->late_ms = number;
        const char *text = strchr(arg, ' ');
        fake_must(kg_format(f->late_text, sizeof f->late_text, "%s", text ? text + 1 : ""), "late");
    } else if (strcmp(verb, "over") == 0) {
        fake_must(kg_format(f->over_text, sizeof f->over_text, "%s", arg), "over");
    } else {
        return false;
    }
    return true;
}

static bool
command_fault(fake_t *f, const request_t *r, const char *verb, const char *arg, uint64_t number)
{
    if (strcmp(verb, "bad_signature") == 0) {
        f->bad_sign = true;
        if (number > 0) {
            big(f, r, number, false);
        } else {
            fake_stream(f, r, "stdout", "forged");
        }
        f->bad_sign = false;
    } else if (strcmp(verb, "garbage") == 0 || strcmp(verb, "no_delimiter") == 0 ||
               strcmp(verb, "short") == 0) {
        bad_frames(f, verb);
    } else if (strcmp(verb, "unknown_type") == 0) {
        fake_publish(f, "never_heard_of", r, "{\"x\":1}");
    } else if (strcmp(verb, "invalid_utf8") == 0) {
        fake_publish(f, "stream", r, "{\"name\":\"stdout\",\"text\":\"a\xff\xc3z\"}");
    } else if (strcmp(verb, "huge_header") == 0) {
        huge_header(f, r, number);
    } else if (strcmp(verb, "deep") == 0) {
        deep(f, r, number);
    } else if (strcmp(verb, "orphan") == 0) {
        KG_AUTO_BUF kg_buf_t content = {0};
        fake_must(kg_buf_append_cstr(&content, "{\"name\":\"stdout\",\"text\":"), "orphan");
        fake_must(kg_json_quote_cstr(&content, arg), "orphan");
        fake_must(kg_buf_append_cstr(&content, "}"), "orphan");
        fake_publish_raw(f, "stream",
                         kg_slice_cstr("{\"msg_id\":\"nobody\",\"msg_type\":\"execute_request\"}"),
                         kg_buf_slice(&content));
    } else if (strcmp(verb, "exit") == 0 || strcmp(verb, "segfault") == 0 ||
               strcmp(verb, "kill") == 0) {
        end_process(verb, number);
    } else {
        return false;
    }
    return true;
}

static void tell_interrupts(fake_t *f, const request_t *r)
{
    char text[64];
    fake_must(kg_format(text, sizeof text, "%u, stray %u", f->interrupts + (unsigned)sigints,
                        f->stray_interrupts + (unsigned)stray_sigints),
              "interrupts");
    fake_result(f, r, text);
}

static bool command_setting(fake_t *f, const request_t *r, const char *verb, uint64_t number)
{
    if (strcmp(verb, "interrupts") == 0) {
        tell_interrupts(f, r);
    } else if (strcmp(verb, "late_interrupts") == 0) {
        f->interrupt_late_ms = number;
    } else if (strcmp(verb, "deaf") == 0) {
        f->deaf = (unsigned)number;
    } else {
        return false;
    }
    return true;
}

static bool
command_output(fake_t *f, const request_t *r, const char *verb, char *arg, uint64_t number)
{
    if (strcmp(verb, "print") == 0) {
        fake_stream(f, r, "stdout", arg);
    } else if (strcmp(verb, "stderr") == 0) {
        fake_stream(f, r, "stderr", arg);
    } else if (strcmp(verb, "result") == 0) {
        fake_result(f, r, arg);
    } else if (strcmp(verb, "fd1") == 0 || strcmp(verb, "fd2") == 0) {
        (void)!write(verb[2] - '0', arg, strlen(arg));
    } else if (strcmp(verb, "display") == 0) {
        fake_display(f, r, "display_data", arg);
    } else if (strcmp(verb, "update") == 0) {
        fake_display(f, r, "update_display_data", arg);
    } else if (strcmp(verb, "clear") == 0) {
        fake_publish(f, "clear_output", r, "{\"wait\":false}");
    } else if (strcmp(verb, "error_but_ok") == 0) {
        send_error(f, r);
    } else if (strcmp(verb, "sleep") == 0) {
        f->error = nap(f, number, false);
    } else if (strcmp(verb, "stubborn") == 0) {
        (void)nap(f, number, true);
        got_sigint = 0;
        f->interrupted = false;
    } else if (strcmp(verb, "freeze") == 0) {
        freeze(number);
    } else if (strcmp(verb, "flood") == 0) {
        flood(f, r, number);
    } else if (strcmp(verb, "flood_display") == 0) {
        flood_display(f, r, number);
    } else if (strcmp(verb, "big") == 0 || strcmp(verb, "stamped") == 0) {
        big(f, r, number, verb[0] == 's');
    } else if (strcmp(verb, "input") == 0) {
        ask_input(f, r, arg);
        read_input(f, r);
    } else if (strcmp(verb, "input_twice") == 0) {
        ask_input(f, r, arg);
        ask_input(f, r, arg);
        read_input(f, r);
        read_input(f, r);
    } else {
        return false;
    }
    return true;
}

static void command(fake_t *f, const request_t *r, char *line)
{
    char *whole = strdup(line);
    char *arg = strchr(line, ' ');
    if (arg) {
        *arg++ = '\0';
    } else {
        arg = line + strlen(line);
    }
    uint64_t number = strncmp(arg, "held", 4) == 0
                          ? HELD
                          : strtoull(arg, NULL, 10); /* NOLINT(cert-err34-c): 0 for none */
    if (!command_end(f, line, arg, number) && !command_fault(f, r, line, arg, number) &&
        !command_setting(f, r, line, number) && !command_output(f, r, line, arg, number)) {
        fake_result(f, r, whole);
    }
    free(whole);
}

/* ---- requests ---- */

static void send_reply(fake_t *f, const request_t *r)
{
    char content[256];
    if (f->error) {
        fake_must(kg_format(content, sizeof content,
                            "{\"status\":\"error\",\"ename\":\"FakeError\",\"evalue\":\"as asked\","
                            "\"traceback\":[],\"execution_count\":%u}",
                            f->executions),
                  "reply");
    } else {
        fake_must(
            kg_format(
                content, sizeof content,
                "{\"status\":\"ok\",\"execution_count\":%u,\"user_expressions\":{},\"payload\":[]}",
                f->executions),
            "reply");
    }
    if (!f->missing_reply) {
        fake_reply(f, r, "execute_reply", content);
    }
    if (f->double_reply) {
        fake_reply(f, r, "execute_reply", content);
    }
    if (f->exit_after_reply >= 0) {
        end_process("exit", (uint64_t)f->exit_after_reply);
    }
}

static void finish(fake_t *f, const request_t *r)
{
    if (f->error) {
        send_error(f, r);
    }
    if (f->idle_gap_ms > 0) {
        fake_status(f, r, "idle");
        freeze(f->idle_gap_ms);
        send_reply(f, r);
    } else {
        send_reply(f, r);
        freeze(f->reply_gap_ms);
        if (!f->missing_idle) {
            fake_status(f, r, "idle");
        }
    }
    if (f->late_text[0]) {
        freeze(f->late_ms);
        fake_stream(f, r, "stdout", f->late_text);
    }
    (void)!write(1, f->over_text, strlen(f->over_text));
}

static void execute(fake_t *f, const request_t *r)
{
    f->error = f->missing_idle = f->missing_reply = f->double_reply = false;
    f->reply_gap_ms = f->idle_gap_ms = f->late_ms = 0;
    f->late_text[0] = f->over_text[0] = '\0';
    f->interrupted = false; /* one that came before the cell's own code is lost, as in earnest */
    got_sigint = 0;
    f->exit_after_reply = -1;
    f->executions++;
    kg_json_value_t content;
    KG_AUTO_BUF kg_buf_t code = {0};
    fake_must(kg_json_check(kg_buf_slice(&r->content), 128, &content), "execute_request");
    fake_must(kg_json_decode_string(&code, kg_json_get(content, "code")), "execute_request");
    fake_must(kg_buf_append_cstr(&code, ""), "execute_request");
    fake_text_message(f, r, "execute_input", "{\"execution_count\":1,\"code\":", code.data, "}");
    char *rest = code.data;
    while (rest && *rest && !f->error) {
        char *line = rest;
        rest = strchr(rest, '\n');
        if (rest) {
            *rest++ = '\0';
        }
        command(f, r, line);
    }
    finish(f, r);
}

static void kernel_info(fake_t *f, const request_t *r)
{
    bool mute = strcmp(f->scenario, "mute") == 0 ||
                (r->socket == SHELL && strcmp(f->scenario, "mute_shell") == 0) ||
                (r->socket == CONTROL && strcmp(f->scenario, "mute_control") == 0);
    if (strcmp(f->scenario, "exit_before_info") == 0) {
        fprintf(stderr, "fake_kernel: leaving before kernel_info\n");
        _exit((int)f->number);
    }
    if (r->socket == SHELL && f->deaf > 0) {
        f->deaf--;
        fprintf(stderr, "fake_kernel: interrupted while idle\n");
        mute = true;
    }
    if (!mute) {
        fake_reply(
            f, r, "kernel_info_reply",
            "{\"status\":\"ok\",\"protocol_version\":\"5.3\",\"implementation\":\"fake\","
            "\"implementation_version\":\"1\",\"banner\":\"\",\"language_info\":{\"name\":\"fake\","
            "\"version\":\"1\",\"mimetype\":\"text/plain\",\"file_extension\":\".txt\"}}");
    }
}

/* With the code "sleep MS" it takes its time. */
static void complete(fake_t *f, const request_t *r)
{
    kg_json_value_t content;
    KG_AUTO_BUF kg_buf_t code = {0};
    fake_must(kg_json_check(kg_buf_slice(&r->content), 128, &content), r->type);
    if (kg_json_get(content, "code").type == KG_JSON_STRING) {
        fake_must(kg_json_decode_string(&code, kg_json_get(content, "code")), r->type);
    }
    fake_must(kg_buf_append_cstr(&code, ""), r->type);
    if (strncmp(code.data, "sleep ", 6) == 0) {
        fake_sleep_ms(strtoul(code.data + 6, NULL, 10));
    }
    fake_reply(f, r, "complete_reply",
               "{\"status\":\"ok\",\"matches\":[\"fake\"],\"cursor_start\":0,\"cursor_end\":1,"
               "\"metadata\":{}}");
}

static void other(fake_t *f, const request_t *r)
{
    if (strcmp(r->type, "interrupt_request") == 0) {
        f->interrupted = true;
        f->interrupts++;
        f->stray_interrupts += !executing;
        if (f->interrupt_late_ms > 0 && !f->late_interrupt_ns) {
            uint64_t ms = f->interrupt_late_ms;
            f->late_interrupt_ns = ms == HELD ? HELD : kg_now_ns() + ms * KG_NS_PER_MS;
            f->late_interrupt = (request_t){.socket = r->socket};
            fake_must(kg_buf_append_slice(&f->late_interrupt.identity, kg_buf_slice(&r->identity)),
                      "copy");
            fake_must(kg_buf_append_slice(&f->late_interrupt.header, kg_buf_slice(&r->header)),
                      "copy");
        } else {
            fake_reply(f, r, "interrupt_reply", "{\"status\":\"ok\"}");
        }
    } else if (strcmp(r->type, "shutdown_request") == 0) {
        f->stop = true;
        fake_reply(f, r, "shutdown_reply", "{\"status\":\"ok\",\"restart\":false}");
    } else if (strcmp(r->type, "complete_request") == 0) {
        complete(f, r);
    } else if (strcmp(r->type, "is_complete_request") == 0) {
        fake_reply(f, r, "is_complete_reply", "{\"status\":\"complete\"}");
    } else if (strcmp(r->type, "comm_msg") == 0) {
        char content[64];
        fake_must(kg_format(content, sizeof content, "{\"buffers\":%zu,\"bytes\":%zu}", r->buffers,
                            r->buffer_bytes),
                  "comm");
        fake_publish(f, "comm_msg", r, content);
    } /* inspect, history, comm_info and the rest: busy and idle, no reply */
}

static void handle(fake_t *f, request_t *r)
{
    if (strcmp(r->type, "unheard_request") == 0) {
        return;
    }
    if (strcmp(r->type, "bare_request") == 0) {
        fake_reply(f, r, "bare_reply", "{}");
        return;
    }
    fake_status(f, r, "busy");
    if (strcmp(r->type, "unfinished_request") == 0) {
        fake_reply(f, r, "unfinished_reply", "{\"status\":\"error\"}");
        return;
    }
    if (strcmp(r->type, "execute_request") == 0) {
        executing = 1;
        execute(f, r); /* sends idle itself */
        executing = 0;
        return;
    }
    if (strcmp(r->type, "kernel_info_request") == 0) {
        kernel_info(f, r);
    } else {
        other(f, r);
    }
    fake_status(f, r, "idle");
}

/* ---- start ---- */

static void bind_socket(fake_t *f, int which, int type, const kg_connfile_t *cf, unsigned port)
{
    char endpoint[160];
    fake_must(kg_format(endpoint, sizeof endpoint, "%s://%s%c%u", cf->transport, cf->ip,
                        strcmp(cf->transport, "ipc") == 0 ? '-' : ':', port),
              "endpoint");
    f->sockets[which] = zmq_socket(f->zmq, type);
    int zero = 0;
    int linger = 1000;
    zmq_setsockopt(f->sockets[which], ZMQ_SNDHWM, &zero, sizeof zero);
    zmq_setsockopt(f->sockets[which], ZMQ_LINGER, &linger, sizeof linger);
    if (type == ZMQ_ROUTER) {
        int one = 1;
        zmq_setsockopt(f->sockets[which], ZMQ_ROUTER_HANDOVER, &one, sizeof one);
    }
    fake_must(zmq_bind(f->sockets[which], endpoint), "bind");
}

static void read_scenario(fake_t *f, const char *text)
{
    fake_must(kg_format(f->scenario, sizeof f->scenario, "%s", text ? text : ""), "scenario");
    char *colon = strchr(f->scenario, ':');
    if (colon) {
        *colon = '\0';
        fake_must(kg_parse_u64(colon + 1, 0, UINT32_MAX, &f->number), "scenario");
    }
    f->silent_left = strcmp(f->scenario, "silent_iopub") == 0 ? f->number : 0;
}

static void before_bind(fake_t *f)
{
    if (strcmp(f->scenario, "exit_before_bind") == 0) {
        fprintf(stderr, "fake_kernel: leaving before bind\n");
        _exit((int)f->number);
    }
    if (strcmp(f->scenario, "segfault_before_bind") == 0) {
        end_process("segfault", 0);
    }
    if (strcmp(f->scenario, "hang_before_bind") == 0) {
        fprintf(stderr, "fake_kernel: hanging before bind\n");
        for (;;) {
            pause();
        }
    }
    if (strcmp(f->scenario, "slow_bind") == 0) {
        fake_sleep_ms(f->number);
    }
}

static void start(fake_t *f, const char *path)
{
    kg_connfile_t cf;
    kg_err_t err = {0};
    char *dir = strdup(path);
    char *slash = dir ? strrchr(dir, '/') : NULL;
    if (slash) {
        *slash = '\0';
    }
    int dirfd = open(slash ? dir : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dirfd < 0 || kg_connfile_read(dirfd, slash ? slash + 1 : path, &cf, &err) < 0) {
        fprintf(stderr, "fake_kernel: %s: %s\n", path, err.message);
        _exit(71);
    }
    close(dirfd);
    free(dir);
    fake_must(kg_wire_key_set(&f->key, cf.key, strlen(cf.key)), "key");
    f->zmq = zmq_ctx_new();
    bind_socket(f, SHELL, ZMQ_ROUTER, &cf, cf.shell_port);
    bind_socket(f, STDIN, ZMQ_ROUTER, &cf, cf.stdin_port);
    bind_socket(f, CONTROL, ZMQ_ROUTER, &cf, cf.control_port);
    bind_socket(f, IOPUB, ZMQ_PUB, &cf, cf.iopub_port);
    bind_socket(f, HEARTBEAT, ZMQ_REP, &cf, cf.hb_port);
}

static void beat(fake_t *f)
{
    char byte[64];
    int n = zmq_recv(f->sockets[HEARTBEAT], byte, sizeof byte, ZMQ_DONTWAIT);
    if (n >= 0) {
        zmq_send(f->sockets[HEARTBEAT], byte, (size_t)n < sizeof byte ? (size_t)n : sizeof byte, 0);
    }
}

static void serve(fake_t *f)
{
    while (!f->stop) {
        zmq_pollitem_t items[] = {{f->sockets[CONTROL], 0, ZMQ_POLLIN, 0},
                                  {f->sockets[SHELL], 0, ZMQ_POLLIN, 0},
                                  {f->sockets[HEARTBEAT], 0, ZMQ_POLLIN, 0}};
        if (zmq_poll(items, 3, f->late_interrupt_ns ? 5 : -1) < 0) {
            continue; /* SIGINT while idle is harmless */
        }
        serve_control(f);
        beat(f);
        request_t r;
        if (!f->stop && fake_receive(f, SHELL, &r)) {
            handle(f, &r);
            fake_request_fini(&r);
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: fake_kernel CONNECTION_FILE [SCENARIO]\n");
        return 64;
    }
    static fake_t fake;
    struct sigaction act = {.sa_handler = on_sigint};
    sigaction(SIGINT, &act, NULL);
    act.sa_handler = on_sigusr1;
    sigaction(SIGUSR1, &act, NULL);
    const char *scenario =
        argc > 2 ? argv[2] : getenv("FAKE_KERNEL_SCENARIO"); /* NOLINT(concurrency-mt-unsafe) */
    read_scenario(&fake, scenario);
    before_bind(&fake);
    start(&fake, argv[1]);
    if (strcmp(fake.scenario, "welcome") == 0) {
        fake_publish_raw(&fake, "iopub_welcome", kg_slice_cstr("{}"),
                         kg_slice_cstr("{\"subscription\":\"\"}"));
    }
    serve(&fake);
    for (int i = 0; i < SOCKETS; i++) {
        zmq_close(fake.sockets[i]);
    }
    zmq_ctx_term(fake.zmq);
    return 0;
}
