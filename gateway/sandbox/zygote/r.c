/* For R's .C(), which gives pointers to the elements of vectors and takes nothing back: so a
 * process that was asked for is a vector of bytes there. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "gateway/sandbox/zygote/zygote.h"

/* R names temporary files by rand(), which goes on where the zygote's was. */
static void seed(void)
{
    unsigned value = 0;
    if (getrandom(&value, sizeof(value), 0) == (ssize_t)sizeof(value)) {
        srand(value);
    }
}

static int count(const char *(*get)(const sandal_forked_t *, unsigned),
                 const sandal_forked_t *forked)
{
    unsigned n = 0;
    while (get(forked, n)) {
        n++;
    }
    return (int)n;
}

void sandal_zygote_r_serve(char **path,
                           int *ret_error,
                           sandal_forked_t **ret_forked,
                           int *ret_counts)
{
    sandal_forked_t *forked = NULL;

    *ret_error = sandal_zygote_serve(path[0], &forked);
    if (*ret_error == 0) {
        seed();
        *ret_forked = forked;
        ret_counts[0] = count(sandal_zygote_arg, forked);
        ret_counts[1] = count(sandal_zygote_env, forked);
    }
}

/* R copies what the elements point to when this returns. */
static void fill(const char *(*get)(const sandal_forked_t *, unsigned),
                 const sandal_forked_t *forked,
                 char **ret)
{
    const char *text = NULL;
    for (unsigned i = 0; (text = get(forked, i)); i++) {
        ret[i] = (char *)(uintptr_t)text;
    }
}

void sandal_zygote_r_strings(sandal_forked_t *const *forked, char **ret_args, char **ret_env)
{
    fill(sandal_zygote_arg, *forked, ret_args);
    fill(sandal_zygote_env, *forked, ret_env);
}

void sandal_zygote_r_exec(sandal_forked_t *const *forked)
{
    (void)sandal_zygote_exec(*forked);
}

void sandal_zygote_r_arguments(const int *count_of, char **args)
{
    void (*set)(int, char **) = NULL;
    void *found = dlsym(RTLD_DEFAULT, "R_set_command_line_arguments"); /* libR's, which copies */

    memcpy((void *)&set, (const void *)&found, sizeof(set));
    if (set) {
        set(*count_of, args);
    }
}
