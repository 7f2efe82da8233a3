/*
 * fake_nvtx.c - a tool that NVTX loads (NVTX_INJECTION64_PATH): it writes the ranges of the program to FAKE_NVTX_LOG.
 */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *out;
static nvtxRangeId_t n_ranges;

static int push(const char *name)
{
    fprintf(out, "push %s\n", name);
    return 0;
}

static int pop(void)
{
    fprintf(out, "pop\n");
    return 0;
}

static nvtxRangeId_t start(const char *name)
{
    fprintf(out, "start %s\n", name);
    return ++n_ranges;
}

static void end(nvtxRangeId_t id)
{
    fprintf(out, "end %llu\n", (unsigned long long)id);
}

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get);
int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get)
{
    const NvtxExportTableCallbacks *callbacks = get(NVTX_ETID_CALLBACKS);
    const char *path = getenv("FAKE_NVTX_LOG");
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    out = path ? fopen(path, "we") : NULL;
    if (!out || !callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size)) return 0;
    if (size <= NVTX_CBID_CORE_RangePop) return 0;
    setvbuf(out, NULL, _IOLBF, 0);
    *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    *table[NVTX_CBID_CORE_RangeStartA] = (NvtxFunctionPointer)start;
    *table[NVTX_CBID_CORE_RangeEnd] = (NvtxFunctionPointer)end;
    return 1;
}
