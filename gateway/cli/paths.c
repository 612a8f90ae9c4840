/* cli: paths of this host. */
#include "gateway/cli/paths.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "gateway/base/str.h"

static const char *variable(const char *name)
{
    const char *value = getenv(name); /* NOLINT(concurrency-mt-unsafe): before any thread */
    return value && value[0] == '/' ? value : NULL;
}

char *kg_path_default_state(void)
{
    if (geteuid() == 0) {
        return strdup("/var/lib/sandal");
    }
    const char *state = variable("XDG_STATE_HOME");
    if (state) {
        return kg_strdup_printf("%s/sandal", state);
    }
    const char *home = variable("HOME");
    return kg_strdup_printf("%s/.local/state/sandal", home ? home : "/tmp");
}

bool kg_path_is_system(const char *path)
{
    static const char *const system[] = {"/",     "/etc", "/root", "/home", "/var", "/var/lib",
                                         "/proc", "/sys", "/dev",  "/run",  "/tmp"};
    for (size_t i = 0; i < KG_ARRAY_LEN(system); i++) {
        if (strcmp(path, system[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool exists(const char *path)
{
    return path && access(path, F_OK) == 0;
}

/* FNV-1a: only tells state directories apart, nothing secret. */
static unsigned hash(const char *text)
{
    unsigned h = 2166136261U;
    for (; *text != '\0'; text++) {
        h = (h ^ (unsigned char)*text) * 16777619U;
    }
    return h;
}

char *kg_path_default_runtime(const char *state_dir)
{
    const char *base = variable("XDG_RUNTIME_DIR");
    if (geteuid() == 0) {
        return kg_strdup_printf("/run/sandal/%08x", hash(state_dir));
    }
    if (base && strlen(base) < 40) {
        return kg_strdup_printf("%s/sandal-%08x", base, hash(state_dir));
    }
    return kg_strdup_printf("/tmp/sandal-%u-%08x", (unsigned)geteuid(), hash(state_dir));
}

char *kg_path_data_home(void)
{
    const char *data = variable("XDG_DATA_HOME");
    const char *home = variable("HOME");
    return data ? strdup(data) : kg_strdup_printf("%s/.local/share", home ? home : "/nonexistent");
}

char *kg_path_jupyter_kernels(size_t n)
{
    static const char *const system[] = {"/usr/local/share", "/usr/share"};
    const char *list =
        getenv("JUPYTER_PATH"); /* NOLINT(concurrency-mt-unsafe): before any thread */
    for (const char *p = list ? list : ""; *p != '\0'; p += *p == ':') {
        size_t len = strcspn(p, ":");
        if (*p == '/' && n-- == 0) {
            return kg_strdup_printf("%.*s/kernels", (int)len, p);
        }
        p += len;
    }
    if (geteuid() != 0 && n-- == 0) {
        KG_AUTO_FREE char *own = kg_path_data_home();
        return own ? kg_strdup_printf("%s/jupyter/kernels", own) : NULL;
    }
    return n < KG_ARRAY_LEN(system) ? kg_strdup_printf("%s/jupyter/kernels", system[n]) : NULL;
}

/* The first of these places, seen from exe_dir, where there is something; else elsewhere, which it
 * takes. An installed tree that stands somewhere else than at its prefix is found so. */
static char *
first_of(const char *exe_dir, const char *const places[2], const char *name, char *other)
{
    KG_AUTO_FREE char *elsewhere = other;
    for (size_t i = 0; i < 2; i++) {
        KG_AUTO_FREE char *path = kg_strdup_printf("%s/%s%s", exe_dir, places[i], name);
        if (exists(path)) {
            char *real = realpath(path, NULL);
            return real ? real : KG_TAKE(path);
        }
    }
    return KG_TAKE(elsewhere);
}

char *kg_path_default_templates(const char *exe_dir)
{
    static const char *const places[] = {"../", "../share/sandal/"};
    return first_of(exe_dir, places, "kernelspecs", strdup(SANDAL_DATADIR "/kernelspecs"));
}

char *kg_path_helper(const char *exe_dir, const char *name)
{
    static const char *const places[] = {"", "../libexec/sandal/"};
    return first_of(exe_dir, places, name, kg_strdup_printf("%s/%s", SANDAL_LIBEXECDIR, name));
}

char *kg_path_absolute(const char *path)
{
    if (path[0] == '/') {
        return strdup(path);
    }
    KG_AUTO_FREE char *cwd = getcwd(NULL, 0);
    return cwd ? kg_strdup_printf("%s/%s", cwd, path) : NULL;
}

char *kg_path_exe_dir(void)
{
    char exe[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", exe, sizeof(exe) - 1);
    if (n <= 0) {
        return strdup(".");
    }
    exe[n] = '\0';
    char *slash = strrchr(exe, '/');
    if (slash) {
        *slash = '\0';
    }
    return strdup(exe);
}

static int make_one(const char *path, unsigned mode)
{
    if (mkdir(path, mode) < 0 && errno != EEXIST) {
        return -errno;
    }
    return 0;
}

int kg_path_make(const char *path, unsigned mode, uid_t uid, gid_t gid, kg_err_t *err)
{
    KG_AUTO_FREE char *copy = strdup(path);
    if (!copy) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    int r = 0;
    for (char *p = copy + 1; r == 0 && *p != '\0'; p++) {
        if (*p == '/') {
            *p = '\0';
            r = make_one(copy, 0755);
            *p = '/';
        }
    }
    if (r == 0) {
        r = make_one(copy, mode);
    }
    struct stat st;
    if (r == 0 && (lstat(copy, &st) < 0 || !S_ISDIR(st.st_mode))) {
        r = -ENOTDIR;
    }
    if (r == 0 && geteuid() == 0 && (chown(copy, uid, gid) < 0 || chmod(copy, mode) < 0)) {
        r = -errno;
    }
    if (r < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "cannot make the directory %s: %s", path,
                          strerrordesc_np(-r));
    }
    return 0;
}
