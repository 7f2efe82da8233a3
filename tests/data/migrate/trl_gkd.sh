# generalized knowledge distillation
python trl/experimental/gkd/gkd.py --model_name_or_path model --teacher_model_name_or_path model \
    --dataset_name chat.jsonl --chat_template_path chatml.jinja --learning_rate 2e-5 \
    --per_device_train_batch_size 4 --max_length 128 --max_steps 50 \
    --lmbda 0.7 --beta 0.1 --temperature 1.0 --max_new_tokens 32 \
    --use_peft --load_in_4bit --use_bnb_nested_quant --lora_r 8 --lora_alpha 16 --output_dir gkd-model
