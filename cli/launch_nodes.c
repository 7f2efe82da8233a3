/*
 * launch_nodes.c - reads lists of machines from three sources.
 */
#include "cli/launch_nodes.h"
#include "base/file.h"
#include <stdlib.h>
#include <string.h>

enum { MAX_NODES = 65536, MAX_SLOTS = 65536, MAX_GPU = 4095, MAX_FILE = 16 << 20, MAX_ADDRESS = 255 };

static nrl_status add_node(arena *a, launch_nodes *out, const launch_node *node, int32_t slots)
{
    launch_node n = *node;
    if (!n.slots) n.slots = n.n_gpus ? n.n_gpus : slots;
    if (!*n.address || strlen(n.address) > MAX_ADDRESS)
        return nrl_fail(NRL_ERR_CONFIG, "got '%s'; expected a host name or an address", n.address);
    if (!n.slots)
        return nrl_fail(NRL_ERR_CONFIG, "%s: number of ranks is unknown; expected %s:N, slots=N, or -n N for all nodes",
                        n.address, n.address);
    if (n.n_gpus && n.n_gpus != n.slots)
        return nrl_fail(NRL_ERR_CONFIG, "%s: got %d GPUs for %d slots; expected one GPU per slot", n.address, n.n_gpus,
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

static nrl_status parse_number(const char *text, size_t size, int64_t min, int64_t max, const char *what, int32_t *out)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    if (size == 0 || strspn(text, "0123456789") < size || end != text + size || value < min || value > max)
        return nrl_fail(NRL_ERR_CONFIG, "%s: got '%.*s'; expected a number from %lld to %lld", what, (int)size, text,
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
            return nrl_fail(NRL_ERR_CONFIG, "got '%.*s'; expected [ADDRESS]:SLOTS", (int)size, word);
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
            nrl_add_context("--nodes");
            return st;
        }
        p += n;
        if (!*p) return NRL_OK;
    }
}

/* ---- host files ---- */

static nrl_status parse_gpus(arena *a, const char *text, size_t size, launch_node *node)
{
    if (node->n_gpus) return nrl_fail(NRL_ERR_CONFIG, "gpus=: given twice");
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
    return nrl_fail(NRL_ERR_CONFIG, "got '%.*s'; expected slots=N or gpus=0,1", (int)size, word);
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
    if (node.address && !node.slots && !node.n_gpus && strchr(node.address, ':'))
        return add_word(a, node.address, strlen(node.address), slots, out);
    return add_node(a, out, &node, slots);
}

nrl_status launch_nodes_file(arena *a, const char *path, int32_t slots, launch_nodes *out)
{
    char *text;
    size_t size;
    nrl_status st = file_read(path, MAX_FILE, &text, &size);
    if (st != NRL_OK) {
        nrl_add_context("--hostfile");
        return nrl_fail(NRL_ERR_CONFIG, "%s", nrl_error_text());
    }
    *out = (launch_nodes){0};
    int line = 1;
    for (const char *p = text; st == NRL_OK && *p; line++) {
        size_t n = strcspn(p, "\n");
        st = parse_line(a, p, n, slots, out);
        if (st != NRL_OK) nrl_add_context("%s:%d", path, line);
        p += n + (p[n] == '\n');
    }
    if (st == NRL_OK && strlen(text) != size) st = nrl_fail(NRL_ERR_CONFIG, "%s: contains a NUL byte", path);
    if (st == NRL_OK && !out->n) st = nrl_fail(NRL_ERR_CONFIG, "%s: contains no host", path);
    free(text);
    return st;
}

/* ---- the config ---- */

nrl_status launch_nodes_config(arena *a, const launch_host *hosts, size_t n, launch_nodes *out)
{
    *out = (launch_nodes){0};
    for (size_t i = 0; i < n; i++) {
        const launch_host *h = &hosts[i];
        launch_node node = {.address = h->address, .slots = (int32_t)h->slots};
        node.n_gpus = (int32_t)nrl_node_size(h->gpus);
        node.gpus = arena_alloc(a, (size_t)(node.n_gpus + 1) * sizeof *node.gpus);
        for (int32_t k = 0; k < node.n_gpus; k++)
            node.gpus[k] = (int32_t)nrl_node_int(nrl_node_at(h->gpus, (size_t)k), 0);
        nrl_status st = add_node(a, out, &node, 1);
        if (st == NRL_OK) continue;
        nrl_add_context("launch.nodes[%zu]", i);
        return st;
    }
    return NRL_OK;
}
