/* `sandald doctor`: what is to be said of a host. Pure, but for printing. */
#ifndef KG_CLI_DOCTOR_H
#define KG_CLI_DOCTOR_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "gateway/sandbox/keeper_proto.h"

#define KG_DOCTOR_LINES_MAX 48

typedef enum kg_finding {
    KG_FINDING_OK,
    KG_FINDING_LIMITED,
    KG_FINDING_NO,
} kg_finding_t;

typedef struct kg_doctor_line {
    kg_finding_t finding;
    char name[32];
    char detail[256];
    char remedy[256]; /* what to change; "" = nothing */
} kg_doctor_line_t;

/* Zero-initialised is empty. */
typedef struct kg_doctor {
    bool is_root;
    bool good;                          /* sandboxes without a wish of their own get an isolation */
    char isolation[KG_KP_LAUNCHER_MAX]; /* which, or "" */
    kg_doctor_line_t lines[KG_DOCTOR_LINES_MAX];
    size_t count;
} kg_doctor_t;

/* NULL when there is no room. */
kg_doctor_line_t *kg_doctor_add(kg_doctor_t *doctor, kg_finding_t finding, const char *name);
/* Likewise, with what helps where it isn't fine. */
void kg_doctor_say(kg_doctor_t *doctor, kg_finding_t finding, const char *name, const char *detail);
/* By trying, in a child: an overlay as this user mounts one; `criu check`. */
void kg_doctor_overlay(kg_doctor_t *doctor);
void kg_doctor_checkpoint(kg_doctor_t *doctor);
/* wish, least: the configuration's isolation and isolation_min. Sets good and isolation. */
void kg_doctor_launchers(kg_doctor_t *doctor,
                         const kg_kp_launchers_reply_t *table,
                         const char *wish,
                         const char *least);
void kg_doctor_features(kg_doctor_t *doctor, const kg_kp_features_reply_t *table);
void kg_doctor_print(const kg_doctor_t *doctor, FILE *out);
json_t *kg_doctor_json(const kg_doctor_t *doctor); /* NULL without memory */

#endif
