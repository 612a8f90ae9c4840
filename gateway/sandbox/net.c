/* Networks of sandboxes: names, addresses, and the order in which things are made and taken back.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/fsutil.h"
#include "gateway/sandbox/net_dns.h"
#include "gateway/sandbox/net_private.h"

#define ROUTED_REMARK "IPv4 alone, without root"

void net_interface(const kg_nets_t *nets, uint32_t slot, char ret[IFNAMSIZ])
{
    (void)snprintf(ret, IFNAMSIZ, NET_ALL_PREFIX "%04x-%04x", nets->keeper_tag & 0xffff,
                   slot & 0xffff);
}

uint32_t net_gateway(const kg_nets_t *nets)
{
    return nets->pool + 2 * (nets->keeper_tag & 0xffff);
}

uint32_t net_address(const kg_nets_t *nets, uint32_t slot)
{
    return nets->pool + 2 * ((nets->keeper_tag + slot) & 0xffff) + 1;
}

static struct in6_addr address6(uint32_t low)
{
    struct in6_addr out = {.s6_addr = {0xfd, 0x73, 0x61, 0x6e, 0x64, 0x61}};
    low = htonl(low);
    memcpy(&out.s6_addr[12], &low, sizeof(low));
    return out;
}

struct in6_addr net_gateway6(const kg_nets_t *nets)
{
    return address6(2 * (nets->keeper_tag & 0xffff));
}

struct in6_addr net_address6(const kg_nets_t *nets, uint32_t slot)
{
    return address6(2 * ((nets->keeper_tag + slot) & 0xffff) + 1);
}

bool net_slot_of(const kg_nets_t *nets, uint8_t family, const void *address, uint32_t *ret_slot)
{
    uint32_t low;
    struct in6_addr first = net_gateway6(nets);
    if (family == 6 && memcmp(address, &first, 12) != 0) {
        return false;
    }
    memcpy(&low, (const unsigned char *)address + (family == 6 ? 12 : 0), sizeof(low));
    low = ntohl(low) - (family == 6 ? 0 : nets->pool);
    if (low > 0x1ffff || low % 2 == 0) {
        return false;
    }
    *ret_slot = (low / 2 - nets->keeper_tag) & 0xffff;
    return true;
}

static int refuse(kg_nets_t *nets, int r, const char *what)
{
    (void)snprintf(nets->reason, sizeof(nets->reason), "%s: %s", what, strerrordesc_np(-r));
    return r;
}

/* Files of slots whose interface is gone, with their rules. */
static void clean_leftovers(kg_nets_t *nets)
{
    int again = openat(nets->dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = again < 0 ? NULL : fdopendir(again);
    for (struct dirent *e = list ? readdir(list) : NULL; e; // NOLINT(concurrency-mt-unsafe)
         e = readdir(list)) {                               // NOLINT(concurrency-mt-unsafe)
        unsigned slot;
        char end;
        if (sscanf(e->d_name, "%4x.rule%c", &slot, &end) == 2 && // NOLINT(cert-err34-c)
            !net_link_exists(nets, slot)) {
            (void)kg_net_detach(nets, slot);
        }
    }
    if (list) {
        closedir(list);
    }
}

/* Steps that are done where the networks are. */

static int look(kg_nets_t *nets, const void *arg, kg_err_t *err)
{
    (void)arg;
    (void)err;
    int r = net_host_look(nets);
    if (r < 0) {
        return r;
    }
    nets->ipv6 = nets->ipv6 && !nets->routed; /* slirp4netns has it as an experiment */
    r = net_gateway_set(nets, true);
    return r < 0 ? refuse(nets, r, "cannot set the forwarder's address (netlink)") : 0;
}

static int open_rules(kg_nets_t *nets, const void *arg, kg_err_t *err)
{
    net_opened_t opened;
    char said[120];
    KG_AUTO(net_script_done) net_script_t script = {.text = NULL};
    (void)arg;
    (void)err;
    int r = net_host_open(nets, &opened);
    if (r < 0) {
        return refuse(nets, r, "cannot turn forwarding on");
    }
    net_rules_base(nets, &opened, &script);
    r = net_nft_run(&script, said, sizeof(said));
    if (r < 0) {
        (void)snprintf(nets->reason, sizeof(nets->reason), "nftables: %s", said);
        return r;
    }
    clean_leftovers(nets);
    return 0;
}

static int start_helper(kg_nets_t *nets)
{
    int r = net_helper_start(nets);
    if (r == -EADDRINUSE && !nets->routed && net_holder_end(nets)) {
        r = net_helper_start(nets);
    }
    return r < 0 && nets->reason[0] == '\0' ? refuse(nets, r, "cannot start the DNS forwarder") : r;
}

static int open_all(kg_nets_t *nets)
{
    kg_err_t err = {0};
    char path[220];

    (void)snprintf(path, sizeof(path), "%s/net", nets->runtime_dir);
    int r = kg_fs_open_dir(path, 0711, &nets->dir_fd);
    if (r < 0) {
        return refuse(nets, r, "cannot make RUNTIME/net");
    }
    net_helper_end(nets);
    r = nets->routed ? net_router_start(nets) : 0;
    if (r == 0) {
        r = net_do(nets, look, NULL, &err);
    }
    if (r == 0) {
        r = start_helper(nets); /* chooses the group of the log */
        r = r < 0 ? r : net_do(nets, open_rules, NULL, &err);
    }
    if (r < 0 && nets->reason[0] == '\0') {
        (void)snprintf(nets->reason, sizeof(nets->reason), "%.150s", err.message);
    }
    return r;
}

void kg_nets_init(kg_nets_t *nets)
{
    nets->available = nets->foreign = false;
    nets->reason[0] = '\0';
    nets->routed = geteuid() != 0;
    nets->dir_fd = nets->lock_fd = nets->user_ns = nets->net_ns = -1;
    nets->helper = nets->router = 0;
}

void kg_nets_fds(const kg_nets_t *nets, int ret[KG_NETS_FDS])
{
    const int fds[KG_NETS_FDS] = {nets->dir_fd, nets->lock_fd, nets->user_ns, nets->net_ns};
    memcpy(ret, fds, sizeof(fds));
}

int kg_nets_open(kg_nets_t *nets, kg_err_t *err)
{
    kg_nets_init(nets);
    if (nets->keeper_tag > 0xffff || nets->allow_count > KG_NET_ALLOW_MAX) {
        return kg_err_set(err, KG_ERR_CONFIG,
                          "networks: keeper_tag %u or %u allowed ranges is too "
                          "many",
                          nets->keeper_tag, nets->allow_count);
    }
    if (nets->routed && net_user_look(nets) < 0) {
        return 0;
    }
    if (open_all(nets) < 0) {
        char reason[sizeof(nets->reason)];
        memcpy(reason, nets->reason, sizeof(reason));
        kg_nets_close(nets);
        memcpy(nets->reason, reason, sizeof(reason));
        return 0;
    }
    nets->available = true;
    if (nets->routed) {
        (void)snprintf(nets->reason, sizeof(nets->reason), "%s", ROUTED_REMARK);
    } else if (!nets->ipv6) {
        (void)snprintf(nets->reason, sizeof(nets->reason),
                       "IPv4 alone: the host has no IPv6 route, or its kernel cannot forward IPv6 "
                       "for single interfaces");
    }
    return 0;
}

int kg_nets_revive(kg_nets_t *nets)
{
    uint16_t group = nets->log_group;
    nets->helper = 0;
    net_helper_end(nets); /* one that it left behind */
    int r = net_helper_start(nets);
    /* The rules name the group; the old one is free again, so it is found first. */
    return r == 0 && nets->log_group != group ? -EBUSY : r;
}

int kg_nets_reroute(kg_nets_t *nets)
{
    if (!nets->routed || nets->dir_fd < 0 || net_router_lives(nets)) {
        return 0;
    }
    nets->router = 0;
    int r = net_router_start(nets);
    nets->available = r == 0;
    if (r == 0) {
        (void)snprintf(nets->reason, sizeof(nets->reason), "%s", ROUTED_REMARK);
        kg_log(KG_LOG_WARN, "net.router_restarted", "pid=%d", (int)nets->router);
    } else {
        kg_log(KG_LOG_ERROR, "net.router_lost", "reason=\"%s\"", nets->reason);
    }
    return r;
}

void kg_nets_close(kg_nets_t *nets)
{
    char said[120];
    KG_AUTO(net_script_done) net_script_t script = {.text = NULL};
    if (nets->dir_fd < 0) {
        return;
    }
    net_helper_end(nets);
    nets->available = false;
    if (nets->routed || nets->foreign) {
        if (nets->routed) { /* all is in it */
            net_router_end(nets);
        }
        kg_closep(&nets->dir_fd);
        kg_closep(&nets->lock_fd);
        return;
    }
    net_host_close(nets); /* before the rules go that keep neighbours from using it */
    net_script_add(&script, "add table inet sandal_%04x\ndelete table inet sandal_%04x\n",
                   nets->keeper_tag, nets->keeper_tag);
    (void)net_nft_run(&script, said, sizeof(said));
    (void)net_gateway_set(nets, false);
    kg_closep(&nets->dir_fd);
}

static bool is_plain(const kg_net_wish_t *wish)
{
    return wish->mode == KG_NET_EGRESS && wish->rule_count == 0 && !wish->deny_by_default;
}

/* Addresses that were learned under earlier rules count under the new ones, so that programs need
 * not ask again. */
static void add_known_names(const kg_nets_t *nets,
                            uint32_t slot,
                            const net_slot_file_t *file,
                            net_script_t *script)
{
    static const size_t size = sizeof(net_name_t) * NET_NAMES_KEPT;
    KG_AUTO_FREE net_name_t *names = malloc(size);
    size_t count = names ? net_names_read(nets, slot, names) : 0;
    for (size_t i = 0; i < count; i++) {
        char text[INET6_ADDRSTRLEN] = "";
        (void)inet_ntop(names[i].family == 4 ? AF_INET : AF_INET6, names[i].address, text,
                        sizeof(text));
        for (uint32_t j = 0; j < file->wish.rule_count; j++) {
            const kg_net_rule_t *rule = &file->wish.rules[j];
            if (rule->family == 0 && net_domain_matches(rule->domain, names[i].domain)) {
                net_script_add(script, "add element inet sandal_%04x d%04x_%u_%u_%u { %s }\n",
                               nets->keeper_tag, slot, file->generation, j, names[i].family, text);
            }
        }
    }
}

/* Puts rules in force: the new ones and the end of the old ones are one transaction. old may be
 * NULL. */
static int put_rules(const kg_nets_t *nets,
                     uint32_t slot,
                     const net_slot_file_t *old,
                     const kg_net_wish_t *wish,
                     kg_err_t *err)
{
    char said[120];
    KG_AUTO(net_script_done) net_script_t script = {.text = NULL};
    net_slot_file_t file = {.generation = 0, .wish = *wish};
    bool had = old && old->generation != 0;
    int r = 0;
    if (!is_plain(wish) || old) { /* a change needs a chain: open connections are judged again */
        file.generation = (uint32_t)(kg_now_ns() >> 10) | 1U;
    }
    if (!old) { /* first, so that what a crash leaves is found */
        r = net_file_write(nets, slot, &file);
    }
    if (r == 0 && file.generation != 0) {
        net_rules_slot(nets, slot, file.generation, wish, &script);
        add_known_names(nets, slot, &file, &script);
        if (had) {
            net_rules_drop(nets, slot, old->generation, &old->wish, false, &script);
        }
        r = net_nft_run(&script, said, sizeof(said));
        if (r < 0) {
            return kg_err_set(err, KG_ERR_INTERNAL, "cannot set the rules of the network: %s",
                              said[0] ? said : strerrordesc_np(-r));
        }
    }
    if (r == 0 && old) {
        r = net_file_write(nets, slot, &file);
    }
    return r < 0 ? kg_err_set(err, KG_ERR_INTERNAL, "cannot keep the rules of the network: %s",
                              strerrordesc_np(-r))
                 : 0;
}

/* One sandbox's, for the steps below. */
typedef struct slot_step {
    uint32_t slot;
    pid_t pid;
    const kg_net_wish_t *wish;
} slot_step_t;

static int attach(kg_nets_t *nets, const void *arg, kg_err_t *err)
{
    const slot_step_t *s = arg;
    net_slot_file_t old;
    if (net_file_read(nets, s->slot, &old) == 0) { /* an earlier sandbox's that was not detached */
        (void)kg_net_detach(nets, s->slot);
    }
    int r = net_files_make(nets, s->slot);
    if (r == 0) {
        r = put_rules(nets, s->slot, NULL, s->wish, err);
        if (r < 0) {
            (void)kg_net_detach(nets, s->slot);
            return r;
        }
        r = net_link_make(nets, s->slot, s->pid);
    }
    if (r < 0) {
        (void)kg_net_detach(nets, s->slot);
        return kg_err_set(err, KG_ERR_INTERNAL, "cannot make the sandbox's network: %s",
                          strerrordesc_np(-r));
    }
    return 0;
}

int kg_net_attach(
    const kg_nets_t *nets, uint32_t slot, pid_t pid, const kg_net_wish_t *wish, kg_err_t *err)
{
    if (wish->mode == KG_NET_NONE) {
        return 0;
    }
    if (wish->mode != KG_NET_EGRESS || !nets->available) {
        (void)kg_err_set(err, KG_ERR_NOT_SUPPORTED, "this host has no network for sandboxes: %s",
                         nets->reason);
        kg_err_hint(err, "ask for network \"none\", or see sandald doctor");
        return -kg_err_errno(KG_ERR_NOT_SUPPORTED);
    }
    if (slot >= NET_SLOTS_MAX - nets->keeper_tag) {
        return kg_err_set(err, KG_ERR_INTERNAL, "no address for slot %u", slot);
    }
    const slot_step_t arg = {slot, pid, wish};
    kg_nets_t own = *nets;
    return net_do(&own, attach, &arg, err);
}

static int change(kg_nets_t *nets, const void *arg, kg_err_t *err)
{
    const slot_step_t *s = arg;
    net_slot_file_t old;
    if (net_file_read(nets, s->slot, &old) < 0) {
        return kg_err_set(err, KG_ERR_NOT_FOUND, "the sandbox was made without a network");
    }
    return put_rules(nets, s->slot, &old, s->wish, err);
}

int kg_net_change(const kg_nets_t *nets, uint32_t slot, const kg_net_wish_t *wish, kg_err_t *err)
{
    if (wish->mode == KG_NET_HOST) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED,
                          "a sandbox cannot be given the host's network");
    }
    if (nets->dir_fd < 0) {
        return kg_err_set(err, KG_ERR_NOT_FOUND, "the sandbox was made without a network");
    }
    const slot_step_t arg = {slot, 0, wish};
    kg_nets_t own = *nets;
    return net_do(&own, change, &arg, err);
}

