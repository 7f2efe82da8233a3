/*
 * load_sentencepiece.c - a SentencePiece `.model` of type BPE. The protobuf messages are decoded by
 * hand: ModelProto {1 pieces, 2 trainer_spec, 3 normalizer_spec}, SentencePiece {1 text, 2 score, 3
 * type}, TrainerSpec {3 model_type, 35 byte_fallback, 40-43 unk/bos/eos/pad id}, NormalizerSpec {2
 * charsmap, 3 add_dummy_prefix, 4 remove_extra_whitespaces, 5 escape_whitespaces}. Encoding follows
 * Hugging Face's conversion of the same file: control pieces such as </s> in the text are tokens,
 * and each range between them gets the dummy prefix.
 */
#include "load.h"
#include <stdlib.h>
#include <string.h>

typedef struct {
    const unsigned char *p, *end;
} wire;

typedef struct {
    uint32_t number, type; /* type: 0 varint, 1 eight bytes, 2 bytes, 5 four bytes */
    uint64_t value;        /* varint */
    wire bytes;
} field;

enum { PIECE_NORMAL = 1, PIECE_UNKNOWN, PIECE_CONTROL, PIECE_USER, PIECE_UNUSED, PIECE_BYTE };
enum { LONGEST_PIECE = 4096 }; /* every way to split a piece in two is looked up */
enum { MODEL_UNIGRAM = 1, MODEL_BPE = 2 };

typedef struct {
    float *scores;  /* [n] by id */
    uint8_t *types; /* [n] */
    size_t n, room;
    uint64_t model_type, byte_fallback, dummy_prefix, remove_extra, escape;
    int64_t bos, eos, pad;
    size_t charsmap_size;
} spm;

static bool read_varint(wire *w, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && w->p < w->end; shift += 7) {
        unsigned char b = *w->p++;
        *value |= (uint64_t)(b & 0x7f) << shift;
        if (!(b & 0x80)) return true;
    }
    return false;
}

static bool read_bytes(wire *w, uint64_t n, wire *bytes)
{
    if (n > (uint64_t)(w->end - w->p)) return false;
    *bytes = (wire){w->p, w->p + n};
    w->p += n;
    return true;
}

/* False if a field is malformed. */
static bool read_field(wire *w, field *f)
{
    uint64_t tag, n;
    if (!read_varint(w, &tag) || tag >> 3 == 0 || tag >> 3 > UINT32_MAX) return false;
    *f = (field){.number = (uint32_t)(tag >> 3), .type = (uint32_t)(tag & 7)};
    switch (f->type) {
    case 0:
        return read_varint(w, &f->value);
    case 1:
        return read_bytes(w, 8, &f->bytes);
    case 2:
        return read_varint(w, &n) && read_bytes(w, n, &f->bytes);
    case 5:
        return read_bytes(w, 4, &f->bytes);
    default:
        return false;
    }
}

static nrl_status broken(const char *where)
{
    return nrl_fail(NRL_ERR_DATA, "%s is malformed, expected a SentencePiece model", where);
}

static nrl_status read_piece(bpe_tokenizer *tok, spm *m, wire w)
{
    wire text = {0};
    float score = 0;
    uint64_t type = PIECE_NORMAL;
    while (w.p < w.end) {
        field f;
        if (!read_field(&w, &f)) return broken("a piece");
        if (f.number == 1 && f.type == 2) text = f.bytes;
        if (f.number == 2 && f.type == 5) memcpy(&score, f.bytes.p, sizeof score);
        if (f.number == 3 && f.type == 0) type = f.value;
    }
    size_t size = (size_t)(text.end - text.p);
    if (!size || size > LONGEST_PIECE || !utf8_valid((const char *)text.p, size))
        return nrl_fail(NRL_ERR_DATA, "piece %zu: expected UTF-8 text of 1 to %d bytes", m->n, LONGEST_PIECE);
    if (type < PIECE_NORMAL || type > PIECE_BYTE || score != score)
        return nrl_fail(NRL_ERR_DATA, "piece %zu: expected a type from 1 to 6 and a finite score", m->n);
    if (m->n == m->room) {
        m->room = m->room ? m->room * 2 : 1024;
        m->scores = mem_realloc(m->scores, m->room * sizeof *m->scores);
        m->types = mem_realloc(m->types, m->room);
    }
    m->scores[m->n] = score;
    m->types[m->n] = (uint8_t)type;
    return vocab_add(&tok->words, (const char *)text.p, size, (int64_t)m->n++);
}

static nrl_status read_trainer(spm *m, wire w)
{
    while (w.p < w.end) {
        field f;
        if (!read_field(&w, &f)) return broken("trainer_spec");
        if (f.type != 0) continue;
        switch (f.number) {
        case 3:
            m->model_type = f.value;
            break;
        case 35:
            m->byte_fallback = f.value;
            break;
        case 41:
            m->bos = (int32_t)f.value;
            break;
        case 42:
            m->eos = (int32_t)f.value;
            break;
        case 43:
            m->pad = (int32_t)f.value;
            break;
        default:
            break;
        }
    }
    return NRL_OK;
}

