/*
 * known_as.c - options by their names in Hugging Face's Trainer and TRL. The table is only used for errors about
 * unknown keys: the other names are not accepted.
 */
#include "config/options.h"
#include <string.h>

static const struct {
    const char *theirs, *ours;
} names[] = {
    {"adam_beta1", "optimizer.betas"},
    {"adam_beta2", "optimizer.betas"},
    {"adam_epsilon", "optimizer.eps"},
    {"adapter_name_or_path", "adapter.use"},
    {"assistant_only_loss", "data.train_on"},
    {"bf16", "train.precision"},
    {"chat_template", "data.template"},
    {"completion_only_loss", "data.train_on"},
    {"data_seed", "train.seed"},
    {"dataset_name", "data.train"},
    {"eval_dataset", "data.eval"},
    {"eval_steps", "eval.every"},
    {"fp16", "train.precision"},
    {"fsdp", "parallel"},
    {"gradient_accumulation_steps", "train.global_batch, which is cut by train.micro_batch_tokens,"},
    {"gradient_checkpointing", "train.activation_checkpointing"},
    {"learning_rate", "optimizer.lr"},
    {"logging_steps", "`every` of the console, loggers: [{name: console, every: 10}, jsonl],"},
    {"loss_type", "algorithm.loss"},
    {"lr", "optimizer.lr"},
    {"lr_scheduler_type", "schedule.name"},
    {"max_grad_norm", "optimizer.clip_norm"},
    {"max_seq_length", "data.max_length"},
    {"max_seq_len", "data.max_length"},
    {"max_steps", "train.steps"},
    {"model_name_or_path", "model.path"},
    {"num_epochs", "train.epochs"},
    {"num_train_epochs", "train.epochs"},
    {"optim", "optimizer.name"},
    {"output_dir", "out"},
    {"overwrite_output_dir", "overwrite"},
    {"per_device_train_batch_size", "train.global_batch, which counts the samples of all ranks,"},
    {"batch_size", "train.global_batch"},
    {"ref_model", "algorithm.reference_model"},
    {"report_to", "loggers"},
    {"resume_from_checkpoint", "resume"},
    {"run_name", "name"},
    {"save_steps", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep"},
    {"train_dataset", "data.train"},
    {"warmup_ratio", "schedule.warmup_ratio"},
    {"warmup_steps", "schedule.warmup_steps"},
    {"weight_decay", "optimizer.weight_decay"},
};

const char *known_as(const char *word)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i].theirs, word)) return names[i].ours;
    return NULL;
}
