/*
 * logits.c MODEL PLUGINS IDS...: prints the logits of a model for token ids, a row for each id.
 */
#include <nrl/inference.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv)
{
    const nrl_environment env = {.size = sizeof env, .plugin_path = argc > 2 ? argv[2] : NULL};
    nrl_inference *m = NULL;
    nrl_inference_info info = {.size = sizeof info};
    int32_t ids[64];
    int64_t n = 0;
    for (int i = 3; i < argc && n < 64; i++)
        ids[n++] = (int32_t)atoi(argv[i]);
    nrl_status st = nrl_inference_open(argv[1], &env, &m);
    if (st == NRL_OK) nrl_inference_info_fill(m, &info);
    float *logits = malloc((size_t)(n * info.vocab_size + 1) * sizeof *logits);
    if (st == NRL_OK) st = nrl_inference_logits(m, ids, &n, 1, logits);
    for (int64_t i = 0; i < n * info.vocab_size && st == NRL_OK; i++)
        printf("%.6f%c", (double)logits[i], (i + 1) % info.vocab_size ? ' ' : '\n');
    if (st != NRL_OK) fprintf(stderr, "error: %s\n", nrl_error_text());
    free(logits);
    nrl_inference_close(m);
    return st != NRL_OK;
}
