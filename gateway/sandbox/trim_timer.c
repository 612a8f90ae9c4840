/* A few times and what follows from them. Pure. */
#include "gateway/sandbox/trim_timer.h"

#include <errno.h>

void kg_trim_deleted(kg_trim_timer_t *t, uint64_t now_ns)
{
    t->first_ns = t->first_ns == 0 ? now_ns : t->first_ns;
    t->last_ns = now_ns;
}

uint64_t kg_trim_due(const kg_trim_timer_t *t)
{
    uint64_t due = KG_TRIM_NEVER;

    if (t->refused || t->at_work) {
        return due;
    }
    if (t->first_ns != 0) {
        uint64_t quiet = t->last_ns + KG_TRIM_QUIET_NS;
        uint64_t latest = t->first_ns + KG_TRIM_LATEST_NS;
        due = quiet < latest ? quiet : latest;
    }
    return t->again_ns != 0 && t->again_ns < due ? t->again_ns : due;
}

void kg_trim_begun(kg_trim_timer_t *t)
{
    t->again = t->first_ns != 0 ? 0 : t->again + 1;
    t->first_ns = 0;
    t->again_ns = 0;
    t->at_work = true;
}

void kg_trim_ended(kg_trim_timer_t *t, uint64_t now_ns, bool more)
{
    t->at_work = false;
    t->again_ns = more && t->again < KG_TRIM_AGAIN_MAX ? now_ns + KG_TRIM_AGAIN_NS : 0;
}

void kg_trim_refused(kg_trim_timer_t *t)
{
    t->at_work = false;
    t->refused = true;
}

bool kg_trim_is_refusal(int error)
{
    return error == -EOPNOTSUPP || error == -ENOTTY || error == -ENOSYS || error == -EINVAL ||
           error == -EPERM || error == -EACCES || error == -EROFS;
}
