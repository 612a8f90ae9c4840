#include "gateway/sandbox/oom.h"

#include <string.h>
#include <unistd.h>

#include "gateway/base/str.h"

uint64_t kg_oom_kills(int fd)
{
    static const char KEY[] = "\noom_kill ";
    char text[512] = "\n";
    char number[24] = "";
    uint64_t kills = 0;

    ssize_t n = fd >= 0 ? pread(fd, text + 1, sizeof(text) - 2, 0) : -1;
    text[n > 0 ? n + 1 : 0] = '\0';
    const char *line = strstr(text, KEY);
    if (!line) {
        return UINT64_MAX;
    }
    line += sizeof(KEY) - 1;
    if (kg_format(number, sizeof(number), "%.*s", (int)strspn(line, "0123456789"), line) ||
        kg_parse_u64(number, 0, UINT64_MAX - 1, &kills)) {
        return UINT64_MAX;
    }
    return kills;
}
