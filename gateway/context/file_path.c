/* gateway/context: paths as clients write them, as sandal-init takes them, and as people see them;
 * and the Entry of a file. Any bytes may be in a name, so what is no UTF-8 is told in base64 too.
 */
#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <string.h>

#include "gateway/base/str.h"
#include "gateway/context/files_priv.h"

#define WORKSPACE "/workspace"
#define HOME "/home/user"

int kg_fs_path_check(const char *path, const char *pointer, kg_err_t *err)
{
    size_t len = strlen(path);
    if (len == 0) {
        return kg_bad(err, pointer, "A path must not be empty.");
    }
    if (len >= KG_FS_PATH_MAX - sizeof(WORKSPACE)) {
        return kg_bad(err, pointer, "A path has at most %zu bytes.",
                      KG_FS_PATH_MAX - sizeof(WORKSPACE) - 1);
    }
    for (const char *p = path; *p;) {
        size_t n = strcspn(p, "/");
        if (n > KG_FS_NAME_MAX) {
            return kg_bad(err, pointer, "A name in a path has at most %d bytes.", KG_FS_NAME_MAX);
        }
        p += n + (p[n] == '/');
    }
    return 0;
}

/* Takes the last segment of out, which begins with "/", away. */
static void drop_last(char *out, size_t *len)
{
    while (*len > 0 && out[*len - 1] != '/') {
        (*len)--;
    }
    *len -= *len > 0;
    out[*len] = '\0';
}

/* "//", "/./" and a last "/" are nothing; ".." is left to the file system, or taken by the letter.
 * absolute begins with "/". */
static void clean(const char *absolute, bool dots, char out[KG_FS_PATH_MAX])
{
    size_t len = 0;
    out[0] = '\0';
    for (const char *p = absolute; *p;) {
        p += strspn(p, "/");
        size_t n = strcspn(p, "/");
        if (n == 0 || (n == 1 && p[0] == '.')) {
            p += n;
            continue;
        }
        if (dots && n == 2 && p[0] == '.' && p[1] == '.') {
            drop_last(out, &len);
            p += n;
            continue;
        }
        out[len++] = '/';
        memcpy(out + len, p, n);
        len += n;
        out[len] = '\0';
        p += n;
    }
    if (len == 0) {
        memcpy(out, "/", 2);
    }
}

/* What follows prefix in path, "" or from a "/" on; NULL: it isn't below. */
static const char *below(const char *path, const char *prefix)
{
    size_t n = strlen(prefix);
    bool yes = n > 0 && strncmp(path, prefix, n) == 0 && (path[n] == '\0' || path[n] == '/');
    return yes ? path + n : NULL;
}

static int refuse_place(kg_err_t *err, const kg_sbx_info_t *info)
{
    int rc = kg_err_set(err, KG_ERR_FORBIDDEN,
                        "Under isolation %s a sandbox has no root of its own: only " WORKSPACE
                        " and " HOME " can be reached.",
                        info->isolation);
    kg_err_hint(err, "Relative paths are taken from " WORKSPACE ".");
    return rc;
}

static int fit(int rc, kg_err_t *err)
{
    return rc < 0 ? kg_err_set(err, KG_ERR_INVALID_REQUEST, "The path is too long.") : 0;
}

/* Without a mount namespace the two prefixes stand for directories of the host; what code sees as
 * its working directory is one of those, and as good. */
static int map_place(const kg_sbx_info_t *info, kg_fs_path_t *path, kg_err_t *err)
{
    const char *dirs[2][2] = {{WORKSPACE, info->workspace}, {HOME, info->home}};
    for (size_t i = 0; i < 2; i++) {
        const char *rest = below(path->shown, dirs[i][0]);
        rest = rest ? rest : below(path->shown, dirs[i][1]);
        if (rest) {
            char shown[KG_FS_PATH_MAX];
            int rc = kg_format(path->inner, sizeof(path->inner), "%s%s", dirs[i][1], rest);
            rc = rc ? rc : kg_format(shown, sizeof(shown), "%s%s", dirs[i][0], rest);
            memcpy(path->shown, shown, rc ? 0 : strlen(shown) + 1);
            return fit(rc, err);
        }
    }
    return refuse_place(err, info);
}

