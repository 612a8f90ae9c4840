/* What launchers without a root of their own have in common (none, process): directories on the
 * host, STATE/sandboxes/ID/{workspace,home} and RUNTIME/ID, leaves 0700 of the sandbox's uid, and a
 * sandal-init that is reached at RUNTIME/ID.init, or, under Landlock and an ordinary user, by
 * an abstract name. For workers: blocking. */
#ifndef KG_SANDBOX_LAUNCHER_PLAIN_H
#define KG_SANDBOX_LAUNCHER_PLAIN_H

#include "gateway/sandbox/launcher.h"

/* In the child that becomes sandal-init, last before exec, its descriptors in place. 0 or -errno.
 */
typedef int kg_plain_confine_fn(const kg_host_t *host,
                                const kg_launch_t *launch,
                                const kg_launched_t *launched);

/* Makes all of it; fills ret but for isolation. init_flags as of init/args.h; confine may be NULL.
 * Everything or nothing. */
int kg_plain_create(const kg_host_t *host,
                    const kg_launch_t *launch,
                    unsigned init_flags,
                    kg_plain_confine_fn *confine,
                    kg_launched_t *ret,
                    kg_err_t *err);
/* RUNTIME/ID.init. -ENAMETOOLONG. */
int kg_plain_socket_path(const kg_host_t *host, const char *id, char *ret, size_t cap);
int kg_plain_connect(const kg_host_t *host, const char *id, pid_t init_pid);
void kg_plain_destroy(const kg_host_t *host, const char *id, pid_t init_pid);
int kg_plain_cleanup(const kg_host_t *host, const char *id, uint32_t slot, bool keep_files);
/* Whether init_exe can be run; the reason is set when not. */
int kg_plain_probe(const kg_host_t *host, char ret_reason[160]);

#endif
