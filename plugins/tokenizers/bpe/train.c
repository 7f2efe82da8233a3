/*
 * train.c - counts the words of texts, to train a byte-level BPE. Memory grows with the number of
 * different words, not with the size of the text.
 */
#include "words.h"
#include "scan.h"
#include "train_parts.h"
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

/* A longer word is counted in pieces: a file of zeros is one word, and no token is that long. */
enum { N_BYTES = 256, FIRST_SLOTS = 4096, DEFAULT_FREQUENCY = 2, LONGEST_WORD = 1 << 16 };

static bool known_pattern(const char *name, split_step *out)
{
    static const struct {
        const char *name;
        split_kind kind;
        int max_digits;
    } known[] = {{"gpt2", SPLIT_GPT2, 0}, {"llama3", SPLIT_LLAMA3, 3}, {"qwen2", SPLIT_LLAMA3, 1}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (!strcmp(known[i].name, name)) {
            *out = (split_step){.kind = known[i].kind, .max_digits = known[i].max_digits};
            return true;
        }
    return false;
}

static nrl_status check(const nrl_train_tokenizer *o)
{
    if (o->vocab_size < N_BYTES + (int64_t)o->n_special || o->vocab_size > NRL_TOKEN_MAX_ID)
        return nrl_fail(NRL_ERR_CONFIG,
                        "vocabulary size %lld, expected %zu (256 bytes and the special "
                        "tokens) to %d",
                        (long long)o->vocab_size, N_BYTES + o->n_special, NRL_TOKEN_MAX_ID);
    if (o->min_frequency < 0)
        return nrl_fail(NRL_ERR_CONFIG, "min_frequency %lld, expected 0 or more", (long long)o->min_frequency);
    return NRL_OK;
}

static nrl_status add_special(bpe_trainer *t, const char *text, size_t id)
{
    size_t size = strlen(text);
    if (!size || !utf8_valid(text, size))
        return nrl_fail(NRL_ERR_CONFIG, "special token %zu: expected UTF-8 text that is not empty", id);
    if (vocab_find(&t->special->words, text, size) != VOCAB_ABSENT)
        return nrl_fail(NRL_ERR_CONFIG, "special token '%s' is given twice", text);
    size_t first;
    int32_t c = utf8_next(text, text + size, &first);
    if (first == size && char_to_byte(c) >= 0)
        return nrl_fail(NRL_ERR_CONFIG,
                        "special token '%s' is a single character of the byte alphabet, "
                        "expected more",
                        text);
    NRL_TRY(vocab_add(&t->special->words, text, size, (int64_t)id));
    return added_push(t->special, &(added_token){.id = (int32_t)id, .special = true});
}

nrl_status bpe_trainer_create(const nrl_train_tokenizer *options, bpe_trainer **out)
{
    split_step pattern;
    if (!known_pattern(options->pattern ? options->pattern : "gpt2", &pattern))
        return nrl_fail(NRL_ERR_CONFIG, "unknown pattern '%s', expected gpt2, llama3 or qwen2", options->pattern);
    NRL_TRY(check(options));
    bpe_trainer *t = mem_alloc(sizeof *t);
    t->special = mem_alloc(sizeof *t->special);
    t->scratch = bpe_scratch_create();
    t->pattern = pattern;
    t->vocab_size = options->vocab_size;
    t->overwrite = options->overwrite;
    t->may_write = options->may_write;
    t->user = options->user;
    t->min_frequency = options->min_frequency ? options->min_frequency : DEFAULT_FREQUENCY;
    nrl_status st = NRL_OK;
    for (size_t i = 0; i < options->n_special && st == NRL_OK; i++)
        st = add_special(t, options->special[i], i);
    if (st == NRL_OK) st = added_index(t->special);
    if (st != NRL_OK) {
        bpe_trainer_destroy(t);
        return st;
    }
    *out = t;
    return NRL_OK;
}

void bpe_trainer_destroy(bpe_trainer *t)
{
    if (!t) return;
    bpe_close(t->special);
    bpe_scratch_destroy(t->scratch);
    free(t->text);
    free(t->words);
    free(t->slots);
    free(t->symbols);
    free(t->tokens);
    free(t->token_text);
    free(t);
}

/* ---- counting ---- */

static size_t slot_of(const bpe_trainer *t, const char *word, size_t size)
{
    size_t i = (size_t)XXH3_64bits(word, size) & (t->n_slots - 1);
    for (; t->slots[i]; i = (i + 1) & (t->n_slots - 1)) {
        const train_word *w = &t->words[t->slots[i] - 1];
        if (w->size == size && !memcmp(t->text + w->start, word, size)) break;
    }
    return i;
}

static void grow_slots(bpe_trainer *t)
{
    free(t->slots);
    t->n_slots = t->n_slots ? t->n_slots * 2 : FIRST_SLOTS;
    t->slots = mem_alloc(t->n_slots * sizeof *t->slots);
    for (size_t i = 0; i < t->n_words; i++)
        t->slots[slot_of(t, t->text + t->words[i].start, t->words[i].size)] = (uint32_t)i + 1;
}

static nrl_status new_word(bpe_trainer *t, const char *word, size_t size)
{
    if (t->n_words >= UINT32_MAX / 2) return nrl_fail(NRL_ERR_DATA, "more than %u different words", UINT32_MAX / 2);
    if (t->n_words == t->words_room) {
        t->words_room = t->words_room ? t->words_room * 2 : 1024;
        t->words = mem_realloc(t->words, t->words_room * sizeof *t->words);
    }
    if (t->text_room - t->n_text < size) {
        t->text_room = t->text_room * 2 + size + FIRST_SLOTS;
        t->text = mem_realloc(t->text, t->text_room);
    }
    memcpy(t->text + t->n_text, word, size);
    t->words[t->n_words++] = (train_word){.start = t->n_text, .size = (uint32_t)size, .count = 1};
    t->n_text += size;
    return NRL_OK;
}

static nrl_status count_word(bpe_trainer *t, const char *word, size_t size)
{
    if (t->n_words * 2 >= t->n_slots) grow_slots(t);
    size_t i = slot_of(t, word, size);
    if (t->slots[i]) {
        t->words[t->slots[i] - 1].count++;
        return NRL_OK;
    }
    NRL_TRY(new_word(t, word, size));
    t->slots[i] = (uint32_t)t->n_words;
    return NRL_OK;
}

static nrl_status count_stretch(bpe_trainer *t, const char *text, size_t begin, size_t end)
{
    spans *words = &t->scratch->words;
    words->n = 0;
    if (t->pattern.kind == SPLIT_GPT2)
        scan_gpt2(text, begin, end, words);
    else
        scan_llama3(text, begin, end, t->pattern.max_digits, words);
    for (size_t i = 0; i < words->n; i++)
        for (size_t at = words->at[i].begin, stop = words->at[i].end; at < stop; at += LONGEST_WORD)
            NRL_TRY(count_word(t, text + at, stop - at < LONGEST_WORD ? stop - at : LONGEST_WORD));
    return NRL_OK;
}

static nrl_status count_text(bpe_trainer *t, const char *text, size_t size)
{
    added_walk w = {0};
    while (added_next(t->special, &t->special->raw, text, size, 0, &w))
        NRL_TRY(count_stretch(t, text, w.at, w.begin));
    return count_stretch(t, text, w.at, size);
}

nrl_status bpe_trainer_add(bpe_trainer *t, const char *text, size_t size)
{
    if (utf8_valid(text, size)) return count_text(t, text, size);
    text_buffer clean = {0};
    utf8_repair(text, size, &clean);
    nrl_status st = count_text(t, clean.data, clean.n);
    text_buffer_free(&clean);
    return st;
}

nrl_status bpe_trainer_save(bpe_trainer *t, const char *folder, int64_t *n_tokens)
{
    size_t n_special = t->special->n_added;
    NRL_TRY(train_check_folder(t, folder));
    train_merge(t, (size_t)t->vocab_size - n_special);
    if (n_tokens) *n_tokens = (int64_t)(t->n_tokens + n_special);
    return train_save(t, folder);
}
