/* Errands: what may block runs in a worker, a fork of the keeper that ends with its answer. A
 * worker that takes too long is killed; what it may have left half-done is given back by the
 * launcher's cleanup. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/keeper.h"
#include "gateway/sandbox/seqsock.h"

/* In the worker. */
static _Noreturn void
run_errand(kg_keeper_t *k, kg_sb_t *sb, const kg_kp_request_t *request, int sock, kg_errand_fn *fn)
{
    kg_answer_t answer;
    int fds[KEEPER_ANSWER_FDS] = {-1, -1};
    size_t count = 0;

    memset(&answer, 0, sizeof(answer)); /* its padding too: all of it is sent */
    fn(k, sb, request, &answer, fds);
    while (count < KEEPER_ANSWER_FDS && fds[count] >= 0) {
        count++;
    }
    _exit(kg_seq_send(sock, &answer, sizeof(answer), fds, count) < 0);
}

int keeper_errand_start(kg_keeper_t *k,
                        kg_sb_t *sb,
                        kg_errand_kind_t kind,
                        const kg_kp_request_t *request,
                        uint64_t limit_s,
                        kg_errand_fn *fn)
{
    int pair[2];
    kg_errand_t *errand = calloc(1, sizeof(*errand));

    if (!errand) {
        return -ENOMEM;
    }
    int r = kg_seq_pair(pair);
    if (r < 0) {
        free(errand);
        return r;
    }
    int keep[3 + KG_NETS_FDS] = {pair[1], k->host.runtime_fd, k->host.sandboxes_fd};
    kg_nets_fds(&k->host.nets, keep + 3);
    pid_t pid = keeper_fork_worker(keep, KG_ARRAY_LEN(keep));
    if (pid == 0) {
        run_errand(k, sb, request, pair[1], fn);
    }
    r = pid < 0 ? -errno : 0;
    close(pair[1]);
    if (r < 0) {
        close(pair[0]);
        free(errand);
        return r;
    }
    *errand = (kg_errand_t){
        .next = k->errands,
        .kind = kind,
        .pid = pid,
        .sock = pair[0],
        .seq = request ? request->head.seq : 0,
        .deadline_ns = kg_now_ns() + limit_s * KG_NS_PER_S,
    };
    if (sb) {
        memcpy(errand->id, sb->id, sizeof(errand->id));
    }
    k->errands = errand;
    return 0;
}

kg_errand_t *keeper_errand_of(kg_keeper_t *k, pid_t pid)
{
    for (kg_errand_t *errand = k->errands; errand; errand = errand->next) {
        if (errand->pid == pid) {
            return errand;
        }
    }
    return NULL;
}

bool keeper_errand_at(const kg_keeper_t *k, kg_errand_kind_t kind)
{
    for (const kg_errand_t *errand = k->errands; errand; errand = errand->next) {
        if (errand->kind == kind) {
            return true;
        }
    }
    return false;
}

/* fds: those not taken are closed by the caller. */
static void answered(kg_keeper_t *k, const kg_errand_t *errand, const kg_answer_t *answer, int *fds)
{
    switch (errand->kind) {
    case KG_ERRAND_CREATE:
        keeper_create_answered(k, errand, answer, &fds[0], &fds[1]);
        return;
    case KG_ERRAND_ATTACH:
        keeper_attach_answered(k, errand, answer, &fds[0]);
        return;
    case KG_ERRAND_ADOPT:
        keeper_adopt_answered(k, keeper_find(k, errand->id), answer, &fds[0]);
        return;
    case KG_ERRAND_PRESS:
        return;
    case KG_ERRAND_TRIM:
        keeper_trim_answered(k, answer);
        return;
    case KG_ERRAND_NETWORK:
    case KG_ERRAND_NET_LOG:
    default:
        keeper_network_answered(k, errand, answer);
        return;
    }
}

