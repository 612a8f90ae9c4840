/* Inner header of the context room: a sandbox's inside and what is done with one. Of internal.h,
 * which its files include. */
#ifndef KG_CONTEXT_SANDBOX_INTERNAL_H
#define KG_CONTEXT_SANDBOX_INTERNAL_H

/* The default function falls through between cases, which clang warns of. */
#define HASH_FUNCTION HASH_FNV
#include <uthash.h>

#include "gateway/context/cause.h"
#include "gateway/context/command.h"
#include "gateway/context/kills.h"
#include "gateway/context/run.h"
#include "gateway/context/sandbox.h"
#include "gateway/context/start_kind.h"
#include "gateway/context/template_internal.h"
#include "gateway/kernel/kernel.h"
#include "gateway/pool/pool.h"

typedef struct kg_wait kg_wait_t;             /* internal.h */
typedef struct kg_zygote kg_zygote_t;         /* zygote.c */
typedef struct kg_question kg_question_t;     /* to the keeper, metrics.c */
typedef struct kg_net_change kg_net_change_t; /* sandbox_network.c */

typedef enum kg_box {
    KG_BOX_DOWN,
    KG_BOX_CREATING,
    KG_BOX_SKELETON, /* HOME is being filled */
    KG_BOX_UP,
    KG_BOX_LOST,  /* its processes are gone; taken down when its kernels are closed */
    KG_BOX_ENDING /* for good, or for the daemon's stop */
} kg_box_t;

enum {
    KG_ASKED_MEMORY = 1,
    KG_ASKED_CPUS = 2,
    KG_ASKED_PIDS = 4,
    KG_ASKED_DISK = 8,
    KG_ASKED_FILES = 16,
    KG_WISH_REASON_MAX = 200,
};

/* What it is held to. */
typedef struct kg_wish {
    kg_limits_t limits;
    unsigned asked_limits; /* bits: which of them the client named */
    json_t *network;       /* as the client asked; NULL: the default */
    kg_net_wish_t net;
    char network_reason[KG_WISH_REASON_MAX]; /* why it is not what one would expect, or "" */
    char limits_reason[KG_WISH_REASON_MAX];
    kg_limits_t first; /* before anything gave way */
    uint32_t first_mode;
    unsigned step;
} kg_wish_t;
int kg_wish_limits(const kg_core_t *core,
                   const kg_template_t *tpl,
                   const char *launcher,
                   const json_t *asked,
                   kg_wish_t *wish,
                   kg_err_t *err);
int kg_wish_network(const kg_core_t *core,
                    const char *launcher,
                    const json_t *asked,
                    kg_wish_t *wish,
                    kg_err_t *err);
json_t *kg_wish_limits_json(const kg_wish_t *wish);
json_t *kg_wish_network_json(const kg_wish_t *wish);
bool kg_wish_relax(kg_wish_t *wish, const kg_err_t *why);
/* The place of that sandbox or zygote was made. Where it is less than was wished, the log has it:
 * as a warning the first time for these reasons, since all that come after have them too. */
void kg_wish_made(kg_core_t *core, const kg_wish_t *wish, const char *id);
json_t *kg_wish_save(const kg_wish_t *wish);
void kg_wish_load(kg_wish_t *wish, const char *launcher, const json_t *saved);

typedef enum kg_pause {
    KG_PAUSE_NO,
    KG_PAUSE_PAUSING,
    KG_PAUSE_PAUSED,
    KG_PAUSE_RESUMING
} kg_pause_t;

typedef enum kg_warm {
    KG_WARM_COLD,    /* nobody's first cell ran in it, or it was never a pool's */
    KG_WARM_RUNNING, /* the first cell runs */
    KG_WARM_DONE
} kg_warm_t;

typedef enum kg_on_timeout {
    KG_ON_TIMEOUT_AUTO, /* pause where it can be, else kill */
    KG_ON_TIMEOUT_PAUSE,
    KG_ON_TIMEOUT_KILL
} kg_on_timeout_t;

typedef enum kg_ledger_state {
    KG_LEDGER_NONE, /* it has no processes */
    KG_LEDGER_ACTIVE,
    KG_LEDGER_PAUSED
} kg_ledger_state_t;

typedef struct kg_ledger {
    kg_ledger_state_t state;
    uint64_t since_ns;
    uint64_t active_ns, paused_ns; /* up to since_ns */
} kg_ledger_t;

