/*
 * local_plugin.c - the local collective as a plugin, for code that opens collectives by name.
 */
#include "support/local_collective.h"

NRL_EXPORT(local_collective)
