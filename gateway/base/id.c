/* gateway/base: identifiers. A node is a random number below 2^24 written in five digits of base 36
 * (0-9a-z, 36^5 > 2^24), so that it packs exactly in the first 24 bits of a context's UUID. Names
 * whose value is 2^24 or more are no nodes. Random characters are drawn without modulo bias. */
#include "gateway/base/id.h"

#include <sodium.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

static const char alphabet[] = "0123456789abcdefghijklmnopqrstuvwxyz";

enum {
    ID_BASE = 36,
    ID_RANDOM_LEN = 15,
    NODE_LIMIT = 1 << 24,
    UUID_BYTES = 16,
};

static int digit_value(char c)
{
    if (c >= '0' && c <= '9') {
        return c - '0';
    }
    return c >= 'a' && c <= 'z' ? c - 'a' + 10 : -1;
}

/* The 24-bit number of the five digits at name, or -1. */
static int32_t node_value(const char *name)
{
    int32_t value = 0;
    for (size_t i = 0; i < KG_ID_NODE_LEN; i++) {
        int digit = digit_value(name[i]); /* the NUL of a short name is no digit */
        if (digit < 0) {
            return -1;
        }
        value = value * ID_BASE + digit;
    }
    return value < NODE_LIMIT ? value : -1;
}

void kg_node_generate(kg_node_t *ret_node)
{
    uint32_t value = randombytes_uniform(NODE_LIMIT);
    for (size_t i = KG_ID_NODE_LEN; i-- > 0; value /= ID_BASE) {
        ret_node->name[i] = alphabet[value % ID_BASE];
    }
    ret_node->name[KG_ID_NODE_LEN] = '\0';
}

bool kg_node_valid(const char *name)
{
    return name && node_value(name) >= 0 && name[KG_ID_NODE_LEN] == '\0';
}

void kg_id_generate(const kg_node_t *node, const char *prefix, char ret_id[KG_ID_MAX])
{
    char tail[ID_RANDOM_LEN + 1];
    unsigned char pool[ID_RANDOM_LEN * 2]; /* one system call instead of one a digit */
    size_t at = sizeof(pool);
    for (size_t i = 0; i < ID_RANDOM_LEN;) {
        if (at == sizeof(pool)) {
            randombytes_buf(pool, sizeof(pool));
            at = 0;
        }
        unsigned char byte = pool[at++];
        if (byte < UINT8_MAX / ID_BASE * ID_BASE) { /* above, the first digits would come oftener */
            tail[i++] = alphabet[byte % ID_BASE];
        }
    }
    tail[ID_RANDOM_LEN] = '\0';
    (void)snprintf(ret_id, KG_ID_MAX, "%.16s-%.5s%s", prefix, node->name, tail);
}

bool kg_id_valid(const char *prefix, const char *id)
{
    size_t len = strlen(prefix);
    if (!id || strncmp(id, prefix, len) != 0 || id[len] != '-') {
        return false;
    }
    const char *tail = id + len + 1;
    if (node_value(tail) < 0) {
        return false;
    }
    size_t n = KG_ID_NODE_LEN;
    while (digit_value(tail[n]) >= 0) {
        n++;
    }
    return tail[n] == '\0' && n == KG_ID_NODE_LEN + ID_RANDOM_LEN;
}

void kg_uuid_generate(const kg_node_t *node, char ret_uuid[KG_ID_MAX])
{
    unsigned char b[UUID_BYTES];
    randombytes_buf(b, sizeof b);
    int32_t value = node_value(node->name);
    uint32_t packed = value < 0 ? 0 : (uint32_t)value;
    b[0] = (unsigned char)(packed >> 16);
    b[1] = (unsigned char)(packed >> 8 & 0xFF);
    b[2] = (unsigned char)(packed & 0xFF);
    b[6] = (unsigned char)((b[6] & 0x0F) | 0x80); /* version 8 */
    b[8] = (unsigned char)((b[8] & 0x3F) | 0x80); /* variant of RFC 9562 */
    size_t at = 0;
    for (size_t i = 0; i < UUID_BYTES; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10) {
            ret_uuid[at++] = '-';
        }
        ret_uuid[at++] = alphabet[b[i] >> 4];
        ret_uuid[at++] = alphabet[b[i] & 0x0F];
    }
    ret_uuid[at] = '\0';
}

static bool is_hex(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

bool kg_uuid_valid(const char *uuid)
{
    if (!uuid) {
        return false;
    }
    for (size_t i = 0; i < KG_UUID_LEN; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? uuid[i] != '-' : !is_hex(uuid[i])) {
            return false; /* stops at an early NUL, too */
        }
    }
    return uuid[KG_UUID_LEN] == '\0';
}
