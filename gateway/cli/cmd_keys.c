/* cli: `sandald keys add|list|remove`: works on the store beside a running daemon, which takes new
 * keys at once and forgets removed ones within KG_AUTH_CACHE_NS. */
#include <errno.h>
#include <getopt.h>
#include <grp.h>
#include <jansson.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "gateway/api/auth.h"
#include "gateway/base/clock.h"
#include "gateway/base/str.h"
#include "gateway/cli/args.h"
#include "gateway/cli/commands.h"
#include "gateway/cli/config.h"
#include "gateway/store/store.h"

typedef struct kg_keys_args {
    const char *state_dir;
    const char *owner;
    const char *name;
    const char *scopes;
    uint64_t expires_s;
    bool json;
    const char *verb;
    const char *id;
} kg_keys_args_t;

static void usage(FILE *out)
{
    fprintf(
        out,
        "Usage: sandald keys add [--owner NAME] [--name TEXT] [--scopes \"use …\"] [--expires "
        "SECONDS]\n"
        "       sandald keys list\n"
        "       sandald keys remove ID\n\n"
        "API keys of the daemon that uses this state directory. It takes new ones at once "
        "and forgets\nremoved ones within 5 s.\n\n"
        "Options:\n"
        "      --owner NAME       whose sandboxes the key sees (default: an owner of its own)\n"
        "      --name TEXT        a note for people\n"
        "      --scopes LIST      words out of: use, admin, attach:SANDBOX (default: use)\n"
        "      --expires SECONDS  from now; 0 = never\n"
        "      --state-dir DIR    as for `sandald serve` (also SANDAL_STATE_DIR, --config FILE)\n"
        "      --json             print JSON\n"
        "  -h, --help             show this\n\n"
        "`add` prints the key once; only its hash is kept.\n");
}

static int parse(int argc, char **argv, kg_keys_args_t *args, kg_config_t *config, kg_err_t *err)
{
    enum {
        OWNER = 1000,
        NAME,
        SCOPES,
        EXPIRES,
        STATE,
        JSON
    };
    static const struct option flags[] = {
        {"owner", required_argument, NULL, OWNER},
        {"name", required_argument, NULL, NAME},
        {"scopes", required_argument, NULL, SCOPES},
        {"expires", required_argument, NULL, EXPIRES},
        {"state-dir", required_argument, NULL, STATE},
        {"json", no_argument, NULL, JSON},
        {"config", required_argument, NULL, 'c'},
        {"help", no_argument, NULL, 'h'},
        {0},
    };
    opterr = 0;
    for (;;) {
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
        int c = getopt_long(argc, argv, "hc:", flags, NULL);
        if (c == -1) {
            break;
        }
        switch (c) {
        case OWNER:
            args->owner = optarg;
            break;
        case NAME:
            args->name = optarg;
            break;
        case SCOPES:
            args->scopes = optarg;
            break;
        case STATE:
            args->state_dir = optarg;
            break;
        case JSON:
            args->json = true;
            break;
        case 'h':
            usage(stdout);
            return 1;
        case 'c':
            if (kg_config_load_file(config, optarg, err) < 0) {
                return -EINVAL;
            }
            break;
        case EXPIRES:
            if (kg_parse_u64(optarg, 0, UINT64_C(100) * 366 * 86400, &args->expires_s) < 0) {
                return kg_err_set(err, KG_ERR_CONFIG, "--expires: `%s` is not a number of seconds",
                                  optarg);
            }
            break;
        default:
            return kg_err_set(err, KG_ERR_CONFIG, "keys: unknown option or missing value: %s",
                              argv[optind - 1]);
        }
    }
    args->verb = optind < argc ? argv[optind] : NULL;
    args->id = optind + 1 < argc ? argv[optind + 1] : NULL;
    return 0;
}

/* The database belongs to the gateway's user: files that root made beside it would lock the daemon
 * out. */
static int become_owner(const char *state_dir, kg_err_t *err)
{
    struct stat st;
    if (stat(state_dir, &st) < 0) {
        int r = kg_err_set(err, KG_ERR_CONFIG, "no state directory %s: %s", state_dir,
                           strerrordesc_np(errno));
        kg_err_hint(err, "start `sandald serve` once, or name the directory with --state-dir");
        return r;
    }
    if (geteuid() == 0 && st.st_uid != 0 &&
        (setgroups(0, NULL) < 0 || setresgid(st.st_gid, st.st_gid, st.st_gid) < 0 ||
         setresuid(st.st_uid, st.st_uid, st.st_uid) < 0)) {
        return kg_err_set(err, KG_ERR_INTERNAL, "cannot become the owner of %s: %s", state_dir,
                          strerrordesc_np(errno));
    }
    return 0;
}

