/*
 * embed.c - a program that trains a model with libnrl: embed CONFIGS OUT. CONFIGS is a directory
 * with models/tiny.json and data/chat.jsonl, as installed with nrl. The program builds a config,
 * prints the loss of each step, and samples an answer.
 */
#include <nrl/inference.h>
#include <stdio.h>

static nrl_status on_event(void *user, nrl_run *run, const nrl_run_event *e)
{
    (void)user;
    (void)run;
    if (e->kind == NRL_EVENT_STEP) printf("step %lld loss %.6f\n", (long long)e->step, e->loss);
    return NRL_OK;
}

/* Adds `key: before + after` to a map. */
static void put_text(nrl_arena *a, nrl_node *map, const char *key, const char *before, const char *after)
{
    char text[4096];
    int n = snprintf(text, sizeof text, "%s%s", before, after);
    nrl_node_put(a, map, key, nrl_node_new_string(a, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1));
}

static nrl_node *put_map(nrl_arena *a, nrl_node *root, const char *key)
{
    nrl_node *map = nrl_node_new(a, NRL_NODE_MAP);
    nrl_node_put(a, root, key, map);
    return map;
}

int main(int argc, char **argv)
{
    if (argc != 3) return fprintf(stderr, "usage: embed CONFIGS OUT\n"), 2;
    nrl_arena *a = nrl_arena_create();
    nrl_node *root = nrl_node_new(a, NRL_NODE_MAP), *model = put_map(a, root, "model"),
             *data = put_map(a, root, "data"), *train = put_map(a, root, "train");
    put_text(a, model, "config", argv[1], "/models/tiny.json");
    put_text(a, model, "tokenizer", argv[1], "/models/tiny-tokenizer");
    put_text(a, data, "train", argv[1], "/data/chat.jsonl");
    put_text(a, data, "template", "chatml", "");
    nrl_node_put(a, data, "max_length", nrl_node_new_int(a, 128));
    nrl_node_put(a, train, "steps", nrl_node_new_int(a, 3));
    nrl_node_put(a, train, "global_batch", nrl_node_new_int(a, 8));
    nrl_node_put(a, put_map(a, root, "optimizer"), "lr", nrl_node_new_f64(a, 3e-3));
    put_text(a, root, "out", argv[2], "");

    nrl_config *config = nrl_config_create(a);
    nrl_environment env = {.size = sizeof env, .quiet = true, .event = on_event};
    const nrl_sample_options greedy = {.size = sizeof greedy, .chat = true, .max_tokens = 8, .top_p = 1};
    const char *prompt = "What is two plus two?";
    char *answer = NULL;
    nrl_run *run;
    nrl_config_set_root(config, root);
    nrl_status st = nrl_run_open(config, &env, &run);
    if (st == NRL_OK) st = nrl_run_train(run);
    if (st == NRL_OK) st = nrl_run_sample(run, &prompt, 1, &greedy, &answer, NULL);
    if (st == NRL_OK)
        printf("%s %s\n", prompt, answer);
    else
        fprintf(stderr, "error: %s\n", nrl_error_text());
    nrl_free(answer);
    nrl_run_close(run);
    nrl_config_destroy(config);
    nrl_arena_destroy(a);
    return st != NRL_OK;
}
