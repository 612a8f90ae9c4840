/* What clients write about files in headers and parameters, as pure functions. */
#ifndef KG_API_FS_PARSE_H
#define KG_API_FS_PARSE_H

#include <stdint.h>

#include "gateway/base/buf.h"
#include "gateway/base/err.h"

/* A Range header against a size that is known. 1: *ret_first and *ret_length (> 0) of the one range
 * it asks for; 0: none of what is understood here (other units, several ranges, malformed), to be
 * answered with all; -ERANGE: it lies outside. Positions may have any number of digits. */
int kg_range_parse(const char *text, uint64_t size, uint64_t *ret_first, uint64_t *ret_length);
/* Whether an If-None-Match list names the tag; weak tags compare as strong ones. "*" does. */
bool kg_etag_listed(const char *list, const char *etag);
/* Whether an If-Match list names it: weak tags in the list match nothing. "*" does. */
bool kg_etag_listed_strong(const char *list, const char *etag);
/* RFC 9110's preferred form: "Sun, 06 Nov 1994 08:49:37 GMT". -EINVAL. */
int kg_http_date_parse(const char *text, int64_t *ret_s);
#define KG_HTTP_DATE_MAX 40
void kg_http_date_format(int64_t s, char ret[KG_HTTP_DATE_MAX]);
/* Permission bits: one to four octal digits, perhaps after "0o". -EINVAL. */
int kg_mode_parse(const char *text, uint32_t *ret_mode);
/* Base64, standard or for URLs, padded or not. -EINVAL, -ENOMEM. */
int kg_base64_decode(const char *text, size_t len, kg_buf_t *out);
int kg_base64_encode(const void *data, size_t len, kg_buf_t *out);
/* A whole Upload-Metadata header: pairs "key base64" with commas between; keys are unique ASCII
 * without spaces and commas, values may be left out. invalid_request with pointer
 * "/upload_metadata". */
int kg_tus_metadata_check(const char *text, kg_err_t *err);
/* The value of one key of a checked header, decoded. false: it isn't there. */
bool kg_tus_metadata_get(const char *text, const char *key, kg_buf_t *out);

#endif