int kg_fs_path_resolve(const kg_sbx_info_t *info,
                       const char *path,
                       kg_fs_path_t *ret_path,
                       kg_err_t *err)
{
    char absolute[KG_FS_PATH_MAX];
    bool relative = path[0] != '/';
    int rc = kg_format(absolute, sizeof(absolute), "%s%s", relative ? WORKSPACE "/" : "", path);
    if (rc < 0) {
        return fit(rc, err);
    }
    clean(absolute, !info->own_root, ret_path->shown);
    if (!info->own_root) {
        return map_place(info, ret_path, err);
    }
    memcpy(ret_path->inner, ret_path->shown, sizeof(ret_path->inner));
    return 0;
}

bool kg_fs_path_fixed(const char *shown)
{
    size_t len = strlen(shown);
    if (len >= 3 && strcmp(shown + len - 3, "/..") == 0) {
        return true; /* whatever that is */
    }
    return strcmp(shown, "/") == 0 || strcmp(shown, WORKSPACE) == 0 || strcmp(shown, HOME) == 0;
}

int kg_fs_path_join(char ret[KG_FS_PATH_MAX], const char *dir, const char *name)
{
    return kg_format(ret, KG_FS_PATH_MAX, "%s/%s", strcmp(dir, "/") == 0 ? "" : dir, name);
}

/* --- Entries -------------------------------------------------------------------------------- */

static json_t *base64_json(const char *bytes, size_t len)
{
    size_t cap = sodium_base64_encoded_len(len, sodium_base64_VARIANT_ORIGINAL);
    KG_AUTO_FREE char *text = malloc(cap);
    if (!text) {
        return NULL;
    }
    sodium_bin2base64(text, cap, (const unsigned char *)bytes, len, sodium_base64_VARIANT_ORIGINAL);
    return json_string(text);
}

int kg_fs_put_name(json_t *object, const char *key, const char *bytes)
{
    size_t len = strlen(bytes);
    if (kg_utf8_valid(bytes, len)) {
        return json_object_set_new(object, key, json_stringn(bytes, len));
    }
    KG_AUTO_BUF kg_buf_t repaired = {0};
    char name[32];
    int rc = kg_utf8_repair(&repaired, bytes, len);
    rc = rc ? rc : kg_format(name, sizeof(name), "%s_base64", key);
    rc = rc ? rc : json_object_set_new(object, key, json_stringn(repaired.data, repaired.len));
    return rc ? rc : json_object_set_new(object, name, base64_json(bytes, len));
}

static const char *type_name(kg_fs_type_t type)
{
    switch (type) {
    case KG_FS_FILE:
        return "file";
    case KG_FS_DIR:
        return "dir";
    case KG_FS_SYMLINK:
        return "symlink";
    case KG_FS_OTHER:
        break;
    }
    return "other";
}

json_t *kg_fs_entry_json(const char *shown, const kg_fs_entry_t *entry)
{
    const kg_fs_stat_t *st = &entry->stat;
    const char *slash = strrchr(shown, '/');
    const char *name = slash && slash[1] ? slash + 1 : shown;
    char mode[8];
    (void)snprintf(mode, sizeof(mode), "%04" PRIo32, st->mode & 07777);
    json_t *json = json_object();
    int rc = json ? kg_fs_put_name(json, "name", name) : -ENOMEM;
    rc = rc ? rc : kg_fs_put_name(json, "path", shown);
    json_t *rest = json_pack("{s:s, s:I, s:s, s:I, s:I, s:o, s:n}", "type", type_name(st->type),
                             "size", (json_int_t)st->size, "mode", mode, "uid", (json_int_t)st->uid,
                             "gid", (json_int_t)st->gid, "modified_at",
                             kg_json_time(st->mtime_ns > 0 ? (uint64_t)st->mtime_ns : 0), "target");
    rc = rc || !rest ? -ENOMEM : json_object_update(json, rest);
    json_decref(rest);
    if (!rc && entry->target) {
        rc = kg_fs_put_name(json, "target", entry->target);
    }
    if (rc) {
        json_decref(json);
        return NULL;
    }
    return json;
}
