/* When the store of volumes is trimmed: some time after sandboxes were deleted, and never without.
 * Plain data and arithmetic; the clock is the caller's (kg_now_ns). */
#ifndef KG_SANDBOX_TRIM_TIMER_H
#define KG_SANDBOX_TRIM_TIMER_H

#include <stdbool.h>
#include <stdint.h>

#include "gateway/base/clock.h"

#define KG_TRIM_NEVER UINT64_MAX
/* After the last delete. A btrfs commits each 30 s, and comes to what was deleted then. */
#define KG_TRIM_QUIET_NS (40 * KG_NS_PER_S)
#define KG_TRIM_LATEST_NS (120 * KG_NS_PER_S) /* after the first, though more follow */
#define KG_TRIM_AGAIN_NS (60 * KG_NS_PER_S)   /* while deleted volumes wait */
#define KG_TRIM_AGAIN_MAX 30U                 /* trims that no delete has asked for */

/* All zero: nothing was deleted yet. */
typedef struct kg_trim_timer {
    uint64_t first_ns; /* of the deletes since the last trim began; 0 = none */
    uint64_t last_ns;
    uint64_t again_ns; /* 0 = not once more */
    unsigned again;    /* trims one after the other without a delete */
    bool at_work;
    bool refused;
} kg_trim_timer_t;

void kg_trim_deleted(kg_trim_timer_t *t, uint64_t now_ns);
/* When to begin the next one; KG_TRIM_NEVER: there is nothing to do, or one is at work. */
uint64_t kg_trim_due(const kg_trim_timer_t *t);
/* One begins. What is deleted from now on is for the next one. */
void kg_trim_begun(kg_trim_timer_t *t);
/* It is over. more: what was deleted is not all given back yet. */
void kg_trim_ended(kg_trim_timer_t *t, uint64_t now_ns, bool more);
/* It can't be done here: never again. */
void kg_trim_refused(kg_trim_timer_t *t);
/* Whether an error (-errno) of a trim says that. Others, of a full disk or of memory, pass. */
bool kg_trim_is_refusal(int error);

#endif
