/* Between the files of networks: names, addresses, and what each file gives the others. */
#ifndef KG_SANDBOX_NET_PRIVATE_H
#define KG_SANDBOX_NET_PRIVATE_H

#include <net/if.h>
#include <netinet/in.h>

#include "gateway/sandbox/net.h"

#define NET_SLOTS_MAX 65536U
#define NET_POOL_BITS 15U
#define NET_DENIED_KEPT 256
#define NET_NAMES_KEPT 256
/* What a packet is marked with that goes to the log: a byte of ours, why, which rule. */
#define NET_MARK_OURS UINT32_C(0x53)
#define NET_MARK(why, rule) (NET_MARK_OURS << 24 | (uint32_t)(why) << 8 | (uint32_t)(rule))
#define NET_DENY "meta mark set %u goto denied\n" /* NET_MARK */
#define NET_NAME_SECONDS 600U     /* least time that an address learned by name stays open */
#define NET_CONNECTIONS_MAX 4096U /* open ones of a sandbox, in the host's table of connections */
#define NET_HELPER_UID 65534
#define NET_ALL_PREFIX "sdl-" /* interfaces of all keepers */
#define NET_OWN_SET "own4"    /* the host's own addresses, where it is beyond a router */

/* ---- names and addresses (net.c) ---- */

void net_interface(const kg_nets_t *nets, uint32_t slot, char ret[IFNAMSIZ]);
uint32_t net_address(const kg_nets_t *nets, uint32_t slot); /* host order */
uint32_t net_gateway(const kg_nets_t *nets);
struct in6_addr net_address6(const kg_nets_t *nets, uint32_t slot);
struct in6_addr net_gateway6(const kg_nets_t *nets);
/* Which slot has it; false when none of this keeper's. */
bool net_slot_of(const kg_nets_t *nets, uint8_t family, const void *address, uint32_t *ret_slot);

/* ---- interfaces (net_link.c) ---- */

int net_link_make(const kg_nets_t *nets, uint32_t slot, pid_t pid);
int net_link_remove(const kg_nets_t *nets, uint32_t slot);
bool net_link_exists(const kg_nets_t *nets, uint32_t slot);
int net_gateway_set(const kg_nets_t *nets, bool there); /* addresses of the forwarder, on lo */

/* ---- the host (net_host.c) ---- */

/* Whether there is a way out, for which family; a pool that nobody uses. */
int net_host_look(kg_nets_t *nets);
/* Turns forwarding on where it is off, on the interfaces that lead out, and keeps what it was until
 * the last keeper goes. ret_opened: their names, one after the other, each IFNAMSIZ. */
typedef struct net_opened {
    char v4[16][IFNAMSIZ];
    char v6[16][IFNAMSIZ];
    unsigned v4_count, v6_count;
} net_opened_t;
int net_host_open(kg_nets_t *nets, net_opened_t *ret);
void net_host_close(kg_nets_t *nets);
void net_host_leave(kg_nets_t *nets); /* likewise, for who has not the lock open */

/* ---- rules (net_rules.c, net_nft.c) ---- */

/* A script for nft that grows; plain text made by us alone. */
typedef struct net_script {
    char *text;
    size_t used, size;
    bool failed;
} net_script_t;
void net_script_add(net_script_t *script, const char *fmt, ...) KG_PRINTF(2, 3);
void net_script_done(net_script_t *script);
int net_nft_run(const net_script_t *script, char *ret_said, size_t size);
void net_rules_base(const kg_nets_t *nets, const net_opened_t *opened, net_script_t *script);
void net_rules_slot(const kg_nets_t *nets,
                    uint32_t slot,
                    uint32_t generation,
                    const kg_net_wish_t *wish,
                    net_script_t *script);
/* What an earlier generation of a slot has left behind when the next one stands (or none). */
void net_rules_drop(const kg_nets_t *nets,
                    uint32_t slot,
                    uint32_t generation,
                    const kg_net_wish_t *wish,
                    bool chain_too,
                    net_script_t *script);
/* The set of a domain rule. */
typedef struct net_set {
    uint32_t slot, generation;
    unsigned rule;
} net_set_t;
/* Adds an address to it; in the helper, by netlink. -ENOENT: no such set. */
int net_rules_learn(const kg_nets_t *nets,
                    int fd,
                    const net_set_t *set,
                    uint8_t family,
                    const uint8_t address[16],
                    uint32_t seconds);

