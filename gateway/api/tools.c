/* gateway/api: tools of language models. A call in a vendor's shape becomes a run, the run's end an
 * answer in the same vendor's shape. What the model is to blame for is answered to the model; what
 * the program or the host is to blame for is an error like any other here. */
#include "gateway/api/tools.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/api/api_priv.h"
#include "gateway/api/follower.h"
#include "gateway/api/handlers.h"
#include "gateway/base/str.h"
#include "gateway/context/template.h"
#include "gateway/tool/render.h"

enum {
    LANGUAGES_MAX = 16,
    PIECE = 65536,
    TURN_BYTES = 1 << 20,  /* of an Execution that are read in one turn of the loop */
    INLINE_BYTES = 1 << 15 /* of one that is rendered at once; a longer one on a worker */
};

void kg_tools_config_defaults(kg_tools_config_t *ret_config)
{
    *ret_config = (kg_tools_config_t){
        .session_on_timeout = "kill",
        .session_timeout_s = KG_TOOLS_SESSION_S,
        .sessions_max = KG_TOOLS_SESSIONS_MAX,
        .max_tokens = KG_TOOLS_TOKENS,
        .call_bytes = KG_TOOLS_CALL_BYTES,
        .output_bytes = KG_TOOLS_OUTPUT_BYTES,
        .result_bytes = KG_TOOLS_RESULT_BYTES,
        .images_max = KG_TOOLS_IMAGES,
        .image_bytes = KG_TOOLS_IMAGE_BYTES,
    };
}

/* --- Definitions ---------------------------------------------------------------------------- */

typedef struct languages {
    const char *names[LANGUAGES_MAX]; /* borrowed from the list */
    size_t count;
} languages_t;

static void add_language(languages_t *l, const json_t *language)
{
    const char *name = json_string_value(language);
    for (size_t i = 0; i < l->count && name; i++) {
        if (strcmp(l->names[i], name) == 0) {
            return;
        }
    }
    if (name && l->count < LANGUAGES_MAX) {
        l->names[l->count++] = name;
    }
}

/* Those of the templates that can be used; first is what a session's sandbox has without a wish. */
static void collect_languages(const json_t *items, const char *first, languages_t *ret)
{
    size_t i;
    size_t k;
    const json_t *item;
    const json_t *language;
    for (unsigned round = 0; round < 2; round++) {
        json_array_foreach (items, i, item) {
            const char *name = json_string_value(json_object_get(item, "name"));
            bool is_first = name && strcmp(name, first) == 0;
            if (json_is_false(json_object_get(item, "available")) || (round == 0 && !is_first)) {
                continue;
            }
            add_language(ret, json_object_get(item, "main_language"));
            json_array_foreach (json_object_get(item, "languages"), k, language) {
                add_language(ret, json_object_get(language, "name"));
            }
        }
    }
}

static const char *template_name(const kg_call_t *call)
{
    const char *own = call->api->tools.template_name;
    return own ? own : kg_core_config(call->core)->default_template;
}

static kg_tool_format_t format_of(const kg_call_t *call)
{
    kg_tool_format_t format = KG_TOOL_MCP;
    (void)kg_tool_format_find(kg_call_string(call, "format"), &format);
    return format;
}

void kg_do_tools_list(kg_call_t *call)
{
    KG_AUTO_BUF kg_buf_t text = {0};
    languages_t languages = {0};
    json_t *list = kg_template_list(call->core);
    collect_languages(json_object_get(list, "items"), template_name(call), &languages);
    /* One language needs no argument. */
    int rc = list ? kg_tool_definitions(format_of(call), languages.names,
                                        languages.count > 1 ? languages.count : 0, &text)
                  : -ENOMEM;
    json_decref(list);
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &(kg_err_t){0});
    } else {
        kg_call_text(call, &(kg_answer_t){.status = 200, .body = kg_buf_slice(&text)});
    }
}

/* --- A call's work -------------------------------------------------------------------------- */

/* Outlives the call while it is away on a worker. */
typedef struct work {
    kg_call_t *call; /* NULL: it has ended */
    kg_tool_call_t asked;
    kg_tool_limits_t limits;
    kg_follower_t follower;
    kg_buf_t execution;
    kg_buf_t answer;
    char run[KG_ID_MAX];
    char context[KG_ID_MAX];
    char sandbox[KG_ID_MAX];
    int rc;
    bool away;
} work_t;

