// The device, its context and the driver's own state.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "../host/machine.hpp"
#include "architectures.hpp"
#include "fake_driver.hpp"

namespace fake_driver {

namespace {

std::string setting(const char* name, const char* otherwise) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : otherwise;
}

template <class T>
T choice(const char* name, const char* otherwise, std::initializer_list<std::pair<const char*, T>> words) {
    const std::string value = setting(name, otherwise);
    for (const auto& [word, meaning] : words)
        if (value == word) return meaning;
    complain(std::string(name) + " is '" + value + "', which is none of its words");
    std::exit(2);
}

OfKernels of_kernels(const char* name) {
    const std::string value = setting(name, "");
    if (value.empty()) return {"", 0};
    const std::size_t at = value.rfind('=');
    return {value.substr(0, at), static_cast<unsigned>(std::stoul(value.substr(at + 1)))};
}

}  // namespace

Settings::Settings()
    : order(choice<Order>("FAKE_DRIVER_STREAMS", "eager",
                          {{"eager", Order::EAGER},
                           {"random", Order::RANDOM},
                           {"awaited-first", Order::AWAITED_FIRST},
                           {"awaited-last", Order::AWAITED_LAST}})),
      seed(std::strtoull(setting("FAKE_DRIVER_SEED", "0").c_str(), nullptr, 10)),
      memory(std::strtoull(setting("FAKE_DRIVER_MEMORY", "1073741824").c_str(), nullptr, 10)),
      taken(std::strtoull(setting("FAKE_DRIVER_TAKEN", "0").c_str(), nullptr, 10)),
      pinned(std::strtoull(setting("FAKE_DRIVER_PINNED", "1099511627776").c_str(), nullptr, 10)),
      devices(std::atoi(setting("FAKE_DRIVER_DEVICES", "1").c_str())),
      capability(std::atoi(setting("FAKE_DRIVER_CAPABILITY", "90").c_str())),
      multiprocessors(std::atoi(setting("FAKE_DRIVER_MULTIPROCESSORS", "132").c_str())),
      clock(std::atoi(setting("FAKE_DRIVER_CLOCK", "1980000").c_str())),
      version(std::atoi(setting("FAKE_DRIVER_VERSION", "13000").c_str())),
      exclusive(choice<bool>("FAKE_DRIVER_EXCLUSIVE", "no", {{"no", false}, {"yes", true}})),
      threads(choice<std::uint32_t>("FAKE_DRIVER_THREADS", "forward",
                                    {{"forward", LM_FORWARD}, {"reverse", LM_REVERSE}, {"shuffled", LM_SHUFFLED}})),
      copies(choice<std::uint32_t>("FAKE_DRIVER_COPIES", "late",
                                   {{"early", LM_EARLY}, {"late", LM_LATE}, {"either", LM_EITHER}})),
      counts_static(choice<bool>("FAKE_DRIVER_SHARED", "all", {{"all", true}, {"dynamic", false}})),
      hang(setting("FAKE_DRIVER_HANG", "")),
      fault(setting("FAKE_DRIVER_FAULT", "")),
      flip(setting("FAKE_DRIVER_FLIP", "")),
      name(setting("FAKE_DRIVER_NAME", "fake driver (kernels emulated on the host)")),
      registers(of_kernels("FAKE_DRIVER_REGISTERS")),
      static_shared(of_kernels("FAKE_DRIVER_STATIC")) {}

const Architecture& architecture() {
    const Architecture* found = ARCHITECTURES;
    for (const Architecture& each : ARCHITECTURES)
        if (each.capability <= driver().settings.capability) found = &each;
    return *found;
}

Driver& driver() {
    static Driver* one = [] {  // never destroyed: objects of the interpreter outlive static destruction
        auto* made = new Driver;
        for (int i = 0; i < made->settings.devices; ++i) made->primary.push_back(Context{i});
        return made;
    }();
    return *one;
}

Context* current_context() { return context_stack().empty() ? nullptr : context_stack().back(); }

std::vector<Context*>& context_stack() {
    thread_local std::vector<Context*> stack;
    return stack;
}

bool is_usable() { return driver().process == getpid(); }

void complain(const std::string& what) { std::fprintf(stderr, "fake CUDA driver: %s\n", what.c_str()); }

}  // namespace fake_driver

using namespace fake_driver;

static bool is_device(CUdevice device) { return device >= 0 && device < driver().settings.devices; }

