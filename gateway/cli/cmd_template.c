/* cli: `sandald template build NAME`: the root filesystem of a template that has one of its own
 * (rootfs names a directory), by mmdebstrap from the packages that it lists, or from an OCI image
 * by skopeo and umoci; else its tree in the host's root, by its own program.
 * `sandald template validate DIR...`: what is wrong with templates. */
#include <errno.h>
#include <pwd.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gateway/base/buf.h"
#include "gateway/base/str.h"
#include "gateway/cli/args.h"
#include "gateway/cli/commands.h"
#include "gateway/cli/config.h"
#include "gateway/cli/keeper_args.h"
#include "gateway/cli/paths.h"
#include "gateway/context/template.h"

#define LIST_MAX 65536

extern char **environ;

typedef struct kg_tb {
    kg_config_t config;
    const char *name;
    const char *image; /* NULL: packages */
    bool force;
    bool on_host;
    char *rootfs; /* as the template has it */
    char *prefix; /* where a tree in the host's root goes, or NULL */
    char *folder; /* the template's */
    char *target;
    char *fresh; /* where it is made */
} kg_tb_t;

static void usage(FILE *out)
{
    (void)fprintf(
        out,
        "Usage: sandald template build NAME [--image REF] [--force] [OPTIONS of serve]\n"
        "       sandald template validate DIR...\n\n"
        "build makes what template NAME needs. With the host's root: its `prefix`, by the program\n"
        "`build` in its folder, which gets the path (below $XDG_DATA_HOME without root). With a\n"
        "root of its own: that, below STATE/templates; as root. From the Debian packages in the "
        "template's file\n"
        "`rootfs.packages` (mmdebstrap), or from an OCI image (skopeo, umoci). What is in it is\n"
        "then written to ROOT.lock. A program `build-root` in the template's folder gets the "
        "root's\n"
        "path and may do the rest.\n\n"
        "validate reads the folder DIR of a template, or of a Jupyter kernelspec, as the daemon\n"
        "would, says by file and key what is wrong, and looks for what it names. 0: it will do.\n\n"
        "rootfs.packages: the first line is the suite (`bookworm`), each other NAME or\n"
        "NAME=VERSION; # begins a comment.\n\n"
        "Options:\n"
        "      --image REF   such as docker://docker.io/library/debian:12\n"
        "      --force       build anew what is there\n"
        "  -h, --help        show this\n");
}

static int run(const char *const *args, kg_err_t *err)
{
    char *argv[24] = {0};
    int status = 0;
    pid_t pid = 0;

    for (size_t i = 0; args[i] && i < KG_ARRAY_LEN(argv) - 1; i++) {
        memcpy(&argv[i], &args[i], sizeof(argv[i])); /* spawn only reads them */
    }
    int r = posix_spawnp(&pid, args[0], NULL, NULL, argv, environ);
    if (r != 0) {
        (void)kg_err_set(err, KG_ERR_CONFIG, "%s: %s", args[0], strerrordesc_np(r));
        kg_err_hint(err, "apt-get install %s", args[0]);
        return -r;
    }
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s has failed", args[0]);
    }
    return 0;
}

static int found(void *user, const kg_template_root_t *root)
{
    kg_tb_t *tb = user;
    if (strcmp(root->name, tb->name) != 0) {
        return 0;
    }
    tb->rootfs = strdup(root->rootfs);
    tb->folder = strdup(root->dir);
    tb->prefix = root->prefix_wanted ? strdup(root->prefix_wanted) : NULL;
    return 1;
}

