/* gateway/context: what goes in and out of a command's process. Its pipes are always read, whatever
 * becomes of the text: a full one blocks the process for ever. */
#include <errno.h>
#include <sodium.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/log.h"
#include "gateway/context/command_internal.h"

enum {
    READ_BYTES = 16384,
    READS_A_TURN = 4,
    READS_AT_END = 64, /* more than a pipe holds; a child that lives on cannot keep us here */
    GROUP = 3,         /* bytes of a group of base64 */
    END_OF_FILE = 4,   /* ^D, as a terminal takes it */
};

/* ---- out ---- */

static void tell(kg_command_t *command, bool is_stderr, kg_slice_t text)
{
    kg_run_t *run = command->run;
    if (!text.len || !run->mapper) {
        return;
    }
    int rc = kg_mapper_text(run->mapper, is_stderr, text);
    if (rc) {
        kg_log(KG_LOG_ERROR, "run.output_lost", "run=%s error=%d", run->id, -rc);
    }
}

static int encode(kg_buf_t *out, const unsigned char *bytes, size_t len)
{
    size_t size = sodium_base64_ENCODED_LEN(len, sodium_base64_VARIANT_ORIGINAL);
    int rc = kg_buf_reserve(out, size);
    if (rc == 0) {
        (void)sodium_bin2base64(out->data + out->len, size, bytes, len,
                                sodium_base64_VARIANT_ORIGINAL);
        out->len += size - 1;
    }
    return rc;
}

/* Whole groups alone, so that pieces put together are base64 again. */
static int push_base64(kg_command_pipe_t *p, kg_buf_t *out, const char *bytes, size_t len)
{
    unsigned char group[READ_BYTES + GROUP];
    memcpy(group, p->held, p->held_len);
    memcpy(group + p->held_len, bytes, len);
    len += p->held_len;
    p->held_len = (unsigned)(len % GROUP);
    memcpy(p->held, group + len - p->held_len, p->held_len);
    return encode(out, group, len - p->held_len);
}

static void take(kg_command_pipe_t *p, const char *bytes, size_t len)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    int rc = p->command->base64 ? push_base64(p, &text, bytes, len)
                                : kg_utf8_stream_push(&p->text, &text, bytes, len);
    if (rc) {
        kg_log(KG_LOG_ERROR, "run.output_lost", "run=%s error=%d", p->command->run->id, -rc);
        return;
    }
    tell(p->command, p->is_stderr, kg_buf_slice(&text));
}

static void flush(kg_command_pipe_t *p)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    int rc = 0;
    if (!p->command->base64) {
        rc = kg_utf8_stream_end(&p->text, &text);
    } else if (p->held_len) {
        rc = encode(&text, p->held, p->held_len);
        p->held_len = 0;
    }
    if (!rc) {
        tell(p->command, p->is_stderr, kg_buf_slice(&text));
    }
}

void kg_command_io_flush(kg_command_t *command)
{
    flush(&command->out[0]);
    flush(&command->out[1]);
}

static void close_in(kg_command_t *command)
{
    kg_fdwatch_close(&command->in_watch);
    if (!command->pty) {
        kg_closep(&command->in_fd);
    }
    command->in_fd = -1;
    kg_buf_fini(&command->in);
}

static void close_out(kg_command_pipe_t *p)
{
    flush(p);
    if (p->command->pty && !p->is_stderr) {
        close_in(p->command);
    }
    kg_fdwatch_close(&p->watch);
    kg_closep(&p->fd);
}

/* false: it is closed. */
static bool read_some(kg_command_pipe_t *p, unsigned reads)
{
    char bytes[READ_BYTES];
    while (p->fd >= 0 && reads-- > 0) {
        ssize_t n = read(p->fd, bytes, sizeof(bytes));
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            return true;
        }
        if (n <= 0) { /* of a terminal whose last process has gone: EIO */
            close_out(p);
            return false;
        }
        take(p, bytes, (size_t)n);
    }
    return p->fd >= 0;
}

/* ---- in ---- */

static kg_fdwatch_t *in_watch(kg_command_t *command)
{
    return command->pty ? command->out[0].watch : command->in_watch;
}

