// A fake libnccl.so.2, whose ranks are threads of one process on the fake driver: device memory is the host's.
//
// A group waits for what is queued on its stream before, then sends and receives; so it returns later than NCCL does.
// Spans of one sender arrive in the order in which it sends them; one that has another size than its receiver expects is
// an error.
//   FAKE_NCCL_FAIL    number of the exchange of rank 1 (counted from 0) whose error it reports as that of another rank
//   FAKE_NCCL_BYTES   of device memory that a communicator takes
#include <dlfcn.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#define NCCL_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr int SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_USAGE = 5, REMOTE_ERROR = 6;
constexpr auto TIMEOUT = std::chrono::seconds(60);

struct UniqueId {
    char internal[128];
};

using Piece = std::vector<char>;

// What all ranks of one unique id share.
struct Network {
    std::map<std::pair<int, int>, std::deque<Piece>> pieces;  // by sender and receiver
    int joined = 0;
    bool failed = false;
};

struct Communicator {
    Network* network;
    int rank, size, exchanges;
    std::uint64_t memory;
};

struct Message {
    char* bytes;
    std::size_t nbytes;
    int peer;
    Communicator* communicator;
    void* stream;
    bool sends;
};

// A function of the driver, which PyCUDA has loaded.
template <class Function>
Function driver(const char* name) {
    void* library = dlopen("libcuda.so.1", RTLD_LAZY);
    return library != nullptr ? reinterpret_cast<Function>(dlsym(library, name)) : nullptr;
}

const auto synchronize = driver<int (*)(void*)>("cuStreamSynchronize");
const auto allocate = driver<int (*)(std::uint64_t*, std::size_t)>("cuMemAlloc_v2");
const auto release = driver<int (*)(std::uint64_t)>("cuMemFree_v2");

std::mutex lock;
std::condition_variable changed;
std::map<std::uint64_t, Network> networks;
std::uint64_t ids = 0;
thread_local std::vector<Message> group;

int setting(const char* name, int otherwise) {
    const char* text = std::getenv(name);
    return text != nullptr ? std::atoi(text) : otherwise;
}

int add(bool sends, void* bytes, std::size_t count, int type, int peer, void* communicator, void* stream) {
    if (type != 0) return INVALID_USAGE;
    group.push_back({static_cast<char*>(bytes), count, peer, static_cast<Communicator*>(communicator), stream, sends});
    return SUCCESS;
}

}  // namespace

NCCL_API int ncclGetVersion(int* version) {
    *version = 22300;
    return SUCCESS;
}

NCCL_API const char* ncclGetErrorString(int status) {
    return status == REMOTE_ERROR ? "remote process exited or there was a network error" : "invalid usage";
}

NCCL_API int ncclGetUniqueId(UniqueId* id) {
    const std::lock_guard<std::mutex> hold(lock);
    *id = {};
    ++ids;
    std::memcpy(id->internal, &ids, sizeof ids);
    return SUCCESS;
}

NCCL_API int ncclCommInitRank(void** out, int size, UniqueId id, int rank) {
    std::uint64_t number = 0, memory = 0;
    std::memcpy(&number, id.internal, sizeof number);
    if (number == 0 || rank < 0 || rank >= size) return INVALID_USAGE;
    const int taken = setting("FAKE_NCCL_BYTES", 0);
    if (taken > 0 && allocate(&memory, static_cast<std::size_t>(taken)) != 0) return SYSTEM_ERROR;
    std::unique_lock<std::mutex> hold(lock);
    Network& network = networks[number];
    ++network.joined;
    changed.notify_all();
    if (!changed.wait_for(hold, TIMEOUT, [&] { return network.joined == size; })) return SYSTEM_ERROR;
    *out = new Communicator{&network, rank, size, 0, memory};
    return SUCCESS;
}

NCCL_API int ncclGroupStart() {
    group.clear();
    return SUCCESS;
}

NCCL_API int ncclSend(void* bytes, std::size_t count, int type, int peer, void* communicator, void* stream) {
    return add(true, bytes, count, type, peer, communicator, stream);
}

NCCL_API int ncclRecv(void* bytes, std::size_t count, int type, int peer, void* communicator, void* stream) {
    return add(false, bytes, count, type, peer, communicator, stream);
}

NCCL_API int ncclGroupEnd() {
    const std::vector<Message> messages = std::exchange(group, {});
    if (messages.empty()) return SUCCESS;
    Communicator* own = messages.front().communicator;
    if (synchronize(messages.front().stream) != 0) return SYSTEM_ERROR;
    std::unique_lock<std::mutex> hold(lock);
    Network& network = *own->network;
    if (own->rank == 1 && own->exchanges == setting("FAKE_NCCL_FAIL", -1)) network.failed = true;
    ++own->exchanges;
    for (const Message& each : messages)
        if (each.sends) network.pieces[{own->rank, each.peer}].emplace_back(each.bytes, each.bytes + each.nbytes);
    changed.notify_all();
    for (const Message& each : messages) {
        if (each.sends) continue;
        std::deque<Piece>& pieces = network.pieces[{each.peer, own->rank}];
        if (!changed.wait_for(hold, TIMEOUT, [&] { return network.failed || !pieces.empty(); })) return SYSTEM_ERROR;
        if (network.failed) return SUCCESS;  // NCCL says so later: ncclCommGetAsyncError
        if (pieces.front().size() != each.nbytes) return INVALID_USAGE;
        std::memcpy(each.bytes, pieces.front().data(), each.nbytes);
        pieces.pop_front();
    }
    return SUCCESS;
}

NCCL_API int ncclCommGetAsyncError(void* communicator, int* status) {
    const std::lock_guard<std::mutex> hold(lock);
    *status = static_cast<Communicator*>(communicator)->network->failed ? REMOTE_ERROR : SUCCESS;
    return SUCCESS;
}

NCCL_API int ncclCommDestroy(void* communicator) {
    auto* own = static_cast<Communicator*>(communicator);
    if (own->memory != 0) release(own->memory);
    delete own;
    return SUCCESS;
}

NCCL_API int ncclCommAbort(void* communicator) {
    {
        const std::lock_guard<std::mutex> hold(lock);
        static_cast<Communicator*>(communicator)->network->failed = true;
        changed.notify_all();
    }
    return ncclCommDestroy(communicator);
}
