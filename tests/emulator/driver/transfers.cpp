// Copies and fills.  Every range is checked against the allocations before anything is queued.
#include <cstring>
#include <memory>
#include <vector>

#include "fake_driver.hpp"

using namespace fake_driver;

namespace {

void* pointer(CUdeviceptr address) { return reinterpret_cast<void*>(address); }

bool outside(Driver& d, CUdeviceptr at, std::size_t bytes) {
    return !d.memory.holds(pointer(at), bytes, Block::DEVICE);
}

// Host memory may be pinned, then all of the range must be; or pageable, then none of it is ours, and none was.
enum class Host { PINNED, PAGEABLE, WRONG };
Host host_kind(Driver& d, const void* at, std::size_t bytes) {
    if (d.memory.freed(at) || d.memory.find(at, Block::DEVICE) != nullptr) return Host::WRONG;
    if (d.memory.find(at, Block::PINNED) == nullptr) return Host::PAGEABLE;
    return d.memory.holds(at, bytes, Block::PINNED) ? Host::PINNED : Host::WRONG;
}

Operation move(void* to, const void* from, std::size_t bytes) {
    return {[=] {
                std::memcpy(to, from, bytes);
                return CUDA_SUCCESS;
            },
            nullptr, nullptr};
}

// Pageable memory is staged by the driver at the call, which a graph cannot do.
CUresult refuse_capture(Driver& d, Stream* stream, Host kind) {
    if (kind != Host::PAGEABLE || !d.streams.usable(stream)) return CUDA_SUCCESS;
    Stream& s = *d.streams.or_default(stream);
    return s.capture != nullptr ? break_capture(s) : CUDA_SUCCESS;
}

CUresult to_device(CUdeviceptr to, const void* from, std::size_t bytes, Stream* stream) {
    return guarded([&](Driver& d) {
        if (bytes == 0) return CUDA_SUCCESS;
        const Host kind = host_kind(d, from, bytes);
        if (outside(d, to, bytes) || kind == Host::WRONG) return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult result = refuse_capture(d, stream, kind)) return result;
        if (kind == Host::PINNED) return d.streams.put(stream, move(pointer(to), from, bytes));
        const auto* start = static_cast<const std::byte*>(from);  // a GPU stages pageable bytes at the call
        auto staged = std::make_shared<std::vector<std::byte>>(start, start + bytes);
        return d.streams.put(stream, {[=] {
                                          std::memcpy(pointer(to), staged->data(), bytes);
                                          return CUDA_SUCCESS;
                                      },
                                      nullptr, nullptr});
    });
}

CUresult to_host(void* to, CUdeviceptr from, std::size_t bytes, Stream* stream) {
    return guarded([&](Driver& d) {
        if (bytes == 0) return CUDA_SUCCESS;
        const Host kind = host_kind(d, to, bytes);
        if (outside(d, from, bytes) || kind == Host::WRONG) return CUDA_ERROR_INVALID_VALUE;
        if (const CUresult result = refuse_capture(d, stream, kind)) return result;
        const CUresult result = d.streams.put(stream, move(to, pointer(from), bytes));
        if (result != CUDA_SUCCESS || kind == Host::PINNED) return result;
        return d.streams.finish(d.streams.or_default(stream));  // pageable: the call returns when the bytes are there
    });
}

// Of a copy on the default stream; one to pageable memory has been awaited.
CUresult finish_if_pinned(const void* host) {
    return guarded([&](Driver& d) {
        const bool pinned = d.memory.find(host, Block::PINNED) != nullptr;
        return pinned ? d.streams.finish(d.streams.or_default(nullptr)) : CUDA_SUCCESS;
    });
}

CUresult on_device(CUdeviceptr to, CUdeviceptr from, std::size_t bytes, Stream* stream) {
    return guarded([&](Driver& d) {
        if (bytes == 0) return CUDA_SUCCESS;
        if (outside(d, to, bytes) || outside(d, from, bytes)) return CUDA_ERROR_INVALID_VALUE;
        return d.streams.put(stream, move(pointer(to), pointer(from), bytes));
    });
}

template <class T>
CUresult fill(CUdeviceptr to, T value, std::size_t count, Stream* stream) {
    return guarded([&](Driver& d) {
        if (count == 0) return CUDA_SUCCESS;
        if (to % sizeof(T) != 0 || outside(d, to, count * sizeof(T))) return CUDA_ERROR_INVALID_VALUE;
        return d.streams.put(stream, {[=] {
                                          auto* start = static_cast<T*>(pointer(to));
                                          for (std::size_t i = 0; i < count; ++i) start[i] = value;
                                          return CUDA_SUCCESS;
                                      },
                                      nullptr, nullptr});
    });
}

}  // namespace

// Without a stream: on the default stream.  Copies of pinned memory, and those to the host, are done on return; what comes
// from pageable memory is staged by then, and goes on its way as fills do and copies on the device.
// source  CUDA Driver API, "API synchronization behavior"
FAKE_DRIVER_API cuMemcpyHtoD_v2(CUdeviceptr to, const void* from, std::size_t n) {
    const CUresult result = to_device(to, from, n, nullptr);
    return result == CUDA_SUCCESS ? finish_if_pinned(from) : result;
}
FAKE_DRIVER_API cuMemcpyDtoH_v2(void* to, CUdeviceptr from, std::size_t n) {
    const CUresult result = to_host(to, from, n, nullptr);
    return result == CUDA_SUCCESS ? finish_if_pinned(to) : result;
}
FAKE_DRIVER_API cuMemcpyDtoD_v2(CUdeviceptr to, CUdeviceptr from, std::size_t n) {
    return on_device(to, from, n, nullptr);
}

FAKE_DRIVER_API cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void* from, std::size_t n, CUstream stream) {
    return to_device(to, from, n, stream);
}
FAKE_DRIVER_API cuMemcpyDtoHAsync_v2(void* to, CUdeviceptr from, std::size_t n, CUstream stream) {
    return to_host(to, from, n, stream);
}
FAKE_DRIVER_API cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, std::size_t n, CUstream stream) {
    return on_device(to, from, n, stream);
}

FAKE_DRIVER_API cuMemsetD8_v2(CUdeviceptr to, unsigned char value, std::size_t n) {
    return fill(to, value, n, nullptr);
}
FAKE_DRIVER_API cuMemsetD16_v2(CUdeviceptr to, unsigned short value, std::size_t n) {
    return fill(to, value, n, nullptr);
}
FAKE_DRIVER_API cuMemsetD32_v2(CUdeviceptr to, unsigned value, std::size_t n) { return fill(to, value, n, nullptr); }
FAKE_DRIVER_API cuMemsetD8Async(CUdeviceptr to, unsigned char value, std::size_t n, CUstream s) {
    return fill(to, value, n, s);
}
FAKE_DRIVER_API cuMemsetD16Async(CUdeviceptr to, unsigned short value, std::size_t n, CUstream s) {
    return fill(to, value, n, s);
}
FAKE_DRIVER_API cuMemsetD32Async(CUdeviceptr to, unsigned value, std::size_t n, CUstream s) {
    return fill(to, value, n, s);
}
