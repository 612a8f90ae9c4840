/* Both codecs, the parser of stat files. */
#include <errno.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include "gateway/base/err.h"
#include "gateway/base/mem.h"
#include "gateway/sandbox/init_proto.h"
#include "gateway/sandbox/keeper_proto.h"
#include "gateway/sandbox/proctree.h"

#define ID "sbx-tests000000000000001"

static int decode_kp(const kg_kp_request_t *r, size_t len)
{
    kg_kp_request_t out;
    uint32_t seq = 0;
    return kg_kp_request_decode(r, len, &out, &seq);
}

static void kp_request_good_is_taken(void **state)
{
    kg_kp_request_t r;
    kg_kp_request_t out;
    uint32_t seq = 0;
    (void)state;
    size_t size = kg_kp_request_init(&r, KG_KP_CREATE, 7);
    strcpy(r.create.id, ID);           // NOLINT
    strcpy(r.create.launcher, "none"); // NOLINT
    assert_int_equal(kg_kp_request_decode(&r, size, &out, &seq), 0);
    assert_int_equal(seq, 7);
    assert_memory_equal(&r, &out, size);
    assert_int_equal(kg_kp_request_init(&r, KG_KP_EXIT, 7), 0);
}

static void kp_request_bad_is_refused(void **state)
{
    kg_kp_request_t good;
    kg_kp_request_t r;
    (void)state;
    size_t size = kg_kp_request_init(&good, KG_KP_CREATE, 7);
    strcpy(good.create.id, ID);           // NOLINT
    strcpy(good.create.launcher, "none"); // NOLINT

    for (size_t len = 0; len < size; len++) { /* cut anywhere */
        assert_int_equal(decode_kp(&good, len), -EBADMSG);
    }
    r = good;
    r.head.magic++;
    assert_int_equal(decode_kp(&r, size), -EBADMSG);
    r = good;
    r.head.version++;
    assert_int_equal(decode_kp(&r, size), -EPROTO);
    r = good;
    r.head.verb = 77;
    assert_int_equal(decode_kp(&r, size), -ENOSYS);
    r = good;
    r.head.verb = KG_KP_KILL; /* another verb's size */
    assert_int_equal(decode_kp(&r, size), -EBADMSG);
    r = good;
    r.create.flags = 4;
    assert_int_equal(decode_kp(&r, size), -EBADMSG);
    r = good;
    strcpy(r.create.zygote, "../other"); // NOLINT
    assert_int_equal(decode_kp(&r, size), -EBADMSG);
    memset(r.create.zygote, 'a', sizeof(r.create.zygote));
    assert_int_equal(decode_kp(&r, size), -EBADMSG);
    r = good; /* neither a zygote below another, nor one that is there from before */
    strcpy(r.create.zygote, "sbx-zygote"); // NOLINT
    r.create.flags = KG_KP_CREATE_ZYGOTE;
    assert_int_equal(decode_kp(&r, size), -EBADMSG);
    r.create.flags = KG_KP_CREATE_REUSE;
    assert_int_equal(decode_kp(&r, size), -EBADMSG);
    r = good;
    memset(r.create.id, 'a', sizeof(r.create.id));
    assert_int_equal(decode_kp(&r, size), -EBADMSG);
    r = good;
    strcpy(r.create.launcher, "../none"); // NOLINT
    assert_int_equal(decode_kp(&r, size), -EBADMSG);
}

static int decode_create(void (*spoil)(kg_kp_create_t *c))
{
    kg_kp_request_t r;
    size_t size = kg_kp_request_init(&r, KG_KP_CREATE, 7);
    strcpy(r.create.id, ID);                      // NOLINT
    strcpy(r.create.launcher, "none");            // NOLINT
    strcpy(r.create.template_name, "code-1_a.b"); // NOLINT
    r.create.network.mode = KG_NET_EGRESS;
    r.create.network.rule_count = 2;
    r.create.network.rules[0] = (kg_net_rule_t){
        .allow = 1, .family = 4, .prefix = 32, .protocol = 6, .port_first = 1, .port_last = 65535};
    r.create.network.rules[1] = (kg_net_rule_t){.domain = "*.example.org"};
    spoil(&r.create);
    return decode_kp(&r, size);
}

static void spoil_nothing(kg_kp_create_t *c)
{
    (void)c;
}

static void spoil_template(kg_kp_create_t *c)
{
    strcpy(c->template_name, "../x"); // NOLINT
}

