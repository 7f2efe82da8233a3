/*
 * test_weights.c - weights from files and back to them: slices, transposed matrices, tied heads,
 * shards, types, full disks, and one report of all differences between files and config.
 */
#include "support.h"
#include <math.h>
#include <signal.h>
#include <sys/resource.h>

/* Values that a save takes: from files, or element index + `shift` scaled down. */
typedef struct {
    const weight_files *w;
    const model *m;
    float shift;
    int64_t fail_at; /* parameter index, -1 = none */
} values;

static nrl_status give(void *user, const nrl_param *p, int64_t begin, int64_t n, float *out)
{
    const values *v = user;
    if (v->fail_at >= 0 && p->index == v->fail_at) return nrl_fail(NRL_ERR_DEVICE, "no values");
    if (v->w) return weights_read(v->w, v->m, p, begin, n, out);
    for (int64_t i = 0; i < n; i++)
        out[i] = (float)(begin + i) * 0x1p-10f + v->shift;
    return NRL_OK;
}

typedef struct {
    plugin_host *host;
    arena a;
    char *dir; /* scratch */
} fixture;

static int setup(void **state)
{
    fixture *f = mem_alloc(sizeof *f);
    f->host = support_host();
    f->dir = support_scratch();
    *state = f;
    return 0;
}

static int teardown(void **state)
{
    fixture *f = *state;
    test_folder_remove(f->dir);
    free(f->dir);
    plugin_host_destroy(f->host);
    arena_free(&f->a);
    free(f);
    return 0;
}

static model *golden_model(fixture *f, const char *name)
{
    const nrl_node *config;
    model *m;
    ASSERT_OK(test_weights_config(support_golden(&f->a, name), &f->a, &config));
    ASSERT_OK(support_model(f->host, config, &m));
    return m;
}

static model *small(fixture *f, const char *more)
{
    model *m;
    const char *text = arena_printf(&f->a,
                                    "{\"model_type\":\"llama\",\"vocab_size\":16,\"hidden_size\":8,"
                                    "\"intermediate_size\":12,\"num_hidden_layers\":2,"
                                    "\"num_attention_heads\":2%s}",
                                    more);
    ASSERT_OK(support_model_text(f->host, &f->a, text, &m));
    return m;
}

static const char *in(fixture *f, const char *name)
{
    return arena_printf(&f->a, "%s/%s", f->dir, name);
}

static nrl_status save(const char *dir, const model *m, values *v, nrl_dtype dtype, int64_t shard)
{
    save_options o = {.dtype = dtype, .max_shard_bytes = shard, .overwrite = true};
    return test_save(dir, m, give, v, o);
}

static nrl_status check(const char *dir, const model *m)
{
    weight_files *w;
    NRL_TRY(test_weights_open(dir, &w));
    nrl_status st = weights_check(w, m);
    weights_close(w);
    return st;
}

static void golden_weights_fit_their_configs(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"llama", "llama3", "qwen2", "qwen3", "mistral", "gpt2", "phi3", "gemma3_text"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        model *m = golden_model(f, names[i]);
        ASSERT_OK(check(support_golden(&f->a, names[i]), m));
        model_destroy(m);
    }
}

/* GPT-2 keeps matrices turned: element [o, i] of the parameter is [i, o] of the file. */
static void any_slice_of_a_turned_matrix_is_right(void **state)
{
    fixture *f = *state;
    model *m = golden_model(f, "gpt2");
    weight_files *w;
    ASSERT_OK(test_weights_open(support_golden(&f->a, "gpt2"), &w));
    nrl_param *p = model_param(m, "transformer.h.0.attn.c_attn.weight"); /* [96, 32] */
    nrl_param straight = *p;
    nrl_part part = p->parts[0];
    part.transposed = false;
    part.dims[0] = 32;
    part.dims[1] = 96;
    straight.parts = &part;
    float *whole = mem_alloc(3072 * sizeof(float)), *raw = mem_alloc(3072 * sizeof(float));
    float *slice = mem_alloc(3072 * sizeof(float));
    ASSERT_OK(weights_read(w, m, p, 0, 3072, whole));
    ASSERT_OK(weights_read(w, m, &straight, 0, 3072, raw));
    for (int o = 0; o < 96; o++)
        for (int i = 0; i < 32; i++)
            assert_true(whole[o * 32 + i] == raw[i * 96 + o]);
    for (int begin = 0; begin < 3072; begin += 37)
        for (int n = 1; begin + n <= 3072; n += 211) {
            ASSERT_OK(weights_read(w, m, p, begin, n, slice));
            assert_memory_equal(slice, whole + begin, (size_t)n * sizeof(float));
        }
    free(whole);
    free(raw);
    free(slice);
    weights_close(w);
    model_destroy(m);
}

