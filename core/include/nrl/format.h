/*
 * format.h - formats of weights on disk, of a model or of adapters.
 *
 * A reader is opened in two steps: `open` reads the description of the weights, `load` the list of tensors. Any range
 * of any tensor can be read, as f32, so that no tensor must be in memory as a whole. The core maps parameters to
 * tensors by name, reports missing and unknown tensors, and transposes matrices; a format does not depend on models.
 *
 * A writer writes to a directory that the core has created and renames when it is complete, so a format never replaces
 * a file. All elements of all tensors are written in order.
 *
 * Ownership: texts that a reader returns live until `close`. Arguments live as long as the call, those of a writer
 * until `finish` or `abandon`. Errors: NRL_ERR_CONFIG for a path that cannot be opened, NRL_ERR_DATA for inconsistent
 * files (a format checks every size and offset that it reads), NRL_ERR_IO, NRL_ERR_FULL.
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
    NRL_HOLDS_MODEL = 1,  /* all weights of a model, and its config */
    NRL_HOLDS_ADAPTER = 2 /* the weights of adapters, and their description */
} nrl_holds;

enum { NRL_OPEN_CONFIG = 1 };

/* Functions of the program for a format. */
typedef struct {
    uint32_t size;
    uint32_t reserved;
    const char *(*variable)(const char *name); /* an environment variable; returns NULL if it is unset. Never NULL */
} nrl_format_host;

/* The result of open. */
typedef struct {
    uint32_t size; /* set by the caller; a format fills the members within this size */
    uint32_t reserved;
    const char *path;        /* the directory or file that was found, to open the same weights again */
    const char *config;      /* JSON text, see below */
    size_t config_size;      /* bytes */
    const char *config_path; /* the file that the text came from, for messages */
    const char *companions;  /* directory of the tokenizer and other files that belong to the model; NULL = none */
} nrl_format_info;

/* The JSON text of a model is its config.json, as model plugins read it. The JSON text of an adapter is
 *   {"adapter": NAME, "base": "org/name" or null, "settings": {...}}
 * where the adapter plugin of that name reads the settings. For a writer the core adds
 *   "linear": [names of all modules that can have one], "transposed": whether files store matrices as [in, out] */

/* One tensor. */
typedef struct {
    uint32_t size;    /* set by the caller */
    uint32_t dtype;   /* nrl_dtype of the values on disk; NRL_DTYPE_NONE: `read` cannot read this type */
    const char *name; /* unique */
    const char *type; /* name of the type in the file */
    const char *file; /* path of the tensor's file, for messages; NULL for a writer */
    int64_t dims[NRL_FORMAT_MAX_DIMS];
    int32_t n_dims;
    int32_t reserved2;
} nrl_format_tensor;

/* An accompanying file, such as the chat template, whose text differs from that of the companions. */
typedef struct {
    const char *name;
    const char *text; /* NULL: the file is omitted */
} nrl_format_file;
NRL_STATIC_ASSERT(sizeof(nrl_format_file) == 16, "nrl_format_file is frozen: writers get an array");

/* The arguments of a writer. */
typedef struct {
    uint32_t size;
    uint32_t tensor_size; /* stride of `tensors` */
    const char *dir;      /* an empty directory; the format writes and syncs every file here */
    const char *config;   /* JSON text, as above; `config_size` bytes */
    size_t config_size;
    uint32_t dtype; /* of the files: NRL_DTYPE_F32, NRL_DTYPE_BF16 or NRL_DTYPE_F16 */
    uint32_t reserved;
    int64_t max_file_bytes; /* weights are split over files of at most this size where possible; 0 = one file */
    int64_t n_tensors;
    const nrl_format_tensor *tensors; /* [n_tensors] with dtype as above */
    const char *encoding;             /* of matrices, one of the format's `encodings`, instead of dtype; NULL = dtype */
    const char *companions;           /* directory of the tokenizer that belongs to the model; NULL = none */
    int64_t n_files;
    const nrl_format_file *files; /* [n_files]; the core writes them in addition to the format's own files */
} nrl_format_write;

/* A model that a format can hold, for `nrl plugins test`. */
typedef struct {
    uint32_t size;
    uint32_t tensor_size; /* stride of `tensors` */
    const char *config;   /* JSON text */
    int64_t n_tensors;
    const nrl_format_tensor *tensors; /* [n_tensors] name, n_dims and dims; at most 3 tensors of at most 64 elements */
} nrl_format_example;

typedef struct {
    nrl_plugin plugin; /* a format takes no options */
    uint32_t holds;    /* nrl_holds */
    uint32_t reserved;
    /* [any] how likely the format can read a path (NRL_PROBE_*); checks names of files, reads no weights */
    int32_t (*probe)(const char *path, const nrl_format_host *host);
    /* [main] reads the description; *reader is private to the format. NRL_OPEN_CONFIG: the path is a file with only a
     * model's config (`model.config`: random weights), and load is not called */
    nrl_status (*open)(const char *path, uint32_t flags, const nrl_format_host *host, void **reader);
    void (*close)(void *reader);                             /* [main] */
    void (*info)(const void *reader, nrl_format_info *info); /* [main] */
    nrl_status (*load)(void *reader);         /* [main] reads the list of tensors; called once, before the following */
    int64_t (*n_tensors)(const void *reader); /* [any] */
    void (*tensor)(const void *reader, int64_t i, nrl_format_tensor *tensor); /* [any] i in [0, n_tensors) */
    /* [any] reads elements [begin, begin + n) of tensor i in row-major order as f32; the range is valid */
    nrl_status (*read)(const void *reader, int64_t i, int64_t begin, int64_t n, float *out);
    /* [any] all bytes of tensor i, mapped into memory, for hashes. NULL: the core hashes the f32 values */
    const void *(*bytes)(const void *reader, int64_t i, size_t *size);

    /* Writing; `begin` NULL: the format is read-only. */
    nrl_status (*begin)(const nrl_format_write *what, void **writer); /* [main] */
    /* [main] the next n elements of tensor i; tensors come in ascending order, each completely */
    nrl_status (*write)(void *writer, int64_t i, int64_t n, const float *values);
    nrl_status (*finish)(void *writer); /* [main] completes and syncs the files; frees the writer, also on failure */
    void (*abandon)(void *writer);      /* [main] frees the writer; the core removes the directory */
    /* [any] whether this format writes files of this name: the core replaces or removes all such files together */
    bool (*owns)(const char *name);
    /* names of accompanying files that are copied from the model that was read, NULL-terminated; NULL = none */
    const char *const *travelling;
    /* names of encodings of matrices that `begin` accepts in addition to f32, bf16 and f16, NULL-terminated; NULL =
     * none */
    const char *const *encodings;
    const nrl_format_example *example; /* NULL: the format holds tensors of any name, and the suite's own are used */
} nrl_format;

#ifdef __cplusplus
}
#endif
#endif
