/* Inside of a watch: file_watch.c turns the kernel's events into ours, file_watch_set.c sets the
 * watches and is the source. */
#ifndef KG_CONTEXT_FILE_WATCH_H
#define KG_CONTEXT_FILE_WATCH_H

#include "gateway/context/files_priv.h"

typedef struct kg_watch_place {
    char *inner;
    char *shown;
} kg_watch_place_t;
void kg_watch_place_fini(kg_watch_place_t *place);

typedef struct kg_watch_dir {
    int wd;
    kg_watch_place_t path;
    UT_hash_handle hh;
} kg_watch_dir_t;

/* A directory that is still to be watched. */
typedef struct kg_watch_todo {
    kg_watch_place_t path;
    bool announce; /* what is in it is told as created */
    struct kg_watch_todo *next;
} kg_watch_todo_t;

typedef struct kg_watch_event {
    const char *type;
    char *path;
    char *text;
    struct kg_watch_event *prev, *next;
} kg_watch_event_t;

typedef struct kg_watch {
    kg_source_t source;
    kg_fsop_t op;
    char *path;
    bool recursive;
    kg_files_watch_fn *fn; /* until it is set up */
    int fd;
    kg_fdwatch_t *watch;
    kg_timer_t *timer;
    kg_watch_dir_t *dirs;
    kg_watch_dir_t *root;  /* among dirs, NULL once gone */
    kg_watch_todo_t *todo; /* the first one is being seen to */
    bool asking;           /* init is to answer */
    kg_watch_event_t *events;
    size_t count;
    kg_watch_place_t from; /* first half of a move */
    uint32_t cookie;
    bool ended;
    bool failed;
    kg_err_t err; /* why */
} kg_watch_t;

/* file_watch.c */
int kg_watch_listen(kg_watch_t *w);
void kg_watch_read(kg_watch_t *w);
void kg_watch_emit(kg_watch_t *w, const char *type, const char *path, const char *from);
void kg_watch_event_free(kg_watch_event_t *event);
void kg_watch_close(kg_watch_t *w); /* all that hangs from the descriptor */
/* file_watch_set.c */
void kg_watch_add(kg_watch_t *w, const kg_watch_place_t *place, bool announce);

#endif
