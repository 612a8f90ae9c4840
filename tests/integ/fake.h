/* What the files of the fake kernel share. */
#ifndef SANDAL_TESTS_FAKE_H
#define SANDAL_TESTS_FAKE_H

#include "gateway/base/clock.h"
#include "gateway/base/str.h"
#include "proto/connfile.h"
#include "proto/wire.h"

enum {
    SHELL,
    CONTROL,
    STDIN,
    IOPUB,
    HEARTBEAT,
    SOCKETS
};

typedef struct request {
    int socket;
    char type[64];
    kg_buf_t identity, header, content;
    size_t buffers, buffer_bytes;
} request_t;

typedef struct fake {
    void *zmq;
    void *sockets[SOCKETS];
    kg_wire_key_t key;
    char scenario[64];
    uint64_t number;
    uint64_t counter;
    uint64_t silent_left;
    unsigned executions;
    bool bad_sign;
    bool error, missing_idle, missing_reply, double_reply, ename_only;
    uint64_t reply_gap_ms, idle_gap_ms, late_ms;
    char late_text[256], over_text[64];
    int exit_after_reply;
    bool interrupted;
    unsigned interrupts, stray_interrupts; /* all by message; those that came while nothing ran */
    unsigned deaf;
    uint64_t interrupt_late_ms;
    request_t late_interrupt; /* to be answered at… */
    uint64_t late_interrupt_ns;
    bool stop;
} fake_t;

_Noreturn void fake_die(const char *what);
void fake_must(int rc, const char *what);
void fake_sleep_ms(uint64_t ms);
void fake_send_frame(void *socket, kg_slice_t frame, bool more);
void fake_send_signed(fake_t *f, int to, kg_slice_t first, const kg_slice_t parts[4]);
void fake_make_header(fake_t *f, const char *type, kg_buf_t *out);
void fake_publish_raw(fake_t *f, const char *type, kg_slice_t parent, kg_slice_t content);
/* With the time of its sending, by kg_now_ns, in a buffer: buffers are not signed. */
void fake_publish_stamped(fake_t *f, const char *type, kg_slice_t parent, kg_slice_t content);
void fake_publish(fake_t *f, const char *type, const request_t *r, const char *content);
void fake_status(fake_t *f, const request_t *r, const char *state);
void fake_reply(fake_t *f, const request_t *r, const char *type, const char *content);
void fake_text_message(fake_t *f,
                       const request_t *r,
                       const char *type,
                       const char *before,
                       const char *text,
                       const char *after);
void fake_stream(fake_t *f, const request_t *r, const char *name, const char *text);
void fake_result(fake_t *f, const request_t *r, const char *text);
void fake_display(fake_t *f, const request_t *r, const char *type, char *id_and_text);
void fake_request_fini(request_t *r);
bool fake_receive(fake_t *f, int from, request_t *ret);

#endif
