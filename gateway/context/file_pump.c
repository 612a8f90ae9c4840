/* gateway/context: from whoever sends to a file: one piece is written while the next one comes. */
#include <errno.h>
#include <string.h>

#include "gateway/context/files_priv.h"

static void written(void *user, ssize_t rc, kg_buf_t *bytes);

static void finish(kg_pump_t *pump, const kg_err_t *err)
{
    pump->running = false;
    pump->done(pump->user, err);
}

static void finish_rc(kg_pump_t *pump, int rc)
{
    kg_err_t err = {0};
    if (rc == -ENOSPC || rc == -EDQUOT || rc == -EFBIG) {
        (void)kg_err_set(&err, KG_ERR_STORAGE_FULL, "The sandbox's disk is full.");
    } else if (rc == -ENOMEM) {
        (void)kg_oom(&err);
    } else {
        (void)kg_err_set(&err, KG_ERR_INTERNAL, "The file cannot be written: %s.",
                         strerrordesc_np(-rc));
    }
    finish(pump, &err);
}

void kg_pump_more(kg_pump_t *pump)
{
    if (!pump->running || pump->job) {
        return;
    }
    if (!pump->end) {
        pump->intake.take(pump->intake.user, &pump->buf, &pump->end);
    } else {
        kg_buf_clear(&pump->buf);
    }
    if (pump->buf.len > pump->max - pump->offset) {
        kg_err_t err = {0};
        (void)kg_err_set(&err, KG_ERR_TOO_LARGE, "More bytes came than were announced.");
        finish(pump, &err);
    } else if (pump->buf.len > 0) {
        uint64_t offset = pump->offset;
        size_t len = pump->buf.len;
        int rc = kg_io_write(pump->io, offset, &pump->buf, written, pump, &pump->job);
        if (rc < 0) {
            finish_rc(pump, rc);
            return;
        }
        pump->writing = len;
    } else if (pump->end) {
        finish(pump, NULL);
    }
}

static void written(void *user, ssize_t rc, kg_buf_t *bytes)
{
    kg_pump_t *pump = user;
    if (rc < 0) {
        finish_rc(pump, (int)rc);
        return;
    }
    pump->offset += pump->writing;
    kg_buf_fini(&pump->buf);
    pump->buf = *bytes; /* its memory, for the next piece */
    *bytes = (kg_buf_t){0};
    if (pump->moved) {
        pump->moved(pump->user);
    }
    kg_pump_more(pump);
}

void kg_pump_start(kg_pump_t *pump)
{
    pump->running = true;
    pump->end = false;
    kg_pump_more(pump);
}

void kg_pump_stop(kg_pump_t *pump)
{
    pump->running = false;
    kg_io_forget(&pump->job);
}

void kg_pump_fini(kg_pump_t *pump)
{
    kg_pump_stop(pump);
    kg_buf_fini(&pump->buf);
}
