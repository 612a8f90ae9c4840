/* gateway/context: see zygote.h. A zygote's way: its sandbox is made, its HOME filled, its process
 * started, and its socket looked for until it listens, which it does when it has imported all. */
#include "gateway/context/zygote.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/context/warm.h"

#define SOCKET_NAME "zygote" /* in its run directory: sandal_zygote.py and its like */

enum {
    LOOK_MS = 20,
    RETRY_MS = 10000, /* after one that did not come to be */
    AHEAD_OF = 4,     /* the next is begun for the last fourth */
    TAIL = 400,       /* of what it printed, for the log */
};

typedef enum kg_zygote_state {
    KG_ZYGOTE_MAKING, /* its sandbox */
    KG_ZYGOTE_HOME,
    KG_ZYGOTE_LOADING,
    KG_ZYGOTE_READY,
    KG_ZYGOTE_OVER /* forks no more; goes with the last sandbox below it */
} kg_zygote_state_t;

struct kg_zygote {
    kg_core_t *core;
    const kg_template_t *tpl;
    const kg_tpl_language_t *lang;
    dev_t tree_dev; /* the template's tree that it has loaded from */
    ino_t tree_ino;
    char owner[KG_OWNER_MAX + 1]; /* "": of all */
    char id[KG_ID_MAX];
    kg_zygote_state_t state;
    kg_wish_t wish;
    kg_sbx_t *sbx;
    kg_proc_t *proc; /* HOME's skeleton, then itself */
    kg_timer_t *timer;
    kg_fdwatch_t *watch;
    int output;
    int socket; /* O_PATH */
    unsigned children;
    uint64_t since_ns; /* of the start, or the last use */
    char tail[TAIL];
    size_t tail_len;
    kg_zygote_t *prev, *next;
};

struct kg_zygote_failure {
    const kg_template_t *tpl;
    const kg_tpl_language_t *lang;
    char owner[KG_OWNER_MAX + 1];
    uint64_t until_ns;
    kg_zygote_failure_t *next;
};

const char *kg_zygote_id(const kg_zygote_t *zygote)
{
    return zygote->id;
}

