/* run: text in canonical escaped form is never decoded, only measured and cut. A unit is one byte
 * of the decoded UTF-8; in canonical text an escape (\n, \u001b) is one unit. */
#include "gateway/run/text.h"

#include <errno.h>

enum {
    ESCAPE_MAX = 6
};

static size_t escape_len(const char *p, const char *end)
{
    size_t len = end - p >= 2 && p[1] == 'u' ? ESCAPE_MAX : 2;
    return len <= (size_t)(end - p) ? len : (size_t)(end - p);
}

static const char *next_escape(const char *p, const char *end)
{
    const char *hit = p < end ? memchr(p, '\\', (size_t)(end - p)) : NULL;
    return hit ? hit : end;
}

static bool is_continuation(char c)
{
    return ((unsigned char)c & 0xC0) == 0x80;
}

size_t kg_text_units(const char *data, size_t len)
{
    size_t units = len;
    const char *end = data + len;
    for (const char *p = next_escape(data, end); p < end;) {
        size_t n = escape_len(p, end);
        units -= n - 1;
        p = next_escape(p + n, end);
    }
    return units;
}

size_t kg_text_split(const char *data, size_t len, size_t max, size_t *ret_units)
{
    const char *p = data;
    const char *end = data + len;
    size_t units = 0;
    while (p < end && units < max) {
        bool far = (size_t)(end - p) > max - units; /* no further than needed: the rest is long */
        const char *stop = next_escape(p, far ? p + (max - units) + 1 : end);
        if ((size_t)(stop - p) > max - units) { /* the cut is inside of this plain text */
            const char *cut = p + (max - units);
            while (cut > p && is_continuation(*cut)) {
                cut--;
            }
            units += (size_t)(cut - p);
            p = cut;
            break;
        }
        units += (size_t)(stop - p);
        p = stop;
        if (p < end && units < max) {
            p += escape_len(p, end);
            units++;
        }
    }
    *ret_units = units;
    return (size_t)(p - data);
}

size_t kg_text_suffix(const char *data, size_t len, size_t max, size_t *ret_units)
{
    size_t total = kg_text_units(data, len);
    if (total <= max) {
        *ret_units = total;
        return 0;
    }
    size_t skip = total - max;
    size_t units;
    size_t at = kg_text_split(data, len, skip, &units);
    if (units < skip && at < len) { /* the boundary is inside of a character: leave it out */
        const char *p = data + at;
        const char *end = data + len;
        if (*p == '\\') {
            at += escape_len(p, end);
            units++;
        } else {
            do {
                at++;
                units++;
            } while (at < len && is_continuation(data[at]));
        }
    }
    *ret_units = total - units;
    return at;
}

static bool is_high_surrogate(const char *p)
{
    return p[0] == '\\' && p[1] == 'u' && (p[2] == 'd' || p[2] == 'D') &&
           strchr("89abAB", p[3]) != NULL && p[3] != '\0';
}

/* Whether the backslash at `at` begins an escape (is not itself escaped). */
static bool begins_escape(const char *data, size_t at)
{
    size_t run = 0;
    while (run < at && data[at - run - 1] == '\\') {
        run++;
    }
    return run % 2 == 0;
}

size_t kg_text_raw_floor(const char *data, size_t len, size_t max)
{
    if (max >= len) {
        return len;
    }
    size_t cut = max;
    size_t low = cut > ESCAPE_MAX ? cut - ESCAPE_MAX : 0;
    for (size_t at = cut; at-- > low;) {
        if (data[at] == '\\' && begins_escape(data, at)) {
            size_t n = data[at + 1] == 'u' ? ESCAPE_MAX : 2;
            if (at + n > cut) {
                cut = at; /* inside of it */
                low = cut > ESCAPE_MAX ? cut - ESCAPE_MAX : 0;
                continue;
            }
            if (n == ESCAPE_MAX && at + n == cut && is_high_surrogate(data + at)) {
                cut = at; /* its low half may follow */
            }
            break;
        }
    }
    /* Back to the lead byte of a sequence. Continuation bytes without one are bad UTF-8: before
     * them may stand the end of an escape, and nothing is lost by a cut among them. */
    size_t lead = cut;
    for (unsigned i = 0; i < 3 && lead > 0 && is_continuation(data[lead]); i++) {
        lead--;
    }
    cut = (unsigned char)data[lead] >= 0xC0 ? lead : cut;
    return cut > 0 ? cut : max;
}

