/* bench_many HOST PORT TOKEN PROTOCOL RATE SECONDS CODE KERNEL…: RATE executions a second in each
 * of the kernels for so long, through the channels of each. In CODE @ stands for the number of the
 * execution, which is what it prints, and all that it prints. Each execution must be answered with
 * its busy, its execute_input, its number, its idle and its reply, each once and the reply being
 * ok: else the program fails. One that is not over when the next one is due delays it (late). */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/channels.h"

enum {
    KERNELS_MAX = 256,
    GRACE_MS = 60000, /* for an answer */
};

typedef struct one {
    channels_t channels;
    char id[CHANNELS_ID_MAX];
    uint64_t due_ns;
    uint64_t sent_ns; /* 0 = none is under way */
    unsigned number;  /* of executions */
    unsigned busy, input, text, idle, reply;
} one_t;

typedef struct many {
    one_t *ones;
    size_t count;
    const char *code;
    uint64_t interval_ns;
    uint64_t end_ns;
    uint64_t *ns;
    size_t done;
    uint64_t messages;
    uint64_t late;
} many_t;

static void execute(many_t *m, one_t *one, uint64_t now)
{
    KG_AUTO_BUF kg_buf_t code = {0};
    const char *at = strchr(m->code, '@');
    if (!at) {
        bench_fail("the code has no @");
    }
    kg_buf_printf(&code, "%.*s%u%s", (int)(at - m->code), m->code, ++one->number, at + 1);
    one->busy = one->input = one->text = one->idle = one->reply = 0;
    m->late += now - one->due_ns > m->interval_ns;
    one->sent_ns = now;
    one->due_ns += m->interval_ns;
    channels_execute(&one->channels, code.data, one->id);
}

static bool is_type(const heard_t *heard, const char *type)
{
    return kg_slice_eq_cstr(heard->type, type);
}

static void take_text(one_t *one, const heard_t *heard)
{
    char want[32];
    snprintf(want, sizeof(want), "\"%u\\n\"", one->number);
    if (!kg_slice_eq_cstr(kg_json_get(heard->content, "text").raw, want)) {
        fprintf(stderr, "%.*s\n", (int)heard->content.raw.len, heard->content.raw.data);
        bench_fail("a kernel printed something else");
    }
    one->text++;
}

static void take(one_t *one, const heard_t *heard)
{
    if (heard_reply(heard)) {
        kg_slice_t status = kg_json_get(heard->content, "status").raw;
        one->reply++;
        if (!kg_slice_eq_cstr(status, "\"ok\"")) {
            fprintf(stderr, "%.*s\n", (int)heard->content.raw.len, heard->content.raw.data);
            bench_fail("an execution failed");
        }
    } else if (heard_idle(heard)) {
        one->idle++;
    } else if (is_type(heard, "\"status\"")) {
        one->busy++;
    } else if (is_type(heard, "\"execute_input\"")) {
        one->input++;
    } else if (is_type(heard, "\"stream\"")) {
        take_text(one, heard);
    } else {
        bench_fail("a message that nobody asked for");
    }
}

static void receive(many_t *m, one_t *one)
{
    heard_t heard;
    do {
        channels_receive(&one->channels, &heard);
        if (!one->sent_ns || !kg_slice_eq_cstr(heard.parent_id, one->id)) {
            if (heard.parent_id.len > 6 && memcmp(heard.parent_id.data, "\"bench", 6) == 0) {
                bench_fail("a message of an execution that is over");
            }
            continue;
        }
        m->messages++;
        take(one, &heard);
        if (one->reply == 1 && one->idle == 1) {
            if (one->busy != 1 || one->input != 1 || one->text != 1) {
                bench_fail("a message was lost, or came twice");
            }
            m->ns[m->done++] = bench_now_ns() - one->sent_ns;
            one->sent_ns = 0;
        }
    } while (ws_client_has_more(&one->channels.ws));
}

/* Sends what is due; -1 = all is over, else the ms until something is. */
static int send_due(many_t *m)
{
    uint64_t now = bench_now_ns();
    uint64_t next = UINT64_MAX;
    bool open = false;
    for (size_t i = 0; i < m->count; i++) {
        one_t *one = &m->ones[i];
        if (one->sent_ns && now - one->sent_ns > GRACE_MS * UINT64_C(1000000)) {
            bench_fail("an execution is not answered");
        }
        if (!one->sent_ns && one->due_ns < m->end_ns && one->due_ns <= now) {
            execute(m, one, now);
        }
        open |= one->sent_ns || one->due_ns < m->end_ns;
        next = !one->sent_ns && one->due_ns < next ? one->due_ns : next;
    }
    if (!open) {
        return -1;
    }
    uint64_t ms = next > now ? (next - now) / 1000000 + 1 : 0;
    return ms > 1000 ? 1000 : (int)ms;
}

static void loop(many_t *m)
{
    struct pollfd fds[KERNELS_MAX];
    int ms = 0;
    while ((ms = send_due(m)) >= 0) {
        for (size_t i = 0; i < m->count; i++) {
            fds[i] = (struct pollfd){.fd = m->ones[i].channels.ws.fd, .events = POLLIN};
        }
        if (poll(fds, m->count, ms) < 0) {
            bench_fail("poll");
        }
        for (size_t i = 0; i < m->count; i++) {
            if (fds[i].revents) {
                receive(m, &m->ones[i]);
            }
        }
    }
}

int main(int argc, char **argv)
{
    if (argc < 9 || argc - 8 > KERNELS_MAX) {
        fprintf(stderr, "usage: bench_many HOST PORT TOKEN PROTOCOL RATE SECONDS CODE KERNEL…\n");
        return 2;
    }
    unsigned rate = (unsigned)strtoul(argv[5], NULL, 10);
    unsigned seconds = (unsigned)strtoul(argv[6], NULL, 10);
    many_t m = {.count = (size_t)argc - 8, .code = argv[7]};
    m.interval_ns = UINT64_C(1000000000) / (rate ? rate : 1);
    m.ones = calloc(m.count, sizeof(*m.ones));
    m.ns = calloc(m.count * (seconds + 1) * (rate + 1) + 1, sizeof(*m.ns));
    for (size_t i = 0; i < m.count; i++) {
        channels_open(&m.ones[i].channels, argv[1], argv[2], argv[3], argv[8 + i], argv[4]);
    }
    uint64_t begin = bench_now_ns();
    m.end_ns = begin + seconds * UINT64_C(1000000000);
    for (size_t i = 0; i < m.count; i++) { /* not all at once */
        m.ones[i].due_ns = begin + m.interval_ns * i / m.count;
    }
    loop(&m);
    uint64_t end = bench_now_ns();
    uint64_t bytes = 0;
    for (size_t i = 0; i < m.count; i++) {
        bytes += m.ones[i].channels.ws.bytes;
        channels_close(&m.ones[i].channels);
    }
    fprintf(stderr, "{\"late\":%llu}\n", (unsigned long long)m.late);
    bench_report(m.ns, m.done, end - begin, end - begin, m.messages, bytes);
    free(m.ones);
    free(m.ns);
    return 0;
}
