/* The kinds of isolation by name: which is better, and what is the least that a client may ask for.
 */
#ifndef KG_BASE_ISOLATION_H
#define KG_BASE_ISOLATION_H

/* 0 = none; higher isolates better, equal is as good; -1 = no such kind. */
int kg_isolation_rank(const char *kind);
/* The weakest kind that a client may ask for. least: the operator's word, NULL = unsaid; then it is
 * `process`, and `none` only where the daemon's own default (NULL = the best there is) is none. */
const char *kg_isolation_floor(const char *least, const char *default_kind);

#endif
