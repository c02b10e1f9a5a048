// What an image says of itself: the length of a library, the version of PTX.
#include <elf.h>

#include <algorithm>
#include <cstdio>
#include <cstring>

#include "fake_driver.hpp"

namespace fake_driver {

// From its own tables.
std::size_t library_bytes(const void* image) {
    Elf64_Ehdr header;
    std::memcpy(&header, image, SELFMAG);
    if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return 0;
    std::memcpy(&header, image, sizeof header);
#if defined(__x86_64__)
    constexpr Elf64_Half OURS = EM_X86_64;
#else
    constexpr Elf64_Half OURS = EM_AARCH64;
#endif
    if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != OURS) return 0;
    std::size_t end = header.e_shoff + std::size_t{header.e_shnum} * header.e_shentsize;
    const auto* bytes = static_cast<const char*>(image);
    for (unsigned i = 0; i < header.e_shnum; ++i) {
        Elf64_Shdr section;
        std::memcpy(&section, bytes + header.e_shoff + i * std::size_t{header.e_shentsize}, sizeof section);
        if (section.sh_type != SHT_NOBITS) end = std::max(end, std::size_t{section.sh_offset + section.sh_size});
    }
    return end;
}

// PTX of 13.0 is version 9.0, that of 12.4 is 8.4, that of 11.8 is 7.8; in between some are not raised.
bool is_newer_ptx(const void* image) {
    int major = 0, minor = 0;
    if (std::sscanf(static_cast<const char*>(image), ".version %d.%d", &major, &minor) != 2) return false;
    const int version = driver().settings.version;
    return 10 * major + minor > 10 * (version / 1000 - 4) + version % 1000 / 10;
}

}  // namespace fake_driver
