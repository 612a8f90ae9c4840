/* What the two bench clients share: a clock, percentiles, one JSON line of result. */
#ifndef KG_TESTS_BENCH_H
#define KG_TESTS_BENCH_H

#include <stddef.h>
#include <stdint.h>

uint64_t bench_now_ns(void);
/* Sorts; prints {"n","p50_us","p99_us","max_us","total_s","output_s","messages","bytes"} as one
 * line. */
void bench_report(uint64_t *ns,
                  size_t n,
                  uint64_t total_ns,
                  uint64_t output_ns,
                  uint64_t messages,
                  uint64_t bytes);
/* Between two rounds: BENCH_PAUSE_US of the environment, else none. */
void bench_pause(void);
_Noreturn void bench_fail(const char *what);

#endif
