// One pass over the instructions; for each, over the segments that it touches.
#include "planning/placement/waits.h"

#include <algorithm>
#include <array>
#include <stdexcept>

namespace layermem::planning::placement {
namespace {

using Clock = std::array<Tick, kStreams>;  // per stream, the last tick of an access, or of what is complete; -1: none

constexpr Clock kNothing = {-1, -1, -1, -1};

void advance(Clock& clock, const Clock& other) {
    for (int stream = 0; stream < kStreams; ++stream) clock[stream] = std::max(clock[stream], other[stream]);
}

// The bytes of one arena.
class LastAccesses {
  public:
    // Records the access and returns the last ones before it.
    Clock touch(Bytes begin, Bytes end, int stream, Tick tick, bool writes) {
        const auto first = cut(begin), last = cut(end);
        Clock before = kNothing;
        for (size_t i = first; i < last; ++i) advance(before, segments_[i].ticks);
        if (writes) {
            segments_[first].ticks = kNothing;
            segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(first) + 1,
                            segments_.begin() + static_cast<std::ptrdiff_t>(last));
        }
        for (size_t i = first; i < (writes ? first + 1 : last); ++i) segments_[i].ticks[stream] = tick;
        return before;
    }

  private:
    struct Segment {
        Bytes begin;  // its end is the begin of the next one
        Clock ticks;
    };
    // Returns the index of the segment that begins at the offset; divides a segment if necessary.
    size_t cut(Bytes offset) {
        const auto next = std::lower_bound(segments_.begin(), segments_.end(), offset,
                                           [](const Segment& segment, Bytes bytes) { return segment.begin < bytes; });
        const auto index = static_cast<size_t>(next - segments_.begin());
        if (next == segments_.end() || next->begin != offset)
            segments_.insert(next, Segment{offset, segments_[index - 1].ticks});
        return index;
    }
    std::vector<Segment> segments_ = {{0, kNothing}};
};

void require(bool is_valid, const char* what) {
    if (!is_valid) throw std::invalid_argument(what);
}

void validate(const TimedAccesses& accesses) {
    const auto ticks = static_cast<Tick>(accesses.instructions.size());
    const auto count = static_cast<int32_t>(accesses.residencies.size());
    for (const auto& r : accesses.residencies)
        require(0 <= r.begin && r.begin <= r.end, "a residency ends before it begins, or has no offset");
    for (Tick tick = 0; tick < ticks; ++tick) {
        const auto& each = accesses.instructions[tick];
        require(0 <= each.stream && each.stream < kStreams, "an instruction is on an unknown stream");
        require(tick <= each.last && each.last < ticks, "a launch ends at a tick that is not there");
        for (const auto* list : {&each.reads, &each.writes})
            for (const int32_t id : *list)
                require(0 <= id && id < count, "an instruction touches an unknown residency");
    }
}

}  // namespace

std::vector<std::pair<Tick, std::vector<Tick>>> find_waits(const TimedAccesses& accesses) {
    validate(accesses);
    const auto& instructions = accesses.instructions;
    const auto ticks = static_cast<Tick>(instructions.size());
    std::array<LastAccesses, 2> arenas;  // device, host
    std::vector<Tick> writer(accesses.residencies.size(), -1);
    std::vector<Clock> complete(instructions.size(), kNothing);  // once the instruction is: those of its launch at once
    std::array<Clock, kStreams> newest = {kNothing, kNothing, kNothing, kNothing};  // of the last one of each stream
    std::vector<std::pair<Tick, std::vector<Tick>>> waits;
    std::vector<Tick> required;
    for (Tick first = 0; first < ticks; first = instructions[first].last + 1) {
        const Tick last = instructions[first].last;
        const int own = instructions[first].stream;
        required.clear();
        for (Tick tick = first; tick <= last; ++tick) {
            const auto& each = instructions[tick];
            for (const int32_t id : each.reads)
                if (writer[id] >= 0) required.push_back(writer[id]);
            for (const auto* list : {&each.reads, &each.writes})
                for (const int32_t id : *list) {
                    const auto& r = accesses.residencies[id];
                    if (r.begin == r.end) continue;
                    const bool writes = list == &each.writes;
                    const Clock before = arenas[r.host].touch(r.begin, r.end, each.stream, tick, writes);
                    for (const Tick accessed : before)
                        if (writes && accessed >= 0) required.push_back(accessed);
                }
        }
        // A launch ends as a whole.  The latest ticks come first, since they may have waited for the others.
        for (Tick& tick : required) tick = instructions[tick].last;
        std::sort(required.rbegin(), required.rend());
        Clock clock = newest[own];
        std::vector<Tick> after;
        for (const Tick tick : required) {
            const int stream = instructions[tick].stream;
            if (stream == own || tick <= clock[stream]) continue;
            after.push_back(tick);
            advance(clock, complete[tick]);
        }
        clock[own] = last;
        newest[own] = clock;
        for (Tick tick = first; tick <= last; ++tick) {
            complete[tick] = clock;
            for (const int32_t id : instructions[tick].writes) writer[id] = tick;
        }
        std::reverse(after.begin(), after.end());
        if (!after.empty()) waits.emplace_back(first, std::move(after));
    }
    return waits;
}

}  // namespace layermem::planning::placement
