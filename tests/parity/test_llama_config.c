/*
 * test_llama_config.c - rotary frequencies compared with transformers' tables (computed there in
 * float32): each kind of scaling, both spellings, the attention factor; and which layers have a
 * window.
 */
#include "base/json.h"
#include "config.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { HALF = 8 };
static const double float_epsilon = 3e-7; /* theirs rounds twice in float32 */

typedef struct {
    const char *keys;
    double scale, freq[HALF];
} row;

/* hidden_size 64, 4 heads, 32768 positions. */
static const row rows[] = {
    {"\"rope_theta\":1e6,\"rope_scaling\":{\"factor\":4.0,\"original_max_position_embeddings\":"
     "32768,\"type\":\"yarn\"}",
     1.138629436111989,
     {1.0, 0.17782793939113617, 0.03162277862429619, 0.004217559937387705, 0.0005000000237487257,
      4.4456985051510856e-05, 7.905693564680405e-06, 1.405853367941745e-06}},
    {"\"rope_theta\":10000,\"rope_scaling\":{\"factor\":8.0,\"original_max_position_embeddings\":"
     "4096,"
     "\"rope_type\":\"yarn\",\"beta_fast\":16,\"beta_slow\":2,\"mscale\":1.2,\"mscale_all_dim\":0."
     "7,\"truncate\":false}",
     1.0907608459448856,
     {1.0, 0.3162277638912201, 0.10000000149011612, 0.03162277862429619, 0.006221889052540064, 0.00043557558092288673,
      0.0001250000059371814, 3.9528473280370235e-05}},
    {"\"rope_parameters\":{\"rope_theta\":10000,\"factor\":8.0,\"original_max_position_"
     "embeddings\":4096,"
     "\"rope_type\":\"yarn\",\"attention_factor\":1.5}",
     1.5,
     {1.0, 0.3162277638912201, 0.10000000149011612, 0.024705294519662857, 0.005624999757856131, 0.0010870329570025206,
      0.0001250000059371814, 3.9528473280370235e-05}},
    {"\"rope_scaling\":{\"factor\":2.5,\"type\":\"linear\"}",
     1,
     {0.4000000059604645, 0.12649109959602356, 0.03999999910593033, 0.012649111449718475, 0.003999999724328518,
      0.0012649111449718475, 0.0004000000189989805, 0.0001264911115868017}},
    {"\"rope_theta\":500000,\"rope_scaling\":{\"factor\":8.0,\"low_freq_factor\":1.0,\"high_freq_"
     "factor\":4.0,"
     "\"original_max_position_embeddings\":8192,\"rope_type\":\"llama3\"}",
     1,
     {1.0, 0.193922758102417, 0.03760603070259094, 0.00729266507551074, 0.0005248460220173001, 3.428102354519069e-05,
      6.647869668086059e-06, 1.289173155782919e-06}},
    {"\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":10000.0}",
     1,
     {1.0, 0.31622776601683794, 0.1, 0.03162277660168379, 0.01, 0.0031622776601683794, 0.001, 0.00031622776601683794}},
    {"\"rope_scaling\":null",
     1,
     {1.0, 0.31622776601683794, 0.1, 0.03162277660168379, 0.01, 0.0031622776601683794, 0.001, 0.00031622776601683794}},
};

static llama_config read_config(arena *a, const char *type, const char *keys)
{
    nrl_node *config;
    llama_config c;
    const char *text = arena_printf(a,
                                    "{\"model_type\":\"%s\",\"vocab_size\":8,\"hidden_size\":64,"
                                    "\"intermediate_size\":8,\"num_hidden_layers\":4,"
                                    "\"num_attention_heads\":4,\"num_key_value_heads\":2,"
                                    "\"max_position_embeddings\":32768%s%s}",
                                    type, *keys ? "," : "", keys);
    assert_int_equal(json_parse(a, "config.json", text, strlen(text), &config), NRL_OK);
    if (llama_config_read(config, &c) != NRL_OK) fail_msg("%s", nrl_error_text());
    return c;
}

static void frequencies_agree(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        arena a = {0};
        llama_config c = read_config(&a, "llama", rows[i].keys);
        assert_int_equal(c.rope[0].half, HALF);
        assert_true(fabs(c.rope[0].scale - rows[i].scale) < 1e-12);
        for (int j = 0; j < HALF; j++)
            if (fabs(c.rope[0].inv_freq[j] / rows[i].freq[j] - 1) > float_epsilon)
                fail_msg("row %zu, pair %d: %.17g, expected %.17g", i, j, c.rope[0].inv_freq[j], rows[i].freq[j]);
        llama_config_free(&c);
        arena_free(&a);
    }
}

