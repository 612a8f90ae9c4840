/* bench: shared pieces. */
#include "tests/bench/bench.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

uint64_t bench_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000U + (uint64_t)t.tv_nsec;
}

void bench_pause(void)
{
    const char *text = getenv("BENCH_PAUSE_US");
    long us = text ? strtol(text, NULL, 10) : 0;
    if (us > 0) {
        /* the rest that the caller asked for: what is measured is a kernel after it */
        nanosleep(&(struct timespec){us / 1000000, us % 1000000 * 1000}, NULL);
    }
}

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

void bench_report(uint64_t *ns,
                  size_t n,
                  uint64_t total_ns,
                  uint64_t output_ns,
                  uint64_t messages,
                  uint64_t bytes)
{
    qsort(ns, n, sizeof(*ns), compare);
    printf("{\"n\":%zu,\"p50_us\":%.1f,\"p99_us\":%.1f,\"max_us\":%.1f,\"total_s\":%.4f,"
           "\"output_s\":%.4f,\"messages\":%llu,\"bytes\":%llu}\n",
           n, (double)ns[n / 2] / 1e3, (double)ns[n * 99 / 100] / 1e3, (double)ns[n - 1] / 1e3,
           (double)total_ns / 1e9, (double)output_ns / 1e9, (unsigned long long)messages,
           (unsigned long long)bytes);
}

static void line_end(bench_lines_t *lines)
{
    if (!lines->digits || lines->number != lines->got) {
        fprintf(stderr, "wanted %llu, got %llu\n", (unsigned long long)lines->got,
                (unsigned long long)lines->number);
        bench_fail("lines: one is missing or twice there");
    }
    lines->got++;
    lines->number = 0;
    lines->digits = false;
}

void bench_lines_take(bench_lines_t *lines, kg_slice_t text, bool whole)
{
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == '\\') {
            i++;
            line_end(lines);
        } else {
            lines->number = lines->number * 10 + (uint64_t)(text.data[i] - '0');
            lines->digits = true;
        }
    }
    if (whole) {
        line_end(lines);
    }
}

uint64_t bench_stamp_age_ns(const kg_slice_t *buffers, size_t count)
{
    uint64_t sent = 0;
    if (count != 1 || buffers[0].len != sizeof(sent)) {
        return 0;
    }
    memcpy(&sent, buffers[0].data, sizeof(sent));
    return bench_now_ns() - sent;
}

void bench_fail(const char *what)
{
    fprintf(stderr, "bench: %s (%s)\n", what, strerror(errno));
    exit(1);
}
