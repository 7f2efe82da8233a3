/*
 * test_csv.c - the csv dataset: RFC 4180, its options, and every mistake in a table.
 */
#include "unit/data/rows_support.h"

static void table(void **state, const char *options, const char *text, const char *expected)
{
    rows_expect(*state, "csv", options, "t.csv", text, strlen(text), expected);
}

static void tables_as_in_rfc_4180_are_read(void **state)
{
    table(state, NULL, "a,b\n1,2\n3,4\n", "2:{\"a\": \"1\", \"b\": \"2\"}\n3:{\"a\": \"3\", \"b\": \"4\"}\n");
    table(state, NULL, "a,b\r\n1,2\r\n3,4", "2:{\"a\": \"1\", \"b\": \"2\"}\n3:{\"a\": \"3\", \"b\": \"4\"}\n");
    table(state, NULL, "\xEF\xBB\xBF\"a\",b\n\"x,\"\"y\"\"\n\nz\",\n\n,\" \"\n",
          "2:{\"a\": \"x,\\\"y\\\"\\n\\nz\", \"b\": \"\"}\n6:{\"a\": \"\", \"b\": \" \"}\n");
    table(state, NULL, "a\n\"\"\n", "2:{\"a\": \"\"}\n");
    table(state, NULL, "a,b\n\xC3\xBC,\xE4\xB8\xAD\n", "2:{\"a\": \"\xC3\xBC\", \"b\": \"\xE4\xB8\xAD\"}\n");
    table(state, NULL, "a,b\n", "");
}

static void options_choose_delimiter_quote_and_names(void **state)
{
    table(state, "{\"delimiter\": \";\"}", "a;b\n1,0;2\n", "2:{\"a\": \"1,0\", \"b\": \"2\"}\n");
    table(state, "{\"quote\": \"'\"}", "a,b\n'1,''0',\"2\n", "2:{\"a\": \"1,'0\", \"b\": \"\\\"2\"}\n");
    table(state, "{\"quote\": \"\", \"delimiter\": \"\\t\"}", "a\tb\n5\" wide\t\"2\n",
          "2:{\"a\": \"5\\\" wide\", \"b\": \"\\\"2\"}\n");
    table(state, "{\"names\": [\"p\", \"q\"]}", "a,b\n1,2\n",
          "1:{\"p\": \"a\", \"q\": \"b\"}\n2:{\"p\": \"1\", \"q\": \"2\"}\n");
    fixture *f = *state;
    rows_expect(f, "csv", NULL, "t.tsv", "a\tb\n1,0\t2\n", 11, "2:{\"a\": \"1,0\", \"b\": \"2\"}\n");
    table(state, "{\"delimiter\": \"ab\"}", "",
          "test: reader 'csv': delimiter: expected one ASCII character, not a line end, got 'ab'");
    table(state, "{\"quote\": \"\\n\"}", "", "test: reader 'csv': quote: expected one ASCII character");
    table(state, "{\"quote\": \",\", \"delimiter\": \",\"}", "", "reader 'csv': delimiter and quote are both ','");
    table(state, "{\"names\": [\"a\", \"a\"]}", "", "test: reader 'csv': names: 'a' is there twice");
    table(state, "{\"names\": \"a\"}", "", "test: reader 'csv': names: expected a list of names");
}

static void values_are_texts_unless_their_column_is_json(void **state)
{
    table(state, NULL, "prompt,label\n42,true\n", "2:{\"prompt\": \"42\", \"label\": \"true\"}\n");
    table(state, NULL, "messages,system\n\"[{\"\"role\"\": \"\"user\"\"}]\",\"[1]\"\n",
          "2:{\"messages\": [{\"role\": \"user\"}], \"system\": \"[1]\"}\n");
    table(state, NULL, "prompt,chosen,rejected\n[1],\"[ {\"\"role\"\": \"\"user\"\"}]\",[{x\n",
          "2:{\"prompt\": \"[1]\", \"chosen\": [{\"role\": \"user\"}], \"rejected\": \"[{x\"}\n");
    table(state, "{\"json\": [\"x\"]}", "x,y\n3,3\n,\n\"{\"\"a\"\": null}\",\n",
          "2:{\"x\": 3, \"y\": \"3\"}\n3:{\"x\": null, \"y\": \"\"}\n4:{\"x\": {\"a\": null}, \"y\": \"\"}\n");
    table(state, NULL, "messages\n\"[{'role': 'user'}]\"\n",
          "t.csv:2: column 'messages':1:3: expected a key in double quotes, or '}', found '''\nhint: this is the "
          "Python representation of a value");
    table(state, NULL, "chosen\n\"[{'content': 'a'}]\"\n",
          "t.csv:2: column 'chosen':1:3: expected a key in double quotes, or '}', found '''\nhint: this is the "
          "Python representation of a value");
    table(state, "{\"json\": [\"x\"]}", "a,x\n1,abc\n",
          "t.csv:2: column 'x':1:3: expected a value: text in double quotes, a number, true, false, null, '[' or '{', "
          "found 'abc'");
    table(state, "{\"json\": [\"y\"]}", "a,x\n1,abc\n", "t.csv: reader.json: the table has no column 'y'");
}

