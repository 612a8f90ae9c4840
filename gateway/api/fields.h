/* Field lists of the operation table. For ops.c and openapi.c alone. */
#ifndef KG_API_FIELDS_H
#define KG_API_FIELDS_H

#include "gateway/api/op.h"

extern const kg_field_t kg_fields_sandbox[];      /* the path's {sandbox} alone */
extern const kg_field_t kg_fields_sandbox_post[]; /* … with an idempotency key */
extern const kg_field_t kg_fields_context[];
extern const kg_field_t kg_fields_context_post[];
extern const kg_field_t kg_fields_context_any[]; /* {context} without a sandbox */
extern const kg_field_t kg_fields_run[];
extern const kg_field_t kg_fields_sandboxes_create[];
extern const kg_field_t kg_fields_sandboxes_list[];
extern const kg_field_t kg_fields_sandboxes_update[];
extern const kg_field_t kg_fields_contexts_create[];
extern const kg_field_t kg_fields_contexts_update[];
extern const kg_field_t kg_fields_contexts_complete[];
extern const kg_field_t kg_fields_contexts_inspect[];
extern const kg_field_t kg_fields_contexts_variables[];
extern const kg_field_t kg_fields_run_code[];
extern const kg_field_t kg_fields_runs_list[];
extern const kg_field_t kg_fields_runs_attach[];
extern const kg_field_t kg_fields_runs_input[];
extern const kg_field_t kg_fields_network_log[];
extern const kg_field_t kg_fields_usage[];
extern const kg_field_t kg_fields_exec[];
extern const kg_field_t kg_fields_process[];
extern const kg_field_t kg_fields_processes_input[];
extern const kg_field_t kg_fields_processes_signal[];
extern const kg_field_t kg_fields_processes_resize[];
extern const kg_field_t kg_fields_processes_attach[];
extern const kg_field_t kg_fields_contexts_connect[];
extern const kg_field_t kg_fields_connection[];
extern const kg_field_t kg_fields_expose[];
extern const kg_field_t kg_fields_unexpose[];
extern const kg_field_t kg_fields_fs_read[];
extern const kg_field_t kg_fields_fs_write[];
extern const kg_field_t kg_fields_fs_remove[];
extern const kg_field_t kg_fields_fs_list[];
extern const kg_field_t kg_fields_fs_mkdir[];
extern const kg_field_t kg_fields_fs_move[];
extern const kg_field_t kg_fields_fs_stat[];
extern const kg_field_t kg_fields_fs_watch[];
extern const kg_field_t kg_fields_fs_upload[];
extern const kg_field_t kg_fields_fs_upload_append[];
extern const kg_field_t kg_fields_fs_upload_one[];
extern const kg_field_t kg_fields_template[];
extern const kg_field_t kg_fields_tools_list[];
extern const kg_field_t kg_fields_tools_run_code[];
extern const kg_field_t kg_fields_keys_create[];
extern const kg_field_t kg_fields_keys_delete[];

#endif
