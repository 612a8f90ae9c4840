/* gateway/base: the clocks and the one text form of time. */
#include "gateway/base/clock.h"

#include <stdio.h>
#include <time.h>

static uint64_t read_clock(clockid_t id)
{
    struct timespec ts;
    /* Cannot fail for these clocks with a valid pointer. */
    (void)clock_gettime(id, &ts);
    return (uint64_t)ts.tv_sec * KG_NS_PER_S + (uint64_t)ts.tv_nsec;
}

uint64_t kg_now_ns(void)
{
    return read_clock(CLOCK_MONOTONIC);
}

uint64_t kg_wall_ns(void)
{
    return read_clock(CLOCK_REALTIME);
}

uint64_t kg_boot_ns(void)
{
    return read_clock(CLOCK_BOOTTIME);
}

static uint64_t real_now(void *user)
{
    (void)user;
    return kg_now_ns();
}

static uint64_t real_wall(void *user)
{
    (void)user;
    return kg_wall_ns();
}

static const kg_clock_t real_clock = {.now_ns = real_now, .wall_ns = real_wall, .user = NULL};

const kg_clock_t *kg_clock_real(void)
{
    return &real_clock;
}

void kg_time_format(uint64_t wall_ns, char ret_text[KG_TIME_LEN])
{
    time_t sec = (time_t)(wall_ns / KG_NS_PER_S);
    unsigned micro = (unsigned)(wall_ns % KG_NS_PER_S / 1000);
    struct tm tm;
    if (!gmtime_r(&sec, &tm)) { /* unreachable: 2^64 ns end in the year 2554 */
        tm = (struct tm){.tm_year = 70, .tm_mday = 1};
    }
    char date[20];
    (void)strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%S", &tm);
    (void)snprintf(ret_text, KG_TIME_LEN, "%s.%06uZ", date, micro);
}
