/* gateway/loop: how the loop's thread asks for a core. */
#include "gateway/loop/manners.h"

#include <fcntl.h>
#include <sched.h>
#include <string.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "gateway/base/mem.h"
#include "gateway/base/str.h"

static void set_policy(int policy)
{
    const struct sched_param none = {0};
    (void)sched_setscheduler(0, policy, &none); /* 0: this thread */
}

void kg_manners_init(kg_manners_t *manners, const char *file)
{
    *manners = (kg_manners_t){.fd = -1};
    if (sched_getscheduler(0) == SCHED_OTHER) {
        manners->fd = open(file, O_RDONLY | O_CLOEXEC);
    }
}

bool kg_manners_parse(const char *text, uint64_t *ret_total_us)
{
    char number[24];
    const char *at = strncmp(text, "some ", 5) == 0 ? strstr(text, " total=") : NULL;
    if (!at) {
        return false;
    }
    at += sizeof(" total=") - 1;
    int digits = (int)strspn(at, "0123456789");
    return kg_format(number, sizeof(number), "%.*s", digits, at) == 0 &&
           kg_parse_u64(number, 0, UINT64_MAX, ret_total_us) == 0;
}

bool kg_manners_next(bool gives_way, uint64_t waited_us, uint64_t passed_ns)
{
    uint64_t permille = passed_ns ? waited_us * KG_NS_PER_MS / passed_ns : 0;
    if (permille > KG_MANNERS_TAKEN) {
        return false;
    }
    return permille < KG_MANNERS_FREE || gives_way;
}

void kg_manners_look(kg_manners_t *manners, uint64_t now_ns)
{
    char text[256];
    uint64_t total = 0;
    ssize_t n = manners->fd >= 0 ? pread(manners->fd, text, sizeof(text) - 1, 0) : -1;
    if (n <= 0) {
        return;
    }
    text[n] = '\0';
    if (!kg_manners_parse(text, &total)) {
        return;
    }
    if (manners->at_ns && now_ns > manners->at_ns && total >= manners->total_us) {
        bool next =
            kg_manners_next(manners->gives_way, total - manners->total_us, now_ns - manners->at_ns);
        if (next != manners->gives_way) {
            manners->gives_way = next;
            set_policy(next ? SCHED_BATCH : SCHED_OTHER);
        }
    }
    manners->total_us = total;
    manners->at_ns = now_ns;
}

void kg_manners_fini(kg_manners_t *manners)
{
    if (manners->gives_way) {
        set_policy(SCHED_OTHER);
    }
    kg_closep(&manners->fd);
    manners->gives_way = false;
}