/* 0 = it has answered, -EAGAIN = not yet, else it never will. */
static int read_answer(kg_keeper_t *k, kg_errand_t *errand)
{
    kg_answer_t answer;
    int fds[KG_SEQ_FDS_MAX] = {-1, -1, -1, -1};
    size_t count = 0;
    size_t len = 0;

    int r = kg_seq_recv(errand->sock, &answer, sizeof(answer), &len, fds, &count);
    if (r == -EAGAIN) {
        return r;
    }
    kg_closep(&errand->sock);
    if (r == 0 && len == sizeof(answer)) {
        answered(k, errand, &answer, fds);
    } else if (r == 0) {
        r = -EPIPE;
    }
    for (size_t i = 0; i < count; i++) {
        kg_closep(&fds[i]);
    }
    return r;
}

void keeper_errands_read(kg_keeper_t *k)
{
    for (kg_errand_t *errand = k->errands; errand; errand = errand->next) {
        if (errand->sock >= 0 && !errand->broken) {
            int r = read_answer(k, errand);
            errand->broken = r < 0 && r != -EAGAIN; /* its exit tells what follows */
        }
    }
}

static void unlink_errand(kg_keeper_t *k, const kg_errand_t *errand)
{
    kg_errand_t **at = &k->errands;
    while (*at != errand) {
        at = &(*at)->next;
    }
    *at = errand->next;
}

void keeper_errand_exited(kg_keeper_t *k, kg_errand_t *errand)
{
    kg_answer_t answer = {.failed = 1};
    int none[KEEPER_ANSWER_FDS] = {-1, -1};
    bool told = errand->sock < 0 && !errand->broken;

    if (errand->sock >= 0) {
        told = read_answer(k, errand) == 0;
    }
    kg_closep(&errand->sock);
    unlink_errand(k, errand);
    if (errand->kind == KG_ERRAND_PRESS) {
        keeper_press_exited(k, errand);
    }
    if (!told && errand->kind != KG_ERRAND_PRESS) { /* that one may have been stopped */
        (void)kg_err_set(&answer.err, errand->overdue ? KG_ERR_BUSY : KG_ERR_INTERNAL,
                         errand->overdue ? "it took too long: is the machine overloaded?"
                                         : "the keeper's worker died");
        kg_log(KG_LOG_ERROR, "worker.lost", "id=%s kind=%d overdue=%d", errand->id,
               (int)errand->kind, errand->overdue);
        if (errand->kind == KG_ERRAND_CREATE) {
            keeper_create_failed(k, errand, &answer.err);
        } else {
            answered(k, errand, &answer, none);
        }
    }
    free(errand);
}

void keeper_errands_mute(kg_keeper_t *k)
{
    for (kg_errand_t *errand = k->errands; errand; errand = errand->next) {
        errand->mute = true;
    }
}

void keeper_errands_stop(kg_keeper_t *k, const char *id, kg_errand_kind_t kind)
{
    for (const kg_errand_t *errand = k->errands; errand; errand = errand->next) {
        if (errand->kind == kind && strcmp(errand->id, id) == 0) {
            (void)kill(errand->pid, SIGKILL);
        }
    }
}

void keeper_errands_cancel(kg_keeper_t *k, const char *id)
{
    for (const kg_errand_t *errand = k->errands; errand; errand = errand->next) {
        if (strcmp(errand->id, id) == 0) {
            (void)kill(errand->pid, SIGKILL);
        }
    }
}

uint64_t keeper_errands_step(kg_keeper_t *k, uint64_t now_ns)
{
    uint64_t next = KEEPER_NEVER;

    for (kg_errand_t *errand = k->errands; errand; errand = errand->next) {
        if (!errand->overdue && errand->deadline_ns <= now_ns) {
            errand->overdue = true;
            (void)kill(errand->pid, SIGKILL);
        }
        if (!errand->overdue && errand->deadline_ns < next) {
            next = errand->deadline_ns;
        }
    }
    return next;
}
