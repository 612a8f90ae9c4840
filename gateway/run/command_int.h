/* Inner header of command.c: what recovery needs of it. */
#ifndef KG_RUN_COMMAND_INT_H
#define KG_RUN_COMMAND_INT_H

#include "gateway/run/command.h"
#include "gateway/run/mapper_int.h"

int kg_log_append_command_end(kg_run_log_t *log, const kg_command_end_t *end);

#endif
