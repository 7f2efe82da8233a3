/*
 * test_safetensors.c - mistakes in weight files, each of which must be reported.
 */
#include "safetensors.h"
#include "support.h"

static nrl_status parse(const char *header, size_t data_bytes)
{
    arena a = {0};
    safetensors f;
    size_t size;
    unsigned char *image = support_image(header, data_bytes, &size);
    nrl_status st = safetensors_parse(&a, "m.safetensors", image, size, &f);
    free(image);
    arena_free(&a);
    return st;
}

static void tensors_are_found_with_shape_and_data(void **state)
{
    (void)state;
    arena a = {0};
    safetensors f;
    size_t size;
    unsigned char *image = support_image("{\"__metadata__\":{\"format\":\"pt\"},"
                                         "\"b\":{\"dtype\":\"BF16\",\"shape\":[2,3],\"data_offsets\":[4,16]},"
                                         "\"a\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}  ",
                                         16, &size);
    ASSERT_OK(safetensors_parse(&a, "m.safetensors", image, size, &f));
    assert_int_equal(f.n, 2);
    assert_string_equal(f.tensors[0].name, "b");
    assert_int_equal(f.tensors[0].dtype, NRL_DTYPE_BF16);
    assert_int_equal(f.tensors[0].numel, 6);
    assert_ptr_equal(f.tensors[0].data, image + size - 12);
    assert_int_equal(f.tensors[1].n_dims, 0);
    assert_int_equal(f.tensors[1].numel, 1);
    free(image);
    arena_free(&a);
}

static void faults_of_a_header_are_named(void **state)
{
    (void)state;
    static const struct {
        const char *header, *text;
        size_t data;
    } rows[] = {
        {"[1]", "not a JSON map", 0},
        {"{\"a\":", "m.safetensors:1", 0},
        {"{\"a\":3}", "'a': not a map", 0},
        {"{\"a\":{\"dtype\":\"F99\",\"shape\":[],\"data_offsets\":[0,4]}}", "unknown dtype 'F99'", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", "'shape' is not a list", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", "not a size", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.5],\"data_offsets\":[0,4]}}", "not a size", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", "not a size", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,4]}}",
         "does not fit its 4 bytes", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", "9 dimensions", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}", "does not fit", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,0]}}", "is not a range", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0]}}", "two integers", 4},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "is truncated", 2},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[2,6]}}",
         "overlap", 6},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
         "hole", 12},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", "unused bytes after the last tensor", 5},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
         "\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
         "each key once", 8},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        ASSERT_FAILS(parse(rows[i].header, rows[i].data), NRL_ERR_DATA, rows[i].text);
}

static void header_lengths_are_not_believed(void **state)
{
    (void)state;
    arena a = {0};
    safetensors f;
    unsigned char image[16] = {0};
    ASSERT_FAILS(safetensors_parse(&a, "m", image, 3, &f), NRL_ERR_DATA, "too few");
    image[0] = 200;
    ASSERT_FAILS(safetensors_parse(&a, "m", image, 16, &f), NRL_ERR_DATA, "is truncated");
    memcpy(image, "version https://", 16);
    ASSERT_FAILS(safetensors_parse(&a, "m", image, 16, &f), NRL_ERR_DATA, "git lfs pull");
    memset(image, 0xFF, 8);
    ASSERT_FAILS(safetensors_parse(&a, "m", image, 16, &f), NRL_ERR_DATA, "not a safetensors file");
    arena_free(&a);
}

static void an_absent_or_empty_file_is_told(void **state)
{
    (void)state;
    arena a = {0};
    safetensors f;
    char *dir = support_scratch();
    ASSERT_FAILS(safetensors_open(&a, "/nonexistent/m.safetensors", &f), NRL_ERR_IO, "No such file");
    ASSERT_FAILS(safetensors_open(&a, dir, &f), NRL_ERR_IO, "not a regular file");
    support_write(dir, "m.safetensors", "", 0);
    ASSERT_FAILS(safetensors_open(&a, arena_printf(&a, "%s/m.safetensors", dir), &f), NRL_ERR_DATA, "too few");
    test_folder_remove(dir);
    free(dir);
    arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_are_found_with_shape_and_data),
        cmocka_unit_test(faults_of_a_header_are_named),
        cmocka_unit_test(header_lengths_are_not_believed),
        cmocka_unit_test(an_absent_or_empty_file_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
