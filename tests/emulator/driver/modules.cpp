// Modules and launches: an image is a kernel library that tests/emulator/build.py made for this machine.
#include <dlfcn.h>
#include <fnmatch.h>
#include <link.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <csetjmp>
#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "../host/machine.hpp"
#include "architectures.hpp"
#include "fake_driver.hpp"

namespace fake_driver {

struct Module {
    Context* context;
    std::string name;  // pooling, of cuda/pooling.cu
    int file;          // stays open: the loader takes two libraries of one path, /proc/self/fd/N, for one
    void* library;
    std::size_t bytes;  // of the image
    decltype(&lm_emu_launch) launch;
    decltype(&lm_emu_message) message;
    decltype(&lm_emu_kernel_info) info;
    std::map<std::string, std::unique_ptr<Function>> functions;
    std::set<const void*> variables;  // those that were looked up
};

struct Function {
    Module* module;
    std::string name;
    LmKernelInfo declared;
    int opted_in = -1;    // MAX_DYNAMIC_SHARED_SIZE_BYTES, if it was set
    bool loaded = false;  // by a first launch
    int carveout = -1;    // PREFERRED_SHARED_MEMORY_CARVEOUT: percent, -1 for the driver's choice

    // Whether a pattern, such as "*_sm90a.*" or "@(pooling.*|softmax.*)", names the kernel as "module.function".
    bool matches(const std::string& pattern) const {
        return !pattern.empty() && fnmatch(pattern.c_str(), (module->name + "." + name).c_str(), FNM_EXTMATCH) == 0;
    }

    // As many as its launch bounds leave a thread: tests/backends/cuda/test_compiled.py holds the compiler to them.
    unsigned registers() const {
        const OfKernels& set = driver().settings.registers;
        if (matches(set.pattern)) return set.number;
        return std::min(MAX_REGISTERS, REGISTERS / (declared.threads * declared.blocks) / 8 * 8);
    }

    // A kernel shows its static arrays as launches reach them.
    std::size_t static_shared() const {
        const OfKernels& set = driver().settings.static_shared;
        if (matches(set.pattern)) return set.number;
        LmKernelInfo info;
        module->info(name.c_str(), &info);
        return info.static_shared;
    }

    std::size_t dynamic_limit() const {
        if (opted_in >= 0) return static_cast<std::size_t>(opted_in);
        if (!driver().settings.counts_static) return SHARED_BY_DEFAULT;
        return static_shared() < SHARED_BY_DEFAULT ? SHARED_BY_DEFAULT - static_shared() : 0;
    }

    // Registers are dealt out to warps in pieces of 256, and to a block for a multiple of four warps.
    unsigned registers_of(std::uint64_t block) const {
        const std::uint64_t warps = (block + 31) / 32, each = (32 * registers() + 255) / 256 * 256;
        return static_cast<unsigned>((warps + 3) / 4 * 4 * each);
    }
};

namespace {

std::set<Module*> modules;
std::set<const Function*> functions;

// The module of a source file: pooling for .../pooling.cu
std::string stem(const std::string& path) {
    const std::size_t begin = path.find_last_of('/') + 1;
    return path.substr(begin, path.find_last_of('.') - begin);
}

// ---- accesses that a GPU would not survive --------------------------------------------------------------------------

thread_local sigjmp_buf before_launch;
thread_local bool launching = false;
thread_local CUresult fault = CUDA_SUCCESS;
thread_local const void* fault_address = nullptr;

// A page that is not there is an illegal address; what the processor refuses without naming one is a vector at an odd
// place.  The kernel's fibers are left as they are: after this nothing runs on the device.
void on_fault(int number, siginfo_t* info, void*) {
    if (!launching) {
        std::signal(number, SIG_DFL);
        return;
    }
    fault = info->si_code == SI_KERNEL ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_ERROR_ILLEGAL_ADDRESS;
    fault_address = info->si_addr;
    siglongjmp(before_launch, 1);
}

// What a kernel touches outside all memory is caught while this exists.
class FaultGuard {
  public:
    FaultGuard() {
        const stack_t own{stack_.data(), 0, stack_.size()};
        sigaltstack(&own, &stack_before_);
        struct sigaction action = {};
        action.sa_sigaction = on_fault;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigaction(SIGSEGV, &action, &before_);
        launching = true;
    }
    ~FaultGuard() {
        launching = false;
        sigaction(SIGSEGV, &before_, nullptr);
        sigaltstack(&stack_before_, nullptr);
    }
    FaultGuard(const FaultGuard&) = delete;
    FaultGuard& operator=(const FaultGuard&) = delete;

