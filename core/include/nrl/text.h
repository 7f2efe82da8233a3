/*
 * text.h - what the core passes to tokenizers and templates to write into: growing text and a growing
 * list of token ids. The core owns both and frees them. Without memory they drop what is added; the core
 * checks that after the call and returns NRL_ERR_MEMORY.
 */
#ifndef NRL_TEXT_H
#define NRL_TEXT_H
#include <nrl/status.h>
#include <stdbool.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { NRL_TOKEN_NONE = -1 }; /* "there is no such token", wherever an id is expected */

/* Text that grows. Appended bytes may hold NUL. [any, one thread at a time] */
typedef struct nrl_text nrl_text;
NRL_API void nrl_text_add(nrl_text *text, const char *bytes, size_t size);

/* Token ids that grow. Zero-initialised by its owner, who sets want_starts before the first id. */
typedef struct {
    int32_t *ids;   /* [n] */
    size_t *starts; /* [n] byte offset in the encoded text where each token begins; NULL unless wanted */
    size_t n, room;
    bool want_starts;
    bool lacks_memory; /* some ids were dropped */
} nrl_token_ids;

/* Makes room for n more ids, and for their starts where they are wanted; without memory sets lacks_memory.
 * [any, one thread at a time] */
NRL_API void nrl_token_ids_reserve(nrl_token_ids *list, size_t n);
NRL_API void nrl_token_ids_free(nrl_token_ids *list); /* want_starts stays */

static inline void nrl_token_ids_push(nrl_token_ids *list, int32_t id, size_t start)
{
    if (list->n == list->room || (list->want_starts && !list->starts)) nrl_token_ids_reserve(list, 1);
    if (list->lacks_memory) return;
    if (list->want_starts) list->starts[list->n] = start;
    list->ids[list->n++] = id;
}

#ifdef __cplusplus
}
#endif
#endif
