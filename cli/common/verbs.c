/*
 * verbs.c - the verbs as `nrl help` shows them, one row each: those of the program itself (cli/main.c)
 * and those that are programs of their own (tools/VERB).
 */
#include "cli/common/cli.h"
#include <stdio.h>
#include <string.h>

const cli_verb cli_verbs[] = {
    {"init",
     "[FILE.yaml] [--model DIR] [--data PATH]\n"
     "         [--eval PATH|SHARE|none] [--train all|lora] [--out DIR]\n"
     "         [--columns MAP] [--memory SIZE] [--overwrite]",
     "init run.yaml", "write a config for your data",
     "Looks at the model and the data, and writes a commented config (default:\n"
     "run.yaml) that `nrl check` accepts: the algorithm follows from the shape of the\n"
     "rows, max_length from their lengths, activation checkpointing from the memory of\n"
     "this machine. Asks what flags do not answer; with --model and --data nothing.\n"
     "--eval: a file, a share of the rows such as 5%, or none. --columns: the names of\n"
     "keys, such as '{prompt: question, completion: answer}'. --memory: what a run\n"
     "may use, such as 24GiB (default: 90 % of what is free here if the CPU trains)."},
    {"run", "FILE [key=value ...] [-q | -v] [--frontend NAME]", "run scripts/sft.lua optimizer.lr=5e-6",
     "train from a script or a YAML file",
     "FILE.yaml is a config, FILE.lua a script that builds one; --frontend names the\n"
     "plugin that runs a script with another file name. key=value sets any option\n"
     "of the config; `nrl describe` lists them. data.train=- reads rows, JSON lines,\n"
     "from the standard input and keeps them in data.cache, else in ~/.cache/nrl.\n"
     "-q (--quiet) prints warnings and errors only, -v (--verbose) also the config\n"
     "with all defaults. With any verb,\n"
     "--no-scripts runs no script, and --no-plugins-from-config opens no plugin from a\n"
     "directory that a config names: use them for untrusted files."},
    {"check", "FILE [--sample N] [--full] [-q | -v] [--json] [key=value ...]", "check configs/sft.yaml",
     "find all mistakes, train nothing",
     "Checks everything that needs no device: options, plugins, files, rows, memory;\n"
     "also for a script. --sample prints N samples with their trained tokens between\n"
     "brackets, --full without a limit of their length. --json prints the plan of the\n"
     "run as JSON. -q and -v as for `nrl run`."},
    {"launch",
     "-n N [--nodes HOST:SLOTS,...|MIN:MAX | --hostfile FILE]\n"
     "           [--node-rank K] [--address A] [--port P] [--store ADDRESS]\n"
     "           [--grace SECONDS] [--max-restarts K] [--join-wait SECONDS]\n"
     "           -- run FILE [key=value ...]",
     "launch -n 2 -- run configs/sft.yaml", "train with several processes",
     "With several machines, run the same command on each; --node-rank K, from 0,\n"
     "identifies the machine if its addresses do not. --address and --port are\n"
     "those of rank 0; --store is the address of a store that already exists, in any\n"
     "form that a plugin of stores/ serves (/shared/dir). --grace: time for the\n"
     "other ranks to end after a rank fails (default 10 seconds), and for all ranks\n"
     "after a signal (default: until their state is saved). A second SIGINT or\n"
     "SIGTERM ends all of them at once. --max-restarts: how often all ranks start\n"
     "again, from the newest checkpoint, after a rank is lost (default 0). With\n"
     "--nodes MIN:MAX each start has the machines that find each other at --address,\n"
     "--join-wait seconds (default 30) after MIN of them are there.\n"
     "Ranks authenticate with a secret: nrl launch creates one or, for several\n"
     "machines, reads it from the file NRL_JOB_SECRET_FILE, which must have mode 600."},
    {
        "cluster",
        "script|submit FILE.yaml [key=value ...] [--json]\n"
        "         nrl cluster status|cancel FILE.yaml [--json]\n"
        "         nrl cluster logs FILE.yaml [--follow]\n"
        "         nrl cluster autoscaler FILE.yaml\n"
        "         nrl cluster keys",
        "cluster submit run.yaml",
        "a run as a job of Slurm, Kubernetes or Ray",
        "The section `cluster` of FILE describes the job; `nrl cluster keys` lists its\n"
        "keys. script prints the batch script of Slurm, the manifest of Kubernetes or the\n"
        "driver for Ray; submit hands it in. Before its time limit a job of Slurm saves\n"
        "the state of the run and is queued again; it continues from the newest\n"
        "checkpoint. autoscaler prints a file for `ray up` that starts the machines.",
    },
    {"resume", "DIR [-q | -v] [key=value ...]", "resume runs/sft", "continue from a checkpoint",
     "key=value changes an option: train.steps=2000 trains longer. An option that\n"
     "changes the numbers (data, loss, optimizer, schedule; see `nrl describe`)\n"
     "must equal the checkpoint's, unless checkpoint.mismatch=warn."},
    {"eval",
     "FILE.yaml|RUN [key=value ...] [--json]\n"
     "         nrl eval SRC --task [FORMAT=]FILE ... [--shots N --examples FILE]\n"
     "           [--limit N] [--max-tokens N] [--rows FILE] [--json]\n"
     "         nrl eval SRC --text FILE [--window N] [--json]\n"
     "           SRC: also [--backend NAME] [--precision auto|f32|bf16]",
     "eval runs/sft", "the loss over data.eval",
     "RUN is a run's directory (evaluates its newest checkpoint, else its model),\n"
     "RUN@best, RUN@STEP or a checkpoint; FILE.yaml evaluates the model that the\n"
     "config starts from. The first line of output names the weights.\n"
     "--task: the scores of a model (SRC as for `nrl sample`) in a task of the format\n"
     "hellaswag, arc, piqa, mmlu, gsm8k, choices (rows {prompt, choices, gold}) or\n"
     "match ({prompt, answer}), by default recognized by the keys of the rows: JSON\n"
     "lines or a JSON array. --shots puts the first N rows of --examples in front of\n"
     "each question; --rows writes what the model answered.\n"
     "--text: perplexity, bits per byte, token accuracy and entropy of a text, or of\n"
     "rows {text} (FILE - is the standard input); --window: tokens that are predicted\n"
     "at once."},
    {"sample",
     "SRC --prompt TEXT | --file FILE | - [--max-tokens N]\n"
     "           [--temperature T] [--top-k K] [--top-p P] [--min-p P] [--seed S]\n"
     "           [--repetition-penalty R] [--stop TEXT ...] [--n N] [--chat]\n"
     "           [--system TEXT] [--template NAME] [--precision auto|f32|bf16]\n"
     "           [--backend NAME] [--public-key FILE]\n"
     "           [--json [--logprobs K] [--stream]]",
     "sample runs/sft --prompt 'Once upon'", "continue prompts",
     "SRC is a run (its newest checkpoint), RUN@best, RUN@STEP, a checkpoint, or a\n"
     "Hugging Face directory. --file has one prompt per line; rows\n"
     "{\"messages\": [...]} or {\"prompt\": ...} of a .jsonl file are conversations,\n"
     "without a final answer, and prompts; - is the standard input. Defaults:\n"
     "64 tokens, temperature 0 (most likely token), top-p 1, seed 0.\n"
     "--n: texts per prompt. --stop ends a text before TEXT. --chat sends the\n"
     "prompt as a chat user, in the run's data.template or the tokenizer's, after\n"
     "the system prompt of --system; --template NAME selects another template: auto,\n"
     "chatml, llama3, mistral, plain or a file. By default no template is used.\n"
     "--json prints token ids; with --logprobs, log-probs of the tokens and of the K\n"
     "most likely ones; with --stream, a line for each token. Weights are bf16 if SRC\n"
     "stores bf16 or was trained in bf16, else f32; --precision selects one.\n"
     "--backend: where to compute, such as cuda; default: the backend of the run,\n"
     "else the CPU."},
    {"chat",
     "SRC [--system TEXT] [--max-tokens N] [--temperature T]\n"
     "         [--top-k K] [--top-p P] [--min-p P] [--repetition-penalty R]\n"
     "         [--stop TEXT ...] [--seed S] [--template NAME] [--public-key FILE]\n"
     "         [--tools FILE] [--precision auto|f32|bf16] [--backend NAME]",
     "chat runs/sft", "talk to a model",
     "SRC as for `nrl sample`. Each line is a message of the user; answers are printed\n"
     "as they are generated, and Ctrl-C ends an answer. Defaults: 256 tokens,\n"
     "temperature 0.7. /help lists commands, such as /reset, /system and /save.\n"
     "--tools: a JSON list of tools for the template, as in OpenAI's API; calls of the\n"
     "model are shown, and /result TEXT answers one."},
    {"migrate",
     "FILE [KEY=VALUE ...] [-o OUT.yaml] [--from NAME]\n"
     "            [--algorithm NAME] [--devices N] [--json] [--overwrite]\n"
     "         nrl migrate [-o OUT.yaml] ... -- PROGRAM --option VALUE ...\n"
     "         nrl migrate --list NAME",
     "migrate trl.yaml -o run.yaml", "a config of another trainer, for nrl",
     "Writes a config of nrl from one of another trainer (YAML, JSON, or a script with\n"
     "one command): trl, transformers, llamafactory, axolotl, torchtune, nemo-rl, or\n"
     "generic for other programs with such keys. The keys decide, or --from. Each line\n"
     "names its source; what cannot be mapped is listed. The exit code is 2 if that\n"
     "changes numbers. KEY=VALUE sets a key of FILE first. --algorithm: sft, dpo, kto,\n"
     "orpo, ..., if FILE does not name it. --devices: how many the batch is for, if\n"
     "FILE does not say. --list prints how keys are mapped."},
    {"serve",
     "SRC [--host ADDRESS] [--port N] [--api-key KEY]\n"
     "          [--name NAME] [--max-batch N] [--max-queue N] [--max-tokens N]\n"
     "          [--max-cached N] [--grace SECONDS] [--template NAME]\n"
     "          [--precision auto|f32|bf16] [--backend NAME] [--public-key FILE]",
     "serve runs/sft", "an OpenAI-compatible endpoint",
     "SRC as for `nrl sample`. Paths: /v1/chat/completions, /v1/completions,\n"
     "/v1/models, /health, and / for a page to chat with a browser. Defaults:\n"
     "127.0.0.1, port 8000 (0 chooses a free one), 32 texts at once, 64 requests that\n"
     "wait (more get status 429), 256 tokens for a request that names no number,\n"
     "131072 tokens in the cache. The key may be in NRL_API_KEY instead. --name: the\n"
     "name of the model, by default the last part of SRC. After SIGTERM requests under\n"
     "way have --grace seconds (60) to finish."},
    {"bench", "FILE.yaml [key=value ...] [--steps N] [--json]", "bench configs/sft.yaml",
     "speed, memory and time by phase",
     "Measures N steps (default 10) after 2 warm-up steps, then up to 5 steps with\n"
     "time stamps at each operation, if the config has that many steps. Saves nothing.\n"
     "Values that the machine does not report are unknown; null with --json. `nrl\n"
     "tune` finds the size of micro-batches."},
    {"tune",
     "FILE.yaml [key=value ...] [--ranks N] [--steps N] [--from N]\n"
     "           [--to N] [--json]",
     "tune configs/sft.yaml", "the largest and the fastest micro-batch",
     "Measures train.micro_batch_tokens: doubles it from --from (default 256) until a\n"
     "size lacks memory, exceeds --to, or holds a whole global batch, then bisects. A\n"
     "size is a process that takes N steps (default 3) as `nrl bench` does, so one\n"
     "that the kernel kills counts as out of memory. Prints tokens/s, seconds a step\n"
     "and peak memory of each size, and the fastest (of about equals the smallest).\n"
     "With --ranks, N ranks of this machine take the steps under `nrl launch`: a size\n"
     "ran if all of them have memory for it, and the peak is that of the rank that\n"
     "used most. `nrl report --tune` draws the output of --json."},
    {"plan",
     "FILE.yaml [key=value ...] [--ranks N | --ranks N,M,...] [--memory SIZE]\n"
     "           [--target-tokens-per-s T] [--keep KEY ...] [--try KEY=VALUE ...]\n"
     "           [--write FILE] [--machine FILE | --save-machine FILE]\n"
     "           [--as-is | --auto] [--fixed-batch] [--json]",
     "plan configs/sft.yaml --ranks 2", "settings by memory and predicted speed",
     "Tries strategies for N ranks of this machine (default 1), sizes of micro-batches\n"
     "and, where a rank needs more than --memory, recomputed activations and offload.\n"
     "Trains nothing: each setting is walked by its shapes, and the operations and the\n"
     "communication that it needs are measured. Chooses the fastest that fits, or with\n"
     "--target-tokens-per-s the one with the least memory that is fast enough. --keep:\n"
     "a key that stays as FILE has it. --try: another value to compare, for keys that\n"
     "change numbers, such as train.precision=bf16. --write: a config with the chosen\n"
     "keys. --save-machine keeps the measurements in a file, --machine uses them\n"
     "instead of this machine. With several numbers of ranks, such as 8,64,1024, it\n"
     "compares strategies on nodes like this machine, or on those of a cluster that\n"
     "the file of --machine describes; the global batch grows with the ranks unless\n"
     "--fixed-batch is given. --as-is predicts FILE alone. --auto: only the keys that\n"
     "say `auto` in FILE, for the memory that is free and in some seconds, as at the\n"
     "start of a run; NRL_MACHINE names a file of --save-machine for it."},
    {"profile",
     "FILE [key=value ...] [--steps N] [--top N] [--memory]\n"
     "           [--trace FILE] [--output] [--json]",
     "profile configs/sft.yaml", "time by operation, memory, a timeline",
     "Measures N steps (default 10) after 2 warm-up steps. FILE is a config, or a\n"
     "script, whose first run is measured and then stopped. --top: number of shapes in\n"
     "the list (default 15). --memory: tensors at the peak by kind and by the place\n"
     "that made them, and by micro-batch. --trace: a timeline of all ranks, which\n"
     "ui.perfetto.dev opens. Saves nothing, but with --output the run writes its\n"
     "directory as `nrl run` does. Regions of scripts (nrl.region) and of plugins\n"
     "(nrl_region_begin) are listed by name."},
    {"report", "[RUN...] [--tune FILE] [-o FILE]", "report runs/sft", "a run's charts as an HTML file",
     "RUN is the directory of a run, finished or not. Several runs are drawn side by\n"
     "side with the differences of their configs, and need -o. For one run, the file is\n"
     "RUN/report.html by default. It is self-contained and loads nothing. --tune adds\n"
     "a table and plots of the sizes in FILE, the output of `nrl tune --json`."},
    {"watch", "RUN [--port N | --text]", "watch runs/sft", "a run while it goes on",
     "Shows the report of a run at http://127.0.0.1:6060/ (--port 0: a free port),\n"
     "which updates itself; --text follows the run in the terminal, or prints a line\n"
     "for each change to a pipe, until the run has ended. Ctrl-C ends. RUN may be\n"
     "running, finished, lost or empty."},
    {"export",
     "SRC DIR [--dtype f32|bf16|f16|...] [--format NAME]\n"
     "           [--adapter] [--overwrite] [--public-key FILE] [--push ORG/NAME]",
     "export runs/sft out/model", "write a model to a directory",
     "SRC is a run (its newest checkpoint), RUN@best, RUN@STEP, a checkpoint, or a\n"
     "model on disk; the default dtype is that of the base model. Adapters are\n"
     "merged; --adapter writes only them. --format\n"
     "names the plugin of formats/ that writes; default: SRC's format, else Hugging\n"
     "Face directories. A format can have more types: --format gguf --dtype q8_0 or\n"
     "q4_k writes DIR/model.gguf for llama.cpp. --overwrite is needed to replace a\n"
     "model that DIR already contains. A Hugging Face directory gets a model card,\n"
     "README.md, unless it has one that nrl has not written. --push uploads DIR as\n"
     "`nrl upload` does. `nrl import` converts a model to a checkpoint."},
    {"upload", "DIR ORG/NAME [--private] [--revision BRANCH] [--message TEXT]", "upload out/model org/model",
     "a model to the hub",
     "Uploads the files of DIR to a model of the Hugging Face hub in one commit. The\n"
     "model is created if it does not exist; --private: for its owners alone. Token\n"
     "and server as for `nrl download`."},
    {"import", "DIR OUT", "import models/gpt2 runs/start", "a model as checkpoint 0 of a run",
     "OUT becomes the directory of a run whose checkpoint 0 has the weights of DIR."},
    {"download",
     "ORG/NAME [--revision R] [--include PATTERN ...]\n"
     "             [--dataset] [--json]",
     "download org/model", "fetch a model or data from the hub",
     "Fetches files of the Hugging Face hub into its local cache, where model.path:\n"
     "ORG/NAME, data.train: hf://ORG/NAME and other programs find them. --dataset: a\n"
     "data set. --include selects files (several patterns may be given); by default a\n"
     "model that has safetensors comes without weights in other formats. An\n"
     "interrupted download continues where it stopped. HF_TOKEN, or the file where\n"
     "the hub's tools keep it, is the token; HF_ENDPOINT the server (https, or http\n"
     "on this machine); HF_HUB_CACHE and HF_HOME the cache."},
    {"checkpoint",
     "inspect DIR [--json]\n"
     "         nrl checkpoint verify DIR [--public-key FILE] [--json]\n"
     "         nrl checkpoint diff DIR DIR [--json]\n"
     "         nrl checkpoint prune DIR --keep N [--keep-best N] [--json]\n"
     "         nrl checkpoint keygen FILE [--json]",
     "checkpoint verify runs/sft", "inspect and verify checkpoints",
     "DIR is a checkpoint or a run: all of its checkpoints for verify and prune,\n"
     "else its newest. keygen creates FILE and FILE.pub: a run with\n"
     "checkpoint.sign=FILE signs its checkpoints, and --public-key FILE.pub\n"
     "(checkpoint.public_key in a config) rejects all others. Hashes of unsigned\n"
     "checkpoints detect accidental damage, not forgery."},
    {"tokenizer",
     "train FILE... --vocab-size N --out DIR\n"
     "           [--special TOKEN,...] [--min-frequency N]\n"
     "           [--pattern WORD] [--plugin NAME] [--jsonl] [--overwrite]\n"
     "         nrl tokenizer encode|decode FILE... --tokenizer PATH [--jsonl]\n"
     "           [--add-special | --skip-special]",
     "tokenizer encode a.txt --tokenizer tok", "train one; encode and decode", NULL},
    {"describe", "[NAME] [--json]", "describe train", "options of a section or a plugin",
     "NAME is a section (train), a kind (optimizer), a plugin (adamw) or an option\n"
     "(lr); `lua`, a frontend, lists what a script can call; none: everything."},
    {"plugins",
     "[--json]\n"
     "         nrl plugins test FILE.so [option=value ...] [--backend NAME]\n"
     "           [--collective NAME] [--config config.json] [--path PATH]\n"
     "           [--address ADDRESS] [--json]\n"
     "         nrl plugins new KIND NAME DIR\n"
     "         nrl plugins install FILE.so|DIR|ARCHIVE [--overwrite]\n"
     "         nrl plugins list [--json]\n"
     "         nrl plugins remove NAME",
     "plugins test mine.so", "list, test and install plugins",
     "KIND is adapter, algorithm, backend, collective, dataset, format, frontend,\n"
     "logger, model, optimizer, parallel, schedule, store, template or tokenizer.\n"
     "PATH is a tokenizer, a template's text or rows, for the plugin under test;\n"
     "ADDRESS is where a store under test is. install copies to\n"
     "$XDG_DATA_HOME/nrl/plugins (~/.local/share/nrl/plugins); a DIR\n"
     "or tar ARCHIVE with a CMakeLists.txt is built first. Plugins are found in\n"
     "NRL_PLUGIN_PATH (DIR:DIR...), in `plugins: [DIR]` of a config, there, and in\n"
     "nrl's own directory."},
    {"env", "[--json]", "env", "this machine and this build", NULL},
    {"version", "[--json]", "version", "of nrl and of its plugin interface",
     "Prints the version of nrl and of its plugin interface, as `nrl -V` does."},
    {"complete", "WORD...", "complete run sft.yaml train.", NULL,
     "Prints what may follow on a command line whose last word is incomplete, for the\n"
     "completions of bash, zsh and fish, which are installed."},
    {"test-plugin",
     "FILE.so [option=value ...] [--backend NAME]\n"
     "           [--collective NAME] [--config config.json] [--path PATH]\n"
     "           [--address ADDRESS] [--json]",
     "test-plugin mine.so", NULL,
     "The same as `nrl plugins test`: checks the rules for every plugin of the file's\n"
     "kind, and names the rules that it breaks."},
};
const size_t cli_n_verbs = sizeof cli_verbs / sizeof *cli_verbs;

const cli_verb *cli_find_verb(const char *name)
{
    for (size_t i = 0; i < cli_n_verbs; i++)
        if (!strcmp(cli_verbs[i].name, name)) return &cli_verbs[i];
    return NULL;
}

void cli_print_verb_help(const cli_verb *v)
{
    printf("nrl %s%s%s\n\nusage:   nrl %s %s\nexample: nrl %s\n", v->name, v->summary ? " - " : "",
           v->summary ? v->summary : "", v->name, v->usage, v->example);
    if (v->notes) printf("\n%s\n", v->notes);
}
