/* cli: `sandald serve`: reads and checks the configuration and becomes sandal-keeper, which takes
 * and makes the directories and starts `sandald gateway` with the effective configuration. `sandald
 * check-config` is the same without the last step. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/base/buf.h"
#include "gateway/base/str.h"
#include "gateway/cli/args.h"
#include "gateway/cli/commands.h"
#include "gateway/cli/keeper_args.h"
#include "gateway/cli/paths.h"
#include "gateway/cli/serve_check.h"

#define STOP_SLACK_S 10 /* from the end of the gateway's drain to the keeper's patience */

/* Does not return when it works. */
static int become_keeper(const kg_config_t *config, const char *exe_dir, kg_err_t *err)
{
    KG_AUTO_FREE char *keeper = kg_path_helper(exe_dir, "sandal-keeper");
    KG_AUTO_FREE char *init = kg_path_helper(exe_dir, "sandal-init");
    KG_AUTO_FREE char *gateway = kg_strdup_printf("%s/sandald", exe_dir);
    json_t *dump = kg_config_dump(config);
    KG_AUTO_FREE char *effective = dump ? json_dumps(dump, JSON_COMPACT) : NULL;
    json_decref(dump);
    char base[24];
    char count[24];
    char stop[24];
    char volumes[24];
    snprintf(base, sizeof(base), "%llu", (unsigned long long)config->uid_base);
    snprintf(count, sizeof(count), "%llu", (unsigned long long)config->uid_count);
    snprintf(volumes, sizeof(volumes), "%llu", (unsigned long long)config->volumes.bytes);
    snprintf(stop, sizeof(stop), "%llu",
             (unsigned long long)(config->timeouts.drain / 1000000000U) + STOP_SLACK_S);
    if (!keeper || !init || !gateway || !effective) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    char *head[] = {
        keeper,
        (char[]){"--gateway-exe"},
        gateway,
        (char[]){"--init-exe"},
        init,
        (char[]){"--state-dir"},
        config->state_dir,
        (char[]){"--runtime-dir"},
        config->runtime_dir,
        (char[]){"--gateway-user"},
        config->gateway_user,
        (char[]){"--uid-base"},
        base,
        (char[]){"--uid-count"},
        count,
        (char[]){"--volumes-backend"},
        config->volumes.backend,
        (char[]){"--volumes-bytes"},
        volumes,
        (char[]){"--log-level"},
        config->log.level,
        (char[]){"--stop-timeout"},
        stop,
    };
    char *tail[] = {
        (char[]){"--"},          (char[]){"sandald"}, (char[]){"gateway"},
        (char[]){"--effective"}, effective,           NULL,
    };
    kg_strlist_t more = {0};
    int r = kg_keeper_args(config, &more, err);
    if (r < 0) {
        return r;
    }
    KG_AUTO_FREE char **argv =
        calloc(KG_ARRAY_LEN(head) + more.count + KG_ARRAY_LEN(tail), sizeof(*argv));
    if (argv) {
        memcpy(argv, head, sizeof(head));
        memcpy(argv + KG_ARRAY_LEN(head), more.items, more.count * sizeof(*argv));
        memcpy(argv + KG_ARRAY_LEN(head) + more.count, tail, sizeof(tail));
        execv(keeper, argv);
    }
    kg_keeper_args_fini(&more);
    return kg_err_set(err, KG_ERR_CONFIG, "cannot start %s: %s", keeper, strerrordesc_np(errno));
}

static const char *const SERVE_SUMMARY = "Runs the daemon in the foreground until SIGTERM. At the "
                                         "first start a key is made in STATE/key,\n"
                                         "where clients on this machine find it by themselves.";

int kg_command_serve(int argc, char **argv)
{
    kg_err_t err = {0};
    kg_config_t config;
    KG_AUTO_FREE char *exe_dir = kg_path_exe_dir();
    int r = kg_config_init(&config, &err);
    if (r == 0 && exe_dir) {
        r = kg_args_settle(argc, argv, SERVE_SUMMARY, exe_dir, &config, &err);
        if (r == 0) {
            r = kg_serve_check(&config, exe_dir, &err);
        }
        if (r == 0) {
            r = become_keeper(&config, exe_dir, &err);
        }
    }
    kg_config_fini(&config);
    if (r < 0) {
        kg_args_complain(&err);
        return 2;
    }
    return 0;
}

int kg_command_check_config(int argc, char **argv)
{
    kg_err_t err = {0};
    kg_config_t config;
    KG_AUTO_FREE char *exe_dir = kg_path_exe_dir();
    int r = kg_config_init(&config, &err);
    if (r == 0 && exe_dir) {
        r = kg_args_settle(
            argc, argv,
            "Checks the configuration as `serve` would take it and prints what it comes to, "
            "as JSON.",
            exe_dir, &config, &err);
        if (r == 0) {
            r = kg_serve_check(&config, exe_dir, &err);
        }
    }
    json_t *dump = r == 0 ? kg_config_dump(&config) : NULL;
    if (dump) {
        json_dumpf(dump, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(12));
        printf("\n");
        json_decref(dump);
    }
    kg_config_fini(&config);
    if (r < 0) {
        kg_args_complain(&err);
        return 2;
    }
    return 0;
}
