/* Templates as the room itself sees them. */
#ifndef KG_CONTEXT_TEMPLATE_INTERNAL_H
#define KG_CONTEXT_TEMPLATE_INTERNAL_H

#include "gateway/context/env.h"
#include "gateway/context/start_kind.h"
#include "gateway/context/template.h"
#include "gateway/kernel/kernelspec.h"

#define KG_TEMPLATE_OPEN_FILES 65536U /* where a template does not say it */

typedef struct kg_tpl_language {
    char *name;
    char **aliases; /* NULL-terminated */
    kg_kernelspec_t *spec;
    char **zygote; /* argv of the process that forks its kernels; NULL = there is none */
} kg_tpl_language_t;

struct kg_template {
    char *name;
    char *description;
    char *main_language;
    char *dir;
    char *prefix;       /* where its own tree is, or NULL: it names none */
    char *prefix_asked; /* as the file has it, for messages */
    char *prefix_user;  /* absolute, or NULL: the file or this user has no such place */
    char *rootfs;       /* "host", or a directory: absolute, or relative to STATE/templates */
    char *home_skel;    /* or NULL */
    bool hidden;
    bool built; /* its tree is there, or it needs none */
    bool debugger;
    kg_env_t env;
    kg_tpl_language_t *languages;
    size_t language_count;
    unsigned memory_mib, pids, disk_mib;
    unsigned open_files; /* of each process */
    double cpus;
    uint64_t output_bytes, result_bytes, events; /* 0 = the daemon's */
    bool stop_on_exceed;
    kg_start_kind_t start;
    kg_pool_opts_t pools[KG_START_KINDS]; /* by how members' kernels are started */
    char *warm_up;   /* code that a pool's members have run; NULL = none of its own */
    char **cold_env; /* variables that act at a kernel's start alone, beside the known ones */
    char **richness; /* NULL = the usual order */
};

typedef struct kg_templates {
    kg_template_t **items;
    size_t count;
} kg_templates_t;

/* Every folder of dir that has a template.json, in the order of names. data_home: for prefix_user,
 * or NULL. A name that is there already (from a directory named earlier) is skipped: earlier
 * directories win. */
int kg_templates_load_dir(kg_templates_t *list,
                          const char *dir,
                          const char *data_home,
                          kg_err_t *err);
/* Every folder of dir that has a kernel.json, as Jupyter installs them, becomes a template of its
 * own with the host's root, named and spoken to by the folder's name and by the kernel's language.
 * Names that are there already are skipped. */
int kg_templates_load_kernelspecs(kg_templates_t *list, const char *dir, kg_err_t *err);
/* One of them, by its folder. */
int kg_template_of_kernelspec(const char *dir, kg_template_t **ret_tpl, kg_err_t *err);
int kg_templates_load(kg_templates_t *list, const kg_template_sources_t *sources, kg_err_t *err);
/* Reads DIR/NAME, a small file, into out. */
int kg_template_read_file(const char *dir, const char *name, kg_buf_t *out, kg_err_t *err);
/* Calls load for DIR/FOLDER of every folder that holds `file` and has no `.` in front. */
typedef int
kg_template_folder_fn(kg_templates_t *list, const char *folder, void *user, kg_err_t *err);
int kg_templates_each(kg_templates_t *list,
                      const char *dir,
                      const char *file,
                      kg_template_folder_fn *load,
                      void *user,
                      kg_err_t *err);
int kg_templates_append_take(kg_templates_t *list, kg_template_t *tpl_take, kg_err_t *err);
int kg_template_load(const char *dir,
                     const char *data_home,
                     kg_template_t **ret_tpl,
                     kg_err_t *err);
/* Who hears of what is wrong with a template while it is read. Without fn the first fault is the
 * error; with it all are told, counted, and the template is what could be read of it. */
typedef struct kg_tpl_faults {
    kg_template_finding_fn *fn;
    void *user;
    unsigned count;
    kg_err_t *err;
} kg_tpl_faults_t;
int kg_template_read(const char *dir,
                     const char *data_home,
                     kg_tpl_faults_t *faults,
                     kg_template_t **ret_tpl);
void kg_template_destroy(kg_template_t **tpl);
void kg_templates_fini(kg_templates_t *list);
const kg_template_t *kg_templates_find(const kg_templates_t *list, const char *name);

/* What serves `language` (a language, alias, or kernelspec's name; NULL = the main one) in a
 * sandbox of tpl: its own kernel, else another template's. ret_from: whose it is.
 * language_not_found; kernel_start_failed when it is known but not built. */
int kg_templates_resolve(const kg_templates_t *list,
                         const kg_template_t *tpl,
                         const char *language,
                         const kg_tpl_language_t **ret_language,
                         const kg_template_t **ret_from,
                         kg_err_t *err);
/* The folder of the start-up module sandal_context on its kernel's PYTHONPATH, which sets a run's
 * own env and cwd and lists variables. false: there is none. */
bool kg_template_startup(const kg_template_t *from,
                         const kg_tpl_language_t *language,
                         char ret_dir[KG_SBX_PATH_MAX]);
bool kg_template_on_host(const kg_template_t *t); /* its root is the host's */
bool kg_template_has_helper(const kg_template_t *from, const kg_tpl_language_t *language);
/* Built, and its program is there? Else kernel_start_failed with what to do. */
int kg_template_usable(const kg_template_t *from, const kg_tpl_language_t *language, kg_err_t *err);

#endif
