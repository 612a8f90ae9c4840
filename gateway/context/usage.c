/* gateway/context: what a live kernel has used, read from the host's own books: one clock read and
 * one small file of /proc that stays open, cheap enough for every run. Children that have not been
 * waited for are not in it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "gateway/base/str.h"
#include "gateway/context/internal.h"

void kg_meter_close(kg_meter_t *meter)
{
    if (meter->pid > 0 && meter->status_fd >= 0) {
        (void)close(meter->status_fd);
    }
    *meter = (kg_meter_t){0};
}

/* False when there is no such process. */
static bool is_on(kg_meter_t *meter, pid_t pid)
{
    if (meter->pid == pid) {
        return pid > 0;
    }
    kg_meter_close(meter);
    if (pid <= 0 || clock_getcpuclockid(pid, &meter->clock)) {
        return false;
    }
    char path[48];
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    meter->pid = pid;
    meter->status_fd = open(path, O_RDONLY | O_CLOEXEC);
    return true;
}

uint64_t kg_meter_cpu_ns(kg_meter_t *meter, pid_t pid)
{
    struct timespec ts;
    if (!is_on(meter, pid) || clock_gettime(meter->clock, &ts)) {
        return KG_USAGE_UNKNOWN;
    }
    return (uint64_t)ts.tv_sec * KG_NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t kg_meter_peak(kg_meter_t *meter, pid_t pid)
{
    char text[2048];
    char number[24] = "";
    uint64_t kib = 0;
    ssize_t n = is_on(meter, pid) ? pread(meter->status_fd, text, sizeof(text) - 1, 0) : -1;
    if (n <= 0) {
        return KG_USAGE_UNKNOWN;
    }
    text[n] = '\0';
    const char *line = strstr(text, "\nVmHWM:");
    if (!line) {
        return KG_USAGE_UNKNOWN;
    }
    line += sizeof("\nVmHWM:") - 1;
    line += strspn(line, " \t");
    size_t digits = strspn(line, "0123456789");
    if (kg_format(number, sizeof(number), "%.*s", (int)digits, line) ||
        kg_parse_u64(number, 0, UINT64_MAX / 1024, &kib)) {
        return KG_USAGE_UNKNOWN;
    }
    return kib * 1024;
}
