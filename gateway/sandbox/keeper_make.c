/* Creates and attaches. The launcher works in a worker; the keeper's part is the table, the record
 * on the disk and the life line to sandal-init. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/log.h"
#include "gateway/sandbox/init_proto.h"
#include "gateway/sandbox/keeper.h"
#include "gateway/sandbox/proctree.h"
#include "gateway/sandbox/seqsock.h"

static int unknown_launcher(const char *name, kg_err_t *err)
{
    size_t count;
    size_t at = 0;
    char have[120] = "";
    const kg_launcher_t *const *rows = kg_launchers(&count);

    for (size_t i = 0; i < count && at < sizeof(have); i++) {
        int n = snprintf(have + at, sizeof(have) - at, "%s%s", i ? ", " : "", rows[i]->name);
        at += n > 0 ? (size_t)n : 0;
    }
    (void)kg_err_set(err, KG_ERR_ISOLATION_UNAVAILABLE, "there is no isolation \"%s\" here", name);
    kg_err_hint(err, "this daemon has: %s", have);
    return -ENOTSUP;
}

static const kg_root_t *find_root(const kg_keeper_t *k, const char *name)
{
    for (size_t i = 0; i < k->host.root_count; i++) {
        if (strcmp(k->host.roots[i].name, name) == 0) {
            return &k->host.roots[i];
        }
    }
    return NULL;
}

/* Finds or makes the table's entry for a create. */
static int claim(kg_keeper_t *k, const kg_kp_create_t *request, kg_sb_t **ret_sb, kg_err_t *err)
{
    struct stat st;
    kg_sb_t *sb = keeper_find(k, request->id);

    if (sb && (sb->state != KG_KP_DORMANT || !(request->flags & KG_KP_CREATE_REUSE))) {
        return kg_err_set(err, KG_ERR_CONFLICT, "sandbox %s %s", request->id,
                          sb->state == KG_KP_DORMANT ? "has left directories behind" : "exists");
    }
    if (sb) {
        sb->remove_files = false;
        sb->zygote[0] = '\0';
        *ret_sb = sb;
        return 0;
    }
    if (fstatat(k->host.sandboxes_fd, request->id, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        return kg_err_set(err, KG_ERR_CONFLICT, "the directory of %s belongs to somebody else",
                          request->id);
    }
    const kg_sb_t *zygote = request->zygote[0] ? keeper_find(k, request->zygote) : NULL;
    int r = zygote ? keeper_add_below(k, request->id, zygote, ret_sb)
            : request->flags & KG_KP_CREATE_ZYGOTE ? keeper_add_zygote(k, request->id, ret_sb)
                                                   : keeper_add(k, request->id, ret_sb);
    if (r == -EDQUOT && (zygote || request->flags & KG_KP_CREATE_ZYGOTE)) {
        return kg_err_set(err, KG_ERR_QUOTA_EXCEEDED,
                          zygote ? "the zygote's uids are all taken"
                                 : "no uids are free for a zygote");
    }
    if (r == -EDQUOT) {
        return kg_err_set(err, KG_ERR_QUOTA_EXCEEDED, "no uid is free: all %u slots are taken",
                          k->host.slot_count);
    }
    if (r < 0) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    (*ret_sb)->remove_files = true; /* should it fail */
    return 0;
}

/* ---- in the worker ---- */

static int
make_sandbox(kg_keeper_t *k, const kg_sb_t *sb, const kg_kp_create_t *request, kg_answer_t *answer)
{
    const kg_sb_t *zygote = sb->zygote[0] ? keeper_find(k, sb->zygote) : NULL;
    kg_launch_t l = {
        .id = sb->id,
        .slot = sb->slot,
        .base = sb->base,
        .uid = sb->uid,
        .gid = sb->gid,
        .killer_uid = k->host.is_root ? sb->base + KG_UID_KILLER : 0,
        .dirs_exist = !sb->remove_files,
        .slots = sb->slots,
        .zygote = zygote ? zygote->init_pid : 0,
        .zygote_base = zygote ? zygote->base : 0,
        .root = find_root(k, request->template_name),
        .request = request,
    };
    int r = sb->launcher->check ? sb->launcher->check(&request->limits, &answer->err) : 0;
    return r < 0 ? r : sb->launcher->create(&k->host, &l, &answer->launched, &answer->err);
}

static void do_create(kg_keeper_t *k,
                      kg_sb_t *sb,
                      const kg_kp_request_t *request,
                      kg_answer_t *answer,
                      int fds[KEEPER_ANSWER_FDS])
{
    kg_task_t task;
    int r = make_sandbox(k, sb, &request->create, answer);
    if (r < 0) {
        answer->failed = 1;
        return;
    }
    fds[0] = keeper_dial(k, sb, answer->launched.init_pid, true);
    fds[1] = fds[0] < 0 ? fds[0] : keeper_dial(k, sb, answer->launched.init_pid, false);
    r = fds[1] < 0 ? fds[1] : kg_task_read(answer->launched.init_pid, &task);
    if (r < 0) {
        answer->failed = 1;
        (void)kg_err_set(&answer->err, KG_ERR_INTERNAL, "sandal-init doesn't answer: %s",
                         strerrordesc_np(-r));
        sb->launcher->destroy(&k->host, sb->id, answer->launched.init_pid);
        return;
    }
    answer->init_start = task.start_ticks;
}

static void do_attach(kg_keeper_t *k,
                      kg_sb_t *sb,
                      const kg_kp_request_t *request,
                      kg_answer_t *answer,
                      int fds[KEEPER_ANSWER_FDS])
{
    (void)request;
    fds[0] = keeper_dial(k, sb, sb->init_pid, false);
    if (fds[0] < 0) {
        answer->failed = 1;
        (void)kg_err_set(&answer->err, KG_ERR_SANDBOX_NOT_FOUND,
                         "sandbox %s does not answer any more: %s", sb->id,
                         strerrordesc_np(-fds[0]));
    }
}

/* ---- in the keeper ---- */

static void
reply_error(kg_keeper_t *k, kg_kp_verb_t verb, uint32_t seq, const char *id, const kg_err_t *err)
{
    kg_kp_reply_t reply;
    (void)kg_kp_reply_init(&reply, verb, seq);
    keeper_status_set(&reply.create.status, err);
    /* What this host cannot hold the gateway does without, and tells of, or the client reads. */
    kg_log(err->code == KG_ERR_NOT_SUPPORTED ? KG_LOG_DEBUG : KG_LOG_WARN,
           verb == KG_KP_CREATE ? "sandbox.create_failed" : "sandbox.attach_failed",
           "id=%s code=%s", id, kg_err_name(err->code));
    keeper_send(k, &reply, -1);
}

static void
reply_running(kg_keeper_t *k, kg_kp_verb_t verb, uint32_t seq, const kg_sb_t *sb, int sock_take)
{
    kg_kp_reply_t reply;
    const kg_launched_t *made = &sb->launched;

    (void)kg_kp_reply_init(&reply, verb, seq);
    reply.create.slot = sb->slot;
    reply.create.uid = sb->uid;
    reply.create.gid = sb->gid;
    reply.create.init_pid = sb->init_pid;
    reply.create.flags =
        (made->own_root ? KG_KP_OWN_ROOT : 0) | (made->has_root ? KG_KP_HAS_ROOT : 0);
    reply.create.children = sb->slots - 1;
    reply.create.isolation = made->isolation;
    memcpy(reply.create.workspace, made->workspace, sizeof(reply.create.workspace));
    memcpy(reply.create.home, made->home, sizeof(reply.create.home));
    memcpy(reply.create.run_dir, made->run_dir, sizeof(reply.create.run_dir));
    keeper_send_both(k, &reply, sock_take, kg_cgroup_oom_fd(&k->host.cgroups, sb->id));
}

/* What asks for a zygote, or to be below one. */
static int check_zygote(kg_keeper_t *k,
                        const kg_kp_create_t *request,
                        const kg_launcher_t *launcher,
                        kg_err_t *err)
{
    const kg_sb_t *zygote = request->zygote[0] ? keeper_find(k, request->zygote) : NULL;

    if (!request->zygote[0] && !(request->flags & KG_KP_CREATE_ZYGOTE)) {
        return 0;
    }
    if (!launcher->zygotes || !k->host.is_root) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED, "isolation %s has no zygotes", launcher->name);
    }
    if (request->zygote[0] && (!zygote || zygote->state != KG_KP_RUNNING || zygote->slots < 2 ||
                               zygote->retired || zygote->launcher != launcher ||
                               strcmp(zygote->template_name, request->template_name) != 0 ||
                               keeper_find(k, request->id))) {
        return kg_err_set(err, KG_ERR_CONFLICT, "%s is no zygote for it", request->zygote);
    }
    return 0;
}

