// Modules and launches: an image is a kernel library that tests/emulator/build.py made for this machine.
#include <dlfcn.h>
#include <elf.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "../host/machine.hpp"
#include "fake_driver.hpp"

namespace fake_driver {

struct Module {
    int file;  // stays open: the loader takes two libraries of one path, /proc/self/fd/N, for one
    void* library;
    decltype(&lm_emu_launch) launch;
    decltype(&lm_emu_message) message;
    decltype(&lm_emu_kernel_info) info;
    std::map<std::string, std::unique_ptr<Function>> functions;
    std::set<const void*> variables;  // those that were looked up
};

struct Function {
    Module* module;
    std::string name;
    std::size_t bytes;          // of the argument struct
    unsigned threads;           // most of a block
    std::size_t dynamic_limit;  // raised by MAX_DYNAMIC_SHARED_SIZE_BYTES
    bool opted_in;              // whether it was
};

constexpr std::size_t SHARED_BY_DEFAULT = 48 * 1024;  // static and dynamic bytes together

namespace {

std::set<Module*> modules;

// The end of an ELF file, from its own tables; 0 if it is none for this machine.
std::size_t image_bytes(const void* image) {
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

template <class F>
bool bind(void* library, const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(library, name));
    return function != nullptr;
}

CUresult load(const void* image, CUmodule* out) {
    const std::size_t bytes = image_bytes(image);
    if (bytes == 0) {
        complain("the image is not a kernel library for this host (made by tests/emulator/build.py)");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    const int file = memfd_create("kernels", MFD_CLOEXEC);
    if (file < 0 || write(file, image, bytes) != static_cast<ssize_t>(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    const std::string path = "/proc/self/fd/" + std::to_string(file);
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        complain(dlerror());
        close(file);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    auto module = std::make_unique<Module>();
    module->file = file;
    module->library = library;
    if (!bind(library, "lm_emu_launch", module->launch) || !bind(library, "lm_emu_message", module->message) ||
        !bind(library, "lm_emu_kernel_info", module->info)) {
        dlclose(library);
        close(file);
        return CUDA_ERROR_INVALID_IMAGE;
    }
    *out = module.release();
    modules.insert(*out);
    return CUDA_SUCCESS;
}

// The packed argument struct: a buffer given in `extra`, or the one parameter of `parameters`.
CUresult arguments(const Function& function, void** parameters, void** extra, std::vector<char>& out) {
    const void* start = nullptr;
    std::size_t bytes = 0;
    if (extra != nullptr) {
        for (; *extra != nullptr; extra += 2) {
            if (*extra == reinterpret_cast<void*>(1)) start = extra[1];
            if (*extra == reinterpret_cast<void*>(2)) bytes = *static_cast<std::size_t*>(extra[1]);
        }
    } else if (parameters != nullptr) {
        start = parameters[0];
        bytes = function.bytes;
    }
    if (start == nullptr || bytes != function.bytes) {
        complain(function.name + ": the launch brings " + std::to_string(bytes) +
                 " bytes of arguments, the kernel takes " + std::to_string(function.bytes));
        return CUDA_ERROR_INVALID_VALUE;
    }
    out.assign(static_cast<const char*>(start), static_cast<const char*>(start) + bytes);
    return CUDA_SUCCESS;
}

}  // namespace

// A launch with its arguments.
struct Launched {
    Function* function;
    LmLaunch launch;
    std::vector<char> args;

    CUresult run() const {
        LmLaunch now = launch;
        now.seed = driver().random();
        if (function->module->launch(function->name.c_str(), &now, args.data(), args.size()) != 0) {
            complain(function->name + ": " + function->module->message());
            return CUDA_ERROR_LAUNCH_FAILED;
        }
        // Static arrays are met as a launch reaches them; a GPU knows them, and refuses the launch before it starts.
        LmKernelInfo info;
        function->module->info(function->name.c_str(), &info);
        if (function->opted_in || launch.shared + info.static_shared <= SHARED_BY_DEFAULT) return CUDA_SUCCESS;
        complain(function->name + ": " + std::to_string(launch.shared) + " bytes of dynamic and " +
                 std::to_string(info.static_shared) + " of static shared memory exceed 48 KiB without an opt-in");
        return CUDA_ERROR_INVALID_VALUE;
    }
};

}  // namespace fake_driver

using namespace fake_driver;

FAKE_DRIVER_API cuModuleLoadData(CUmodule* out, const void* image) {
    return guarded([&](Driver&) { return load(image, out); });
}

FAKE_DRIVER_API cuModuleLoadDataEx(CUmodule* out, const void* image, unsigned, void*, void*) {
    return cuModuleLoadData(out, image);
}

FAKE_DRIVER_API cuModuleLoad(CUmodule* out, const char* path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    std::string image((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    image.resize(std::max(image.size(), sizeof(Elf64_Ehdr)));
    return cuModuleLoadData(out, image.data());
}

FAKE_DRIVER_API cuModuleUnload(CUmodule module) {
    return guarded([&](Driver& d) {
        if (modules.count(module) == 0) return CUDA_ERROR_INVALID_HANDLE;
        if (const CUresult result = d.streams.finish_all()) return result;  // launches may still need its code
        modules.erase(module);
        for (const void* variable : module->variables) d.memory.forget(variable);
        dlclose(module->library);
        close(module->file);
        delete module;
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuModuleGetFunction(CUfunction* out, CUmodule module, const char* name) {
    return guarded([&](Driver&) {
        if (modules.count(module) == 0) return CUDA_ERROR_INVALID_HANDLE;
        LmKernelInfo info;
        if (module->info(name, &info) != 0) return CUDA_ERROR_NOT_FOUND;
        auto& function = module->functions[name];
        if (function == nullptr) {
            function.reset(new Function{module, name, info.bytes, info.threads, SHARED_BY_DEFAULT, false});
        }
        *out = function.get();
        return CUDA_SUCCESS;
    });
}

// A variable of the device is a symbol of the library; its bytes count as those of the module, as they do on a GPU.
FAKE_DRIVER_API cuModuleGetGlobal_v2(CUdeviceptr* out, std::size_t* bytes, CUmodule module, const char* name) {
    return guarded([&](Driver& d) {
        if (modules.count(module) == 0) return CUDA_ERROR_INVALID_HANDLE;
        void* start = dlsym(module->library, name);
        Dl_info info;
        ElfW(Sym)* symbol = nullptr;
        if (start == nullptr || dladdr1(start, &info, reinterpret_cast<void**>(&symbol), RTLD_DL_SYMENT) == 0 ||
            symbol == nullptr)
            return CUDA_ERROR_NOT_FOUND;
        d.memory.adopt(start, symbol->st_size);
        module->variables.insert(start);
        if (out != nullptr) *out = reinterpret_cast<CUdeviceptr>(start);
        if (bytes != nullptr) *bytes = symbol->st_size;
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuLaunchKernel(CUfunction function, unsigned grid_x, unsigned grid_y, unsigned grid_z, unsigned block_x,
                               unsigned block_y, unsigned block_z, unsigned shared, CUstream stream, void** parameters,
                               void** extra) {
    return guarded([&](Driver& d) {
        LmLaunch launch{{grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, 0, 0, 0, 0, 0};
        launch.order = d.settings.threads;
        launch.copies = d.settings.copies;
        const std::uint64_t threads = std::uint64_t{block_x} * block_y * block_z;
        if (threads == 0 || threads > function->threads || shared > function->dynamic_limit || grid_x == 0 ||
            grid_y == 0 || grid_z == 0 || grid_y > 65535 || grid_z > 65535)
            return CUDA_ERROR_INVALID_VALUE;
        Launched launched{function, launch, {}};
        if (const CUresult result = arguments(*function, parameters, extra, launched.args)) return result;
        return d.streams.put(stream, {[launched] { return launched.run(); }, nullptr, nullptr});
    });
}

// ---- attributes of functions --------------------------------------------------------------------------------------

enum { MAX_THREADS = 0, STATIC_SHARED = 1, REGISTERS = 4, PTX_VERSION = 5, BINARY_VERSION = 6, DYNAMIC_LIMIT = 8 };
constexpr int MOST_DYNAMIC = 227 * 1024;

FAKE_DRIVER_API cuFuncGetAttribute(int* out, int attribute, CUfunction function) {
    return guarded([&](Driver& d) {
        LmKernelInfo info;
        function->module->info(function->name.c_str(), &info);
        *out = 0;
        if (attribute == MAX_THREADS) *out = static_cast<int>(function->threads);
        if (attribute == STATIC_SHARED) *out = static_cast<int>(info.static_shared);
        if (attribute == REGISTERS) *out = 32;
        if (attribute == PTX_VERSION || attribute == BINARY_VERSION) *out = d.settings.capability;
        if (attribute == DYNAMIC_LIMIT) *out = static_cast<int>(function->dynamic_limit);
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    return guarded([&](Driver&) {
        if (attribute != DYNAMIC_LIMIT) return CUDA_SUCCESS;
        if (value < 0 || value > MOST_DYNAMIC) return CUDA_ERROR_INVALID_VALUE;
        function->dynamic_limit = static_cast<std::size_t>(value);
        function->opted_in = true;
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuFuncSetCacheConfig(CUfunction, int) { return CUDA_SUCCESS; }
