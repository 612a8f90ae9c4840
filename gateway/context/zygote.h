/* Zygotes: processes that have imported everything and fork kernels, each in a hidden sandbox of
 * its template. Sandboxes that are to have such kernels are made below one, by box.c; whatever goes
 * wrong with a zygote, they come to be without it, and say so. One that has ended, or is to end,
 * stays until the last sandbox below it has gone, and the next one is made beside it. Inner header.
 */
#ifndef KG_CONTEXT_ZYGOTE_H
#define KG_CONTEXT_ZYGOTE_H

#include "gateway/context/internal.h"

/* A sandbox that is about to be made and wishes for a zygote gets one in sandbox->zygote, or none,
 * and then its start is spawn. True: it has to wait, and kg_box_zygote_ready goes on with it. */
bool kg_zygote_join(kg_sandbox_t *sandbox);
/* It gets none: its start is spawn from here on. */
void kg_zygote_none(kg_sandbox_t *sandbox);
/* It isn't below it any more, or was not made. Idempotent. */
void kg_zygote_leave(kg_sandbox_t *sandbox);
/* Its id, for the keeper. Borrowed. */
const char *kg_zygote_id(const kg_zygote_t *zygote);
/* A connection over which the sandbox's zygote forks a kernel of this context, the caller's; or -1:
 * it is to be spawned. */
int kg_zygote_dial(const kg_context_t *context);
/* Of templates whose default it is, so that the first create need not wait. */
void kg_zygotes_begin(kg_core_t *core);
bool kg_zygotes_have(const kg_core_t *core, const char *id);
void kg_zygotes_tick(kg_core_t *core); /* each minute: ends those that nobody has used for long */
void kg_zygotes_destroy(kg_core_t *core);

#endif
