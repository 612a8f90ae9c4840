/* The key of the first start: made when the store has none, left in STATE/key (0600) for clients of
 * this machine. */
#ifndef KG_CLI_FIRST_KEY_H
#define KG_CLI_FIRST_KEY_H

#include "gateway/store/store.h"

#define KG_FIRST_KEY_FILE "key"

/* Does nothing when there is any key. */
int kg_first_key(kg_store_t *store, const char *state_dir, kg_err_t *err);

#endif