  private:
    std::vector<char> stack_ = std::vector<char>(1 << 16);
    stack_t stack_before_{};
    struct sigaction before_{};
};

template <class F>
bool bind(void* library, const char* name, F& function) {
    function = reinterpret_cast<F>(dlsym(library, name));
    return function != nullptr;
}

// Whether a library names a toolkit (13000 for CUDA 13.0) whose machine code drivers of this major version do not take.
bool is_of_newer_toolkit(void* library) {
    const auto* toolkit = static_cast<const int*>(dlsym(library, "lm_emu_toolkit"));
    return toolkit != nullptr && *toolkit / 1000 > driver().settings.version / 1000;
}

CUresult load_library(const void* image, std::size_t bytes, CUmodule* out) {
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
    module->context = current_context();
    module->file = file;
    module->library = library;
    module->bytes = bytes;
    const bool newer = is_of_newer_toolkit(library);
    if (newer || !bind(library, "lm_emu_launch", module->launch) || !bind(library, "lm_emu_message", module->message) ||
        !bind(library, "lm_emu_kernel_info", module->info)) {
        dlclose(library);
        close(file);
        return newer ? CUDA_ERROR_NO_BINARY_FOR_GPU : CUDA_ERROR_INVALID_IMAGE;
    }
    decltype(&lm_emu_source) source = nullptr;
    if (bind(library, "lm_emu_source", source)) module->name = stem(source());
    *out = module.release();
    modules.insert(*out);
    return CUDA_SUCCESS;
}

// The image's bytes are the device's, whether its kernels run or not.
CUresult load(const void* image, CUmodule* out) {
    if (is_newer_ptx(image)) return CUDA_ERROR_UNSUPPORTED_PTX_VERSION;
    const std::size_t bytes = library_bytes(image);
    if (bytes == 0) {
        complain("the image is not a kernel library for this host (made by tests/emulator/build.py)");
        return CUDA_ERROR_NO_BINARY_FOR_GPU;
    }
    if (!current_context()->take(bytes)) return CUDA_ERROR_OUT_OF_MEMORY;
    const CUresult result = load_library(image, bytes, out);
    if (result != CUDA_SUCCESS) current_context()->used -= bytes;
    return result;
}

// The packed argument struct: a buffer given in `extra`, or the one parameter of `parameters`.
CUresult arguments(const Function& function, void** parameters, void** extra, std::vector<char>& out) {
    const void* start = nullptr;
    std::size_t bytes = 0;
    if (parameters != nullptr && extra != nullptr) return CUDA_ERROR_INVALID_VALUE;
    if (extra != nullptr) {
        for (; *extra != nullptr; extra += 2) {
            if (*extra == reinterpret_cast<void*>(1)) start = extra[1];
            if (*extra == reinterpret_cast<void*>(2)) bytes = *static_cast<std::size_t*>(extra[1]);
        }
    } else if (parameters != nullptr) {
        start = parameters[0];
        bytes = function.declared.bytes;
    }
    if (start == nullptr || bytes != function.declared.bytes || bytes > MAX_ARGUMENT_BYTES) {
        complain(function.name + ": the launch brings " + std::to_string(bytes) +
                 " bytes of arguments, the kernel takes " + std::to_string(function.declared.bytes));
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
        const Settings& settings = driver().settings;
        if (function->matches(settings.hang))
            for (;;) pause();  // as a barrier that never comes
        if (function->matches(settings.fault)) {
            complain(function->name + ": FAKE_DRIVER_FAULT");
            return CUDA_ERROR_MISALIGNED_ADDRESS;
        }
        if (!function->matches(settings.flip)) return run_guarded();
        const auto before = driver().memory.device_bytes();
        const CUresult result = run_guarded();
        driver().memory.flip_a_changed_bit(before);
        return result;
    }

    CUresult run_guarded() const {
        const FaultGuard guard;
        if (sigsetjmp(before_launch, 1) != 0) {
            char address[32];
            std::snprintf(address, sizeof address, "%p", fault_address);
            complain(function->name + (fault == CUDA_ERROR_ILLEGAL_ADDRESS
                                           ? std::string(": an access to ") + address + ", where no memory is"
                                           : ": an access to a vector that is not aligned"));
            return fault;
        }
        return run_unguarded();
    }

    // The kernels of a module such as convolution_tf32_sm90a refuse to run on every other architecture.
    bool refuses() const {
        const std::string& name = function->module->name;
        const std::size_t at = name.rfind("_sm");
        return at != std::string::npos && name.back() == 'a' &&
               name.substr(at + 3, name.size() - at - 4) != std::to_string(architecture().capability);
    }

    CUresult run_unguarded() const {
        if (refuses()) {
            complain(function->name + ": its instructions are those of another architecture");
            return CUDA_ERROR_ILLEGAL_ADDRESS;
        }
        LmLaunch now = launch;
        now.seed = driver().random();
        if (function->module->launch(function->name.c_str(), &now, args.data(), args.size()) != 0) {
            const std::string message = function->module->message();
            complain(function->name + ": " + message);
            return message.rfind("misaligned", 0) == 0 ? CUDA_ERROR_MISALIGNED_ADDRESS : CUDA_ERROR_LAUNCH_FAILED;
        }
        if (launch.shared <= function->dynamic_limit() &&
            launch.shared + function->static_shared() <= architecture().shared_of_block)
            return CUDA_SUCCESS;
        // A static array that this launch was the first to reach; a GPU refuses the launch before it starts.
        complain(function->name + ": " + std::to_string(launch.shared) + " bytes of dynamic and " +
                 std::to_string(function->static_shared()) + " of static shared memory are more than it may use");
        return CUDA_ERROR_INVALID_VALUE;
    }
};

namespace {

struct LaunchParams {
    CUfunction function;
    unsigned grid[3], block[3], shared;
    void **parameters, **extra;
};

CUresult refused(const Function& function, const std::string& why, CUresult result = CUDA_ERROR_INVALID_VALUE) {
    complain(function.name + ": " + why);
    return result;
}

CUresult check(const Function& function, const LaunchParams& p) {
    const std::uint64_t threads = std::uint64_t{p.block[0]} * p.block[1] * p.block[2];
    if (function.module->context != current_context()) return CUDA_ERROR_INVALID_CONTEXT;
    if (threads == 0 || p.block[0] > MAX_THREADS || p.block[1] > MAX_THREADS || p.block[2] > MAX_BLOCK_Z ||
        threads > MAX_THREADS || threads > function.declared.threads)
        return refused(function, std::to_string(threads) + " threads a block; it takes " +
                                     std::to_string(function.declared.threads));
    if (p.grid[0] == 0 || p.grid[1] == 0 || p.grid[2] == 0 || p.grid[0] > MAX_GRID_X || p.grid[1] > MAX_GRID_YZ ||
        p.grid[2] > MAX_GRID_YZ)
        return refused(function, "the grid is empty or too large");
    if (p.shared > function.dynamic_limit())
        return refused(function, std::to_string(p.shared) + " bytes of dynamic shared memory; it may use " +
                                     std::to_string(function.dynamic_limit()) + " beside " +
                                     std::to_string(function.static_shared()) + " static ones");
    if (p.shared + function.static_shared() > architecture().shared_of_block)
        return refused(function, "more shared memory than a block of this GPU has");
    if (function.registers_of(threads) > REGISTERS)
        return refused(function,
                       std::to_string(threads) + " threads of " + std::to_string(function.registers()) +
                           " registers each are more than a multiprocessor has",
                       CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
    return CUDA_SUCCESS;
}

// The operation of a launch, or an error; its arguments are copied.
CUresult launch_of(const LaunchParams& p, Operation& out) {
    if (functions.count(p.function) == 0) return CUDA_ERROR_INVALID_HANDLE;
    Function& function = *p.function;
    LmLaunch launch{{p.grid[0], p.grid[1], p.grid[2]}, {p.block[0], p.block[1], p.block[2]}, p.shared, 0, 0, 0, 0, 0};
    launch.order = driver().settings.threads;
    launch.copies = driver().settings.copies;
    if (const CUresult result = check(function, p)) return result;
    auto launched = std::make_shared<Launched>(Launched{&function, launch, {}});
    if (const CUresult result = arguments(function, p.parameters, p.extra, launched->args)) return result;
    out = {[launched] { return launched->run(); }, nullptr, nullptr};
    return CUDA_SUCCESS;
}

// A kernel is loaded at its first launch, which waits for the device: not while its stream is captured.
// source  CUDA C++ Programming Guide, "Lazy Loading", "Impact on Concurrent Kernel Execution"
CUresult load_kernel(Function& function, Stream* stream) {
    Streams& streams = driver().streams;
    if (function.loaded || !streams.usable(stream)) return CUDA_SUCCESS;
    Stream& s = *streams.or_default(stream);
    if (s.capture != nullptr) {
        complain(function.name + ": its first launch is one of a capture");
        return break_capture(s);
    }
    function.loaded = true;
    return CUDA_SUCCESS;
}

}  // namespace

}  // namespace fake_driver

using namespace fake_driver;

FAKE_DRIVER_API cuModuleLoadData(CUmodule* out, const void* image) {
    return guarded([&](Driver& d) {
        return d.streams.breaks_captures() ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : load(image, out);
    });
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
        if (d.streams.breaks_captures()) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        if (const CUresult result = d.streams.finish_all()) return result;  // launches may still need its code
        module->context->used -= module->bytes;
        modules.erase(module);
        for (const auto& [_, function] : module->functions) functions.erase(function.get());
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
            function.reset(new Function{module, name, info});
            functions.insert(function.get());
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
        Operation operation;
        const LaunchParams params{function, {grid_x, grid_y, grid_z}, {block_x, block_y, block_z}, shared, parameters,
                                  extra};
        if (const CUresult result = launch_of(params, operation)) return result;
        if (const CUresult result = load_kernel(*function, stream)) return result;
        return d.streams.put(stream, std::move(operation));
    });
}