static int begin(kg_keeper_t *k, const kg_kp_create_t *request, kg_sb_t **ret_sb, kg_err_t *err)
{
    const kg_launcher_t *launcher = kg_launcher_find(request->launcher);

    if (k->stopping) {
        return kg_err_set(err, KG_ERR_DRAINING, "the daemon is stopping");
    }
    if (!launcher) {
        return unknown_launcher(request->launcher, err);
    }
    if (request->template_name[0] != '\0' && k->host.root_count > 0 &&
        !find_root(k, request->template_name)) {
        return kg_err_set(err, KG_ERR_TEMPLATE_NOT_FOUND, "the keeper knows no template \"%s\"",
                          request->template_name);
    }
    if (request->network.mode == KG_NET_EGRESS && launcher->egress) {
        keeper_nets_open(k);
    }
    int r = check_zygote(k, request, launcher, err);
    if (r == 0 && launcher->volumes && k->host.is_root) {
        r = keeper_volumes_open(k, err);
    }
    if (r == 0) {
        r = claim(k, request, ret_sb, err);
    }
    if (r < 0) {
        return r;
    }
    kg_sb_t *sb = *ret_sb;
    // NOLINTNEXTLINE(clang-analyzer-core.NullDereference): claim() answers 0 only with a sandbox
    sb->launcher = launcher;
    memcpy(sb->template_name, request->template_name, sizeof(sb->template_name));
    sb->state = KG_KP_MAKING;
    r = keeper_record_write(k, sb);
    if (r == 0) {
        r = keeper_errand_start(k, sb, KG_ERRAND_CREATE, (const kg_kp_request_t *)request,
                                k->opts.create_timeout_s, do_create);
    }
    if (r < 0) {
        sb->state = KG_KP_DORMANT;
        if (sb->remove_files) {
            keeper_drop(k, sb);
        }
        return kg_err_set(err, r == -ENOSPC || r == -EDQUOT ? KG_ERR_STORAGE_FULL : KG_ERR_INTERNAL,
                          "cannot begin to make the sandbox: %s", strerrordesc_np(-r));
    }
    return 0;
}