static void spoil_hidden_template(kg_kp_create_t *c)
{
    strcpy(c->template_name, ".x"); // NOLINT
}

static void spoil_mode(kg_kp_create_t *c)
{
    c->network.mode = KG_NET_HOST + 1;
}

static void spoil_count(kg_kp_create_t *c)
{
    c->network.rule_count = KG_NET_RULES_MAX + 1;
}

static void spoil_prefix(kg_kp_create_t *c)
{
    c->network.rules[0].prefix = 33;
}

static void spoil_family(kg_kp_create_t *c)
{
    c->network.rules[0].family = 5;
}

static void spoil_ports(kg_kp_create_t *c)
{
    c->network.rules[0].port_last = 0;
}

static void spoil_domain(kg_kp_create_t *c)
{
    strcpy(c->network.rules[1].domain, "a..b"); // NOLINT
}

static void spoil_domain_and_address(kg_kp_create_t *c)
{
    c->network.rules[1].address[3] = 1;
}

static void spoil_domain_end(kg_kp_create_t *c)
{
    memset(c->network.rules[1].domain, 'a', sizeof(c->network.rules[1].domain));
}

static void kp_create_wishes_are_checked(void **state)
{
    void (*const bad[])(kg_kp_create_t *) = {
        spoil_template,   spoil_hidden_template, spoil_mode,
        spoil_count,      spoil_prefix,          spoil_family,
        spoil_ports,      spoil_domain,          spoil_domain_and_address,
        spoil_domain_end,
    };
    (void)state;
    assert_int_equal(decode_create(spoil_nothing), 0);
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(decode_create(bad[i]), -EBADMSG);
    }
}

/* Verbs about one sandbox, and the rows of answers. */
static void kp_other_verbs_are_checked(void **state)
{
    const kg_kp_verb_t one[] = {KG_KP_ATTACH, KG_KP_PAUSE,   KG_KP_RESUME,
                                KG_KP_USAGE,  KG_KP_NETWORK, KG_KP_NET_LOG};
    kg_kp_request_t r;
    kg_kp_reply_t reply;
    kg_kp_reply_t out;
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(one); i++) {
        size_t size = kg_kp_request_init(&r, one[i], 7);
        assert_int_equal(decode_kp(&r, size), -EBADMSG); /* of nobody */
        strcpy(r.one.id, ID);                            // NOLINT
        assert_int_equal(decode_kp(&r, size), 0);
        assert_int_equal(decode_kp(&r, size - 1), -EBADMSG);
    }
    size_t size = kg_kp_request_init(&r, KG_KP_HOLD, 7);
    strcpy(r.hold.id, ID); // NOLINT
    const struct {
        uint32_t share;
        uint64_t disk;
        uint32_t nofile;
        int rc;
    } holds[] = {{0, 0, 0, -EBADMSG},
                 {KG_SHARE_MIN, 0, 0, 0},
                 {KG_SHARE_MAX, 0, 0, 0},
                 {KG_SHARE_MAX + 1, 0, 0, -EBADMSG},
                 {KG_SHARE_USUAL, 1, 0, -EBADMSG},
                 {KG_SHARE_USUAL, 0, 1, -EBADMSG}};
    for (size_t i = 0; i < KG_ARRAY_LEN(holds); i++) {
        r.hold.share = holds[i].share;
        r.hold.limits = (kg_limits_t){
            .memory_bytes = 1, .disk_bytes = holds[i].disk, .nofile = holds[i].nofile};
        assert_int_equal(decode_kp(&r, size), holds[i].rc);
    }
    assert_int_equal(decode_kp(&r, size - 1), -EBADMSG);
    size = kg_kp_reply_init(&reply, KG_KP_NET_LOG, 3);
    reply.net_log.count = KG_KP_DENIED_ROWS;
    assert_int_equal(kg_kp_reply_decode(&reply, size, &out), 0);
    reply.net_log.count++;
    assert_int_equal(kg_kp_reply_decode(&reply, size, &out), -EBADMSG);
    size = kg_kp_reply_init(&reply, KG_KP_FEATURE_TABLE, 3);
    reply.features.count = KG_KP_FEATURES;
    assert_int_equal(kg_kp_reply_decode(&reply, size, &out), 0);
    memset(reply.features.rows[0].reason, 'x', sizeof(reply.features.rows[0].reason));
    assert_int_equal(kg_kp_reply_decode(&reply, size, &out), -EBADMSG);
    size = kg_kp_reply_init(&reply, KG_KP_LIST, 3);
    reply.list.count = 1;
    strcpy(reply.list.rows[0].id, ID); // NOLINT
    assert_int_equal(kg_kp_reply_decode(&reply, size, &out), 0);
    reply.list.rows[0].state = KG_KP_STATES;
    assert_int_equal(kg_kp_reply_decode(&reply, size, &out), -EBADMSG);
}

