/* gateway/context: input(). A kernel that asks is answered from the run's own lines, else by a
 * client, else the run is ended: it never waits for nobody. */
#include <string.h>

#include "gateway/base/log.h"
#include "gateway/context/attach_internal.h"

static void answer(kg_run_t *run, kg_slice_t value, kg_slice_t header)
{
    int rc =
        run->inc && run->inc->kernel ? kg_kernel_input_reply(run->inc->kernel, value, header) : 0;
    if (rc) {
        kg_log(KG_LOG_WARN, "run.input", "run=%s error=%d", run->id, -rc);
    }
}

/* As a terminal says it: ipykernel's input() raises EOFError, which code may catch. false: not in
 * this language. */
static bool end_of_file(kg_run_t *run, kg_slice_t header)
{
    if (!run->context || strcmp(run->context->lang->name, "python") != 0) {
        return false;
    }
    answer(run, kg_slice_cstr("\x04"), header);
    return true;
}

static void on_input(void *user, kg_slice_t prompt, bool password, kg_slice_t request_header)
{
    kg_run_t *run = user;
    if (run->ended) {
        return;
    }
    json_t *line = run->live->lines ? json_array_get(run->live->lines, run->live->line) : NULL;
    if (line) {
        run->live->line++;
        answer(run, kg_slice(json_string_value(line), json_string_length(line)), request_header);
        return;
    }
    if (!run->live->input_wait && end_of_file(run, request_header)) {
        return;
    }
    kg_buf_clear(&run->live->input_header);
    if (!run->live->input_wait || kg_buf_append_slice(&run->live->input_header, request_header)) {
        kg_run_stop(run, KG_CAUSE_INPUT);
        return;
    }
    (void)kg_mapper_input(run->mapper, prompt, password);
    kg_run_client_waits(run);
}

void kg_run_input_left(kg_run_t *run)
{
    KG_AUTO_BUF kg_buf_t header = run->live->input_header;
    run->live->input_header = (kg_buf_t){0};
    if (!run->ended && header.len > 0 && !end_of_file(run, kg_buf_slice(&header))) {
        kg_run_stop(run, KG_CAUSE_INPUT);
    }
}

static void on_stop(void *user, kg_cut_t what)
{
    (void)what;
    kg_run_stop(user, KG_CAUSE_LIMIT);
}

const kg_mapper_sink_t *kg_run_mapper_sink(kg_run_t *run, kg_mapper_sink_t *sink)
{
    *sink = (kg_mapper_sink_t){.input = on_input, .stop = on_stop, .user = run};
    return sink;
}

int kg_run_input(kg_run_t *run, kg_slice_t value, kg_err_t *err)
{
    if (run->ended || !run->live->input_header.len) {
        return kg_err_set(err, KG_ERR_NOT_WAITING, "run %s does not wait for input", run->id);
    }
    kg_buf_t header = run->live->input_header;
    run->live->input_header = (kg_buf_t){0};
    answer(run, value, kg_buf_slice(&header));
    kg_buf_fini(&header);
    if (run->sandbox) {
        kg_sandbox_touch(run->sandbox);
    }
    return 0;
}
