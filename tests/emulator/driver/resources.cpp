// Registers and static shared memory of kernels, as a table of tools/ptxas_report.py has them: what the driver reads
// from a kernel's image, which the emulator's libraries do not have.
#include <fstream>
#include <map>
#include <sstream>

#include "architectures.hpp"
#include "fake_driver.hpp"

namespace fake_driver {

namespace {

using Table = std::map<std::pair<std::string, std::string>, Resources>;
constexpr unsigned USUAL_REGISTERS = 32;

std::vector<std::string> cells_of(const std::string& line) {
    std::vector<std::string> cells;
    std::istringstream in(line);
    for (std::string cell; std::getline(in, cell, '\t');) cells.push_back(cell);
    return cells;
}

// The column of the newest architecture that is not newer than the device.
std::size_t column(const std::vector<std::string>& titles) {
    std::size_t found = 0;
    for (std::size_t i = 0; i < titles.size(); ++i)
        if (titles[i].rfind("sm_", 0) == 0 && std::stoi(titles[i].substr(3)) <= driver().settings.capability) found = i;
    return found;
}

Table read() {
    Table table;
    std::ifstream file(driver().settings.resources);
    std::size_t registers = 0;
    for (std::string line; std::getline(file, line);) {
        if (line.empty() || line[0] == '#') continue;
        const std::vector<std::string> cells = cells_of(line);
        if (cells[0] == "module")
            registers = column(cells);
        else if (registers != 0 && cells.size() > registers)
            table[{cells[0], cells[1]}] = {true, static_cast<unsigned>(std::stoi(cells[registers])),
                                           static_cast<std::size_t>(std::stoul(cells[4]))};
    }
    return table;
}

}  // namespace

Resources resources_of(const std::string& module, const std::string& kernel) {
    static const Table table = read();
    const auto found = table.find({module, kernel});
    return found != table.end() ? found->second : Resources{false, USUAL_REGISTERS, 0};
}

const Architecture& architecture() {
    const Architecture* found = ARCHITECTURES;
    for (const Architecture& each : ARCHITECTURES)
        if (each.capability <= driver().settings.capability) found = &each;
    return *found;
}

}  // namespace fake_driver