static void kp_ids_are_one_plain_component(void **state)
{
    const char *bad[] = {"",          "sbx-",         "sbx-abc",     "sbx-a/../../b",
                         "sbx-a.b.c", "abc-defghijk", "sbx-ABCDEFG", "sbx-abc def"};
    (void)state;
    assert_true(kg_kp_id_valid(ID));
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_false(kg_kp_id_valid(bad[i]));
    }
}

static void kp_reply_round_trip_and_bad_rows(void **state)
{
    kg_kp_reply_t r;
    kg_kp_reply_t out;
    (void)state;
    size_t size = kg_kp_reply_init(&r, KG_KP_LAUNCHER_TABLE, 3);
    r.launchers.count = 1;
    strcpy(r.launchers.rows[0].name, "none"); // NOLINT
    assert_int_equal(kg_kp_reply_decode(&r, size, &out), 0);
    memset(r.launchers.rows[0].pauses_not, 'x', sizeof(r.launchers.rows[0].pauses_not));
    assert_int_equal(kg_kp_reply_decode(&r, size, &out), -EBADMSG); /* no end */
    memset(r.launchers.rows[0].pauses_not, 0, sizeof(r.launchers.rows[0].pauses_not));
    r.launchers.count = KG_KP_LAUNCHERS + 1;
    assert_int_equal(kg_kp_reply_decode(&r, size, &out), -EBADMSG);
    size = kg_kp_reply_init(&r, KG_KP_CREATE, 3);
    assert_int_equal(kg_kp_reply_decode(&r, size, &out), -EBADMSG); /* done, but no init */
    r.create.status.code = KG_ERR_COUNT;
    assert_int_equal(kg_kp_reply_decode(&r, size, &out), -EBADMSG);
    r.create.status.code = KG_ERR_CONFLICT;
    assert_int_equal(kg_kp_reply_decode(&r, size, &out), 0);
    memset(r.create.status.message, 'x', sizeof(r.create.status.message));
    assert_int_equal(kg_kp_reply_decode(&r, size, &out), -EBADMSG);
}

static int decode_spawn(uint32_t argc, uint32_t envc, const char *tail, size_t tail_len)
{
    union {
        kg_ip_request_t r;
        char bytes[512];
    } f;
    kg_ip_request_t out;
    const char *got;
    size_t got_len;
    uint32_t seq;
    size_t fixed = kg_ip_request_init(&f.r, KG_IP_SPAWN, 9, tail_len);
    f.r.spawn.token = 1;
    f.r.spawn.argc = argc;
    f.r.spawn.envc = envc;
    memcpy(f.bytes + fixed, tail, tail_len);
    return kg_ip_request_decode(f.bytes, fixed + tail_len, &out, &got, &got_len, &seq);
}

static void ip_spawn_strings_must_add_up(void **state)
{
    (void)state;
    assert_int_equal(decode_spawn(2, 1, "a\0b\0E=1\0/\0", 10), 0);
    assert_int_equal(decode_spawn(2, 1, "a\0b\0E=1\0\0", 9), 0); /* no cwd */
    assert_int_equal(decode_spawn(1, 1, "a\0b\0E=1\0/\0", 10), -EBADMSG);
    assert_int_equal(decode_spawn(3, 1, "a\0b\0E=1\0/\0", 10), -EBADMSG);
    assert_int_equal(decode_spawn(0, 3, "a\0b\0E=1\0/\0", 10), -EBADMSG);
    assert_int_equal(decode_spawn(2, 1, "a\0b\0E=1\0/", 9), -EBADMSG); /* not terminated */
    assert_int_equal(decode_spawn(1, 0, "\0\0", 2), -EBADMSG);         /* no program */
    assert_int_equal(decode_spawn(1, 0, "", 0), -EBADMSG);
    assert_int_equal(decode_spawn(UINT32_MAX, UINT32_MAX, "a\0\0", 3), -EBADMSG);
}

