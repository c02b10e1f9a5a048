// Stream capture and graphs: a program put on streams once, launched many times.
//
// A graph keeps only the order that streams and events prescribe.  An eager launch runs the nodes as they were
// captured; a lazy one draws, at every step, among those whose predecessors are done.
#include <algorithm>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "fake_driver.hpp"

namespace fake_driver {

struct Node {
    std::function<CUresult()> work;
    std::vector<int> after;
};

struct Capture {
    Stream* origin;  // null once it has ended
    std::set<Stream*> streams;
    std::vector<Node> nodes;
    std::thread::id thread;
    bool global;          // whether it restricts the calls of other threads, too
    bool broken = false;  // by a call that is not allowed meanwhile
};

constexpr std::size_t NODE_BYTES = 1024;  // of the device's memory, once it may be launched

struct Graph {
    std::vector<Node> nodes;
    Context* context;  // in which it may be launched; null if it is only captured
};

namespace {

void add(std::vector<int>& nodes, const std::vector<int>& more) {
    for (int node : more)
        if (std::find(nodes.begin(), nodes.end(), node) == nodes.end()) nodes.push_back(node);
}

// Is every node of the capture one of `nodes` or before them?
bool joined(const Capture& capture, const std::vector<int>& nodes) {
    std::set<int> seen;
    std::vector<int> left = nodes;
    while (!left.empty()) {
        const int node = left.back();
        left.pop_back();
        if (seen.insert(node).second) add(left, capture.nodes[static_cast<std::size_t>(node)].after);
    }
    return seen.size() == capture.nodes.size();
}

CUresult run(const std::vector<Node>& nodes) {
    std::vector<bool> done(nodes.size());
    const bool eager = driver().settings.order == Order::EAGER;
    for (std::size_t count = 0; count < nodes.size(); ++count) {
        std::vector<std::size_t> able;
        for (std::size_t i = 0; i < nodes.size(); ++i) {
            const auto& after = nodes[i].after;
            if (!done[i] &&
                std::all_of(after.begin(), after.end(), [&](int n) { return done[static_cast<std::size_t>(n)]; }))
                able.push_back(i);
        }
        const std::size_t next = eager ? able.front() : able[driver().random() % able.size()];
        if (const CUresult result = nodes[next].work()) return result;
        done[next] = true;
    }
    return CUDA_SUCCESS;
}

CUresult capture_wait(Stream& stream, const Mark& mark) {
    if (mark.capture != stream.capture) stream.capture->broken = true;
    if (mark.capture == nullptr) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;  // the event was recorded outside
    if (mark.capture != stream.capture) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    add(stream.captured_after, mark.nodes);
    return CUDA_SUCCESS;
}

std::set<const Graph*> graphs;

bool is_graph(const Graph* graph, bool executable) {
    return graphs.count(graph) != 0 && (graph->context != nullptr) == executable;
}

CUresult destroy(const Graph* graph, bool executable) {  // needs no context
    const std::lock_guard<std::recursive_mutex> hold(driver().lock);
    if (!is_graph(graph, executable)) return CUDA_ERROR_INVALID_VALUE;
    if (graph->context != nullptr) graph->context->used -= NODE_BYTES * graph->nodes.size();
    graphs.erase(graph);
    delete graph;
    return CUDA_SUCCESS;
}

}  // namespace

bool is_open(const std::shared_ptr<Capture>& capture) { return capture != nullptr && capture->origin != nullptr; }

CUresult break_capture(Stream& stream) {
    stream.capture->broken = true;
    return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

CUresult break_capture(const Mark& mark) {
    mark.capture->broken = true;
    return CUDA_ERROR_CAPTURED_EVENT;
}

bool join_capture(Stream& stream, const Mark& mark) {
    if (stream.capture != nullptr || mark.capture == nullptr) return true;
    if (mark.capture->origin == nullptr) return false;
    stream.capture = mark.capture;
    stream.captured_after.clear();
    mark.capture->streams.insert(&stream);
    return true;
}

bool Streams::breaks_captures() {
    bool any = false;
    for (const auto& s : streams_)
        if (s->capture != nullptr && (s->capture->global || s->capture->thread == std::this_thread::get_id()))
            any = s->capture->broken = true;
    return any;
}

CUresult capture_operation(Stream& stream, Operation operation) {
    Capture& capture = *stream.capture;
    if (capture.broken) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    if (operation.reaches != nullptr) {
        operation.reaches->capture = stream.capture;
        operation.reaches->nodes = stream.captured_after;
        return CUDA_SUCCESS;
    }
    if (operation.waits_for != nullptr) return capture_wait(stream, *operation.waits_for);
    capture.nodes.push_back({std::move(operation.work), stream.captured_after});
    stream.captured_after = {static_cast<int>(capture.nodes.size()) - 1};
    return CUDA_SUCCESS;
}

}  // namespace fake_driver

using namespace fake_driver;

constexpr int GLOBAL = 0, THREAD_LOCAL = 1;

FAKE_DRIVER_API cuStreamBeginCapture_v2(CUstream stream, int mode) {
    return guarded([&](Driver& d) {
        if (mode != GLOBAL && mode != THREAD_LOCAL) return CUDA_ERROR_INVALID_VALUE;
        if (stream == nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        if (!d.streams.usable(stream)) return CUDA_ERROR_INVALID_HANDLE;
        if (stream->capture != nullptr) return break_capture(*stream);
        stream->capture =
            std::make_shared<Capture>(Capture{stream, {stream}, {}, std::this_thread::get_id(), mode == GLOBAL, false});
        stream->captured_after.clear();
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuStreamEndCapture(CUstream stream, CUgraph* out) {
    return guarded([&](Driver& d) {
        *out = nullptr;
        if (stream == nullptr || !d.streams.usable(stream)) return CUDA_ERROR_INVALID_HANDLE;
        const std::shared_ptr<Capture> capture = stream->capture;
        if (capture == nullptr) return CUDA_ERROR_INVALID_VALUE;
        if (capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
        if (capture->thread != std::this_thread::get_id()) return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
        const bool whole = joined(*capture, stream->captured_after);
        for (Stream* s : capture->streams) s->capture = nullptr;
        capture->origin = nullptr;
        if (capture->broken) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        if (!whole) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        *out = new Graph{std::move(capture->nodes), nullptr};
        graphs.insert(*out);
        return CUDA_SUCCESS;
    });
}

constexpr int NONE = 0, ACTIVE = 1, INVALIDATED = 2;

static int status_of(const Stream& stream) {
    if (stream.capture == nullptr) return NONE;
    return stream.capture->broken ? INVALIDATED : ACTIVE;
}

FAKE_DRIVER_API cuStreamIsCapturing(CUstream stream, int* status) {
    return guarded([&](Driver& d) {
        if (!d.streams.known(stream)) return CUDA_ERROR_INVALID_HANDLE;
        *status = status_of(*d.streams.or_default(stream));
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long) {
    return guarded([&](Driver&) {
        if (!is_graph(graph, false)) return CUDA_ERROR_INVALID_VALUE;
        if (!current_context()->take(NODE_BYTES * graph->nodes.size())) return CUDA_ERROR_OUT_OF_MEMORY;
        *out = new Graph{graph->nodes, current_context()};
        graphs.insert(*out);
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuGraphLaunch(CUgraphExec graph, CUstream stream) {
    return guarded([&](Driver& d) {
        if (!is_graph(graph, true)) return CUDA_ERROR_INVALID_VALUE;
        if (!d.streams.usable(stream)) return CUDA_ERROR_INVALID_HANDLE;
        Stream& s = *d.streams.or_default(stream);
        if (s.capture != nullptr) return break_capture(s);
        return d.streams.put(stream, {[nodes = graph->nodes] { return run(nodes); }, nullptr, nullptr});
    });
}

FAKE_DRIVER_API cuGraphUpload(CUgraphExec graph, CUstream) {
    return is_graph(graph, true) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

FAKE_DRIVER_API cuGraphGetNodes(CUgraph graph, void**, std::size_t* count) {
    if (!is_graph(graph, false)) return CUDA_ERROR_INVALID_VALUE;
    *count = graph->nodes.size();
    return CUDA_SUCCESS;
}

// An executable graph outlives the one that it was made of.
FAKE_DRIVER_API cuGraphDestroy(CUgraph graph) { return destroy(graph, false); }

FAKE_DRIVER_API cuGraphExecDestroy(CUgraphExec graph) { return destroy(graph, true); }
