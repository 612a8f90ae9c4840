#include "gateway/base/isolation.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    int rank;
} kinds[] = {
    {"none", 0}, {"process", 1}, {"bubblewrap", 2}, {"runc", 2}, {"namespace", 3}, {"gvisor", 4},
};

int kg_isolation_rank(const char *kind)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
        if (strcmp(kinds[i].name, kind) == 0) {
            return kinds[i].rank;
        }
    }
    return -1;
}

const char *kg_isolation_floor(const char *least, const char *default_kind)
{
    if (least) {
        return least;
    }
    return default_kind && strcmp(default_kind, "none") == 0 ? "none" : "process";
}
