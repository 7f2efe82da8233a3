/*
 * support.h - shared by the tests of core/model: a temporary directory, files, models from JSON
 * text.
 */
#ifndef MODEL_SUPPORT_H
#define MODEL_SUPPORT_H
#include "base/file.h"
#include "base/json.h"
#include "model/find.h"
#include "support/folder.h"
#include "support/weights.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define ASSERT_OK(call)                                                                                                \
    do {                                                                                                               \
        if ((call) != NRL_OK) fail_msg("%s", nrl_error_text());                                                        \
    } while (0)

/* The call fails with this status and its text holds this. */
#define ASSERT_FAILS(call, status, text)                                                                               \
    do {                                                                                                               \
        assert_int_equal((call), (status));                                                                            \
        if (!strstr(nrl_error_text(), (text))) fail_msg("'%s' is not in: %s", (text), nrl_error_text());               \
    } while (0)

static inline plugin_host *support_host(void)
{
    return plugin_host_create(getenv("NRL_PLUGIN_PATH"), NULL, 0, NULL);
}

static inline char *support_scratch(void)
{
    char *dir = mem_strdup("/tmp/nrl-model-XXXXXX");
    assert_non_null(mkdtemp(dir));
    return dir;
}

static inline void support_write(const char *dir, const char *name, const void *bytes, size_t size)
{
    char *path = mem_printf("%s/%s", dir, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    fclose(f);
    free(path);
}

static inline bool support_exists(const char *dir, const char *name)
{
    char *path = mem_printf("%s/%s", dir, name);
    bool there = !access(path, F_OK);
    free(path);
    return there;
}

/* tests/data/models/<name>, in `a`. */
static inline const char *support_golden(arena *a, const char *name)
{
    return arena_printf(a, "%s/tests/data/models/%s", getenv("NRL_TEST_SOURCE"), name);
}

static inline nrl_status support_model(plugin_host *h, const nrl_node *config, model **out)
{
    const nrl_model *table;
    NRL_TRY(model_find(h, config, &table));
    return model_create(table, config, out);
}

static inline nrl_status support_model_text(plugin_host *h, arena *a, const char *json, model **out)
{
    nrl_node *config;
    NRL_TRY(json_parse(a, "config.json", json, strlen(json), &config));
    return support_model(h, config, out);
}

/* A safetensors image: header text and data, malloc'd. */
static inline unsigned char *support_image(const char *header, size_t data_bytes, size_t *size)
{
    size_t n = strlen(header);
    *size = 8 + n + data_bytes;
    unsigned char *image = mem_alloc(*size);
    for (int i = 0; i < 8; i++)
        image[i] = (unsigned char)(n >> (8 * i) & 0xFF);
    memcpy(image + 8, header, n);
    return image;
}

#endif
