/* Bounds of what a client may send. The core has its own, mostly lower and configurable. */
#ifndef KG_API_LIMITS_H
#define KG_API_LIMITS_H

#include <stdint.h>

#define KG_API_REF_MAX 128                 /* an id or a name where an object is named */
#define KG_API_KEY_MAX 128                 /* an idempotency key */
#define KG_API_CODE_MAX INT64_C(67108864)  /* bytes of code in one request */
#define KG_API_FILE_MAX (INT64_C(1) << 40) /* bytes of one file or upload */
#define KG_API_FILE_MAX_TEXT "1099511627776"
#define KG_API_FILE_FRAME INT64_C(4194304)   /* bytes of a file in one WebSocket frame */
#define KG_API_SECONDS_MAX INT64_C(31622400) /* idle sandboxes: a year */
#define KG_API_IDEM_MAX 4096                 /* remembered answers */
#define KG_API_IDEM_BYTES 8388608U
#define KG_API_IDEM_S 86400
#define KG_API_PENDING_MAX 16384 /* calls that wait for the core, all clients together */

#endif
