/* cli: `sandald serve`: reads and checks the configuration and becomes sandal-keeper, which takes
 * and makes the directories and starts `sandald gateway` with the effective configuration. `sandald
 * check-config` is the same without the last step. */
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/base/buf.h"
#include "gateway/base/str.h"
#include "gateway/cli/args.h"
#include "gateway/cli/commands.h"
#include "gateway/cli/keeper_args.h"
#include "gateway/cli/paths.h"
#include "gateway/cli/reach.h"

#define STOP_SLACK_S 10 /* from the end of the gateway's drain to the keeper's patience */

static int find_user(const char *name, uid_t *ret_uid, gid_t *ret_gid, kg_err_t *err)
{
    const struct passwd *user = getpwnam(name); /* NOLINT(concurrency-mt-unsafe): before threads */
    if (!user || user->pw_uid == 0) {
        int r =
            kg_err_set(err, KG_ERR_CONFIG, "gateway_user: there is no ordinary user `%s`", name);
        kg_err_hint(err, "make it with `useradd --system --no-create-home sandal`, or name another "
                         "with --gateway-user");
        return r;
    }
    *ret_uid = user->pw_uid;
    *ret_gid = user->pw_gid;
    return 0;
}

/* The program, the templates and the certificates, which the gateway reads as its own user. */
static int
check_reach(const kg_config_t *config, const char *exe_dir, uid_t uid, gid_t gid, kg_err_t *err)
{
    size_t count = 0;
    KG_AUTO_FREE char *program = kg_strdup_printf("%s/sandald", exe_dir);
    KG_AUTO_FREE kg_reach_t *paths =
        calloc(config->template_dirs.count + config->kernelspec_dirs.count + 3, sizeof(*paths));
    if (!program || !paths) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    paths[count++] = (kg_reach_t){program, X_OK};
    for (size_t i = 0; i < config->template_dirs.count; i++) {
        paths[count++] = (kg_reach_t){config->template_dirs.items[i], R_OK | X_OK};
    }
    for (size_t i = 0; i < config->kernelspec_dirs.count; i++) {
        paths[count++] = (kg_reach_t){config->kernelspec_dirs.items[i], R_OK | X_OK};
    }
    if (config->tls.cert) {
        paths[count++] = (kg_reach_t){config->tls.cert, R_OK};
        paths[count++] = (kg_reach_t){config->tls.key, R_OK};
    }
    return kg_reach_check(config->gateway_user, uid, gid, paths, count, err);
}

/* Makes nothing: whether the directories are free is found out, and they are made, by the keeper.
 */
static int check_user(const kg_config_t *config, const char *exe_dir, kg_err_t *err)
{
    uid_t uid = geteuid();
    gid_t gid = getegid();
    int r = 0;
    if (uid == 0) {
        r = find_user(config->gateway_user, &uid, &gid, err);
        r = r == 0 ? check_reach(config, exe_dir, uid, gid, err) : r;
    }
    return r;
}

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
            r = check_user(&config, exe_dir, &err);
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