static void work_free(void *user)
{
    work_t *w = user;
    w->call = NULL;
    kg_follower_fini(&w->follower);
    if (w->away) {
        return;
    }
    kg_tool_call_fini(&w->asked);
    kg_buf_fini(&w->execution);
    kg_buf_fini(&w->answer);
    free(w);
}

/* Ends the call. The headers are for the program: the block has no place for it. */
static void answer(work_t *w)
{
    const kg_answer_header_t headers[] = {
        {"Sandal-Sandbox", w->sandbox},
        {"Sandal-Context", w->context},
        {"Sandal-Run", w->run},
    };
    kg_call_text(w->call, &(kg_answer_t){.status = 200,
                                         .body = kg_buf_slice(&w->answer),
                                         .headers = headers,
                                         .header_count = KG_ARRAY_LEN(headers)});
}

static void fail(work_t *w, int rc)
{
    kg_err_t err = {0};
    kg_err_set(&err, kg_err_from_errno(rc), "The result of the run cannot be read.");
    kg_call_fail(w->call, &err);
}

/* Ends the call: what is wrong with it, for the model. */
static void answer_problem(work_t *w, const char *text)
{
    kg_tool_answer_t a = {.text = kg_slice_cstr(text), .failed = true};
    int rc = kg_tool_answer(&w->asked, &a, &w->answer);
    if (rc < 0) {
        fail(w, rc);
    } else {
        answer(w);
    }
}

/* --- After the run -------------------------------------------------------------------------- */

/* On a worker, or not: it touches nothing but w. */
static void render(void *user)
{
    work_t *w = user;
    kg_tool_view_t view = {0};
    w->rc = kg_tool_render(&w->asked, kg_buf_slice(&w->execution), &w->limits, &view);
    if (w->rc == 0) {
        kg_tool_answer_t a = {.text = kg_buf_slice(&view.text),
                              .images = view.images,
                              .image_count = view.image_count,
                              .failed = view.failed};
        w->rc = kg_tool_answer(&w->asked, &a, &w->answer);
        kg_tool_view_fini(&view);
    }
    kg_buf_fini(&w->execution);
}

static void rendered(void *user)
{
    work_t *w = user;
    w->away = false;
    if (!w->call) {
        work_free(w);
    } else if (w->rc < 0) {
        fail(w, w->rc);
    } else {
        answer(w);
    }
}

static void go_away(work_t *w, int rc)
{
    w->away = rc == 0;
    if (rc < 0) {
        fail(w, rc);
    }
}

/* An Execution of megabytes is nobody else's wait: it is read piece by piece. */
static void read_on(void *user)
{
    work_t *w = user;
    kg_read_piece_t piece;
    int rc = KG_READ_PIECE;
    w->away = false;
    if (!w->call) {
        work_free(w);
        return;
    }
    for (size_t read = 0; rc == KG_READ_PIECE && read < TURN_BYTES; read += PIECE) {
        rc = kg_run_reader_next(w->follower.reader, &w->execution, PIECE, &piece);
    }
    if (rc == KG_READ_PIECE) {
        go_away(w, kg_loop_later(kg_core_loop(w->call->core), read_on, w));
    } else if (rc != KG_READ_END) {
        fail(w, rc < 0 ? rc : -ESTALE);
    } else if (w->execution.len > INLINE_BYTES && w->call->api->workers) {
        go_away(w, kg_workq_submit(w->call->api->workers, render, rendered, w));
    } else {
        render(w);
        rendered(w);
    }
}

static void log_moved(void *user)
{
    work_t *w = user;
    if (w->away || w->follower.reader) {
        return;
    }
    if (kg_run_log_expired(w->follower.log)) {
        fail(w, -ESTALE);
    } else if (kg_run_log_finished(w->follower.log)) {
        int rc = kg_follower_read_execution(&w->follower);
        if (rc < 0) {
            fail(w, rc);
        } else {
            read_on(w);
        }
    }
}

/* --- The run -------------------------------------------------------------------------------- */

static uint64_t lesser(uint64_t a, uint64_t b)
{
    return b && b < a ? b : a;
}

