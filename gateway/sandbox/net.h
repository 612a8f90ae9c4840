/* Networks of sandboxes with egress: a veth pair, nftables rules that leave only public addresses
 * and what the operator allows (rules of a sandbox choose among these, they never widen them), a
 * DNS forwarder. As root on the host; for an ordinary user the same in a network namespace of its
 * own, the "router", whose way out is slirp4netns. For the keeper and its workers: blocking, libc
 * and netlink only; `nft` is run at the start and for sandboxes with rules. */
#ifndef KG_SANDBOX_NET_H
#define KG_SANDBOX_NET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "gateway/base/err.h"
#include "gateway/sandbox/limits.h"

#define KG_NET_ALLOW_MAX 64
#define KG_NET_OWN_MAX 256 /* addresses of the host that an ordinary user's rules close */

/* Plain data, copied by forks. Zeroed by the caller, who fills the first part. */
typedef struct kg_nets {
    /* uid_base / KG_UID_RANGE: unique among the keepers of a machine. In the names and addresses of
     * all that is made; keeper_tag + slot < 65536. */
    uint32_t keeper_tag;
    char runtime_dir[200];
    char resolvers[200]; /* a resolv.conf that names whom the forwarder asks; "" = /etc/resolv.conf
                          */
    unsigned orphan_s;   /* without a keeper for so long the helper gives all back; 0 = an hour */
    uint32_t allow_count;
    kg_net_rule_t
        allow[KG_NET_ALLOW_MAX]; /* the operator's: reachable besides public addresses.
             An address of the host itself is meant by its whole length alone (/32, /128) */

    /* Found by kg_nets_open. */
    bool available;
    char reason[160]; /* why not, or a remark */
    bool foreign;     /* not available: another keeper's sandboxes use these rules and addresses */
    bool ipv6;        /* sandboxes get IPv6 too; else it is closed */
    uint32_t pool;    /* IPv4, host order: /15 that sandboxes have their addresses from */
    uint16_t log_group;
    pid_t helper; /* forwarder and log; a child, restarts itself */
    int dir_fd;   /* RUNTIME/net; -1 = none */
    int lock_fd;

    /* Of an ordinary user. */
    bool routed;  /* in a router; else on the host */
    bool inside;  /* this process is in it already */
    pid_t router; /* a child that holds it; 0 = it was an earlier keeper's, or there is none */
    int user_ns, net_ns; /* the router's; -1 = none */
    uint32_t own_count;  /* the host's IPv4 addresses when it was opened, host order */
    uint32_t own[KG_NET_OWN_MAX];
} kg_nets_t;

/* Not open yet: no descriptors. */
void kg_nets_init(kg_nets_t *nets);

/* Finds out by trying whether egress works here, takes over from an earlier keeper of that tag
 * (rules of sandboxes that live stay as they are) and starts the helper. 0 also where there is no
 * egress: available tells. */
int kg_nets_open(kg_nets_t *nets, kg_err_t *err);
/* The helper (a child of the keeper) has ended: starts another. -errno: names are not answered. */
int kg_nets_revive(kg_nets_t *nets);
/* Starts another router where one has ended; sandboxes have their networks again. 0 also where
 * there is nothing to do; -errno: there is no way out, available and reason tell. */
int kg_nets_reroute(kg_nets_t *nets);
/* Descriptors that workers need; -1 = none. */
#define KG_NETS_FDS 4
void kg_nets_fds(const kg_nets_t *nets, int ret[KG_NETS_FDS]);
void kg_nets_close(kg_nets_t *nets); /* table, helper, settings of the host: all goes */
/* Gives the network namespace of pid (a new one) its way out: eth0, addresses, routes. Everything
 * or nothing. slot: makes addresses and names unique; what an earlier one of it has left goes.
 * Mode none: nothing is done. The caller has one thread. */
int kg_net_attach(
    const kg_nets_t *nets, uint32_t slot, pid_t pid, const kg_net_wish_t *wish, kg_err_t *err);
/* Other rules for a live one, for its open connections too. Mode none closes all. not_found: it was
 * made without a network. */
int kg_net_change(const kg_nets_t *nets, uint32_t slot, const kg_net_wish_t *wish, kg_err_t *err);
int kg_net_detach(const kg_nets_t *nets, uint32_t slot); /* absent is fine */
/* Only with nets->routed, where a network namespace cannot be connected after its sandbox has made
 * it: a process in a fresh one of the router's, with lo up, for kg_net_attach. It ends with the
 * caller; kg_net_release ends it before. 0 or -errno. */
int kg_net_hold(const kg_nets_t *nets, pid_t *ret_pid);
void kg_net_release(pid_t *pid);
/* The caller goes into the router's user namespace, where it is root, and into that network
 * namespace. Only nets->user_ns is looked at. */
int kg_net_join(const kg_nets_t *nets, int net_ns);
/* resolv.conf as the sandbox should see it; length, or -ENOSPC. */
int kg_net_resolv_conf(const kg_nets_t *nets, uint32_t slot, char *out, size_t size);

/* Why something was refused. */
typedef enum kg_net_why {
    KG_NET_WHY_UNKNOWN,
    KG_NET_WHY_RULE,        /* a rule of the sandbox */
    KG_NET_WHY_DEFAULT,     /* none of its rules lets it through */
    KG_NET_WHY_NONE,        /* it was given no network */
    KG_NET_WHY_NOT_PUBLIC,  /* no public address, and none that the operator opens */
    KG_NET_WHY_HOST,        /* an address of the host */
    KG_NET_WHY_PROTOCOL,    /* neither TCP, UDP nor a ping */
    KG_NET_WHY_DNS,         /* names are asked of the forwarder alone */
    KG_NET_WHY_CONNECTIONS, /* too many at once */
    KG_NET_WHYS
} kg_net_why_t;

/* One connection that was refused, or a name that was not resolved (port 53, with domain). The same
 * one within five seconds counts once. */
typedef struct kg_net_denied {
    uint64_t at_ns; /* wall clock */
    uint8_t family; /* 4, 6 */
    uint8_t protocol;
    uint16_t port;
    uint8_t address[16];
    char domain[KG_NET_DOMAIN_MAX]; /* as asked of the forwarder, or "" */
    uint8_t why;                    /* kg_net_why_t */
    uint8_t rule;                   /* KG_NET_WHY_RULE: its index in the wish of that time */
    uint8_t zero[2];
} kg_net_denied_t;
/* Those of a slot since the last call with the same cursor (0 = oldest kept); count, *cursor moved
 * on. The newest 256 a sandbox are kept. *lost counts older ones that were dropped. */
int kg_net_denied(const kg_nets_t *nets,
                  uint32_t slot,
                  uint64_t *cursor,
                  kg_net_denied_t *out,
                  size_t max,
                  uint64_t *lost);

#endif
