/*
 * facts.c - the info of an open tokenizer.
 */
#include "parts.h"
#include <string.h>

int32_t bpe_eos(const bpe_tokenizer *tok)
{
    return tok->n_eos ? tok->eos[0] : NRL_TOKEN_NONE;
}

bool bpe_is_eos(const bpe_tokenizer *tok, int32_t id)
{
    for (size_t i = 0; i < tok->n_eos; i++)
        if (tok->eos[i] == id) return true;
    return false;
}

bool bpe_adds_bos(const bpe_tokenizer *tok)
{
    for (size_t i = 0; i < tok->n_prefix; i++)
        if (tok->prefix[i] == tok->bos) return true;
    return false;
}

bool bpe_adds_eos(const bpe_tokenizer *tok)
{
    for (size_t i = 0; i < tok->n_suffix; i++)
        if (bpe_is_eos(tok, tok->suffix[i])) return true;
    return false;
}

/* The texts that transformers' classes have for roles that no file names; TokenizersBackend is the class of version 5
 * for any tokenizer.json. Returns false for other classes. */
static bool class_text(const bpe_tokenizer *tok, const char *name, const char **text)
{
    static const struct {
        const char *class, *bos, *eos, *pad, *unk;
    } classes[] = {{"LlamaTokenizer", "<s>", "</s>", NULL, "<unk>"},
                   {"CodeLlamaTokenizer", "<s>", "</s>", NULL, "<unk>"},
                   {"GPT2Tokenizer", "<|endoftext|>", "<|endoftext|>", NULL, "<|endoftext|>"},
                   {"Qwen2Tokenizer", NULL, "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"},
                   {"GemmaTokenizer", "<bos>", "<eos>", "<pad>", "<unk>"},
                   {"PreTrainedTokenizer", NULL, NULL, NULL, NULL},
                   {"TokenizersBackend", NULL, NULL, NULL, NULL}};
    const char *class = nrl_node_string(nrl_node_find(tok->config, "tokenizer_class"), "");
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++) {
        const size_t n = strlen(classes[i].class);
        if (strncmp(class, classes[i].class, n) || (class[n] && strcmp(class + n, "Fast"))) continue;
        *text = !strcmp(name, "bos_token")   ? classes[i].bos
                : !strcmp(name, "eos_token") ? classes[i].eos
                : !strcmp(name, "pad_token") ? classes[i].pad
                : !strcmp(name, "unk_token") ? classes[i].unk
                                             : NULL;
        return true;
    }
    return false;
}

/* The first file that contains the name decides, even if the value is null. Without files, the BOS,
 * EOS and PAD of the tokenizer itself are used. */
static const char *named_text(const bpe_tokenizer *tok, const char *name)
{
    const char *text;
    const nrl_node *files[] = {tok->config, tok->special};
    for (int i = 0; i < 2; i++) {
        const nrl_node *n = nrl_node_find(files[i], name);
        if (!n) continue;
        if (nrl_node_kind(n) == NRL_NODE_MAP) n = nrl_node_find(n, "content");
        return nrl_node_string(n, NULL);
    }
    if (class_text(tok, name, &text)) return text;
    int32_t id = !strcmp(name, "bos_token")   ? tok->bos
                 : !strcmp(name, "eos_token") ? bpe_eos(tok)
                 : !strcmp(name, "pad_token") ? tok->pad
                                              : NRL_TOKEN_NONE;
    return id == NRL_TOKEN_NONE ? NULL : vocab_text(&tok->words, id, NULL);
}

void bpe_fill_named(bpe_tokenizer *tok)
{
    static const char *const names[N_NAMED] = {"bos_token", "eos_token", "unk_token", "sep_token",
                                               "pad_token", "cls_token", "mask_token"};
    for (int i = 0; i < N_NAMED; i++) {
        const char *text = named_text(tok, names[i]);
        if (text) tok->named[tok->n_named++] = (nrl_named_token){names[i], text};
    }
}

/* SentencePiece style tokenizers write a space as a mark; most put one before every range. */
static bool space_after_special(const bpe_tokenizer *tok)
{
    bool marks = tok->edit.replacement != NULL;
    bool puts = tok->edit.replacement && tok->edit.prepend && !tok->edit.first_only;
    for (size_t i = 0; i < tok->n_normal; i++) {
        const normal_step *s = &tok->normal[i];
        if (s->kind == NORMAL_PREPEND) puts = true;
        if (s->kind == NORMAL_REPLACE && s->text_size == 1 && *s->text == ' ') marks = true;
    }
    return marks && !puts;
}

void bpe_info(const bpe_tokenizer *tok, nrl_tokenizer_info *out)
{
    *out = (nrl_tokenizer_info){.size = sizeof *out,
                                .vocab_size = tok->words.n,
                                .bos = tok->bos,
                                .eos = bpe_eos(tok),
                                .pad = tok->pad,
                                .adds_bos = bpe_adds_bos(tok),
                                .adds_eos = bpe_adds_eos(tok),
                                .space_after_special = space_after_special(tok),
                                .space_before_text = tok->edit.prepend && tok->edit.first_only,
                                .eos_ids = tok->eos,
                                .n_eos = tok->n_eos,
                                .hash = tok->hash,
                                .folder = tok->folder,
                                .chat_template = tok->chat_template,
                                .tools_template = tok->tools_template,
                                .named = tok->named,
                                .n_named = tok->n_named,
                                .named_size = sizeof *tok->named,
                                .stream_room = bpe_stream_room(tok)};
}
