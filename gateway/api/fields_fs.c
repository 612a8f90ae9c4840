/* gateway/api: what the operations on files take. A path that is no UTF-8 comes in base64, under
 * the same name with _base64. */
#include "gateway/api/fields.h"
#include "gateway/api/fields_common.h"
#include "gateway/context/files.h"

/* Base64 of 4095 bytes. */
#define BASE64_MAX 5464

#define PATH_FIELD(field, where, text)                                                             \
    {                                                                                              \
        .name = (field), .doc = (text), .in = (where), .type = KG_FIELD_STRING,                    \
        .format = KG_FORMAT_PATH, .min = 1, .max = 4095                                            \
    }
#define BYTES_FIELD(field, where)                                                                  \
    {                                                                                              \
        .name = field "_base64",                                                                   \
        .doc = "The same in base64, for names that are not UTF-8; one of the two.", .in = (where), \
        .type = KG_FIELD_STRING, .min = 1, .max = BASE64_MAX                                       \
    }
#define PATHS(where)                                                                               \
    PATH_FIELD("path", where, "Path of the file; relative to /workspace."),                        \
        BYTES_FIELD("path", where)
#define DIR_PATHS(where)                                                                           \
    PATH_FIELD("path", where, "Path of the directory; /workspace by default."),                    \
        BYTES_FIELD("path", where)
#define HEADER(field, text, most)                                                                  \
    {                                                                                              \
        .name = (field), .doc = (text), .in = KG_IN_HEADER, .type = KG_FIELD_STRING, .max = (most) \
    }
#define MODE(where, text)                                                                          \
    {                                                                                              \
        .name = "mode", .doc = (text), .in = (where), .type = KG_FIELD_STRING, .min = 1, .max = 6  \
    }
#define FLAG(field, where, text, value)                                                            \
    {                                                                                              \
        .name = (field), .doc = (text), .in = (where), .type = KG_FIELD_BOOLEAN,                   \
        .standard = (value)                                                                        \
    }
#define SIZE_HEADER(field, text)                                                                   \
    {                                                                                              \
        .name = (field), .doc = (text), .in = KG_IN_HEADER, .type = KG_FIELD_INTEGER,              \
        .max = KG_API_FILE_MAX                                                                     \
    }
#define PATH_UPLOAD PATH_REF("upload", "Id of the upload.")

#define CONDITIONS                                                                                 \
    HEADER("if_match", "Strong tags: only a file in one of these states; * any that is there.",    \
           1024),                                                                                  \
        HEADER("if_none_match", "Tags: no file in one of these states; * none at all.", 1024),     \
        HEADER("if_unmodified_since", "Date: no file that was changed after it.", 64)

const kg_field_t kg_fields_fs_read[] = {
    PATH_SANDBOX,
    PATHS(KG_IN_QUERY),
    HEADER("range", "Part of it, as bytes=FIRST-LAST; several ranges are answered with all.", 256),
    HEADER("if_range", "Tag or date: the range only of this state, else all.", 256),
    HEADER("if_none_match", "Tags: 304 when the file is in one of these states.", 1024),
    {.name = "offset",
     .doc = "Where to begin.",
     .in = KG_IN_FRAME,
     .type = KG_FIELD_INTEGER,
     .standard = "0"},
    {.name = "length",
     .doc = "Bytes at most.",
     .in = KG_IN_FRAME,
     .type = KG_FIELD_INTEGER,
     .min = 1,
     .max = KG_API_FILE_FRAME,
     .standard = "1048576"},
    LIST_END,
};

static const char *const encodings[] = {"base64", "utf8", NULL};

const kg_field_t kg_fields_fs_write[] = {
    PATH_SANDBOX,
    PATHS(KG_IN_QUERY),
    MODE(KG_IN_QUERY,
         "Permission bits in octal; by default those of the file that is there, or "
         "0644."),
    CONDITIONS,
    HEADER("content_range", "Refused: the body is the whole file. Uploads take parts.", 256),
    {.name = "data",
     .doc = "Content of the file.",
     .in = KG_IN_FRAME,
     .type = KG_FIELD_STRING,
     .max = KG_API_FILE_FRAME * 4 / 3 + 4},
    {.name = "encoding",
     .doc = "Of data.",
     .in = KG_IN_FRAME,
     .type = KG_FIELD_STRING,
     .values = encodings,
     .standard = "\"base64\""},
    LIST_END,
};

