/*
 * test_config.c - config.json: real files give the known number of parameters, both spellings mean
 * the same, and errors about unsupported or invalid values name the key.
 */
#include "support.h"
#include "support/shared.h"

static const char llama[] = "{\"model_type\":\"llama\",\"vocab_size\":16,\"hidden_size\":8,\"intermediate_size\":12,"
                            "\"num_hidden_layers\":2,\"num_attention_heads\":2";
static const char gpt2[] = "{\"model_type\":\"gpt2\",\"vocab_size\":16,\"n_embd\":8,\"n_layer\":2,"
                           "\"n_head\":2,\"n_positions\":32";

/* The status of a model made of `base` and more keys, which win over those of the base. */
static nrl_status create(const char *base, const char *more, int64_t *n_params)
{
    arena a = {0};
    plugin_host *h = support_host();
    model *m = NULL;
    nrl_node *config, *extra;
    char *text = mem_printf("%s}", base), *add = mem_printf("{%s}", more);
    ASSERT_OK(json_parse(&a, "config.json", text, strlen(text), &config));
    ASSERT_OK(json_parse(&a, "config.json", add, strlen(add), &extra));
    for (size_t i = 0; i < nrl_node_size(extra); i++)
        node_set(&a, config, nrl_node_key(extra, i), node_copy(&a, nrl_node_at(extra, i)));
    nrl_status st = support_model(h, config, &m);
    if (st == NRL_OK && n_params) *n_params = model_n_params(m);
    model_destroy(m);
    plugin_host_destroy(h);
    arena_free(&a);
    free(text);
    free(add);
    return st;
}

static int64_t count(const char *base, const char *more)
{
    int64_t n = -1;
    ASSERT_OK(create(base, more, &n));
    return n;
}

static void real_configs_give_the_known_number_of_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        int64_t n;
    } rows[] = {{"Llama-2-7b-hf.transformers-4.31", 6738415616},
                {"Llama-2-7b-hf.transformers-4.36", 6738415616},
                {"Llama-3.1-8B-Instruct", 8030261248},
                {"Llama-3.2-1B-Instruct", 1235814400},
                {"Mistral-7B-Instruct-v0.3", 7248023552},
                {"Qwen2-1.5B-Instruct", 1543714304},
                {"Qwen2.5-0.5B", 494032768},
                {"Qwen2.5-7B-Instruct", 7615616512},
                {"Qwen3-0.6B-finetune", 596049920},
                {"Qwen3-8B", 8190735360},
                {"SmolLM2-135M", 134515008},
                {"gpt2-large", 774030080},
                {"tiny-gpt2", 6763392}};
    plugin_host *h = support_host();
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        arena a = {0};
        model *m;
        const nrl_node *config;
        const char *path = shared_path_in(&a, arena_printf(&a, "data/configs/%s.json", rows[i].file));
        if (!path) skip();
        ASSERT_OK(weights_read_config(test_formats(), path, &a, &config));
        ASSERT_OK(support_model(h, config, &m));
        assert_int_equal(model_n_params(m), rows[i].n);
        model_destroy(m);
        arena_free(&a);
    }
    plugin_host_destroy(h);
}

static nrl_status read_config(const char *text)
{
    arena a = {0};
    const nrl_node *config;
    char *dir = support_scratch();
    support_write(dir, "config.json", text, strlen(text));
    nrl_status st = test_weights_config(dir, &a, &config);
    test_folder_remove(dir);
    free(dir);
    arena_free(&a);
    return st;
}

static void what_is_no_causal_language_model_is_refused(void **state)
{
    (void)state;
    ASSERT_OK(read_config("{\"model_type\":\"llama\",\"architectures\":[\"LlamaForCausalLM\"]}"));
    ASSERT_OK(read_config("{\"model_type\":\"gpt2\",\"architectures\":[\"GPT2LMHeadModel\"]}"));
    ASSERT_FAILS(read_config("{\"model_type\":\"llama\",\"architectures\":[\"LlamaForTokenClassification\"]}"),
                 NRL_ERR_DATA, "LlamaForTokenClassification");
    ASSERT_FAILS(read_config("{\"model_type\":\"t5\",\"is_encoder_decoder\":true}"), NRL_ERR_DATA,
                 "is_encoder_decoder");
    ASSERT_FAILS(read_config("{\"model_type\":\"llama\",\"quantization_config\":{\"bits\":4}}"), NRL_ERR_DATA,
                 "quantized");
    ASSERT_FAILS(read_config("{\"architectures\":[]}"), NRL_ERR_DATA, "'model_type' is missing");
    ASSERT_FAILS(read_config("[]"), NRL_ERR_DATA, "not a JSON map");
    ASSERT_FAILS(read_config("{\"model_type\":"), NRL_ERR_DATA, "config.json:1");
}

