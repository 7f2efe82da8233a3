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
     "Looks at the model and the data and writes a commented config (default:\n"
     "run.yaml) that `nrl check` accepts. The algorithm depends on the format of the\n"
     "rows, max_length on their lengths, activation checkpointing on the memory of\n"
     "this machine. Asks for values that no flag gives; with --model and --data it\n"
     "asks nothing.\n"
     "--eval: a file, a share of the rows such as 5%, or none\n"
     "--columns: names of keys, such as '{prompt: question, completion: answer}'\n"
     "--memory: memory that the run may use, such as 24GiB (default: 90 % of the free\n"
     "  memory of this machine if the CPU trains)"},
    {"run", "FILE [key=value ...] [-q | -v] [--frontend NAME]", "run scripts/sft.lua optimizer.lr=5e-6",
     "train from a config or a script",
     "FILE.yaml is a config, FILE.lua a script that builds one. key=value sets any\n"
     "option of the config; `nrl describe` lists them. data.train=- reads rows (JSON\n"
     "lines) from standard input and saves them in data.cache, or else in\n"
     "~/.cache/nrl.\n"
     "--frontend: the plugin that runs a script with another file name\n"
     "-q, --quiet: print only warnings and errors\n"
     "-v, --verbose: also print the config with all defaults\n"
     "With every command, --no-scripts refuses to run scripts, and\n"
     "--no-plugins-from-config opens no plugin from directories in a config. Use both\n"
     "for untrusted files."},
    {"check", "FILE [--sample N] [--full] [-q | -v] [--json] [key=value ...]", "check configs/sft.yaml",
     "find mistakes without training",
     "Checks everything that needs no device: options, plugins, files, rows, memory;\n"
     "also for a script.\n"
     "--sample: print N samples with their trained tokens in brackets\n"
     "--full: print samples without a limit of their length\n"
     "--json: print the plan of the run as JSON\n"
     "-q, -v: as for `nrl run`"},
    {"launch",
     "[-n N] [--nodes HOST:SLOTS,...|MIN:MAX | --hostfile FILE]\n"
     "           [--node-rank K] [--address A] [--port P] [--store ADDRESS]\n"
     "           [--grace SECONDS] [--max-restarts K] [--join-wait SECONDS]\n"
     "           -- VERB FILE [key=value ...]",
     "launch -n 2 -- run configs/sft.yaml", "train with several processes",
     "Starts one process per rank. With several machines, run the same command on\n"
     "each.\n"
     "--node-rank: the number of this machine, from 0, if its addresses do not\n"
     "  identify it\n"
     "--address, --port: address and port of rank 0\n"
     "--store: address of an existing store, in any form that a store plugin supports\n"
     "  (/shared/dir)\n"
     "--grace: time for the other ranks to end after a rank fails (default 10\n"
     "  seconds), and for all ranks after a signal (default: until their state is\n"
     "  saved). A second SIGINT or SIGTERM ends all of them at once.\n"
     "--max-restarts: how often all ranks are restarted from the newest checkpoint\n"
     "  after a rank is lost (default 0)\n"
     "--nodes MIN:MAX: each start uses the machines that meet at --address\n"
     "--join-wait: seconds to wait for more machines when MIN have joined (default 30)\n"
     "Ranks authenticate with a secret. nrl launch creates one or, for several\n"
     "machines, reads it from the file NRL_JOB_SECRET_FILE, which must have mode 600."},
    {
        "cluster",
        "script|submit FILE.yaml [key=value ...] [--json]\n"
        "         nrl cluster status|cancel FILE.yaml [key=value ...] [--json]\n"
        "         nrl cluster logs FILE.yaml [key=value ...] [--follow]\n"
        "         nrl cluster autoscaler FILE.yaml\n"
        "         nrl cluster keys",
        "cluster submit run.yaml",
        "run as a job of Slurm, Kubernetes or Ray",
        "The section `cluster` of FILE describes the job; `nrl cluster keys` lists its\n"
        "keys. script prints the batch script of Slurm, the manifest of Kubernetes or the\n"
        "driver for Ray; submit submits it. Before its time limit a Slurm job saves the\n"
        "state of the run and is requeued; it continues from the newest checkpoint.\n"
        "autoscaler prints a file for `ray up` that starts the machines.",
    },
    {"resume", "DIR [-q | -v] [key=value ...]", "resume runs/sft", "continue from a checkpoint",
     "key=value changes an option. train.steps=2000 trains longer, provided that the\n"
     "learning rates of the remaining steps do not change. Options that change\n"
     "the numbers (data, loss, optimizer, schedule; see `nrl describe`) must equal\n"
     "those of the checkpoint, unless checkpoint.mismatch=warn."},
    {"eval",
     "FILE.yaml|RUN [key=value ...] [--json]\n"
     "         nrl eval SRC --task [FORMAT=]FILE ... [--shots N --examples FILE]\n"
     "           [--limit N] [--max-tokens N] [--rows FILE] [--json]\n"
     "         nrl eval SRC --text FILE [--window N] [--json]\n"
     "           SRC: also [--backend NAME] [--precision auto|f32|bf16]",
     "eval runs/sft", "evaluate a model",
     "Prints the loss over data.eval. RUN is the directory of a run (its newest\n"
     "checkpoint, or else its model), RUN@best, RUN@STEP or a checkpoint. FILE.yaml\n"
     "evaluates the initial model of the config. The first line of output states the\n"
     "weights.\n"
     "--task: score a model (SRC as for `nrl sample`) in a benchmark task. FORMAT is\n"
     "  hellaswag, arc, piqa, mmlu, gsm8k, choices (rows {prompt, choices, gold}) or\n"
     "  match ({prompt, answer}); by default the keys of the rows decide. FILE has\n"
     "  JSON lines or a JSON array.\n"
     "--shots: put the first N rows of --examples in front of each question\n"
     "--limit: use only the first N questions\n"
     "--rows: write the answers of the model to FILE\n"
     "--text: perplexity, bits per byte, token accuracy and entropy of a text, or of\n"
     "  rows {text} (FILE - is standard input)\n"
     "--window: number of tokens that are predicted at once"},
    {"sample",
     "SRC --prompt TEXT | --file FILE | - [--max-tokens N]\n"
     "           [--temperature T] [--top-k K] [--top-p P] [--min-p P] [--seed S]\n"
     "           [--repetition-penalty R] [--stop TEXT ...] [--n N] [--chat]\n"
     "           [--system TEXT] [--template NAME] [--precision auto|f32|bf16]\n"
     "           [--backend NAME] [--public-key FILE]\n"
     "           [--json [--logprobs K] [--stream]]",
     "sample runs/sft --prompt 'Once upon'", "continue prompts",
     "SRC is a run (its newest checkpoint), RUN@best, RUN@STEP, a checkpoint, or a\n"
     "Hugging Face directory. Defaults: 64 tokens, temperature 0 (most likely token),\n"
     "top-p 1, seed 0.\n"
     "--file: one prompt per line, or a .jsonl file with rows {\"messages\": [...]}\n"
     "  (conversations without a final answer) or {\"prompt\": ...}; - is standard input\n"
     "--n: number of texts per prompt\n"
     "--stop: end a text before TEXT\n"
     "--chat: send the prompt as a user message, after the system prompt of --system,\n"
     "  with data.template of the run or the template of the tokenizer\n"
     "--template: another template: auto, chatml, llama3, mistral, plain or a file. By\n"
     "  default no template is used.\n"
     "--json: print token ids or, with --logprobs, log-probs of the tokens and of the\n"
     "  K most probable ones instead; with --stream one line per token\n"
     "--precision: precision of the weights (default: bf16 if SRC stores bf16 or was\n"
     "  trained in bf16, otherwise f32). With bf16, a CPU may also round the inputs of\n"
     "  products, which is faster.\n"
     "--backend: the device, such as cuda (default: the backend of the run, or else\n"
     "  the CPU)"},
    {"chat",
     "SRC [--system TEXT] [--max-tokens N] [--temperature T]\n"
     "         [--top-k K] [--top-p P] [--min-p P] [--repetition-penalty R]\n"
     "         [--stop TEXT ...] [--seed S] [--template NAME] [--public-key FILE]\n"
     "         [--tools FILE] [--precision auto|f32|bf16] [--backend NAME]",
     "chat runs/sft", "chat with a model",
     "SRC as for `nrl sample`. Each line is a message of the user. Answers are printed\n"
     "while they are generated, and Ctrl-C ends an answer. Defaults: 256 tokens,\n"
     "temperature 0.7. /help lists commands, such as /reset, /system and /save.\n"
     "--tools: a JSON list of tools for the template, as in OpenAI's API; tool calls\n"
     "  are shown, and /result TEXT answers one"},
    {"migrate",
     "FILE [KEY=VALUE ...] [-o OUT.yaml] [--from NAME]\n"
     "            [--algorithm NAME] [--devices N] [--json] [--overwrite]\n"
     "         nrl migrate [-o OUT.yaml] ... -- PROGRAM --option VALUE ...\n"
     "         nrl migrate --list NAME",
     "migrate trl.yaml -o run.yaml", "convert a config of another trainer",
     "Converts a config of another trainer (YAML, JSON, or a script with one command):\n"
     "trl, transformers, llamafactory, axolotl, torchtune, nemo-rl, or generic for\n"
     "other programs with similar keys. Each line of the result has its source in a\n"
     "comment, and keys that cannot be mapped are listed. If they change numbers, the\n"
     "exit code is 2. KEY=VALUE first sets a key of FILE.\n"
     "--from: the trainer (default: the keys decide)\n"
     "--algorithm: sft, dpo, kto, orpo, ..., if FILE does not state it\n"
     "--devices: number of devices of the batch size, if FILE does not state it\n"
     "--list: print how keys are mapped"},
    {"serve",
     "SRC [--host ADDRESS] [--port N] [--api-key KEY]\n"
     "          [--allow-origin ORIGIN] [--name NAME] [--max-batch N]\n"
     "          [--max-queue N] [--max-tokens N] [--max-cached N]\n"
     "          [--grace SECONDS] [--template NAME]\n"
     "          [--precision auto|f32|bf16] [--backend NAME] [--public-key FILE]",
     "serve runs/sft", "serve an OpenAI-compatible API",
     "SRC as for `nrl sample`. Paths: /v1/chat/completions, /v1/completions,\n"
     "/v1/models, /health, and / for a page to chat with a browser.\n"
     "--host, --port: where to listen (default: 127.0.0.1, 8000; port 0 chooses a free\n"
     "  one)\n"
     "--api-key: required in requests; NRL_API_KEY can contain it instead\n"
     "--allow-origin: a site whose pages may use the API from a browser; * is any\n"
     "--name: name of the model (default: the last part of SRC)\n"
     "--max-batch: texts that are generated at once (default 32)\n"
     "--max-queue: requests that may wait (default 64); more get status 429\n"
     "--max-tokens: limit of a request that states none (default 256)\n"
     "--max-cached: tokens in the cache (default 131072)\n"
     "--grace: seconds for active requests to finish after SIGTERM (default 60)"},
    {"bench", "FILE.yaml [key=value ...] [--steps N] [--json]", "bench configs/sft.yaml",
     "speed, memory and time by phase",
     "Measures N steps (default 10) after 2 warm-up steps, then up to 5 steps with\n"
     "time stamps at each operation, if the config has that many steps. Saves nothing.\n"
     "Values that the machine does not report are unknown, or null with --json. `nrl\n"
     "tune` finds the size of micro-batches."},
    {"tune",
     "FILE.yaml [key=value ...] [--ranks N] [--steps N] [--from N]\n"
     "           [--to N] [--json]",
     "tune configs/sft.yaml", "find the fastest micro-batch size",
     "Measures train.micro_batch_tokens: doubles it from --from (default 256) until a\n"
     "size runs out of memory, exceeds --to, or holds a whole global batch, then\n"
     "bisects. Each size is measured for N steps (default 3) in its own process, so a\n"
     "size for which the kernel kills the process counts as out of memory. Prints\n"
     "tokens/s, seconds per step and peak memory of each size, and the fastest size\n"
     "(the smallest of about equally fast ones). `nrl report --tune` draws the output\n"
     "of --json.\n"
     "--ranks: measure with N ranks of this machine under `nrl launch`; a size succeeds\n"
     "  if all ranks have memory for it, and the peak is that of the rank with the\n"
     "  highest peak"},
    {"plan",
     "FILE.yaml [key=value ...] [--ranks N | --ranks N,M,...] [--memory SIZE]\n"
     "           [--target-tokens-per-s T] [--keep KEY ...] [--try KEY=VALUE ...]\n"
     "           [--write FILE] [--machine FILE | --save-machine FILE]\n"
     "           [--as-is | --auto] [--fixed-batch] [--json]",
     "plan configs/sft.yaml --ranks 2", "choose settings by predicted memory and speed",
     "Compares strategies for N ranks of this machine (default 1), sizes of\n"
     "micro-batches and, if a rank needs more than --memory, activation checkpointing\n"
     "and offload. It does not train: memory follows from the shapes, and the\n"
     "operations and communication of each setting are measured. It chooses the\n"
     "fastest setting that fits.\n"
     "--target-tokens-per-s: choose the setting with the least memory that reaches T\n"
     "--keep: a key that keeps its value in FILE\n"
     "--try: another value to compare, for keys that change numbers, such as\n"
     "  train.precision=bf16\n"
     "--write: write the complete config with the chosen keys\n"
     "--save-machine: save the measurements in a file\n"
     "--machine: use the measurements in a file instead of this machine\n"
     "--ranks N,M,...: compare strategies for several numbers of ranks, such as\n"
     "  8,64,1024, on nodes like this machine, or on the cluster that the file of\n"
     "  --machine describes\n"
     "--fixed-batch: keep the global batch, which otherwise grows with the ranks\n"
     "--as-is: predict only FILE itself\n"
     "--auto: choose only the keys that are `auto` in FILE, for the free memory and\n"
     "  within seconds, as at the start of a run. NRL_MACHINE can name a file of\n"
     "  --save-machine."},
    {"profile",
     "FILE [key=value ...] [--steps N] [--top N] [--memory]\n"
     "           [--trace FILE] [--output] [--json]",
     "profile configs/sft.yaml", "time by operation, memory, timeline",
     "Measures N steps (default 10) after 2 warm-up steps. FILE is a config, or a\n"
     "script, whose first run is measured and then stopped. Regions of scripts\n"
     "(nrl.region) and of plugins (nrl_region_begin) are listed by name.\n"
     "--top: number of shapes in the list (default 15)\n"
     "--memory: tensors at the peak by kind and origin, and by micro-batch\n"
     "--trace: write a timeline of all ranks, which ui.perfetto.dev opens\n"
     "--output: write the directory of the run as `nrl run` does; by default nothing\n"
     "  is saved"},
    {"report", "[RUN...] [--tune FILE] [-o FILE]", "report runs/sft", "charts of a run in an HTML file",
     "RUN is the directory of a run, finished or not. Several runs are drawn side by\n"
     "side with the differences of their configs, and need -o. For one run, the file\n"
     "is RUN/report.html by default. It is self-contained and loads nothing.\n"
     "--tune: add a table and plots of the sizes in FILE, the output of `nrl tune\n"
     "  --json`"},
    {"watch", "RUN [--port N | --text]", "watch runs/sft", "follow a run",
     "Shows the report of a run at http://127.0.0.1:6060/, which updates itself. RUN\n"
     "may be running, finished, lost or empty. Ctrl-C ends the command.\n"
     "--port: another port; 0 chooses a free one\n"
     "--text: follow the run in the terminal, or print a line for each change to a\n"
     "  pipe, until the run has ended"},
    {"export",
     "SRC DIR [--dtype f32|bf16|f16|...] [--format NAME]\n"
     "           [--adapter] [--overwrite] [--public-key FILE] [--push ORG/NAME]",
     "export runs/sft out/model", "write a model to a directory",
     "SRC is a run (its newest checkpoint), RUN@best, RUN@STEP, a checkpoint, or a\n"
     "model on disk. Adapters are merged. A Hugging Face directory gets a model card,\n"
     "README.md, unless it has a card that nrl did not write. `nrl import` converts a\n"
     "model to a checkpoint.\n"
     "--dtype: dtype of the weights (default: that of the base model)\n"
     "--format: the format plugin that writes (default: the format of SRC, or else\n"
     "  Hugging Face directories). A format can have more types: --format gguf --dtype\n"
     "  q8_0 or q4_k writes DIR/model.gguf for llama.cpp.\n"
     "--adapter: write only the adapters\n"
     "--overwrite: replace a model that DIR already contains\n"
     "--push: upload DIR as `nrl upload` does"},
    {"upload", "DIR ORG/NAME [--private] [--revision BRANCH] [--message TEXT]", "upload out/model org/model",
     "upload a model to the hub",
     "Uploads the files of DIR to a model of the Hugging Face hub in one commit. The\n"
     "model is created if it does not exist; --private makes it visible only to its\n"
     "owners. Token and server as for `nrl download`."},
    {"import", "DIR OUT", "import models/gpt2 runs/start", "start a run from a model",
     "Creates the directory of a run, OUT, whose checkpoint 0 has the weights of DIR."},
    {"download",
     "ORG/NAME [--revision R] [--include PATTERN ...]\n"
     "             [--dataset] [--json]",
     "download org/model", "fetch a model or data from the hub",
     "Downloads files from the Hugging Face hub to its local cache, where model.path:\n"
     "ORG/NAME, data.train: hf://ORG/NAME and other programs find them. An interrupted\n"
     "download continues where it stopped. HF_TOKEN, or the file where the hub's tools\n"
     "keep it, is the token; HF_ENDPOINT is the server (https, or http on this\n"
     "machine); HF_HUB_CACHE and HF_HOME set the cache.\n"
     "--dataset: download a data set\n"
     "--include: select files; can be repeated. By default, a model with safetensors\n"
     "  is downloaded without weights in other formats."},
    {"checkpoint",
     "inspect DIR [--json]\n"
     "         nrl checkpoint verify DIR [--public-key FILE] [--json]\n"
     "         nrl checkpoint diff DIR DIR [--json]\n"
     "         nrl checkpoint prune DIR --keep N [--keep-best N] [--json]\n"
     "         nrl checkpoint keygen FILE [--json]",
     "checkpoint verify runs/sft", "inspect and verify checkpoints",
     "DIR is a checkpoint or a run. For a run, verify and prune use all of its\n"
     "checkpoints, the others the newest. keygen creates FILE and FILE.pub: a run with\n"
     "checkpoint.sign=FILE signs its checkpoints, and --public-key FILE.pub\n"
     "(checkpoint.public_key in a config) rejects all others. Hashes of unsigned\n"
     "checkpoints detect accidental damage, not forgery."},
    {"tokenizer",
     "train FILE... --vocab-size N --out DIR\n"
     "           [--special TOKEN,...] [--min-frequency N]\n"
     "           [--pattern WORD] [--plugin NAME] [--jsonl] [--overwrite]\n"
     "         nrl tokenizer encode|decode FILE... --tokenizer PATH [--jsonl]\n"
     "           [--add-special | --skip-special]",
     "tokenizer encode a.txt --tokenizer tok", "train or apply a tokenizer",
     "train learns a byte-level BPE from texts and writes a tokenizer to DIR. encode\n"
     "prints the token ids of each line of a text, decode the text of each line of\n"
     "ids. FILE - is standard input.\n"
     "--vocab-size: number of tokens, including the 256 bytes and the special tokens\n"
     "--special: tokens that are never split (default: <|endoftext|>). The first one\n"
     "  is the end token.\n"
     "--min-frequency: merge only pairs that occur this often (default 2)\n"
     "--pattern: how text is divided into words: gpt2 (default), llama3 or qwen2\n"
     "--plugin: the tokenizer plugin (default: the first that can train, or for encode\n"
     "  and decode the one that recognises PATH)\n"
     "--overwrite: replace a tokenizer that DIR already contains\n"
     "--jsonl: rows {\"text\": ...} and {\"ids\": [...]} instead of lines; each row is a\n"
     "  text of its own\n"
     "--tokenizer: a tokenizer file or a directory that contains one\n"
     "--add-special: with encode, add the tokens with which the tokenizer begins and\n"
     "  ends a text, such as BOS\n"
     "--skip-special: with decode, omit special tokens"},
    {"describe", "[NAME] [--json]", "describe train", "describe the options of a part",
     "NAME is a section (train), a kind (optimizer), a plugin (adamw) or an option\n"
     "(lr). `lua`, a frontend, lists what a script can call. Without NAME, everything\n"
     "is printed."},
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
     "install copies to $XDG_DATA_HOME/nrl/plugins (~/.local/share/nrl/plugins); a DIR\n"
     "or tar ARCHIVE with a CMakeLists.txt is built first. Plugins are searched in\n"
     "NRL_PLUGIN_PATH (DIR:DIR...), in `plugins: [DIR]` of a config, in that\n"
     "directory, and in nrl's own directory.\n"
     "--path: a tokenizer, template or rows for the plugin under test\n"
     "--address: the address of a store under test"},
    {"env", "[--json]", "env", "show this machine and this build", NULL},
    {"version", "[--json]", "version", "print the versions of nrl and of its plugin interface",
     "Prints the version of nrl and of its plugin interface, as `nrl -V` does."},
    {"complete", "WORD...", "complete run sft.yaml train.", NULL,
     "Prints possible completions of a command line whose last word is incomplete, for\n"
     "the completion scripts of bash, zsh and fish, which are installed."},
    {"test-plugin",
     "FILE.so [option=value ...] [--backend NAME]\n"
     "           [--collective NAME] [--config config.json] [--path PATH]\n"
     "           [--address ADDRESS] [--json]",
     "test-plugin mine.so", NULL,
     "The same as `nrl plugins test`: checks the rules for every plugin of the file's\n"
     "kind, and prints the rules that it violates."},
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
