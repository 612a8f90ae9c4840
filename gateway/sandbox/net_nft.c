/* Rules into the kernel: scripts by `nft`, single addresses of names by netlink. */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/sandbox/net_nl.h"
#include "gateway/sandbox/net_private.h"
#include "gateway/sandbox/proctree.h"

#define NFT_SECONDS 10

static const char *nft_program(void)
{
    static const char *const places[] = {"/usr/sbin/nft", "/sbin/nft", "/usr/bin/nft",
                                         "/usr/local/sbin/nft"};
    for (size_t i = 0; i < KG_ARRAY_LEN(places); i++) {
        if (access(places[i], X_OK) == 0) {
            return places[i];
        }
    }
    return NULL;
}

/* The script as a file without a name, at its beginning. */
static int script_file(const net_script_t *script)
{
    KG_AUTO_CLOSE int fd = memfd_create("nft", MFD_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    for (size_t at = 0; at < script->used;) {
        ssize_t n = write(fd, script->text + at, script->used - at);
        if (n < 0) {
            return -errno;
        }
        at += (size_t)n;
    }
    return lseek(fd, 0, SEEK_SET) < 0 ? -errno : kg_take_fd(&fd);
}

/* In the child. */
static void become_nft(const char *program, int in, int out)
{
    static const char *const env[] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", NULL};
    const char *argv[] = {program, "-f", "-", NULL};
    sigset_t none;
    (void)sigemptyset(&none);
    (void)sigprocmask(SIG_SETMASK, &none, NULL); // NOLINT(concurrency-mt-unsafe): one thread
    if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(out, 2) < 0) {
        _exit(127);
    }
    (void)close_range(3, ~0U, 0);
    (void)execve(program, (char *const *)(uintptr_t)argv, (char *const *)(uintptr_t)env);
    _exit(127);
}

static int wait_for(pid_t pid)
{
    int status = 0;
    int r = kg_child_wait(pid, NFT_SECONDS * 1000, &status);
    if (r < 0 && r != -ETIMEDOUT) {
        return r;
    }
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : -EINVAL;
}

int net_nft_run(const net_script_t *script, char *ret_said, size_t size)
{
    const char *program = nft_program();
    ret_said[0] = '\0';
    if (script->failed) {
        return -ENOMEM;
    }
    if (!program) {
        (void)snprintf(ret_said, size, "the program nft is not there (package nftables)");
        return -ENOENT;
    }
    KG_AUTO_CLOSE int in = script_file(script);
    KG_AUTO_CLOSE int out = memfd_create("nft-said", MFD_CLOEXEC);
    if (in < 0 || out < 0) {
        return in < 0 ? in : -errno;
    }
    pid_t pid = fork();
    if (pid < 0) {
        return -errno;
    }
    if (pid == 0) {
        become_nft(program, in, out);
    }
    int r = wait_for(pid);
    if (r < 0) {
        ssize_t n = pread(out, ret_said, size - 1, 0);
        ret_said[n > 0 ? n : 0] = '\0';
        ret_said[strcspn(ret_said, "\n")] = '\0';
    }
    return r;
}

static void put_batch(kg_nl_t *nl, uint16_t type)
{
    struct nfgenmsg body = {.res_id = htons(NFNL_SUBSYS_NFTABLES)};
    kg_nl_begin(nl, type, 0, &body, sizeof(body));
}

static void put_u64_be(kg_nl_t *nl, uint16_t type, uint64_t value)
{
    uint8_t bytes[8];
    for (unsigned i = 0; i < 8; i++) {
        bytes[i] = (uint8_t)(value >> (56 - 8 * i));
    }
    kg_nl_put(nl, type, bytes, sizeof(bytes));
}

static size_t begin_elements(kg_nl_t *nl, const kg_nets_t *nets, uint16_t type, const char *set)
{
    char table[32];
    struct nfgenmsg body = {.nfgen_family = NFPROTO_INET};
    (void)snprintf(table, sizeof(table), "sandal_%04x", nets->keeper_tag);
    kg_nl_begin(nl, (uint16_t)(NFNL_SUBSYS_NFTABLES << 8 | type), NLM_F_ACK | NLM_F_CREATE, &body,
                sizeof(body));
    kg_nl_put_text(nl, NFTA_SET_ELEM_LIST_TABLE, table);
    kg_nl_put_text(nl, NFTA_SET_ELEM_LIST_SET, set);
    return type == NFT_MSG_NEWSETELEM ? kg_nl_nest(nl, NFTA_SET_ELEM_LIST_ELEMENTS) : 0;
}

/* seconds: how long it stays; 0 = for good. */
static void put_element(kg_nl_t *nl, const void *address, size_t size, uint32_t seconds)
{
    size_t element = kg_nl_nest(nl, NFTA_LIST_ELEM);
    size_t key = kg_nl_nest(nl, NFTA_SET_ELEM_KEY);
    kg_nl_put(nl, NFTA_DATA_VALUE, address, size);
    kg_nl_nest_end(nl, key);
    if (seconds != 0) {
        put_u64_be(nl, NFTA_SET_ELEM_TIMEOUT, (uint64_t)seconds * 1000);
    }
    kg_nl_nest_end(nl, element);
}

int net_rules_learn(const kg_nets_t *nets,
                    int fd,
                    const net_set_t *set,
                    uint8_t family,
                    const uint8_t address[16],
                    uint32_t seconds)
{
    kg_nl_t nl = {.used = 0};
    char name[64];
    (void)snprintf(name, sizeof(name), "d%04x_%u_%u_%u", set->slot, set->generation, set->rule,
                   family);
    put_batch(&nl, NFNL_MSG_BATCH_BEGIN);
    size_t list = begin_elements(&nl, nets, NFT_MSG_NEWSETELEM, name);
    put_element(&nl, address, family == 4 ? 4 : 16, seconds);
    kg_nl_nest_end(&nl, list);
    put_batch(&nl, NFNL_MSG_BATCH_END);
    return kg_nl_talk(fd, &nl);
}

int net_rules_close_own(const kg_nets_t *nets, int fd, bool afresh)
{
    kg_nl_t nl = {.used = 0};
    put_batch(&nl, NFNL_MSG_BATCH_BEGIN);
    if (afresh) { /* without elements: all of them */
        (void)begin_elements(&nl, nets, NFT_MSG_DELSETELEM, NET_OWN_SET);
    }
    size_t list = begin_elements(&nl, nets, NFT_MSG_NEWSETELEM, NET_OWN_SET);
    for (uint32_t i = 0; i < nets->own_count; i++) {
        uint32_t own = htonl(nets->own[i]);
        put_element(&nl, &own, sizeof(own), 0);
    }
    kg_nl_nest_end(&nl, list);
    put_batch(&nl, NFNL_MSG_BATCH_END);
    return kg_nl_talk(fd, &nl);
}
