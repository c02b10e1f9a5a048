// Runs the launches of one module in a process of its own, for sanitizers that must not meet Python.
//
// Requests come on standard input, answers go to standard output, in the machine's own byte order:
//      request   Request, kernel name, argument struct, relocations, buffer sizes (8 bytes each), buffers
//      answer    status (4 bytes), length of the message (4 bytes), message, buffers
// Each buffer lies in a heap block of its exact size, so AddressSanitizer sees the first byte beyond either end.
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "machine.hpp"

namespace {

struct Request {
    LmLaunch launch;
    std::uint32_t name_bytes, args_bytes, relocations, buffers;
};

struct Relocation {  // args[place] = buffer + offset
    std::uint32_t place, buffer;
    std::uint64_t offset;
};

bool get(void* to, std::size_t bytes) {
    auto* at = static_cast<char*>(to);
    while (bytes > 0) {
        const ssize_t got = read(STDIN_FILENO, at, bytes);
        if (got <= 0) return false;
        at += got;
        bytes -= static_cast<std::size_t>(got);
    }
    return true;
}

void put(const void* from, std::size_t bytes) {
    const auto* at = static_cast<const char*>(from);
    while (bytes > 0) {
        const ssize_t sent = write(STDOUT_FILENO, at, bytes);
        if (sent <= 0) std::exit(3);
        at += sent;
        bytes -= static_cast<std::size_t>(sent);
    }
}

struct Buffer {
    std::uint64_t bytes = 0;
    void* start = nullptr;
};

bool serve() {
    Request request;
    if (!get(&request, sizeof request)) return false;
    std::string name(request.name_bytes, '\0');
    std::vector<char> args(request.args_bytes);
    std::vector<Relocation> relocations(request.relocations);
    std::vector<std::uint64_t> sizes(request.buffers);
    std::vector<Buffer> buffers;
    bool whole = get(name.data(), name.size()) && get(args.data(), args.size()) &&
                 get(relocations.data(), relocations.size() * sizeof(Relocation)) &&
                 get(sizes.data(), sizes.size() * sizeof(std::uint64_t));
    for (std::size_t i = 0; whole && i < sizes.size(); ++i) {
        Buffer buffer{sizes[i], nullptr};
        if (posix_memalign(&buffer.start, 256, buffer.bytes) != 0) std::abort();  // aligned as on the device
        whole = get(buffer.start, buffer.bytes);
        buffers.push_back(buffer);
    }
    if (!whole) return false;
    for (const Relocation& r : relocations) {
        const char* address = static_cast<char*>(buffers[r.buffer].start) + r.offset;
        std::memcpy(&args[r.place], &address, sizeof address);
    }
    const std::int32_t status = lm_emu_launch(name.c_str(), &request.launch, args.data(), args.size());
    const std::string message = lm_emu_message();
    const auto length = static_cast<std::uint32_t>(message.size());
    put(&status, sizeof status);
    put(&length, sizeof length);
    put(message.data(), length);
    for (const Buffer& buffer : buffers) {
        put(buffer.start, buffer.bytes);
        std::free(buffer.start);
    }
    return true;
}

}  // namespace

int main() {
    while (serve()) {
    }
    return 0;
}