static void assert_same_values(const char *x, const char *y, const model *m, double relative)
{
    weight_files *a, *b;
    ASSERT_OK(test_weights_open(x, &a));
    ASSERT_OK(test_weights_open(y, &b));
    for (int32_t i = 0; i < m->n_params; i++) {
        int64_t n = m->params[i]->numel;
        float *u = mem_alloc((size_t)n * sizeof *u), *v = mem_alloc((size_t)n * sizeof *v);
        ASSERT_OK(weights_read(a, m, m->params[i], 0, n, u));
        ASSERT_OK(weights_read(b, m, m->params[i], 0, n, v));
        for (int64_t k = 0; k < n; k++)
            assert_true(fabsf(u[k] - v[k]) <= relative * fabsf(u[k]) + 6e-8 * (relative > 0));
        free(u);
        free(v);
    }
    weights_close(a);
    weights_close(b);
}

static void what_is_saved_reads_back_in_every_type_and_sharding(void **state)
{
    fixture *f = *state;
    static const char *const names[] = {"llama3", "gpt2"};
    static const struct {
        nrl_dtype dtype;
        int64_t shard;
        double error; /* half a unit in the last place */
    } rows[] = {
        {NRL_DTYPE_F32, 0, 0}, {NRL_DTYPE_F32, 5000, 0}, {NRL_DTYPE_BF16, 0, 0x1p-8}, {NRL_DTYPE_F16, 9000, 0x1p-11}};
    for (int i = 0; i < 2; i++)
        for (int k = 0; k < 4; k++) {
            const char *from = support_golden(&f->a, names[i]);
            const char *dir = arena_printf(&f->a, "%s/a/b/%d-%d", f->dir, i, k);
            model *m = golden_model(f, names[i]);
            values v = {.m = m, .fail_at = -1};
            weight_files *w;
            ASSERT_OK(test_weights_open(from, &w));
            v.w = w;
            ASSERT_OK(save(dir, m, &v, rows[k].dtype, rows[k].shard));
            ASSERT_OK(check(dir, m));
            assert_same_values(from, dir, m, rows[k].error);
            assert_int_equal(support_exists(dir, "model.safetensors.index.json"), rows[k].shard != 0);
            weights_close(w);
            model_destroy(m);
        }
}

static void the_saved_config_names_the_new_type_and_keeps_the_rest(void **state)
{
    fixture *f = *state;
    model *m = golden_model(f, "llama");
    values v = {.fail_at = -1};
    const nrl_node *config;
    ASSERT_OK(save(in(f, "m"), m, &v, NRL_DTYPE_BF16, 0));
    ASSERT_OK(test_weights_config(in(f, "m"), &f->a, &config));
    assert_string_equal(nrl_node_string(nrl_node_find(config, "dtype"), ""), "bfloat16");
    assert_null(nrl_node_find(config, "torch_dtype"));
    const nrl_node *rope = nrl_node_find(config, "rope_parameters");
    assert_true(nrl_node_f64(nrl_node_find(rope, "rope_theta"), 0) == 10000);
    model_destroy(m);
}

