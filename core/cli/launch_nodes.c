/*
 * launch_nodes.c - lists of machines, from three places into one form.
 */
#include "cli/launch_nodes.h"
#include "base/file.h"
#include "base/node.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 65536, MAX_SLOTS = 4096, MAX_GPU = 4095, MAX_FILE = 16 << 20, MAX_ADDRESS = 255 };

static nrl_status add_node(arena *a, launch_nodes *out, const launch_node *node, int32_t slots)
{
    launch_node n = *node;
    if (!n.slots) n.slots = n.n_gpus ? n.n_gpus : slots;
    if (!*n.address || strlen(n.address) > MAX_ADDRESS)
        return nrl_fail(NRL_ERR_CONFIG, "'%s': expected a host name or an address", n.address);
    if (!n.slots)
        return nrl_fail(NRL_ERR_CONFIG, "%s: how many ranks? expected %s:N, slots=N, or -n N for all", n.address,
                        n.address);
    if (n.n_gpus && n.n_gpus != n.slots)
        return nrl_fail(NRL_ERR_CONFIG, "%s: %d GPUs for %d slots: expected one for each", n.address, n.n_gpus,
                        n.slots);
    if (out->n == MAX_NODES) return nrl_fail(NRL_ERR_CONFIG, "more than %d nodes", MAX_NODES);
    if (out->n == out->room) {
        launch_node *old = out->list;
        out->room = out->room ? out->room * 2 : 8;
        out->list = arena_alloc(a, out->room * sizeof *out->list);
        if (old) memcpy(out->list, old, out->n * sizeof *old);
    }
    out->list[out->n++] = n;
    return NRL_OK;
}

static nrl_status parse_number(const char *text, size_t size, int64_t min, int64_t max, const char *what,
                               int32_t *out)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    if (size == 0 || strspn(text, "0123456789") < size || end != text + size || value < min || value > max)
        return nrl_fail(NRL_ERR_CONFIG, "%s '%.*s': expected a number from %lld to %lld", what, (int)size, text,
                        (long long)min, (long long)max);
    *out = (int32_t)value;
    return NRL_OK;
}

/* HOST, HOST:SLOTS, [IPV6], [IPV6]:SLOTS; an IPv6 address without brackets has no slots. */
static nrl_status add_word(arena *a, const char *word, size_t size, int32_t slots, launch_nodes *out)
{
    launch_node node = {0};
    const char *end = word + size, *colon = memrchr(word, ':', size);
    const char *close = size && *word == '[' ? memchr(word, ']', size) : NULL;
    if (close) {
        node.address = arena_strndup(a, word + 1, (size_t)(close - word) - 1);
        colon = close + 1 < end ? close + 1 : NULL;
        if (colon && *colon != ':')
            return nrl_fail(NRL_ERR_CONFIG, "'%.*s': expected [ADDRESS]:SLOTS", (int)size, word);
    } else {
        if (colon && memchr(word, ':', size) != colon) colon = NULL;
        node.address = arena_strndup(a, word, (size_t)((colon ? colon : end) - word));
    }
    if (colon) NRL_TRY(parse_number(colon + 1, (size_t)(end - colon) - 1, 1, MAX_SLOTS, "slots", &node.slots));
    return add_node(a, out, &node, slots);
}

nrl_status launch_nodes_words(arena *a, const char *list, int32_t slots, launch_nodes *out)
{
    *out = (launch_nodes){0};
    for (const char *p = list;; p++) {
        size_t n = strcspn(p, ",");
        nrl_status st = add_word(a, p, n, slots, out);
        if (st != NRL_OK) {
            nrl_note("--nodes");
            return st;
        }
        p += n;
        if (!*p) return NRL_OK;
    }
}

/* ---- host files ---- */

static nrl_status parse_gpus(arena *a, const char *text, size_t size, launch_node *node)
{
    node->gpus = arena_alloc(a, (size / 2 + 1) * sizeof *node->gpus);
    for (const char *end = text + size; text < end; text++) {
        const char *comma = memchr(text, ',', (size_t)(end - text));
        size_t n = (size_t)((comma ? comma : end) - text);
        NRL_TRY(parse_number(text, n, 0, MAX_GPU, "gpus", &node->gpus[node->n_gpus]));
        node->n_gpus++;
        text += n;
    }
    return NRL_OK;
}

static nrl_status parse_setting(arena *a, const char *word, size_t size, launch_node *node)
{
    if (size > 6 && !strncmp(word, "slots=", 6))
        return parse_number(word + 6, size - 6, 1, MAX_SLOTS, "slots", &node->slots);
    if (size > 5 && !strncmp(word, "gpus=", 5)) return parse_gpus(a, word + 5, size - 5, node);
    return nrl_fail(NRL_ERR_CONFIG, "'%.*s': expected slots=N or gpus=0,1", (int)size, word);
}

