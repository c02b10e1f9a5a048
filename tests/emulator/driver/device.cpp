// The device, its context and the driver's own state.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

#include "../host/machine.hpp"
#include "standin.hpp"

namespace standin {

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

}  // namespace

Settings::Settings()
    : order(choice<Order>("STANDIN_STREAMS", "eager",
                          {{"eager", Order::EAGER},
                           {"random", Order::RANDOM},
                           {"awaited-first", Order::AWAITED_FIRST},
                           {"awaited-last", Order::AWAITED_LAST}})),
      seed(std::strtoull(setting("STANDIN_SEED", "0").c_str(), nullptr, 10)),
      memory(std::strtoull(setting("STANDIN_MEMORY", "1073741824").c_str(), nullptr, 10)),
      capability(std::atoi(setting("STANDIN_CAPABILITY", "90").c_str())),
      threads(choice<std::uint32_t>("STANDIN_THREADS", "forward",
                                    {{"forward", LM_FORWARD}, {"reverse", LM_REVERSE}, {"shuffled", LM_SHUFFLED}})),
      copies(choice<std::uint32_t>("STANDIN_COPIES", "late",
                                   {{"early", LM_EARLY}, {"late", LM_LATE}, {"either", LM_EITHER}})) {}

Driver& driver() {
    static Driver* one = new Driver;  // never destroyed: objects of the interpreter outlive static destruction
    return *one;
}

std::vector<Context*>& context_stack() {
    thread_local std::vector<Context*> stack;
    return stack;
}

void complain(const std::string& what) { std::fprintf(stderr, "stand-in CUDA driver: %s\n", what.c_str()); }

}  // namespace standin

using namespace standin;

constexpr CUdevice DEVICE = 0;

// ---- driver and device -----------------------------------------------------------------------------------------------

STANDIN_API cuInit(unsigned) {
    driver().initialised = true;
    return CUDA_SUCCESS;
}

STANDIN_API cuDriverGetVersion(int* version) {
    *version = 13000;
    return CUDA_SUCCESS;
}

STANDIN_API cuDeviceGetCount(int* count) {
    *count = 1;
    return driver().initialised ? CUDA_SUCCESS : CUDA_ERROR_NOT_INITIALIZED;
}

STANDIN_API cuDeviceGet(CUdevice* device, int ordinal) {
    *device = DEVICE;
    return ordinal == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

STANDIN_API cuDeviceGetName(char* name, int bytes, CUdevice) {
    std::snprintf(name, static_cast<std::size_t>(bytes), "stand-in (kernels emulated on the host)");
    return CUDA_SUCCESS;
}

STANDIN_API cuDeviceTotalMem_v2(std::size_t* bytes, CUdevice) {
    *bytes = driver().settings.memory;
    return CUDA_SUCCESS;
}

STANDIN_API cuDeviceComputeCapability(int* major, int* minor, CUdevice) {
    *major = driver().settings.capability / 10;
    *minor = driver().settings.capability % 10;
    return CUDA_SUCCESS;
}

STANDIN_API cuDeviceGetPCIBusId(char* id, int bytes, CUdevice) {
    std::snprintf(id, static_cast<std::size_t>(bytes), "0000:00:00.0");
    return CUDA_SUCCESS;
}

// Numbers of an H100 where a program may reckon with them; 0 for all else.
STANDIN_API cuDeviceGetAttribute(int* value, int attribute, CUdevice) {
    switch (attribute) {
        case 1: *value = 1024; break;            // threads per block
        case 2: *value = 1024; break;            // block x
        case 3: *value = 1024; break;            // block y
        case 4: *value = 64; break;              // block z
        case 5: *value = 2147483647; break;      // grid x
        case 6: *value = 65535; break;           // grid y
        case 7: *value = 65535; break;           // grid z
        case 8: *value = 49152; break;           // shared memory per block
        case 9: *value = 65536; break;           // constant memory
        case 10: *value = 32; break;             // warp
        case 11: *value = 2147483647; break;     // pitch
        case 12: *value = 65536; break;          // registers per block
        case 13: *value = 1980000; break;        // clock, kHz
        case 14: *value = 512; break;            // texture alignment
        case 15: *value = 1; break;              // copies overlap kernels
        case 16: *value = 132; break;            // multiprocessors
        case 19: *value = 1; break;              // maps host memory
        case 31: *value = 1; break;              // concurrent kernels
        case 36: *value = 2619000; break;        // memory clock, kHz
        case 37: *value = 5120; break;           // memory bus, bits
        case 38: *value = 52428800; break;       // L2 cache
        case 39: *value = 2048; break;           // threads per multiprocessor
        case 40: *value = 3; break;              // copy engines
        case 41: *value = 1; break;              // unified addressing
        case 75: *value = driver().settings.capability / 10; break;
        case 76: *value = driver().settings.capability % 10; break;
        case 81: *value = 233472; break;         // shared memory per multiprocessor
        case 82: *value = 65536; break;          // registers per multiprocessor
        case 97: *value = 232448; break;         // shared memory per block, opt-in
        case 106: *value = 32; break;            // blocks per multiprocessor
        case 111: *value = 1024; break;          // shared memory reserved per block
        default: *value = 0;
    }
    return CUDA_SUCCESS;
}

// ---- contexts: the device's primary one only ---------------------------------------------------------------------------

STANDIN_API cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    if (!driver().initialised) return CUDA_ERROR_NOT_INITIALIZED;
    if (device != DEVICE) return CUDA_ERROR_INVALID_DEVICE;
    ++driver().primary.users;
    *context = &driver().primary;
    return CUDA_SUCCESS;
}

