/* From nothing to ready: connection file, process, sockets, proof. */
#include <errno.h>
#include <sodium.h>
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/kernel/internal.h"
#include "proto/connfile.h"

#define TAIL_IN_MESSAGE                                                                            \
    360 /* bytes of stderr in the error's message; all that is kept is in the accessor */

static void random_name(kg_kernel_t *k)
{
    static const char alphabet[] = "abcdefghijklmnopqrstuvwxyz234567";
    unsigned char raw[24];
    randombytes_buf(raw, sizeof(raw));
    k->name[0] = 'k';
    for (size_t i = 1; i < sizeof(k->name) - 1; i++) {
        k->name[i] = alphabet[raw[i] & 31U];
    }
    k->name[sizeof(k->name) - 1] = '\0';
    char hex[2 * 16 + 1];
    sodium_bin2hex(hex, sizeof(hex), raw + 8, 16);
    (void)kg_format(k->session.id, sizeof(k->session.id), "sandal-%s", hex);
    (void)kg_format(k->identity, sizeof(k->identity), "%s", k->session.id);
    sodium_memzero(raw, sizeof(raw));
}

static int format_connfile(kg_kernel_t *k, kg_buf_t *out)
{
    kg_connfile_t cf = {
        .transport = "ipc",
        .shell_port = 1,
        .iopub_port = 2,
        .stdin_port = 3,
        .control_port = 4,
        .hb_port = 5,
        .signature_scheme = "hmac-sha256",
    };
    int rc = kg_format(cf.ip, sizeof(cf.ip), "%s/%s", kg_sbx_info(k->sbx)->run_dir, k->name);
    if (rc == 0) {
        kg_wire_key_generate(&k->session.key, cf.key);
        memcpy(k->key, cf.key, sizeof(k->key)); /* hex, with its NUL */
        rc = kg_connfile_format(&cf, out);
    }
    sodium_memzero(cf.key, sizeof(cf.key));
    return rc;
}

/* What the kernel said last, on one line that a terminal can show. */
static void append_tail(const kg_kernel_t *k, kg_err_t *err)
{
    size_t n = k->tail_len < TAIL_IN_MESSAGE ? k->tail_len : TAIL_IN_MESSAGE;
    const char *from = k->tail + k->tail_len - n;
    char text[TAIL_IN_MESSAGE + 1];
    size_t len = 0;
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)from[i];
        if (c >= 0x20 && c != 0x7f) {
            text[len++] = from[i];
        } else if (len > 0 && text[len - 1] != ' ') {
            text[len++] = ' ';
        }
    }
    while (len > 0 && text[len - 1] == ' ') {
        len--;
    }
    text[len] = '\0';
    if (len == 0) {
        return;
    }
    kg_err_t old = *err;
    kg_err_set(err, old.code, "%s; its stderr ends: %s", old.message, text);
    memcpy(err->hint, old.hint, sizeof(err->hint));
}

void kg_kernel_start_failed(kg_kernel_t *k, const kg_err_t *err)
{
    if (k->told_start) {
        return;
    }
    kg_err_t told = *err;
    kg_output_drain(k);
    if (k->adopted && k->life == KG_LIFE_ENDED) { /* it printed for a run, and died meanwhile */
        kg_output_last_words(k);
    }
    append_tail(k, &told);
    k->told_start = true;
    k->failed = true;
    kg_link_close(k);
    if (k->proc && k->life == KG_LIFE_RUNNING) {
        (void)kg_kernel_kill_tree(k);
    }
    kg_log(KG_LOG_INFO, "kernel.start_failed", "kernel=%s pid=%d error=%s", k->name, (int)k->pid,
           kg_err_name(told.code));
    if (!k->closing && k->sink.on_failed) {
        k->sink.on_failed(k->user, &told);
    }
}

void kg_kernel_start_ready(kg_kernel_t *k)
{
    k->told_start = true;
    k->left_cell = false; /* what it does is its owner's affair from now on */
    k->ready_ns = kg_now_ns();
    kg_buf_t info = k->link.info; /* the callback may close the kernel */
    k->link.info = (kg_buf_t){0};
    kg_json_value_t content = {0};
    kg_log(KG_LOG_DEBUG, "kernel.ready", "kernel=%s pid=%d ms=%u", k->name, (int)k->pid,
           (unsigned)((k->ready_ns - k->started_ns) / KG_NS_PER_MS));
    int rc = kg_json_check(kg_buf_slice(&info), KG_JSON_DEPTH_MAX, &content);
    if (k->sink.on_ready && (rc == 0 || k->adopted)) { /* one that is busy may not have answered */
        k->sink.on_ready(k->user, content);
    }
    kg_buf_fini(&info);
}

