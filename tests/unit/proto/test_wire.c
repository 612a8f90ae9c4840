#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "proto/wire.h"

#define HEADER                                                                                     \
    "{\"msg_id\":\"m1\",\"msg_type\":\"stream\",\"session\":\"s1\",\"username\":null,"             \
    "\"date\":null,\"version\":\"5.3\"}"
#define PARENT "{\"msg_id\":\"p1\",\"msg_type\":\"execute_request\"}"

enum {
    ROOM = KG_WIRE_FRAMES_MAX + 2
};

/* A signed message under construction. */
typedef struct msg {
    kg_slice_t frames[ROOM];
    size_t count;
    char sig[KG_WIRE_SIG_LEN + 1];
} msg_t;

static kg_wire_key_t key;

static void
build(msg_t *m, const char *header, const char *parent, const char *meta, const char *content)
{
    m->frames[0] = kg_slice_cstr("identity");
    m->frames[1] = kg_slice_cstr("<IDS|MSG>");
    m->frames[3] = kg_slice_cstr(header);
    m->frames[4] = kg_slice_cstr(parent);
    m->frames[5] = kg_slice_cstr(meta);
    m->frames[6] = kg_slice_cstr(content);
    kg_wire_sign(&key, &m->frames[3], m->sig);
    m->frames[2] = kg_slice_cstr(m->sig);
    m->count = 7;
}

static int parse(const msg_t *m, kg_jmsg_t *ret, kg_err_t *err)
{
    return kg_jmsg_parse(m->frames, m->count, &key, ret, err);
}

static int setup(void **state)
{
    (void)state;
    return kg_wire_key_set(&key, "secret", 6);
}

