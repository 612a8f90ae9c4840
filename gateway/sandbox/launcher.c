/* The launcher table. A new launcher is a file with its row, and a line here. */
#include "gateway/sandbox/launcher.h"

#include <string.h>

const kg_launcher_t *const *kg_launchers(size_t *ret_count)
{
    static const kg_launcher_t *const rows[] = {&kg_launcher_gvisor,     &kg_launcher_namespace,
                                                &kg_launcher_bubblewrap, &kg_launcher_runc,
                                                &kg_launcher_process,    &kg_launcher_none};
    *ret_count = KG_ARRAY_LEN(rows);
    return rows;
}

const kg_launcher_t *kg_launcher_find(const char *name)
{
    size_t count;
    const kg_launcher_t *const *rows = kg_launchers(&count);

    for (size_t i = 0; i < count; i++) {
        if (strcmp(rows[i]->name, name) == 0) {
            return rows[i];
        }
    }
    return NULL;
}
