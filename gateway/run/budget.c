/* run: budgets of finished logs. Logs stand in two lists by their end, of all and of their sandbox;
 * over a budget the walk goes from the oldest on, first over those whose retain has passed. */
#include "gateway/run/budget.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <utlist.h>

#include "gateway/base/clock.h"
#include "gateway/run/hash.h"
#include "gateway/run/log_int.h"
#include "gateway/run/text.h"
#include "proto/json_scan.h"

#define DAY_S UINT64_C(86400)

typedef struct place {
    UT_hash_handle hh;
    struct item *items; /* oldest end first */
    uint64_t bytes;
    size_t count;
    char id[];
} place_t;

typedef struct item {
    UT_hash_handle hh; /* by the log's address */
    struct item *prev, *next;
    struct item *place_prev, *place_next;
    kg_run_log_t *log;
    place_t *place;
    uint64_t charged;
} item_t;

typedef struct slim {
    UT_hash_handle hh; /* by run */
    struct slim *prev, *next;
    kg_run_slim_t view;
    uint64_t until_wall_ns;
    kg_buf_t json;
    char *strings;
} slim_t;

struct kg_run_budget {
    kg_run_budget_opts_t opts;
    item_t *items, *by_log; /* oldest end first */
    place_t *places;        /* by sandbox */
    slim_t *slims, *by_run; /* oldest first */
    size_t count, slim_count;
    uint64_t bytes, slim_bytes;
    uint32_t least_retain_s; /* of all that ever came */
};

int kg_run_budget_create(const kg_run_budget_opts_t *opts, kg_run_budget_t **ret_budget)
{
    kg_run_budget_t *b = calloc(1, sizeof *b);
    if (!b) {
        return -ENOMEM;
    }
    b->opts = *opts;
    b->opts.sandbox_bytes = opts->sandbox_bytes ? opts->sandbox_bytes : KG_RUN_BUDGET_SANDBOX;
    b->opts.daemon_bytes = opts->daemon_bytes ? opts->daemon_bytes : KG_RUN_BUDGET_DAEMON;
    b->opts.keep_s = opts->keep_s ? opts->keep_s : DAY_S;
    b->least_retain_s = UINT32_MAX;
    *ret_budget = b;
    return 0;
}

/* --- slims ---------------------------------------------------------------------------------------
 */

static void slim_free(slim_t *slim)
{
    kg_buf_fini(&slim->json);
    free(slim->strings);
    free(slim);
}

static void slim_drop(kg_run_budget_t *b, slim_t *slim)
{
    HASH_DEL(b->by_run, slim); // NOLINT(clang-analyzer-core.NullDereference)
    DL_DELETE(b->slims, slim);
    b->slim_count--;
    b->slim_bytes -= slim->json.cap;
    slim_free(slim);
}

/* NOLINTNEXTLINE(readability-function-size): one macro of uthash */
static bool slim_insert(kg_run_budget_t *b, slim_t *slim)
{
    HASH_ADD_KEYPTR(hh, b->by_run, slim->view.run, strlen(slim->view.run), slim);
    return slim->hh.tbl != NULL;
}

/* Three strings in one block. */
static int slim_names(slim_t *slim, const kg_run_meta_t *meta)
{
    size_t run = strlen(meta->run) + 1;
    size_t sandbox = strlen(meta->sandbox) + 1;
    size_t owner = strlen(meta->owner) + 1;
    slim->strings = malloc(run + sandbox + owner);
    if (!slim->strings) {
        return -ENOMEM;
    }
    memcpy(slim->strings, meta->run, run);
    memcpy(slim->strings + run, meta->sandbox, sandbox);
    memcpy(slim->strings + run + sandbox, meta->owner, owner);
    slim->view.run = slim->strings;
    slim->view.sandbox = slim->strings + run;
    slim->view.owner = slim->strings + run + sandbox;
    return 0;
}

/* `"text"` cut to max units, with a sign where it was. */
static int put_short(kg_buf_t *out, kg_json_value_t text, size_t max)
{
    KG_AUTO_BUF kg_buf_t body = {0};
    size_t units;
    int rc = kg_json_copy_string_body(&body, text);
    if (rc < 0) {
        return rc;
    }
    size_t n = kg_text_split(body.data, body.len, max, &units);
    rc = kg_buf_append_char(out, '"');
    rc = rc < 0 ? rc : kg_buf_append(out, body.data, n);
    return rc < 0 ? rc : kg_buf_append_cstr(out, n < body.len ? "…\"" : "\"");
}

