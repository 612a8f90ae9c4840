/* Whether the loop's thread takes a core from who runs there whenever something comes for it.
 *
 * Where cores are free it need not: a kernel that answers sends five or six messages for a short
 * cell, and each would stop one of its threads for as long as the loop looks at it. Under
 * SCHED_BATCH the loop waits until a core is free, which is at once (sched(7)). Where they are
 * taken, that would be a time slice of somebody else's for each message; so what the system says of
 * its tasks' waiting (PSI, Documentation/accounting/psi.rst) decides. */
#ifndef KG_LOOP_MANNERS_H
#define KG_LOOP_MANNERS_H

#include <stdbool.h>
#include <stdint.h>

#define KG_MANNERS_FILE "/proc/pressure/cpu"
/* Share of the time, in thousandths, that some task has waited for a core: below the first the loop
 * gives way, above the second it does not, between them it goes on as it did. */
#define KG_MANNERS_FREE 250U
#define KG_MANNERS_TAKEN 350U

typedef struct kg_manners {
    int fd; /* of the file; -1: nothing is ever changed */
    uint64_t total_us;
    uint64_t at_ns; /* of total_us; 0 = never looked */
    bool gives_way;
} kg_manners_t;

/* For the calling thread. Does nothing, now and later, where the system tells no pressure, or the
 * thread has another policy than the usual one already (an operator's choice). */
void kg_manners_init(kg_manners_t *manners, const char *file);
/* From the same thread, about once a second. */
void kg_manners_look(kg_manners_t *manners, uint64_t now_ns);
void kg_manners_fini(kg_manners_t *manners); /* back to the usual policy */

/* Pure: gives_way for the next second. */
bool kg_manners_next(bool gives_way, uint64_t waited_us, uint64_t passed_ns);
/* Pure: the number after "some … total=" in text. */
bool kg_manners_parse(const char *text, uint64_t *ret_total_us);

#endif
