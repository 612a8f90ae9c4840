/* Who keeps borrowed bytes, for those that want them for longer than the call that lent them. */
#ifndef KG_BASE_HOLD_H
#define KG_BASE_HOLD_H

/* Public plain data; zeroed = nobody does: they must be copied. Of the loop's thread. */
typedef struct kg_hold {
    void *owner;
    void (*keep)(void *owner); /* once more */
    void (*drop)(void *owner); /* once less; never under the feet of who lent them */
} kg_hold_t;

#endif
