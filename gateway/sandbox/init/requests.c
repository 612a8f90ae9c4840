/* The gateway's requests to sandal-init, and what waits to be sent back. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/sandbox/init/args.h"
#include "gateway/sandbox/init/init.h"

#define READ_BUDGET 16 /* requests a loop turn */

static void close_fds(int *fds, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        kg_closep(&fds[i]);
    }
}

void init_send_frame(
    kg_init_t *in, const void *frame, size_t len, const int *fds_take, size_t fd_count)
{
    int fds[KG_SEQ_FDS_MAX] = {-1, -1, -1, -1};

    for (size_t i = 0; i < fd_count; i++) {
        fds[i] = fds_take[i];
    }
    if (in->flags & KG_INIT_FLAG_INNER) { /* none can leave */
        close_fds(fds, fd_count);
        fd_count = 0;
    }
    if (in->gateway >= 0 && !in->out_first) {
        int r = kg_seq_send(in->gateway, frame, len, fds, fd_count);
        if (r != -EAGAIN && r != -ENOBUFS) {
            close_fds(fds, fd_count); /* sent, or broken: the socket will read as ended */
            return;
        }
    }
    kg_iout_t *out = in->gateway >= 0 ? malloc(sizeof(*out) + len) : NULL;
    if (!out) {
        close_fds(fds, fd_count);
        return;
    }
    *out = (kg_iout_t){.fd_count = fd_count, .len = len};
    memcpy(out->data, frame, len);
    memcpy(out->fds, fds, sizeof(fds));
    *in->out_last = out;
    in->out_last = &out->next;
}

void init_send(kg_init_t *in, const kg_ip_reply_t *reply, const int *fds_take, size_t fd_count)
{
    init_send_frame(in, reply, reply->head.size, fds_take, fd_count);
}

void init_send_files_error(kg_init_t *in, unsigned verb, uint32_t seq, int error)
{
    kg_ip_reply_t reply;
    (void)kg_ip_reply_init(&reply, (kg_ip_verb_t)verb, seq);
    reply.files.error = error;
    init_send(in, &reply, NULL, 0);
}

static void drop_first(kg_init_t *in)
{
    kg_iout_t *out = in->out_first;
    in->out_first = out->next;
    if (!in->out_first) {
        in->out_last = &in->out_first;
    }
    close_fds(out->fds, out->fd_count);
    free(out);
}

void init_flush(kg_init_t *in)
{
    while (in->out_first && in->gateway >= 0) {
        kg_iout_t *out = in->out_first;
        int r = kg_seq_send(in->gateway, out->data, out->len, out->fds, out->fd_count);
        if (r == -EAGAIN || r == -ENOBUFS) {
            return;
        }
        drop_first(in);
    }
}

void init_gateway_gone(kg_init_t *in)
{
    while (in->out_first) {
        drop_first(in);
    }
    kg_closep(&in->gateway);
    in->gateway_number++;
    init_drop_temps(in);
    for (kg_iproc_t *proc = in->procs; proc; proc = proc->next) {
        proc->exit_sent = false; /* the next one shall know too */
    }
}

static void send_result(kg_init_t *in, kg_ip_verb_t verb, uint32_t seq, int error, int fd_take)
{
    kg_ip_reply_t reply;
    (void)kg_ip_reply_init(&reply, verb, seq);
    reply.result.error = error;
    reply.result.pid = verb == KG_IP_HELLO ? getpid() : 0;
    init_send(in, &reply, &fd_take, fd_take >= 0);
}

static void do_report(kg_init_t *in, uint32_t seq)
{
    const kg_iproc_t *proc = in->procs;
    do {
        kg_ip_reply_t reply;
        (void)kg_ip_reply_init(&reply, KG_IP_REPORT, seq);
        for (; proc && reply.report.count < KG_IP_REPORT_ROWS; proc = proc->next) {
            bool ended = proc->state == KG_IPROC_ENDED && !proc->acked;
            if (proc->state != KG_IPROC_RUNNING && !ended) {
                continue;
            }
            reply.report.rows[reply.report.count++] = (kg_ip_report_row_t){
                .token = proc->token,
                .pid = proc->pid,
                .ended = ended,
                .status = proc->status,
            };
        }
        reply.report.more = proc != NULL;
        init_send(in, &reply, NULL, 0);
    } while (proc);
}

static void do_usage(kg_init_t *in, const kg_ip_token_t *request)
{
    kg_ip_reply_t reply;
    const kg_iproc_t *proc = init_find(in, request->token);

    (void)kg_ip_reply_init(&reply, KG_IP_USAGE, request->head.seq);
    if (!proc || proc->minder == 0) {
        reply.usage.error = -ESRCH;
    } else {
        init_usage(proc, &reply.usage);
    }
    init_send(in, &reply, NULL, 0);
}

