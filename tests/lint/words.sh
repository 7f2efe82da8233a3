#!/bin/sh
# words.sh ROOT: names that the glossary replaced are not used: one standard word per idea.
set -u
cd "$1" || exit 1
bad=0

sources=$(find lib core cli tools plugins examples tests python docs README.md -type f \( -name '*.[ch]' -o -name '*.cu' -o -name '*.cuh' -o -name '*.cpp' \
    -o -name '*.lua' -o -name '*.py' -o -name '*.md' -o -name '*.sh' \) 2>/dev/null | grep -v '^tests/lint/' | LC_ALL=C sort)
headers=$(find core/include/nrl lib/inference/include/nrl lib/profiling/include/nrl lib/testing/include/nrl lib/operations/include/nrl -name '*.h' 2>/dev/null | LC_ALL=C sort)

# old REGEX NEW: no source has a word that matches
old() {
    if grep -nwE "$1" $sources /dev/null; then
        echo "  ^ the word is: $2"
        bad=1
    fi
}
old 'nrl_visit(_[a-z0-9]+)?' 'nrl_action (forward, recompute or backward of a unit), nrl_state_io_*'
old 'nrl_visitor' 'nrl_state_io'
old '(NRL_SLOT_)?GRAD_ACC' 'GRAD (accumulated), GRAD_SHARD (reduced)'
old 'NRL_SLOT_(WORK|HIGH|LOW)' 'NRL_SLOT_WEIGHT, NRL_SLOT_HI16, NRL_SLOT_LO16'
old 'nrl_param(_set)?_fresh' 'nrl_param_grad_is_empty, nrl_param_set_grad_is_empty'
old 'nrl_cut|NRL_MAX_CUTS|NRL_CUT_FLAT|n_cuts|sum_axes|holders' 'nrl_placement, n_placements, partial_axes, owner_stages'
old 'nrl_tensor_stretch' 'nrl_tensor_slice'
old 'nrl_op_seam|nrl_op_linear_row|NRL_SEAM_[A-Z_]+' 'nrl_op_tp_region, nrl_op_row_parallel_linear'
old 'nrl_optimizer_reach|nrl_step_block' 'nrl_optimizer_granularity, nrl_step_params'
old 'block_kind|separable|start_loss|check_start|mismatched' 'example_kind, tokenwise, initial_loss, check_initial_loss, kl_pairs'
old 'nrl_batch_(n_blocks|segment_block|n_rows|row_[a-z]+)' 'nrl_batch_n_examples, nrl_batch_n_targets, nrl_batch_target_*'
old 'nrl_(model|device|collective)_facts|nrl_build_facts' 'nrl_*_info'
old 'NRL_SUM_[A-Z]+|nrl_sum' 'NRL_REDUCE_OP_*, nrl_reduce_op'
old 'nrl_note|is_news' 'nrl_add_context, is_unreported'
old 'n_micro|lobby|goodbye' 'n_micro_batches, listener, leave'
old '[Ss]cored rows?|tail batch|step block|rehearsal|passed over' 'target position, padding micro-batch, step parameters, dry run, skipped'

# Public headers are read first.
if [ -n "$headers" ] && grep -nwE 'visits?|visited|fresh|seams?|stretch(es)?|at hand|is told|tells|left out|holders' $headers /dev/null; then
    echo "  ^ see the glossary in CONTRIBUTING.md"
    bad=1
fi
exit $bad
