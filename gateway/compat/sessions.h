/* Jupyter sessions: a document's path and the kernel behind it. Those that clients make are kept in
 * the store with the kernel's sandbox, so they outlive the gateway and end with the kernel. A
 * context without one is shown as a session too, with the context's id. For this room's own
 * files. */
#ifndef KG_COMPAT_SESSIONS_H
#define KG_COMPAT_SESSIONS_H

#include <jansson.h>

#include "gateway/compat/request.h"

#define KG_JSESSION_PATH_MAX 4096 /* bytes, like those below without NUL */
#define KG_JSESSION_NAME_MAX 1024
#define KG_JSESSION_TYPE_MAX 64

/* Owned strings. */
struct kg_jsession {
    char id[KG_ID_MAX];
    char context[KG_ID_MAX];
    char owner[KG_OWNER_MAX + 1];
    char *path;
    char *name;
    char *type;
    kg_jsession_t *prev, *next;
};

/* Borrowed. */
typedef struct kg_jsession_text {
    const char *path;
    const char *name; /* NULL = the last part of path */
    const char *type;
} kg_jsession_text_t;

int kg_jsessions_load(kg_jupyter_t *jupyter, kg_err_t *err);
void kg_jsessions_free(kg_jupyter_t *jupyter);
/* Forgets those whose kernel has gone. */
void kg_jsessions_purge(kg_jupyter_t *jupyter);

/* NULL: none such. One whose kernel has gone is found too. */
kg_jsession_t *kg_jsession_find(const kg_jupyter_t *jupyter, const char *owner, const char *id);
kg_jsession_t *kg_jsession_at(const kg_jupyter_t *jupyter, const char *owner, const char *path);
bool kg_jsession_has(const kg_jupyter_t *jupyter, const char *context);
int kg_jsession_text_check(const kg_jsession_text_t *text, kg_err_t *err);
/* quota_exceeded: owner has as many as there may be. */
int kg_jsession_room(kg_jupyter_t *jupyter, const char *owner, kg_err_t *err);
/* id NULL = a new one. Text has been checked. quota_exceeded at the limit, those of the store. */
int kg_jsession_add(kg_jupyter_t *jupyter,
                    const kg_kernel_ref_t *kernel,
                    const char *id,
                    const kg_jsession_text_t *text,
                    kg_jsession_t **ret_session,
                    kg_err_t *err);
/* Other text, other kernel; NULL members of text stay. On failure all stays. */
int kg_jsession_change(kg_jupyter_t *jupyter,
                       kg_jsession_t *session,
                       const kg_kernel_ref_t *kernel,
                       const kg_jsession_text_t *text,
                       kg_err_t *err);
void kg_jsession_remove(kg_jupyter_t *jupyter, kg_jsession_t *session);

kg_jreq_fn kg_do_sessions_list, kg_do_sessions_create, kg_do_sessions_get, kg_do_sessions_update,
    kg_do_sessions_delete;

#endif