static void do_token(kg_init_t *in, const kg_ip_request_t *r)
{
    kg_iproc_t *proc =
        init_find(in, r->token.token); /* the token lies at the same place in all three */
    int error = proc ? 0 : -ESRCH;

    if (r->head.verb == KG_IP_ACK) {
        if (proc) {
            init_ack(proc);
        }
        return;
    }
    if (proc && r->head.verb == KG_IP_SIGNAL) {
        error = init_signal(proc, (int)r->signal.signo, r->signal.group != 0);
    } else if (proc) {
        proc->killing = true;
        proc->kill_next_ns = 0;
        proc->kill_gap_ns = INIT_KILL_GAP_NS;
    }
    send_result(in, (kg_ip_verb_t)r->head.verb, r->head.seq, error, -1);
}

static void do_name(kg_init_t *in, const kg_ip_request_t *r, const char *tail, size_t tail_len)
{
    int fd = -1;
    int error;

    if (r->head.verb == KG_IP_SOCKET_OPEN) {
        error = init_socket_open(in, r->name.name, &fd);
    } else if (r->head.verb == KG_IP_FILE_WRITE) {
        error = init_file_write(in, r->name.name, tail, tail_len);
    } else {
        error = init_file_unlink(in, r->name.name);
    }
    send_result(in, (kg_ip_verb_t)r->head.verb, r->head.seq, error, fd);
}

/* fd: that came along, for WATCH and SPAWN alone. */
static void handle(kg_init_t *in, const kg_ip_request_t *r, char *tail, size_t tail_len, int fd)
{
    if (kg_ip_verb_is_files(r->head.verb)) {
        init_job_start(in, &r->path, tail, tail_len, fd);
        return;
    }
    switch (r->head.verb) {
    case KG_IP_SPAWN:
        init_spawn(in, &r->spawn, tail, tail_len, fd);
        return;
    case KG_IP_SIGNAL:
    case KG_IP_KILL_TREE:
    case KG_IP_ACK:
        do_token(in, r);
        return;
    case KG_IP_REPORT:
        do_report(in, r->head.seq);
        return;
    case KG_IP_USAGE:
        do_usage(in, &r->token);
        return;
    case KG_IP_ATTACH:
        init_attach(in, &r->token);
        return;
    case KG_IP_CONNECT:
        init_connect(in, &r->connect);
        return;
    case KG_IP_HELLO: /* once more */
        send_result(in, KG_IP_HELLO, r->head.seq, r->hello.role == KG_IP_ROLE_GATEWAY ? 0 : -EPROTO,
                    -1);
        return;
    default:
        do_name(in, r, tail, tail_len);
        return;
    }
}

/* False when there is no more to read. */
static bool read_request(kg_init_t *in)
{
    kg_ip_request_t request = {0};
    const char *tail = NULL;
    size_t tail_len = 0;
    size_t len = 0;
    uint32_t seq = 0;
    int fds[KG_SEQ_FDS_MAX] = {-1, -1, -1, -1};
    size_t fd_count = 0;

    int r = kg_seq_recv(in->gateway, in->frame, sizeof(in->frame), &len, fds, &fd_count);
    if (r == -EAGAIN) {
        return false;
    }
    if ((r == 0 && len == 0) || (r < 0 && r != -EMSGSIZE)) {
        init_gateway_gone(in);
        return false;
    }
    if (r == 0) {
        r = kg_ip_request_decode(in->frame, len, &request, &tail, &tail_len, &seq);
    }
    in->frame_tail_len = tail_len;
    memcpy(in->given, fds, sizeof(in->given));
    if (r < 0) {
        send_result(in, KG_IP_REFUSED, seq, r, -1);
    } else if (init_guest_has(in, request.head.verb)) {
        init_guest_ask(in, &request, len);
    } else {
        handle(in, &request, in->frame + (tail - in->frame), tail_len, fds[0]);
    }
    for (size_t i = 0; i < fd_count && (in->flags & KG_INIT_FLAG_INNER); i++) {
        fds[i] = in->given[i]; /* those that were not taken */
    }
    close_fds(fds, fd_count);
    return true;
}

void init_read_requests(kg_init_t *in)
{
    for (int i = 0; i < READ_BUDGET && in->gateway >= 0 && !in->out_first; i++) {
        if (!read_request(in)) {
            return;
        }
    }
}