/* Errors that come of what the model wrote: the model can do better. */
static bool is_models(const kg_err_t *err)
{
    static const char *const own[] = {"/code", "/context", "/language", "/timeout"};
    if (err->code == KG_ERR_CONTEXT_NOT_FOUND || err->code == KG_ERR_LANGUAGE_NOT_FOUND) {
        return true;
    }
    bool own_field = false;
    for (size_t i = 0; i < KG_ARRAY_LEN(own); i++) {
        own_field |= strcmp(err->pointer, own[i]) == 0;
    }
    return own_field && (err->code == KG_ERR_INVALID_REQUEST || err->code == KG_ERR_TOO_LARGE);
}

/* The lesser of what the program and what the model asked for. */
static int64_t timeout_ms(const work_t *w)
{
    double cap = kg_call_number(w->call, "timeout", 0);
    double own = w->asked.timeout_s;
    double seconds = own > 0 && (cap <= 0 || own < cap) ? own : cap;
    return seconds > 0 ? (int64_t)ceil(fmin(seconds, 1e9) * 1000.0) : -1;
}

static const char *text_or_null(const kg_buf_t *text)
{
    return text->len ? text->data : NULL;
}

static void run_in(work_t *w, kg_sandbox_t *sandbox)
{
    kg_call_t *call = w->call;
    const kg_core_config_t *core = kg_core_config(call->core);
    const kg_tools_config_t *config = &call->api->tools;
    kg_run_opts_t opts = {
        .code = kg_buf_slice(&w->asked.code),
        .context = text_or_null(&w->asked.context),
        .language = text_or_null(&w->asked.language),
        .timeout_ms = timeout_ms(w),
        .retain_s = -1,
        .output_bytes = lesser(config->output_bytes, core->output_bytes_max),
        .result_bytes = lesser(config->result_bytes, core->result_bytes_max),
        .key = kg_call_string(call, "key"),
    };
    kg_err_t err = {0};
    kg_run_t *run = NULL;
    int rc = kg_run_new(sandbox, &opts, &run, NULL, &err);
    (void)kg_format(w->sandbox, sizeof w->sandbox, "%s", kg_sandbox_id(sandbox));
    if (rc < 0 && is_models(&err)) {
        char text[sizeof err.message + sizeof err.hint + 2];
        /* Other hints are of routes, which a model does not have. */
        bool hints = err.code == KG_ERR_LANGUAGE_NOT_FOUND && err.hint[0];
        (void)kg_format(text, sizeof text, "%s%s%s", err.message, hints ? ". " : "",
                        hints ? err.hint : "");
        answer_problem(w, text);
        return;
    }
    rc = rc < 0 ? rc : kg_follower_init(&w->follower, run, log_moved, w);
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &err);
        return;
    }
    (void)kg_format(w->run, sizeof w->run, "%s", kg_run_id(run));
    (void)kg_format(w->context, sizeof w->context, "%s", kg_run_context_id(run));
    log_moved(w); /* one with a key may have ended long ago */
}

/* --- The sandbox ---------------------------------------------------------------------------- */

typedef struct seek {
    const char *session;
    kg_sandbox_t *found;
    unsigned sessions;
} seek_t;

static bool seek_session(void *user, kg_sandbox_t *sandbox)
{
    seek_t *s = user;
    const char *session = kg_sandbox_metadata(sandbox, KG_TOOLS_META_SESSION);
    s->sessions += session != NULL;
    if (session && strcmp(session, s->session) == 0) {
        s->found = sandbox;
    }
    return !s->found;
}

static void created(void *user, kg_sandbox_t *sandbox, const kg_err_t *err)
{
    kg_call_t *call = user;
    if (sandbox) {
        run_in(call->work, sandbox);
    } else {
        kg_call_fail(call, err);
    }
}

/* The session's sandbox shows as soon as it is asked for, so that calls beside the first one find
 * it: their runs wait for its kernel. */
static int make_sandbox(work_t *w, const seek_t *seek, kg_err_t *err)
{
    const kg_tools_config_t *config = &w->call->api->tools;
    if (seek->sessions >= config->sessions_max) {
        int rc =
            kg_err_set(err, KG_ERR_QUOTA_EXCEEDED,
                       "There are %u sandboxes of sessions, which is the most.", seek->sessions);
        kg_err_hint(err, "End those that are not needed any more, or raise tools.sessions.");
        err->retry_after_s = 5;
        return rc;
    }
    json_t *metadata = json_pack("{s:s}", KG_TOOLS_META_SESSION, seek->session);
    kg_sandbox_opts_api_t opts = {
        .template_name = config->template_name,
        .metadata = metadata,
        .timeout_s = (int64_t)config->session_timeout_s,
        .on_timeout = config->session_on_timeout,
        .checkpointable = -1,
    };
    int rc = metadata ? kg_sandbox_new(w->call->core, w->call->who.key.owner, &opts, created,
                                       w->call, err)
                      : -ENOMEM;
    json_decref(metadata);
    return rc;
}

