/* proto: frames <-> message. Signatures are computed over the bytes received and never over
 * anything written anew. A message counts as received only when all four JSON parts are well-formed
 * objects, so that the rooms above can read them without checks of their own; depth is bounded
 * where they are copied. */
#include "proto/wire.h"

#include <errno.h>
#include <sodium.h>
#include <stdio.h>

#include "gateway/base/utf8.h"

#define DELIMITER "<IDS|MSG>"

_Static_assert(sizeof(crypto_auth_hmacsha256_state) <= sizeof((kg_wire_key_t *)NULL)->state,
               "the state of a key must hold libsodium's");

enum {
    PARTS = 4,
    KEY_BYTES = 32, /* of a generated key, before it is written in hex */
};

static const char *const part_names[PARTS] = {"header", "parent_header", "metadata", "content"};

const char *kg_channel_name(kg_channel_t channel)
{
    static const char *const names[] = {"shell", "control", "stdin", "iopub"};
    return (unsigned)channel < KG_ARRAY_LEN(names) ? names[channel] : "?";
}

int kg_wire_key_set(kg_wire_key_t *key, const char *text, size_t len)
{
    if (len > KG_WIRE_KEY_MAX) {
        return -E2BIG;
    }
    crypto_auth_hmacsha256_state state;
    (void)crypto_auth_hmacsha256_init(&state, (const unsigned char *)(len > 0 ? text : ""), len);
    kg_wire_key_fini(key);
    memcpy(key->state, &state, sizeof state);
    sodium_memzero(&state, sizeof state);
    key->len = len;
    return 0;
}

void kg_wire_key_generate(kg_wire_key_t *key, char ret_hex[2 * KEY_BYTES + 1])
{
    unsigned char raw[KEY_BYTES];
    randombytes_buf(raw, sizeof raw);
    (void)sodium_bin2hex(ret_hex, 2 * KEY_BYTES + 1, raw, sizeof raw);
    (void)kg_wire_key_set(key, ret_hex, (size_t)2 * KEY_BYTES); /* fits */
    sodium_memzero(raw, sizeof raw);
}

void kg_wire_key_fini(kg_wire_key_t *key)
{
    sodium_memzero(key, sizeof *key);
}

void kg_wire_sign(const kg_wire_key_t *key,
                  const kg_slice_t parts[4],
                  char ret_hex[KG_WIRE_SIG_LEN + 1])
{
    if (key->len == 0) {
        ret_hex[0] = '\0';
        return;
    }
    unsigned char digest[crypto_auth_hmacsha256_BYTES];
    crypto_auth_hmacsha256_state state;
    memcpy(&state, key->state, sizeof state);
    for (size_t i = 0; i < PARTS; i++) {
        if (parts[i].len > 0) {
            (void)crypto_auth_hmacsha256_update(&state, (const unsigned char *)parts[i].data,
                                                parts[i].len);
        }
    }
    (void)crypto_auth_hmacsha256_final(&state, digest);
    (void)sodium_bin2hex(ret_hex, KG_WIRE_SIG_LEN + 1, digest, sizeof digest);
    sodium_memzero(&state, sizeof state);
}

bool kg_wire_verify(const kg_wire_key_t *key, const kg_slice_t parts[4], kg_slice_t signature)
{
    if (key->len == 0) {
        return true;
    }
    if (signature.len != KG_WIRE_SIG_LEN) {
        return false;
    }
    char want[KG_WIRE_SIG_LEN + 1];
    kg_wire_sign(key, parts, want);
    return sodium_memcmp(want, signature.data, KG_WIRE_SIG_LEN) == 0;
}

int kg_wire_split(const kg_slice_t *frames, size_t count, kg_wire_t *ret_wire)
{
    if (count > KG_WIRE_FRAMES_MAX) {
        return -E2BIG;
    }
    size_t at = 0;
    while (at < count && !kg_slice_eq_cstr(frames[at], DELIMITER)) {
        at++;
    }
    if (count - at < 2 + PARTS) { /* delimiter, signature, four parts */
        return -EBADMSG;
    }
    kg_wire_t wire = {
        .identity_count = at,
        .signature = frames[at + 1],
        .parts = {frames[at + 2], frames[at + 3], frames[at + 4], frames[at + 5]},
        .buffer_count = count - at - 2 - PARTS,
    };
    wire.buffers = wire.buffer_count > 0 ? frames + at + 2 + PARTS : NULL;
    if (wire.parts[0].len > KG_WIRE_HEADER_MAX || wire.parts[1].len > KG_WIRE_HEADER_MAX) {
        return -E2BIG;
    }
    *ret_wire = wire;
    return 0;
}

static int refuse(kg_err_t *err, int rc, const char *what, const char *why)
{
    (void)kg_err_set(err, KG_ERR_KERNEL_PROTOCOL, "kernel message refused: %s %s", what, why);
    return rc;
}

/* A header string into its fixed field. Missing or null is ""; anything that is no string, does not
 * fit or holds U+0000 refuses the message: a cut id would name another message. */
