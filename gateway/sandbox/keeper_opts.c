/* Command line of sandal-keeper. People start `sandald serve`; this is what it execs. */
#include <arpa/inet.h>
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/keeper.h"

#define UID_LAST UINT64_C(4294967293) /* -1 and -2 mean other things */

static void usage(FILE *out)
{
    (void)fputs(
        "usage: sandal-keeper OPTIONS -- GATEWAY_ARGV0 [GATEWAY_ARG…]\n"
        "\n"
        "The privileged half of sandald; started by `sandald serve`.\n"
        "\n"
        "  --gateway-exe PATH    program to run as the gateway, its socket as fd 3\n"
        "  --init-exe PATH       sandal-init\n"
        "  --state-dir PATH      sandboxes keep their files in PATH/sandboxes\n"
        "  --runtime-dir PATH    run directories of sandboxes; at most 54 bytes\n"
        "  --gateway-user NAME   user of the gateway, as root (\"\" = no change)\n"
        "  --uid-base N          first uid for sandboxes, as root (1879048192)\n"
        "  --uid-count N         how many, 65536 a sandbox (268435456)\n"
        "  --stop-timeout N      seconds for the gateway to drain (30)\n"
        "  --create-timeout N    seconds for a sandbox to be made (30)\n"
        "  --orphan-timeout N    seconds that sandboxes live on when the keeper was killed (600)\n"
        "  --root NAME=R:PREFIX  a template: R is \"host\" or a directory, PREFIX its own tree\n"
        "  --show PATH           a file or directory that every sandbox sees\n"
        "  --volumes-backend B   of the sandboxes' volumes: auto, btrfs, loop, tmpfs, none (auto)\n"
        "  --volumes-bytes N     size of a new store (0 = four fifths of what is free)\n"
        "  --net-allow CIDR      reachable for sandboxes with egress, besides public addresses\n"
        "  --prepare             make volumes and networks at the start, not when they are needed\n"
        "  --log-level LEVEL     debug, info, warn, error (info)\n"
        "  --log-json            log lines as JSON\n"
        "  --serve-fd3           start no gateway: serve the socket on fd 3 until it closes\n",
        out);
}

static int fail(const char *what)
{
    (void)fprintf(stderr, "sandal-keeper: %s\n", what);
    return -EINVAL;
}

static int
parse_number(const char *name, const char *text, uint64_t min, uint64_t max, uint64_t *ret)
{
    if (kg_parse_u64(text, min, max, ret) < 0) {
        (void)fprintf(stderr, "sandal-keeper: --%s: \"%s\" is not a number from %llu to %llu\n",
                      name, text, (unsigned long long)min, (unsigned long long)max);
        return -EINVAL;
    }
    return 0;
}

/* NAME=ROOTFS:PREFIX */
static int parse_root(const char *text, kg_keeper_opts_t *o)
{
    static kg_root_t roots[KEEPER_ROOTS_MAX];
    const char *equal = strchr(text, '=');
    const char *colon = equal ? strchr(equal, ':') : NULL;
    kg_root_t root = {0};

    if (o->root_count == KEEPER_ROOTS_MAX) {
        return fail("--root: too many");
    }
    if (!colon || kg_format(root.name, sizeof(root.name), "%.*s", (int)(equal - text), text) < 0 ||
        kg_format(root.rootfs, sizeof(root.rootfs), "%.*s", (int)(colon - equal - 1), equal + 1) <
            0 ||
        kg_format(root.prefix, sizeof(root.prefix), "%s", colon + 1) < 0 || root.name[0] == '\0' ||
        (root.rootfs[0] != '/' && strcmp(root.rootfs, "host") != 0) ||
        (root.prefix[0] != '\0' && root.prefix[0] != '/')) {
        return fail("--root: NAME=host:PREFIX or NAME=/DIR:PREFIX is wanted, absolute paths");
    }
    roots[o->root_count++] = root;
    o->roots = roots;
    return 0;
}

