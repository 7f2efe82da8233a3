trl sft --model_name_or_path model --dataset_name text.jsonl --dataset_streaming --num_train_epochs 1 \
    --per_device_train_batch_size 4 --learning_rate 1e-5 --output_dir runs/stream
