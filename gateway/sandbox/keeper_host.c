/* What the host can give, found out once: control groups at the start, the store of volumes and the
 * networks when somebody needs them. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "gateway/base/log.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/keeper.h"

/* The same for each keeper of this state directory, another for all others. */
static void find_groups(kg_keeper_t *k)
{
    char name[48];
    struct stat st = {0};

    (void)fstat(k->host.sandboxes_fd, &st);
    (void)snprintf(name, sizeof(name), "sandal-%llx-%llx", (unsigned long long)st.st_dev,
                   (unsigned long long)st.st_ino);
    int r = kg_cgroups_find(&k->host.cgroups, "/", name);
    kg_log(KG_LOG_DEBUG, "keeper.cgroups", "have=%s error=%d", kg_cgroups_word(&k->host.cgroups),
           -r);
}

int keeper_volumes_open(kg_keeper_t *k, kg_err_t *err)
{
    if (k->volumes_open) {
        return 0;
    }
    if (!k->host.is_root) {
        return kg_err_set(err, KG_ERR_NOT_SUPPORTED, "volumes need root");
    }
    int r = kg_volumes_open(&k->host.volumes, k->host.state_dir, k->opts.volumes_backend,
                            k->opts.volumes_bytes, err);
    if (r < 0) {
        kg_log(KG_LOG_ERROR, "keeper.volumes", "reason=\"%s\"", err->message);
        return r;
    }
    k->volumes_open = true;
    kg_log(KG_LOG_INFO, "keeper.volumes", "backend=%s remark=\"%s\"",
           kg_vol_backend_name(k->host.volumes.backend), k->host.volumes.reason);
    return 0;
}

void keeper_nets_revive(kg_keeper_t *k, int status)
{
    int r = kg_nets_revive(&k->host.nets);
    kg_log(r < 0 ? KG_LOG_ERROR : KG_LOG_WARN, "keeper.network_helper",
           "status=%d restarted=%d error=%d", status, r == 0, -r);
}

void keeper_nets_open(kg_keeper_t *k)
{
    kg_err_t err = {0};
    kg_nets_t *nets = &k->host.nets;

    if (k->nets_open) {
        (void)kg_nets_reroute(nets);
        if (nets->available && nets->helper == 0) { /* it could not be started when it ended */
            keeper_nets_revive(k, 0);
        }
        return;
    }
    k->nets_open = true;
    nets->keeper_tag = k->host.is_root ? k->host.uid_base / KG_UID_RANGE : 1;
    (void)kg_format(nets->runtime_dir, sizeof(nets->runtime_dir), "%s", k->host.runtime_dir);
    nets->orphan_s = k->host.orphan_s;
    nets->allow_count = k->opts.net_allow_count;
    memcpy(nets->allow, k->opts.net_allow, sizeof(nets->allow));
    if (kg_nets_open(nets, &err) < 0) {
        (void)snprintf(nets->reason, sizeof(nets->reason), "%.150s", err.message);
    }
    kg_log(nets->available ? KG_LOG_INFO : KG_LOG_WARN, "keeper.networks",
           "egress=%d remark=\"%s\"", nets->available, nets->reason);
}

static bool is_there(const char *dir, const char *name)
{
    char path[300];
    return kg_format(path, sizeof(path), "%s/%s", dir, name) == 0 && access(path, F_OK) == 0;
}

int keeper_host_open(kg_keeper_t *k)
{
    kg_err_t err = {0};

    find_groups(k);
    kg_nets_init(&k->host.nets);
    (void)snprintf(k->host.nets.reason, sizeof(k->host.nets.reason), "not looked for yet");
    if (k->opts.prepare || is_there(k->host.runtime_dir, "net")) {
        keeper_nets_open(k);
    }
    if (k->host.is_root && (k->opts.prepare || is_there(k->host.state_dir, "volumes"))) {
        int r = keeper_volumes_open(k, &err);
        if (r < 0) {
            (void)fprintf(stderr, "sandal-keeper: %s\n", err.message);
            return r;
        }
    }
    return 0;
}

void keeper_host_close(kg_keeper_t *k)
{
    size_t count;
    const kg_launcher_t *const *rows = kg_launchers(&count);

    for (size_t i = 0; i < count; i++) {
        if (rows[i]->close) {
            rows[i]->close(&k->host);
        }
    }
    if (k->nets_open) {
        kg_nets_close(&k->host.nets);
    }
    if (k->volumes_open) {
        kg_volumes_close(&k->host.volumes);
    }
}