// ---- attributes of functions --------------------------------------------------------------------------------------

enum {
    THREADS_OF_BLOCK = 0,
    STATIC_SHARED = 1,
    REGISTERS_OF_THREAD = 4,
    PTX_VERSION = 5,
    BINARY_VERSION = 6,
    DYNAMIC_LIMIT = 8,
    CARVEOUT = 9
};

FAKE_DRIVER_API cuFuncGetAttribute(int* out, int attribute, CUfunction function) {
    return guarded([&](Driver& d) {
        if (functions.count(function) == 0) return CUDA_ERROR_INVALID_HANDLE;
        *out = 0;
        if (attribute == THREADS_OF_BLOCK) *out = static_cast<int>(function->declared.threads);
        if (attribute == STATIC_SHARED) *out = static_cast<int>(function->static_shared());
        if (attribute == REGISTERS_OF_THREAD) *out = static_cast<int>(function->registers());
        if (attribute == PTX_VERSION || attribute == BINARY_VERSION) *out = d.settings.capability;
        if (attribute == DYNAMIC_LIMIT) *out = static_cast<int>(function->dynamic_limit());
        if (attribute == CARVEOUT) *out = function->carveout;
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuFuncSetAttribute(CUfunction function, int attribute, int value) {
    return guarded([&](Driver&) {
        if (functions.count(function) == 0) return CUDA_ERROR_INVALID_HANDLE;
        if (attribute == CARVEOUT) {
            if (value < -1 || value > 100) return CUDA_ERROR_INVALID_VALUE;
            function->carveout = value;
            return CUDA_SUCCESS;
        }
        if (attribute != DYNAMIC_LIMIT || value < 0) return CUDA_ERROR_INVALID_VALUE;
        if (static_cast<std::size_t>(value) + function->static_shared() > architecture().shared_of_block)
            return refused(*function, std::to_string(value) + " bytes of dynamic and " +
                                          std::to_string(function->static_shared()) +
                                          " of static shared memory are more than a block of this GPU has");
        function->opted_in = value;
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuFuncSetCacheConfig(CUfunction, int) { return CUDA_SUCCESS; }

// source  CUDA C++ Best Practices Guide, "Occupancy", with the granularities of the occupancy calculator
FAKE_DRIVER_API cuOccupancyMaxActiveBlocksPerMultiprocessor(int* out, CUfunction function, int threads,
                                                            std::size_t shared) {
    return guarded([&](Driver&) {
        if (functions.count(function) == 0) return CUDA_ERROR_INVALID_HANDLE;
        if (threads <= 0) return CUDA_ERROR_INVALID_VALUE;
        const Architecture& gpu = architecture();
        const auto warps = (static_cast<unsigned>(threads) + 31) / 32;
        const std::size_t bytes = (function->static_shared() + shared + gpu.shared_reserved + 127) / 128 * 128;
        unsigned blocks = std::min({gpu.blocks, gpu.threads / (32 * warps),
                                    REGISTERS / function->registers_of(static_cast<unsigned>(threads))});
        if (bytes > 0) blocks = std::min(blocks, static_cast<unsigned>(gpu.shared / bytes));
        if (static_cast<unsigned>(threads) > function->declared.threads || shared > function->dynamic_limit())
            blocks = 0;
        *out = static_cast<int>(blocks);
        return CUDA_SUCCESS;
    });
}
