// Dinic's algorithm: blocking flows along shortest paths, each found without recursion, because nets can be deep.
#include "planning/bounds/max_flow.h"

#include <algorithm>
#include <utility>

namespace layermem::planning::bounds {

int MaxFlow::add_node() {
    first_.push_back(-1);
    return static_cast<int>(first_.size()) - 1;
}

int MaxFlow::add_edge(int from, int to) {
    const int edge = static_cast<int>(to_.size());
    for (const auto& [tail, head] : {std::pair{from, to}, std::pair{to, from}}) {
        to_.push_back(head);
        next_.push_back(first_[tail]);
        first_[tail] = static_cast<int>(to_.size()) - 1;
        capacity_.push_back(0);
    }
    return edge;
}

int64_t MaxFlow::run(int source, int sink) {
    left_ = capacity_;
    int64_t flow = 0;
    while (find_levels(source, sink)) {
        current_ = first_;
        while (const int64_t more = augment(source, sink)) flow += more;
    }
    return flow;
}

bool MaxFlow::find_levels(int source, int sink) {
    level_.assign(first_.size(), -1);
    level_[source] = 0;
    queue_.assign(1, source);
    for (size_t at = 0; at < queue_.size(); ++at) {
        const int node = queue_[at];
        for (int edge = first_[node]; edge >= 0; edge = next_[edge]) {
            if (left_[edge] > 0 && level_[to_[edge]] < 0) {
                level_[to_[edge]] = level_[node] + 1;
                queue_.push_back(to_[edge]);
            }
        }
    }
    return level_[sink] >= 0;
}

// Returns the flow along one path of rising levels, 0 if there is none; edges that lead nowhere are visited once.
int64_t MaxFlow::augment(int source, int sink) {
    path_.clear();
    int node = source;
    while (node != sink) {
        int& edge = current_[node];
        while (edge >= 0 && !(left_[edge] > 0 && level_[to_[edge]] == level_[node] + 1)) edge = next_[edge];
        if (edge >= 0) {
            path_.push_back(edge);
            node = to_[edge];
        } else if (path_.empty()) {
            return 0;
        } else {
            node = to_[path_.back() ^ 1];
            path_.pop_back();
            current_[node] = next_[current_[node]];
        }
    }
    int64_t flow = kInfinite;
    for (const int edge : path_) flow = std::min(flow, left_[edge]);
    for (const int edge : path_) {
        left_[edge] -= flow;
        left_[edge ^ 1] += flow;
    }
    return flow;
}

}  // namespace layermem::planning::bounds
