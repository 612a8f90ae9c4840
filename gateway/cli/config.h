/* The daemon's configuration: one table of options (options.c) that the command line, the strict
 * JSON file, SANDAL_… variables, --help, shell completions and the manual's test are all made from.
 * Later sources win: default < file < environment < command line. */
#ifndef KG_CLI_CONFIG_H
#define KG_CLI_CONFIG_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "gateway/base/err.h"

/* Owned list of owned strings. */
typedef struct kg_strlist {
    char **items;
    size_t count;
} kg_strlist_t;

typedef struct kg_config {
    kg_strlist_t listen;
    char *state_dir;
    char *runtime_dir;
    kg_strlist_t template_dirs;
    kg_strlist_t kernelspec_dirs;
    char *network;
    char *isolation;
    char *isolation_min;
    bool no_auth;
    char *gateway_user;
    uint64_t uid_base;
    uint64_t uid_count;
    struct {
        char *cert;
        char *key;
    } tls;
    struct {
        kg_strlist_t origins;
    } cors;
    kg_strlist_t allowed_hosts;
    kg_strlist_t network_allow;
    char *proxy_listen;
    char *proxy_domain;
    char *proxy_url;
    kg_strlist_t sandbox_files;
    kg_strlist_t sandbox_env;
    struct {
        char *level;
        char *format;
    } log;
    struct {
        uint64_t body_bytes;
        uint64_t frame_bytes;
        uint64_t code_bytes;
        uint64_t cmd_bytes;
        uint64_t connections;
        uint64_t sandboxes;
        uint64_t processes;
        uint64_t sandbox_memory_mib; /* caps of one sandbox; 0 = none */
        uint64_t sandbox_cpus;
        uint64_t sandbox_pids;
        uint64_t sandbox_open_files;
        uint64_t sandbox_disk_mib;
        uint64_t contexts;
        uint64_t queue;
        uint64_t output_bytes;
        uint64_t result_bytes;
        uint64_t events;
        uint64_t runs_per_socket;
        uint64_t calls_per_socket;
        uint64_t unread_bytes;
    } limits;
    struct {
        uint64_t sandbox_log_bytes;
        uint64_t log_bytes;
    } budgets;
    struct {
        char *backend;
        uint64_t bytes;
    } volumes;
    struct {
        char *fill;
        uint64_t memory_mib;
        kg_strlist_t sizes;
    } pools;
    struct {
        uint64_t max;
        bool per_owner;
        uint64_t idle; /* nanoseconds */
    } zygotes;
    struct {
        uint64_t kernel_timeout; /* nanoseconds */
        char *kernel_on_timeout;
        kg_strlist_t env;
        uint64_t unread_bytes;
        uint64_t reconnect; /* nanoseconds */
        uint64_t missed_bytes;
        uint64_t queue;
        uint64_t queue_bytes;
        uint64_t sessions;
        uint64_t connections;
        uint64_t owner_connections;
        uint64_t context_connections;
        bool connect_tcp;
    } jupyter;
    struct {
        char *template_name;
        uint64_t sessions;
        uint64_t session_timeout; /* nanoseconds */
        char *session_on_timeout;
        uint64_t max_tokens;
        uint64_t call_bytes;
        uint64_t output_bytes;
        uint64_t result_bytes;
        uint64_t images;
        uint64_t image_bytes;
    } tools;
    struct { /* nanoseconds */
        uint64_t run;
        uint64_t idle;
        uint64_t interrupt_grace;
        uint64_t kernel_start;
        uint64_t request;
        uint64_t header;
        uint64_t files;
        uint64_t stall;
        uint64_t keepalive;
        uint64_t ping;
        uint64_t drain;
        uint64_t retain;
        uint64_t create, orphan;
    } timeouts;
} kg_config_t;

typedef enum kg_option_type {
    KG_OPTION_STRING,
    KG_OPTION_BOOL,
    KG_OPTION_COUNT,   /* uint64 within min..max */
    KG_OPTION_BYTES,   /* uint64; "16MiB" and "64KiB" forms too */
    KG_OPTION_SECONDS, /* decimal seconds, kept in nanoseconds */
    KG_OPTION_LIST,    /* repeated option, JSON array, comma-separated variable */
    KG_OPTION_ENUM
} kg_option_type_t;

/* One row of the table. key "limits.body_bytes" is also --limits-body-bytes and
 * SANDAL_LIMITS_BODY_BYTES. */
typedef struct kg_option {
    const char *key;
    kg_option_type_t type;
    size_t offset;
    const char *preset; /* default as text; lists comma-separated; NULL = computed at start */
    uint64_t min, max;
    const char *metavar;
    const char *choices; /* KG_OPTION_ENUM: "a|b|c" */
    const char *help;
} kg_option_t;

extern const kg_option_t kg_options[];
extern const size_t kg_options_count;

/* "--limits-body-bytes" and "SANDAL_LIMITS_BODY_BYTES" for a key. */
void kg_option_flag(const kg_option_t *option, char *ret, size_t cap);
void kg_option_variable(const kg_option_t *option, char *ret, size_t cap);
const kg_option_t *kg_option_find(const char *key);

/* Defaults only. -ENOMEM. */
int kg_config_init(kg_config_t *config, kg_err_t *err);
void kg_config_fini(kg_config_t *config);
/* One value from text (command line, environment). A list option on the command line appends when
 * append is set. */
int kg_config_set_text(
    kg_config_t *config, const kg_option_t *option, const char *text, bool append, kg_err_t *err);
/* Strict: an unknown key or a wrong type is an error that names its path (pointer) and the file. */
int kg_config_load_json(kg_config_t *config, json_t *root, const char *source, kg_err_t *err);
int kg_config_load_file(kg_config_t *config, const char *path, kg_err_t *err);
/* Every SANDAL_… variable of the table; others are left alone. */
int kg_config_load_environment(kg_config_t *config, char *const *environment, kg_err_t *err);
/* The next SANDAL_… variable, from *at on, that neither this program nor its clients and tests
 * know: a slip of the pen. NULL at the end. ret: its name. */
const char *kg_config_unknown_variable(char *const *environment, size_t *at, char *ret, size_t cap);
/* Fills what depends on the host: state_dir, runtime_dir, template_dirs where unset. */
int kg_config_complete(kg_config_t *config, const char *exe_dir, kg_err_t *err);
/* Rules across options: no_auth only on loopback and unix sockets, TLS needs both files, addresses
 * well formed… */
int kg_config_check(const kg_config_t *config, kg_err_t *err);
/* New reference: the whole effective configuration, in the file's form. */
json_t *kg_config_dump(const kg_config_t *config);

#endif
