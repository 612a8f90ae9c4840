/* gateway/view: long requests are parsed on a worker. The job owns its copy of the text and
 * outlives who asked for it. */
#include "gateway/view/parse.h"

#include <stdlib.h>

#include "gateway/api/validate.h"

struct kg_parse {
    kg_buf_t text;
    size_t cap;
    json_t *object;
    kg_err_t err;
    kg_parse_fn *done; /* NULL: forgotten */
    void *user;
};

static void work(void *user)
{
    kg_parse_t *p = user;
    (void)kg_json_object_parse(kg_buf_slice(&p->text), p->cap, &p->object, &p->err);
}

static void finished(void *user)
{
    kg_parse_t *p = user;
    if (p->done) {
        p->done(p->user, p->object, kg_buf_slice(&p->text), &p->err);
    } else {
        json_decref(p->object);
    }
    kg_buf_fini(&p->text);
    free(p);
}

void kg_parse_start(kg_workq_t *queue,
                    kg_slice_t text,
                    size_t cap,
                    kg_parse_fn *done,
                    void *user,
                    kg_parse_t **ret_parse)
{
    *ret_parse = NULL;
    if (text.len <= KG_PARSE_INLINE || text.len > cap) {
        kg_err_t err = {0};
        json_t *object = NULL;
        (void)kg_json_object_parse(text, cap, &object, &err);
        done(user, object, text, &err);
        return;
    }
    kg_parse_t *p = calloc(1, sizeof *p);
    if (p) {
        *p = (kg_parse_t){.cap = cap, .done = done, .user = user};
    }
    if (!p || kg_buf_append_slice(&p->text, text) < 0 ||
        kg_workq_submit(queue, work, finished, p) < 0) {
        kg_err_t err = {0};
        kg_err_set(&err, KG_ERR_OUT_OF_MEMORY, "No memory for this request.");
        if (p) {
            kg_buf_fini(&p->text);
            free(p);
        }
        done(user, NULL, text, &err);
        return;
    }
    *ret_parse = p;
}

void kg_parse_forget(kg_parse_t **parse)
{
    kg_parse_t *p = KG_TAKE(*parse);
    if (p) {
        p->done = NULL;
    }
}
