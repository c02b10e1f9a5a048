// Shared memory has 32 banks of 4 bytes.  A warp's access of 4 bytes a lane is one request; of 8 bytes, one for each
// half of the warp; of 16 bytes, one for each quarter.  A request takes as many wavefronts as the busiest bank has
// different words to give.  The n-th execution of an instruction by each lane of a warp is taken for one instruction of
// the warp, which holds where lanes do not diverge.
#include "banks.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_map>

#include "block.hpp"

namespace lm_emu::banks {

namespace {

constexpr unsigned BANKS = 32, BANK_BYTES = 4;

struct Place {  // of an instruction in the source
    std::uint32_t code;
    bool write;
    std::size_t bytes;
    bool operator<(const Place& other) const {
        return std::tie(code, write, bytes) < std::tie(other.code, other.write, other.bytes);
    }
};

struct Request {  // one instruction of one warp
    std::uint32_t lanes = 0;
    std::uintptr_t address[LANES];
};

struct Tally {
    std::uint64_t executed = 0, wavefronts = 0, least = 0;
};

std::unordered_map<std::uint64_t, std::uint32_t> executions;             // by thread and code, in this block
std::map<std::tuple<Place, unsigned, std::uint32_t>, Request> requests;  // by place, warp and execution, in this block
std::map<Place, Tally> tallies;

void count(const Place& place, const Request& request) {
    Tally& tally = tallies[place];
    ++tally.executed;
    const unsigned lanes_at_once = place.bytes <= 4 ? 32 : place.bytes <= 8 ? 16 : 8;
    for (unsigned first = 0; first < LANES; first += lanes_at_once) {
        std::set<std::uintptr_t> words[BANKS];
        for (unsigned lane = first; lane < first + lanes_at_once; ++lane) {
            if ((request.lanes >> lane & 1) == 0) continue;
            const std::uintptr_t word = request.address[lane] / BANK_BYTES;
            for (std::uintptr_t w = word; w < word + (place.bytes + 3) / BANK_BYTES; ++w) words[w % BANKS].insert(w);
        }
        std::size_t most = 0;
        for (const auto& of_bank : words) most = std::max(most, of_bank.size());
        tally.wavefronts += most;
        tally.least += most > 0;
    }
}

}  // namespace

void launch_begins() {
    tallies.clear();
    executions.clear();
    requests.clear();
}

void note(const void* start, std::size_t bytes, bool write, std::uint32_t code) {
    if (machine.launch.banks == 0) return;
    const Thread& me = *machine.now;
    const std::uint32_t nth = executions[std::uint64_t{me.id} << 32 | code]++;
    Request& request = requests[{{code, write, bytes}, me.id / LANES, nth}];
    request.lanes |= 1u << me.lane();
    request.address[me.lane()] = reinterpret_cast<std::uintptr_t>(start);
}

void block_ends() {
    for (const auto& [key, request] : requests) count(std::get<Place>(key), request);
    requests.clear();
    executions.clear();
}

std::string report() {
    std::string lines;
    for (const auto& [place, tally] : tallies)
        lines += text("@%x@ %s %zu %llu %llu %llu\n", place.code, place.write ? "write" : "read", place.bytes,
                      static_cast<unsigned long long>(tally.executed),
                      static_cast<unsigned long long>(tally.wavefronts), static_cast<unsigned long long>(tally.least));
    return lines;
}

}  // namespace lm_emu::banks