/* RFC 4231, test cases 1, 2, 6 and 7; the data is cut in four parts. */
static void sign_rfc4231_vectors(void **state)
{
    (void)state;
    unsigned char long_key[131];
    memset(long_key, 0xAA, sizeof long_key);
    unsigned char first_key[20];
    memset(first_key, 0x0B, sizeof first_key);
    const struct {
        const void *key;
        size_t key_len;
        const char *data;
        const char *want;
    } cases[] = {
        {first_key, sizeof first_key, "Hi There",
         "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7"},
        {"Jefe", 4, "what do ya want for nothing?",
         "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"},
        {long_key, sizeof long_key, "Test Using Larger Than Block-Size Key - Hash Key First",
         "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54"},
        {long_key, sizeof long_key,
         "This is a test using a larger than block-size key and a larger than block-size data. The "
         "key needs to be hashed before being used by the HMAC algorithm.",
         "9b09ffa71b942fcb27635fbcd5b0e944bfdc63644f0713938a7f51535c3a35e2"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        kg_wire_key_t k = {0};
        char hex[KG_WIRE_SIG_LEN + 1];
        const char *d = cases[i].data;
        const kg_slice_t parts[4] = {kg_slice(d, 3), {0}, kg_slice(d + 3, 1), kg_slice_cstr(d + 4)};
        assert_int_equal(kg_wire_key_set(&k, cases[i].key, cases[i].key_len), 0);
        kg_wire_sign(&k, parts, hex);
        assert_string_equal(hex, cases[i].want);
        assert_true(kg_wire_verify(&k, parts, kg_slice_cstr(hex)));
        hex[63] = hex[63] == '0' ? '1' : '0';
        assert_false(kg_wire_verify(&k, parts, kg_slice_cstr(hex)));
        assert_false(kg_wire_verify(&k, parts, kg_slice(hex, 63)));
        assert_false(kg_wire_verify(&k, parts, kg_slice_cstr("")));
    }
}

static void key_limits_and_wipe(void **state)
{
    (void)state;
    static const kg_wire_key_t zero = {0};
    char text[KG_WIRE_KEY_MAX + 1];
    kg_wire_key_t k = {0};
    memset(text, 'k', sizeof text);
    assert_int_equal(kg_wire_key_set(&k, text, KG_WIRE_KEY_MAX), 0);
    assert_int_equal(kg_wire_key_set(&k, text, KG_WIRE_KEY_MAX + 1), -E2BIG);
    assert_int_equal(k.len, KG_WIRE_KEY_MAX);
    kg_wire_key_fini(&k);
    assert_memory_equal(&k, &zero, sizeof k);

    char hex[65];
    char other[65];
    kg_wire_key_generate(&k, hex);
    assert_int_equal(strlen(hex), 64);
    assert_int_equal(k.len, 64);
    kg_wire_key_t same = {0};
    const kg_slice_t parts[4] = {kg_slice_cstr("{}")};
    char sig[2][KG_WIRE_SIG_LEN + 1];
    assert_int_equal(kg_wire_key_set(&same, hex, 64), 0);
    kg_wire_sign(&k, parts, sig[0]);
    kg_wire_sign(&same, parts, sig[1]);
    assert_string_equal(sig[0], sig[1]);
    kg_wire_key_generate(&k, other);
    assert_string_not_equal(hex, other);
}

static void channel_name_known_or_question_mark(void **state)
{
    (void)state;
    assert_string_equal(kg_channel_name(KG_CHANNEL_SHELL), "shell");
    assert_string_equal(kg_channel_name(KG_CHANNEL_IOPUB), "iopub");
    assert_string_equal(kg_channel_name((kg_channel_t)99), "?");
}

static void empty_key_signs_nothing_and_accepts_all(void **state)
{
    (void)state;
    kg_wire_key_t none = {0};
    const kg_slice_t parts[4] = {kg_slice_cstr("{}")};
    char hex[KG_WIRE_SIG_LEN + 1];
    kg_wire_sign(&none, parts, hex);
    assert_string_equal(hex, "");
    assert_true(kg_wire_verify(&none, parts, kg_slice_cstr("whatever")));
}

static void split_finds_delimiter_behind_identities(void **state)
{
    (void)state;
    kg_slice_t f[9];
    for (size_t ids = 0; ids < 3; ids++) {
        for (size_t i = 0; i < KG_ARRAY_LEN(f); i++) {
            f[i] = kg_slice_cstr("x");
        }
        f[ids] = kg_slice_cstr("<IDS|MSG>");
        kg_wire_t wire;
        assert_int_equal(kg_wire_split(f, KG_ARRAY_LEN(f), &wire), 0);
        assert_int_equal(wire.identity_count, ids);
        assert_int_equal(wire.buffer_count, 3 - ids);
        assert_int_equal(kg_wire_split(f, ids + 6, &wire), 0);
        assert_int_equal(wire.buffer_count, 0);
        assert_null(wire.buffers);
        assert_int_equal(kg_wire_split(f, ids + 5, &wire), -EBADMSG);
    }
}

static void split_without_delimiter_or_short_refused(void **state)
{
    (void)state;
    kg_wire_t wire;
    kg_slice_t f[8];
    for (size_t i = 0; i < KG_ARRAY_LEN(f); i++) {
        f[i] = kg_slice_cstr("{}");
    }
    assert_int_equal(kg_wire_split(f, 8, &wire), -EBADMSG);
    assert_int_equal(kg_wire_split(f, 0, &wire), -EBADMSG);
    f[0] = kg_slice_cstr("<IDS|MSG>");
    assert_int_equal(kg_wire_split(f, 3, &wire), -EBADMSG);
    f[0] = kg_slice_cstr("<IDS|MSG> ");
    assert_int_equal(kg_wire_split(f, 8, &wire), -EBADMSG);
}

static void split_caps_at_limit_and_beyond(void **state)
{
    (void)state;
    kg_wire_t wire;
    msg_t m;
    build(&m, "{}", "{}", "{}", "{}");
    for (size_t i = m.count; i < ROOM; i++) {
        m.frames[i] = kg_slice_cstr("buffer");
    }
    assert_int_equal(kg_wire_split(m.frames, KG_WIRE_FRAMES_MAX, &wire), 0);
    assert_int_equal(kg_wire_split(m.frames, KG_WIRE_FRAMES_MAX + 1, &wire), -E2BIG);
    for (size_t part = 3; part <= 4; part++) {
        KG_AUTO_FREE char *big = calloc(1, KG_WIRE_HEADER_MAX + 1);
        m.frames[part] = kg_slice(big, KG_WIRE_HEADER_MAX);
        assert_int_equal(kg_wire_split(m.frames, 7, &wire), 0);
        m.frames[part] = kg_slice(big, KG_WIRE_HEADER_MAX + 1);
        assert_int_equal(kg_wire_split(m.frames, 7, &wire), -E2BIG);
        m.frames[part] = kg_slice_cstr("{}");
    }
}

static void parse_good_message_fields(void **state)
{
    (void)state;
    msg_t m;
    kg_jmsg_t j;
    kg_err_t err = {0};
    build(&m, HEADER, PARENT, "{}", "{\"name\":\"stdout\",\"text\":\"hi\"}");
    m.frames[m.count++] = kg_slice_cstr("buf");
    assert_int_equal(parse(&m, &j, &err), 0);
    assert_string_equal(j.msg_type, "stream");
    assert_string_equal(j.msg_id, "m1");
    assert_string_equal(j.session, "s1");
    assert_string_equal(j.version, "5.3");
    assert_string_equal(j.parent_id, "p1");
    assert_string_equal(j.parent_type, "execute_request");
    assert_int_equal(j.buffer_count, 1);
    assert_true(kg_slice_eq_cstr(kg_json_get(j.content, "text").raw, "\"hi\""));
    assert_int_equal(err.code, KG_ERR_NONE);
}

static void parse_sparse_headers_accepted(void **state)
{
    (void)state;
    msg_t m;
    kg_jmsg_t j;
    kg_err_t err = {0};
    build(&m, "{\"msg_type\":\"st\\u0061tus\",\"session\":null}", "{}", "{}", "{}");
    assert_int_equal(parse(&m, &j, &err), 0);
    assert_string_equal(j.msg_type, "status");
    assert_string_equal(j.msg_id, "");
    assert_string_equal(j.session, "");
    assert_string_equal(j.parent_id, "");
}

static void parse_bad_parts_refused_with_reason(void **state)
{
    (void)state;
    static const struct {
        const char *parts[4];
        int rc;
        const char *why;
    } cases[] = {
        {{"[]", "{}", "{}", "{}"}, -EBADMSG, "header is not a JSON object"},
        {{HEADER, "null", "{}", "{}"}, -EBADMSG, "parent_header is not a JSON object"},
        {{HEADER, "{}", "", "{}"}, -EBADMSG, "metadata is not valid JSON"},
        {{HEADER, "{}", "{}", "{\"a\":}"}, -EBADMSG, "content is not valid JSON"},
        {{"{}", "{}", "{}", "{}"}, -EBADMSG, "header.msg_type is missing"},
        {{"{\"msg_type\":5}", "{}", "{}", "{}"}, -EBADMSG, "header.msg_type is not a string"},
        {{"{\"msg_type\":\"a\\u0000\"}", "{}", "{}", "{}"},
         -EBADMSG,
         "header.msg_type holds U+0000"},
        {{HEADER, "{\"msg_id\":[]}", "{}", "{}"}, -EBADMSG, "parent_header.msg_id is not a string"},
        {{"{\"msg_type\":\"a\",\"version\":\"0123456789abcdef\"}", "{}", "{}", "{}"},
         -EBADMSG,
         "header.version is too long"},
    };
    for (size_t i = 0; i < KG_ARRAY_LEN(cases); i++) {
        msg_t m;
        kg_jmsg_t j;
        kg_err_t err = {0};
        const char *const *p = cases[i].parts;
        build(&m, p[0], p[1], p[2], p[3]);
        assert_int_equal(parse(&m, &j, &err), cases[i].rc);
        assert_int_equal(err.code, KG_ERR_KERNEL_PROTOCOL);
        assert_non_null(strstr(err.message, cases[i].why));
    }
}

static void parse_depth_bomb_refused(void **state)
{
    (void)state;
    msg_t m;
    kg_jmsg_t j;
    kg_err_t err = {0};
    KG_AUTO_BUF kg_buf_t bomb = {0};
    for (unsigned i = 0; i < 5000; i++) {
        assert_int_equal(kg_buf_append_cstr(&bomb, "{\"a\":"), 0);
    }
    build(&m, HEADER, "{}", bomb.data, "{}");
    assert_int_equal(parse(&m, &j, &err), -E2BIG);
    assert_non_null(strstr(err.message, "metadata is nested too deep"));
    assert_int_equal(kg_buf_append_cstr(&bomb, "}"), 0);
    build(&m, HEADER, bomb.data, "{}", "{}");
    assert_int_equal(parse(&m, &j, &err), -E2BIG);
    assert_non_null(strstr(err.message, "parent_header is nested too deep"));
}

/* Its reply may be all that a run waits for: content that is too deep can still be looked at. */
static void parse_deep_content_let_through(void **state)
{
    (void)state;
    msg_t m;
    kg_jmsg_t j;
    KG_AUTO_BUF kg_buf_t content = {0};
    KG_AUTO_BUF kg_buf_t copy = {0};
    for (unsigned depth = KG_JSON_DEPTH_MAX - 1; depth <= KG_JSON_DEPTH_MAX; depth++) {
        kg_buf_clear(&content);
        assert_int_equal(kg_buf_append_cstr(&content, " {\"status\":\"ok\",\"x\":"), 0);
        for (unsigned i = 0; i < 2 * depth; i++) {
            assert_int_equal(kg_buf_append_char(&content, i < depth ? '[' : ']'), 0);
        }
        assert_int_equal(kg_buf_append_cstr(&content, "}\r\n"), 0);
        build(&m, HEADER, "{}", "{}", content.data);
        assert_int_equal(parse(&m, &j, NULL), 0);
        assert_int_equal(j.deep, depth == KG_JSON_DEPTH_MAX);
        assert_true(kg_slice_eq_cstr(kg_json_get(j.content, "status").raw, "\"ok\""));
        assert_int_equal(kg_json_copy(&copy, j.content), j.deep ? -E2BIG : 0);
        kg_buf_clear(&copy);
        assert_int_equal(kg_json_copy(&copy, kg_json_get(j.content, "x")), 0);
    }
}

static void parse_header_string_at_limit_and_beyond(void **state)
{
    (void)state;
    for (size_t len = KG_MSG_ID_MAX - 1; len <= KG_MSG_ID_MAX; len++) {
        char header[KG_MSG_ID_MAX + 64];
        char id[KG_MSG_ID_MAX + 1];
        msg_t m;
        kg_jmsg_t j;
        memset(id, 'i', len);
        id[len] = '\0';
        (void)snprintf(header, sizeof header, "{\"msg_type\":\"t\",\"msg_id\":\"%s\"}", id);
        build(&m, header, "{}", "{}", "{}");
        assert_int_equal(parse(&m, &j, NULL), len < KG_MSG_ID_MAX ? 0 : -EBADMSG);
    }
}

static void parse_wrong_signature_refused(void **state)
{
    (void)state;
    msg_t m;
    kg_jmsg_t j;
    kg_err_t err = {0};
    build(&m, HEADER, PARENT, "{}", "{}");
    m.frames[6] = kg_slice_cstr("{ }");
    assert_int_equal(parse(&m, &j, &err), -EACCES);
    assert_non_null(strstr(err.message, "signature"));
    m.frames[2] = kg_slice_cstr("");
    assert_int_equal(parse(&m, &j, &err), -EACCES);
}

static void parse_frame_faults_named(void **state)
{
    (void)state;
    msg_t m;
    kg_jmsg_t j;
    kg_err_t err = {0};
    build(&m, HEADER, PARENT, "{}", "{}");
    m.count = 4;
    assert_int_equal(parse(&m, &j, &err), -EBADMSG);
    assert_non_null(strstr(err.message, "too few frames"));
    m.frames[1] = kg_slice_cstr("?");
    assert_int_equal(parse(&m, &j, &err), -EBADMSG);
    assert_non_null(strstr(err.message, "no delimiter"));
    m.count = ROOM;
    assert_int_equal(parse(&m, &j, &err), -E2BIG);
    assert_non_null(strstr(err.message, "too many frames"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sign_rfc4231_vectors),
        cmocka_unit_test(key_limits_and_wipe),
        cmocka_unit_test(channel_name_known_or_question_mark),
        cmocka_unit_test(empty_key_signs_nothing_and_accepts_all),
        cmocka_unit_test(split_finds_delimiter_behind_identities),
        cmocka_unit_test(split_without_delimiter_or_short_refused),
        cmocka_unit_test(split_caps_at_limit_and_beyond),
        cmocka_unit_test(parse_good_message_fields),
        cmocka_unit_test(parse_sparse_headers_accepted),
        cmocka_unit_test(parse_bad_parts_refused_with_reason),
        cmocka_unit_test(parse_depth_bomb_refused),
        cmocka_unit_test(parse_deep_content_let_through),
        cmocka_unit_test(parse_header_string_at_limit_and_beyond),
        cmocka_unit_test(parse_wrong_signature_refused),
        cmocka_unit_test(parse_frame_faults_named),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