/* An error of up to three times KG_RUN_ERROR_MAX, without its traceback and its length. */
static int put_short_error(kg_buf_t *out, kg_json_value_t error)
{
    kg_json_iter_t it;
    kg_slice_t key;
    kg_json_value_t value;
    const char *sep = "{";
    int rc = 0;
    kg_json_iter_init(&it, error);
    while (rc == 0 && kg_json_iter_next(&it, &key, &value)) {
        rc = kg_buf_append_cstr(out, sep);
        rc = rc < 0 ? rc : kg_buf_append_slice(out, key);
        rc = rc < 0 ? rc : kg_buf_append_char(out, ':');
        if (rc == 0 && value.type == KG_JSON_ARRAY) {
            rc = kg_buf_append_cstr(out, "[]");
        } else if (rc == 0 && value.type == KG_JSON_STRING) {
            rc = put_short(out, value, KG_RUN_SLIM_JSON / 16);
        } else if (rc == 0) {
            rc = kg_buf_append_slice(out, value.raw);
        }
        sep = ",";
    }
    return rc < 0 ? rc : kg_buf_append_char(out, '}');
}

/* Makes room for what matters: json is our own, one object. */
static int slim_shorten(kg_buf_t *json)
{
    KG_AUTO_BUF kg_buf_t out = {0};
    kg_json_value_t all;
    int rc = kg_json_check(kg_buf_slice(json), KG_JSON_DEPTH_MAX, &all);
    kg_json_value_t error = rc < 0 ? (kg_json_value_t){0} : kg_json_get(all, "error");
    if (error.type == KG_JSON_OBJECT) {
        size_t before = (size_t)(error.raw.data - json->data);
        rc = kg_buf_append(&out, json->data, before);
        rc = rc < 0 ? rc : put_short_error(&out, error);
        rc = rc < 0 ? rc
                    : kg_buf_append(&out, error.raw.data + error.raw.len,
                                    json->len - before - error.raw.len);
        if (rc == 0) {
            kg_buf_t was = *json;
            *json = out;
            out = was;
        }
    }
    return rc;
}

static int slim_read(slim_t *slim, kg_run_log_t *log)
{
    int rc = kg_run_log_slim(log, true, &slim->json);
    if (rc == 0 && slim->json.len > KG_RUN_SLIM_JSON) {
        rc = slim_shorten(&slim->json);
    }
    return rc < 0 ? rc : slim_names(slim, kg_run_log_meta(log));
}

/* Best effort: without memory the run is simply forgotten. */
static void slim_keep(kg_run_budget_t *b, kg_run_log_t *log, uint64_t now_wall_ns)
{
    slim_t *slim = calloc(1, sizeof *slim);
    if (!slim) {
        return;
    }
    if (slim_read(slim, log) < 0 || !slim_insert(b, slim)) {
        slim_free(slim);
        return;
    }
    slim->until_wall_ns = now_wall_ns + KG_RUN_SLIM_S * KG_NS_PER_S;
    DL_APPEND(b->slims, slim);
    b->slim_count++;
    b->slim_bytes += slim->json.cap;
    while (b->slim_count > KG_RUN_SLIM_MAX || b->slim_bytes > KG_RUN_SLIM_BYTES) {
        slim_drop(b, b->slims);
    }
}

const kg_run_slim_t *kg_run_budget_slim(kg_run_budget_t *budget, const char *run)
{
    slim_t *slim = NULL;
    HASH_FIND(hh, budget->by_run, run, strlen(run), slim);
    if (!slim) {
        return NULL;
    }
    slim->view.json = kg_buf_slice(&slim->json);
    return &slim->view;
}

/* --- items ---------------------------------------------------------------------------------------
 */

static place_t *place_find(const kg_run_budget_t *b, const char *sandbox)
{
    place_t *place = NULL;
    HASH_FIND(hh, b->places, sandbox, strlen(sandbox), place);
    return place;
}

/* NOLINTNEXTLINE(readability-function-size): one macro of uthash */
static bool place_insert(kg_run_budget_t *b, place_t *place, size_t len)
{
    HASH_ADD_KEYPTR(hh, b->places, place->id, len, place);
    return place->hh.tbl != NULL;
}

static place_t *place_of(kg_run_budget_t *b, const char *sandbox)
{
    place_t *place = place_find(b, sandbox);
    size_t len = strlen(sandbox);
    if (place) {
        return place;
    }
    place = calloc(1, sizeof *place + len + 1);
    if (place) {
        memcpy(place->id, sandbox, len);
        if (!place_insert(b, place, len)) {
            free(place);
            place = NULL;
        }
    }
    return place;
}

