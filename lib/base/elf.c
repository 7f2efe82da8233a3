/*
 * elf.c - see elf.h. The layout is that of elf(5); class, byte order and machine must be those of the running program.
 */
#include "base/elf.h"
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef ElfW(Ehdr) elf_header;
typedef ElfW(Phdr) elf_segment;
typedef ElfW(Shdr) elf_section;

typedef struct {
    int fd;
    uint64_t size;
    elf_header head;
} elf_file;

/* Whether [offset, offset + size) lies within the file. */
static bool elf_has(const elf_file *f, uint64_t offset, uint64_t size)
{
    return offset <= f->size && size <= f->size - offset;
}

static bool elf_read(const elf_file *f, uint64_t offset, void *to, size_t size)
{
    return elf_has(f, offset, size) && pread(f->fd, to, size, (off_t)offset) == (ssize_t)size;
}

static nrl_status elf_truncated(const elf_file *f, const char *what)
{
    return nrl_fail(NRL_ERR_PLUGIN,
                    "cannot be opened: the file is truncated or damaged: %s beyond its end (%llu bytes)", what,
                    (unsigned long long)f->size);
}

static nrl_status elf_check_machine(const elf_file *f)
{
    elf_header own;
    int fd = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
    bool known = fd >= 0 && pread(fd, &own, sizeof own, 0) == (ssize_t)sizeof own;
    if (fd >= 0) close(fd);
    if (!known) return NRL_OK; /* dlopen compares them too */
    if (f->head.e_ident[EI_CLASS] != own.e_ident[EI_CLASS] || f->head.e_ident[EI_DATA] != own.e_ident[EI_DATA] ||
        f->head.e_machine != own.e_machine)
        return nrl_fail(NRL_ERR_PLUGIN,
                        "cannot be opened: it was built for another machine (ELF machine %u), expected %u",
                        (unsigned)f->head.e_machine, (unsigned)own.e_machine);
    return NRL_OK;
}

static nrl_status elf_check_segments(const elf_file *f)
{
    bool is_dynamic = false;
    if (!f->head.e_phnum || f->head.e_phentsize != sizeof(elf_segment))
        return nrl_fail(NRL_ERR_PLUGIN, "cannot be opened: it has no program headers");
    for (unsigned i = 0; i < f->head.e_phnum; i++) {
        elf_segment s;
        if (!elf_read(f, f->head.e_phoff + (uint64_t)i * sizeof s, &s, sizeof s))
            return elf_truncated(f, "program headers lie");
        if (s.p_type != PT_NULL && !elf_has(f, s.p_offset, s.p_filesz)) return elf_truncated(f, "a segment lies");
        is_dynamic = is_dynamic || s.p_type == PT_DYNAMIC;
    }
    return is_dynamic ? NRL_OK : nrl_fail(NRL_ERR_PLUGIN, "cannot be opened: it has no dynamic section");
}

/* The loader does not need sections, but they lie at the end of a file, so they show that it was cut. */
static nrl_status elf_check_sections(const elf_file *f)
{
    if (!f->head.e_shoff || f->head.e_shentsize != sizeof(elf_section)) return NRL_OK;
    for (unsigned i = 0; i < f->head.e_shnum; i++) {
        elf_section s;
        if (!elf_read(f, f->head.e_shoff + (uint64_t)i * sizeof s, &s, sizeof s))
            return elf_truncated(f, "section headers lie");
        if (s.sh_type != SHT_NULL && s.sh_type != SHT_NOBITS && !elf_has(f, s.sh_offset, s.sh_size))
            return elf_truncated(f, "a section lies");
    }
    return NRL_OK;
}

static nrl_status elf_check_open(elf_file *f)
{
    struct stat info;
    if (fstat(f->fd, &info)) return nrl_fail(NRL_ERR_PLUGIN, "cannot be opened: %s", strerror(errno));
    if (!S_ISREG(info.st_mode))
        return nrl_fail(NRL_ERR_PLUGIN, "cannot be opened: it is %s, expected a shared object",
                        S_ISDIR(info.st_mode) ? "a directory" : "not a regular file");
    f->size = (uint64_t)info.st_size;
    if (!f->size) return nrl_fail(NRL_ERR_PLUGIN, "cannot be opened: the file is empty");
    if (!elf_read(f, 0, &f->head, sizeof f->head) || memcmp(f->head.e_ident, ELFMAG, SELFMAG))
        return nrl_fail(NRL_ERR_PLUGIN, "cannot be opened: it is not a shared object: it has no ELF header");
    NRL_TRY(elf_check_machine(f));
    if (f->head.e_type != ET_DYN) return nrl_fail(NRL_ERR_PLUGIN, "cannot be opened: it is not a shared object");
    NRL_TRY(elf_check_segments(f));
    return elf_check_sections(f);
}

nrl_status elf_check(const char *path)
{
    elf_file f = {.fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK)}; /* a pipe must not block */
    if (f.fd < 0) return nrl_fail(NRL_ERR_PLUGIN, "cannot be opened: %s", strerror(errno));
    nrl_status st = elf_check_open(&f);
    close(f.fd);
    return st;
}
