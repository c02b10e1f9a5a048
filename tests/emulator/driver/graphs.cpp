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
    std::shared_ptr<const Launched> launched;  // null for what is no kernel
    std::shared_ptr<const Launched> captured;  // as it was captured: the node's name in all graphs made of it
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
    capture.nodes.push_back(
        {std::move(operation.work), stream.captured_after, operation.launched, operation.launched});
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

// Only kernels have names here: any other dependency is reported as null.
FAKE_DRIVER_API cuStreamGetCaptureInfo_v2(CUstream stream, int* status, std::uint64_t* id, CUgraph* graph,
                                      const CUgraphNode** nodes, std::size_t* count) {
    return guarded([&](Driver& d) {
        const Stream& s = *d.streams.or_default(stream);
        *status = s.capture != nullptr ? 1 : 0;
        if (s.capture == nullptr) return CUDA_SUCCESS;
        if (id != nullptr) *id = 1;
        if (graph != nullptr) *graph = nullptr;
        static std::vector<CUgraphNode> names;  // valid until the next call
        names.clear();
        for (int node : s.captured_after) names.push_back(s.capture->nodes[static_cast<std::size_t>(node)].captured.get());
        if (nodes != nullptr) *nodes = names.data();
        if (count != nullptr) *count = names.size();
        return CUDA_SUCCESS;
    });
}

FAKE_DRIVER_API cuGraphKernelNodeGetParams_v2(CUgraphNode node, NodeParams* out) {
    return guarded([&](Driver&) {
        if (node == nullptr) return CUDA_ERROR_INVALID_VALUE;
        *out = params_of(*node);
        return CUDA_SUCCESS;
    });
}

// Launches that were put on a stream before keep what they had.
FAKE_DRIVER_API cuGraphExecKernelNodeSetParams_v2(CUgraphExec graph, CUgraphNode name, const NodeParams* params) {
    return guarded([&](Driver&) {
        for (Node& node : graph->nodes)
            if (name != nullptr && node.captured.get() == name) {
                Operation operation;
                if (const CUresult result = launch_of(*params, operation)) return result;
                node.work = operation.work;
                node.launched = operation.launched;
                return CUDA_SUCCESS;
            }
        return CUDA_ERROR_INVALID_VALUE;
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
