/* bench_direct CONNECTION_FILE ROUNDS CODE: the floor: one ZeroMQ client beside the kernel, each
 * round an execute_request timed until its reply and its idle have come, every signature checked,
 * JSON scanned once. Of a round with a stamped message (bench_stamp_age_ns) that one's age counts.
 */
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <zmq.h>

#include "proto/connfile.h"
#include "proto/request.h"
#include "tests/bench/bench.h"

#define FRAMES_MAX 64

typedef struct client {
    void *zmq;
    void *shell;
    void *iopub;
    kg_session_t session;
    uint64_t messages;
    uint64_t bytes;
    uint64_t age_ns;
} client_t;

static void *open_socket(client_t *c, int type, const kg_connfile_t *cf, unsigned port)
{
    char endpoint[256];
    int zero = 0;
    snprintf(endpoint, sizeof(endpoint), "%s://%s%s%u", cf->transport, cf->ip,
             strcmp(cf->transport, "ipc") == 0 ? "-" : ":", port);
    void *s = zmq_socket(c->zmq, type);
    zmq_setsockopt(s, ZMQ_LINGER, &zero, sizeof(zero));
    zmq_setsockopt(s, ZMQ_RCVHWM, &zero, sizeof(zero));
    if (type == ZMQ_SUB) {
        zmq_setsockopt(s, ZMQ_SUBSCRIBE, "", 0);
    }
    if (zmq_connect(s, endpoint) < 0) {
        bench_fail("connect");
    }
    return s;
}

static void send_out(void *socket, const kg_out_t *out)
{
    kg_slice_t frames[KG_OUT_FRAMES];
    kg_out_frames(out, frames);
    for (size_t i = 0; i < KG_OUT_FRAMES; i++) {
        zmq_send(socket, frames[i].data, frames[i].len, i + 1 < KG_OUT_FRAMES ? ZMQ_SNDMORE : 0);
    }
}

/* One message: 1 = the awaited end for this socket, 0 = another. */
static int receive(client_t *c, void *socket, const char *msg_id)
{
    zmq_msg_t parts[FRAMES_MAX];
    kg_slice_t frames[FRAMES_MAX];
    size_t n = 0;
    int more = 1;
    while (more && n < FRAMES_MAX) {
        zmq_msg_init(&parts[n]);
        if (zmq_msg_recv(&parts[n], socket, 0) < 0) {
            bench_fail("receive");
        }
        frames[n] = kg_slice(zmq_msg_data(&parts[n]), zmq_msg_size(&parts[n]));
        c->bytes += frames[n].len;
        more = zmq_msg_more(&parts[n]);
        n++;
    }
    kg_jmsg_t msg;
    kg_err_t err = {0};
    int done = 0;
    if (kg_jmsg_parse(frames, n, &c->session.key, &msg, &err) == 0 &&
        strcmp(msg.parent_id, msg_id) == 0) {
        c->messages++;
        uint64_t age_ns = bench_stamp_age_ns(msg.buffers, msg.buffer_count);
        c->age_ns = age_ns ? age_ns : c->age_ns;
        kg_json_value_t state = kg_json_get(msg.content, "execution_state");
        done = socket == c->shell || kg_slice_eq_cstr(state.raw, "\"idle\"");
    }
    while (n > 0) {
        zmq_msg_close(&parts[--n]);
    }
    return done;
}

static void wait_end(client_t *c, const char *msg_id)
{
    int reply = 0;
    int idle = 0;
    while (!reply || !idle) {
        zmq_pollitem_t items[] = {{c->shell, 0, ZMQ_POLLIN, 0}, {c->iopub, 0, ZMQ_POLLIN, 0}};
        if (zmq_poll(items, 2, 120000) <= 0) {
            bench_fail("no answer");
        }
        if (items[0].revents) {
            reply |= receive(c, c->shell, msg_id);
        }
        if (items[1].revents) {
            idle |= receive(c, c->iopub, msg_id);
        }
    }
}

static void run(client_t *c, const char *code)
{
    kg_out_t out = {0};
    kg_execute_args_t args = {
        .code = kg_slice_cstr(code), .store_history = true, .stop_on_error = true};
    if (kg_request_execute(&c->session, &args, &out) < 0) {
        bench_fail("request");
    }
    send_out(c->shell, &out);
    wait_end(c, out.msg_id);
    kg_out_fini(&out);
}

static void connect_all(client_t *c, char *path)
{
    kg_connfile_t cf;
    kg_err_t err = {0};
    char *copy = strdup(path);
    int dir = open(dirname(copy), O_PATH | O_DIRECTORY);
    free(copy);
    copy = strdup(path);
    if (kg_connfile_read(dir, basename(copy), &cf, &err) < 0) {
        bench_fail(err.message);
    }
    free(copy);
    close(dir);
    c->zmq = zmq_ctx_new();
    kg_wire_key_set(&c->session.key, cf.key, strlen(cf.key));
    snprintf(c->session.id, sizeof(c->session.id), "bench-%d", getpid());
    snprintf(c->session.username, sizeof(c->session.username), "bench");
    c->iopub = open_socket(c, ZMQ_SUB, &cf, cf.iopub_port);
    c->shell = open_socket(c, ZMQ_DEALER, &cf, cf.shell_port);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        fprintf(stderr, "usage: bench_direct CONNECTION_FILE ROUNDS CODE\n");
        return 2;
    }
    client_t c = {0};
    size_t rounds = strtoul(argv[2], NULL, 10);
    uint64_t *ns = calloc(rounds + 1, sizeof(*ns));
    connect_all(&c, argv[1]);
    usleep(300000); /* the subscription has no acknowledgement of its own */
    if (rounds > 1) {
        for (size_t i = 0; i < 10; i++) {
            run(&c, argv[3]);
        }
    }
    c.messages = c.bytes = c.age_ns = 0;
    uint64_t begin = bench_now_ns();
    for (size_t i = 0; i < rounds; i++) {
        bench_pause();
        uint64_t start = bench_now_ns();
        run(&c, argv[3]);
        ns[i] = c.age_ns ? c.age_ns : bench_now_ns() - start;
    }
    uint64_t end = bench_now_ns();
    bench_report(ns, rounds, end - begin, end - begin, c.messages, c.bytes);
    zmq_close(c.shell);
    zmq_close(c.iopub);
    zmq_ctx_term(c.zmq);
    free(ns);
    return 0;
}