/* The template's place, or, with the host's root, that of its tree. */
static int find_template(kg_tb_t *tb, kg_err_t *err)
{
    KG_AUTO_FREE char *data_home = kg_path_data_home();
    const kg_template_sources_t sources = kg_config_templates(&tb->config, data_home);
    int r = kg_template_roots(&sources, found, tb, err);
    if (r < 0) {
        return r;
    }
    if (r == 0) {
        return kg_err_set(err, KG_ERR_TEMPLATE_NOT_FOUND, "there is no template %s", tb->name);
    }
    if (!tb->rootfs || !tb->folder) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    tb->on_host = strcmp(tb->rootfs, "host") == 0;
    if (tb->on_host) {
        return 0;
    }
    tb->target = tb->rootfs[0] == '/'
                     ? strdup(tb->rootfs)
                     : kg_strdup_printf("%s/templates/%s", tb->config.state_dir, tb->rootfs);
    tb->fresh = tb->target ? kg_strdup_printf("%s.new", tb->target) : NULL;
    return tb->fresh ? 0 : kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
}

/* STATE belongs to the gateway: what is made below it by root must not go through a link of its. */
static int make_parent(const kg_tb_t *tb, kg_err_t *err)
{
    struct stat st;
    KG_AUTO_FREE char *parent = strdup(tb->target);
    char *slash = parent ? strrchr(parent, '/') : NULL;

    if (!slash || slash == parent) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: no place for a root filesystem", tb->target);
    }
    *slash = '\0';
    if (tb->rootfs[0] != '/') { /* STATE itself as `serve` would make it */
        const struct passwd *user =
            getpwnam(tb->config.gateway_user); // NOLINT(concurrency-mt-unsafe): one thread
        int r = user ? kg_path_make(tb->config.state_dir, 0711, user->pw_uid, user->pw_gid, err)
                     : kg_err_set(err, KG_ERR_CONFIG, "gateway_user: there is no user `%s`",
                                  tb->config.gateway_user);
        if (r < 0) {
            return r;
        }
    }
    if (mkdir(parent, 0711) < 0 && errno != EEXIST) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: %s", parent, strerrordesc_np(errno));
    }
    if (lstat(parent, &st) < 0 || !S_ISDIR(st.st_mode) || st.st_uid != 0 || (st.st_mode & 022)) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s must be a directory that root alone can write",
                          parent);
    }
    if (access(tb->target, F_OK) == 0 && !tb->force) {
        (void)kg_err_set(err, KG_ERR_CONFIG, "%s is there already", tb->target);
        kg_err_hint(err, "--force builds it anew; sandboxes that run keep what they have");
        return -EEXIST;
    }
    return run((const char *const[]){"rm", "-rf", "--one-file-system", tb->fresh, NULL}, err);
}

/* The suite, and the packages with commas between them. */
static int read_packages(const kg_tb_t *tb, char suite[64], kg_buf_t *ret_list, kg_err_t *err)
{
    KG_AUTO_FREE char *path = kg_strdup_printf("%s/rootfs.packages", tb->folder);
    FILE *file = path ? fopen(path, "re") : NULL;
    char line[512];
    int r = 0;

    suite[0] = '\0';
    if (!file) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: %s", path ? path : tb->folder,
                          strerrordesc_np(errno));
    }
    while (r == 0 && fgets(line, sizeof(line), file)) {
        line[strcspn(line, "#\n")] = '\0';
        char *word = line + strspn(line, " \t");
        word[strcspn(word, " \t")] = '\0';
        if (*word == '\0') {
            continue;
        }
        if (strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.:~=_") !=
            strlen(word)) {
            r = kg_err_set(err, KG_ERR_CONFIG, "%s: \"%s\" is no package", path, word);
        } else if (suite[0] == '\0') {
            r = kg_format(suite, 64, "%s", word);
        } else if (ret_list->len + strlen(word) < LIST_MAX) {
            r = ret_list->len > 0 ? kg_buf_append_char(ret_list, ',') : 0;
            r = r == 0 ? kg_buf_append_cstr(ret_list, word) : r;
        }
    }
    (void)fclose(file);
    return r == 0 && suite[0] == '\0' ? kg_err_set(err, KG_ERR_CONFIG, "%s is empty", path) : r;
}

