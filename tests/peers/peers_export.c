/*
 * peers_export.c - trains a model a little, saves it in Hugging Face form, whole and in shards, and
 * prints what it thinks: logits of the last position of each row, and the ids of some texts. The
 * gradients of before, of the golden rows' mean loss, are saved under the names of their weights.
 *
 *   peers_export DIR OUT   writes OUT/whole, OUT/shards, OUT/gradients; JSON on stdout
 */
#include "parity/harness.h"
#include "support/text.h"

enum { N_STEPS = 3, SHARD_BYTES = 30000 };

/* Rows that a golden file or a default names. */
static nrl_batch *make_batch(parity *p)
{
    static const int32_t ids[] = {1, 403, 407, 261, 378};
    static const int32_t *const row = ids;
    static const int32_t length = 5;
    return p->golden ? parity_golden_batch(p, 0, 3, SCORE_ALL) : parity_batch(1, &row, &length);
}

static nrl_status gradient(void *user, const nrl_param *param, int64_t begin, int64_t n, float *out)
{
    double *values = parity_tensor(user, param, NRL_SLOT_GRAD);
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)values[begin + i];
    free(values);
    return NRL_OK;
}

static void save_gradients(parity *p, const char *out)
{
    save_options o = {.dtype = NRL_DTYPE_F32};
    if (!p->golden) return;
    nrl_batch *batch = parity_golden_batch(p, 0, 3, SCORE_LABELS);
    parity_train(p, batch, (double)batch->n_rows);
    ASSERT_OK(test_save(arena_printf(&p->a, "%s/gradients", out), p->m, gradient, p, o));
    ctx_set_batch(p->ctx, NULL);
    batch_free(batch);
}

static void train(parity *p, nrl_batch *batch)
{
    static const nrl_adamw adamw = {sizeof adamw, 0.9, 0.95, 1e-8, 0.1};
    for (int i = 1; i <= N_STEPS; i++) {
        parity_train(p, batch, (double)batch->n_rows);
        parity_adamw(p, &adamw, 1e-2, 1, i);
    }
}

static void save(parity *p, const char *out)
{
    static const char *const names[] = {"whole", "shards"};
    storage_view view = {.ctx = p->ctx};
    for (int i = 0; i < 2; i++) {
        save_options o = {.dtype = NRL_DTYPE_F32, .max_shard_bytes = i * SHARD_BYTES, .copy_from = p->dir};
        ASSERT_OK(test_save(arena_printf(&p->a, "%s/%s", out, names[i]), p->m, storage_gather, &view, o));
    }
}

static void print_logits(parity *p, nrl_batch *batch)
{
    int64_t vocab = p->m->info.vocab_size;
    printf("\"rows\": [");
    for (int64_t s = 0; s < batch->n_segments; s++) {
        int32_t begin = batch->cu_seqlens[s], last = batch->cu_seqlens[s + 1] - 1;
        double *logits = parity_logits(p, batch, &last, 1);
        printf("%s\n{\"ids\": [", s ? "," : "");
        for (int32_t i = begin; i <= last; i++)
            printf("%s%d", i > begin ? "," : "", batch->tokens[i]);
        printf("], \"logits\": [");
        for (int64_t v = 0; v < vocab; v++)
            printf("%s%.9g", v ? "," : "", logits[v]);
        printf("]}");
        free(logits);
    }
    printf("]");
}

/* Only where the model came with a tokenizer. */
static void print_ids(parity *p)
{
    static const char *const texts[] = {"Once upon a time, there was a little girl named Lily.",
                                        "  two  spaces\n\nand lines\t",
                                        "na\xC3\xAFve \xE2\x80\x9Cquotes\xE2\x80\x9D \xF0\x9F\x98\x80", ""};
    tokenizer *tok;
    if (test_tokenizer_open(p->dir, &tok) != NRL_OK) return;
    tokenizer_scratch *scratch = tokenizer_scratch_create(tok);
    printf(", \"texts\": [");
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        nrl_token_ids ids = {0};
        char *quoted = json_quote(texts[i], strlen(texts[i]));
        ASSERT_OK(tokenizer_encode(tok, scratch, texts[i], strlen(texts[i]), NRL_ENCODE_ADD_SPECIAL, &ids));
        printf("%s\n{\"text\": %s, \"ids\": [", i ? "," : "", quoted);
        for (size_t k = 0; k < ids.n; k++)
            printf("%s%d", k ? "," : "", ids.ids[k]);
        printf("]}");
        free(quoted);
        nrl_token_ids_free(&ids);
    }
    printf("]");
    tokenizer_scratch_destroy(scratch);
    tokenizer_close(tok);
}

static void export(void **state)
{
    char **argv = *state;
    parity p;
    parity_open(&p, argv[1], "config.json", NRL_DTYPE_F32);
    save_gradients(&p, argv[2]);
    nrl_batch *batch = make_batch(&p);
    train(&p, batch);
    save(&p, argv[2]);
    printf("{");
    print_logits(&p, batch);
    print_ids(&p);
    printf("}\n");
    parity_close(&p);
    batch_free(batch);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test_prestate(export, argv)};
    if (argc != 3) return 2;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
