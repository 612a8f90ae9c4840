/* Netlink messages: a few dozen lines here spare the keeper a library. */
#include <errno.h>
#include <linux/netlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "gateway/sandbox/net_nl.h"

#define ANSWER_MAX 32768

int kg_nl_open(int protocol)
{
    struct timeval limit = {.tv_sec = 5}; /* the kernel answers at once; never hang on it */
    KG_AUTO_CLOSE int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, protocol);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)) < 0) {
        return -errno;
    }
    return kg_take_fd(&fd);
}

static void *room(kg_nl_t *nl, size_t size)
{
    size_t padded = NLMSG_ALIGN(size);
    if (nl->overflow || padded < size || padded > sizeof(nl->bytes) - nl->used) {
        nl->overflow = true;
        return NULL;
    }
    void *at = nl->bytes + nl->used;
    memset(at, 0, padded);
    nl->used += padded;
    return at;
}

static void grow_header(kg_nl_t *nl)
{
    struct nlmsghdr header;
    memcpy(&header, nl->bytes + nl->start, sizeof(header));
    header.nlmsg_len = (uint32_t)(nl->used - nl->start);
    memcpy(nl->bytes + nl->start, &header, sizeof(header));
}

void kg_nl_begin(kg_nl_t *nl, uint16_t type, uint16_t flags, const void *body, size_t size)
{
    size_t start = nl->used;
    struct nlmsghdr header = {.nlmsg_type = type, .nlmsg_flags = (uint16_t)(flags | NLM_F_REQUEST)};
    void *at = room(nl, sizeof(header));
    if (!at) {
        return;
    }
    nl->start = start;
    header.nlmsg_seq = nl->waits + 1;
    memcpy(at, &header, sizeof(header));
    if (flags & NLM_F_ACK) {
        nl->waits++;
    }
    kg_nl_put_raw(nl, body, size);
}

void kg_nl_put_raw(kg_nl_t *nl, const void *data, size_t size)
{
    void *at = room(nl, size);
    if (at) {
        memcpy(at, data, size);
        grow_header(nl);
    }
}

void kg_nl_put(kg_nl_t *nl, uint16_t type, const void *data, size_t size)
{
    struct nlattr attr = {.nla_type = type, .nla_len = (uint16_t)(sizeof(attr) + size)};
    unsigned char *at = room(nl, sizeof(attr) + size);
    if (at) {
        memcpy(at, &attr, sizeof(attr));
        if (size > 0) {
            memcpy(at + sizeof(attr), data, size);
        }
        grow_header(nl);
    }
}

void kg_nl_put_u32(kg_nl_t *nl, uint16_t type, uint32_t value)
{
    kg_nl_put(nl, type, &value, sizeof(value));
}

void kg_nl_put_text(kg_nl_t *nl, uint16_t type, const char *text)
{
    kg_nl_put(nl, type, text, strlen(text) + 1);
}

size_t kg_nl_nest(kg_nl_t *nl, uint16_t type)
{
    size_t at = nl->used;
    kg_nl_put(nl, type | NLA_F_NESTED, NULL, 0);
    return at;
}

void kg_nl_nest_end(kg_nl_t *nl, size_t nest)
{
    if (nl->overflow) {
        return;
    }
    uint16_t length = (uint16_t)(nl->used - nest);
    memcpy(nl->bytes + nest, &length, sizeof(length));
}

/* Takes one datagram's worth of answers. Returns 1 when there is nothing more to wait for. */
static int take_answers(const unsigned char *bytes,
                        size_t size,
                        unsigned *waits,
                        int *first,
                        kg_nl_row_fn *fn,
                        void *user)
{
    for (size_t at = 0; size - at >= sizeof(struct nlmsghdr);) {
        struct nlmsghdr header;
        memcpy(&header, bytes + at, sizeof(header));
        if (header.nlmsg_len < sizeof(header) || header.nlmsg_len > size - at) {
            return -EBADMSG;
        }
        const unsigned char *body = bytes + at + sizeof(header);
        size_t length = header.nlmsg_len - sizeof(header);
        if (header.nlmsg_type == NLMSG_ERROR && length >= sizeof(int)) {
            int code;
            memcpy(&code, body, sizeof(code));
            *first = *first == 0 ? code : *first;
            *waits -= *waits > 0;
        } else if (header.nlmsg_type == NLMSG_DONE) {
            return 1;
        } else if (fn) {
            int r = fn(user, header.nlmsg_type, body, length);
            if (r != 0) {
                return r;
            }
            if (!(header.nlmsg_flags & NLM_F_MULTI)) {
                return 1;
            }
        }
        size_t step = NLMSG_ALIGN(header.nlmsg_len);
        at = step > size - at ? size : at + step;
    }
    return *waits == 0 ? 1 : 0;
}

static int converse(int fd, const kg_nl_t *nl, unsigned waits, kg_nl_row_fn *fn, void *user)
{
    _Alignas(8) unsigned char answer[ANSWER_MAX];
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    int first = 0;
    if (nl->overflow) {
        return -EMSGSIZE;
    }
    while (recv(fd, answer, sizeof(answer), MSG_DONTWAIT) > 0) {
        /* what an earlier talk that failed did not wait for */
    }
    if (sendto(fd, nl->bytes, nl->used, 0, (struct sockaddr *)&kernel, sizeof(kernel)) < 0) {
        return -errno;
    }
    for (;;) {
        ssize_t n = recv(fd, answer, sizeof(answer), 0);
        if (n < 0 && errno == EINTR) {
            continue;
        }
        if (n < 0) {
            return errno == EAGAIN ? -ETIMEDOUT : -errno;
        }
        int r = take_answers(answer, (size_t)n, &waits, &first, fn, user);
        if (r != 0 || first != 0) {
            return first != 0 ? first : (r == 1 ? 0 : r);
        }
    }
}

int kg_nl_talk(int fd, const kg_nl_t *nl)
{
    return converse(fd, nl, nl->waits, NULL, NULL);
}

int kg_nl_ask(int fd, const kg_nl_t *nl, kg_nl_row_fn *fn, void *user)
{
    return converse(fd, nl, 1, fn, user);
}

const void *kg_nl_find(const void *attrs, size_t size, uint16_t type, size_t min, size_t *ret_size)
{
    const unsigned char *bytes = attrs;
    for (size_t at = 0; at < size && size - at >= sizeof(struct nlattr);) {
        struct nlattr attr;
        memcpy(&attr, bytes + at, sizeof(attr));
        if (attr.nla_len < sizeof(attr) || attr.nla_len > size - at) {
            return NULL;
        }
        if ((attr.nla_type & NLA_TYPE_MASK) == type) {
            if (attr.nla_len - sizeof(attr) < min) {
                return NULL;
            }
            if (ret_size) {
                *ret_size = attr.nla_len - sizeof(attr);
            }
            return bytes + at + sizeof(attr);
        }
        size_t step = NLA_ALIGN(attr.nla_len);
        at = step > size - at ? size : at + step;
    }
    return NULL;
}
