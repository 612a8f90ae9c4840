/* Sandboxes that have files and no record: the database is a new one, or of an earlier time. Their
 * files are somebody's work, so each gets a record again, without processes and without a network,
 * of an owner that nobody has a key of before the operator makes one. */
#ifndef KG_CONTEXT_LOST_H
#define KG_CONTEXT_LOST_H

#include "gateway/context/internal.h"

#define KG_LOST_OWNER "recovered"

/* What is said of it goes to the log, as does that it cannot be given a record (no such template or
 * isolation, limits.sandboxes): its files stay, and the next start tries again. */
void kg_lost_take(kg_core_t *core, const kg_listed_t *row);
/* What was disposable and is gone needs no word in the store any more. rows: all that there are. */
void kg_lost_forget(kg_core_t *core, const kg_listed_t *rows, size_t count);

#endif