static int
take_string(kg_json_value_t value, const char *name, char *ret, size_t cap, kg_err_t *err)
{
    if (value.type == KG_JSON_ABSENT || value.type == KG_JSON_NULL) {
        ret[0] = '\0';
        return 0;
    }
    if (value.type != KG_JSON_STRING) {
        return refuse(err, -EBADMSG, name, "is not a string");
    }
    KG_AUTO_BUF kg_buf_t decoded = {0};
    kg_slice_t text = kg_slice(value.raw.data + 1, value.raw.len - 2);
    if (memchr(text.data, '\\', text.len) || !kg_utf8_valid(text.data, text.len)) {
        /* No character takes more than six bytes in the text for each of its own. */
        int rc = text.len > 6 * cap ? -E2BIG : kg_json_decode_string(&decoded, value);
        if (rc == -ENOMEM) {
            (void)kg_err_set(err, KG_ERR_OUT_OF_MEMORY, "out of memory for a kernel message");
            return rc;
        }
        text = rc < 0 ? text : kg_buf_slice(&decoded);
    }
    if (text.len >= cap) {
        return refuse(err, -EBADMSG, name, "is too long");
    }
    if (text.len > 0 && memchr(text.data, '\0', text.len)) {
        return refuse(err, -EBADMSG, name, "holds U+0000");
    }
    if (text.len > 0) {
        memcpy(ret, text.data, text.len);
    }
    ret[text.len] = '\0';
    return 0;
}

static int read_header(kg_jmsg_t *msg, kg_err_t *err)
{
    static const char *const names[] = {"msg_type", "msg_id", "session", "version"};
    kg_json_value_t v[KG_ARRAY_LEN(names)];
    kg_json_get_many(msg->header, names, v, KG_ARRAY_LEN(names));
    int rc = take_string(v[0], "header.msg_type", msg->msg_type, sizeof msg->msg_type, err);
    rc = rc < 0 ? rc : take_string(v[1], "header.msg_id", msg->msg_id, sizeof msg->msg_id, err);
    rc = rc < 0 ? rc : take_string(v[2], "header.session", msg->session, sizeof msg->session, err);
    rc = rc < 0 ? rc : take_string(v[3], "header.version", msg->version, sizeof msg->version, err);
    if (rc == 0 && msg->msg_type[0] == '\0') {
        return refuse(err, -EBADMSG, "header.msg_type", "is missing");
    }
    return rc;
}

static int read_parent(kg_jmsg_t *msg, kg_err_t *err)
{
    static const char *const names[] = {"msg_id", "msg_type"};
    kg_json_value_t v[KG_ARRAY_LEN(names)];
    kg_json_get_many(msg->parent_header, names, v, KG_ARRAY_LEN(names));
    int rc = take_string(v[0], "parent_header.msg_id", msg->parent_id, sizeof msg->parent_id, err);
    return rc < 0 ? rc
                  : take_string(v[1], "parent_header.msg_type", msg->parent_type,
                                sizeof msg->parent_type, err);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

/* The object that text seems to be, unchecked; -EBADMSG when it begins or ends like none. */
static int take_deep(kg_slice_t text, kg_json_value_t *ret)
{
    while (text.len > 0 && is_space(text.data[0])) {
        text = kg_slice(text.data + 1, text.len - 1);
    }
    while (text.len > 0 && is_space(text.data[text.len - 1])) {
        text.len--;
    }
    if (text.len < 2 || text.data[0] != '{' || text.data[text.len - 1] != '}') {
        return -EBADMSG;
    }
    *ret = (kg_json_value_t){KG_JSON_OBJECT, text};
    return 0;
}

static int
check_part(kg_slice_t text, const char *name, bool *deep, kg_json_value_t *ret, kg_err_t *err)
{
    kg_json_value_t value;
    int rc = kg_json_check(text, KG_JSON_DEPTH_MAX, &value);
    if (rc == -E2BIG && deep && take_deep(text, &value) == 0) {
        *deep = true;
        rc = 0;
    }
    if (rc < 0) {
        return refuse(err, rc, name, rc == -E2BIG ? "is nested too deep" : "is not valid JSON");
    }
    if (value.type != KG_JSON_OBJECT) {
        return refuse(err, -EBADMSG, name, "is not a JSON object");
    }
    *ret = value;
    return 0;
}

/* Why kg_wire_split refused. */
static int split_refused(const kg_slice_t *frames, size_t count, int rc, kg_err_t *err)
{
    if (count > KG_WIRE_FRAMES_MAX) {
        return refuse(err, rc, "it", "has too many frames");
    }
    if (rc == -E2BIG) {
        return refuse(err, rc, "header or parent_header", "is over 64 KiB");
    }
    for (size_t i = 0; i < count; i++) {
        if (kg_slice_eq_cstr(frames[i], DELIMITER)) {
            return refuse(err, rc, "it", "has too few frames after the delimiter");
        }
    }
    return refuse(err, rc, "it", "has no delimiter frame");
}

int kg_jmsg_parse(const kg_slice_t *frames,
                  size_t count,
                  const kg_wire_key_t *key,
                  kg_jmsg_t *ret_msg,
                  kg_err_t *err)
{
    kg_wire_t wire;
    int rc = kg_wire_split(frames, count, &wire);
    if (rc < 0) {
        return split_refused(frames, count, rc, err);
    }
    if (!kg_wire_verify(key, wire.parts, wire.signature)) {
        return refuse(err, -EACCES, "its signature", "is wrong");
    }
    kg_jmsg_t msg = {.buffers = wire.buffers, .buffer_count = wire.buffer_count};
    kg_json_value_t *values[PARTS] = {&msg.header, &msg.parent_header, &msg.metadata, &msg.content};
    for (size_t i = 0; i < PARTS; i++) {
        rc = check_part(wire.parts[i], part_names[i], i < 2 ? NULL : &msg.deep, values[i], err);
        if (rc < 0) {
            return rc;
        }
    }
    rc = read_header(&msg, err);
    rc = rc < 0 ? rc : read_parent(&msg, err);
    if (rc == 0) {
        *ret_msg = msg;
    }
    return rc;
}