STANDIN_API cuDevicePrimaryCtxRelease_v2(CUdevice) {
    if (driver().primary.users == 0) return CUDA_ERROR_INVALID_CONTEXT;
    --driver().primary.users;
    return CUDA_SUCCESS;
}

STANDIN_API cuCtxPushCurrent_v2(CUcontext context) {
    if (context != &driver().primary) return CUDA_ERROR_INVALID_CONTEXT;
    context_stack().push_back(context);
    return CUDA_SUCCESS;
}

STANDIN_API cuCtxPopCurrent_v2(CUcontext* context) {
    auto& stack = context_stack();
    if (stack.empty()) return CUDA_ERROR_INVALID_CONTEXT;
    if (context != nullptr) *context = stack.back();
    stack.pop_back();
    return CUDA_SUCCESS;
}

// PyCUDA counts the users of a context by these two, which the toolkit deprecates
STANDIN_API cuCtxAttach(CUcontext* context, unsigned) {
    *context = &driver().primary;
    return context_stack().empty() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}
STANDIN_API cuCtxDetach(CUcontext) { return CUDA_SUCCESS; }

STANDIN_API cuCtxGetCurrent(CUcontext* context) {
    *context = context_stack().empty() ? nullptr : context_stack().back();
    return CUDA_SUCCESS;
}

STANDIN_API cuCtxSetCurrent(CUcontext context) {
    auto& stack = context_stack();
    if (!stack.empty()) stack.pop_back();
    if (context != nullptr) stack.push_back(context);
    return CUDA_SUCCESS;
}

STANDIN_API cuCtxGetDevice(CUdevice* device) {
    *device = DEVICE;
    return context_stack().empty() ? CUDA_ERROR_INVALID_CONTEXT : CUDA_SUCCESS;
}

STANDIN_API cuCtxGetApiVersion(CUcontext, unsigned* version) {
    *version = 13000;
    return CUDA_SUCCESS;
}

// ---- errors ----------------------------------------------------------------------------------------------------------

STANDIN_API cuGetErrorString(CUresult error, const char** out) {
    switch (error) {
        case CUDA_SUCCESS: *out = "no error"; break;
        case CUDA_ERROR_INVALID_VALUE: *out = "invalid argument"; break;
        case CUDA_ERROR_OUT_OF_MEMORY: *out = "out of memory"; break;
        case CUDA_ERROR_NOT_INITIALIZED: *out = "initialization error"; break;
        case CUDA_ERROR_INVALID_DEVICE: *out = "invalid device ordinal"; break;
        case CUDA_ERROR_INVALID_IMAGE: *out = "device kernel image is invalid"; break;
        case CUDA_ERROR_INVALID_CONTEXT: *out = "invalid device context"; break;
        case CUDA_ERROR_NO_BINARY_FOR_GPU: *out = "no kernel image is available for execution on the device"; break;
        case CUDA_ERROR_INVALID_HANDLE: *out = "invalid resource handle"; break;
        case CUDA_ERROR_NOT_FOUND: *out = "named symbol not found"; break;
        case CUDA_ERROR_NOT_READY: *out = "device not ready"; break;
        case CUDA_ERROR_LAUNCH_FAILED: *out = "unspecified launch failure"; break;
        case CUDA_ERROR_NOT_SUPPORTED: *out = "operation not supported"; break;
        case CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: *out = "operation not permitted when stream is capturing"; break;
        case CUDA_ERROR_STREAM_CAPTURE_MERGE: *out = "operation would merge separate capture sequences"; break;
        case CUDA_ERROR_STREAM_CAPTURE_UNMATCHED: *out = "capture was not ended in the stream where it began"; break;
        case CUDA_ERROR_STREAM_CAPTURE_UNJOINED: *out = "capturing stream has unjoined work"; break;
        case CUDA_ERROR_STREAM_CAPTURE_ISOLATION: *out = "dependency on uncaptured work in another stream"; break;
        case CUDA_ERROR_CAPTURED_EVENT: *out = "operation not permitted on a captured event"; break;
        default: *out = "error of the stand-in driver";
    }
    return CUDA_SUCCESS;
}