static uint64_t charge_of(const kg_run_log_t *log)
{
    uint64_t size = kg_run_log_size(log);
    return size > KG_RUN_BUDGET_FLOOR ? size : KG_RUN_BUDGET_FLOOR;
}

static void item_forget(kg_run_budget_t *b, item_t *item)
{
    place_t *place = item->place;
    b->bytes -= item->charged;
    place->bytes -= item->charged;
    b->count--;
    DL_DELETE2(place->items, item, place_prev,
               place_next); // NOLINT(clang-analyzer-core.NullDereference)
    if (--place->count == 0) {
        HASH_DEL(b->places, place); // NOLINT(clang-analyzer-core.NullDereference)
        free(place);
    }
    HASH_DEL(b->by_log, item); // NOLINT(clang-analyzer-core.NullDereference)
    DL_DELETE(b->items, item); // NOLINT(clang-analyzer-core.NullDereference)
    kg_run_log_unref(&item->log);
    free(item);
}

/* The log goes. The owner's callback must not call back into the budget. */
static void item_expire(kg_run_budget_t *b, item_t *item, bool keep_slim, uint64_t now_wall_ns)
{
    KG_AUTO(kg_run_log_unref) kg_run_log_t *log = kg_run_log_ref(item->log);
    if (keep_slim) {
        slim_keep(b, log, now_wall_ns);
    }
    item_forget(b, item);
    if (b->opts.expired) {
        b->opts.expired(b->opts.user, log);
    }
    kg_run_log_remove(log);
}

static uint64_t age_s(const item_t *item, uint64_t now_wall_ns)
{
    uint64_t end = kg_run_log_finished_wall_ns(item->log);
    return now_wall_ns > end ? (now_wall_ns - end) / KG_NS_PER_S : 0;
}

/* Whether the item's going would help. place NULL: the daemon's budget. */
static bool over(const kg_run_budget_t *b, const place_t *place)
{
    return place ? place->bytes > b->opts.sandbox_bytes : b->bytes > b->opts.daemon_bytes;
}

/* One walk, oldest first, until it is under budget: over one sandbox's logs or all. A log that
 * somebody reads is spared by its sandbox's budget, else a run whose log is larger than that would
 * end in the middle of its own stream; the daemon's budget spares none. */
static void shrink(kg_run_budget_t *b, const char *sandbox, bool past_retain, uint64_t now_wall_ns)
{
    const place_t *place = sandbox ? place_find(b, sandbox) : NULL;
    item_t *next = sandbox ? (place ? place->items : NULL) : b->items;
    while (next && over(b, place)) {
        item_t *item = next;
        next = sandbox ? item->place_next : item->next;
        uint64_t age = age_s(item, now_wall_ns);
        if (sandbox && item->log->readers > 0) {
            continue;
        }
        if (past_retain && age < b->least_retain_s) {
            return; /* and the others are younger */
        }
        if (!past_retain || age >= kg_run_log_meta(item->log)->retain_s) {
            item_expire(b, item, true, now_wall_ns);
            if (!next) {
                return; /* the place may have gone with its last log */
            }
        }
    }
}

static void make_room(kg_run_budget_t *b, const char *sandbox, uint64_t now_wall_ns)
{
    shrink(b, sandbox, true, now_wall_ns);
    shrink(b, sandbox, false, now_wall_ns);
    shrink(b, NULL, true, now_wall_ns);
    shrink(b, NULL, false, now_wall_ns);
}

/* Both lists from their ends: after a restart logs come in the order of the directory, else last.
 */
static void insert_by_end(kg_run_budget_t *b, item_t *item)
{
    uint64_t end = kg_run_log_finished_wall_ns(item->log);
    item_t *at = b->items ? b->items->prev : NULL;
    while (at && kg_run_log_finished_wall_ns(at->log) > end) {
        at = at == b->items ? NULL : at->prev;
    }
    DL_APPEND_ELEM(b->items, at, item);
    item_t **mine = &item->place->items;
    at = *mine ? (*mine)->place_prev : NULL;
    while (at && kg_run_log_finished_wall_ns(at->log) > end) {
        at = at == *mine ? NULL : at->place_prev;
    }
    DL_APPEND_ELEM2(*mine, at, item, place_prev, place_next);
}

/* NOLINTNEXTLINE(readability-function-size): one macro of uthash */
static bool item_insert(kg_run_budget_t *b, item_t *item)
{
    HASH_ADD_PTR(b->by_log, log, item);
    return item->hh.tbl != NULL;
}

