/* `none`: no isolation but an own session, own directories and, under a root keeper, an own uid. */
#include <stdio.h>
#include <string.h>

#include "gateway/sandbox/launcher_plain.h"

static int none_probe(const kg_host_t *host, char ret_reason[160])
{
    int r = kg_plain_probe(host, ret_reason);
    if (r == 0) {
        (void)snprintf(ret_reason, 160, "%s",
                       host->is_root ? "no isolation but an own uid: for trusted code"
                                     : "no isolation, same user as the daemon: for trusted code");
    }
    return r;
}

/* Limits that it can't hold are never taken in silence. */
static int none_refuse(const kg_kp_create_t *request, kg_err_t *err)
{
    const kg_limits_t *limits = &request->limits;
    if (limits->pids || limits->memory_bytes || limits->cpu_millis || limits->disk_bytes) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED,
                          "isolation none can't hold limits of memory, cpu, disk or processes");
    }
    if (request->network.mode == KG_NET_EGRESS || request->network.rule_count > 0) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED,
                          "isolation none has the host's network and can't hold rules on it");
    }
    return 0;
}

static int
none_create(const kg_host_t *host, const kg_launch_t *l, kg_launched_t *ret_launched, kg_err_t *err)
{
    kg_launched_t made = {
        .isolation = {.kind = "none",
                      .userns = "host",
                      .seccomp = "none",
                      .cgroup = "none",
                      .network = "host",
                      .disk = "none"},
    };
    int r = none_refuse(l->request, err);
    if (r == 0) {
        r = kg_plain_create(host, l, 0, NULL, &made, err);
    }
    if (r == 0) {
        *ret_launched = made;
    }
    return r;
}

const kg_launcher_t kg_launcher_none = {
    .name = "none",
    .rank = 0,
    .probe = none_probe,
    .create = none_create,
    .connect = kg_plain_connect,
    .destroy = kg_plain_destroy,
    .cleanup = kg_plain_cleanup,
};