static nrl_status read_normalizer(spm *m, wire w)
{
    while (w.p < w.end) {
        field f;
        if (!read_field(&w, &f)) return broken("normalizer_spec");
        if (f.number == 2 && f.type == 2) m->charsmap_size = (size_t)(f.bytes.end - f.bytes.p);
        if (f.type != 0) continue;
        if (f.number == 3) m->dummy_prefix = f.value;
        if (f.number == 4) m->remove_extra = f.value;
        if (f.number == 5) m->escape = f.value;
    }
    return NRL_OK;
}

static nrl_status read_model(bpe_tokenizer *tok, spm *m, wire w)
{
    while (w.p < w.end) {
        field f;
        if (!read_field(&w, &f)) return broken("the file");
        if (f.type != 2) continue;
        if (f.number == 1) NRL_TRY(read_piece(tok, m, f.bytes));
        if (f.number == 2) NRL_TRY(read_trainer(m, f.bytes));
        if (f.number == 3) NRL_TRY(read_normalizer(m, f.bytes));
    }
    return m->n ? NRL_OK : broken("the file");
}

static nrl_status check_kind(const spm *m)
{
    if (m->model_type != MODEL_BPE)
        return nrl_fail(NRL_ERR_DATA, "a SentencePiece model of type %s is not supported, expected BPE",
                        m->model_type == MODEL_UNIGRAM ? "unigram" : "word or char");
    if (m->charsmap_size)
        return nrl_fail(NRL_ERR_DATA, "a SentencePiece normalizer with a character map is not "
                                      "supported, expected 'identity'");
    if (m->remove_extra || !m->escape)
        return nrl_fail(NRL_ERR_DATA, "normalizer_spec: remove_extra_whitespaces or no "
                                      "escape_whitespaces is not supported");
    return NRL_OK;
}

typedef struct {
    float score;
    int32_t id;
} scored;

static int by_score(const void *a, const void *b)
{
    const scored *x = a, *y = b;
    if (x->score != y->score) return x->score > y->score ? -1 : 1;
    return x->id < y->id ? -1 : 1;
}

/* Higher scores merge first. Equal scores share a rank, so that the leftmost pair wins. */
static void rank_by_score(bpe_tokenizer *tok, const spm *m)
{
    scored *order = mem_alloc(m->n * sizeof *order);
    uint32_t *rank = mem_alloc(m->n * sizeof *rank);
    size_t n = 0;
    for (size_t i = 0; i < m->n; i++) {
        rank[i] = VOCAB_NO_RANK;
        if (m->types[i] == PIECE_NORMAL) order[n++] = (scored){m->scores[i], (int32_t)i};
    }
    qsort(order, n, sizeof *order, by_score);
    uint32_t next = 0;
    for (size_t i = 0; i < n; i++) {
        if (i && order[i].score != order[i - 1].score) next++;
        rank[order[i].id] = next;
    }
    merges_from_ranks(&tok->merges, &tok->words, rank);
    free(order);
    free(rank);
}

static nrl_status add_controls(bpe_tokenizer *tok, const spm *m)
{
    for (size_t i = 0; i < m->n; i++) {
        bool user = m->types[i] == PIECE_USER;
        if (!user && m->types[i] != PIECE_CONTROL && m->types[i] != PIECE_UNKNOWN) continue;
        added_token a = {.id = (int32_t)i, .special = !user};
        NRL_TRY(added_push(tok, &a));
        if (m->types[i] == PIECE_UNKNOWN) tok->unk = (int32_t)i;
    }
    return NRL_OK;
}

static nrl_status use_roles(bpe_tokenizer *tok, const spm *m)
{
    if (vocab_has(&tok->words, m->bos)) {
        tok->bos = (int32_t)m->bos;
        load_prefix(tok, tok->bos, false); /* Llama and Mistral use such files with BOS */
    }
    if (vocab_has(&tok->words, m->eos)) {
        tok->eos = arena_alloc(&tok->memory, sizeof *tok->eos);
        tok->eos[0] = (int32_t)m->eos;
        tok->n_eos = 1;
    }
    if (vocab_has(&tok->words, m->pad)) tok->pad = (int32_t)m->pad;
    return NRL_OK;
}

nrl_status load_sentencepiece(bpe_tokenizer *tok, const char *source, const char *bytes, size_t size)
{
    const unsigned char *begin = (const unsigned char *)bytes;
    spm m = {
        .model_type = MODEL_UNIGRAM, .dummy_prefix = 1, .remove_extra = 1, .escape = 1, .bos = 1, .eos = 2, .pad = -1};
    nrl_status st;
    NRL_TRY_DONE(read_model(tok, &m, (wire){begin, begin + size}));
    NRL_TRY_DONE(check_kind(&m));
    rank_by_score(tok, &m);
    NRL_TRY_DONE(add_controls(tok, &m));
    NRL_TRY_DONE(use_roles(tok, &m));
    tok->fuse_unk = true;
    if (m.byte_fallback) load_find_fallback(tok);
    load_llama_parts(tok, m.dummy_prefix);
    load_cut_at_runs(tok, "\xe2\x96\x81");
done:
    if (st) nrl_add_context("%s", source);
    free(m.scores);
    free(m.types);
    return st;
}
