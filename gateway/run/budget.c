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

/* A sandbox. Its logs have one owner. */
typedef struct kg_log_place {
    UT_hash_handle hh;
    kg_run_log_t *logs; /* oldest end first */
    uint64_t bytes;
    size_t count;
    const char *owner; /* behind id */
    char id[];
} place_t;

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
    kg_run_log_t *logs;     /* oldest end first */
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
static int slim_names(slim_t *slim, const kg_run_log_t *log)
{
    const place_t *place = log->charge.place;
    size_t run = strlen(log->run) + 1;
    size_t sandbox = strlen(place->id) + 1;
    size_t owner = strlen(place->owner) + 1;
    slim->strings = malloc(run + sandbox + owner);
    if (!slim->strings) {
        return -ENOMEM;
    }
    memcpy(slim->strings, log->run, run);
    memcpy(slim->strings + run, place->id, sandbox);
    memcpy(slim->strings + run + sandbox, place->owner, owner);
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
    return rc < 0 ? rc : slim_names(slim, log);
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

/* --- logs ----------------------------------------------------------------------------------------
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

static place_t *place_of(kg_run_budget_t *b, const kg_run_meta_t *meta)
{
    place_t *place = place_find(b, meta->sandbox);
    size_t len = strlen(meta->sandbox);
    size_t owner = strlen(meta->owner);
    if (place) {
        return place;
    }
    place = calloc(1, sizeof *place + len + 1 + owner + 1);
    if (place) {
        memcpy(place->id, meta->sandbox, len);
        memcpy(place->id + len + 1, meta->owner, owner);
        place->owner = place->id + len + 1;
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

/* Takes its reference away. */
static void forget(kg_run_budget_t *b, kg_run_log_t *log)
{
    place_t *place = log->charge.place;
    b->bytes -= log->charge.bytes;
    place->bytes -= log->charge.bytes;
    b->count--;
    DL_DELETE2(place->logs, log, charge.place_prev,
               charge.place_next); // NOLINT(clang-analyzer-core.NullDereference)
    if (--place->count == 0) {
        HASH_DEL(b->places, place); // NOLINT(clang-analyzer-core.NullDereference)
        free(place);
    }
    DL_DELETE2(b->logs, log, charge.prev,
               charge.next); // NOLINT(clang-analyzer-core.NullDereference)
    log->charge = (kg_log_charge_t){0};
    kg_run_log_unref(&log);
}

/* The log goes. The owner's callback must not call back into the budget. */
static void expire(kg_run_budget_t *b, kg_run_log_t *log, bool keep_slim, uint64_t now_wall_ns)
{
    KG_AUTO(kg_run_log_unref) kg_run_log_t *hold = kg_run_log_ref(log);
    if (keep_slim) {
        slim_keep(b, log, now_wall_ns);
    }
    forget(b, log);
    if (b->opts.expired) {
        b->opts.expired(b->opts.user, hold);
    }
    kg_run_log_remove(hold);
}

static uint64_t age_s(const kg_run_log_t *log, uint64_t now_wall_ns)
{
    uint64_t end = log->finished_wall_ns;
    return now_wall_ns > end ? (now_wall_ns - end) / KG_NS_PER_S : 0;
}

/* Whether a log's going would help. place NULL: the daemon's budget. */
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
    kg_run_log_t *next = sandbox ? (place ? place->logs : NULL) : b->logs;
    while (next && over(b, place)) {
        kg_run_log_t *log = next;
        next = sandbox ? log->charge.place_next : log->charge.next;
        uint64_t age = age_s(log, now_wall_ns);
        if (sandbox && log->readers > 0) {
            continue;
        }
        if (past_retain && age < b->least_retain_s) {
            return; /* and the others are younger */
        }
        if (!past_retain || age >= log->retain_s) {
            expire(b, log, true, now_wall_ns);
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
static void insert_by_end(kg_run_budget_t *b, kg_run_log_t *log)
{
    uint64_t end = log->finished_wall_ns;
    kg_run_log_t *at = b->logs ? b->logs->charge.prev : NULL;
    while (at && at->finished_wall_ns > end) {
        at = at == b->logs ? NULL : at->charge.prev;
    }
    DL_APPEND_ELEM2(b->logs, at, log, charge.prev, charge.next);
    kg_run_log_t **mine = &log->charge.place->logs;
    at = *mine ? (*mine)->charge.place_prev : NULL;
    while (at && at->finished_wall_ns > end) {
        at = at == *mine ? NULL : at->charge.place_prev;
    }
    DL_APPEND_ELEM2(*mine, at, log, charge.place_prev, charge.place_next);
}

/* The place's name outlives it there. */
static void make_room_at(kg_run_budget_t *b, const place_t *place, uint64_t now_wall_ns)
{
    char sandbox[KG_ID_MAX];
    (void)snprintf(sandbox, sizeof sandbox, "%s", place->id);
    make_room(b, sandbox, now_wall_ns);
}

int kg_run_budget_add(kg_run_budget_t *b, kg_run_log_t *log, uint64_t now_wall_ns)
{
    if (log->charge.place || !log->finished || log->expired || !log->body) {
        return -EINVAL;
    }
    place_t *place = place_of(b, kg_run_log_meta(log));
    if (!place) {
        return -ENOMEM;
    }
    if (log->retain_s < b->least_retain_s) {
        b->least_retain_s = log->retain_s;
    }
    log->charge.place = place;
    log->charge.bytes = charge_of(log);
    place->bytes += log->charge.bytes;
    place->count++;
    b->bytes += log->charge.bytes;
    b->count++;
    KG_AUTO(kg_run_log_unref) kg_run_log_t *hold = kg_run_log_ref(kg_run_log_ref(log));
    insert_by_end(b, log);
    make_room_at(b, place, now_wall_ns);
    kg_log_settle(hold);
    return 0;
}

void kg_run_budget_update(kg_run_budget_t *b, kg_run_log_t *log, uint64_t now_wall_ns)
{
    place_t *place = log->charge.place;
    if (!place) {
        return;
    }
    uint64_t charge = charge_of(log);
    b->bytes += charge - log->charge.bytes;
    place->bytes += charge - log->charge.bytes;
    log->charge.bytes = charge;
    make_room_at(b, place, now_wall_ns);
}

void kg_run_budget_drop_sandbox(kg_run_budget_t *b, const char *sandbox)
{
    place_t *place = place_find(b, sandbox);
    kg_run_log_t *next = place ? place->logs : NULL;
    while (next) {
        kg_run_log_t *log = next;
        next = log->charge.place_next;
        expire(b, log, false, 0);
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
            make_room_at(b, place, now_wall_ns);
        }
    }
}

void kg_run_budget_tick(kg_run_budget_t *b, uint64_t now_wall_ns)
{
    make_room_everywhere(b, now_wall_ns);
    kg_run_log_t *log, *next;
    DL_FOREACH_SAFE2(b->logs, log, next, charge.next)
    {
        uint64_t age = age_s(log, now_wall_ns);
        if (age < b->opts.keep_s) {
            break; /* the others ended later */
        }
        if (age >= log->retain_s) {
            expire(b, log, true, now_wall_ns);
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
    while (b->logs) {
        forget(b, b->logs);
    }
    while (b->slims) {
        slim_drop(b, b->slims);
    }
    free(b);
}
