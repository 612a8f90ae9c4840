/* Time. Monotonic nanoseconds for deadlines, wall clock for people. The run room takes a
 * kg_clock_t, so that tests inject time. */
#ifndef KG_BASE_CLOCK_H
#define KG_BASE_CLOCK_H

#include <stddef.h>
#include <stdint.h>

#define KG_NS_PER_MS UINT64_C(1000000)
#define KG_NS_PER_S UINT64_C(1000000000)

typedef struct kg_clock {
    uint64_t (*now_ns)(void *user);  /* monotonic */
    uint64_t (*wall_ns)(void *user); /* since 1970 UTC */
    void *user;
} kg_clock_t;

const kg_clock_t *kg_clock_real(void);
uint64_t kg_now_ns(void);
uint64_t kg_wall_ns(void);
/* Since the machine's start, sleep too: what goes on while processes of the daemon come and go. */
uint64_t kg_boot_ns(void);
/* "2026-01-02T03:04:05.678901Z": fraction and literal Z always there (reference GA-11). */
#define KG_TIME_LEN 28
void kg_time_format(uint64_t wall_ns, char ret_text[KG_TIME_LEN]);

#endif
