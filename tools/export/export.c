/*
 * export.c - `nrl export SRC DIR`: writes a run's model as a Hugging Face directory.
 */
#include "cli/common/experiment.h"
#include <errno.h>
#include <nrl/inference.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* A word that is not a dtype is an encoding of the format, which the library checks. */
static void parse_dtype(const char *word, nrl_export_options *o)
{
    static const nrl_dtype all[] = {NRL_DTYPE_F32, NRL_DTYPE_BF16, NRL_DTYPE_F16};
    o->encoding = word;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (!strcmp(nrl_dtype_name(all[i]), word)) {
            o->dtype = all[i];
            o->encoding = NULL;
        }
}

/* If a model's files were written among a run's, it would be unclear which of the two the directory
 * is. The weights of another model may be the only copy. */
static nrl_status check_target(arena *a, const char *dir, const char *format, bool alone, bool overwrite)
{
    struct stat s;
    const char *end = strrchr(dir, '.');
    if (!*dir) return nrl_fail(NRL_ERR_CONFIG, "the name of the output directory is empty");
    if (!format && end && !strcmp(end, ".gguf"))
        return nrl_fail(NRL_ERR_CONFIG,
                        "'%s' would be a Hugging Face directory\nhint: --format gguf writes a GGUF file", dir);
    if (!stat(arena_printf(a, "%s/checkpoints", dir), &s))
        return nrl_fail(NRL_ERR_CONFIG, "'%s' contains a run: choose another directory for the model, such as %s/model",
                        dir, dir);
    if (!stat(arena_printf(a, "%s/manifest.json", dir), &s))
        return nrl_fail(NRL_ERR_CONFIG, "'%s' is a checkpoint: choose another directory for the model", dir);
    if (overwrite || stat(arena_printf(a, "%s/%s", dir, alone ? "adapter_config.json" : "config.json"), &s))
        return NRL_OK;
    return nrl_fail(NRL_ERR_CONFIG, "'%s' already contains %s: --overwrite replaces it, another directory keeps both",
                    dir, alone ? "an adapter" : "a model");
}

static nrl_status export_verb(int argc, char **argv)
{
    arena a = {0};
    nrl_environment env;
    const char *dtype, *public_key, *push;
    char *card = NULL;
    bool has_card = false;
    uint32_t used = NRL_DTYPE_NONE;
    nrl_export_options o = {.size = sizeof o, .used_dtype = &used};
    NRL_TRY(cli_take_value(&argc, argv, "--dtype", &dtype));
    NRL_TRY(cli_take_value(&argc, argv, "--public-key", &public_key));
    NRL_TRY(cli_take_value(&argc, argv, "--format", &o.format));
    NRL_TRY(cli_take_value(&argc, argv, "--push", &push));
    o.overwrite = cli_take_flag(&argc, argv, "--overwrite");
    o.adapters = cli_take_flag(&argc, argv, "--adapter");
    NRL_TRY(cli_expect(argc, argv, 2, 2));
    if (dtype) parse_dtype(dtype, &o);
    experiment_environment(&a, &env);
    env.public_key = public_key;
    nrl_status st = check_target(&a, argv[2], o.format, o.adapters, o.overwrite);
    /* A card describes a directory of the hub; formats of one file have their own place for what it says. */
    if (st == NRL_OK && (!o.format || !strcmp(o.format, "hf"))) {
        has_card = true;
        o.card = card = nrl_model_card(argv[1], argv[2], o.adapters);
    }
    if (st == NRL_OK) st = nrl_export(argv[1], &env, argv[2], &o);
    if (st == NRL_OK && has_card && !card) printf("kept %s/README.md, which nrl did not write\n", argv[2]);
    free(card);
    if (st == NRL_OK)
        printf("wrote %s (%s%s)\n", argv[2], o.adapters ? "an adapter, " : "",
               o.encoding ? o.encoding : nrl_dtype_name((nrl_dtype)used));
    if (st == NRL_OK && push) {
        char *words[] = {NULL, argv[2], (char *)(uintptr_t)push, NULL};
        const char *bin = cli_exe_dir(&a);
        words[0] = arena_printf(&a, "%s/../" NRL_LIBEXEC_SUBDIR "/nrl-upload", bin ? bin : ".");
        fflush(stdout);
        execv(words[0], words);
        st = nrl_fail(NRL_ERR_IO, "cannot start '%s': %s; it exists only in builds with libcurl", words[0],
                      strerror(errno));
    }
    arena_free(&a);
    return st;
}

int main(int argc, char **argv)
{
    return cli_tool_main(argc, argv, "export", export_verb);
}