struct kg_sandbox {
    kg_core_t *core;
    char id[KG_ID_MAX];
    char owner[KG_OWNER_MAX + 1];
    char name[KG_OBJ_NAME_MAX + 1];
    char launcher[KG_LAUNCHER_NAME_MAX];
    const kg_template_t *tpl;
    json_t *metadata;
    json_t *env;
    int64_t timeout_s;
    uint64_t created_ns;    /* unique in the daemon: the cursor of lists */
    uint64_t active_ns;     /* wall clock, to be shown */
    uint64_t idle_since_ns; /* the same moment by the clock that no one sets */
    bool reuse;             /* its files are there */
    bool repause;           /* found paused: to be paused again when its kernels have answered */
    bool finding;           /* at the start: the keeper is asked whether it lives */
    bool deleted;           /* not found any more */
    bool keep_files;
    bool going;    /* the last step of its end is under way */
    bool sweeping; /* a lost place is being taken down: its end waits for that */
    kg_box_t box;
    kg_sbx_t *sbx;
    kg_sbx_info_t info; /* while up */
    kg_proc_t *skeleton;
    kg_timer_t *skeleton_timer;
    unsigned incs;  /* kernels not closed yet */
    unsigned files; /* operations on its files that go on */
    kg_context_t *contexts;
    kg_run_t *runs;
    kg_wait_t *create_wait;
    kg_wait_t *gone_wait;
    kg_wait_t *wake_waits;
    kg_pause_t pause;
    /* After a pause that failed idleness tries none before. */
    uint64_t pause_again_ns;
    kg_on_timeout_t on_timeout;
    bool cannot_pause; /* it was tried */
    bool wanted;       /* while it is being paused: somebody needs it */
    bool hidden;       /* of a pool, or was: of nobody, in no list, not in the store */
    bool hold;         /* it was taken with limits of its own: they have to be set */
    bool unsettled;    /* of a pool: it is not yet what its create asked for */
    bool settle;       /* it was taken after its kernel's start: env has to be brought there */
    bool zygote_waits; /* until its zygote is ready */
    bool no_zygote;    /* it was tried in vain */
    kg_wait_t *pause_waits, *resume_waits;
    kg_ledger_t ledger;
    kg_wish_t wish;
    kg_start_t start;
    kg_member_t *member; /* while a pool has it */
    uint64_t pids;       /* that it had in use when its pool asked last; 0 = not known */
    kg_warm_t warm;
    kg_zygote_t *zygote; /* that it lies below, or is to */
    kg_question_t *questions;
    kg_net_change_t *net_changes;
    uint64_t net_changed_ns; /* wall clock; 0 = not in this daemon's time */
    kg_command_t *commands;  /* oldest first */
    kg_kills_t kills;        /* in its present place */
    json_t *exposed;         /* expose.c */
    UT_hash_handle hh;
};

kg_sandbox_t *kg_sandbox_alloc(kg_core_t *core, const char *id);
void kg_sandbox_free(kg_sandbox_t *sandbox);
int kg_sandbox_save(kg_sandbox_t *sandbox, kg_err_t *err);
bool kg_sandbox_busy(const kg_sandbox_t *sandbox);
int kg_sandbox_choose_launcher(kg_core_t *core,
                               const char *wish,
                               char ret_name[KG_LAUNCHER_NAME_MAX],
                               kg_err_t *err);
int kg_metadata_check(const json_t *metadata, kg_err_t *err);
/* Brings it up if it isn't; contexts that start hear of it. */
void kg_box_ensure(kg_sandbox_t *sandbox);
/* While up: it was made with a way out, whatever its rules say now. */
bool kg_box_has_interface(const kg_sandbox_t *sandbox);
/* adopt.c: all that the store knows, and no use has brought up yet, is looked for among what lives.
 */
void kg_adopt_begin(kg_core_t *core);
/* One that was looked for: it lives, or only its files are there. */
void kg_box_found(kg_sandbox_t *sandbox, kg_sbx_t *sbx);
void kg_box_not_found(kg_sandbox_t *sandbox);
void kg_box_inc_closed(kg_sandbox_t *sandbox);
/* What it waited for is there, or will not be. */
void kg_box_zygote_ready(kg_sandbox_t *sandbox);
/* Copies the template's skeleton to HOME. 1: fn will be told; 0: it has none; or -errno. */
int kg_skeleton_spawn(
    kg_sbx_t *sbx, const kg_template_t *tpl, kg_spawned_fn *fn, void *user, kg_err_t *err);
/* Kills for want of memory in its place until now, for kg_box_oom_charge. UINT64_MAX where they
 * aren't counted. */
uint64_t kg_box_oom_kills(kg_sandbox_t *sandbox);
/* Of what started at `before` and ended by a SIGKILL of nobody's: true when it was such a kill,
 * which is charged to it then and to nothing else. */
bool kg_box_oom_charge(kg_sandbox_t *sandbox, uint64_t before);
bool kg_box_oom_counted(const kg_sandbox_t *sandbox);
/* Of what began at `before` and went with its place: was it a want of memory that ended all of it?
 */
bool kg_box_starved(kg_sandbox_t *sandbox, uint64_t before);
/* Tells those who wait for its use when it is up; else gets it up. */
void kg_wake_go(kg_sandbox_t *sandbox);
void kg_wake_failed(kg_sandbox_t *sandbox, const kg_err_t *why);
int kg_on_timeout_check(const kg_core_t *core,
                        const char *wish,
                        const char *launcher,
                        kg_err_t *err);
