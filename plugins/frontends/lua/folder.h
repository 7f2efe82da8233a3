/*
 * folder.h - folders of files that scripts write.
 */
#ifndef SCRIPT_FOLDER_H
#define SCRIPT_FOLDER_H
#include <nrl/status.h>

/* Makes every missing folder above path. NRL_ERR_IO names the one that could not be made. */
nrl_status folder_make_parents(const char *path);

#endif