// ---- driver and device --------------------------------------------------------------------------------------------

FAKE_DRIVER_API cuInit(unsigned) {
    if (driver().process == 0) driver().process = getpid();
    return is_usable() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

FAKE_DRIVER_API cuDriverGetVersion(int* version) {
    *version = driver().settings.version;
    return CUDA_SUCCESS;
}

// NVIDIA's own libraries, NVRTC among them, look for tables of functions that are not public.
FAKE_DRIVER_API cuGetExportTable(const void** table, const void*) {
    *table = nullptr;
    return CUDA_ERROR_NOT_FOUND;
}

FAKE_DRIVER_API cuDeviceGetCount(int* count) {
    *count = driver().settings.devices;
    return is_usable() ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

FAKE_DRIVER_API cuDeviceGet(CUdevice* device, int ordinal) {
    *device = ordinal;
    return is_device(ordinal) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

FAKE_DRIVER_API cuDeviceGetName(char* name, int bytes, CUdevice) {
    std::snprintf(name, static_cast<std::size_t>(bytes), "%s", driver().settings.name.c_str());
    return CUDA_SUCCESS;
}

FAKE_DRIVER_API cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) {
    *bytes = driver().settings.memory;
    return CUDA_SUCCESS;
}

FAKE_DRIVER_API cuDeviceComputeCapability(int* major, int* minor, CUdevice) {
    *major = driver().settings.capability / 10;
    *minor = driver().settings.capability % 10;
    return CUDA_SUCCESS;
}

FAKE_DRIVER_API cuDeviceGetPCIBusId(char* id, int bytes, CUdevice device) {
    std::snprintf(id, static_cast<std::size_t>(bytes), "0000:%02d:00.0", device);
    return CUDA_SUCCESS;
}

// Numbers of an H100 where a program may reckon with them and the architecture does not say them; 0 for all else.
constexpr struct {
    int attribute, value;
} ATTRIBUTES[] = {
    {1, MAX_THREADS},                                            // threads per block
    {2, MAX_THREADS},                                            // block x, y, z
    {3, MAX_THREADS}, {4, MAX_BLOCK_Z}, {5, MAX_GRID_X},         // grid x, y, z
    {6, MAX_GRID_YZ}, {7, MAX_GRID_YZ}, {8, SHARED_BY_DEFAULT},  // shared memory per block
    {9, 65536},                                                  // constant memory
    {10, 32},                                                    // warp
    {11, 2147483647},                                            // pitch
    {12, REGISTERS},                                             // registers per block
    {14, 512},                                                   // texture alignment
    {15, 1},                                                     // copies overlap kernels
    {19, 1},                                                     // maps host memory
    {31, 1},                                                     // concurrent kernels
    {36, 2619000},                                               // memory clock, kHz
    {37, 5120},                                                  // memory bus, bits
    {38, 52428800},                                              // L2 cache
    {40, 3},                                                     // copy engines
    {41, 1},                                                     // unified addressing
    {82, REGISTERS},                                             // registers per multiprocessor
};
constexpr int CLOCK = 13, MULTIPROCESSORS = 16, THREADS = 39, MAJOR = 75, MINOR = 76, SHARED = 81, SHARED_OF_BLOCK = 97;
constexpr int BLOCKS = 106, RESERVED = 111;

static int attribute_of(const Architecture& gpu, int attribute) {
    switch (attribute) {
        case THREADS: return static_cast<int>(gpu.threads);
        case MAJOR: return driver().settings.capability / 10;
        case MINOR: return driver().settings.capability % 10;
        case CLOCK: return driver().settings.clock;
        case MULTIPROCESSORS: return driver().settings.multiprocessors;
        case SHARED: return static_cast<int>(gpu.shared);
        case SHARED_OF_BLOCK: return static_cast<int>(gpu.shared_of_block);
        case BLOCKS: return static_cast<int>(gpu.blocks);
        case RESERVED: return static_cast<int>(gpu.shared_reserved);
        default: break;
    }
    for (const auto& known : ATTRIBUTES)
        if (known.attribute == attribute) return known.value;
    return 0;
}

FAKE_DRIVER_API cuDeviceGetAttribute(int* value, int attribute, CUdevice device) {
    *value = attribute_of(architecture(), attribute);
    return is_device(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

// ---- contexts: the primary ones of the devices --------------------------------------------------------------------

FAKE_DRIVER_API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    if (!is_usable()) return CUDA_ERROR_NOT_INITIALIZED;
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    if (driver().settings.exclusive) return CUDA_ERROR_DEVICE_UNAVAILABLE;
    *context = &driver().primary[static_cast<std::size_t>(device)];
    ++(*context)->users;
    return CUDA_SUCCESS;
}

FAKE_DRIVER_API cuDevicePrimaryCtxRelease_v2(CUdevice device) {
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    Context& context = driver().primary[static_cast<std::size_t>(device)];
    if (context.users == 0) return CUDA_ERROR_INVALID_CONTEXT;
    --context.users;
    return CUDA_SUCCESS;
}

static bool is_context(CUcontext context) {
    for (const Context& each : driver().primary)
        if (&each == context) return true;
    return false;
}

FAKE_DRIVER_API cuCtxPushCurrent_v2(CUcontext context) {
    if (!is_context(context)) return CUDA_ERROR_INVALID_CONTEXT;
    context_stack().push_back(context);
    return CUDA_SUCCESS;
}

FAKE_DRIVER_API cuCtxPopCurrent_v2(CUcontext* context) {
    auto& stack = context_stack();
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context != nullptr) *context = stack.back();
    stack.pop_back();
    return CUDA_SUCCESS;
}

// PyCUDA counts the users of a context by these two, which the toolkit deprecates
FAKE_DRIVER_API cuCtxAttach(CUcontext* context, unsigned) {
    *context = current_context();
    return *context == nullptr ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
FAKE_DRIVER_API cuCtxDetach(CUcontext) { return CUDA_SUCCESS; }

FAKE_DRIVER_API cuCtxGetCurrent(CUcontext* context) {
    *context = current_context();
    return CUDA_SUCCESS;
}

FAKE_DRIVER_API cuCtxSetCurrent(CUcontext context) {
    auto& stack = context_stack();
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(context);
    return CUDA_SUCCESS;
}

FAKE_DRIVER_API cuCtxGetDevice(CUdevice* device) {
    if (current_context() == nullptr) return CUDA_ERROR_INVALID_CONTEXT;
    *device = current_context()->device;
    return CUDA_SUCCESS;
}

FAKE_DRIVER_API cuCtxGetApiVersion(CUcontext, unsigned* version) {
    *version = static_cast<unsigned>(driver().settings.version);
    return CUDA_SUCCESS;
}

// ---- errors -------------------------------------------------------------------------------------------------------

constexpr struct {
    CUresult error;
    const char* text;
} ERRORS[] = {
    {CUDA_SUCCESS, "no error"},
    {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "initialization error"},
    {CUDA_ERROR_DEVICE_UNAVAILABLE, "CUDA-capable device(s) is/are busy or unavailable"},
    {CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
    {CUDA_ERROR_INVALID_IMAGE, "device kernel image is invalid"},
    {CUDA_ERROR_INVALID_CONTEXT, "invalid device context"},
    {CUDA_ERROR_NO_BINARY_FOR_GPU, "no kernel image is available for execution on the device"},
    {CUDA_ERROR_UNSUPPORTED_PTX_VERSION, "the provided PTX was compiled with an unsupported toolchain."},
    {CUDA_ERROR_FILE_NOT_FOUND, "file not found"},
    {CUDA_ERROR_INVALID_HANDLE, "invalid resource handle"},
    {CUDA_ERROR_NOT_FOUND, "named symbol not found"},
    {CUDA_ERROR_NOT_READY, "device not ready"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES, "too many resources requested for launch"},
    {CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"},
    {CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"},
    {CUDA_ERROR_NOT_SUPPORTED, "operation not supported"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_MERGE, "operation would merge separate capture sequences"},
    {CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, "capture was not ended in the stream where it began"},
    {CUDA_ERROR_STREAM_CAPTURE_UNJOINED, "capturing stream has unjoined work"},
    {CUDA_ERROR_STREAM_CAPTURE_ISOLATION, "dependency on uncaptured work in another stream"},
    {CUDA_ERROR_CAPTURED_EVENT, "operation not permitted on a captured event"},
};

FAKE_DRIVER_API cuGetErrorString(CUresult error, const char** out) {
    *out = "error of the fake driver";
    for (const auto& known : ERRORS)
        if (known.error == error) *out = known.text;
    return CUDA_SUCCESS;
}