static void watch_in(kg_command_t *command, bool writable)
{
    if (in_watch(command)) {
        (void)kg_fdwatch_set(in_watch(command), command->pty, writable);
    }
}

static void write_some(kg_command_t *command)
{
    while (command->in.len > 0) {
        ssize_t n = write(command->in_fd, command->in.data, command->in.len);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0 && errno == EAGAIN) {
            watch_in(command, true);
            return;
        }
        if (n < 0) { /* nobody reads it any more */
            close_in(command);
            return;
        }
        kg_buf_consume(&command->in, (size_t)n);
    }
    if (command->in_end && !command->pty) {
        close_in(command);
    } else {
        watch_in(command, false);
    }
}

int kg_command_input(kg_command_t *command, kg_slice_t bytes, bool eof, kg_err_t *err)
{
    if (command->state != KG_COMMAND_RUNNING || command->in_fd < 0 ||
        (command->in_end && !command->pty)) {
        int rc = kg_err_set(err, KG_ERR_CONFLICT, "process %lld takes no input",
                            (long long)command->pid);
        kg_err_hint(err, "Its stdin is open where exec was asked for a background process, a pty, "
                         "or stdin_open.");
        return rc;
    }
    if (command->in.len + bytes.len + 1 > KG_COMMAND_INPUT_MAX) {
        int rc = kg_err_set(err, KG_ERR_QUEUE_FULL, "%zu bytes of input wait for process %lld",
                            command->in.len, (long long)command->pid);
        if (err) {
            err->retry_after_s = 1;
        }
        return rc;
    }
    if ((bytes.len && kg_buf_append_slice(&command->in, bytes)) ||
        (eof && command->pty && kg_buf_append_char(&command->in, END_OF_FILE))) {
        return kg_oom(err);
    }
    command->in_end = command->in_end || (eof && !command->pty);
    kg_sandbox_touch(command->sandbox);
    kg_pause_wake(command->sandbox);
    write_some(command);
    return 0;
}

/* ---- the descriptors ---- */

static void on_out(void *user, bool readable, bool writable)
{
    kg_command_pipe_t *p = user;
    kg_command_t *command = p->command;
    if (writable && command->pty && command->in_fd >= 0) {
        write_some(command);
    }
    if (readable && !read_some(p, READS_A_TURN)) {
        kg_command_settle(command);
    }
}

static void on_in(void *user, bool readable, bool writable)
{
    (void)readable;
    if (writable) {
        write_some(user);
    }
}

static int watch_out(kg_command_pipe_t *p, int fd)
{
    p->fd = fd;
    if (fd < 0) {
        return 0;
    }
    int rc = kg_fdwatch_create(p->command->sandbox->core->loop, fd, on_out, p, &p->watch);
    return rc ? rc : kg_fdwatch_set(p->watch, true, false);
}

int kg_command_io_open(kg_command_t *command)
{
    kg_loop_t *loop = command->sandbox->core->loop;
    int rc = watch_out(&command->out[0], kg_proc_take_stdout(command->proc));
    int other = watch_out(&command->out[1], kg_proc_take_stderr(command->proc));
    rc = rc ? rc : other;
    command->in_fd = command->pty ? command->out[0].fd : kg_proc_take_stdin(command->proc);
    if (rc || command->in_fd < 0) {
        return rc;
    }
    if (!command->pty) {
        rc = kg_fdwatch_create(loop, command->in_fd, on_in, command, &command->in_watch);
    }
    if (!rc) {
        write_some(command);
    }
    return rc;
}

void kg_command_io_drain(kg_command_t *command)
{
    (void)read_some(&command->out[0], READS_AT_END);
    (void)read_some(&command->out[1], READS_AT_END);
}

void kg_command_io_close(kg_command_t *command)
{
    close_in(command);
    for (unsigned i = 0; i < 2; i++) {
        if (command->out[i].fd >= 0) {
            close_out(&command->out[i]);
        }
    }
}

bool kg_command_io_open_still(const kg_command_t *command)
{
    return command->out[0].fd >= 0 || command->out[1].fd >= 0;
}