static int detach(kg_nets_t *nets, const void *arg, kg_err_t *err)
{
    uint32_t slot = ((const slot_step_t *)arg)->slot;
    char said[120];
    net_slot_file_t old;
    KG_AUTO(net_script_done) net_script_t script = {.text = NULL};
    (void)err;
    if (net_file_read(nets, slot, &old) < 0) {
        net_files_remove(nets, slot);
        return 0;
    }
    int r = net_link_remove(nets, slot);
    if (r == 0 && old.generation != 0) {
        net_rules_drop(nets, slot, old.generation, &old.wish, true, &script);
        if (net_nft_run(&script, said, sizeof(said)) < 0) {
            kg_log(KG_LOG_WARN, "net.rules_left", "slot=%u", slot);
        }
    }
    net_files_remove(nets, slot);
    return r;
}

int kg_net_detach(const kg_nets_t *nets, uint32_t slot)
{
    if (nets->dir_fd < 0) {
        return 0;
    }
    const slot_step_t arg = {.slot = slot};
    kg_nets_t own = *nets;
    return net_do(&own, detach, &arg, NULL);
}

int kg_net_resolv_conf(const kg_nets_t *nets, uint32_t slot, char *out, size_t size)
{
    (void)slot;
    struct in_addr gateway = {.s_addr = htonl(net_gateway(nets))};
    char text[INET_ADDRSTRLEN] = "";
    (void)inet_ntop(AF_INET, &gateway, text, sizeof(text));
    int n = snprintf(out, size,
                     "# the sandbox's own forwarder; no other DNS is open\nnameserver %s\n"
                     "options edns0 timeout:3 attempts:2\n",
                     text);
    return n < 0 || (size_t)n >= size ? -ENOSPC : n;
}