/* Adds nets->own to those that are closed; afresh: instead of what is there. Likewise. */
int net_rules_close_own(const kg_nets_t *nets, int fd, bool afresh);

/* ---- what is kept of a slot, in RUNTIME/net (net_files.c) ---- */

typedef struct net_slot_file {
    uint32_t magic;
    uint32_t generation; /* 0: no rules of its own, no chain */
    kg_net_wish_t wish;
} net_slot_file_t;
int net_file_read(const kg_nets_t *nets, uint32_t slot, net_slot_file_t *ret); /* -ENOENT */
int net_file_write(const kg_nets_t *nets, uint32_t slot, const net_slot_file_t *file);
int net_files_make(const kg_nets_t *nets, uint32_t slot); /* fresh log and names */
void net_files_remove(const kg_nets_t *nets, uint32_t slot);
int net_log_add(const kg_nets_t *nets, uint32_t slot, const kg_net_denied_t *denied);

/* An address and the name that led to it. */
typedef struct net_name {
    uint8_t family;
    uint8_t address[16];
    char domain[KG_NET_DOMAIN_MAX];
} net_name_t;
int net_name_add(const kg_nets_t *nets, uint32_t slot, const net_name_t *name);
/* Newest first; how many there are in ret. */
size_t net_names_read(const kg_nets_t *nets, uint32_t slot, net_name_t ret[NET_NAMES_KEPT]);

/* ---- the helper (net_helper.c) ---- */

int net_helper_start(kg_nets_t *nets);
#define NET_HELPER_SOCKETS 4
/* Those that belong to the network of the sandboxes. In the router where there is one. */
int net_helper_sockets(kg_nets_t *nets, int ret[NET_HELPER_SOCKETS]);
void net_helper_end(const kg_nets_t *nets); /* one of this or an earlier keeper, if there is one */
#define NET_HELPER_NAME "sandal-net"        /* its processes' */
#define NET_HELPER_LOCK "helper"            /* RUNTIME/net/: its lock, with its process's number */
/* Ends the helper that holds that lock file and waits until it is gone; returns its number, 0 where
 * nobody holds it. fd stays the caller's. */
pid_t net_helper_kill(int fd);
/* After -EADDRINUSE of a helper's start, as root (net_holder.c). Looks for who has the forwarder's
 * address. The helper of a keeper that is gone, and of which no sandbox has a network any more, is
 * ended: true. Else false, nets->reason says who it is and what helps, and nets->foreign whether
 * rules and addresses are in use. */
bool net_holder_end(kg_nets_t *nets);
const char *net_resolvers(const kg_nets_t *nets); /* the file that says whom the forwarder asks */
/* Gives up for good what the forwarder does not need (net_confine.c): files but those of networks
 * and those that say whom to ask, all sockets but its own kinds, other processes, programs. Sets
 * no_new_privs. 0 or -errno. */
int net_confine(const kg_nets_t *nets);

/* ---- the host's own addresses, for an ordinary user's rules (net_own.c) ---- */

/* Into nets->own. -E2BIG: there are more than it holds. */
int net_own_read(kg_nets_t *nets);
/* A descriptor that is readable when they have changed, or -errno. */
int net_own_watch(void);
void net_own_drain(int fd); /* until the next change */
/* Closes those that there are now, all of them; those that are gone may stay closed. */
int net_own_renew(const kg_nets_t *nets, int nft);

/* ---- an ordinary user's (net_user.c, net_router.c) ---- */

typedef int net_step_fn(kg_nets_t *nets, const void *arg, kg_err_t *err);
/* Does a step where the networks are: here, or in a child in the router. What it finds in nets
 * (pool, ipv6, reason, log_group) and its error come back. */
int net_do(kg_nets_t *nets, net_step_fn *step, const void *arg, kg_err_t *err);
/* net_helper_sockets, in the router. */
int net_user_sockets(kg_nets_t *nets, int ret[NET_HELPER_SOCKETS]);
/* Whether an ordinary user's networks can be tried at all; nets->reason when not. */
int net_user_look(kg_nets_t *nets);
/* Namespaces and slirp4netns: those of an earlier keeper where they live, else new ones; for the
 * namespaces that nets holds open, when it does. The reason is set on failure. */
int net_router_start(kg_nets_t *nets);
bool net_router_lives(const kg_nets_t *nets);
void net_router_end(kg_nets_t *nets); /* of this or an earlier keeper */

#endif