/* not_supported where sandboxes of this launcher can't be paused on this host. err may be NULL. */
int kg_pause_check(const kg_core_t *core, const char *launcher, kg_err_t *err);
kg_on_timeout_t kg_on_timeout_of(const char *wish);
bool kg_sandbox_pauses(const kg_sandbox_t *sandbox); /* when it has been idle for long */
/* Freezes it if it is up and not frozen. */
void kg_pause_begin(kg_sandbox_t *sandbox);
/* Somebody needs it: wakes it if it is paused, at once where it is down; contexts and waits are
 * told when it is awake. */
void kg_pause_wake(kg_sandbox_t *sandbox);
/* It is awake: contexts and waits go on; one that is down is brought up if they need it. */
void kg_pause_pump(kg_sandbox_t *sandbox);
/* It ends, or its place is lost. */
void kg_pause_over(kg_sandbox_t *sandbox, const kg_err_t *why);
void kg_pause_failed(kg_sandbox_t *sandbox, const kg_err_t *why);
void kg_pause_drop(kg_sandbox_t *sandbox);
/* Its place can be used: it is up and not frozen. */
static inline bool kg_box_usable(const kg_sandbox_t *sandbox)
{
    return sandbox->box == KG_BOX_UP && sandbox->pause == KG_PAUSE_NO;
}
void kg_question_free(kg_question_t *question);
void kg_question_fail(kg_question_t *question, const kg_err_t *err);
void kg_net_change_free(kg_net_change_t *change);
void kg_net_change_fail(kg_net_change_t *change, const kg_err_t *err);
/* All of both: the place has gone, or the sandbox ends. */
void kg_questions_fail(kg_sandbox_t *sandbox, const kg_err_t *err);
void kg_questions_free(kg_sandbox_t *sandbox);
/* ledger.c: counts what has been up to now, and goes on in this state. */
void kg_ledger_switch(kg_sandbox_t *sandbox, kg_ledger_state_t state);
void kg_ledger_load(kg_sandbox_t *sandbox);
void kg_ledger_end(kg_sandbox_t *sandbox);
void kg_ledger_tick(kg_core_t *core);  /* each KG_LEDGER_S */
void kg_ledger_prune(kg_core_t *core); /* each minute */
/* It lived on while there was no gateway: that time counts too, as paused or active. */
void kg_ledger_found(kg_sandbox_t *sandbox, bool paused);
/* The memo of a background process, at the start: listed again, as what has ended. False: there is
 * nothing to tell of it any more. */
bool kg_command_recover(kg_sandbox_t *sandbox, const char *run, const char *body);
/* What a cause from outside does to a process. */
void kg_command_stop(kg_command_t *command, kg_cause_t cause);
/* The sandbox is ending: those that wait hear why, those that run end by cause. */
void kg_commands_end(kg_sandbox_t *sandbox, kg_cause_t cause, const kg_err_t *why);
/* Its place has gone: their processes are no more. */
void kg_commands_place_gone(kg_sandbox_t *sandbox);
/* The minute's work: those whose log has expired are forgotten. */
void kg_commands_tidy(kg_sandbox_t *sandbox);
void kg_commands_free(kg_sandbox_t *sandbox);
/* Any that keeps the sandbox busy (keep: also in the background with keep_alive). */
unsigned kg_commands_running(const kg_sandbox_t *sandbox);
bool kg_commands_busy(const kg_sandbox_t *sandbox, bool keep);
/* Of a kernelspec, but for NAME=…${NAME}…. -ENOMEM. */
int kg_spec_env(const kg_tpl_language_t *lang, kg_env_t *env);
/* Of any kernel of a language of `from` in a sandbox of tpl that has a /tmp of its own, before what
 * its client wishes; HOME is the caller's, home is what templates call so. -ENOMEM. */
int kg_language_env(const kg_core_t *core,
                    const kg_template_t *tpl,
                    const kg_template_t *from,
                    const kg_tpl_language_t *lang,
                    const char *home,
                    kg_env_t *env);
/* Where the template has no debugger. -ENOMEM. */
int kg_env_hide_debugger(const kg_template_t *from, const kg_tpl_language_t *lang, kg_env_t *env);
/* PATH and the like, template, sandbox; HOME is the caller's. -ENOMEM. */
int kg_sandbox_env(const kg_sandbox_t *sandbox, const kg_template_t *from, kg_env_t *env);
/* Where a path of a client's lies: /workspace and /home/user as the sandbox has them, relative ones
 * in the workspace. -ENAMETOOLONG. */
int kg_sandbox_dir(const kg_sandbox_t *sandbox, const char *path, char *ret, size_t cap);
/* A working directory as records show it: absolute. cwd: as it was asked for, NULL = none. */
json_t *kg_json_cwd(const char *cwd);
/* Its first context is ready, or failed: the create answers. In place of a member of a pool that
 * has failed goes on a sandbox of its own. */
void kg_sandbox_created(kg_sandbox_t *sandbox, const kg_err_t *err);
/* Ends everything in it; freed in the end. */
void kg_sandbox_end(kg_sandbox_t *sandbox, kg_cause_t cause, bool keep_files);
void kg_sandbox_ended_check(kg_sandbox_t *sandbox);
void kg_sandbox_context_gone(kg_sandbox_t *sandbox);

#endif
