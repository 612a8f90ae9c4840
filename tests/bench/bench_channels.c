/* bench_channels HOST PORT TOKEN KERNEL PROTOCOL ROUNDS CHECK CODE: the rounds of bench_direct over
 * a kernel's channels, of this gateway or of a Jupyter server. PROTOCOL is v1 or legacy. CHECK is
 * none or lines:N, as bench_ws has it. Of a round with a stamped message (bench_stamp_age_ns) that
 * one's age counts. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/bench/bench.h"
#include "tests/bench/channels.h"

typedef struct round {
    channels_t channels;
    uint64_t messages;
    uint64_t output_ns; /* when the last output came */
    uint64_t age_ns;
    bool check;
    uint64_t want;
    bench_lines_t lines;
} round_t;

static void take_output(round_t *r, const heard_t *heard)
{
    if (kg_slice_eq_cstr(heard->type, "\"stream\"")) {
        kg_slice_t text = kg_json_get(heard->content, "text").raw;
        r->output_ns = bench_now_ns();
        if (r->check && text.len >= 2) {
            bench_lines_take(&r->lines, kg_slice(text.data + 1, text.len - 2), false);
        }
    }
    uint64_t age_ns = bench_stamp_age_ns(heard->msg.buffers, heard->msg.buffer_count);
    r->age_ns = age_ns ? age_ns : r->age_ns;
}

static void run(round_t *r, const char *code)
{
    char id[CHANNELS_ID_MAX];
    heard_t heard;
    bool reply = false;
    bool idle = false;
    r->lines = (bench_lines_t){0};
    channels_execute(&r->channels, code, id);
    while (!reply || !idle) {
        channels_receive(&r->channels, &heard);
        if (!kg_slice_eq_cstr(heard.parent_id, id)) {
            continue;
        }
        r->messages++;
        reply |= heard_reply(&heard);
        idle |= heard_idle(&heard);
        take_output(r, &heard);
    }
    if (r->check && r->lines.got != r->want) {
        fprintf(stderr, "wanted %llu, got %llu\n", (unsigned long long)r->want,
                (unsigned long long)r->lines.got);
        bench_fail("output was lost");
    }
}

int main(int argc, char **argv)
{
    if (argc != 9) {
        fprintf(stderr,
                "usage: bench_channels HOST PORT TOKEN KERNEL PROTOCOL ROUNDS CHECK CODE\n");
        return 2;
    }
    round_t r = {0};
    size_t rounds = strtoul(argv[6], NULL, 10);
    uint64_t *ns = calloc(rounds + 1, sizeof(*ns));
    if (strncmp(argv[7], "lines:", 6) == 0) {
        r.check = true;
        r.want = strtoull(argv[7] + 6, NULL, 10);
    }
    channels_open(&r.channels, argv[1], argv[2], argv[3], argv[4], argv[5]);
    if (rounds > 1) {
        for (size_t i = 0; i < 10; i++) {
            run(&r, argv[8]);
        }
    }
    r.messages = r.channels.ws.bytes = r.age_ns = 0;
    uint64_t begin = bench_now_ns();
    for (size_t i = 0; i < rounds; i++) {
        bench_pause();
        uint64_t start = bench_now_ns();
        run(&r, argv[8]);
        ns[i] = r.age_ns ? r.age_ns : bench_now_ns() - start;
    }
    uint64_t end = bench_now_ns();
    bench_report(ns, rounds, end - begin, (r.output_ns ? r.output_ns : end) - begin, r.messages,
                 r.channels.ws.bytes);
    channels_close(&r.channels);
    free(ns);
    return 0;
}
