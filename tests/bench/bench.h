/* What the bench clients share: a clock, percentiles, one JSON line of result. */
#ifndef KG_TESTS_BENCH_H
#define KG_TESTS_BENCH_H

#include "gateway/base/buf.h"

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
/* Lines that hold the numbers from 0 on, in pieces of text: JSON without its quotes, and without
 * an escape but that of a line's end. A missing or doubled one ends the program. */
typedef struct bench_lines {
    uint64_t got;
    uint64_t number; /* the digits of a line so far */
    bool digits;
} bench_lines_t;
void bench_lines_take(bench_lines_t *lines, kg_slice_t text, bool whole);
/* How long ago a message was sent that carries the clock of then in its only buffer; 0: another. */
uint64_t bench_stamp_age_ns(const kg_slice_t *buffers, size_t count);
_Noreturn void bench_fail(const char *what);

#endif
