/*
 * format.h - how the weights of a model, or of an adapter, lie on disk.
 *
 * A reader is opened in two steps: `open` reads what describes the weights, `load` the list of tensors. Values are
 * read as f32, any range of any tensor, so that no tensor is ever whole in memory. The core maps parameters to
 * tensors by name, reports missing and surplus ones, and turns matrices; a format knows nothing of models.
 *
 * A writer fills a folder that the core made and gives its final name when everything is complete, so a format
 * never replaces a file. Tensors arrive whole and in order, in pieces of rising position.
 *
 * Ownership: texts that a reader returns live until `close`. What the core passes lives as long as the call, for a
 * writer until `finish` or `abandon`. Errors: NRL_ERR_CONFIG for a path that cannot be served, NRL_ERR_DATA for files
 * that contradict themselves (no size or offset of a file is believed), NRL_ERR_IO, NRL_ERR_FULL.
 */
#ifndef NRL_FORMAT_H
#define NRL_FORMAT_H
#include <nrl/plugin.h>
#include <nrl/tensor.h>
#ifdef __cplusplus
extern "C" {
#endif

enum { NRL_FORMAT_MAX_DIMS = 8 };

typedef enum {
    NRL_HOLDS_NOTHING = 0,
    NRL_HOLDS_MODEL,  /* all weights of a model, and its config */
    NRL_HOLDS_ADAPTER /* the weights of adapters, and what they are */
} nrl_holds;

enum { NRL_OPEN_CONFIG = 1 };

/* What the program offers a format. */
typedef struct {
    uint32_t size;
    uint32_t reserved;
    const char *(*variable)(const char *name); /* of the environment; returns NULL where it is unset. Never NULL */
} nrl_format_host;

/* What open found. */
typedef struct {
    uint32_t size; /* set by the caller; a format fills what it has room for */
    uint32_t reserved;
    const char *path;        /* folder or file that serves the path: what a later open is given */
    const char *config;      /* JSON text, see below */
    size_t config_size;      /* bytes */
    const char *config_path; /* the file that the text came from, for messages */
    const char *companions;  /* folder of the tokenizer and other files that belong to the model; NULL = none */
} nrl_format_info;

/* The JSON text of a model is its config.json, as model plugins read it. That of an adapter is
 *   {"adapter": NAME, "base": "org/name" or null, "settings": {...}}
 * where the adapter plugin of that name reads the settings. For a writer the core adds
 *   "linear": [names of all modules that may carry one], "transposed": whether files hold matrices [in, out] */

/* One tensor. */
typedef struct {
    uint32_t size;    /* set by the caller */
    uint32_t dtype;   /* nrl_dtype of the values on disk; NRL_DTYPE_NONE: `read` cannot read this type */
    const char *name; /* unique */
    const char *type; /* the file's own word for dtype */
    const char *file; /* path of the file that has it, for messages; a writer is given NULL */
    int64_t dims[NRL_FORMAT_MAX_DIMS];
    int32_t n_dims;
    int32_t reserved2;
} nrl_format_tensor;

/* What a writer is given. */
typedef struct {
    uint32_t size;
    uint32_t tensor_size; /* stride of `tensors` */
    const char *dir;      /* an empty folder; every file is written and synced here */
    const char *config;   /* JSON text, as above; `config_size` bytes */
    size_t config_size;
    uint32_t dtype; /* of the files: NRL_DTYPE_F32, NRL_DTYPE_BF16 or NRL_DTYPE_F16 */
    uint32_t reserved;
    int64_t max_file_bytes; /* weights are split over files of at most this size where possible; 0 = one file */
    int64_t n_tensors;
    const nrl_format_tensor *tensors; /* [n_tensors] with dtype as above */
} nrl_format_write;

typedef struct {
    nrl_plugin plugin; /* a format takes no options */
    uint32_t holds;    /* nrl_holds */
    uint32_t reserved;
    /* [any] how surely this format serves a path (NRL_PROBE_*); looks at names of files, reads no weights */
    int32_t (*probe)(const char *path, const nrl_format_host *host);
    /* [main] reads the description; *reader is the format's own. NRL_OPEN_CONFIG: the path is a file with a model's
     * config alone (`model.config`: random weights), and load is not called */
    nrl_status (*open)(const char *path, uint32_t flags, const nrl_format_host *host, void **reader);
    void (*close)(void *reader);                             /* [main] */
    void (*info)(const void *reader, nrl_format_info *info); /* [main] */
    nrl_status (*load)(void *reader);         /* [main] the list of tensors; once, before the following */
    int64_t (*n_tensors)(const void *reader); /* [any] */
    void (*tensor)(const void *reader, int64_t i, nrl_format_tensor *tensor); /* [any] i in [0, n_tensors) */
    /* [any] elements [begin, begin + n) of tensor i, rows first, as f32; the range lies in the tensor */
    nrl_status (*read)(const void *reader, int64_t i, int64_t begin, int64_t n, float *out);
    /* [any] all bytes of tensor i, mapped; they are hashed and compared, not interpreted. NULL: its f32 values are */
    const void *(*bytes)(const void *reader, int64_t i, size_t *size);

    /* Writing; NULL in `begin`: the format is read only. */
    nrl_status (*begin)(const nrl_format_write *what, void **writer); /* [main] */
    /* [main] the next n elements of tensor i; i rises, each tensor is given whole */
    nrl_status (*write)(void *writer, int64_t i, int64_t n, const float *values);
    nrl_status (*finish)(void *writer); /* [main] completes and syncs the files; frees the writer, also on failure */
    void (*abandon)(void *writer);      /* [main] frees it; the core removes the folder */
    /* [any] whether a file of this name is part of what this format writes: replaced and removed as a whole */
    bool (*owns)(const char *name);
    /* names of files that are copied along from the model that was read, NULL-ended; NULL = none */
    const char *const *travelling;
} nrl_format;

#ifdef __cplusplus
}
#endif
#endif