static void windows_follow_each_familys_rule(void **state)
{
    (void)state;
    static const struct {
        const char *type, *keys;
        int64_t window[4];
    } cases[] = {
        {"llama", "\"sliding_window\":8", {0, 0, 0, 0}},
        {"mistral", "\"sliding_window\":8", {8, 8, 8, 8}},
        {"mistral", "\"sliding_window\":null", {0, 0, 0, 0}},
        {"mistral", "", {4096, 4096, 4096, 4096}},
        {"qwen2", "\"sliding_window\":8,\"max_window_layers\":1", {0, 0, 0, 0}},
        {"qwen2", "\"sliding_window\":8,\"max_window_layers\":3,\"use_sliding_window\":true", {0, 0, 0, 8}},
        {"qwen2", "\"sliding_window\":8,\"use_sliding_window\":true", {0, 0, 0, 0}},
        {"qwen3",
         "\"sliding_window\":8,\"use_sliding_window\":true,\"layer_types\":[\"sliding_attention\","
         "\"full_attention\",\"sliding_attention\",\"full_attention\"]",
         {8, 0, 8, 0}},
        {"phi3", "", {0, 0, 0, 0}},
        {"phi3", "\"sliding_window\":8", {8, 8, 8, 8}},
        {"smollm3", "\"sliding_window\":8", {0, 0, 0, 0}},
        {"smollm3", "\"sliding_window\":8,\"use_sliding_window\":true", {0, 0, 0, 8}},
        {"olmo3", "", {4096, 4096, 4096, 0}},
        {"gemma3_text", "\"sliding_window\":8", {8, 8, 8, 8}},
        {"gemma3_text", "\"sliding_window\":8,\"sliding_window_pattern\":2", {8, 0, 8, 0}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        arena a = {0};
        llama_config c = read_config(&a, cases[i].type, cases[i].keys);
        for (int k = 0; k < 4; k++)
            assert_int_equal(c.layers[k].window, cases[i].window[k]);
        llama_config_free(&c);
        arena_free(&a);
    }
}

/* Layers with a window have a rope of their own in Gemma 3; without positions there is none. */
static void ropes_follow_each_familys_rule(void **state)
{
    (void)state;
    arena a = {0};
    llama_config c = read_config(&a, "gemma3_text",
                                 "\"sliding_window_pattern\":2,\"rope_local_base_freq\":100,"
                                 "\"rope_scaling\":{\"rope_type\":\"linear\",\"factor\":8}");
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(c.layers[i].rope, &c.rope[i % 2 == 0]);
    assert_true(fabs(c.rope[0].inv_freq[0] - 1.0 / 8) < 1e-15);
    assert_true(fabs(c.rope[1].inv_freq[1] - pow(100, -1.0 / (double)c.rope[1].half)) < 1e-15);
    llama_config_free(&c);
    c = read_config(&a, "smollm3", "\"no_rope_layers\":[1,0,0,1]");
    for (int i = 0; i < 4; i++)
        assert_int_equal(c.layers[i].rope != NULL, i == 0 || i == 3);
    llama_config_free(&c);
    arena_free(&a);
}

/* Olmo 3 may have one map for both kinds of layers: its theta is for both, its scaling for those without a window. */
static void one_map_scales_layers_without_a_window(void **state)
{
    (void)state;
    arena a = {0};
    llama_config c = read_config(&a, "olmo3",
                                 "\"rope_parameters\":{\"rope_type\":\"linear\",\"rope_theta\":10000,"
                                 "\"factor\":8}");
    for (int i = 0; i < 4; i++)
        assert_ptr_equal(c.layers[i].rope, &c.rope[i < 3]);
    for (int j = 0; j < HALF; j++) {
        const double plain = pow(1e4, -(double)j / HALF);
        assert_true(fabs(c.rope[0].inv_freq[j] / (plain / 8) - 1) < 1e-12);
        assert_true(fabs(c.rope[1].inv_freq[j] / plain - 1) < 1e-12);
    }
    llama_config_free(&c);
    c = read_config(&a, "olmo3", /* a map for each kind */
                    "\"rope_parameters\":{\"full_attention\":{\"rope_type\":\"linear\",\"rope_theta\":10000,"
                    "\"factor\":8},\"sliding_attention\":{\"rope_type\":\"default\",\"rope_theta\":100}}");
    assert_true(fabs(c.rope[0].inv_freq[0] - 1.0 / 8) < 1e-15);
    assert_true(fabs(c.rope[1].inv_freq[1] - pow(100, -1.0 / HALF)) < 1e-15);
    llama_config_free(&c);
    arena_free(&a);
}

/* Texts longer than the first training would want other divisors: the model is as long as that. */
static void longrope_ends_where_its_short_divisors_do(void **state)
{
    (void)state;
    arena a = {0};
    llama_config c = read_config(&a, "phi3",
                                 "\"original_max_position_embeddings\":4096,\"rope_scaling\":{"
                                 "\"type\":\"su\",\"short_factor\":[1,1,1,1,2,2,2,4],"
                                 "\"long_factor\":[9,9,9,9,9,9,9,9]}");
    assert_int_equal(c.max_positions, 4096);
    assert_true(fabs(c.rope[0].inv_freq[7] - pow(1e4, -7.0 / 8) / 4) < 1e-15);
    assert_true(fabs(c.rope[0].scale - sqrt(1 + log(8) / log(4096))) < 1e-15);
    llama_config_free(&c);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(frequencies_agree),
                                       cmocka_unit_test(ropes_follow_each_familys_rule),
                                       cmocka_unit_test(one_map_scales_layers_without_a_window),
                                       cmocka_unit_test(longrope_ends_where_its_short_divisors_do),
                                       cmocka_unit_test(windows_follow_each_familys_rule)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
