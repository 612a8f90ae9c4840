/* One loop, one sandbox, one kernel, one request at a time, and what came of them. */
#ifndef SANDAL_TESTS_RIG_H
#define SANDAL_TESTS_RIG_H

#include "gateway/base/clock.h"
#include "gateway/kernel/kernel.h"
#include "tests/integ/box.h"

typedef struct rig {
    kg_loop_t *loop;
    box_t *box;
    kg_timer_t *tick;
    kg_kernel_opts_t opts; /* limits are long; tests may change them before rig_start */
    kg_kernelspec_t *spec;
    char scenario[64];

    const bool *waits_for;
    uint64_t wait_until_ns;
    bool timed_out;

    /* of the kernel */
    kg_kernel_t *kernel;
    bool ready, failed, exited, closed, resumed, suspended, used;
    kg_err_t err, link_err;
    kg_kernel_exit_t exit;
    kg_usage_t usage;
    kg_buf_t info, fd1, fd2, orphan;
    kg_buf_t tapped; /* "TYPE PARENT\n" of everything on iopub */
    unsigned busy, idle;

    /* of the latest request */
    kg_request_t *req;
    bool done;
    unsigned sent;        /* on_sent */
    size_t fd2_when_sent; /* bytes of it */
    bool done_before_exit;
    kg_request_end_t end;
    kg_buf_t out, err_out, result, late;
    unsigned messages, streams, replies, inputs, errors, unknown, prepared, prepared_freed,
        arg_freed;
    unsigned places, ahead, streams_ahead, places_freed; /* ahead: by the worker, of streams_ahead
                                                            that were delivered */
    uint64_t text_bytes;
    char reply_status[16];
    const char *answer;                 /* to input_request; NULL = none */
    void (*on_stream)(struct rig *rig); /* called for each stream message; may do anything */
} rig_t;

/* kernel: "fake" or "ipykernel". scenario: of the fake kernel, or "". */
void rig_open(rig_t *rig, const char *kernel, const char *scenario);
void rig_close(rig_t *rig); /* asserts that nothing is left: files, descriptors, requests */
int rig_start(rig_t *rig);
void rig_ready(rig_t *rig); /* open's kernel started, asserted ready */
bool rig_wait(rig_t *rig, const bool *flag, unsigned ms);
/* Lets time pass: for what is to be shown not to happen, never for what is to happen. */
void rig_turn(rig_t *rig, unsigned ms);
/* Longer than anything takes that is to happen, on the slowest machine with a sanitizer. */
#define RIG_PATIENCE_MS 60000
/* Lets the loop run until it is true. */
#define RIG_AWAIT(rig, it)                                                                         \
    do {                                                                                           \
        uint64_t rig_give_up_ns = kg_now_ns() + RIG_PATIENCE_MS * KG_NS_PER_MS;                    \
        while (!(it)) {                                                                            \
            if (kg_now_ns() >= rig_give_up_ns) {                                                   \
                fail_msg("never came true: %s", #it);                                              \
            }                                                                                      \
            rig_turn((rig), 1);                                                                    \
        }                                                                                          \
    } while (0)
/* Lets the loop run until the text is there: what the cell wrote up to that place has happened. */
void rig_await_text(rig_t *rig, kg_buf_t *buf, const char *text);
void rig_await_idle(rig_t *rig);
void rig_await_done(rig_t *rig);
void rig_await_exit(rig_t *rig);
/* Of the kernel's process, from outside. Standing still: the loop does not run. */
void rig_go(rig_t *rig); /* what is held in the fake kernel goes on */
void rig_stand_still_until_dead(rig_t *rig);
uint64_t rig_user_ticks(rig_t *rig); /* a hundred a second */
void rig_send(rig_t *rig, const char *code, bool allow_stdin);
/* Sends and waits for the end; asserts that it came. */
void rig_run(rig_t *rig, const char *code);
void rig_send_ask(rig_t *rig, kg_ask_what_t what, const char *code, unsigned deadline_ms);
void rig_ask(rig_t *rig, kg_ask_what_t what, const char *code, unsigned deadline_ms);
void rig_close_kernel(rig_t *rig, kg_kernel_close_mode_t mode);
const char *rig_text(kg_buf_t *buf); /* "" when nothing came */
unsigned rig_fds(void);
/* Sockets are closed by libzmq's own thread, a moment later. */
void rig_expect_fds(rig_t *rig, unsigned count);
void rig_suspend(rig_t *rig);
void rig_begin_resume(rig_t *rig);
void rig_resume(rig_t *rig);
/* false when the box cannot tell */
bool rig_usage(rig_t *rig);

#endif
