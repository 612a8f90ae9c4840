/* Handlers of the operation table, one file a resource. For ops.c alone. */
#ifndef KG_API_HANDLERS_H
#define KG_API_HANDLERS_H

#include "gateway/api/op.h"

kg_op_fn kg_do_sandboxes_create, kg_do_sandboxes_list, kg_do_sandboxes_get, kg_do_sandboxes_update,
    kg_do_sandboxes_delete;
kg_op_fn kg_do_contexts_create, kg_do_contexts_list, kg_do_contexts_get, kg_do_contexts_update,
    kg_do_contexts_delete, kg_do_contexts_reset, kg_do_contexts_interrupt, kg_do_contexts_complete,
    kg_do_contexts_inspect, kg_do_contexts_variables;
kg_op_fn kg_do_contexts_connect, kg_do_connections_list, kg_do_connections_delete;
kg_op_fn kg_do_run_code, kg_do_runs_list, kg_do_runs_get, kg_do_runs_attach, kg_do_runs_input,
    kg_do_runs_interrupt;
kg_op_fn kg_do_sandboxes_pause, kg_do_sandboxes_resume, kg_do_sandboxes_metrics,
    kg_do_sandboxes_network_log, kg_do_sandboxes_usage, kg_do_usage;
kg_op_fn kg_do_exec, kg_do_processes_list, kg_do_processes_get, kg_do_processes_kill,
    kg_do_processes_input, kg_do_processes_signal, kg_do_processes_resize, kg_do_processes_attach;
kg_op_fn kg_do_fs_read, kg_do_fs_write, kg_do_fs_remove, kg_do_fs_list, kg_do_fs_mkdir,
    kg_do_fs_move, kg_do_fs_stat, kg_do_fs_watch;
kg_op_fn kg_do_fs_upload, kg_do_fs_upload_state, kg_do_fs_upload_append, kg_do_fs_upload_cancel;
kg_op_fn kg_do_templates_list, kg_do_templates_get;
kg_op_fn kg_do_tools_list, kg_do_tools_run_code;
kg_op_fn kg_do_keys_list, kg_do_keys_create, kg_do_keys_delete;
kg_op_fn kg_do_health, kg_do_ready, kg_do_metrics, kg_do_openapi, kg_do_docs;
kg_op_fn kg_do_expose, kg_do_unexpose;
kg_op_fn kg_do_missing; /* 501 */

#endif