static void ip_spawn_strings_point_where_they_should(void **state)
{
    char tail[] = "a\0b\0E=1\0/tmp";
    char *argv[3];
    char *env[2];
    char *cwd;
    kg_ip_spawn_t spawn = {.argc = 2, .envc = 1};
    (void)state;
    kg_ip_spawn_strings(&spawn, tail, argv, env, &cwd);
    assert_string_equal(argv[0], "a");
    assert_string_equal(argv[1], "b");
    assert_null(argv[2]);
    assert_string_equal(env[0], "E=1");
    assert_null(env[1]);
    assert_string_equal(cwd, "/tmp");
}

static void ip_names_are_one_plain_component(void **state)
{
    const char *good[] = {"k", "kernel-1.json", "A_b.c-9"};
    const char *bad[] = {"", ".", "..", ".hidden", "a/b", "a b", "a\n", "\xc3\xa4"};
    char longest[KG_IP_NAME_MAX + 1];
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(good); i++) {
        assert_true(kg_ip_name_valid(good[i]));
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_false(kg_ip_name_valid(bad[i]));
    }
    memset(longest, 'a', sizeof(longest));
    longest[KG_IP_NAME_MAX] = '\0';
    assert_false(kg_ip_name_valid(longest));
    longest[KG_IP_NAME_MAX - 1] = '\0';
    assert_true(kg_ip_name_valid(longest));
}

static void ip_file_write_is_bounded(void **state)
{
    static char frame[sizeof(kg_ip_name_t) + KG_IP_FILE_MAX + 1];
    kg_ip_request_t r;
    kg_ip_request_t out;
    const char *tail;
    size_t tail_len;
    uint32_t seq;
    (void)state;
    for (size_t over = 0; over < 2; over++) {
        size_t fixed = kg_ip_request_init(&r, KG_IP_FILE_WRITE, 1, KG_IP_FILE_MAX + over);
        strcpy(r.name.name, "x"); // NOLINT
        memcpy(frame, &r, fixed);
        assert_int_equal(kg_ip_request_decode(frame, fixed + KG_IP_FILE_MAX + over, &out, &tail,
                                              &tail_len, &seq),
                         over ? -EBADMSG : 0);
    }
}

static int decode_path(unsigned verb, uint32_t flags, uint32_t mode, const char *tail, size_t len)
{
    char frame[sizeof(kg_ip_path_t) + (size_t)2 * KG_IP_PATH_MAX + 1];
    kg_ip_request_t r;
    const char *got;
    size_t got_len;
    uint32_t seq;
    size_t fixed = kg_ip_request_init(&r, (kg_ip_verb_t)verb, 9, len);
    r.path.flags = flags;
    r.path.mode = mode;
    memcpy(frame, &r, fixed);
    memcpy(frame + fixed, tail, len);
    return kg_ip_request_decode(frame, fixed + len, &r, &got, &got_len, &seq);
}

/* Of LIST where it goes on, else what the request may take. */
static int decode_limit(kg_ip_verb_t verb, uint64_t limit)
{
    kg_ip_path_t frame[2] = {{.cursor = 0}};
    kg_ip_request_t r;
    const char *got;
    size_t got_len;
    uint32_t seq;
    size_t fixed = kg_ip_request_init(&r, verb, 9, 3);
    r.path.cursor = limit;
    memcpy(frame, &r, fixed);
    memcpy((char *)frame + fixed, "/a", 3);
    return kg_ip_request_decode(frame, fixed + 3, &r, &got, &got_len, &seq);
}

