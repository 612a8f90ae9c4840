/* Warm pools as the rest of the room sees them. A member is a whole sandbox of nobody, in no list
 * and not in the store, whose default context has a kernel that has run a first cell. */
#ifndef KG_CONTEXT_WARM_H
#define KG_CONTEXT_WARM_H

#include "gateway/context/internal.h"

/* What a create asks for, checked. */
typedef struct kg_create_plan {
    const char *owner;
    const kg_sandbox_opts_api_t *opts;
    const kg_template_t *tpl;
    kg_start_kind_t start; /* how its first kernel is to be started */
    char launcher[KG_LAUNCHER_NAME_MAX];
    kg_wish_t wish; /* its network is a reference */
} kg_create_plan_t;

/* One pool a template that wants one. */
int kg_warm_create(kg_core_t *core, const kg_core_config_t *config, kg_err_t *err);
/* Members that are left are sandboxes like others from here on. */
void kg_warm_destroy(kg_core_t *core);
void kg_warm_tick(kg_core_t *core);
/* A tick in a moment: something has changed. */
void kg_warm_soon(kg_core_t *core);
/* The daemon stops: members end, none is made. */
void kg_warm_stop(kg_core_t *core);
/* Gives a member back where sandboxes have no room; false: there is none. */
bool kg_warm_give_way(kg_core_t *core);

/* The member that serves the plan, in its owner's name and in the store from here on, or NULL: none
 * (the create starts cold). Its create_wait is to be set; then kg_warm_hand_over. The plan's
 * network is its own then. */
kg_sandbox_t *kg_warm_take(kg_core_t *core, kg_create_plan_t *plan);
/* As far as it is ready it gets its environment and answers, in a later turn; else when it is. */
void kg_warm_hand_over(kg_sandbox_t *sandbox);
/* Its kernel is ready: a member's runs its first cell, one that a create waits for is handed over.
 */
void kg_warm_kernel_ready(kg_sandbox_t *sandbox);
/* Its place is made: a member's has a small share of the cpu. */
void kg_warm_placed(kg_sandbox_t *sandbox);
/* It ends, whatever for: no member any more. */
void kg_warm_gone(kg_sandbox_t *sandbox);

/* Do all these variables do what they should when they come after the kernel's start? */
bool kg_warm_env_can_wait(const kg_template_t *tpl, const json_t *env);

#endif
