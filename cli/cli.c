/*
 * cli.c - nrl_main: finds the verb, prints its error, chooses the exit code.
 */
#include "base/escape.h"
#include "cli/cli.h"
#include "base/memory.h"
#include "config/suggest.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

NRL_API int nrl_main(int argc, char **argv);

typedef struct {
    const char *name;
    const char *usage;   /* arguments */
    const char *example; /* as typed, without "nrl" */
    const char *summary;
    nrl_status (*run)(int argc, char **argv);
    const char *notes; /* what the usage does not say by itself; NULL = nothing */
} verb;

static const verb verbs[] = {
    {"run", "FILE [key=value ...]", "run scripts/sft.lua optimizer.lr=5e-6",
     "train, from Lua or YAML", cli_run,
     "FILE.yaml is a config, FILE.lua a script that makes one. key=value sets any\n"
     "option of it; `nrl describe` lists them. With any verb, --no-scripts runs no\n"
     "script, and --no-plugins-from-config opens no plugin of a folder that a config\n"
     "names: for files of strangers."},
    {"check", "FILE [key=value ...]", "check configs/sft.yaml", "find all mistakes, train nothing",
     cli_check,
     "Looked at is what needs no device: options, plugins, files, rows, memory; in a\n"
     "script too."},
    {"launch",
     "-n N [--nodes HOST:SLOTS,... | --hostfile FILE]\n"
     "           [--node-rank K] [--address A] [--port P] [--grace SECONDS]\n"
     "           -- run FILE [key=value ...]",
     "launch -n 2 -- run configs/sft.yaml", "train with several processes", cli_launch,
     "On several machines the same command is typed on each; --node-rank K, from 0,\n"
     "says which one it is where its addresses do not. --address and --port are\n"
     "where rank 0 is met. --grace: how long the others have to end when a rank fails\n"
     "(unless given 10 seconds), and all ranks after a signal (unless given, until\n"
     "their state is saved). A second SIGINT or SIGTERM ends all of them at once.\n"
     "Ranks know each other by a secret: one that is made here, or, for several\n"
     "machines, the text of a file of mode 600 that NRL_JOB_SECRET_FILE names."},
    {"resume", "DIR [key=value ...]", "resume runs/sft", "go on from the newest checkpoint",
     cli_resume,
     "key=value changes an option: train.steps=2000 goes on further. An option that\n"
     "changes the numbers (data, loss, optimizer, schedule: `nrl describe` says which)\n"
     "must be the checkpoint's, unless checkpoint.mismatch=warn."},
    {"eval", "FILE.yaml|RUN [key=value ...] [--json]", "eval runs/sft",
     "the loss over data.eval", cli_eval,
     "RUN: of what the run in that folder has learned (its newest checkpoint, else\n"
     "its model), or of the checkpoint that is named; FILE.yaml: of the model that the\n"
     "config starts from. The first line says which weights these are."},
    {"sample",
     "SRC --prompt TEXT | --file FILE [--max-tokens N]\n"
     "           [--temperature T] [--top-p P] [--seed S] [--chat]\n"
     "           [--template NAME] [--public-key FILE] [--json]",
     "sample runs/sft --prompt 'Once upon'", "continue prompts", cli_sample,
     "SRC is a run (its newest checkpoint), a checkpoint, or a Hugging Face\n"
     "directory. --file has a prompt a line. Unless given: 64 tokens, temperature 0\n"
     "(always the likeliest), top-p 1, seed 0. --chat asks as a user of a chat, by\n"
     "the run's data.template or the tokenizer's own; --template NAME by another one:\n"
     "auto, chatml, llama3, mistral, plain or a file. Else a prompt is bare text."},
    {"bench", "FILE.yaml [key=value ...] [--steps N] [--json]", "bench configs/sft.yaml",
     "speed, memory and time by phase", cli_bench,
     "N steps, 10 unless given, after 2 that warm up and are left out; then up to 5\n"
     "with a mark at each operation, as far as the config has them. Saves nothing.\n"
     "What the machine does not tell is unknown, null with --json."},
    {"profile", "FILE.yaml [key=value ...] [--steps N] [--top N] [--json]",
     "profile configs/sft.yaml", "time by operation; saves nothing", cli_profile,
     "N steps, 10 unless given, after 2 that warm up and are left out. --top: how\n"
     "many shapes are listed, 15 unless given."},
    {"report", "RUN... [-o FILE]", "report runs/sft", "a run's charts as an HTML file", cli_report,
     "RUN is the folder of a run, finished or not. Several are drawn side by side, and\n"
     "what their configs differ in is listed; then -o is needed. Of one run it is\n"
     "RUN/report.html unless given. The file needs no other and runs no script."},
    {"export",
     "SRC DIR [--dtype f32|bf16|f16] [--adapter] [--overwrite]\n"
     "           [--public-key FILE]",
     "export runs/sft out/model", "write a Hugging Face directory", cli_export,
     "SRC is a run (its newest checkpoint), a checkpoint, or a Hugging Face\n"
     "directory; f32 unless given. Adapters (lora) are merged; --adapter writes\n"
     "them alone, as peft reads them. A model that DIR already holds is replaced\n"
     "with --overwrite alone."},
    {"import", "DIR OUT", "import models/gpt2 runs/start", "read one into a checkpoint",
     cli_import,
     "OUT becomes the folder of a run whose checkpoint 0 has the weights of DIR."},
    {"checkpoint",
     "inspect DIR [--json]\n"
     "         nrl checkpoint verify DIR [--public-key FILE] [--json]\n"
     "         nrl checkpoint diff DIR DIR [--json]\n"
     "         nrl checkpoint prune DIR --keep N [--keep-best N] [--json]\n"
     "         nrl checkpoint keygen FILE [--json]",
     "checkpoint verify runs/sft", "look into checkpoints", cli_checkpoint,
     "DIR is a checkpoint or a run: all of its checkpoints for verify and prune,\n"
     "else its newest. keygen makes FILE and FILE.pub: a run with checkpoint.sign=FILE\n"
     "signs its checkpoints, --public-key FILE.pub (checkpoint.public_key in a config)\n"
     "takes no other. The hashes of unsigned ones find accidents, not forgery."},
    {"tokenizer",
     "train FILE... --vocab-size N --out DIR\n"
     "           [--special TOKEN,...] [--min-frequency N]\n"
     "           [--pattern gpt2|llama3|qwen2] [--jsonl] [--overwrite]\n"
     "         nrl tokenizer encode|decode FILE... --tokenizer PATH [--jsonl]\n"
     "           [--add-special | --skip-special]",
     "tokenizer encode a.txt --tokenizer tok", "train one; text to ids and back", cli_tokenizer,
     NULL},
    {"describe", "[NAME] [--json]", "describe train", "options of a section or a plugin",
     cli_describe,
     "NAME is a section (train), a kind (optimizer), a plugin (adamw) or an option\n"
     "(lr), or lua, what a script can call; none: everything."},
    {"plugins",
     "[--json]\n"
     "         nrl plugins test FILE.so [option=value ...] [--backend NAME]\n"
     "           [--collective NAME] [--config config.json] [--json]\n"
     "         nrl plugins new KIND NAME DIR",
     "plugins test mine.so", "list, test or begin plugins", cli_plugins,
     "KIND is algorithm, optimizer or logger. Plugins are found in NRL_PLUGIN_PATH,\n"
     "which is DIR:DIR..., in `plugins: [DIR]` of a config, and where nrl is\n"
     "installed."},
    {"env", "[--json]", "env", "this machine and this build", cli_env, NULL},
    {"version", "[--json]", "version", "of nrl and its plugin interface", cli_version, NULL},
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

static void print_help(FILE *to)
{
    int width = 0;
    for (int i = 0; i < N_VERBS; i++)
        if ((int)strlen(verbs[i].example) > width) width = (int)strlen(verbs[i].example);
    fprintf(to, "nrl fine-tunes language models. An example of every verb:\n\n");
    for (int i = 0; i < N_VERBS; i++)
        fprintf(to, "  nrl %-*s  %s\n", width, verbs[i].example, verbs[i].summary);
    fprintf(to,
            "\nkey=value sets any option of the config: `nrl describe` lists them.\n"
            "`nrl VERB --help` shows a verb's arguments.\n"
            "Exit codes: 0 done, 1 failed, 2 usage or config, 3 diverged, 4 peer lost,\n"
            "5 checkpoint corrupt, 6 out of memory, 7 disk full, 65 data, 75 stopped: resume\n");
}

static nrl_status print_verb_help(const verb *v)
{
    printf("nrl %s - %s\n\nusage:   nrl %s %s\nexample: nrl %s\n", v->name, v->summary, v->name,
           v->usage, v->example);
    if (v->notes) printf("\n%s\n", v->notes);
    return NRL_OK;
}

static const verb *find_verb(const char *name)
{
    for (int i = 0; i < N_VERBS; i++)
        if (!strcmp(verbs[i].name, name)) return &verbs[i];
    return NULL;
}

static nrl_status unknown_verb(const char *name)
{
    suggestion near = {.word = name};
    for (int i = 0; i < N_VERBS; i++)
        suggest_offer(&near, verbs[i].name);
    if (near.best)
        return nrl_fail(NRL_ERR_CONFIG, "unknown verb '%s'; did you mean '%s'?", name, near.best);
    if (strchr(name, '.')) return nrl_fail(NRL_ERR_CONFIG, "unknown verb '%s'; did you mean `nrl run %s`?", name, name);
    return nrl_fail(NRL_ERR_CONFIG, "unknown verb '%s'\n`nrl help` lists them", name);
}

static int exit_code(nrl_status st)
{
    static const int codes[] = {
        [NRL_OK] = 0,       [NRL_ERR_CONFIG] = 2,   [NRL_ERR_DATA] = 65,   [NRL_ERR_PLUGIN] = 1,
        [NRL_ERR_IO] = 1,   [NRL_ERR_FULL] = 7,     [NRL_ERR_DEVICE] = 1,  [NRL_ERR_MEMORY] = 6,
        [NRL_ERR_PEER] = 4, [NRL_ERR_DIVERGED] = 3, [NRL_ERR_CORRUPT] = 5, [NRL_ERR_STOPPED] = 75,
        [NRL_ERR_BUG] = 1,
    };
    if (st == NRL_ERR_STOPPED && signals_caught() == SIGINT) return 130;
    return (size_t)st < sizeof codes / sizeof *codes ? codes[st] : 1;
}

/* Why standard output could not be written, 0 where it was. What an earlier write said is lost by then, so one more
 * is tried. */
static int output_error(void)
{
    errno = 0;
    if (fflush(stdout)) return errno ? errno : EIO;
    if (!ferror(stdout)) return 0;
    return write(STDOUT_FILENO, "\n", 1) < 0 ? errno : EIO;
}

static int finish(nrl_status st)
{
    /* Output that could not be written is a failure too: `nrl describe >/dev/full`. */
    int error = output_error(); /* what was printed comes before an error in any case */
    if (error && st == NRL_OK)
        st = nrl_fail(error == ENOSPC ? NRL_ERR_FULL : NRL_ERR_IO, "cannot write standard output: %s", strerror(error));
    char hint[MEMORY_HINT] = "";
    if (st == NRL_ERR_MEMORY) memory_limit_hint(hint);
    if (st != NRL_OK) {
        fputs("error: ", stderr);
        escape_print(stderr, nrl_error_text(), strlen(nrl_error_text()));
        fprintf(stderr, "%s\n", hint);
    }
    return exit_code(st);
}

static bool is_help(const char *word)
{
    return !strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h");
}

/* OpenMP's threads spin for milliseconds at every barrier by default: twenty times slower as soon as
 * two processes share the cores. GNU's runtime reads this when the CPU backend is opened. */
static void spin_less(void)
{
    if (getenv("OMP_WAIT_POLICY") == NULL) setenv("GOMP_SPINCOUNT", "1000", 0);
}

/* What may be said of any verb, in front of it or behind; what follows "--" is another's command line. */
static void take_switches(int *argc, char **argv)
{
    int n = 1;
    while (n < *argc && strcmp(argv[n], "--")) n++;
    char *end = argv[n];
    argv[n] = NULL;
    int left = n;
    if (cli_take_flag(&left, argv, "--no-plugins-from-config")) setenv(CLI_NO_CONFIG_PLUGINS, "1", 1);
    if (cli_take_flag(&left, argv, "--no-scripts")) setenv(CLI_NO_SCRIPTS, "1", 1);
    argv[n] = end;
    memmove(argv + left, argv + n, (size_t)(*argc - n + 1) * sizeof *argv);
    *argc -= n - left;
}

int nrl_main(int argc, char **argv)
{
    take_switches(&argc, argv);
    spin_less();
    signals_let_writes_fail();
    if (argc < 2) {
        print_help(stderr);
        return 2;
    }
    if (is_help(argv[1]) && argc == 2) {
        print_help(stdout);
        return finish(NRL_OK);
    }
    const char *name = !strcmp(argv[1], "--version") ? "version" : argv[is_help(argv[1]) ? 2 : 1];
    const verb *v = find_verb(name);
    if (!v) return finish(unknown_verb(name));
    if (is_help(argv[1]) || (argc > 2 && is_help(argv[2]) && *argv[2] == '-'))
        return finish(print_verb_help(v));
    return finish(v->run(argc - 1, argv + 1));
}
