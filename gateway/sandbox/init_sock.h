/* The socket that sandal-init listens on: made by launchers before it starts, connected to at any
 * time after. Blocking calls, for workers. */
#ifndef KG_SANDBOX_INIT_SOCK_H
#define KG_SANDBOX_INIT_SOCK_H

#include <sys/types.h>

/* A bound socket, close-on-exec. path: absolute; what was there is replaced, the new one is 0600.
 * Without a slash at its begin it is an abstract name, NULL the one of init/args.h, in the caller's
 * network namespace. fd or -errno. */
int kg_init_sock_bind(const char *path);
/* Connects and makes sure that it is init_pid which listens, waiting up to wait_ms until it does.
 * fd (close-on-exec) or -errno: -ETIMEDOUT, -EPERM somebody else listens, -ESRCH init has gone. */
int kg_init_sock_connect(const char *path, pid_t init_pid, unsigned wait_ms);

#endif