static void ip_paths_are_whole_and_absolute(void **state)
{
    char longest[2 * KG_IP_PATH_MAX];
    const char *first;
    const char *second;
    (void)state;

    assert_int_equal(decode_path(KG_IP_STAT, 0, 0, "/a\0", 3), 0);
    assert_int_equal(decode_path(KG_IP_STAT, 0, 0, "/a", 2), -EBADMSG); /* not terminated */
    assert_int_equal(decode_path(KG_IP_STAT, 0, 0, "a\0", 2), -EBADMSG);
    assert_int_equal(decode_path(KG_IP_STAT, 0, 0, "\0", 1), -EBADMSG);
    assert_int_equal(decode_path(KG_IP_STAT, 0, 0, "", 0), -EBADMSG);
    assert_int_equal(decode_path(KG_IP_STAT, 0, 0, "/a\0/b\0", 6), -EBADMSG); /* one too many */
    assert_int_equal(decode_path(KG_IP_RENAME, 0, 0, "/a\0/b\0", 6), 0);
    assert_int_equal(decode_path(KG_IP_RENAME, 0, 0, "/a\0", 3), -EBADMSG);
    assert_int_equal(decode_path(KG_IP_RENAME, 0, 0, "/a\0\0", 4), -EBADMSG);
    assert_int_equal(decode_path(KG_IP_PUT_IN_PLACE, 0, 0, "/a\0\0", 4), 0);
    assert_int_equal(decode_path(KG_IP_PUT_IN_PLACE, 0, 0, "\0/b\0", 4), -EBADMSG);
    assert_int_equal(decode_path(KG_IP_STAT, KG_IP_FS_RECURSIVE, 0, "/a\0", 3), -EBADMSG);
    assert_int_equal(decode_path(KG_IP_REMOVE, KG_IP_FS_RECURSIVE, 0, "/a\0", 3), 0);
    assert_int_equal(decode_limit(KG_IP_LIST, INT64_MAX), 0);
    assert_int_equal(decode_limit(KG_IP_REMOVE, KG_IP_LIMIT_MS_MAX), 0);
    assert_int_equal(decode_limit(KG_IP_REMOVE, KG_IP_LIMIT_MS_MAX + 1), -EBADMSG);
    assert_int_equal(decode_path(KG_IP_OPEN, UINT32_C(1) << 31, 0, "/a\0", 3), -EBADMSG);
    assert_int_equal(decode_path(KG_IP_MKDIR, 0, 07777, "/a\0", 3), 0);
    assert_int_equal(decode_path(KG_IP_MKDIR, 0, 010000, "/a\0", 3), -EBADMSG);
    memset(longest, '/', sizeof(longest));
    longest[KG_IP_PATH_MAX - 1] = '\0';
    longest[2 * KG_IP_PATH_MAX - 1] = '\0';
    assert_int_equal(decode_path(KG_IP_STAT, 0, 0, longest, KG_IP_PATH_MAX), 0);
    assert_int_equal(decode_path(KG_IP_RENAME, 0, 0, longest, sizeof(longest)), 0);
    longest[KG_IP_PATH_MAX - 1] = '/';
    longest[KG_IP_PATH_MAX] = '\0';
    assert_int_equal(decode_path(KG_IP_STAT, 0, 0, longest, KG_IP_PATH_MAX + 1), -EBADMSG);
    kg_ip_paths("/a\0/b\0", 6, &first, &second);
    assert_string_equal(first, "/a");
    assert_string_equal(second, "/b");
    kg_ip_paths("/a\0", 3, &first, &second);
    assert_string_equal(second, "");
}

static void ip_entries_go_and_come_back(void **state)
{
    char tail[256];
    size_t len = 0;
    kg_ip_entry_t entry = {.size = 7, .type = KG_IP_TYPE_SYMLINK, .mode = 0777, .mtime_ns = -1};
    kg_ip_entry_t out;
    const char *name;
    const char *target;
    (void)state;

    assert_int_equal(kg_ip_entry_put(tail, sizeof(tail), &len, &entry, "\xff", "to"), 0);
    size_t one = len;
    entry.type = KG_IP_TYPE_FILE;
    assert_int_equal(kg_ip_entry_put(tail, sizeof(tail), &len, &entry, "f", ""), 0);
    assert_int_equal(kg_ip_entry_put(tail, len + 60, &len, &entry, "too long", ""), -ENOBUFS);
    const char *at = tail;
    size_t left = len;
    assert_int_equal(kg_ip_entry_take(&at, &left, &out, &name, &target), 0);
    assert_string_equal(name, "\xff");
    assert_string_equal(target, "to");
    assert_int_equal(out.mtime_ns, -1);
    assert_int_equal(kg_ip_entry_take(&at, &left, &out, &name, &target), 0);
    assert_string_equal(name, "f");
    assert_int_equal(left, 0);
    for (size_t cut = 0; cut < one; cut++) {
        at = tail;
        left = cut;
        assert_int_equal(kg_ip_entry_take(&at, &left, &out, &name, &target), -EBADMSG);
    }
    out.name_len = UINT16_MAX; /* lies about itself */
    memcpy(tail, &out, sizeof(out));
    at = tail;
    left = len;
    assert_int_equal(kg_ip_entry_take(&at, &left, &out, &name, &target), -EBADMSG);
}

