/* context: all runs of the daemon, by their ids. As many are kept as clients may still read: a run
 * costs a pointer here and one in itself. */
#ifndef KG_CONTEXT_RUN_TABLE_H
#define KG_CONTEXT_RUN_TABLE_H

#include <stddef.h>

typedef struct kg_run kg_run_t;

/* All zeros is an empty one; what it holds goes with the last run. */
typedef struct kg_run_table {
    kg_run_t **rows; /* chains by kg_run_t.same_row; a power of two of them, or none yet */
    kg_run_t *few;   /* the only chain while there are no rows */
    size_t rows_len;
    size_t count;
} kg_run_table_t;

/* Borrows it, and its id, until it is removed. Without memory for more rows chains get longer. */
void kg_run_table_add(kg_run_table_t *table, kg_run_t *run);
void kg_run_table_remove(kg_run_table_t *table, kg_run_t *run);           /* which is in it */
kg_run_t *kg_run_table_find(const kg_run_table_t *table, const char *id); /* or NULL */

#endif
