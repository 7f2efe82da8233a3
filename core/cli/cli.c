/*
 * cli.c - nrl_main: finds the verb, prints its error, chooses the exit code.
 */
#include "cli/cli.h"
#include "config/suggest.h"
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

NRL_API int nrl_main(int argc, char **argv);

typedef struct {
    const char *name;
    const char *usage;   /* arguments */
    const char *example; /* as typed, without "nrl" */
    const char *summary;
    nrl_status (*run)(int argc, char **argv);
} verb;

static const verb verbs[] = {
    {"run", "FILE [key=value ...]", "run scripts/sft.lua optimizer.lr=5e-6",
     "run an experiment: a Lua script, or a YAML config", cli_run},
    {"check", "FILE [key=value ...]", "check configs/sft.yaml",
     "everything up to opening a device, all mistakes at once", cli_check},
    {"resume", "DIR [key=value ...]", "resume runs/sft", "continue a run from its newest checkpoint", cli_resume},
    {"eval", "FILE.yaml [key=value ...] [--json]", "eval configs/sft.yaml", "the loss over data.eval", cli_eval},
    {"sample",
     "SRC --prompt TEXT | --file FILE [--max-tokens N] [--temperature T] [--top-p P] [--seed S] [--template NAME] [--json]",
     "sample runs/sft --prompt 'Once upon'", "continue prompts with a model, a run or a checkpoint", cli_sample},
    {"export", "SRC DIR [--dtype f32|bf16|f16]", "export runs/sft out/model", "write a Hugging Face directory", cli_export},
    {"import", "DIR OUT", "import models/SmolLM2-135M runs/start", "a Hugging Face directory as a checkpoint", cli_import},
    {"tokenizer",
     "train FILE... --vocab-size N --out DIR [--special TOKEN,...] [--min-frequency N] [--pattern gpt2|llama3|qwen2] [--jsonl]\n"
     "         nrl tokenizer encode|decode FILE... --tokenizer PATH [--jsonl] [--add-special | --skip-special]",
     "tokenizer encode text.txt --tokenizer models/tiny", "train a tokenizer; text lines to ids and back", cli_tokenizer},
    {"describe", "[NAME] [--json]", "describe train", "options of a section, a plugin or everything",
     cli_describe},
    {"plugins", "[--json]", "plugins", "plugins found, broken ones with the reason", cli_plugins},
    {"env", "[--json]", "env", "this machine and this build, for reports", cli_env},
    {"version", "[--json]", "version", "version of nrl and of its plugin interface", cli_version},
};
enum { N_VERBS = sizeof verbs / sizeof *verbs };

static int print_help(FILE *to)
{
    fprintf(to, "nrl fine-tunes language models.\n\nusage: nrl VERB [FILE] [key=value ...]\n\n");
    for (int i = 0; i < N_VERBS; i++)
        fprintf(to, "  nrl %-44s %s\n", verbs[i].example, verbs[i].summary);
    fprintf(to, "\n`nrl VERB --help` shows a verb's arguments, `nrl describe` every option.\n"
                "exit codes: 0 done, 1 failed, 2 usage or config, 3 diverged, 4 peer lost,\n"
                "5 checkpoint corrupt, 6 out of memory, 7 disk full, 65 data, 75 stopped: resume me\n");
    return to == stdout ? 0 : 2;
}

static int print_verb_help(const verb *v)
{
    printf("nrl %s - %s\n\nusage:   nrl %s %s\nexample: nrl %s\n", v->name, v->summary, v->name, v->usage,
           v->example);
    return 0;
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
    for (int i = 0; i < N_VERBS; i++) suggest_offer(&near, verbs[i].name);
    if (near.best)
        return nrl_fail(NRL_ERR_CONFIG, "unknown verb '%s'; did you mean '%s'?", name, near.best);
    return nrl_fail(NRL_ERR_CONFIG, "unknown verb '%s'\n`nrl help` lists them", name);
}

static int exit_code(nrl_status st)
{
    static const int codes[] = {
        [NRL_OK] = 0,          [NRL_ERR_CONFIG] = 2,    [NRL_ERR_DATA] = 65, [NRL_ERR_PLUGIN] = 1,
        [NRL_ERR_IO] = 1,      [NRL_ERR_FULL] = 7,      [NRL_ERR_DEVICE] = 1, [NRL_ERR_MEMORY] = 6,
        [NRL_ERR_PEER] = 4,    [NRL_ERR_DIVERGED] = 3,  [NRL_ERR_CORRUPT] = 5,
        [NRL_ERR_STOPPED] = 75, [NRL_ERR_BUG] = 1,
    };
    if (st == NRL_ERR_STOPPED && *cli_signal() == SIGINT) return 130;
    return (size_t)st < sizeof codes / sizeof *codes ? codes[st] : 1;
}

static int finish(nrl_status st)
{
    /* Output that could not be written is a failure too: `nrl describe >/dev/full`. */
    errno = 0;
    if ((fflush(stdout) || ferror(stdout)) && st == NRL_OK)
        st = nrl_fail(errno == ENOSPC ? NRL_ERR_FULL : NRL_ERR_IO, "standard output: %s",
                      strerror(errno ? errno : EIO));
    if (st != NRL_OK) fprintf(stderr, "error: %s\n", nrl_error_text());
    return exit_code(st);
}

static bool is_help(const char *word)
{
    return !strcmp(word, "help") || !strcmp(word, "--help") || !strcmp(word, "-h");
}

int nrl_main(int argc, char **argv)
{
    if (argc < 2) return print_help(stderr);
    if (is_help(argv[1]) && argc == 2) return print_help(stdout);
    const char *name = !strcmp(argv[1], "--version") ? "version" : argv[is_help(argv[1]) ? 2 : 1];
    const verb *v = find_verb(name);
    if (!v) return finish(unknown_verb(name));
    if (is_help(argv[1]) || (argc > 2 && is_help(argv[2]) && *argv[2] == '-')) return print_verb_help(v);
    return finish(v->run(argc - 1, argv + 1));
}