static int add(kg_store_t *store, const kg_keys_args_t *args, kg_err_t *err)
{
    char plain[KG_KEY_TEXT_MAX];
    kg_key_t key = {0};
    (void)kg_format(key.scopes, sizeof(key.scopes), "%s", args->scopes ? args->scopes : "use");
    if (!args->owner && strncmp(key.scopes, "attach:", 7) == 0 && !kg_key_has_scope(&key, "use")) {
        int r = kg_err_set(err, KG_ERR_CONFIG,
                           "keys add: a key that can only attach to a sandbox needs --owner, the "
                           "owner of that sandbox");
        kg_err_hint(err, "`sandald keys list` shows owners");
        return r;
    }
    uint64_t expires = args->expires_s ? kg_wall_ns() + args->expires_s * KG_NS_PER_S : 0;
    int r =
        kg_store_key_add(store, args->owner, args->name, args->scopes, expires, plain, &key, err);
    if (r < 0) {
        return r;
    }
    if (args->json) {
        json_t *json = kg_key_json(&key);
        json_object_set_new(json, "key", json_string(plain));
        json_dumpf(json, stdout, JSON_INDENT(2));
        printf("\n");
        json_decref(json);
    } else {
        printf("%s\n", plain);
        fprintf(stderr, "Key %s of owner %s (%s). It is shown this once.\n", key.id, key.owner,
                key.scopes);
    }
    sodium_memzero(plain, sizeof(plain));
    return 0;
}

static int print_row(void *user, const kg_key_t *key)
{
    (void)user;
    char created[KG_TIME_LEN];
    kg_time_format(key->created_ns, created);
    printf("%-26s %-16s %-24s %.10s  %s\n", key->id, key->owner, key->scopes, created, key->name);
    return 0;
}

static int collect(void *user, const kg_key_t *key)
{
    return json_array_append_new(user, kg_key_json(key));
}

static int list(kg_store_t *store, const kg_keys_args_t *args, kg_err_t *err)
{
    if (!args->json) {
        printf("%-26s %-16s %-24s %-10s  %s\n", "ID", "OWNER", "SCOPES", "CREATED", "NAME");
        return kg_store_key_each(store, print_row, NULL, err);
    }
    json_t *items = json_array();
    int r = kg_store_key_each(store, collect, items, err);
    json_dumpf(items, stdout, JSON_INDENT(2));
    printf("\n");
    json_decref(items);
    return r;
}

static int act(const kg_keys_args_t *args, kg_store_t *store, kg_err_t *err)
{
    const char *verb = args->verb ? args->verb : ""; /* check_verb has seen to it */
    if (strcmp(verb, "add") == 0) {
        return add(store, args, err);
    }
    if (strcmp(verb, "list") == 0) {
        return list(store, args, err);
    }
    return kg_store_key_remove(store, args->id, err);
}

static int check_verb(const kg_keys_args_t *args, kg_err_t *err)
{
    const char *verb = args->verb ? args->verb : "";
    bool removes = strcmp(verb, "remove") == 0;
    if (!removes && strcmp(verb, "add") != 0 && strcmp(verb, "list") != 0) {
        int r = kg_err_set(err, KG_ERR_CONFIG, "keys: say what to do: add, list or remove");
        kg_err_hint(err, "sandald keys --help");
        return r;
    }
    if (removes != (args->id != NULL)) {
        return kg_err_set(err, KG_ERR_CONFIG,
                          removes ? "keys remove: which? `sandald keys list` shows the ids"
                                  : "keys: too many words");
    }
    return 0;
}

int kg_command_keys(int argc, char **argv)
{
    extern char **environ;
    kg_err_t err = {0};
    kg_keys_args_t args = {0};
    kg_config_t config;
    kg_store_t *store = NULL;
    int r = kg_config_init(&config, &err);
    if (r == 0) {
        r = kg_config_load_environment(&config, environ, &err);
    }
    if (r == 0) {
        r = parse(argc, argv, &args, &config, &err);
    }
    if (r == 0) {
        r = check_verb(&args, &err);
    }
    if (r == 0 && args.state_dir) {
        r = kg_config_set_text(&config, kg_option_find("state_dir"), args.state_dir, false, &err);
    }
    int usage_status = r < 0 ? 2 : 1;
    if (r == 0) {
        r = kg_config_complete(&config, "/", &err);
    }
    if (r == 0) {
        r = become_owner(config.state_dir, &err);
    }
    if (r == 0) {
        r = kg_store_open(config.state_dir, &store, &err);
    }
    if (r == 0) {
        r = act(&args, store, &err);
    }
    kg_store_close(&store);
    kg_config_fini(&config);
    if (r < 0) {
        kg_args_complain(&err);
        return usage_status;
    }
    return 0;
}