static void ip_replies_with_tails_are_checked(void **state)
{
    char frame[sizeof(kg_ip_files_t) + 256];
    kg_ip_reply_t r;
    kg_ip_reply_t out;
    size_t len = 0;
    const kg_ip_entry_t entry = {.type = KG_IP_TYPE_DIR, .mode = 0755};
    (void)state;

    size_t fixed = kg_ip_reply_init(&r, KG_IP_LIST, 3);
    assert_int_equal(kg_ip_entry_put(frame + fixed, 256, &len, &entry, "d", ""), 0);
    for (uint32_t count = 0; count < 3; count++) { /* as many as it says, no more, no less */
        r.files.count = count;
        r.head.size = (uint32_t)(fixed + len);
        memcpy(frame, &r, fixed);
        assert_int_equal(kg_ip_reply_decode(frame, fixed + len, &out), count == 1 ? 0 : -EBADMSG);
    }
    fixed = kg_ip_reply_init(&r, KG_IP_STAT, 3); /* neither an entry nor an error */
    assert_int_equal(kg_ip_reply_decode(&r, fixed, &out), -EBADMSG);
    r.files.error = -ENOENT;
    assert_int_equal(kg_ip_reply_decode(&r, fixed, &out), 0);
    r.files.error = ENOENT;
    assert_int_equal(kg_ip_reply_decode(&r, fixed, &out), -EBADMSG);
    fixed = kg_ip_reply_init(&r, KG_IP_SPAWN, 3);
    r.spawned.pid = 7;
    r.spawned.fds = KG_IP_FDS + 1;
    assert_int_equal(kg_ip_reply_decode(&r, fixed, &out), -EBADMSG);
    fixed = kg_ip_reply_init(&r, KG_IP_MKDIR, 3); /* has no tail */
    r.head.size = (uint32_t)(fixed + 1);
    memcpy(frame, &r, fixed);
    assert_int_equal(kg_ip_reply_decode(frame, fixed + 1, &out), -EBADMSG);
}

static void ip_hello_and_connect_have_bounds(void **state)
{
    kg_ip_request_t r;
    kg_ip_request_t out;
    const char *tail;
    size_t tail_len;
    uint32_t seq;
    (void)state;
    for (uint32_t role = 0; role < 4; role++) {
        size_t fixed = kg_ip_request_init(&r, KG_IP_HELLO, 1, 0);
        r.hello.role = role;
        assert_int_equal(kg_ip_request_decode(&r, fixed, &out, &tail, &tail_len, &seq),
                         role == 1 || role == 2 ? 0 : -EBADMSG);
    }
    const uint32_t ports[] = {0, 1, 65535, 65536};
    for (size_t i = 0; i < KG_ARRAY_LEN(ports); i++) {
        size_t fixed = kg_ip_request_init(&r, KG_IP_CONNECT, 1, 0);
        r.connect.port = ports[i];
        assert_int_equal(kg_ip_request_decode(&r, fixed, &out, &tail, &tail_len, &seq),
                         i == 1 || i == 2 ? 0 : -EBADMSG);
    }
}

static void ip_forks_are_the_users_alone(void **state)
{
    struct {
        kg_ip_request_t r;
        char tail[8];
    } f;
    kg_ip_request_t out;
    const char *tail;
    size_t tail_len;
    uint32_t seq;
    const uint32_t with[] = {0, KG_IP_SPAWN_ROOT, KG_IP_SPAWN_PTY, KG_IP_SPAWN_ZYGOTE,
                             KG_IP_SPAWN_LAST_WORDS};
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(with); i++) {
        char frame[sizeof(kg_ip_spawn_t) + 3];
        size_t fixed = kg_ip_request_init(&f.r, KG_IP_SPAWN, 1, 3);
        f.r.spawn.token = 1;
        f.r.spawn.argc = 1;
        f.r.spawn.flags = KG_IP_SPAWN_FORKED | with[i];
        memcpy(frame, &f.r, fixed);
        memcpy(frame + fixed, "a\0", 3);
        assert_int_equal(kg_ip_request_decode(frame, fixed + 3, &out, &tail, &tail_len, &seq),
                         i == 0 || i == 4 ? 0 : -EBADMSG);
    }
}

