/*
 * lie.c - an option row whose field has a different type from that of its macro; it must not
 * compile with LIE.
 */
#include <nrl/nrl.h>

typedef struct {
#ifdef LIE
    float beta;
#else
    double beta;
#endif
} lie_options;

const nrl_option lie_rows[] = {NRL_OPT_F64(lie_options, beta, "0.1", 0, 1, "strength")};