void keeper_create(kg_keeper_t *k, const kg_kp_create_t *request)
{
    kg_err_t err = {0};
    kg_sb_t *sb = NULL;

    if (begin(k, request, &sb, &err) < 0) {
        reply_error(k, KG_KP_CREATE, request->head.seq, request->id, &err);
    }
}

/* All that the last life left in the entry. */
static void set_running(kg_sb_t *sb, const kg_answer_t *answer, int *life)
{
    sb->launched = answer->launched;
    sb->state = KG_KP_RUNNING;
    sb->init_pid = answer->launched.init_pid;
    sb->init_start = answer->init_start;
    sb->control_fd = kg_take_fd(life);
    sb->remove_files = false;
    sb->paused = false;
    sb->workers_clean = false;
    sb->orphaned = false;
    sb->replied = false;
}

static void fail_make(kg_keeper_t *k, kg_sb_t *sb, const kg_errand_t *errand, const kg_err_t *err)
{
    sb->make_failed = !errand->mute;
    sb->make_seq = errand->seq;
    sb->make_err = *err;
    keeper_give_back(k, sb);
}

void keeper_create_answered(
    kg_keeper_t *k, const kg_errand_t *errand, const kg_answer_t *answer, int *life, int *gateway)
{
    kg_task_t task;
    kg_sb_t *sb = keeper_find(k, errand->id);

    if (!sb || sb->state != KG_KP_MAKING) {
        return;
    }
    if (answer->failed) {
        fail_make(k, sb, errand, &answer->err);
        return;
    }
    set_running(sb, answer, life);
    if (kg_task_read(sb->init_pid, &task) < 0 || task.start_ticks != sb->init_start) {
        sb->init_pid = 0; /* it has died and was reaped before we knew it */
    }
    if (sb->init_pid == 0 || sb->end_asked) {
        kg_err_t err = {0};
        (void)kg_err_set(&err, KG_ERR_SANDBOX_NOT_FOUND, "sandbox %s ended while it was made",
                         sb->id);
        if (!errand->mute) {
            reply_error(k, KG_KP_CREATE, errand->seq, sb->id, &err);
        }
        sb->orphaned = sb->orphaned || !sb->kill_asked;
        keeper_end_sandbox(k, sb);
        return;
    }
    int r = keeper_record_write(k, sb);
    if (r < 0) {
        kg_log(KG_LOG_ERROR, "sandbox.record", "id=%s reason=%s", sb->id, strerrorname_np(-r));
    }
    kg_log(KG_LOG_DEBUG, "sandbox.created", "id=%s isolation=%s uid=%u pid=%d", sb->id,
           sb->launcher->name, sb->uid, sb->init_pid);
    if (!errand->mute) {
        reply_running(k, KG_KP_CREATE, errand->seq, sb, kg_take_fd(gateway));
    }
}