static int from_packages(const kg_tb_t *tb, kg_err_t *err)
{
    char suite[64];
    KG_AUTO_BUF kg_buf_t list = {0};
    int r = read_packages(tb, suite, &list, err);
    KG_AUTO_FREE char *include =
        kg_strdup_printf("--include=%.*s", (int)list.len, list.data ? list.data : "");

    if (r < 0 || !include) {
        return r < 0 ? r : kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    return run((const char *const[]){"mmdebstrap", "--variant=minbase", "--mode=root",
                                     "--format=directory", list.len > 0 ? include : "--include=apt",
                                     suite, tb->fresh, NULL},
               err);
}

static int from_image(const kg_tb_t *tb, kg_err_t *err)
{
    KG_AUTO_FREE char *layout = kg_strdup_printf("oci:%s.oci:latest", tb->fresh);
    KG_AUTO_FREE char *image = kg_strdup_printf("%s.oci:latest", tb->fresh);
    KG_AUTO_FREE char *store = kg_strdup_printf("%s.oci", tb->fresh);
    KG_AUTO_FREE char *bundle = kg_strdup_printf("%s.bundle", tb->fresh);
    KG_AUTO_FREE char *rootfs = kg_strdup_printf("%s.bundle/rootfs", tb->fresh);

    if (!layout || !image || !store || !bundle || !rootfs) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    const char *const tidy[] = {"rm", "-rf", "--one-file-system", store, bundle, NULL};
    int r = run(tidy, err); /* of a build that was broken off */
    if (r == 0) {
        r = run((const char *const[]){"skopeo", "copy", "--quiet", tb->image, layout, NULL}, err);
    }
    if (r == 0) {
        r = run((const char *const[]){"umoci", "unpack", "--image", image, bundle, NULL}, err);
    }
    if (r == 0 && rename(rootfs, tb->fresh) < 0) {
        r = kg_err_set(err, KG_ERR_CONFIG, "%s: %s", rootfs, strerrordesc_np(errno));
    }
    kg_err_t ignored = {0};
    (void)run(tidy, &ignored);
    return r;
}

static int finish(const kg_tb_t *tb, kg_err_t *err)
{
    KG_AUTO_FREE char *program = kg_strdup_printf("%s/build-root", tb->folder);
    KG_AUTO_FREE char *old = kg_strdup_printf("%s.old", tb->target);
    /* What it holds, to the version; an image without dpkg has none to tell. */
    KG_AUTO_FREE char *lock = kg_strdup_printf(
        "test -e '%s/var/lib/dpkg/status' && "
        "dpkg-query --admindir='%s/var/lib/dpkg' -W -f '${Package}=${Version}\\n' > '%s.lock' "
        "2>/dev/null || rm -f '%s.lock'",
        tb->fresh, tb->fresh, tb->target, tb->target);
    int r = 0;

    if (!program || !old || !lock) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    if (access(program, X_OK) == 0) {
        r = run((const char *const[]){program, tb->fresh, NULL}, err);
    }
    if (r == 0) {
        r = run((const char *const[]){"sh", "-c", lock, NULL}, err);
    }
    if (r < 0) {
        return r;
    }
    r = run((const char *const[]){"rm", "-rf", "--one-file-system", old, NULL}, err);
    if (r < 0) {
        return r;
    }
    (void)rename(tb->target, old); /* sandboxes that run have it open */
    if (rename(tb->fresh, tb->target) < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "%s: %s", tb->target, strerrordesc_np(errno));
    }
    return run((const char *const[]){"rm", "-rf", "--one-file-system", old, NULL}, err);
}