static void travelling_files_are_copied(void **state)
{
    fixture *f = *state;
    model *m = small(f, "");
    values v = {.fail_at = -1};
    mkdir(in(f, "from"), 0777);
    support_write(in(f, "from"), "tokenizer.json", "{}", 2);
    support_write(in(f, "from"), "training_args.bin", "x", 1);
    save_options o = {.dtype = NRL_DTYPE_F32, .copy_from = in(f, "from")};
    ASSERT_OK(test_save(in(f, "to/"), m, give, &v, o));
    assert_true(support_exists(in(f, "to"), "tokenizer.json"));
    assert_false(support_exists(in(f, "to"), "training_args.bin"));
    model_destroy(m);
}

static void saving_over_a_model_leaves_no_stale_weights(void **state)
{
    fixture *f = *state;
    model *m = small(f, "");
    values v = {.fail_at = -1};
    const char *dir = in(f, "m");
    ASSERT_OK(save(dir, m, &v, NRL_DTYPE_F32, 1000));
    support_write(dir, "notes.txt", "kept", 4);
    assert_true(support_exists(dir, "model.safetensors.index.json"));
    ASSERT_OK(save(dir, m, &v, NRL_DTYPE_F32, 0));
    assert_false(support_exists(dir, "model.safetensors.index.json"));
    assert_true(support_exists(dir, "model.safetensors"));
    assert_true(support_exists(dir, "notes.txt"));
    ASSERT_OK(save(dir, m, &v, NRL_DTYPE_F32, 1000));
    assert_false(support_exists(dir, "model.safetensors"));
    ASSERT_OK(check(dir, m));
    model_destroy(m);
}

/* Another process that opened the old directory sees the old files until it opens the path again. */
static void a_model_is_exchanged_as_a_whole(void **state)
{
    fixture *f = *state;
    model *m = small(f, "");
    values v = {.fail_at = -1};
    const char *dir = in(f, "m");
    ASSERT_OK(save(dir, m, &v, NRL_DTYPE_F32, 1000));
    mkdir(in(f, "m/deep"), 0777);
    support_write(in(f, "m/deep"), "notes.txt", "kept", 4);
    struct stat before, after;
    assert_int_equal(stat(dir, &before), 0);
    v.fail_at = 3;
    ASSERT_FAILS(save(dir, m, &v, NRL_DTYPE_F32, 0), NRL_ERR_DEVICE, "no values");
    assert_int_equal(stat(dir, &after), 0);
    assert_true(before.st_ino == after.st_ino);
    ASSERT_OK(check(dir, m));
    v.fail_at = -1;
    ASSERT_OK(save(dir, m, &v, NRL_DTYPE_F32, 0));
    assert_int_equal(stat(dir, &after), 0);
    assert_true(before.st_ino != after.st_ino && before.st_mode == after.st_mode);
    assert_true(support_exists(in(f, "m/deep"), "notes.txt"));
    ASSERT_OK(check(dir, m));
    save_options o = {.dtype = NRL_DTYPE_F32};
    ASSERT_FAILS(test_save(dir, m, give, &v, o), NRL_ERR_CONFIG, "already exists");
    model_destroy(m);
}

static void what_is_read_is_not_replaced(void **state)
{
    fixture *f = *state;
    model *m = small(f, "");
    values v = {.fail_at = -1};
    inputs read = {0};
    const char *dir = in(f, "m");
    ASSERT_OK(save(dir, m, &v, NRL_DTYPE_F32, 0));
    inputs_add(&read, "model.path", dir);
    save_options o = {.dtype = NRL_DTYPE_F32, .overwrite = true, .inputs = &read};
    ASSERT_FAILS(test_save(dir, m, give, &v, o), NRL_ERR_CONFIG, "read as model.path");
    ASSERT_FAILS(test_save(f->dir, m, give, &v, o), NRL_ERR_CONFIG, "in it is read as model.path");
    inputs_free(&read);
    model_destroy(m);
}

