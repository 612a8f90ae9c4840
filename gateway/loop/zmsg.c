/* Received multipart messages. libzmq's own message objects are kept, so a frame of 100 MB is never
 * copied; the count of references is atomic, since a worker may be the last to let go. */
#include "gateway/loop/zmsg.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>

struct kg_zmsg {
    atomic_uint refs;
    size_t count;
    size_t cap;
    size_t bytes;
    kg_slice_t *frames;
    zmq_msg_t *parts;
};

int kg_zmsg_create(kg_zmsg_t **ret_msg)
{
    kg_zmsg_t *msg = calloc(1, sizeof(*msg));
    if (!msg) {
        return -ENOMEM;
    }
    atomic_init(&msg->refs, 1);
    *ret_msg = msg;
    return 0;
}

static int grow(kg_zmsg_t *msg)
{
    size_t cap = msg->cap ? msg->cap * 2 : 8;
    zmq_msg_t *parts = calloc(cap, sizeof(*parts));
    if (!parts) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < msg->count; i++) {
        zmq_msg_init(&parts[i]);
        zmq_msg_move(&parts[i],
                     &msg->parts[i]); /* small content lives inside: not to be copied as bytes */
        zmq_msg_close(&msg->parts[i]);
    }
    free(msg->parts);
    msg->parts = parts;
    msg->cap = cap;
    return 0;
}

int kg_zmsg_append_take(kg_zmsg_t *msg, zmq_msg_t *part)
{
    if (msg->count == KG_ZMSG_FRAMES_MAX) {
        return -E2BIG;
    }
    if (msg->count == msg->cap) {
        int rc = grow(msg);
        if (rc < 0) {
            return rc;
        }
    }
    zmq_msg_t *at = &msg->parts[msg->count++];
    zmq_msg_init(at);
    zmq_msg_move(at, part);
    msg->bytes += zmq_msg_size(at);
    return 0;
}

int kg_zmsg_seal(kg_zmsg_t *msg)
{
    msg->frames = calloc(msg->count ? msg->count : 1, sizeof(*msg->frames));
    if (!msg->frames) {
        return -ENOMEM;
    }
    for (size_t i = 0; i < msg->count; i++) {
        msg->frames[i] = kg_slice(zmq_msg_data(&msg->parts[i]), zmq_msg_size(&msg->parts[i]));
    }
    return 0;
}

const kg_slice_t *kg_zmsg_frames(const kg_zmsg_t *msg, size_t *ret_count)
{
    *ret_count = msg->count;
    return msg->frames;
}

size_t kg_zmsg_bytes(const kg_zmsg_t *msg)
{
    return msg->bytes;
}

/* The number of a socket's inode is used once, that of its descriptor again and again. */
static bool inode_of(int fd, uint64_t *ret_inode)
{
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        return false;
    }
    *ret_inode = st.st_ino;
    return true;
}

int kg_zmsg_source(const kg_zmsg_t *msg)
{
    return msg->count ? zmq_msg_get(&msg->parts[0], ZMQ_SRCFD) : -1;
}

kg_zpeer_t kg_zpeer_of(int fd)
{
    kg_zpeer_t peer = {.fd = fd};
    return inode_of(fd, &peer.inode) ? peer : (kg_zpeer_t){.fd = -1};
}

bool kg_zpeer_gone(const kg_zpeer_t *peer)
{
    uint64_t inode = 0;
    return peer->fd >= 0 && (!inode_of(peer->fd, &inode) || inode != peer->inode);
}

bool kg_zpeer_same(const kg_zpeer_t *a, const kg_zpeer_t *b)
{
    return a->fd >= 0 && a->fd == b->fd && a->inode == b->inode;
}

kg_zmsg_t *kg_zmsg_ref(kg_zmsg_t *msg)
{
    atomic_fetch_add_explicit(&msg->refs, 1, memory_order_relaxed);
    return msg;
}

void kg_zmsg_unref(kg_zmsg_t **msg_ptr)
{
    if (!msg_ptr || !*msg_ptr) {
        return;
    }
    kg_zmsg_t *msg = KG_TAKE(*msg_ptr);
    if (atomic_fetch_sub_explicit(&msg->refs, 1, memory_order_acq_rel) != 1) {
        return;
    }
    for (size_t i = 0; i < msg->count; i++) {
        zmq_msg_close(&msg->parts[i]);
    }
    free(msg->parts);
    free(msg->frames);
    free(msg);
}
