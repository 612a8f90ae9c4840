/* Landlock for a launcher without a root of its own: what the process and all that it starts may
 * reach on the host's file system, and that nothing outside is signalled or reached by abstract
 * sockets, as far as the kernel can hold it. */
#ifndef KG_SANDBOX_LANDLOCK_H
#define KG_SANDBOX_LANDLOCK_H

#include <stdbool.h>
#include <stdint.h>

typedef enum kg_ll_grant {
    KG_LL_READ,   /* read and execute */
    KG_LL_WRITE,  /* all of it */
    KG_LL_DEVICE, /* read and write what is there, ioctls too */
} kg_ll_grant_t;

/* What the kernel has: 0 = none, else its ABI's number (4: TCP, 6: signals, abstract sockets). */
#define KG_LL_ABI_SCOPES 6
int kg_ll_abi(void);
/* For people: what it holds of sandboxes, each under a user id of its own (is_root) or all under
 * one, and what not (KG_LAUNCHER_NOT_APART). */
void kg_ll_remark(int abi, bool is_root, char ret[160]);
/* A new set of rules that refuses all; fd or -errno. */
int kg_ll_begin(void);
/* Opens it for path and what is below; absent is fine, and so is a file. */
int kg_ll_allow(int rules, const char *path, kg_ll_grant_t grant);
int kg_ll_allow_fd(int rules, int fd, kg_ll_grant_t grant); /* likewise, for what is open */
/* Opens TCP connections to a port, where the kernel can hold back others. */
int kg_ll_allow_connect(int rules, uint16_t port);
/* From now on, for the caller and its children. Sets no_new_privs. */
int kg_ll_enter(int rules);

#endif