static int n_entries(const char *dir)
{
    int n = 0;
    DIR *d = opendir(dir);
    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

static void a_failed_save_leaves_nothing_behind(void **state)
{
    fixture *f = *state;
    model *m = small(f, "");
    values v = {.fail_at = 3};
    ASSERT_FAILS(save(in(f, "m"), m, &v, NRL_DTYPE_F32, 0), NRL_ERR_DEVICE, "no values");
    assert_int_equal(n_entries(f->dir), 0);
    ASSERT_FAILS(save("/proc/none/m", m, &v, NRL_DTYPE_F32, 0), NRL_ERR_IO, "/proc/none");
    support_write(f->dir, "file", "", 0);
    ASSERT_FAILS(save(in(f, "file"), m, &v, NRL_DTYPE_F32, 0), NRL_ERR_CONFIG, "not a directory");
    model_destroy(m);
}

static void a_full_disk_is_told_with_the_bytes_that_were_needed(void **state)
{
    fixture *f = *state;
    model *m = small(f, "");
    values v = {.fail_at = -1};
    ASSERT_OK(save(in(f, "m"), m, &v, NRL_DTYPE_F32, 0));
    struct rlimit old, low;
    getrlimit(RLIMIT_FSIZE, &old);
    low = old;
    low.rlim_cur = 2000;
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &low);
    v.shift = 1;
    nrl_status st = save(in(f, "m"), m, &v, NRL_DTYPE_F32, 0);
    setrlimit(RLIMIT_FSIZE, &old);
    assert_int_equal(st, NRL_ERR_FULL);
    assert_non_null(strstr(nrl_error_text(), "the file needs"));
    assert_int_equal(n_entries(f->dir), 1); /* the old model, whole */
    ASSERT_OK(check(in(f, "m"), m));
    model_destroy(m);
}

static void all_differences_are_told_at_once(void **state)
{
    fixture *f = *state;
    model *a = small(f, "");
    values v = {.fail_at = -1};
    ASSERT_OK(save(in(f, "m"), a, &v, NRL_DTYPE_F32, 0));
    model *other;
    ASSERT_OK(
        support_model_text(f->host, &f->a,
                           "{\"model_type\":\"qwen2\",\"vocab_size\":17,\"hidden_size\":8,\"intermediate_size\":12,"
                           "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":2}",
                           &other));
    ASSERT_FAILS(check(in(f, "m"), other), NRL_ERR_DATA, "model.layers.0.self_attn.q_proj.bias: is missing");
    assert_non_null(strstr(nrl_error_text(), "model.layers.1.mlp.down_proj.weight: is not a parameter of this model"));
    assert_non_null(
        strstr(nrl_error_text(), "model.embed_tokens.weight: has shape [16, 8], expected [17, 8] as in config.json"));
    assert_non_null(strstr(nrl_error_text(), "(qwen2), 14 differences:"));
    model_destroy(other);
    model_destroy(a);
}

static void a_tied_head_may_be_absent_or_equal_but_not_different(void **state)
{
    fixture *f = *state;
    model *untied = small(f, ""), *tied = small(f, ",\"tie_word_embeddings\":true");
    values v = {.fail_at = -1};
    ASSERT_OK(save(in(f, "tied"), tied, &v, NRL_DTYPE_F32, 0));
    ASSERT_OK(check(in(f, "tied"), tied));
    ASSERT_FAILS(check(in(f, "tied"), untied), NRL_ERR_DATA, "does not tie it");
    ASSERT_OK(save(in(f, "both"), untied, &v, NRL_DTYPE_F32, 0)); /* equal: index values */
    ASSERT_OK(check(in(f, "both"), tied));
    weight_files *w;
    ASSERT_OK(test_weights_open(support_golden(&f->a, "llama"), &w));
    model *golden = golden_model(f, "llama"); /* its head is not its embedding */
    arena a = {0};
    nrl_node *config = node_copy(&a, golden->config);
    node_set(&a, config, "tie_word_embeddings", node_bool(&a, true));
    model *wrong;
    ASSERT_OK(support_model(f->host, config, &wrong));
    ASSERT_FAILS(weights_check(w, wrong), NRL_ERR_DATA, "lm_head.weight: differs from model.embed_tokens.weight");
    weights_close(w);
    model_destroy(wrong);
    model_destroy(golden);
    model_destroy(untied);
    model_destroy(tied);
    arena_free(&a);
}

