/*
 * record_names.c - see record_names.h.
 */
#include "base/record_names.h"

/* clang-format off */
const char *const record_names[RECORD_N_NAMES] = {
    "step", "time", "loss", "grad_norm", "lr", "epoch", "tokens", "tokens_per_s", "mfu", "mem_bytes",
    "mem_total_bytes", "data_fraction", "comm_fraction", "comm_bytes", "comm_messages", "loss_scale", "overflows",
    "save_s", "save_stall_s", "save_snapshot_s", "step_s", "data_s", "comm_s", "samples_per_s", "grad_norm_mean", "cpu_percent",
    "host_mem_bytes", "host_mem_percent", "device_mem_bytes", "device_mem_reserved_bytes", "device_mem_peak_bytes",
    "device_percent", "tensor_mem_bytes", "heap_mem_bytes", "update_norm", "param_norm", "rank_work_s_min",
    "rank_work_s_mean", "rank_work_s_max", "rank_wait_s_min", "rank_wait_s_mean", "rank_wait_s_max", "eval_loss",
    "eval_tokens", "eval_seconds", "exported_step", "finished_step"};
/* clang-format on */
