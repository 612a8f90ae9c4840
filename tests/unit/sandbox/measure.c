/* Figures of the sandbox room: p50 and p99 of create, destroy and spawn, memory of the helpers. For
 * hand use: SANDAL_BUILD_DIR=build build/tests/unit/sandbox/measure_sandbox [ROUNDS] */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gateway/base/clock.h"
#include "tests/unit/sandbox/harness.h"

typedef struct kg_series {
    const char *name;
    size_t count;
    uint64_t ns[2000];
} kg_series_t;

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a;
    uint64_t y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

static void add(kg_series_t *s, uint64_t since_ns)
{
    s->ns[s->count++] = kg_now_ns() - since_ns;
}

static void print(kg_series_t *s)
{
    qsort(s->ns, s->count, sizeof(s->ns[0]), compare);
    (void)printf("%-28s p50 %.2f ms  p99 %.2f ms  (n=%zu)\n", s->name,
                 (double)s->ns[s->count / 2] / 1e6, (double)s->ns[s->count * 99 / 100] / 1e6,
                 s->count);
}

int main(int argc, char **argv)
{
    static kg_harness_t h;
    static kg_series_t create = {.name = "create (none)"};
    static kg_series_t spawn = {.name = "spawn of true"};
    static kg_series_t end = {.name = "spawn to exit of true"};
    static kg_series_t destroy = {.name = "destroy, nothing running"};
    const char *program[] = {"/bin/true", NULL};
    kg_spawn_opts_t opts = {.argv = program};
    long rounds = argc > 1 ? strtol(argv[1], NULL, 10) : 200;

    rounds = rounds < 1 || rounds > 2000 ? 200 : rounds;
    harness_init(&h);
    harness_start(&h);
    for (long i = 0; i < rounds; i++) {
        uint64_t at = kg_now_ns();
        kg_sbx_t *sbx = harness_sandbox(&h, "sbx-tests000000000000001");
        add(&create, at);
        at = kg_now_ns();
        kg_answer_t a = harness_spawn_opts(&h, sbx, &opts);
        add(&spawn, at);
        (void)harness_exit(&h, a.proc);
        add(&end, at);
        kg_proc_close(&a.proc);
        if (i == rounds - 1) {
            (void)printf("RSS: keeper %llu KiB, init %llu KiB\n",
                         (unsigned long long)harness_rss_kib(h.keeper_pid),
                         (unsigned long long)harness_rss_kib(kg_sbx_info(sbx)->init_pid));
        }
        at = kg_now_ns();
        harness_destroy(&h, &sbx, false);
        add(&destroy, at);
    }
    print(&create);
    print(&spawn);
    print(&end);
    print(&destroy);
    harness_stop(&h);
    harness_fini(&h);
    return 0;
}