const kg_field_t kg_fields_fs_remove[] = {
    PATH_SANDBOX,
    PATHS(KG_IN_QUERY),
    FLAG("recursive", KG_IN_QUERY, "Also a directory that is not empty, with all in it.", "false"),
    CONDITIONS,
    LIST_END,
};

const kg_field_t kg_fields_fs_list[] = {
    PATH_SANDBOX,
    DIR_PATHS(KG_IN_QUERY),
    {.name = "depth",
     .doc = "Levels: 1 is the directory's own entries.",
     .in = KG_IN_QUERY,
     .type = KG_FIELD_INTEGER,
     .min = 1,
     .max = KG_FILES_DEPTH_MAX,
     .standard = "1"},
    {.name = "limit",
     .doc = "Items in one answer.",
     .in = KG_IN_QUERY,
     .type = KG_FIELD_INTEGER,
     .min = 1,
     .max = KG_FILES_LIST_MAX,
     .standard = "1000"},
    {.name = "after",
     .doc = "`next` of the answer before.",
     .in = KG_IN_QUERY,
     .type = KG_FIELD_STRING,
     .min = 1,
     .max = BASE64_MAX},
    LIST_END,
};

const kg_field_t kg_fields_fs_mkdir[] = {
    PATH_SANDBOX,
    PATHS(KG_IN_BODY),
    MODE(KG_IN_BODY, "Permission bits in octal; 0755 by default."),
    FLAG("parents", KG_IN_BODY, "Makes what is missing above it; it may be there already.", "true"),
    BODY_KEY,
    LIST_END,
};

const kg_field_t kg_fields_fs_move[] = {
    PATH_SANDBOX,
    PATH_FIELD("from", KG_IN_BODY, "Path of what is moved."),
    BYTES_FIELD("from", KG_IN_BODY),
    PATH_FIELD("to", KG_IN_BODY, "Its new path, its name included."),
    BYTES_FIELD("to", KG_IN_BODY),
    FLAG("overwrite", KG_IN_BODY, "Takes the place of what is there.", "false"),
    BODY_KEY,
    LIST_END,
};

const kg_field_t kg_fields_fs_stat[] = {
    PATH_SANDBOX,
    PATHS(KG_IN_QUERY),
    FLAG("follow", KG_IN_QUERY, "What a symlink points to instead of the link itself.", "false"),
    LIST_END,
};

const kg_field_t kg_fields_fs_watch[] = {
    PATH_SANDBOX,
    DIR_PATHS(KG_IN_QUERY),
    FLAG("recursive", KG_IN_QUERY, "Also what is below its directories.", "false"),
    LIST_END,
};

/* --- tus ------------------------------------------------------------------------------------ */

#define TUS_VERSION HEADER("tus_resumable", "1.0.0", 32)

const kg_field_t kg_fields_fs_upload[] = {
    PATH_SANDBOX,
    TUS_VERSION,
    SIZE_HEADER("upload_length", "Bytes of the whole file."),
    HEADER("upload_defer_length", "1: the length is told later, by a PATCH.", 8),
    HEADER("upload_metadata",
           "Pairs of key and base64: path (the file's), mode (octal, in base64 like all values).",
           KG_UPLOAD_META_MAX),
    BODY_KEY,
    LIST_END,
};

const kg_field_t kg_fields_fs_upload_append[] = {
    PATH_SANDBOX,
    PATH_UPLOAD,
    TUS_VERSION,
    SIZE_HEADER("upload_offset", "Where the bytes go: what the server has."),
    SIZE_HEADER("upload_length", "Where it was deferred: bytes of the whole file."),
    HEADER("content_type", "application/offset+octet-stream", 128),
    LIST_END,
};

const kg_field_t kg_fields_fs_upload_one[] = {PATH_SANDBOX, PATH_UPLOAD, TUS_VERSION, LIST_END};
