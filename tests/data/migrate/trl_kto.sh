#!/bin/bash
# a job script: only its one command counts
export WANDB_PROJECT=kto
CUDA_VISIBLE_DEVICES=0,1 accelerate launch --num_processes 2 trl/scripts/kto.py \
    --dataset_name labels.jsonl --model_name_or_path=model \
    --per_device_train_batch_size 4 --num_train_epochs 1 \
    --learning_rate 5e-7 --lr_scheduler_type=cosine --gradient_accumulation_steps 1 \
    --logging_steps 10 --eval_steps 500 --output_dir=runs/kto --warmup_ratio 0.1 \
    --desirable_weight 1.33 --bf16 --use_peft --lora_target_modules q_proj v_proj --lora_r=16 --lora_alpha=16
