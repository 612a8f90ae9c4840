/* run: the display ids of one context. Where an id was shown (which logs, under which number there)
 * is kept over all runs, so that a later cell can update what an earlier one displayed. */
#include <errno.h>
#include <string.h>

#include "gateway/run/hash.h"
#include "gateway/run/mapper_int.h"

enum {
    TARGETS_MAX = 8 /* logs that show one id; the oldest is forgotten first */
};

typedef struct entry {
    UT_hash_handle hh;
    kg_display_target_t targets[TARGETS_MAX];
    size_t count;
    size_t id_len;
    char id[];
} entry_t;

struct kg_displays {
    entry_t *entries; /* in order of their making */
};

int kg_displays_create(kg_displays_t **ret_displays)
{
    kg_displays_t *displays = calloc(1, sizeof *displays);
    if (!displays) {
        return -ENOMEM;
    }
    *ret_displays = displays;
    return 0;
}

static void drop_entry(kg_displays_t *displays, entry_t *entry)
{
    HASH_DEL(displays->entries, entry);
    for (size_t i = 0; i < entry->count; i++) {
        kg_log_release(&entry->targets[i].log);
    }
    free(entry);
}

void kg_displays_clear(kg_displays_t *displays)
{
    entry_t *entry, *next;
    HASH_ITER (hh, displays->entries, entry, next) {
        drop_entry(displays, entry);
    }
}

void kg_displays_destroy(kg_displays_t **displays)
{
    if (*displays) {
        kg_displays_clear(*displays);
        free(*displays);
        *displays = NULL;
    }
}

static entry_t *find(kg_displays_t *displays, kg_slice_t id)
{
    entry_t *entry = NULL;
    HASH_FIND(hh, displays->entries, id.data ? id.data : "", id.len, entry);
    return entry;
}

/* NOLINTNEXTLINE(readability-function-size): one macro of uthash */
static bool insert(kg_displays_t *displays, entry_t *entry)
{
    HASH_ADD_KEYPTR(hh, displays->entries, entry->id, entry->id_len, entry);
    return entry->hh.tbl != NULL;
}

static entry_t *add(kg_displays_t *displays, kg_slice_t id)
{
    entry_t *entry = calloc(1, sizeof *entry + id.len + 1);
    if (!entry) {
        return NULL;
    }
    if (HASH_COUNT(displays->entries) >= KG_RUN_DISPLAYS_MAX) {
        drop_entry(displays, displays->entries);
    }
    entry->id_len = id.len;
    if (id.len > 0) {
        memcpy(entry->id, id.data, id.len);
    }
    if (!insert(displays, entry)) {
        free(entry);
        return NULL;
    }
    return entry;
}

static void forget_target(entry_t *entry, size_t i)
{
    kg_log_release(&entry->targets[i].log);
    entry->count--;
    memmove(&entry->targets[i], &entry->targets[i + 1],
            (entry->count - i) * sizeof entry->targets[0]);
}

uint32_t kg_displays_assign(kg_displays_t *displays, kg_slice_t id, kg_run_log_t *log)
{
    entry_t *entry = find(displays, id);
    for (size_t i = 0; entry && i < entry->count; i++) {
        if (entry->targets[i].log == log) {
            return entry->targets[i].did;
        }
    }
    if (log->body->next_did >= KG_LOG_DISPLAYS_MAX) {
        return 0;
    }
    entry = entry ? entry : add(displays, id);
    if (!entry) {
        return 0;
    }
    if (entry->count == TARGETS_MAX) {
        forget_target(entry, 0);
    }
    uint32_t did = ++log->body->next_did;
    entry->targets[entry->count++] = (kg_display_target_t){kg_log_hold(log), did};
    return did;
}

const kg_display_target_t *
kg_displays_find(kg_displays_t *displays, kg_slice_t id, size_t *ret_count)
{
    entry_t *entry = find(displays, id);
    *ret_count = 0;
    if (!entry) {
        return NULL;
    }
    for (size_t i = entry->count; i-- > 0;) {
        if (entry->targets[i].log->expired) {
            forget_target(entry, i);
        }
    }
    if (entry->count == 0) {
        drop_entry(displays, entry);
        return NULL;
    }
    *ret_count = entry->count;
    return entry->targets;
}