static void an_unknown_model_type_lists_what_is_served(void **state)
{
    (void)state;
    ASSERT_FAILS(
        create("{\"model_type\":\"gpt_neox\"", "", NULL), NRL_ERR_DATA,
        "no model plugin supports model_type 'gpt_neox'; expected one of: gpt2, llama, "
        "mistral, qwen2, qwen3, phi3, smollm3, granite, olmo2, olmo3, glm, glm4, ernie4_5, exaone4, hunyuan_v1_dense, "
        "arcee, qwen3_moe, mixtral, olmoe, gpt_oss, gemma, gemma2, gemma3_text");
    ASSERT_FAILS(create("{\"model_type\":\"gemma4\"", "", NULL), NRL_ERR_DATA,
                 "no model plugin supports model_type 'gemma4'");
}

/* D 8, I 12, V 16, L 2, H 2, K 4: a layer has 4*64 + 3*96 + 16, all 2*128 + 8 beside. */
static void families_differ_in_biases_and_head_norms(void **state)
{
    (void)state;
    int64_t plain = 2 * (4 * 64 + 3 * 96 + 16) + 2 * 128 + 8;
    assert_int_equal(count(llama, ""), plain);
    assert_int_equal(count(llama, "\"tie_word_embeddings\":true"), plain - 128);
    assert_int_equal(count(llama, "\"num_key_value_heads\":1"), plain - 2 * 64);
    assert_int_equal(count(llama, "\"attention_bias\":true"), plain + 2 * 4 * 8);
    assert_int_equal(count(llama, "\"mlp_bias\":true"), plain + 2 * (12 + 12 + 8));
    assert_int_equal(count(llama, "\"head_dim\":2"), plain - 2 * 4 * 32);
    assert_int_equal(count(llama, "\"model_type\":\"mistral\",\"num_key_value_heads\":2"), plain);
    assert_int_equal(count(llama, "\"model_type\":\"qwen2\",\"num_key_value_heads\":null"), plain + 2 * 3 * 8);
    assert_int_equal(count(llama, "\"model_type\":\"qwen3\",\"head_dim\":4,\"num_key_value_heads\":2"),
                     plain + 2 * 2 * 4);
    assert_int_equal(count(llama, "\"model_type\":\"phi3\""), plain);
    assert_int_equal(count(llama, "\"model_type\":\"granite\""), plain);
    assert_int_equal(count(llama, "\"model_type\":\"smollm3\",\"num_key_value_heads\":2"), plain - 128);
    assert_int_equal(count(llama, "\"model_type\":\"olmo2\""), plain + 2 * 2 * 8);
    assert_int_equal(count(llama, "\"model_type\":\"gemma\",\"head_dim\":4,\"num_key_value_heads\":2"), plain - 128);
    assert_int_equal(count(llama, "\"model_type\":\"gemma3_text\",\"head_dim\":4,\"num_key_value_heads\":2"),
                     plain - 128 + 2 * (2 * 8 + 2 * 4));
}

/* Sizes as these models' own configs have them, and the numbers of parameters that their files
 * hold. */
static void published_sizes_give_the_published_number_of_parameters(void **state)
{
    (void)state;
    static const struct {
        const char *type, *sizes;
        int64_t vocab, n;
    } rows[] = {
        {"phi3",
         "\"hidden_size\":3072,\"intermediate_size\":8192,\"num_hidden_layers\":32,"
         "\"num_attention_heads\":32,\"num_key_value_heads\":32,\"sliding_window\":2047",
         32064, 3821079552},
        {"smollm3",
         "\"hidden_size\":2048,\"intermediate_size\":11008,\"num_hidden_layers\":36,"
         "\"num_attention_heads\":16,\"num_key_value_heads\":4",
         128256, 3075098624},
        {"olmo2",
         "\"hidden_size\":4096,\"intermediate_size\":11008,\"num_hidden_layers\":32,"
         "\"num_attention_heads\":32",
         100352, 7298617344},
        {"gemma",
         "\"hidden_size\":2048,\"intermediate_size\":16384,\"num_hidden_layers\":18,"
         "\"num_attention_heads\":8,\"num_key_value_heads\":1,\"hidden_act\":\"gelu\"",
         256000, 2506172416},
        {"gemma3_text",
         "\"hidden_size\":1152,\"intermediate_size\":6912,\"num_hidden_layers\":26,"
         "\"num_attention_heads\":4,\"num_key_value_heads\":1,\"head_dim\":256,"
         "\"sliding_window\":512,\"sliding_window_pattern\":6,\"rope_local_base_freq\":10000",
         262144, 999885952},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *base = mem_printf("{\"model_type\":\"%s\",\"vocab_size\":%lld", rows[i].type, (long long)rows[i].vocab);
        assert_int_equal(count(base, rows[i].sizes), rows[i].n);
        free(base);
    }
}

