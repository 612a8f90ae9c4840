/* What waits for the gateway. Bounded: requests are read only while little waits, events are one a
 * sandbox. */
#include <errno.h>
#include <stdlib.h>

#include "gateway/base/log.h"
#include "gateway/sandbox/keeper.h"
#include "gateway/sandbox/seqsock.h"

/* Those that are there come first. */
static size_t fds_of(const int fds[KEEPER_ANSWER_FDS])
{
    size_t count = 0;
    while (count < KEEPER_ANSWER_FDS && fds[count] >= 0) {
        count++;
    }
    return count;
}

void keeper_send(kg_keeper_t *k, const kg_kp_reply_t *reply, int fd_take)
{
    keeper_send_both(k, reply, fd_take, -1);
}

void keeper_send_both(kg_keeper_t *k, const kg_kp_reply_t *reply, int fd_take, int second_take)
{
    KG_AUTO_CLOSE int fd = fd_take;
    KG_AUTO_CLOSE int second = second_take;

    if (k->gateway_sock < 0) {
        return;
    }
    if (k->out_count == 0) {
        const int fds[KEEPER_ANSWER_FDS] = {fd, second};
        int r = kg_seq_send(k->gateway_sock, reply, reply->head.size, fds, fds_of(fds));
        if (r != -EAGAIN && r != -ENOBUFS) {
            return; /* sent, or broken: then the socket reads as ended as well */
        }
    }
    kg_out_t *out = malloc(sizeof(*out));
    if (!out) {
        kg_log(KG_LOG_ERROR, "keeper.out_of_memory", "verb=%u", (unsigned)reply->head.verb);
        return;
    }
    *out = (kg_out_t){
        .fds = {kg_take_fd(&fd), kg_take_fd(&second)}, .size = reply->head.size, .reply = *reply};
    *k->out_last = out;
    k->out_last = &out->next;
    k->out_count++;
}

static void drop_first(kg_keeper_t *k)
{
    kg_out_t *out = k->out_first;
    k->out_first = out->next;
    if (!k->out_first) {
        k->out_last = &k->out_first;
    }
    k->out_count--;
    for (int i = 0; i < KEEPER_ANSWER_FDS; i++) {
        kg_closep(&out->fds[i]);
    }
    free(out);
}

void keeper_flush(kg_keeper_t *k)
{
    while (k->out_first && k->gateway_sock >= 0) {
        kg_out_t *out = k->out_first;
        int r = kg_seq_send(k->gateway_sock, &out->reply, out->size, out->fds, fds_of(out->fds));
        if (r == -EAGAIN || r == -ENOBUFS) {
            return;
        }
        drop_first(k);
    }
}

void keeper_out_clear(kg_keeper_t *k)
{
    while (k->out_first) {
        drop_first(k);
    }
}
