/* Remembered answers: a POST with an idempotency key is done once, and whoever asks again gets the
 * same answer. Bounded by count, bytes and age; the oldest go first. Failures are not remembered:
 * they left everything as it was. */
#ifndef KG_API_IDEM_H
#define KG_API_IDEM_H

#include "gateway/api/call.h"
#include "gateway/base/clock.h"

typedef struct kg_idem kg_idem_t;

int kg_idem_create(const kg_clock_t *clock, kg_idem_t **ret_idem);
void kg_idem_destroy(kg_idem_t **idem); /* NULL ok; NULLs the pointer */

typedef enum kg_idem_state {
    KG_IDEM_NEW, /* call does it; call->idem is set: kg_idem_done or kg_idem_failed must follow */
    KG_IDEM_WAITING, /* another call is at it: this one is answered with it */
    KG_IDEM_KNOWN,   /* *ret_answer (borrowed until the next call) is the answer */
    KG_IDEM_REFUSED  /* err says why: key_reused, conflict, out_of_memory */
} kg_idem_state_t;

/* key: the one of call->args. The sandbox that the call names is part of the key's realm, as are
 * owner and operation. */
kg_idem_state_t kg_idem_begin(
    kg_idem_t *idem, kg_call_t *call, const char *key, kg_answer_t *ret_answer, kg_err_t *err);
/* Ends call's turn. Each call that waited for it is given to each, and is no longer waiting. */
typedef void kg_idem_waiter_fn(kg_call_t *waiter, void *user);
void kg_idem_done(kg_idem_t *idem,
                  kg_call_t *call,
                  const kg_answer_t *answer,
                  kg_idem_waiter_fn *each,
                  void *user);
void kg_idem_failed(kg_idem_t *idem, kg_call_t *call, kg_idem_waiter_fn *each, void *user);
/* A waiting call goes away. */
void kg_idem_leave(kg_call_t *call);
size_t kg_idem_count(const kg_idem_t *idem);

#endif
