/* How the fake kernel sends and receives. */
#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

#include "tests/integ/fake.h"

_Noreturn void fake_die(const char *what)
{
    fprintf(stderr, "fake_kernel: %s: %s\n", what, strerrordesc_np(errno));
    _exit(70);
}

void fake_must(int rc, const char *what)
{
    if (rc < 0) {
        fake_die(what);
    }
}

void fake_sleep_ms(uint64_t ms)
{
    struct timespec t = {(time_t)(ms / 1000), (long)(ms % 1000) * 1000000};
    nanosleep(&t, NULL);
}

/* ---- sending ---- */

void fake_send_frame(void *socket, kg_slice_t frame, bool more)
{
    while (zmq_send(socket, frame.data ? frame.data : "", frame.len, more ? ZMQ_SNDMORE : 0) < 0) {
        if (errno != EINTR) {
            fake_die("send");
        }
    }
}

void fake_send_signed(fake_t *f, int to, kg_slice_t first, const kg_slice_t parts[4])
{
    char sig[KG_WIRE_SIG_LEN + 1];
    kg_wire_sign(&f->key, parts, sig);
    if (f->bad_sign) {
        sig[0] = sig[0] == '0' ? '1' : '0';
    }
    fake_send_frame(f->sockets[to], first, true);
    fake_send_frame(f->sockets[to], kg_slice_cstr("<IDS|MSG>"), true);
    fake_send_frame(f->sockets[to], kg_slice_cstr(sig), true);
    for (int i = 0; i < 4; i++) {
        fake_send_frame(f->sockets[to], parts[i], i < 3);
    }
}

void fake_publish_stamped(fake_t *f, const char *type, kg_slice_t parent, kg_slice_t content)
{
    KG_AUTO_BUF kg_buf_t header = {0};
    char sig[KG_WIRE_SIG_LEN + 1];
    void *s = f->sockets[IOPUB];
    fake_make_header(f, type, &header);
    const kg_slice_t parts[4] = {kg_buf_slice(&header), parent, kg_slice_cstr("{}"), content};
    kg_wire_sign(&f->key, parts, sig);
    uint64_t now = kg_now_ns();
    fake_send_frame(s, kg_slice_cstr("kernel.fake"), true);
    fake_send_frame(s, kg_slice_cstr("<IDS|MSG>"), true);
    fake_send_frame(s, kg_slice_cstr(sig), true);
    for (int i = 0; i < 4; i++) {
        fake_send_frame(s, parts[i], true);
    }
    fake_send_frame(s, kg_slice((const char *)&now, sizeof now), false);
}

void fake_make_header(fake_t *f, const char *type, kg_buf_t *out)
{
    fake_must(kg_buf_printf(
                  out,
                  "{\"msg_id\":\"fake_%llu\",\"session\":\"fake\",\"username\":\"fake\",\"date\":"
                  "\"2026-01-02T03:04:05.678901Z\",\"msg_type\":\"%s\",\"version\":\"5.3\"}",
                  (unsigned long long)++f->counter, type),
              "header");
}

void fake_publish_raw(fake_t *f, const char *type, kg_slice_t parent, kg_slice_t content)
{
    KG_AUTO_BUF kg_buf_t header = {0};
    fake_make_header(f, type, &header);
    const kg_slice_t parts[4] = {kg_buf_slice(&header), parent, kg_slice_cstr("{}"), content};
    fake_send_signed(f, IOPUB, kg_slice_cstr("kernel.fake"), parts);
}

void fake_publish(fake_t *f, const char *type, const request_t *r, const char *content)
{
    fake_publish_raw(f, type, kg_buf_slice(&r->header), kg_slice_cstr(content));
}

void fake_status(fake_t *f, const request_t *r, const char *state)
{
    if (f->silent_left > 0) {
        f->silent_left--;
        return;
    }
    char content[64];
    fake_must(kg_format(content, sizeof content, "{\"execution_state\":\"%s\"}", state), "status");
    fake_publish(f, "status", r, content);
}