static int parse_shown(const char *path, kg_keeper_opts_t *o)
{
    static const char *shown[KEEPER_SHOWN_MAX];

    if (o->shown_count == KEEPER_SHOWN_MAX || path[0] != '/' || path[1] == '\0') {
        return fail("--show: an absolute path is wanted, 64 at most");
    }
    shown[o->shown_count++] = path;
    o->shown = shown;
    return 0;
}

/* ADDRESS/BITS */
static int parse_cidr(const char *text, kg_keeper_opts_t *o)
{
    char address[64];
    uint64_t bits = 0;
    kg_net_rule_t rule = {.allow = 1};
    const char *slash = strchr(text, '/');

    if (o->net_allow_count == KG_NET_ALLOW_MAX) {
        return fail("--net-allow: too many");
    }
    if (!slash || kg_format(address, sizeof(address), "%.*s", (int)(slash - text), text) < 0) {
        return fail("--net-allow: ADDRESS/BITS is wanted");
    }
    bool v6 = strchr(address, ':') != NULL;
    rule.family = v6 ? 6 : 4;
    if (inet_pton(v6 ? AF_INET6 : AF_INET, address, rule.address) != 1 ||
        kg_parse_u64(slash + 1, 0, v6 ? 128 : 32, &bits) < 0) {
        return fail("--net-allow: ADDRESS/BITS is wanted");
    }
    rule.prefix = (uint8_t)bits;
    o->net_allow[o->net_allow_count++] = rule;
    return 0;
}

static int check(const kg_keeper_opts_t *o)
{
    if (!o->init_exe || !o->state_dir || !o->runtime_dir) {
        return fail("--init-exe, --state-dir and --runtime-dir are needed");
    }
    if (!o->serve_fd3 && (!o->gateway_exe || !o->gateway_argv[0])) {
        return fail("--gateway-exe and, after --, the gateway's arguments are needed");
    }
    if (o->uid_count % KG_UID_RANGE != 0) {
        return fail("--uid-count must be a multiple of 65536, the ids of one sandbox");
    }
    if (o->uid_base > UID_LAST - o->uid_count) {
        return fail("--uid-base and --uid-count go beyond the last uid");
    }
    return 0;
}

enum {
    OPT_GATEWAY = 1,
    OPT_INIT,
    OPT_STATE,
    OPT_RUNTIME,
    OPT_USER,
    OPT_BASE,
    OPT_COUNT,
    OPT_STOP,
    OPT_CREATE,
    OPT_ORPHAN,
    OPT_ROOT,
    OPT_SHOW,
    OPT_PREPARE,
    OPT_NET_ALLOW,
    OPT_VOLUMES,
    OPT_VOLUMES_BYTES,
    OPT_LEVEL,
    OPT_JSON,
    OPT_FD3,
    OPT_HELP
};

typedef struct kg_opt_log {
    kg_log_level_t level;
    bool json;
} kg_opt_log_t;

