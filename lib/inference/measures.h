/*
 * measures.h - values of a step's record that cost time or that training itself does not need.
 */
#ifndef INFERENCE_MEASURES_H
#define INFERENCE_MEASURES_H
#include <nrl/run.h>

/* Bytes in use after each step, of one kind, for train.leak_check. */
enum { LEAK_KINDS = 2, LEAK_WINDOW = 10 };
typedef struct {
    double last, excused; /* growth that is not counted */
    double window[LEAK_WINDOW], baseline;
    double largest; /* growth in one step since the baseline */
    int n_fast;     /* steps in a row with much growth */
    bool is_reported;
} leak_state;

/* State between steps. */
typedef struct {
    double wall, cpu, norm_sum, norm_weight;
    leak_state leaks[LEAK_KINDS];
    int64_t leak_steps, n_saves, n_evals, last_saved;
    double most_transient; /* bytes that a step needed beyond what it left */
} measures;
measures *measures_of(nrl_run *run);

/* Called after step `step`: the update of the next one is measured if its record will have update_norm. */
void measures_expect(nrl_run *run, int64_t step);

/* nrl_run_services.measure */
nrl_status measures_add(nrl_run *run, nrl_run_event *step);

#endif