static void mistakes_have_a_line(void **state)
{
    table(state, NULL, "a,b\n1,2\n3\n",
          "2:{\"a\": \"1\", \"b\": \"2\"}\nt.csv:3: a row of 1 fields, expected 2 as the first row has");
    table(state, NULL, "a,b\n\"1\n\n\",2\n3,4,5\n",
          "2:{\"a\": \"1\\n\\n\", \"b\": \"2\"}\nt.csv:5: a row of 3 fields, expected 2");
    table(state, "{\"names\": [\"a\"]}", "3,4\n", "t.csv:1: a row of 2 fields, expected 1 as reader.names has");
    table(state, NULL, "a,b\n1,\"x\ny\n", "t.csv:2: the file ends inside this quoted field: is it truncated?");
    table(state, NULL, "a,b\n\"1\"x,2\n", "t.csv:2: text follows the closing quote of a field");
    table(state, NULL, "a,b\n\n5\" wide,2\n", "t.csv:3: a quote in a field that does not begin with one\nhint: ");
    table(state, NULL, "a,b,a\n1,2,3\n", "t.csv:1: two columns have the same name, 'a'");
    table(state, NULL, "a,,b\n1,2,3\n", "t.csv:1: expected the name of a column");
    table(state, NULL, "a,b\n1,\"x\n\xFF\"\n", "t.csv:2: column 'b' is not UTF-8");
    table(state, NULL, "", "t.csv: the file is empty, expected a row of column names");
    table(state, NULL, "PAR1....", "t.csv: a Parquet file; expected a table (CSV) in UTF-8\nhint: python3");
    rows_expect(*state, "csv", NULL, "t.csv", "a\n1\0002\n", 6, "t.csv:2: column 'a' contains a NUL character");
    rows_expect(*state, "csv", NULL, "t.csv",
                "\xFF\xFE"
                "a\0\n\0",
                6, "t.csv: a UTF-16 text file; expected a table");
}

/* Rows of 1 MiB and more, wherever pieces that are read happen to end; a quote that is never closed. */
static void large_rows_stay_whole_and_have_a_limit(void **state)
{
    fixture *f = *state;
    buffer text = {0}, expected = {0};
    char *filling = mem_alloc(3000001);
    memset(filling, 'x', 3000000);
    buffer_puts(&text, "a,b\n");
    for (int i = 0; i < 4; i++) {
        buffer_print(&text, "\"%.*s\n\",%d\r\n", i * 1000000, filling, i);
        buffer_print(&expected, "%d:{\"a\": \"%.*s\\n\", \"b\": \"%d\"}\n", 2 + 2 * i, i * 1000000, filling, i);
    }
    rows_expect(f, "csv", NULL, "t.csv", text.text, text.size, expected.text);
    buffer_puts(&text, "1,2\n3,\"");
    for (int i = 0; i < 12; i++)
        buffer_print(&text, "%.*s\n", 3000000, filling);
    buffer_puts(&expected, "10:{\"a\": \"1\", \"b\": \"2\"}\n"
                           "t.csv:11: a row of more than 16 MiB begins here, or this quoted field is never closed");
    rows_expect(f, "csv", NULL, "t.csv", text.text, text.size, expected.text);
    free(filling);
    buffer_free(&text);
    buffer_free(&expected);
}

/* Columns that the run uses as numbers or labels are converted where they are used. */
static void extra_columns_and_labels_are_read_from_texts(void **state)
{
    fixture *f = *state;
    char *path = support_write(f, "t.csv", "prompt,completion,score,label\n42,7,0.5,True\n1,2, -1e3,FALSE\n");
    dataset_options o = {.host = test_host(),
                         .source = node_string(&f->memory, path, strlen(path)),
                         .tokenizer = f->tok,
                         .extra = support_json(f, "[\"score\"]"),
                         .labels = true,
                         .quiet = true};
    dataset *d = support_open(&o), *none;
    assert_true(dataset_extra(d, 0, 0) == 0.5f && dataset_extra(d, 0, 1) == 1);
    assert_true(dataset_extra(d, 1, 0) == -1000.f && dataset_extra(d, 1, 1) == 0);
    assert_int_equal(dataset_example_tokens(d, 0), 5); /* <s> 4 2 7 </s> */
    dataset_close(d);
    o.labels = false;
    ASSERT_FAILS(dataset_open(&o, &none), NRL_ERR_DATA, "t.csv:2: a labelled row");
    free(support_write(f, "t.csv", "prompt,completion,score,label\n42,7,0x5,True\n"));
    o.labels = true;
    ASSERT_FAILS(dataset_open(&o, &none), NRL_ERR_DATA,
                 "t.csv:2: key 'score' (data.extra): expected a number, found text");
    free(support_write(f, "t.csv", "prompt,completion,score,label\n42,7,5,yes\n"));
    ASSERT_FAILS(dataset_open(&o, &none), NRL_ERR_DATA, "t.csv:2: key 'label': expected true or false, found text");
    free(path);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, support_setup, support_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(tables_as_in_rfc_4180_are_read),
        TEST(options_choose_delimiter_quote_and_names),
        TEST(values_are_texts_unless_their_column_is_json),
        TEST(mistakes_have_a_line),
        TEST(large_rows_stay_whole_and_have_a_limit),
        TEST(extra_columns_and_labels_are_read_from_texts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