static void item_take_out(kg_run_budget_t *b, item_t *item)
{
    HASH_DEL(b->by_log, item);
}

static item_t *item_find(const kg_run_budget_t *b, const kg_run_log_t *log)
{
    item_t *item = NULL;
    HASH_FIND_PTR(b->by_log, &log, item);
    return item;
}

int kg_run_budget_add(kg_run_budget_t *b, kg_run_log_t *log, uint64_t now_wall_ns)
{
    item_t *item = item_find(b, log);
    if (item || !kg_run_log_finished(log) || kg_run_log_expired(log)) {
        return -EINVAL;
    }
    item = calloc(1, sizeof *item);
    if (!item) {
        return -ENOMEM;
    }
    item->log = log;
    if (!item_insert(b, item)) {
        free(item);
        return -ENOMEM;
    }
    item->place = place_of(b, kg_run_log_meta(log)->sandbox);
    if (!item->place) {
        item_take_out(b, item);
        free(item);
        return -ENOMEM;
    }
    (void)kg_run_log_ref(log);
    if (kg_run_log_meta(log)->retain_s < b->least_retain_s) {
        b->least_retain_s = kg_run_log_meta(log)->retain_s;
    }
    item->charged = charge_of(log);
    item->place->bytes += item->charged;
    item->place->count++;
    b->bytes += item->charged;
    b->count++;
    insert_by_end(b, item);
    make_room(b, kg_run_log_meta(log)->sandbox, now_wall_ns);
    return 0;
}

void kg_run_budget_update(kg_run_budget_t *b, kg_run_log_t *log, uint64_t now_wall_ns)
{
    item_t *item = item_find(b, log);
    if (!item) {
        return;
    }
    uint64_t charge = charge_of(log);
    b->bytes += charge - item->charged;
    item->place->bytes += charge - item->charged;
    item->charged = charge;
    KG_AUTO(kg_run_log_unref) kg_run_log_t *hold = kg_run_log_ref(log);
    make_room(b, kg_run_log_meta(hold)->sandbox, now_wall_ns);
}

void kg_run_budget_drop_sandbox(kg_run_budget_t *b, const char *sandbox)
{
    place_t *place = place_find(b, sandbox);
    item_t *next = place ? place->items : NULL;
    while (next) {
        item_t *item = next;
        next = item->place_next;
        item_expire(b, item, false, 0);
    }
    slim_t *slim, *after;
    DL_FOREACH_SAFE (b->slims, slim, after) {
        if (strcmp(slim->view.sandbox, sandbox) == 0) {
            slim_drop(b, slim);
        }
    }
}

/* What was spared while somebody read it. */
static void make_room_everywhere(kg_run_budget_t *b, uint64_t now_wall_ns)
{
    place_t *place, *next;
    HASH_ITER (hh, b->places, place, next) {
        if (over(b, place)) {
            char sandbox[KG_ID_MAX]; /* the place goes with its last log */
            (void)snprintf(sandbox, sizeof sandbox, "%s", place->id);
            make_room(b, sandbox, now_wall_ns);
        }
    }
}

void kg_run_budget_tick(kg_run_budget_t *b, uint64_t now_wall_ns)
{
    make_room_everywhere(b, now_wall_ns);
    item_t *item, *next;
    DL_FOREACH_SAFE (b->items, item, next) {
        uint64_t age = age_s(item, now_wall_ns);
        if (age < b->opts.keep_s) {
            break; /* the others ended later */
        }
        if (age >= kg_run_log_meta(item->log)->retain_s) {
            item_expire(b, item, true, now_wall_ns);
        }
    }
    while (b->slims && b->slims->until_wall_ns <= now_wall_ns) {
        slim_drop(b, b->slims);
    }
}

uint64_t kg_run_budget_bytes(const kg_run_budget_t *budget)
{
    return budget->bytes;
}

uint64_t kg_run_budget_sandbox_bytes(const kg_run_budget_t *budget, const char *sandbox)
{
    const place_t *place = place_find(budget, sandbox);
    return place ? place->bytes : 0;
}

size_t kg_run_budget_count(const kg_run_budget_t *budget)
{
    return budget->count;
}

void kg_run_budget_destroy(kg_run_budget_t **budget)
{
    kg_run_budget_t *b = *budget;
    *budget = NULL;
    if (!b) {
        return;
    }
    while (b->items) {
        item_forget(b, b->items);
    }
    while (b->slims) {
        slim_drop(b, b->slims);
    }
    free(b);
}