static nrl_status parse_line(arena *a, const char *line, size_t size, int32_t slots, launch_nodes *out)
{
    static const char blank[] = " \t\r";
    launch_node node = {0};
    const char *comment = memchr(line, '#', size), *end = comment ? comment : line + size;
    const char *p = line + strspn(line, blank);
    if (p >= end) return NRL_OK;
    while (p < end) {
        size_t n = strcspn(p, " \t\r\n#");
        if (!node.address)
            node.address = arena_strndup(a, p, n);
        else
            NRL_TRY(parse_setting(a, p, n, &node));
        p += n;
        p += strspn(p, blank);
    }
    if (!node.slots && !node.n_gpus && strchr(node.address, ':'))
        return add_word(a, node.address, strlen(node.address), slots, out);
    return add_node(a, out, &node, slots);
}

nrl_status launch_nodes_file(arena *a, const char *path, int32_t slots, launch_nodes *out)
{
    char *text;
    size_t size;
    nrl_status st = file_read(path, MAX_FILE, &text, &size);
    if (st != NRL_OK) {
        nrl_note("--hostfile");
        return nrl_fail(NRL_ERR_CONFIG, "%s", nrl_error_text());
    }
    *out = (launch_nodes){0};
    int line = 1;
    for (const char *p = text; st == NRL_OK && *p; line++) {
        size_t n = strcspn(p, "\n");
        st = parse_line(a, p, n, slots, out);
        if (st != NRL_OK) nrl_note("%s:%d", path, line);
        p += n + (p[n] == '\n');
    }
    if (st == NRL_OK && strlen(text) != size) st = nrl_fail(NRL_ERR_CONFIG, "%s: holds a NUL byte", path);
    if (st == NRL_OK && !out->n) st = nrl_fail(NRL_ERR_CONFIG, "%s: names no host", path);
    free(text);
    return st;
}

/* ---- the config ---- */

static nrl_status config_gpus(arena *a, const nrl_node *list, launch_node *node)
{
    size_t n = nrl_node_size(list);
    if (!list) return NRL_OK;
    if (nrl_node_kind(list) != NRL_NODE_LIST || n > MAX_SLOTS)
        return nrl_fail(NRL_ERR_CONFIG, "gpus: expected a list of numbers");
    node->gpus = arena_alloc(a, (n + 1) * sizeof *node->gpus);
    for (size_t i = 0; i < n; i++) {
        int64_t gpu = nrl_node_int(nrl_node_at(list, i), -1);
        if (gpu < 0 || gpu > MAX_GPU) return nrl_fail(NRL_ERR_CONFIG, "gpus: expected numbers from 0 to %d", MAX_GPU);
        node->gpus[i] = (int32_t)gpu;
    }
    node->n_gpus = (int32_t)n;
    return NRL_OK;
}

static nrl_status config_node(arena *a, const nrl_node *item, int32_t slots, launch_nodes *out)
{
    launch_node node = {0};
    const char *word = nrl_node_string(item, NULL);
    if (word) return add_word(a, word, strlen(word), slots, out);
    for (size_t i = 0; i < nrl_node_size(item); i++) {
        const char *key = nrl_node_key(item, i);
        if (!key || (strcmp(key, "address") && strcmp(key, "slots") && strcmp(key, "gpus")))
            return nrl_fail(NRL_ERR_CONFIG, "'%s': expected address, slots or gpus", key ? key : "a list");
    }
    const nrl_node *count = nrl_node_find(item, "slots");
    int64_t n = nrl_node_int(count, 0);
    node.address = nrl_node_string(nrl_node_find(item, "address"), NULL);
    if (!node.address) return nrl_fail(NRL_ERR_CONFIG, "address: expected a host name or an address");
    if (count && (n < 1 || n > MAX_SLOTS))
        return nrl_fail(NRL_ERR_CONFIG, "slots: expected a number from 1 to %d", MAX_SLOTS);
    node.slots = (int32_t)n;
    NRL_TRY(config_gpus(a, nrl_node_find(item, "gpus"), &node));
    return add_node(a, out, &node, slots);
}

nrl_status launch_nodes_config(arena *a, const nrl_node *list, int32_t slots, launch_nodes *out)
{
    *out = (launch_nodes){0};
    if (nrl_node_kind(list) != NRL_NODE_LIST) return nrl_fail(NRL_ERR_CONFIG, "launch.nodes: expected a list");
    for (size_t i = 0; i < nrl_node_size(list); i++) {
        nrl_status st = config_node(a, nrl_node_at(list, i), slots, out);
        if (st == NRL_OK) continue;
        nrl_note("launch.nodes[%zu]", i);
        return st;
    }
    return NRL_OK;
}