static const char *query_or_header(const kg_call_t *call, const char *query, const char *header)
{
    const char *value = kg_call_string(call, query);
    return value ? value : kg_call_string(call, header);
}

static int check_places(const char *sandbox, const char *session, kg_err_t *err)
{
    if (!sandbox == !session) {
        int rc = kg_err_set(err, KG_ERR_INVALID_REQUEST,
                            sandbox ? "Either sandbox or session says where it runs, not both."
                                    : "It needs a sandbox, or a session, to run in.");
        kg_err_hint(err, "?sandbox=ID, or ?session=KEY with a key of your own for each "
                         "conversation.");
        kg_err_pointer(err, "/sandbox");
        return rc;
    }
    return 0;
}

/* The sandbox, or NULL and 0: it is being made. */
static int find_place(work_t *w, kg_sandbox_t **ret_sandbox, kg_err_t *err)
{
    kg_call_t *call = w->call;
    const char *owner = call->who.key.owner;
    const char *sandbox = query_or_header(call, "sandbox", "sandal_sandbox");
    seek_t seek = {.session = query_or_header(call, "session", "sandal_session")};
    int rc = check_places(sandbox, seek.session, err);
    if (rc < 0) {
        return rc;
    }
    if (sandbox) {
        seek.found = kg_sandbox_find(call->core, owner, sandbox, err);
        if (!seek.found) {
            return -ENOENT;
        }
    }
    rc = kg_auth_allow(&call->who, sandbox ? KG_RIGHT_SANDBOX : KG_RIGHT_USE,
                       sandbox ? kg_sandbox_id(seek.found) : NULL, err);
    if (rc == 0 && !sandbox && w->asked.problem.len == 0) {
        kg_sandbox_each(call->core, owner, seek_session, &seek);
        rc = seek.found ? 0 : make_sandbox(w, &seek, err);
    }
    *ret_sandbox = seek.found;
    return rc;
}

/* --- The handler ---------------------------------------------------------------------------- */

static int call_text(const kg_call_t *call, kg_buf_t *out, kg_err_t *err)
{
    const json_t *value = kg_call_json(call, "call");
    uint64_t most = call->api->tools.call_bytes;
    int rc;
    if (json_is_string(value)) {
        rc = kg_buf_append(out, json_string_value(value), json_string_length(value));
    } else {
        char *text = json_dumps(value, JSON_COMPACT);
        rc = text ? kg_buf_append_cstr(out, text) : -ENOMEM;
        free(text);
    }
    if (rc == 0 && out->len > most) {
        return kg_err_set(err, KG_ERR_TOO_LARGE, "The call has %zu bytes; %llu are the most.",
                          out->len, (unsigned long long)most);
    }
    return rc;
}

static work_t *work_new(kg_call_t *call)
{
    const kg_tools_config_t *config = &call->api->tools;
    work_t *w = calloc(1, sizeof *w);
    if (w) {
        w->call = call;
        w->limits = (kg_tool_limits_t){
            .max_tokens = (unsigned)kg_call_int(call, "max_tokens", config->max_tokens),
            .images_max = kg_call_bool(call, "images", true) ? config->images_max : 0,
            .image_bytes = config->image_bytes,
        };
        call->work = w;
        call->work_free = work_free;
    }
    return w;
}

void kg_do_tools_run_code(kg_call_t *call)
{
    kg_err_t err = {0};
    KG_AUTO_BUF kg_buf_t text = {0};
    kg_sandbox_t *sandbox = NULL;
    work_t *w = work_new(call);
    int rc = w ? call_text(call, &text, &err) : -ENOMEM;
    rc = rc < 0 ? rc : kg_tool_call_parse(format_of(call), kg_buf_slice(&text), &w->asked, &err);
    rc = rc < 0 ? rc : find_place(w, &sandbox, &err);
    if (rc < 0) {
        kg_call_fail_rc(call, rc, &err);
    } else if (w->asked.problem.len) {
        answer_problem(w, w->asked.problem.data);
    } else if (sandbox) {
        run_in(w, sandbox);
    }
}
