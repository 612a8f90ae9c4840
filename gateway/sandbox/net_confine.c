/* What the forwarder gives up before it reads its first packet: an ordinary user's would otherwise
 * have all of the user's files and processes, for whoever finds a hole in how it reads names. */
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/sandbox/filter.h"
#include "gateway/sandbox/landlock.h"
#include "gateway/sandbox/net_private.h"

#define DNS_PORT 53

static int allow_folder(int rules, const char *path)
{
    char folder[PATH_MAX];
    int r = kg_format(folder, sizeof(folder), "%s", path);
    char *slash = r < 0 ? NULL : strrchr(folder, '/');
    if (!slash || slash == folder) {
        return r < 0 ? r : -EINVAL;
    }
    *slash = '\0';
    return kg_ll_allow(rules, folder, KG_LL_READ);
}

/* The folders of the file that says whom to ask, for such files are replaced; and those of the
 * programs that do so on hosts which move between networks. */
static int allow_resolvers(int rules, const char *path)
{
    static const char *const others[] = {"/run/systemd/resolve", "/run/NetworkManager",
                                         "/run/resolvconf", "/run/connman"};
    char *real = realpath(path, NULL);
    int r = allow_folder(rules, path);
    if (r == 0 && real) {
        r = allow_folder(rules, real);
    }
    free(real);
    for (size_t i = 0; i < KG_ARRAY_LEN(others) && r == 0; i++) {
        r = kg_ll_allow(rules, others[i], KG_LL_READ);
    }
    return r;
}

static int confine_files(const kg_nets_t *nets)
{
    if (kg_ll_abi() == 0) {
        return 0; /* a kernel without it */
    }
    KG_AUTO_CLOSE int rules = kg_ll_begin();
    int r = rules < 0 ? rules : kg_ll_allow_fd(rules, nets->dir_fd, KG_LL_DEVICE);
    if (r == 0) {
        r = allow_resolvers(rules, net_resolvers(nets));
    }
    if (r == 0) {
        r = kg_ll_allow_connect(rules, DNS_PORT);
    }
    return r == 0 ? kg_ll_enter(rules) : r;
}

int net_confine(const kg_nets_t *nets)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        return -errno;
    }
    int r = confine_files(nets);
    return r < 0 ? r : kg_filter_load(KG_FILTER_FORWARDER);
}
