/*
 * faults_preload.c - support/faults.h as a preloaded library: disk calls fail as requested by the
 * environment: NRL_FAULT_FOLDER (an absolute path), NRL_FAULT_MATCH (a part of the file's path),
 * NRL_FAULT_KIND (a fault_kind), NRL_FAULT_ERROR (an errno), from the first such call on.
 */
#include "support/faults.h"

static int number(const char *name)
{
    const char *text = getenv(name);
    return text ? atoi(text) : 0;
}

__attribute__((constructor)) static void arm(void)
{
    fault_match = getenv("NRL_FAULT_MATCH");
    fault_kind_wanted = number("NRL_FAULT_KIND");
    fault_error = number("NRL_FAULT_ERROR");
    fault_at = 0;
    fault_stays = true;
    fault_folder = getenv("NRL_FAULT_FOLDER");
}