bool kg_zygotes_have(const kg_core_t *core, const char *id)
{
    const kg_zygote_t *z = NULL;
    DL_FOREACH (core->zygotes, z) {
        if (strcmp(z->id, id) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- those that did not come to be ---- */

static void forget_failures(kg_core_t *core, uint64_t now_ns)
{
    kg_zygote_failure_t *f = NULL;
    kg_zygote_failure_t *next = NULL;
    LL_FOREACH_SAFE (core->zygote_failures, f, next) {
        if (f->until_ns <= now_ns) {
            LL_DELETE(core->zygote_failures, f);
            free(f);
        }
    }
}

static void remember_failure(const kg_zygote_t *z)
{
    kg_zygote_failure_t *f = calloc(1, sizeof(*f));
    if (!f) {
        return; /* it is tried again at once */
    }
    f->tpl = z->tpl;
    f->lang = z->lang;
    memcpy(f->owner, z->owner, sizeof(f->owner));
    f->until_ns = kg_now_ns() + kg_ms(RETRY_MS);
    LL_PREPEND(z->core->zygote_failures, f);
}

static bool failed_lately(kg_core_t *core,
                          const kg_template_t *tpl,
                          const kg_tpl_language_t *lang,
                          const char *owner)
{
    const kg_zygote_failure_t *f = NULL;
    forget_failures(core, kg_now_ns());
    LL_FOREACH (core->zygote_failures, f) {
        if (f->tpl == tpl && f->lang == lang && strcmp(f->owner, owner) == 0) {
            return true;
        }
    }
    return false;
}

/* ---- the end ---- */

static void quiet(kg_zygote_t *z)
{
    kg_timer_close(&z->timer);
    kg_fdwatch_close(&z->watch);
    kg_closep(&z->output);
    kg_closep(&z->socket);
    kg_proc_close(&z->proc);
}

static void destroy(kg_zygote_t *z)
{
    quiet(z);
    if (z->sbx) {
        kg_sbx_forget(z->sbx, z);
        kg_sbx_destroy(&z->sbx, false, NULL, NULL); /* while any is below it, the keeper waits */
    }
    if (z->core->keeper) {
        kg_keeper_forget(z->core->keeper, z);
    }
    kg_core_later_forget(z->core, z);
    DL_DELETE(z->core->zygotes, z);
    json_decref(z->wish.network);
    free(z);
}

static void destroy_later(void *user)
{
    kg_zygote_t *z = user;
    if (z->state == KG_ZYGOTE_OVER && z->children == 0) {
        destroy(z);
    }
}

/* It wished for a zygote, and its first kernel is a process of its own. */
void kg_zygote_none(kg_sandbox_t *sandbox)
{
    if (sandbox->start.kind == KG_START_SPAWN) {
        return;
    }
    sandbox->start.kind = KG_START_SPAWN;
    if (!sandbox->hidden) {
        (void)kg_sandbox_save(sandbox, NULL);
    }
}

/* Those that wait for it go on: with it, for another where it has no room for so many, or without.
 */
static void tell_waiting(kg_zygote_t *z)
{
    kg_sandbox_t *sandbox = NULL;
    kg_sandbox_t *next = NULL;
    HASH_ITER (hh, z->core->sandboxes, sandbox, next) {
        if (sandbox->zygote == z && sandbox->zygote_waits) {
            bool ready = z->state == KG_ZYGOTE_READY;
            sandbox->zygote_waits = false;
            if (!ready || z->children > kg_sbx_info(z->sbx)->children) {
                kg_zygote_leave(sandbox);
            }
            if (!ready) {
                kg_zygote_none(sandbox);
            }
            kg_box_zygote_ready(sandbox);
        }
    }
}

static void over(kg_zygote_t *z, const char *why)
{
    bool was_ready = z->state == KG_ZYGOTE_READY;
    if (z->state == KG_ZYGOTE_OVER) {
        return;
    }
    kg_log(was_ready ? KG_LOG_WARN : KG_LOG_ERROR, was_ready ? "zygote.over" : "zygote.failed",
           "zygote=%s template=%s children=%u reason=\"%s\" output=\"%.*s\"", z->id, z->tpl->name,
           z->children, why, (int)z->tail_len, z->tail);
    z->state = KG_ZYGOTE_OVER;
    z->since_ns = kg_now_ns();
    quiet(z);
    if (!was_ready) {
        remember_failure(z);
    }
    tell_waiting(z);
    (void)kg_core_later(z->core, destroy_later, z);
}

/* ---- the start ---- */

static void on_output(void *user, bool readable, bool writable)
{
    kg_zygote_t *z = user;
    char chunk[TAIL];
    (void)readable;
    (void)writable;
    ssize_t n = read(z->output, chunk, sizeof(chunk));
    if (n <= 0 && (n == 0 || errno != EAGAIN)) {
        kg_fdwatch_close(&z->watch);
        return;
    }
    if (n <= 0) {
        return;
    }
    size_t fresh = (size_t)n;
    size_t keep = z->tail_len + fresh > TAIL ? TAIL - fresh : z->tail_len;
    memmove(z->tail, z->tail + z->tail_len - keep, keep);
    memcpy(z->tail + keep, chunk, fresh);
    z->tail_len = keep + fresh;
    for (size_t i = keep; i < z->tail_len; i++) { /* for one line of the log */
        char c = z->tail[i];
        if (c < 0x20 || c > 0x7e || c == '"') {
            z->tail[i] = ' ';
        }
    }
}

static void on_ended(void *user, const kg_exit_t *exit)
{
    char why[64];
    (void)kg_format(why, sizeof(why), exit->signaled ? "signal %d" : "exit code %d",
                    exit->signaled ? exit->signal : exit->code);
    kg_zygote_t *z = user;
    if (z->watch) {
        on_output(z, true, false);
    }
    over(z, exit->lost ? "its sandbox is lost" : why);
}

static void look(void *user);

static void socket_found(void *user, int fd_take)
{
    kg_zygote_t *z = user;
    if (z->state != KG_ZYGOTE_LOADING) {
        kg_closep(&fd_take);
        return;
    }
    if (fd_take < 0) {
        kg_timer_start(z->timer, kg_ms(LOOK_MS), 0);
        return;
    }
    z->socket = fd_take;
    z->state = KG_ZYGOTE_READY;
    kg_log(KG_LOG_INFO, "zygote.ready", "zygote=%s template=%s language=%s pid=%d ms=%llu", z->id,
           z->tpl->name, z->lang->name, (int)kg_proc_pid(z->proc),
           (unsigned long long)((kg_now_ns() - z->since_ns) / KG_NS_PER_MS));
    z->since_ns = kg_now_ns();
    tell_waiting(z);
}

/* The timer: nothing listens yet, or a step takes too long. */
static void look(void *user)
{
    kg_zygote_t *z = user;
    uint64_t limit = kg_ms(z->core->config.kernel_start_timeout_ms);
    if (z->state == KG_ZYGOTE_READY || z->state == KG_ZYGOTE_OVER) {
        return;
    }
    if (kg_now_ns() - z->since_ns > limit) {
        over(z, "it took too long");
        return;
    }
    if (z->state != KG_ZYGOTE_LOADING ||
        kg_sbx_socket_open(z->sbx, SOCKET_NAME, socket_found, z) < 0) {
        kg_timer_start(z->timer, kg_ms(LOOK_MS), 0);
    }
}

static void spawned(void *user, kg_proc_t *proc, const kg_err_t *err)
{
    kg_zygote_t *z = user;
    if (z->state != KG_ZYGOTE_LOADING) { /* it took too long, or its sandbox is lost */
        kg_proc_close(&proc);
        return;
    }
    if (!proc) {
        over(z, err->message);
        return;
    }
    z->proc = proc;
    kg_proc_on_exit(proc, on_ended, z);
    z->output = kg_proc_take_stdout(proc);
    if (z->output < 0 || kg_fdwatch_create(z->core->loop, z->output, on_output, z, &z->watch) < 0 ||
        kg_fdwatch_set(z->watch, true, false) < 0) {
        over(z, "its output cannot be read");
        return;
    }
    kg_timer_start(z->timer, kg_ms(LOOK_MS), 0);
}

/* NAME=DIR:${NAME} of its kernelspec, which kg_language_env leaves to the kernel room. */
static int add_paths(const kg_zygote_t *z, kg_env_t *env)
{
    char tail[128];
    int rc = 0;
    for (char **e = z->lang->spec->env; e && *e && !rc; e++) {
        size_t len = strcspn(*e, "=");
        const char *at = NULL;
        if (kg_format(tail, sizeof(tail), ":${%.*s}", (int)len, *e) == 0) {
            at = strstr(*e, tail);
        }
        if (!at) {
            continue;
        }
        bool alone = !kg_env_get(env, *e, len);
        KG_AUTO_FREE char *text = kg_strdup_printf("%.*s%s", (int)(at - *e), *e, alone ? "" : at);
        char *one[] = {text, NULL};
        rc = text ? kg_env_merge_strings(env, one) : -ENOMEM;
    }
    return rc;
}

static void load(kg_zygote_t *z)
{
    KG_AUTO(kg_env_fini) kg_env_t env = {0};
    kg_err_t err = {0};
    const char *home = kg_sbx_info(z->sbx)->home;
    z->state = KG_ZYGOTE_LOADING;
    if (kg_language_env(z->core, z->tpl, z->tpl, z->lang, home, &env) ||
        kg_env_set(&env, "HOME", home) || add_paths(z, &env) ||
        kg_env_hide_debugger(z->tpl, z->lang, &env)) {
        over(z, "out of memory");
        return;
    }
    const kg_spawn_opts_t opts = {
        .argv = (const char *const *)(void *)z->lang->zygote,
        .env = (const char *const *)(void *)env.items,
        .merge_stderr = true,
        .zygote = true,
    };
    if (kg_sbx_spawn(z->sbx, &opts, spawned, z, &err)) {
        over(z, err.message);
    }
}

static void home_done(void *user, const kg_exit_t *exit)
{
    kg_zygote_t *z = user;
    (void)exit; /* without its caches it is slower, no less right */
    kg_proc_close(&z->proc);
    if (z->state == KG_ZYGOTE_HOME) {
        load(z);
    }
}

static void home_spawned(void *user, kg_proc_t *proc, const kg_err_t *err)
{
    kg_zygote_t *z = user;
    if (z->state != KG_ZYGOTE_HOME) {
        kg_proc_close(&proc);
        return;
    }
    if (proc) {
        z->proc = proc;
        kg_proc_on_exit(proc, home_done, z);
    } else {
        over(z, err->message);
    }
}

static void on_lost(void *user, const kg_err_t *err)
{
    kg_zygote_t *z = user;
    over(z, err->message);
}

static void made(void *user, kg_sbx_t *sbx, const kg_err_t *err);

static void make(kg_zygote_t *z)
{
    kg_err_t err = {0};
    const kg_sandbox_opts_t opts = {
        .id = z->id,
        .launcher = "namespace",
        .is_zygote = true,
        .template_name = z->tpl->name,
        .limits = z->wish.limits,
    };
    if (kg_sandbox_create(z->core->keeper, &opts, made, z, &err)) {
        over(z, err.message);
    }
}

static void made(void *user, kg_sbx_t *sbx, const kg_err_t *err)
{
    kg_zygote_t *z = user;
    kg_err_t why = {0};
    z->sbx = sbx;
    if (!sbx && kg_wish_relax(&z->wish, err)) {
        make(z);
        return;
    }
    if (!sbx) {
        over(z, err->message);
        return;
    }
    kg_wish_made(z->core, &z->wish, z->id);
    kg_sbx_on_lost(sbx, on_lost, z);
    if (z->state != KG_ZYGOTE_MAKING) {
        return; /* it took too long */
    }
    z->state = KG_ZYGOTE_HOME;
    int rc = kg_skeleton_spawn(sbx, z->tpl, home_spawned, z, &why);
    if (rc < 0) {
        over(z, why.message);
    } else if (rc == 0) {
        load(z);
    }
}

static void make_later(void *user)
{
    make(user);
}

/* Each takes a range of ids, and the memory of a kernel, for as long as anything is below it. */
static bool too_many(const kg_core_t *core)
{
    const kg_zygote_t *z = NULL;
    unsigned count = 0;
    DL_FOREACH (core->zygotes, z) {
        count++;
    }
    return count >= core->config.zygotes_max;
}

static kg_zygote_t *
start(kg_core_t *core, const kg_template_t *tpl, const kg_tpl_language_t *lang, const char *owner)
{
    kg_err_t err = {0};
    bool may = !too_many(core) && !failed_lately(core, tpl, lang, owner);
    kg_zygote_t *z = may ? calloc(1, sizeof(*z)) : NULL;
    if (!z) {
        return NULL;
    }
    struct stat tree = {0};
    if (tpl->prefix && tpl->prefix[0]) {
        (void)stat(tpl->prefix, &tree);
    }
    z->core = core;
    z->tpl = tpl;
    z->lang = lang;
    z->tree_dev = tree.st_dev;
    z->tree_ino = tree.st_ino;
    z->output = z->socket = -1;
    z->since_ns = kg_now_ns();
    (void)kg_format(z->owner, sizeof(z->owner), "%s", owner);
    kg_id_generate(&core->node, "sbx", z->id);
    DL_APPEND(core->zygotes, z);
    if (kg_wish_limits(core, tpl, "namespace", NULL, &z->wish, &err) ||
        kg_timer_create(core->loop, look, z, &z->timer) || kg_core_later(core, make_later, z)) {
        destroy(z);
        return NULL;
    }
    kg_timer_start(z->timer, kg_ms(LOOK_MS), 0);
    kg_log(KG_LOG_INFO, "zygote.start", "zygote=%s template=%s language=%s owner=%s", z->id,
           tpl->name, lang->name, owner);
    return z;
}

/* ---- those that are to lie below one ---- */

/* The language of its first kernel, when that can be forked. */
static const kg_tpl_language_t *forkable(const kg_sandbox_t *sandbox)
{
    kg_err_t ignored = {0};
    const kg_tpl_language_t *lang = NULL;
    const kg_template_t *from = NULL;
    bool nobodys = sandbox->hidden && sandbox->core->config.zygote_per_owner;
    bool can = !nobodys && sandbox->tpl->language_count > 0 &&
               strcmp(sandbox->launcher, "namespace") == 0 && !sandbox->no_zygote;
    if (!can || kg_templates_resolve(&sandbox->core->templates, sandbox->tpl, NULL, &lang, &from,
                                     &ignored)) {
        return NULL;
    }
    return from == sandbox->tpl && lang && lang->zygote ? lang : NULL;
}

/* Not once the template was built anew: what it has loaded and what the sandbox shows would be of
 * two trees. */
static bool has_tree(const kg_zygote_t *z)
{
    struct stat st;
    return !z->tpl->prefix || !z->tpl->prefix[0] ||
           (stat(z->tpl->prefix, &st) == 0 && st.st_dev == z->tree_dev && st.st_ino == z->tree_ino);
}

static bool fits(const kg_zygote_t *z,
                 const kg_template_t *tpl,
                 const kg_tpl_language_t *lang,
                 const char *owner)
{
    return z->state != KG_ZYGOTE_OVER && z->tpl == tpl && z->lang == lang &&
           strcmp(z->owner, owner) == 0 &&
           (!z->sbx || z->children < kg_sbx_info(z->sbx)->children) && has_tree(z);
}

/* Before the last place of one is taken the next is begun, so that nobody has to wait for it. */
static void look_ahead(kg_zygote_t *z)
{
    kg_zygote_t *other = NULL;
    unsigned room = z->sbx ? kg_sbx_info(z->sbx)->children : 0;
    if (room < AHEAD_OF || z->children < room - room / AHEAD_OF) {
        return;
    }
    DL_FOREACH (z->core->zygotes, other) {
        if (other != z && fits(other, z->tpl, z->lang, z->owner)) {
            return;
        }
    }
    (void)start(z->core, z->tpl, z->lang, z->owner);
}

bool kg_zygote_join(kg_sandbox_t *sandbox)
{
    kg_core_t *core = sandbox->core;
    const char *owner = core->config.zygote_per_owner ? sandbox->owner : "";
    const kg_tpl_language_t *lang = forkable(sandbox);
    kg_zygote_t *z = NULL;

    if (sandbox->zygote || sandbox->reuse || sandbox->start.kind != KG_START_ZYGOTE) {
        return false; /* ids of one that is there from before are in no zygote's range */
    }
    DL_FOREACH (core->zygotes, z) {
        if (lang && fits(z, sandbox->tpl, lang, owner)) {
            break;
        }
    }
    z = z || !lang ? z : start(core, sandbox->tpl, lang, owner);
    if (!z) {
        kg_zygote_none(sandbox);
        return false;
    }
    sandbox->zygote = z;
    z->children++;
    look_ahead(z);
    sandbox->zygote_waits = z->state != KG_ZYGOTE_READY;
    return sandbox->zygote_waits;
}

void kg_zygote_leave(kg_sandbox_t *sandbox)
{
    kg_zygote_t *z = KG_TAKE(sandbox->zygote);
    sandbox->zygote_waits = false;
    if (!z) {
        return;
    }
    z->children--;
    if (z->state == KG_ZYGOTE_OVER) {
        (void)kg_core_later(z->core, destroy_later, z);
    } else if (z->state == KG_ZYGOTE_READY) {
        z->since_ns = kg_now_ns();
    }
}

int kg_zygote_dial(const kg_context_t *context)
{
    const kg_zygote_t *z = context->sandbox->zygote;
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    if (!z || z->state != KG_ZYGOTE_READY || context->lang != z->lang || context->no_fork ||
        !kg_warm_env_can_wait(z->tpl, context->sandbox->env) ||
        !kg_warm_env_can_wait(z->tpl, context->env)) {
        return -1; /* variables that act at a process's start do nothing in a fork */
    }
    KG_AUTO_CLOSE int sock = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)kg_format(addr.sun_path, sizeof(addr.sun_path), "/proc/self/fd/%d", z->socket);
    if (sock < 0 || connect(sock, (struct sockaddr *)&addr, sizeof(addr)) < 0) {
        return -1;
    }
    return kg_take_fd(&sock);
}

/* ---- all of them ---- */

void kg_zygotes_begin(kg_core_t *core)
{
    char launcher[KG_LAUNCHER_NAME_MAX];
    kg_err_t ignored = {0};
    if (core->config.zygote_per_owner ||
        kg_sandbox_choose_launcher(core, core->config.isolation, launcher, &ignored) ||
        strcmp(launcher, "namespace") != 0) {
        return;
    }
    for (size_t i = 0; i < core->templates.count; i++) {
        const kg_template_t *tpl = core->templates.items[i];
        const kg_tpl_language_t *lang = NULL;
        const kg_template_t *from = NULL;
        if (tpl->start == KG_START_ZYGOTE && tpl->language_count && tpl->built &&
            kg_templates_resolve(&core->templates, tpl, NULL, &lang, &from, &ignored) == 0 &&
            from == tpl && lang && lang->zygote) {
            (void)start(core, tpl, lang, "");
        }
    }
}

void kg_zygotes_tick(kg_core_t *core)
{
    uint64_t idle = core->config.zygote_idle_s * KG_NS_PER_S;
    kg_zygote_t *z = NULL;
    kg_zygote_t *next = NULL;
    DL_FOREACH_SAFE (core->zygotes, z, next) {
        if (z->state == KG_ZYGOTE_READY && z->children == 0 && idle &&
            kg_now_ns() - z->since_ns >= idle) {
            kg_log(KG_LOG_INFO, "zygote.idle", "zygote=%s template=%s", z->id, z->tpl->name);
            destroy(z);
        }
    }
}

void kg_zygotes_destroy(kg_core_t *core)
{
    while (core->zygotes) {
        destroy(core->zygotes);
    }
    forget_failures(core, UINT64_MAX);
}
