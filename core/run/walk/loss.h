/*
 * loss.h - from hidden states to the algorithm's sums: fills the columns it needs and calls it.
 */
#ifndef RUN_LOSS_H
#define RUN_LOSS_H
#include "run/walk/work.h"

/* Inside the last unit's forward action, its tape on: the head, the columns and the loss. Ends the tape.
 * A tokenwise loss is differentiated chunk by chunk here and leaves the hidden states' gradient in
 * micro_batch.grads; any other leaves its sums, on the tape, in micro_batch.sums. */
nrl_status loss_forward(work *w, nrl_tensor *hidden, nrl_tensor **totals);
/* The same without gradients. */
nrl_status loss_evaluate(work *w, nrl_tensor *hidden, nrl_tensor **totals);
/* The loss sees log-probs chunk by chunk; where not, logits are kept from forward to backward. */
bool loss_is_separable(const nrl_algorithm *a);

#endif