void keeper_create_failed(kg_keeper_t *k, const kg_errand_t *errand, const kg_err_t *err)
{
    kg_sb_t *sb = keeper_find(k, errand->id);
    if (sb && sb->state == KG_KP_MAKING) {
        fail_make(k, sb, errand, err);
    }
}

void keeper_create_reply_failed(kg_keeper_t *k, kg_sb_t *sb)
{
    if (sb->make_failed) {
        sb->make_failed = false;
        reply_error(k, KG_KP_CREATE, sb->make_seq, sb->id, &sb->make_err);
    }
}

void keeper_attach(kg_keeper_t *k, const kg_kp_one_t *request)
{
    kg_err_t err = {0};
    kg_sb_t *sb = keeper_find(k, request->id);

    if (!sb || sb->state != KG_KP_RUNNING) {
        (void)kg_err_set(&err, KG_ERR_SANDBOX_NOT_FOUND, "sandbox %s does not live", request->id);
        reply_error(k, KG_KP_ATTACH, request->head.seq, request->id, &err);
        return;
    }
    keeper_errands_stop(k, sb->id, KG_ERRAND_PRESS);
    if (sb->paused && sb->launcher->pause(&k->host, sb->id, false, &err) == 0) {
        sb->paused = false; /* else nobody would answer */
    }
    int r = keeper_errand_start(k, sb, KG_ERRAND_ATTACH, (const kg_kp_request_t *)request,
                                KEEPER_ADOPT_S, do_attach);
    if (r < 0) {
        (void)kg_err_set(&err, KG_ERR_INTERNAL, "cannot reach the sandbox: %s",
                         strerrordesc_np(-r));
        reply_error(k, KG_KP_ATTACH, request->head.seq, request->id, &err);
    }
}

void keeper_attach_answered(kg_keeper_t *k,
                            const kg_errand_t *errand,
                            const kg_answer_t *answer,
                            int *gateway)
{
    kg_err_t err = answer->err;
    kg_sb_t *sb = keeper_find(k, errand->id);

    if (errand->mute) {
        return;
    }
    if (!answer->failed && sb && sb->state == KG_KP_RUNNING) {
        reply_running(k, KG_KP_ATTACH, errand->seq, sb, kg_take_fd(gateway));
        return;
    }
    if (!answer->failed) {
        (void)kg_err_set(&err, KG_ERR_SANDBOX_NOT_FOUND, "sandbox %s has ended", errand->id);
    }
    reply_error(k, KG_KP_ATTACH, errand->seq, errand->id, &err);
}

int keeper_dial(const kg_keeper_t *k, const kg_sb_t *sb, pid_t init_pid, bool life)
{
    KG_AUTO_CLOSE int fd = sb->launcher->connect(&k->host, sb->id, init_pid);
    kg_ip_request_t hello;

    if (fd < 0 || !life) {
        return kg_take_fd(&fd); /* the gateway says who it is by itself */
    }
    size_t size = kg_ip_request_init(&hello, KG_IP_HELLO, 0, 0);
    hello.hello.role = KG_IP_ROLE_KEEPER;
    int r = kg_seq_send(fd, &hello, size, NULL, 0);
    return r < 0 ? r : kg_take_fd(&fd);
}
