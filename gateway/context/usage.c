/* gateway/context: what a live kernel has used, read from the host's own books: one clock read and
 * one small file of /proc, cheap enough for every run. Children that have not been waited for are
 * not in it. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "gateway/base/str.h"
#include "gateway/context/internal.h"

uint64_t kg_usage_cpu_ns(pid_t pid)
{
    clockid_t clock;
    struct timespec ts;
    if (pid <= 0 || clock_getcpuclockid(pid, &clock) || clock_gettime(clock, &ts)) {
        return KG_USAGE_UNKNOWN;
    }
    return (uint64_t)ts.tv_sec * KG_NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t kg_usage_peak(pid_t pid)
{
    char path[48];
    char text[2048];
    char number[24] = "";
    uint64_t kib = 0;
    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)pid);
    KG_AUTO_CLOSE int fd = pid > 0 ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = fd >= 0 ? read(fd, text, sizeof(text) - 1) : -1;
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
