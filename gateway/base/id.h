/* Identifiers. A node is five characters of [a-z0-9] whose base-36 value is below 2^24 (so the
 * first is a digit); sandbox, run and snapshot ids begin with it after their prefix
 * ("sbx-3k7qd5k3j2h1g9f8d7s6"). A context id is a version 8 UUID (RFC 9562) with the node packed in
 * its first 24 bits, so any surface can route without a lookup. Random parts come from libsodium.
 */
#ifndef KG_BASE_ID_H
#define KG_BASE_ID_H

#include <stdbool.h>

#define KG_ID_NODE_LEN 5
#define KG_ID_MAX 48       /* any id of ours with its NUL */
#define KG_ID_SHORT_MAX 26 /* of a run or a sandbox, with its NUL: of these there may be many */
#define KG_UUID_LEN 36

typedef struct kg_node {
    char name[KG_ID_NODE_LEN + 1];
} kg_node_t;

/* Fresh random node name whose 24-bit packing is exact. Stored by the caller. */
void kg_node_generate(kg_node_t *ret_node);
bool kg_node_valid(const char *name);
/* prefix "sbx", "run", "snap", "key": PREFIX-NODE + 15 random [a-z0-9]. */
void kg_id_generate(const kg_node_t *node, const char *prefix, char ret_id[KG_ID_MAX]);
bool kg_id_valid(const char *prefix, const char *id);
void kg_uuid_generate(const kg_node_t *node, char ret_uuid[KG_ID_MAX]);
/* Any well-formed 8-4-4-4-12 lower/upper-case hex UUID. */
bool kg_uuid_valid(const char *uuid);

#endif
