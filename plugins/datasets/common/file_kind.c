/*
 * file_kind.c - what a file is: by its name for those that are read, by its first bytes for those that are not.
 */
#include "file_stream.h"
#include <stdio.h>
#include <string.h>

bool file_name_ends_in(const char *path, const char *const *endings, size_t *which)
{
    static const char *const packed[] = {".gz", ".zst", ".xz"};
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof packed / sizeof *packed; i++) {
        size_t size = strlen(packed[i]);
        if (n <= size || memcmp(path + n - size, packed[i], size) != 0) continue;
        n -= size;
        break;
    }
    for (size_t i = 0; endings[i]; i++) {
        size_t size = strlen(endings[i]);
        if (n <= size || memcmp(path + n - size, endings[i], size) != 0) continue;
        if (which) *which = i;
        return true;
    }
    return false;
}

enum { TAR_MAGIC_AT = 257 };

#define PANDAS(reader)                                                                                                 \
    "python3 -c \"import pandas; pandas." reader "('%s').to_json('%s.jsonl', orient='records', lines=True)\""

/* The hint is a format of the path, twice. */
static const struct {
    const char *magic;
    size_t size;
    const char *name, *hint;
} others[] = {
    {"PAR1", 4, "a Parquet", PANDAS("read_parquet")},
    {"ARROW1", 6, "an Arrow", PANDAS("read_feather")},
    {"\xFF\xFF\xFF\xFF", 4, "an Arrow stream",
     "python3 -c \"import datasets; datasets.Dataset.from_file('%s').to_json('%s.jsonl')\""},
    {"PK\x03\x04", 4, "a zip", "unzip it; a spreadsheet (.xlsx): " PANDAS("read_excel")},
    {"\xD0\xCF\x11\xE0", 4, "an old Excel", PANDAS("read_excel")},
    {"\x80\x04\x95", 3, "a pickle", "a pickle runs code when it is opened; if you trust it: " PANDAS("read_pickle")},
    {"\x80\x05\x95", 3, "a pickle", "a pickle runs code when it is opened; if you trust it: " PANDAS("read_pickle")},
    {"\x80\x02", 2, "a pickle", "a pickle runs code when it is opened; if you trust it: " PANDAS("read_pickle")},
    {"\x89HDF", 4, "an HDF5", PANDAS("read_hdf")},
    {"SQLite format 3", 15, "an SQLite", "sqlite3 -json '%s' 'select * from TABLE' >'%s.json'"},
    {"\xFF\xFE", 2, "a UTF-16 text", "iconv -f UTF-16 -t UTF-8 '%s' >'%s.utf8'"},
    {"\xFE\xFF", 2, "a UTF-16 text", "iconv -f UTF-16 -t UTF-8 '%s' >'%s.utf8'"},
    {"BZh", 3, "a bzip2", "bunzip2 -k '%s'"},
    {"ustar", 5, "a tar", "tar -xf '%s'"},
};

nrl_status file_check_is_text(const char *path, const char *bytes, size_t size, const char *expected)
{
    static const char splits[] = "/dataset_dict.json"; /* beside a directory for each of them */
    const size_t n = strlen(path), folder = n >= sizeof splits ? n - (sizeof splits - 1) : 0;
    if (folder && !strcmp(path + folder, splits))
        return nrl_fail(
            NRL_ERR_DATA,
            "%s: a list of splits that save_to_disk of Hugging Face's datasets has written; expected %s\n"
            "hint: python3 -c \"import datasets; datasets.load_from_disk('%.*s')['train'].to_json('train.jsonl')\"",
            path, expected, (int)folder, path);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++) {
        const size_t at = strcmp(others[i].magic, "ustar") ? 0 : TAR_MAGIC_AT;
        if (size < at + others[i].size || memcmp(bytes + at, others[i].magic, others[i].size) != 0) continue;
        char hint[1024];
        snprintf(hint, sizeof hint, others[i].hint, path, path);
        return nrl_fail(NRL_ERR_DATA, "%s: %s file; expected %s\nhint: %s", path, others[i].name, expected, hint);
    }
    return NRL_OK;
}