static void faults_of_a_llama_config_name_the_key(void **state)
{
    (void)state;
    static const struct {
        const char *more, *text;
    } rows[] = {
        {"\"hidden_size\":0", "'hidden_size' is 0; expected 1 to"},
        {"\"hidden_size\":\"x\"", "'hidden_size' is not an integer"},
        {"\"vocab_size\":null", "'vocab_size' is missing"},
        {"\"num_hidden_layers\":1000000", "'num_hidden_layers' is 1000000"},
        {"\"hidden_size\":9", "must be a multiple of num_attention_heads"},
        {"\"num_attention_heads\":3,\"num_key_value_heads\":2,\"head_dim\":4",
         "is not a multiple of num_key_value_heads"},
        {"\"head_dim\":3", "head_dim is 3"},
        {"\"hidden_size\":2147483640", "head_dim is 1073741820"},
        {"\"hidden_act\":\"gelu\"", "hidden_act is 'gelu'; only 'silu'"},
        {"\"rms_norm_eps\":0", "'rms_norm_eps' is 0"},
        {"\"rope_theta\":-1", "'rope_theta' is -1"},
        {"\"rope_scaling\":{\"type\":\"dynamic\",\"factor\":2}", "rope type 'dynamic' is not supported"},
        {"\"rope_parameters\":{\"rope_type\":\"longrope\"}", "'short_factor' is not a list of 2 numbers"},
        {"\"rope_parameters\":{\"rope_type\":\"longrope\",\"short_factor\":[1,-1]}",
         "short_factor[1] is not a number above 0"},
        {"\"model_type\":\"phi3\",\"partial_rotary_factor\":0.3", "partial_rotary_factor 0.3 of head"},
        {"\"model_type\":\"phi3\",\"partial_rotary_factor\":1.5", "partial_rotary_factor 1.5 of head"},
        {"\"attn_logit_softcapping\":50.0", "attn_logit_softcapping is set"},
        {"\"use_bidirectional_attention\":true", "use_bidirectional_attention is true"},
        {"\"model_type\":\"gemma\",\"num_key_value_heads\":2,\"hidden_activation\":\"silu\"",
         "hidden_activation is 'silu'; only 'gelu_pytorch_tanh'"},
        {"\"model_type\":\"gemma3_text\",\"num_key_value_heads\":2,\"sliding_window\":null",
         "'sliding_window' is missing"},
        {"\"model_type\":\"gemma3_text\",\"num_key_value_heads\":2,\"query_pre_attn_scalar\":0",
         "'query_pre_attn_scalar' is 0"},
        {"\"model_type\":\"granite\",\"logits_scaling\":0", "'logits_scaling' is 0"},
        {"\"model_type\":\"smollm3\",\"num_key_value_heads\":2,\"no_rope_layers\":[1]",
         "'no_rope_layers' is not a list of 2 numbers"},
        {"\"model_type\":\"smollm3\",\"num_key_value_heads\":2,\"no_rope_layers\":[1,2]",
         "no_rope_layers[1] is neither 0 nor 1"},
        {"\"model_type\":\"smollm3\",\"num_key_value_heads\":2,\"no_rope_layer_interval\":0",
         "'no_rope_layer_interval' is 0"},
        {"\"rope_scaling\":{\"type\":\"linear\"}", "'factor' is missing"},
        {"\"rope_scaling\":[1]", "not a map"},
        {"\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,\"low_freq_factor\":4,\"high_"
         "freq_factor\":4}",
         "high_freq_factor 4 is not above"},
        {"\"partial_rotary_factor\":0.5", "partial_rotary_factor is 0.5"},
        {"\"model_type\":\"qwen2\",\"num_key_value_heads\":2,\"layer_types\":[\"full_attention\"]",
         "'layer_types' is not a list of 2"},
        {"\"model_type\":\"qwen2\",\"num_key_value_heads\":2,\"layer_types\":[\"full_attention\","
         "\"chunked\"]",
         "'chunked'"},
        {"\"model_type\":\"qwen2\",\"num_key_value_heads\":2,\"layer_types\":[\"full_attention\","
         "\"sliding_attention\"]",
         "layer_types[1] has a window"},
        {"\"model_type\":\"mistral\",\"num_key_value_heads\":2,\"sliding_window\":0", "'sliding_window' is 0"},
        {"\"vocab_size\":2147483647,\"hidden_size\":2147483646,\"head_dim\":4", "is too large"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ASSERT_FAILS(create(llama, rows[i].more, NULL), NRL_ERR_DATA, rows[i].text);
}

static void faults_of_a_gpt2_config_name_the_key(void **state)
{
    (void)state;
    assert_int_equal(count(gpt2, ""), 2 * (12 * 64 + 13 * 8) + 16 * 8 + 32 * 8 + 16);
    assert_int_equal(count(gpt2, "\"n_inner\":8"), 2 * (6 * 64 + 10 * 8) + 16 * 8 + 32 * 8 + 16);
    assert_int_equal(count(gpt2, "\"tie_word_embeddings\":false"), 2 * (12 * 64 + 13 * 8) + 2 * 16 * 8 + 32 * 8 + 16);
    ASSERT_FAILS(create(gpt2, "\"n_head\":3", NULL), NRL_ERR_DATA, "not a multiple of n_head 3");
    ASSERT_FAILS(create(gpt2, "\"n_embd\":\"8\"", NULL), NRL_ERR_DATA, "'n_embd' is not an integer");
    ASSERT_FAILS(create(gpt2, "\"n_embd\":null", NULL), NRL_ERR_DATA, "'n_embd' is missing");
    ASSERT_FAILS(create(gpt2, "\"activation_function\":\"mish\"", NULL), NRL_ERR_DATA, "'mish' is not supported");
    ASSERT_FAILS(create(gpt2, "\"add_cross_attention\":true", NULL), NRL_ERR_DATA, "add_cross_attention");
    ASSERT_FAILS(create(gpt2, "\"layer_norm_epsilon\":0", NULL), NRL_ERR_DATA, "layer_norm_epsilon");
}

static void shipped_configs_load(void **state)
{
    (void)state;
    static const char *const names[] = {"tiny", "tiny-gpt2"};
    plugin_host *h = support_host();
    for (int i = 0; i < 2; i++) {
        arena a = {0};
        model *m;
        const nrl_node *config;
        const char *path = arena_printf(&a, "%s/configs/models/%s.json", getenv("NRL_TEST_SOURCE"), names[i]);
        ASSERT_OK(weights_read_config(test_formats(), path, &a, &config));
        ASSERT_OK(support_model(h, config, &m));
        assert_string_equal(m->units[0].name, "embed");
        assert_string_equal(m->units[m->n_units - 1].name, "norm");
        model_destroy(m);
        arena_free(&a);
    }
    plugin_host_destroy(h);
}

/* The tied head is used by the first and the last unit and counts once; the embedding costs no
 * multiplication but as the head. */
static void a_tied_head_is_one_parameter_used_twice(void **state)
{
    (void)state;
    arena a = {0};
    model *m;
    plugin_host *h = support_host();
    char *text = mem_printf("%s,\"tie_word_embeddings\":true}", llama);
    ASSERT_OK(support_model_text(h, &a, text, &m));
    const model_unit *last = &m->units[m->n_units - 1];
    assert_ptr_equal(m->head.weight, m->units[0].uses[0]);
    assert_int_equal(last->n_uses, 2);
    assert_ptr_equal(last->uses[1], m->head.weight);
    double flops = 0;
    for (int32_t u = 0; u < m->n_units; u++)
        flops += model_unit_flops(m, u);
    assert_true(flops == 6.0 * (2 * (4 * 64 + 3 * 96) + 128));
    free(text);
    model_destroy(m);
    plugin_host_destroy(h);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(real_configs_give_the_known_number_of_parameters),
        cmocka_unit_test(what_is_no_causal_language_model_is_refused),
        cmocka_unit_test(an_unknown_model_type_lists_what_is_served),
        cmocka_unit_test(families_differ_in_biases_and_head_norms),
        cmocka_unit_test(published_sizes_give_the_published_number_of_parameters),
        cmocka_unit_test(faults_of_a_llama_config_name_the_key),
        cmocka_unit_test(faults_of_a_gpt2_config_name_the_key),
        cmocka_unit_test(shipped_configs_load),
        cmocka_unit_test(a_tied_head_is_one_parameter_used_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
