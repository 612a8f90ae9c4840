/* What a sandbox may use and how it is reached: plain data shared by the gateway's client, the
 * keeper's frames and the launchers. Pure. */
#ifndef KG_SANDBOX_LIMITS_H
#define KG_SANDBOX_LIMITS_H

#include <stdint.h>

/* A locked file BASE-COUNT for each keeper of root's on this machine. */
#define KG_UID_RANGES_DIR "/run/sandal-uids"
#define KG_UID_RANGE                                                                               \
    65536U                  /* ids of one sandbox: slot s has uid_base + s * KG_UID_RANGE and on   \
                             */
#define KG_UID_USER 1000U   /* in the range: user code */
#define KG_UID_KILLER 1001U /* in the range: ends it where there is no pid namespace */
#define KG_NET_RULES_MAX 64
#define KG_NET_DOMAIN_MAX 64

/* 0 = none. */
typedef struct kg_limits {
    uint64_t memory_bytes;
    uint64_t disk_bytes;
    uint32_t cpu_millis; /* 1000 = one core */
    uint32_t pids;
    uint32_t nofile; /* RLIMIT_NOFILE, hard */
    uint32_t zero;
} kg_limits_t;

#define KG_SHARE_MIN 1U /* of the cpu, where several want it: per cent of what a usual one gets */
#define KG_SHARE_USUAL 100U
#define KG_SHARE_MAX 1000U

typedef enum kg_net_mode {
    KG_NET_NONE,   /* lo only */
    KG_NET_EGRESS, /* outgoing, to public addresses and what rules allow */
    KG_NET_HOST,   /* launcher none: what the host has */
} kg_net_mode_t;

/* Rules are looked at in order, the first that fits decides; after the last: what the mode does. */
typedef struct kg_net_rule {
    uint8_t allow;                  /* 1 allow, 0 deny */
    uint8_t family;                 /* 4, 6, or 0 = domain */
    uint8_t prefix;                 /* bits */
    uint8_t protocol;               /* 0 any, 6 tcp, 17 udp */
    uint16_t port_first, port_last; /* 0, 0 = all */
    uint8_t address[16];
    char domain[KG_NET_DOMAIN_MAX]; /* "example.org" with what is below it by "*.example.org" */
} kg_net_rule_t;

typedef struct kg_net_wish {
    uint32_t mode; /* kg_net_mode_t */
    uint32_t rule_count;
    uint32_t deny_by_default; /* 1: only what rules allow */
    uint32_t zero;
    kg_net_rule_t rules[KG_NET_RULES_MAX];
} kg_net_wish_t;

/* In what is said of a launcher that works: it does not keep this daemon's sandboxes from each
 * other. */
#define KG_LAUNCHER_NOT_APART "sandboxes reach each other"

/* What was got, named in the answer's `isolation`. Short words. */
typedef struct kg_isolation_info {
    char kind[24];    /* launcher */
    char userns[16];  /* own, host */
    char seccomp[16]; /* filter, none */
    char cgroup[16];  /* v1, v2, mixed, none */
    char network[16]; /* none, egress, host */
    char disk[16];    /* btrfs, loop, tmpfs, prjquota, none */
} kg_isolation_info_t;

/* As of now. UINT64_MAX = not known here. */
typedef struct kg_box_usage {
    uint64_t memory_bytes;
    uint64_t memory_peak_bytes;
    uint64_t cpu_ns;
    uint64_t disk_bytes;
    uint64_t pids;
    uint64_t oom_kills; /* since it was made */
} kg_box_usage_t;

#endif