void fake_reply(fake_t *f, const request_t *r, const char *type, const char *content)
{
    KG_AUTO_BUF kg_buf_t header = {0};
    fake_make_header(f, type, &header);
    const kg_slice_t parts[4] = {kg_buf_slice(&header), kg_buf_slice(&r->header),
                                 kg_slice_cstr("{}"), kg_slice_cstr(content)};
    fake_send_signed(f, r->socket, kg_buf_slice(&r->identity), parts);
}

void fake_text_message(fake_t *f,
                       const request_t *r,
                       const char *type,
                       const char *before,
                       const char *text,
                       const char *after)
{
    KG_AUTO_BUF kg_buf_t content = {0};
    fake_must(kg_buf_append_cstr(&content, before), "content");
    fake_must(kg_json_quote_cstr(&content, text), "content");
    fake_must(kg_buf_append_cstr(&content, after), "content");
    fake_publish_raw(f, type, kg_buf_slice(&r->header), kg_buf_slice(&content));
}

void fake_stream(fake_t *f, const request_t *r, const char *name, const char *text)
{
    char before[64];
    fake_must(kg_format(before, sizeof before, "{\"name\":\"%s\",\"text\":", name), "stream");
    fake_text_message(f, r, "stream", before, text, "}");
}

void fake_result(fake_t *f, const request_t *r, const char *text)
{
    char before[96];
    fake_must(kg_format(before, sizeof before,
                        "{\"execution_count\":%u,\"metadata\":{},\"data\":{\"text/plain\":",
                        f->executions),
              "result");
    fake_text_message(f, r, "execute_result", before, text, "}}");
}

void fake_display(fake_t *f, const request_t *r, const char *type, char *id_and_text)
{
    char *text = strchr(id_and_text, ' ');
    if (text) {
        *text++ = '\0';
    }
    char after[128];
    fake_must(kg_format(after, sizeof after,
                        "},\"metadata\":{},\"transient\":{\"display_id\":\"%s\"}}", id_and_text),
              "display");
    fake_text_message(f, r, type, "{\"data\":{\"text/plain\":", text ? text : "", after);
}

/* ---- receiving ---- */

void fake_request_fini(request_t *r)
{
    kg_buf_fini(&r->identity);
    kg_buf_fini(&r->header);
    kg_buf_fini(&r->content);
}

bool fake_receive(fake_t *f, int from, request_t *ret)
{
    zmq_msg_t parts[16];
    kg_slice_t frames[16];
    size_t n = 0;
    bool more = true;
    while (more && n < 16) {
        zmq_msg_init(&parts[n]);
        if (zmq_msg_recv(&parts[n], f->sockets[from], ZMQ_DONTWAIT) < 0) {
            zmq_msg_close(&parts[n]);
            break;
        }
        frames[n] = kg_slice(zmq_msg_data(&parts[n]), zmq_msg_size(&parts[n]));
        more = zmq_msg_more(&parts[n]);
        n++;
    }
    kg_jmsg_t msg;
    kg_err_t err = {0};
    int rc = n > 0 ? kg_jmsg_parse(frames, n, &f->key, &msg, &err) : -EAGAIN;
    if (rc == 0) {
        *ret = (request_t){.socket = from};
        memcpy(ret->type, msg.msg_type, sizeof ret->type);
        fake_must(kg_buf_append_slice(&ret->identity, frames[0]), "copy");
        fake_must(kg_buf_append_slice(&ret->header, msg.header.raw), "copy");
        fake_must(kg_buf_append_slice(&ret->content, msg.content.raw), "copy");
        ret->buffers = msg.buffer_count;
        for (size_t i = 0; i < msg.buffer_count; i++) {
            ret->buffer_bytes += msg.buffers[i].len;
        }
    } else if (n > 0) {
        fprintf(stderr, "fake_kernel: bad message: %s\n", err.message);
    }
    while (n > 0) {
        zmq_msg_close(&parts[--n]);
    }
    return rc == 0;
}