static void names_without_the_optional_prefix_are_found(void **state)
{
    fixture *f = *state;
    model *m = golden_model(f, "gpt2"), *bare = golden_model(f, "gpt2");
    values v = {.fail_at = -1};
    for (int32_t i = 0; i < bare->n_params; i++)
        bare->params[i]->parts[0].name += strlen("transformer.");
    ASSERT_OK(save(in(f, "m"), bare, &v, NRL_DTYPE_F32, 0));
    ASSERT_OK(check(in(f, "m"), m));
    model_param(bare, "transformer.ln_f.bias")->parts[0].name = "h.0.attn.bias"; /* an ignored buffer */
    ASSERT_OK(save(in(f, "n"), bare, &v, NRL_DTYPE_F32, 0));
    ASSERT_FAILS(check(in(f, "n"), m), NRL_ERR_DATA, "1 difference:\n  transformer.ln_f.bias: is missing");
    model_destroy(bare);
    model_destroy(m);
}

/* The biases play the tensors of the other parts. */
static void the_language_model_of_a_model_with_images_is_read_alone(void **state)
{
    fixture *f = *state;
    static const char *const config_text =
        "{\"model_type\":\"gemma3\",\"architectures\":[\"Gemma3ForConditionalGeneration\"],\"eos_token_id\":7,"
        "\"vision_config\":{\"model_type\":\"siglip_vision_model\"},\"text_config\":{\"model_type\":\"llama\","
        "\"vocab_size\":16,\"hidden_size\":8,\"intermediate_size\":12,\"num_hidden_layers\":2,"
        "\"num_attention_heads\":2}}";
    static const struct {
        const char *layers, *head;
    } rows[] = {{"language_model.model.", "language_model.lm_head."},
                {"model.language_model.", "lm_head."},
                {"model.text_model.", "lm_head."}};
    values v = {.fail_at = -1};
    model *m = small(f, "");
    for (int r = 0; r < 3; r++) {
        model *whole = small(f, ",\"mlp_bias\":true");
        const nrl_node *config;
        char *dir = arena_printf(&f->a, "%s/%d", f->dir, r);
        for (int32_t i = 0; i < whole->n_params; i++) {
            const char **name = &whole->params[i]->parts[0].name;
            bool other = strstr(*name, ".bias"), head = !strncmp(*name, "lm_head.", 8);
            *name = other ? arena_printf(&f->a, "vision_tower.%d", i)
                          : arena_printf(&f->a, "%s%s", head ? rows[r].head : rows[r].layers, strchr(*name, '.') + 1);
        }
        ASSERT_OK(save(dir, whole, &v, NRL_DTYPE_F32, 0));
        support_write(dir, "config.json", config_text, strlen(config_text));
        ASSERT_OK(check(dir, m));
        ASSERT_OK(test_weights_config(dir, &f->a, &config));
        assert_string_equal(nrl_node_string(nrl_node_find(config, "model_type"), ""), "llama");
        assert_int_equal(nrl_node_int(nrl_node_find(config, "eos_token_id"), -1), 7);
        const nrl_node *class = nrl_node_at(nrl_node_find(config, "architectures"), 0);
        assert_string_equal(nrl_node_string(class, ""), "LlamaForCausalLM");
        model_destroy(whole);
    }
    model_destroy(m);
}

/* As in the published config.json of Gemma 3 12B. */
static void sizes_that_a_text_config_leaves_out_are_those_of_transformers(void **state)
{
    fixture *f = *state;
    static const char config_text[] =
        "{\"model_type\":\"gemma3\",\"text_config\":{\"model_type\":\"gemma3_text\",\"hidden_size\":3840,"
        "\"intermediate_size\":15360,\"num_attention_heads\":16,\"num_hidden_layers\":48}}";
    static const struct {
        const char *key;
        int64_t value;
    } sizes[] = {{"vocab_size", 262208},
                 {"hidden_size", 3840},
                 {"intermediate_size", 15360},
                 {"num_hidden_layers", 48},
                 {"num_attention_heads", 16}};
    const nrl_node *config;
    support_write(f->dir, "config.json", config_text, sizeof config_text - 1);
    ASSERT_OK(test_weights_config(f->dir, &f->a, &config));
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        assert_int_equal(nrl_node_int(nrl_node_find(config, sizes[i].key), -1), sizes[i].value);
}

