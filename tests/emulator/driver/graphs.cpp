// Stream capture and graphs: a program put on streams once, launched many times.
//
// A graph keeps only the order that streams and events prescribe.  An eager launch runs the nodes as they were
// captured; a lazy one draws, at every step, among those whose predecessors are done.
#include <algorithm>
#include <memory>
#include <set>
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
    bool broken = false;  // by a call that is not allowed meanwhile
};

struct Graph {
    std::vector<Node> nodes;
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
    if (mark.capture == nullptr) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;  // the event was recorded outside
    if (mark.capture != stream.capture) return CUDA_ERROR_STREAM_CAPTURE_MERGE;
    add(stream.captured_after, mark.nodes);
    return CUDA_SUCCESS;
}

}  // namespace

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
        if (s->capture != nullptr) any = s->capture->broken = true;
    return any;
}

CUresult capture_operation(Stream& stream, Operation operation) {
    Capture& capture = *stream.capture;
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

FAKE_DRIVER_API cuStreamBeginCapture_v2(CUstream stream, int) {
    return guarded([&](Driver& d) {
        if (stream == nullptr || !d.streams.known(stream)) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        if (stream->capture != nullptr) return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        stream->capture = std::make_shared<Capture>(Capture{stream, {stream}, {}, false});
        stream->captured_after.clear();
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuStreamEndCapture(CUstream stream, CUgraph* out) {
    return guarded([&](Driver&) {
        *out = nullptr;
        const std::shared_ptr<Capture> capture = stream->capture;
        if (capture == nullptr || capture->origin != stream) return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
        const bool whole = joined(*capture, stream->captured_after);
        for (Stream* s : capture->streams) s->capture = nullptr;
        capture->origin = nullptr;
        if (capture->broken) return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        if (!whole) return CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
        *out = new Graph{std::move(capture->nodes)};
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuStreamIsCapturing(CUstream stream, int* status) {
    return guarded([&](Driver& d) {
        *status = d.streams.or_default(stream)->capture != nullptr ? 1 : 0;
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuGraphInstantiateWithFlags(CUgraphExec* out, CUgraph graph, unsigned long long) {
    return guarded([&](Driver&) {
        *out = new Graph(*graph);
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuGraphLaunch(CUgraphExec graph, CUstream stream) {
    return guarded([&](Driver& d) {
        return d.streams.put(stream, {[nodes = graph->nodes] { return run(nodes); }, nullptr, nullptr});
    });
}

FAKE_DRIVER_API cuGraphUpload(CUgraphExec, CUstream) { return CUDA_SUCCESS; }

FAKE_DRIVER_API cuGraphGetNodes(CUgraph graph, void**, std::size_t* count) {
    *count = graph->nodes.size();
    return CUDA_SUCCESS;
}

FAKE_DRIVER_API cuGraphDestroy(CUgraph graph) {
    delete graph;
    return CUDA_SUCCESS;
}

FAKE_DRIVER_API cuGraphExecDestroy(CUgraphExec graph) {
    delete graph;
    return CUDA_SUCCESS;
}
