/* Texts in the forms of /proc, cut to a sandbox's limits. */
#include "gateway/sandbox/ns_view.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gateway/base/mem.h"
#include "gateway/base/str.h"

unsigned kg_view_cpus(uint32_t cpu_millis, unsigned host_cpus)
{
    unsigned cpus = cpu_millis / 1000 + (cpu_millis % 1000 != 0);
    return cpu_millis == 0 || cpus > host_cpus ? host_cpus : cpus;
}

char *kg_view_meminfo(uint64_t bytes)
{
    static const char *const zero[] = {
        "Buffers",  "Cached",       "SwapCached", "Active",     "Inactive",        "SwapTotal",
        "SwapFree", "Dirty",        "Writeback",  "AnonPages",  "Mapped",          "Shmem",
        "Slab",     "SReclaimable", "SUnreclaim", "PageTables", "HugePages_Total", "HugePages_Free",
    };
    char *made = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&made, &size);

    if (!out) {
        return NULL;
    }
    static const char *const all[] = {"MemTotal", "MemFree", "MemAvailable"};
    for (size_t i = 0; i < KG_ARRAY_LEN(all); i++) {
        (void)fprintf(out, "%s:%*s%" PRIu64 " kB\n", all[i], (int)(16 - strlen(all[i])), "",
                      bytes / 1024);
    }
    for (size_t i = 0; i < KG_ARRAY_LEN(zero); i++) {
        (void)fprintf(out, kg_str_starts(zero[i], "Huge") ? "%s:%*s0\n" : "%s:%*s0 kB\n", zero[i],
                      (int)(16 - strlen(zero[i])), "");
    }
    if (fclose(out) != 0) {
        free(made);
        return NULL;
    }
    return made;
}

char *kg_view_cpuinfo(const char *host_text, unsigned cpus)
{
    const char *end = host_text;
    for (unsigned i = 0; i < cpus && *end != '\0'; i++) {
        const char *gap = strstr(end, "\n\n"); /* between processors */
        end = gap ? gap + 2 : end + strlen(end);
    }
    return strndup(host_text, (size_t)(end - host_text));
}

/* A line of a processor of its own: cpu0, cpu1, … */
static bool is_cpu(const char *line)
{
    return kg_str_starts(line, "cpu") && line[3] >= '0' && line[3] <= '9';
}

char *kg_view_stat(const char *host_text, unsigned cpus)
{
    unsigned seen = 0;
    size_t at = 0;
    char *made = malloc(strlen(host_text) + 1);

    if (!made) {
        return NULL;
    }
    while (*host_text != '\0') {
        size_t len = strcspn(host_text, "\n");
        len += host_text[len] == '\n';
        bool skip = kg_str_starts(host_text, "intr ") || kg_str_starts(host_text, "softirq ") ||
                    (is_cpu(host_text) && seen++ >= cpus);
        if (!skip) {
            memcpy(made + at, host_text, len);
            at += len;
        }
        host_text += len;
    }
    made[at] = '\0';
    return made;
}