static void either_config_of_a_model_with_images_ties_the_head(void **state)
{
    fixture *f = *state;
    static const char *const ties[] = {"true", "false"};
    for (int i = 0; i < 4; i++) {
        const nrl_node *config;
        const char *text = arena_printf(&f->a,
                                        "{\"model_type\":\"llava\",\"tie_word_embeddings\":%s,\"text_config\":"
                                        "{\"model_type\":\"qwen2\",\"tie_word_embeddings\":%s}}",
                                        ties[i / 2], ties[i % 2]);
        support_write(f->dir, "config.json", text, strlen(text));
        ASSERT_OK(test_weights_config(f->dir, &f->a, &config));
        assert_int_equal(nrl_node_bool(nrl_node_find(config, "tie_word_embeddings"), false), i < 3);
    }
}

static void the_hash_knows_values_but_not_files(void **state)
{
    fixture *f = *state;
    model *m = small(f, "");
    values v = {.fail_at = -1};
    char hash[3][33];
    ASSERT_OK(save(in(f, "0"), m, &v, NRL_DTYPE_F32, 0));
    ASSERT_OK(save(in(f, "1"), m, &v, NRL_DTYPE_F32, 700));
    v.shift = 1;
    ASSERT_OK(save(in(f, "2"), m, &v, NRL_DTYPE_F32, 0));
    for (int i = 0; i < 3; i++) {
        weight_files *w;
        ASSERT_OK(test_weights_open(arena_printf(&f->a, "%s/%d", f->dir, i), &w));
        ASSERT_OK(weights_hash(w, hash[i]));
        weights_close(w);
    }
    assert_int_equal(strlen(hash[0]), 32);
    assert_string_equal(hash[0], hash[1]);
    assert_string_not_equal(hash[0], hash[2]);
    model_destroy(m);
}

static void a_wrong_index_is_told(void **state)
{
    fixture *f = *state;
    static const struct {
        const char *index, *text;
    } rows[] = {{"{}", "no 'weight_map'"},
                {"{\"weight_map\":{\"a\":\"../x.safetensors\"}}", "expected a file in the same directory"},
                {"{\"weight_map\":{\"a\":3}}", "expected a file in the same directory"},
                {"{\"weight_map\":{\"a\":\"x.safetensors\"}}", "lists this file, but it is absent"},
                {"{\"weight_map\":{\"a\":\"y.safetensors\"}}", "tensor 'a' is not in y.safetensors"}};
    size_t size;
    unsigned char *image = support_image("{}", 0, &size);
    support_write(f->dir, "y.safetensors", image, size);
    support_write(f->dir, "config.json", "{\"model_type\":\"x\"}", 18);
    free(image);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        weight_files *w;
        support_write(f->dir, "model.safetensors.index.json", rows[i].index, strlen(rows[i].index));
        ASSERT_FAILS(test_weights_open(f->dir, &w), NRL_ERR_DATA, rows[i].text);
    }
}

static void a_directory_without_weights_says_what_was_looked_for(void **state)
{
    fixture *f = *state;
    weight_files *w;
    support_write(f->dir, "config.json", "{\"model_type\":\"x\"}", 18);
    ASSERT_FAILS(test_weights_open(f->dir, &w), NRL_ERR_DATA, "no model.safetensors and no");
    support_write(f->dir, "pytorch_model.bin", "", 0);
    ASSERT_FAILS(test_weights_open(f->dir, &w), NRL_ERR_DATA, "is a pickle");
}

static const char *cache_folder;

static const char *cache_variable(const char *name)
{
    return strcmp(name, "HF_HOME") ? NULL : cache_folder;
}