static int apply(int option, const char *value, kg_keeper_opts_t *o, kg_opt_log_t *logging)
{
    switch (option) {
    case OPT_GATEWAY:
        o->gateway_exe = value;
        return 0;
    case OPT_INIT:
        o->init_exe = value;
        return 0;
    case OPT_STATE:
        o->state_dir = value;
        return 0;
    case OPT_RUNTIME:
        o->runtime_dir = value;
        return 0;
    case OPT_USER:
        o->gateway_user = value;
        return 0;
    case OPT_BASE:
        return parse_number("uid-base", value, 1000, UID_LAST, &o->uid_base);
    case OPT_COUNT:
        return parse_number("uid-count", value, KG_UID_RANGE,
                            (uint64_t)KEEPER_SLOTS_MAX * KG_UID_RANGE, &o->uid_count);
    case OPT_STOP:
        return parse_number("stop-timeout", value, 0, 86400, &o->stop_timeout_s);
    case OPT_CREATE:
        return parse_number("create-timeout", value, 0, 3600, &o->create_timeout_s);
    case OPT_ORPHAN:
        return parse_number("orphan-timeout", value, 0, 86400, &o->orphan_timeout_s);
    case OPT_ROOT:
        return parse_root(value, o);
    case OPT_SHOW:
        return parse_shown(value, o);
    case OPT_VOLUMES:
        o->volumes_backend = value;
        return 0;
    case OPT_VOLUMES_BYTES:
        return parse_number("volumes-bytes", value, 0, UINT64_C(1) << 60, &o->volumes_bytes);
    case OPT_PREPARE:
        o->prepare = true;
        return 0;
    case OPT_NET_ALLOW:
        return parse_cidr(value, o);
    case OPT_LEVEL:
        return kg_log_level_parse(value, &logging->level) < 0 ? fail("--log-level: no such level")
                                                              : 0;
    case OPT_JSON:
        logging->json = true;
        return 0;
    case OPT_FD3:
        o->serve_fd3 = true;
        return 0;
    default:
        return -EINVAL; /* getopt has said what */
    }
}

static int next_option(int argc, char **argv, const struct option *table)
{
    return getopt_long(argc, argv, "+", table, NULL); // NOLINT(concurrency-mt-unsafe): one thread
}

int keeper_opts_parse(int argc, char **argv, kg_keeper_opts_t *ret_opts)
{
    static const struct option table[] = {
        {"gateway-exe", required_argument, NULL, OPT_GATEWAY},
        {"init-exe", required_argument, NULL, OPT_INIT},
        {"state-dir", required_argument, NULL, OPT_STATE},
        {"runtime-dir", required_argument, NULL, OPT_RUNTIME},
        {"gateway-user", required_argument, NULL, OPT_USER},
        {"uid-base", required_argument, NULL, OPT_BASE},
        {"uid-count", required_argument, NULL, OPT_COUNT},
        {"stop-timeout", required_argument, NULL, OPT_STOP},
        {"create-timeout", required_argument, NULL, OPT_CREATE},
        {"orphan-timeout", required_argument, NULL, OPT_ORPHAN},
        {"root", required_argument, NULL, OPT_ROOT},
        {"show", required_argument, NULL, OPT_SHOW},
        {"prepare", no_argument, NULL, OPT_PREPARE},
        {"net-allow", required_argument, NULL, OPT_NET_ALLOW},
        {"volumes-backend", required_argument, NULL, OPT_VOLUMES},
        {"volumes-bytes", required_argument, NULL, OPT_VOLUMES_BYTES},
        {"log-level", required_argument, NULL, OPT_LEVEL},
        {"log-json", no_argument, NULL, OPT_JSON},
        {"serve-fd3", no_argument, NULL, OPT_FD3},
        {"help", no_argument, NULL, OPT_HELP},
        {NULL, 0, NULL, 0},
    };
    kg_opt_log_t logging = {.level = KG_LOG_INFO};
    kg_keeper_opts_t o = {
        .gateway_user = "",
        .uid_base = KEEPER_UID_BASE_DEFAULT,
        .uid_count = KEEPER_UID_COUNT_DEFAULT,
        .stop_timeout_s = 30,
        .create_timeout_s = 30,
        .orphan_timeout_s = 600,
        .volumes_backend = "auto",
    };
    int option;

    while ((option = next_option(argc, argv, table)) != -1) {
        if (option == OPT_HELP) {
            usage(stdout);
            return 1;
        }
        if (apply(option, optarg, &o, &logging) < 0) {
            return -EINVAL;
        }
    }
    o.gateway_argv = argv + optind;
    if (check(&o) < 0) {
        return -EINVAL;
    }
    kg_log_init(logging.level, logging.json);
    *ret_opts = o;
    return 0;
}
