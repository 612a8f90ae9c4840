/* Can another user get at a path? As root, `serve` asks before it starts a gateway that could not
 * read what it needs, such as a tree below /root. */
#ifndef KG_CLI_REACH_H
#define KG_CLI_REACH_H

#include <sys/types.h>

#include "gateway/base/err.h"

typedef struct kg_reach {
    const char *path; /* absolute */
    int mode;         /* as access(2): R_OK, X_OK; W_OK of a folder where a socket is made */
} kg_reach_t;

/* Tries all of them with the user's rights (own groups included) in a child process; needs root. 0,
 * or config naming the path, and in the hint the folder that stops the user. Blocks. */
int kg_reach_check(
    const char *user, uid_t uid, gid_t gid, const kg_reach_t *paths, size_t count, kg_err_t *err);

#endif