/* Where the weights of `path` are, in `f->a`. */
static nrl_status located(fixture *f, const char *path, const char **dir)
{
    const format_scope scope = {.host = f->host, .variable = cache_variable};
    weight_files *w;
    NRL_TRY(weights_open(&scope, NRL_HOLDS_MODEL, path, &w));
    *dir = arena_strdup(&f->a, w->info.path);
    weights_close(w);
    return NRL_OK;
}

static void a_model_name_is_looked_up_in_the_local_cache(void **state)
{
    fixture *f = *state;
    static const char config[] = "{\"model_type\":\"llama\"}";
    const char *dir;
    const char *repo = in(f, "hub/models--org--name"), *snapshot = arena_printf(&f->a, "%s/snapshots/abc", repo);
    cache_folder = f->dir;
    support_write(f->dir, "config.json", config, strlen(config));
    ASSERT_OK(located(f, f->dir, &dir));
    assert_string_equal(dir, f->dir);
    ASSERT_FAILS(located(f, "org/name", &dir), NRL_ERR_CONFIG, "nrl download org/name");
    ASSERT_FAILS(located(f, "./x", &dir), NRL_ERR_CONFIG, "no such directory");
    ASSERT_FAILS(located(f, "a/b/c", &dir), NRL_ERR_CONFIG, "no such directory");
    mkdir(in(f, "hub"), 0777);
    mkdir(repo, 0777);
    mkdir(arena_printf(&f->a, "%s/refs", repo), 0777);
    mkdir(arena_printf(&f->a, "%s/snapshots", repo), 0777);
    mkdir(snapshot, 0777);
    support_write(snapshot, "config.json", config, strlen(config));
    support_write(arena_printf(&f->a, "%s/refs", repo), "main", "abc\n", 4);
    ASSERT_OK(located(f, "org/name", &dir));
    assert_non_null(strstr(dir, "/snapshots/abc"));
}

/* The config's word decides against the probe, and must name a format that holds a model. */
static void a_named_format_is_used_without_a_probe(void **state)
{
    fixture *f = *state;
    weight_files *w;
    format_scope scope = {.host = f->host, .name = "hf"};
    ASSERT_OK(weights_open(&scope, NRL_HOLDS_MODEL, support_golden(&f->a, "llama"), &w));
    assert_string_equal(w->format->plugin.name, "hf");
    weights_close(w);
    scope.name = "peft";
    ASSERT_FAILS(weights_open(&scope, NRL_HOLDS_MODEL, f->dir, &w), NRL_ERR_CONFIG, "it stores an adapter");
    scope.name = "hv";
    ASSERT_FAILS(weights_open(&scope, NRL_HOLDS_MODEL, f->dir, &w), NRL_ERR_CONFIG, "did you mean 'hf'");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(golden_weights_fit_their_configs),
        TEST(any_slice_of_a_turned_matrix_is_right),
        TEST(what_is_saved_reads_back_in_every_type_and_sharding),
        TEST(the_saved_config_names_the_new_type_and_keeps_the_rest),
        TEST(travelling_files_are_copied),
        TEST(saving_over_a_model_leaves_no_stale_weights),
        TEST(a_model_is_exchanged_as_a_whole),
        TEST(what_is_read_is_not_replaced),
        TEST(a_failed_save_leaves_nothing_behind),
        TEST(a_full_disk_is_told_with_the_bytes_that_were_needed),
        TEST(all_differences_are_told_at_once),
        TEST(a_tied_head_may_be_absent_or_equal_but_not_different),
        TEST(names_without_the_optional_prefix_are_found),
        TEST(the_language_model_of_a_model_with_images_is_read_alone),
        TEST(either_config_of_a_model_with_images_ties_the_head),
        TEST(sizes_that_a_text_config_leaves_out_are_those_of_transformers),
        TEST(the_hash_knows_values_but_not_files),
        TEST(a_wrong_index_is_told),
        TEST(a_directory_without_weights_says_what_was_looked_for),
        TEST(a_model_name_is_looked_up_in_the_local_cache),
        TEST(a_named_format_is_used_without_a_probe),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