static void ip_orders_say_how_many_descriptors_come(void **state)
{
    const uint32_t fixed = 4 + KG_IP_ORDER_FIXED;
    const struct {
        uint32_t entries;
        uint32_t fds;
        bool good;
    } rows[] = {
        {0, fixed, true},        {0, fixed + 1, true},       {0, fixed - 1, false},
        {0, fixed + 2, false},   {3, fixed + 3, true},       {3, fixed + 4, true},
        {3, fixed + 2, false},   {UINT32_MAX, fixed, false}, {12, fixed + 12, true},
        {13, fixed + 13, false},
    };
    kg_ip_order_t order;
    kg_ip_order_t out;
    (void)state;
    for (size_t i = 0; i < KG_ARRAY_LEN(rows); i++) {
        kg_ip_order_init(&order);
        order.uid = order.gid = 1000;
        order.entries = rows[i].entries;
        order.fds = rows[i].fds;
        assert_int_equal(kg_ip_order_decode(&order, sizeof(order), &out),
                         rows[i].good ? 0 : -EBADMSG);
    }
    kg_ip_order_init(&order);
    order.uid = order.gid = 1000;
    order.fds = fixed;
    for (size_t len = 0; len < sizeof(order); len++) {
        assert_int_equal(kg_ip_order_decode(&order, len, &out), -EBADMSG);
    }
    order.gid = 0; /* nothing is forked for root */
    assert_int_equal(kg_ip_order_decode(&order, sizeof(order), &out), -EBADMSG);
    order.gid = 1000;
    memset(order.id, 'a', sizeof(order.id));
    assert_int_equal(kg_ip_order_decode(&order, sizeof(order), &out), -EBADMSG);
}

static void stat_line_with_any_name_is_read(void **state)
{
    kg_task_t task;
    (void)state;
    assert_int_equal(
        kg_task_parse(
            "42 (a) b) (c)) S 7 42 42 0 -1 4194560 100 0 0 0 5 6 7 8 20 0 1 0 99 1000 33 184 1 2",
            &task),
        0);
    assert_int_equal(task.pid, 42);
    assert_int_equal(task.ppid, 7);
    assert_int_equal(task.state, 'S');
    assert_int_equal(task.cpu_ticks, 11);
    assert_int_equal(task.children_cpu_ticks, 15);
    assert_int_equal(task.rss_pages, 33);
    assert_int_equal(task.threads, 1);
    assert_false(kg_task_is_dead(&task));
    task.state = 'Z';
    assert_true(kg_task_is_dead(&task));
    task.threads = 2; /* its first thread has ended, others use its uid */
    assert_false(kg_task_is_dead(&task));
    const char *bad[] = {"",        "42",       "42 (x",          "42 (x)",
                         "42 (x) ", "42 (x) S", "42 (x) S 1 2 3", "x (y) S 1"};
    for (size_t i = 0; i < KG_ARRAY_LEN(bad); i++) {
        assert_int_equal(kg_task_parse(bad[i], &task), -EINVAL);
    }
}

static void a_child_that_hangs_is_killed(void **state)
{
    int status = 0;
    (void)state;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        (void)pause();
        _exit(0);
    }
    assert_int_equal(kg_child_wait(pid, 20, &status), -ETIMEDOUT);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        _exit(3);
    }
    assert_int_equal(kg_child_wait(pid, 60000, &status), 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 3);
    assert_int_equal(kg_child_wait(pid, 20, &status), -ECHILD);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kp_request_good_is_taken),
        cmocka_unit_test(kp_request_bad_is_refused),
        cmocka_unit_test(kp_create_wishes_are_checked),
        cmocka_unit_test(kp_other_verbs_are_checked),
        cmocka_unit_test(kp_ids_are_one_plain_component),
        cmocka_unit_test(kp_reply_round_trip_and_bad_rows),
        cmocka_unit_test(ip_spawn_strings_must_add_up),
        cmocka_unit_test(ip_spawn_strings_point_where_they_should),
        cmocka_unit_test(ip_names_are_one_plain_component),
        cmocka_unit_test(ip_file_write_is_bounded),
        cmocka_unit_test(ip_paths_are_whole_and_absolute),
        cmocka_unit_test(ip_entries_go_and_come_back),
        cmocka_unit_test(ip_replies_with_tails_are_checked),
        cmocka_unit_test(ip_hello_and_connect_have_bounds),
        cmocka_unit_test(ip_forks_are_the_users_alone),
        cmocka_unit_test(ip_orders_say_how_many_descriptors_come),
        cmocka_unit_test(stat_line_with_any_name_is_read),
        cmocka_unit_test(a_child_that_hangs_is_killed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
