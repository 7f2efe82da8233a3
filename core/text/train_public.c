/*
 * train_public.c - nrl_trainer of nrl/host.h: the trainer of train.h for frontends.
 */
#include "text/train.h"
#include <nrl/host.h>
#include <string.h>

nrl_status nrl_trainer_create(const nrl_trainer_options *options, nrl_trainer **out)
{
    nrl_trainer_options o = {0};
    memcpy(&o, options, options->size < sizeof o ? options->size : sizeof o);
    const tokenizer_train_options own = {.vocab_size = o.vocab_size, .special = o.special, .n_special = o.n_special,
                                         .min_frequency = o.min_frequency, .pattern = o.pattern, .overwrite = o.overwrite};
    return tokenizer_trainer_create(&own, (tokenizer_trainer **)out);
}

nrl_status nrl_trainer_add(nrl_trainer *trainer, const char *text, size_t size)
{
    return tokenizer_trainer_add((tokenizer_trainer *)trainer, text, size);
}

nrl_status nrl_trainer_save(nrl_trainer *trainer, const char *folder, int64_t *n_tokens)
{
    return tokenizer_trainer_save((tokenizer_trainer *)trainer, folder, n_tokens);
}

void nrl_trainer_destroy(nrl_trainer *trainer)
{
    tokenizer_trainer_destroy((tokenizer_trainer *)trainer);
}
