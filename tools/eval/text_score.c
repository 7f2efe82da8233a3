/*
 * text_score.c - see text_score.h.
 */
#include "text_score.h"
#include "base/file.h"
#include "base/json.h"
#include "cli/common/cli.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_TEXT_BYTES = 1 << 26, MOST_WINDOW = 2048, MOST_LOGITS = 1 << 26 /* 256 MiB */ };

/* Adds what the last `n_scored` tokens of ids[0..n] got; row t of the logits predicts ids[t + 1]. */
static void add_window(text_scores *s, const float *logits, int32_t vocab, const int32_t *ids, int64_t n,
                       int64_t n_scored)
{
    for (int64_t t = n - n_scored; t < n; t++) {
        const float *row = logits + t * vocab;
        int32_t best = 0;
        double sum = 0, weighted = 0;
        for (int32_t i = 1; i < vocab; i++)
            if (row[i] > row[best]) best = i;
        for (int32_t i = 0; i < vocab; i++) {
            double e = exp((double)row[i] - row[best]);
            sum += e;
            weighted += e * ((double)row[i] - row[best]);
        }
        s->nll += log(sum) - ((double)row[ids[t + 1]] - row[best]);
        s->entropy += log(sum) - weighted / sum;
        s->correct += best == ids[t + 1];
    }
    s->tokens += n_scored;
}

static nrl_status score_document(nrl_inference *m, const nrl_inference_info *info, const char *text, size_t size,
                                 float *logits, text_scores *s)
{
    const nrl_open_tokenizer *t = nrl_inference_tokenizer(m);
    nrl_token_ids found = {0};
    const int32_t prefix = text_score_prefix(t);
    NRL_TRY(nrl_tokenizer_encode(t, NULL, text, size, 0, &found));
    int64_t n = (int64_t)found.n, w = s->window;
    int32_t *ids = mem_try((size_t)(n + 1) * sizeof *ids, "the tokens of a text");
    nrl_status st = ids ? NRL_OK : NRL_ERR_MEMORY;
    if (st == NRL_OK && n) memcpy(ids + 1, found.ids, (size_t)n * sizeof *ids);
    if (st == NRL_OK) ids[0] = prefix;
    for (int64_t done = 0; st == NRL_OK && done < n;) {
        int64_t left = n - done, k = left < w ? left : w, end = done + k; /* predicts ids[done + 1 .. end] */
        int64_t begin = done && end > w ? end - w : done;                 /* the last window sees more before it */
        if (!done && prefix == NRL_TOKEN_NONE) begin = 1, k--;
        int64_t length = end - begin;
        if (length > 0) st = nrl_inference_logits(m, ids + begin, &length, 1, logits);
        if (st == NRL_OK && length > 0)
            add_window(s, logits, info->vocab_size, ids + begin, length, k < length ? k : length);
        done = end;
    }
    s->bytes += (int64_t)size;
    s->documents++;
    free(ids);
    nrl_token_ids_free(&found);
    return st;
}

/* nrl_inference_logits computes the logits of a whole window, so a large vocabulary leaves room for fewer tokens. The
 * loss depends on the window, which the user therefore has to know. */
static nrl_status choose_window(const nrl_inference_info *info, int64_t *window)
{
    const int64_t positions = info->max_positions, room = MOST_LOGITS / info->vocab_size;
    if (positions && *window > positions)
        return nrl_fail(NRL_ERR_CONFIG, "--window %lld: the model has %lld positions", (long long)*window,
                        (long long)positions);
    if (*window) return NRL_OK;
    *window = positions && positions < MOST_WINDOW ? positions : MOST_WINDOW;
    if (*window <= room) return NRL_OK;
    nrl_warn("the window is %lld tokens instead of %lld: the logits of a window have at most %d MiB\n"
             "hint: --window %lld sets it, and requires more memory",
             (long long)room, (long long)*window, (int)(MOST_LOGITS * sizeof(float) >> 20), (long long)*window);
    *window = room;
    return NRL_OK;
}

nrl_status text_score(arena *a, nrl_inference *m, const char *file, int64_t window, text_scores *out)
{
    nrl_inference_info info = {.size = sizeof info};
    char *text;
    size_t size, n = strlen(file);
    *out = (text_scores){.window = window};
    if (!nrl_inference_tokenizer(m))
        return nrl_fail(NRL_ERR_CONFIG, "cannot evaluate a text: no tokenizer was found beside the model");
    nrl_inference_info_fill(m, &info);
    NRL_TRY(choose_window(&info, &out->window));
    const bool is_input = !strcmp(file, "-");
    if (is_input) {
        char *read;
        NRL_TRY(cli_read_input(a, MAX_TEXT_BYTES, &read, &size));
        text = mem_alloc(size + 1);
        memcpy(text, read, size + 1);
        file = "standard input";
    } else if (file_read(file, MAX_TEXT_BYTES, &text, &size) != NRL_OK) {
        return NRL_ERR_CONFIG;
    }
    const bool is_rows = is_input ? size && *text == '{' : n >= 6 && !strcmp(file + n - 6, ".jsonl");
    float *logits = mem_try((size_t)out->window * (size_t)info.vocab_size * sizeof *logits, "logits of a window");
    nrl_status st = logits ? NRL_OK : NRL_ERR_MEMORY;
    if (st == NRL_OK && !is_rows)
        st = score_document(m, &info, text, size, logits, out);
    else
        for (char *line = text, *next; st == NRL_OK && line < text + size; line = next) {
            next = memchr(line, '\n', (size_t)(text + size - line));
            next = next ? next + 1 : text + size;
            nrl_node *row;
            const char *place = arena_printf(a, "%s: document %lld", file, (long long)out->documents + 1), *words;
            if (strspn(line, " \t\r\n") >= (size_t)(next - line)) continue;
            st = json_parse(a, place, line, (size_t)(next - line), &row);
            words = st == NRL_OK ? nrl_node_string(nrl_node_find(row, "text"), NULL) : NULL;
            if (st == NRL_OK && !words) st = nrl_fail(NRL_ERR_DATA, "%s: expected a row {\"text\": ...}", place);
            if (st == NRL_OK) st = score_document(m, &info, words, strlen(words), logits, out);
        }
    free(logits);
    free(text);
    if (st == NRL_OK && !out->tokens) return nrl_fail(NRL_ERR_DATA, "%s: it contains no tokens", file);
    return st;
}