static void on_spawned(void *user, kg_proc_t *proc, const kg_err_t *why)
{
    kg_kernel_t *k = user;
    kg_spawn_plan_destroy(&k->plan);
    k->proc = proc;
    if (!proc && k->closing) {
        k->life = KG_LIFE_ENDED;
        kg_kernel_close_goes_on(k);
        return;
    }
    if (!proc) {
        kg_err_t err = {0};
        /* A directory that cannot be entered is the mistake of who named it. */
        bool asked = why->pointer[0] != '\0';
        kg_err_set(&err, asked ? KG_ERR_INVALID_REQUEST : KG_ERR_KERNEL_START_FAILED,
                   "the kernel's process cannot be started: %s", why->message);
        kg_err_hint(&err, "%s", why->hint);
        kg_err_pointer(&err, "%s", why->pointer);
        k->life = KG_LIFE_ENDED;
        kg_kernel_start_failed(k, &err);
        return;
    }
    k->life = KG_LIFE_RUNNING;
    k->pid = kg_proc_pid(proc);
    kg_proc_on_exit(proc, kg_kernel_on_proc_exit, k);
    int rc = kg_output_open(k);
    if (k->closing) {
        kg_kernel_close_goes_on(k);
    } else if (rc < 0 || k->pipes[0].fd < 0 || k->pipes[1].fd < 0) { /* no descriptors were left */
        kg_err_t err = {0};
        kg_err_set(&err, kg_err_from_errno(rc < 0 ? rc : -EMFILE),
                   "the kernel's output cannot be watched");
        kg_kernel_start_failed(k, &err);
    } else if (k->failed) { /* the deadline passed meanwhile */
        (void)kg_kernel_kill_tree(k);
    } else {
        kg_link_begin(k, 0);
    }
}

static void on_file_written(void *user, const kg_err_t *why)
{
    kg_kernel_t *k = user;
    kg_err_t err = {0};
    if (k->closing || k->failed) {
        kg_closep(&k->zygote_sock);
    }
    if (k->closing) {
        k->life = KG_LIFE_ENDED;
        kg_kernel_close_goes_on(k);
        return;
    }
    if (k->failed) { /* the deadline passed meanwhile */
        k->life = KG_LIFE_ENDED;
        return;
    }
    if (why) {
        kg_err_set(&err, KG_ERR_KERNEL_START_FAILED, "the connection file cannot be written: %s",
                   why->message);
    } else {
        const kg_spawn_opts_t opts = {
            .argv = (const char *const *)k->plan->argv,
            .env = (const char *const *)k->plan->env,
            .cwd = k->plan->cwd,
            .nofile = k->plan->nofile,
            .umask_bits = k->plan->umask_bits,
            .last_words = true,
            .forked = k->zygote_sock >= 0,
            .zygote_sock = k->zygote_sock,
        };
        int rc = kg_sbx_spawn(k->sbx, &opts, on_spawned, k, &err);
        kg_closep(&k->zygote_sock);
        if (rc == 0) {
            return;
        }
        kg_err_wrap(&err, "the kernel's process cannot be started");
    }
    k->life = KG_LIFE_ENDED;
    kg_kernel_start_failed(k, &err);
}

int kg_kernel_start_begin(kg_kernel_t *k, const kg_kernel_opts_t *opts, kg_err_t *err)
{
    random_name(k);
    int rc = kg_format(k->session.username, sizeof(k->session.username), "%s",
                       opts->username ? opts->username : "sandal");
    char file[KG_SBX_NAME_MAX];
    char path[KG_SBX_PATH_MAX + KG_SBX_NAME_MAX];
    (void)kg_format(file, sizeof(file), "%s.json", k->name);
    (void)kg_format(path, sizeof(path), "%s/%s", kg_sbx_info(k->sbx)->run_dir, file);
    if (rc < 0) {
        return kg_err_set(err, KG_ERR_INVALID_REQUEST, "the user name is too long");
    }
    rc = kg_spawn_plan_make(opts, path, &k->plan, err);
    if (rc < 0) {
        return rc;
    }
    KG_AUTO_BUF kg_buf_t text = {0};
    rc = format_connfile(k, &text);
    if (rc == 0) {
        rc = kg_sbx_file_write(k->sbx, file, kg_buf_slice(&text), on_file_written, k);
    }
    if (text.data) {
        sodium_memzero(text.data, text.len); /* it holds the key */
    }
    if (rc < 0) {
        return kg_err_set(err, KG_ERR_KERNEL_START_FAILED,
                          "the connection file cannot be written: %s", strerrordesc_np(-rc));
    }
    k->started_ns = kg_now_ns();
    kg_timer_start(k->link.deadline, k->limits.start_ns, 0);
    return 0;
}