/* With the host's root it is the template's own program that makes its tree. */
static int build_tree(kg_tb_t *tb, kg_err_t *err)
{
    KG_AUTO_FREE char *program = kg_strdup_printf("%s/build", tb->folder);
    if (!program) {
        return kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory");
    }
    if (tb->image || !tb->prefix || access(program, F_OK) < 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "template %s has the host's root%s: nothing to build",
                          tb->name,
                          tb->image    ? ""
                          : tb->prefix ? " and no program `build`"
                                       : " and no prefix for this user");
    }
    if (tb->force) {
        return kg_err_set(err, KG_ERR_CONFIG, "--force is for root filesystems: remove %s first",
                          tb->prefix);
    }
    tb->target = KG_TAKE(tb->prefix);
    return run((const char *const[]){program, tb->target, NULL}, err);
}

static int build(kg_tb_t *tb, kg_err_t *err)
{
    int r = find_template(tb, err);
    if (r == 0 && tb->on_host) {
        return build_tree(tb, err);
    }
    if (r == 0 && geteuid() != 0) {
        return kg_err_set(err, KG_ERR_CONFIG, "a root filesystem is built by root");
    }
    if (r == 0 && strchr(tb->target, '\'')) {
        r = kg_err_set(err, KG_ERR_CONFIG, "%s: no quotes, please", tb->target);
    }
    r = r == 0 ? make_parent(tb, err) : r;
    if (r == 0) {
        r = tb->image ? from_image(tb, err) : from_packages(tb, err);
    }
    return r == 0 ? finish(tb, err) : r;
}

/* Takes NAME, --image and --force out of argv; the rest is serve's. */
static int take_own(kg_tb_t *tb, int *argc, char **argv)
{
    int kept = 1;
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], "--force") == 0) {
            tb->force = true;
        } else if (strcmp(argv[i], "--image") == 0 && i + 1 < *argc) {
            tb->image = argv[++i];
        } else if (i == 2 && argv[i][0] != '-') {
            tb->name = argv[i];
        } else if (i != 1) {
            argv[kept++] = argv[i];
        }
    }
    *argc = kept;
    argv[kept] = NULL;
    return tb->name ? 0 : -EINVAL;
}

static void finding(void *user, bool wrong, const char *text)
{
    unsigned *wrongs = user;
    *wrongs += wrong ? 1 : 0;
    printf("  %s: %s\n", wrong ? "wrong" : "note", text);
}

static int validate(int argc, char **argv)
{
    KG_AUTO_FREE char *data_home = kg_path_data_home();
    bool fine = true;
    for (int i = 2; i < argc; i++) {
        kg_err_t err = {0};
        unsigned wrongs = 0;
        printf("%s\n", argv[i]);
        if (kg_template_validate(argv[i], data_home, finding, &wrongs, &err) < 0) {
            finding(&wrongs, true, err.message);
        }
        if (wrongs == 0) {
            printf("  it will do\n");
        }
        fine = fine && wrongs == 0;
    }
    return fine ? 0 : 1;
}

int kg_command_template(int argc, char **argv)
{
    kg_err_t err = {0};
    kg_tb_t tb = {0};
    KG_AUTO_FREE char *exe_dir = kg_path_exe_dir();
    bool help = argc < 2 || strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
                (argc > 2 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0));

    if (!help && strcmp(argv[1], "validate") == 0 && argc > 2 && argv[2][0] != '-') {
        return validate(argc, argv);
    }
    if (help || strcmp(argv[1], "build") != 0 || take_own(&tb, &argc, argv) < 0 || !exe_dir) {
        usage(help && argc > 1 ? stdout : stderr);
        return help && argc > 1 ? 0 : 2;
    }
    int r = kg_config_init(&tb.config, &err);
    if (r == 0) {
        r = kg_args_settle(argc, argv, "", exe_dir, &tb.config, &err);
        r = r == 0 ? build(&tb, &err) : r;
    }
    if (r < 0) {
        kg_args_complain(&err);
    } else if (r == 0) {
        printf("%s\n", tb.target);
    }
    kg_config_fini(&tb.config);
    free(tb.rootfs);
    free(tb.prefix);
    free(tb.folder);
    free(tb.target);
    free(tb.fresh);
    return r < 0 ? 1 : 0;
}
