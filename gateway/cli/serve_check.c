/* cli: the checks that `serve` and `check-config` share. */
#include "gateway/cli/serve_check.h"

#include <errno.h>
#include <inttypes.h>
#include <pwd.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "gateway/base/str.h"
#include "gateway/cli/dirs_check.h"
#include "gateway/cli/keeper_args.h"
#include "gateway/cli/paths.h"
#include "gateway/cli/reach.h"
#include "gateway/edge/edge.h"
#include "gateway/view/guard.h"

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

static bool is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

static int check_dirs(const char *key, const kg_strlist_t *dirs, kg_err_t *err)
{
    for (size_t i = 0; i < dirs->count; i++) {
        if (!is_dir(dirs->items[i])) {
            return kg_err_set(err, KG_ERR_CONFIG, "%s: there is no directory %s", key,
                              dirs->items[i]);
        }
    }
    return 0;
}

/* The folder of a unix socket, malloc'd, where it is there already and nobody will make it. */
static char *socket_dir(const kg_config_t *config, const char *listen)
{
    if (!kg_str_starts(listen, "unix:/")) {
        return NULL;
    }
    const char *path = listen + strlen("unix:");
    const char *slash = strrchr(path, '/');
    char *dir = slash == path ? strdup("/") : strndup(path, (size_t)(slash - path));
    if (dir && (!is_dir(dir) || strcmp(dir, config->state_dir) == 0)) {
        free(dir);
        return NULL;
    }
    return dir;
}

/* What is there of the way to state_dir, malloc'd; state_dir itself the keeper gives to the user.
 */
static char *state_way(const char *state_dir)
{
    char *way = kg_dirs_there(state_dir);
    if (way && strcmp(way, state_dir) == 0) {
        char *slash = strrchr(way, '/');
        slash[slash == way] = '\0';
    }
    return way;
}

static int check_state_way(const kg_config_t *config, uid_t uid, gid_t gid, kg_err_t *err)
{
    KG_AUTO_FREE char *way = state_way(config->state_dir);
    if (!way) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    const kg_reach_t path = {way, X_OK};
    int r = kg_reach_check(config->gateway_user, uid, gid, &path, 1, err);
    if (r < 0) {
        (void)kg_err_wrap(err, "state_dir");
        kg_err_hint(err, "name one with --state-dir that is below directories which let everybody "
                         "through, as /var/lib and /srv do");
    }
    return r;
}

/* The program, the templates, the certificates, the folders of unix sockets and the way to the
 * state, which the gateway gets at as its own user. */
static int check_reach(const kg_config_t *config, const char *exe_dir, kg_err_t *err)
{
    uid_t uid = 0;
    gid_t gid = 0;
    size_t count = 0;
    const size_t sockets = config->listen.count;
    int r = find_user(config->gateway_user, &uid, &gid, err);
    if (r < 0) {
        return r;
    }
    KG_AUTO_FREE char *program = kg_strdup_printf("%s/sandald", exe_dir);
    KG_AUTO_FREE kg_reach_t *paths = calloc(
        config->template_dirs.count + config->kernelspec_dirs.count + sockets + 3, sizeof(*paths));
    KG_AUTO_FREE char **dirs = calloc(sockets, sizeof(*dirs));
    if (!program || !paths || !dirs) {
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
    for (size_t i = 0; i < sockets; i++) {
        dirs[i] = socket_dir(config, config->listen.items[i]);
        if (dirs[i]) {
            paths[count++] = (kg_reach_t){dirs[i], W_OK | X_OK};
        }
    }
    r = kg_reach_check(config->gateway_user, uid, gid, paths, count, err);
    r = r == 0 ? check_state_way(config, uid, gid, err) : r;
    for (size_t i = 0; i < sockets; i++) {
        free(dirs[i]);
    }
    return r;
}

/* As the gateway will read them. */
static int check_templates(const kg_config_t *config, kg_err_t *err)
{
    KG_AUTO_FREE char *data_home = kg_path_data_home();
    const kg_template_sources_t sources = kg_config_templates(config, data_home);
    return kg_template_sizes_check(&sources, (const char *const *)config->pools.sizes.items,
                                   config->pools.sizes.count, err);
}

/* No refusal: who lowers log_bytes alone means it, and is to know what then holds. */
static void warn_budgets(const kg_config_t *config)
{
    if (config->budgets.sandbox_log_bytes > config->budgets.log_bytes) {
        fprintf(stderr,
                "sandald: warning: budgets.sandbox_log_bytes (%" PRIu64 ") is more than "
                "budgets.log_bytes (%" PRIu64
                "), which all sandboxes share: the first limits nothing\n",
                config->budgets.sandbox_log_bytes, config->budgets.log_bytes);
    }
}

int kg_serve_check(const kg_config_t *config, const char *exe_dir, kg_err_t *err)
{
    warn_budgets(config);
    int r = kg_guard_origins_check((const char *const *)config->cors.origins.items,
                                   config->cors.origins.count, config->no_auth, err);
    r = r == 0 ? check_dirs("template_dirs", &config->template_dirs, err) : r;
    r = r == 0 ? check_dirs("kernelspec_dirs", &config->kernelspec_dirs, err) : r;
    r = r == 0 ? kg_dirs_check(config, err) : r;
    if (r == 0 && geteuid() == 0) {
        r = check_reach(config, exe_dir, err);
    }
    r = r == 0 ? check_templates(config, err) : r;
    return r == 0 && config->tls.cert ? kg_edge_tls_check(config->tls.cert, config->tls.key, err)
                                      : r;
}
