/*
 * verbs.c - the verbs as `nrl help` shows them, one row each: those of the program itself (cli/main.c) and those that
 * are programs of their own (tools/VERB).
 */
#include "cli/common/cli.h"
#include <stdio.h>
#include <string.h>

const cli_verb cli_verbs[] = {
    {"run", "FILE [key=value ...] [--frontend NAME]", "run scripts/sft.lua optimizer.lr=5e-6",
     "train, by a script or a YAML file",
     "FILE.yaml is a config, FILE.lua a script that makes one; --frontend names the\n"
     "plugin that runs a script whose name does not say so. key=value sets any\n"
     "option of it; `nrl describe` lists them. With any verb, --no-scripts runs no\n"
     "script, and --no-plugins-from-config opens no plugin of a folder that a config\n"
     "names: for files of strangers."},
    {"check", "FILE [key=value ...]", "check configs/sft.yaml", "find all mistakes, train nothing",
     "Looked at is what needs no device: options, plugins, files, rows, memory; in a\n"
     "script too."},
    {"launch",
     "-n N [--nodes HOST:SLOTS,... | --hostfile FILE]\n"
     "           [--node-rank K] [--address A] [--port P] [--store ADDRESS]\n"
     "           [--grace SECONDS]\n"
     "           -- run FILE [key=value ...]",
     "launch -n 2 -- run configs/sft.yaml", "train with several processes",
     "On several machines the same command is typed on each; --node-rank K, from 0,\n"
     "says which one it is where its addresses do not. --address and --port are\n"
     "where rank 0 is met; --store is a store that others hold, in any form that a\n"
     "plugin of stores/ serves (/shared/folder). --grace: how long the others have to end when a rank fails\n"
     "(unless given 10 seconds), and all ranks after a signal (unless given, until\n"
     "their state is saved). A second SIGINT or SIGTERM ends all of them at once.\n"
     "Ranks know each other by a secret: one that is made here, or, for several\n"
     "machines, the text of a file of mode 600 that NRL_JOB_SECRET_FILE names."},
    {"resume", "DIR [key=value ...]", "resume runs/sft", "go on from the newest checkpoint",
     "key=value changes an option: train.steps=2000 goes on further. An option that\n"
     "changes the numbers (data, loss, optimizer, schedule: `nrl describe` says which)\n"
     "must be the checkpoint's, unless checkpoint.mismatch=warn."},
    {"eval", "FILE.yaml|RUN [key=value ...] [--json]", "eval runs/sft", "the loss over data.eval",
     "RUN: of what the run in that folder has learned (its newest checkpoint, else\n"
     "its model), or of the checkpoint that is named; FILE.yaml: of the model that the\n"
     "config starts from. The first line says which weights these are."},
    {"sample",
     "SRC --prompt TEXT | --file FILE [--max-tokens N]\n"
     "           [--temperature T] [--top-p P] [--seed S] [--chat]\n"
     "           [--template NAME] [--public-key FILE] [--json]",
     "sample runs/sft --prompt 'Once upon'", "continue prompts",
     "SRC is a run (its newest checkpoint), a checkpoint, or a Hugging Face\n"
     "directory. --file has a prompt a line. Unless given: 64 tokens, temperature 0\n"
     "(always the likeliest), top-p 1, seed 0. --chat asks as a user of a chat, by\n"
     "the run's data.template or the tokenizer's own; --template NAME by another one:\n"
     "auto, chatml, llama3, mistral, plain or a file. Else a prompt is bare text."},
    {"bench", "FILE.yaml [key=value ...] [--steps N] [--json]", "bench configs/sft.yaml",
     "speed, memory and time by phase",
     "N steps, 10 unless given, after 2 that warm up and are omitted; then up to 5\n"
     "with a mark at each operation, as far as the config has them. Saves nothing.\n"
     "What the machine does not tell is unknown, null with --json."},
    {"profile", "FILE.yaml [key=value ...] [--steps N] [--top N] [--json]", "profile configs/sft.yaml",
     "time by operation; saves nothing",
     "N steps, 10 unless given, after 2 that warm up and are omitted. --top: how\n"
     "many shapes are listed, 15 unless given."},
    {"report", "RUN... [-o FILE]", "report runs/sft", "a run's charts as an HTML file",
     "RUN is the folder of a run, finished or not. Several are drawn side by side, and\n"
     "what their configs differ in is listed; then -o is needed. Of one run it is\n"
     "RUN/report.html unless given. The file needs no other and runs no script."},
    {"export",
     "SRC DIR [--dtype f32|bf16|f16] [--format NAME] [--adapter]\n"
     "           [--overwrite] [--public-key FILE]",
     "export runs/sft out/model", "write a model to a directory",
     "SRC is a run (its newest checkpoint), a checkpoint, or a model on disk; f32\n"
     "unless given. Adapters are merged; --adapter writes them alone. --format\n"
     "names the plugin of formats/ that writes: by default the one that SRC is in,\n"
     "or that of Hugging Face directories. A model that DIR already holds is\n"
     "replaced with --overwrite alone."},
    {"import", "DIR OUT", "import models/gpt2 runs/start", "read one into a checkpoint",
     "OUT becomes the folder of a run whose checkpoint 0 has the weights of DIR."},
    {"checkpoint",
     "inspect DIR [--json]\n"
     "         nrl checkpoint verify DIR [--public-key FILE] [--json]\n"
     "         nrl checkpoint diff DIR DIR [--json]\n"
     "         nrl checkpoint prune DIR --keep N [--keep-best N] [--json]\n"
     "         nrl checkpoint keygen FILE [--json]",
     "checkpoint verify runs/sft", "look into checkpoints",
     "DIR is a checkpoint or a run: all of its checkpoints for verify and prune,\n"
     "else its newest. keygen makes FILE and FILE.pub: a run with checkpoint.sign=FILE\n"
     "signs its checkpoints, --public-key FILE.pub (checkpoint.public_key in a config)\n"
     "takes no other. The hashes of unsigned ones find accidents, not forgery."},
    {"tokenizer",
     "train FILE... --vocab-size N --out DIR\n"
     "           [--special TOKEN,...] [--min-frequency N]\n"
     "           [--pattern WORD] [--plugin NAME] [--jsonl] [--overwrite]\n"
     "         nrl tokenizer encode|decode FILE... --tokenizer PATH [--jsonl]\n"
     "           [--add-special | --skip-special]",
     "tokenizer encode a.txt --tokenizer tok", "train one; text to ids and back", NULL},
    {"describe", "[NAME] [--json]", "describe train", "options of a section or a plugin",
     "NAME is a section (train), a kind (optimizer), a plugin (adamw) or an option\n"
     "(lr); `lua`, a frontend, is what a script can call; none: everything."},
    {"plugins",
     "[--json]\n"
     "         nrl plugins test FILE.so [option=value ...] [--backend NAME]\n"
     "           [--collective NAME] [--config config.json] [--path PATH]\n"
     "           [--json]\n"
     "         nrl plugins new KIND NAME DIR",
     "plugins test mine.so", "list, test or begin plugins",
     "KIND is algorithm, optimizer, logger, format, frontend, tokenizer, template or\n"
     "dataset. PATH is a tokenizer, a template's text or rows, for the plugin that\n"
     "is tested. Plugins are found in NRL_PLUGIN_PATH, which is DIR:DIR..., in\n"
     "`plugins: [DIR]` of a config, and where nrl is installed."},
    {"env", "[--json]", "env", "this machine and this build", NULL},
    {"version", "[--json]", "version", "of nrl and its plugin interface", NULL},
    {"test-plugin",
     "FILE.so [option=value ...] [--backend NAME]\n"
     "           [--collective NAME] [--config config.json] [--path PATH]\n"
     "           [--json]",
     "test-plugin mine.so", NULL,
     "The same as `nrl plugins test`: checks the rules that every plugin of the file's\n"
     "kind keeps, and names those that are broken."},
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
