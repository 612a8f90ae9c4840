/* gateway/view: what a source gives, in the three forms a body can have. */
#include "gateway/view/give.h"

#include "gateway/base/clock.h"

#define TURN_NS (2 * KG_NS_PER_MS) /* what one fill may take */

void kg_giver_init(kg_giver_t *g, kg_source_t *source, kg_stream_kind_t kind, uint64_t *sent)
{
    *g = (kg_giver_t){.source = source, .kind = kind, .last_ns = kg_now_ns()};
    g->sent = sent;
}

void kg_giver_fini(kg_giver_t *g)
{
    kg_source_close(&g->source);
    kg_buf_fini(&g->last);
}

bool kg_giver_silent(kg_giver_t *g, uint64_t now_ns, uint64_t silent_ns)
{
    g->sign = g->kind != KG_STREAM_TEXT && now_ns > g->last_ns && now_ns - g->last_ns >= silent_ns;
    return g->sign;
}

static int put_event(kg_giver_t *g, kg_buf_t *out, kg_source_state_t *ret_state)
{
    bool sse = g->kind == KG_STREAM_SSE;
    size_t start = out->len;
    int rc = sse ? kg_buf_append_cstr(out, "data: ") : 0;
    size_t at = out->len;
    *ret_state = rc ? KG_SOURCE_FAILED : g->source->fill(g->source, out, SIZE_MAX);
    if (out->len == at) {
        out->len = start;
        if (at > start) {
            out->data[start] = '\0';
        }
        return rc;
    }
    return rc ? rc : kg_buf_append_cstr(out, sse ? "\n\n" : "\n");
}

static int put_events(kg_giver_t *g, kg_buf_t *out, size_t max, kg_source_state_t *ret_state)
{
    size_t start = out->len;
    uint64_t begin_ns = kg_now_ns();
    int rc = !g->begun && g->kind == KG_STREAM_SSE ? kg_buf_append_cstr(out, "retry: 1000\n\n") : 0;
    g->begun = true;
    if (g->ends) {
        *ret_state = g->last.len > 0 ? KG_SOURCE_END : KG_SOURCE_FAILED;
        return rc ? rc : kg_buf_append_slice(out, kg_buf_slice(&g->last));
    }
    *ret_state = KG_SOURCE_MORE;
    while (!rc && *ret_state == KG_SOURCE_MORE && out->len - start < max &&
           kg_now_ns() - begin_ns <= TURN_NS) {
        rc = put_event(g, out, ret_state);
    }
    if (!rc && *ret_state == KG_SOURCE_WAIT && out->len == start && g->sign) {
        rc = kg_buf_append_cstr(out, g->kind == KG_STREAM_SSE ? ":\n\n" : "\n");
    }
    g->sign = false;
    return rc;
}

kg_pull_t kg_giver_fill(void *user, kg_buf_t *out, size_t max)
{
    kg_giver_t *g = user;
    size_t start = out->len;
    kg_source_state_t state = KG_SOURCE_FAILED;
    int rc = 0;
    if (g->kind == KG_STREAM_TEXT) {
        state = g->source->fill(g->source, out, max);
    } else {
        rc = put_events(g, out, max, &state);
    }
    if (out->len > start) {
        g->last_ns = kg_now_ns();
        *g->sent += out->len - start;
    }
    if (rc || state == KG_SOURCE_FAILED) {
        return KG_PULL_ABORT;
    }
    if (state == KG_SOURCE_END) {
        return KG_PULL_END;
    }
    return state == KG_SOURCE_MORE || out->len > start ? KG_PULL_MORE : KG_PULL_WAIT;
}

kg_pull_t kg_giver_pour(void *user, int socket, uint64_t *ret_sent)
{
    static const kg_pull_t pulls[] = {
        [KG_SOURCE_MORE] = KG_PULL_MORE,
        [KG_SOURCE_WAIT] = KG_PULL_WAIT,
        [KG_SOURCE_END] = KG_PULL_END,
        [KG_SOURCE_FAILED] = KG_PULL_ABORT,
    };
    kg_giver_t *g = user;
    kg_source_state_t state = g->source->pour(g->source, socket, ret_sent);
    *g->sent += *ret_sent;
    return pulls[state];
}
