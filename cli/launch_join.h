/*
 * launch_join.h - launchers that find each other before each start (`nrl launch --nodes MIN:MAX`). [main]
 */
#ifndef CLI_LAUNCH_JOIN_H
#define CLI_LAUNCH_JOIN_H
#include "cli/launch.h"

/* Holds the store of the launchers at `address`, if `host` is this machine and no other launcher does, or connects to
 * it, for as long as it takes. */
nrl_status launch_meet(launch *l, const char *host, const char *address);
/* Waits for the next start, and sets what it makes of the launch: nodes, ranks, run id. l->is_over: there is none. */
nrl_status launch_join(launch *l);
/* Tells the others that the run is over, if this launcher holds their store, and leaves. */
void launch_part(launch *l);

#endif