bool kg_text_ends_nl(const char *data, size_t len)
{
    return len >= 2 && data[len - 1] == 'n' && data[len - 2] == '\\' &&
           begins_escape(data, len - 2);
}

int kg_text_join(kg_text_join_t *join, kg_buf_t *out, const char *data, size_t len)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < len; i++) {
        char c = data[i];
        if (!join->string) {
            join->string = c == '"';
            rc = c == ',' ? kg_buf_append(out, "\\n", 2) : 0;
        } else if (!join->escape && c == '"') {
            join->string = false;
        } else {
            join->escape = !join->escape && c == '\\';
            rc = kg_buf_append_char(out, c);
        }
    }
    return rc;
}

/* --- html ---------------------------------------------------------------------------------------
 */

static bool starts_nocase(const char *p, const char *end, const char *word)
{
    for (; *word; word++, p++) {
        if (p >= end || (*p | 0x20) != *word) {
            return false;
        }
    }
    return true;
}

/* p is at '<': what follows the tag; of script and style, what follows their end tag. */
static const char *skip_tag(const char *p, const char *end)
{
    static const char *const hidden[] = {"script", "style"};
    const char *close = memchr(p, '>', (size_t)(end - p));
    if (!close) {
        return end;
    }
    for (size_t i = 0; i < 2; i++) {
        if (!starts_nocase(p + 1, end, hidden[i])) {
            continue;
        }
        for (const char *q = close; (q = memchr(q, '<', (size_t)(end - q))) != NULL; q++) {
            if (q + 1 < end && q[1] == '/' && starts_nocase(q + 2, end, hidden[i])) {
                close = memchr(q, '>', (size_t)(end - q));
                return close ? close + 1 : end;
            }
        }
        return end;
    }
    return close + 1;
}

/* p is at '&': appends what the entity stands for; returns what follows. */
static const char *put_entity(kg_buf_t *out, const char *p, const char *end, int *rc)
{
    static const struct {
        const char *name, *text;
    } known[] = {{"&lt;", "<"},      {"&gt;", ">"},   {"&amp;", "&"},
                 {"&quot;", "\\\""}, {"&#39;", "'"},  {"&nbsp;", " "},
                 {"&apos;", "'"},    {"&#x27;", "'"}, {"&#34;", "\\\""}};
    for (size_t i = 0; i < KG_ARRAY_LEN(known); i++) {
        size_t n = strlen(known[i].name);
        if ((size_t)(end - p) >= n && memcmp(p, known[i].name, n) == 0) {
            *rc = kg_buf_append_cstr(out, known[i].text);
            return p + n;
        }
    }
    *rc = kg_buf_append_char(out, '&');
    return p + 1;
}

int kg_text_from_html(kg_buf_t *out, const char *data, size_t len)
{
    const char *p = data;
    const char *end = data + len;
    int rc = 0;
    while (rc == 0 && p < end) {
        const char *start = p;
        while (p < end && *p != '<' && *p != '&') {
            p += *p == '\\' ? escape_len(p, end) : 1;
        }
        rc = kg_buf_append(out, start, (size_t)(p - start));
        if (rc == 0 && p < end) {
            p = *p == '<' ? skip_tag(p, end) : put_entity(out, p, end, &rc);
        }
    }
    return rc;
}

/* --- ring ---------------------------------------------------------------------------------------
 */

void kg_text_ring_trim(kg_text_ring_t *ring, size_t max)
{
    size_t at =
        kg_text_suffix(ring->buf.data ? ring->buf.data : "", ring->buf.len, max, &ring->units);
    kg_buf_consume(&ring->buf, at);
}

int kg_text_ring_push(kg_text_ring_t *ring, const char *data, size_t len, size_t max)
{
    size_t units;
    size_t at = kg_text_suffix(data, len, max, &units);
    if (at > 0) { /* it alone is the tail: what was there is further away */
        kg_buf_clear(&ring->buf);
        ring->units = 0;
    }
    int rc = kg_buf_append(&ring->buf, data + at, len - at);
    if (rc < 0) {
        return rc;
    }
    ring->units += units;
    if (ring->units > max * 2) {
        kg_text_ring_trim(ring, max);
    }
    return 0;
}

void kg_text_ring_fini(kg_text_ring_t *ring)
{
    kg_buf_fini(&ring->buf);
    ring->units = 0;
}
