/*
 * folder.h - parent folders of files that scripts write.
 */
#ifndef SCRIPT_FOLDER_H
#define SCRIPT_FOLDER_H
#include <nrl/status.h>

/* Creates every missing folder above path. NRL_ERR_IO names the folder that could not be created. */
nrl_status folder_make_parents(const char *path);

#endif
