/* gateway/pool: the host's books, and what an operator writes of pools. */
#include "gateway/pool/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/mem.h"
#include "gateway/base/str.h"

/* "Name:   123 kB" in bytes; 0 = not there. */
static uint64_t meminfo_bytes(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    return at ? strtoull(at + strlen(name), NULL, 10) * 1024 : 0;
}

/* "some avg10=1.23 …" */
static double stall(const char *text, const char *line)
{
    const char *at = strstr(text, line);
    return at ? strtod(at + strlen(line), NULL) : 0;
}

kg_pool_pressure_t kg_pool_pressure_of(const char *meminfo, const char *psi)
{
    uint64_t total = meminfo_bytes(meminfo, "MemTotal:");
    uint64_t available = meminfo_bytes(meminfo, "MemAvailable:");
    if ((total && available < total / 20) || stall(psi, "full avg10=") >= 5) {
        return KG_POOL_PRESSURE_SHED;
    }
    if ((total && available < total / 10) || stall(psi, "some avg10=") >= 10) {
        return KG_POOL_PRESSURE_HOLD;
    }
    return KG_POOL_PRESSURE_NONE;
}

static void read_text(const char *path, char *ret, size_t cap)
{
    KG_AUTO_CLOSE int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd >= 0 ? read(fd, ret, cap - 1) : -1;
    ret[n > 0 ? n : 0] = '\0';
}

kg_pool_pressure_t kg_pool_host_pressure(void)
{
    char meminfo[2048];
    char psi[512];
    read_text("/proc/meminfo", meminfo, sizeof(meminfo));
    read_text("/proc/pressure/memory", psi, sizeof(psi));
    return kg_pool_pressure_of(meminfo, psi);
}

uint64_t kg_pool_host_memory(void)
{
    char meminfo[2048];
    read_text("/proc/meminfo", meminfo, sizeof(meminfo));
    return meminfo_bytes(meminfo, "MemTotal:");
}

int kg_pool_size_parse(const char *text, unsigned *ret_min, unsigned *ret_max)
{
    uint64_t min = 0;
    uint64_t max = 0;
    char head[16];
    const char *dash = strchr(text, '-');
    size_t len = dash ? (size_t)(dash - text) : strlen(text);
    int rc = len < sizeof(head) ? kg_format(head, sizeof(head), "%.*s", (int)len, text) : -EINVAL;
    rc = rc ? rc : kg_parse_u64(head, 0, KG_POOL_SIZE_MAX, &min);
    max = min;
    rc = rc || !dash ? rc : kg_parse_u64(dash + 1, min, KG_POOL_SIZE_MAX, &max);
    if (!rc) {
        *ret_min = (unsigned)min;
        *ret_max = (unsigned)max;
    }
    return rc;
}
