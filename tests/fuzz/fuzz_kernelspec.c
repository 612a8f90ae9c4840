/* kernel.json of a template: parsed, and made into what would be spawned. */
#include "gateway/kernel/internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    kg_kernelspec_t *spec = NULL;
    kg_err_t err = {0};
    if (kg_kernelspec_parse("fuzz", kg_slice((const char *)data, size), &spec, &err) < 0) {
        return 0;
    }
    static const char *const env[] = {"PATH=/bin", "A={prefix}${A}", NULL};
    const kg_kernel_opts_t opts = {
        .spec = spec, .prefix = "/p", .resource_dir = "{prefix}", .env = env};
    kg_spawn_plan_t *plan = NULL;
    if (kg_spawn_plan_make(&opts, "/run/k.json", &plan, &err) == 0) {
        kg_spawn_plan_destroy(&plan);
    }
    kg_kernelspec_destroy(&spec);
    return 0;
}
