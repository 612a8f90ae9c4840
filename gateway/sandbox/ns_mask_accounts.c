/* passwd and group of a sandbox, from those of its lower layer. Pure. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/base/mem.h"
#include "gateway/base/str.h"
#include "gateway/sandbox/limits.h"
#include "gateway/sandbox/ns_mask.h"

#define FIELDS_MAX 7
#define SYSTEM_LAST 999
#define NOBODY 65534

typedef struct kg_line {
    char text[1024];
    const char *fields[FIELDS_MAX];
    size_t count;
} kg_line_t;

/* False: too long, or more fields than any such file has. */
static bool split(kg_line_t *line, const char *text, size_t len)
{
    if (len >= sizeof(line->text)) {
        return false;
    }
    memcpy(line->text, text, len);
    line->text[len] = '\0';
    line->count = 0;
    for (char *at = line->text; at; line->count++) {
        if (line->count == FIELDS_MAX) {
            return false;
        }
        line->fields[line->count] = at;
        at = strchr(at, ':');
        if (at) {
            *at++ = '\0';
        }
    }
    return true;
}

static bool of_passwd(kg_accounts_t kind)
{
    return kind == KG_ACCOUNTS_PASSWD || kind == KG_ACCOUNTS_SHADOW;
}

static bool is_system(kg_accounts_t kind, const kg_line_t *line)
{
    uint64_t id = 0;
    if (line->count != (of_passwd(kind) ? 7U : 4U) || line->fields[0][0] == '\0' ||
        strchr("+-#", line->fields[0][0]) != NULL || strcmp(line->fields[0], "user") == 0) {
        return false;
    }
    return kg_parse_u64(line->fields[2], 0, UINT32_MAX - 1, &id) == 0 &&
           (id <= SYSTEM_LAST || id == NOBODY);
}

static void print_line(FILE *out, kg_accounts_t kind, const kg_line_t *l)
{
    switch (kind) {
    case KG_ACCOUNTS_PASSWD:
        (void)fprintf(out, "%s:x:%s:%s::%s:%s\n", l->fields[0], l->fields[2], l->fields[3],
                      l->fields[5], l->fields[6]);
        return;
    case KG_ACCOUNTS_GROUP:
        (void)fprintf(out, "%s:x:%s:\n", l->fields[0], l->fields[2]);
        return;
    case KG_ACCOUNTS_SHADOW:
        (void)fprintf(out, "%s:*:19000:0:99999:7:::\n", l->fields[0]);
        return;
    case KG_ACCOUNTS_GSHADOW:
        (void)fprintf(out, "%s:*::\n", l->fields[0]);
        return;
    }
}

static void print_user(FILE *out, kg_accounts_t kind)
{
    static const char *const user[] = {"user", "x", "1000", "1000", "", "/home/user", "/bin/bash"};
    kg_line_t line = {.count = FIELDS_MAX};

    _Static_assert(KG_UID_USER == 1000, "as written");
    memcpy(line.fields, user, sizeof(user));
    print_line(out, kind, &line);
}

char *kg_mask_accounts(kg_accounts_t kind, const char *text)
{
    char *made = NULL;
    size_t size = 0;
    kg_line_t line;
    FILE *out = open_memstream(&made, &size);

    if (!out) {
        return NULL;
    }
    while (*text != '\0') {
        size_t len = strcspn(text, "\n");
        if (split(&line, text, len) && is_system(kind, &line)) {
            print_line(out, kind, &line);
        }
        text += len + (text[len] == '\n');
    }
    print_user(out, kind);
    if (fclose(out) != 0) {
        free(made);
        return NULL;
    }
    return made;
}
