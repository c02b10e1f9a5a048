// A fake libnvrtc.so, which takes as long as it is set to and answers with what it finds in a folder.
//
//   FAKE_NVRTC_VERSION   such as 12.9; 13.0 by default
//   FAKE_NVRTC_SECONDS   words MODULE=SECONDS for the modules that take any
//   FAKE_NVRTC_IMAGES    folder whose MODULE.fatbin is the machine code; without one it is the name of the module
//   FAKE_NVRTC_REFUSES   module with an error
//   FAKE_NVRTC_MEET      so many programs begin before one ends
//   FAKE_NVRTC_LOG       file that gets a line "MODULE TARGET PROCESS begin" and one that ends in "end" for each program
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>

#define NVRTC_API extern "C" __attribute__((visibility("default")))

namespace {

constexpr int SUCCESS = 0, COMPILATION = 6;
constexpr int CAPABILITIES[] = {75, 80, 86, 89, 90, 100, 120};

struct Program {
    std::string module, image, log;
};

std::string setting(const char* name, const char* otherwise = "") {
    const char* value = std::getenv(name);
    return value != nullptr ? value : otherwise;
}

double seconds_of(const std::string& module) {
    std::istringstream words(setting("FAKE_NVRTC_SECONDS"));
    for (std::string word; words >> word;)
        if (word.rfind(module + "=", 0) == 0) return std::atof(word.c_str() + module.size() + 1);
    return 0.0;
}

void note(const Program& program, const std::string& target, const char* what) {
    const std::string path = setting("FAKE_NVRTC_LOG");
    if (path.empty()) return;
    const std::string line = program.module + " " + target + " " + std::to_string(getpid()) + " " + what + "\n";
    const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (write(file, line.data(), line.size()) < 0) std::abort();
    close(file);
}

int copied(const std::string& text, char* out) {
    std::memcpy(out, text.data(), text.size());
    return SUCCESS;
}

int begun() {
    std::ifstream log(setting("FAKE_NVRTC_LOG"));
    int count = 0;
    for (std::string word; log >> word;) count += word == "begin";
    return count;
}

}  // namespace

NVRTC_API const char* nvrtcGetErrorString(int status) { return status == SUCCESS ? "success" : "compilation error"; }

NVRTC_API int nvrtcVersion(int* major, int* minor) {
    std::sscanf(setting("FAKE_NVRTC_VERSION", "13.0").c_str(), "%d.%d", major, minor);
    return SUCCESS;
}

NVRTC_API int nvrtcGetNumSupportedArchs(int* count) {
    *count = static_cast<int>(std::size(CAPABILITIES));
    return SUCCESS;
}

NVRTC_API int nvrtcGetSupportedArchs(int* known) {
    std::copy(std::begin(CAPABILITIES), std::end(CAPABILITIES), known);
    return SUCCESS;
}

// The last file of the text is the module itself: #line 1 "pooling.cu"
NVRTC_API int nvrtcCreateProgram(Program** program, const char* source, const char*, int, const char**, const char**) {
    const std::string text = source, mark = "#line 1 \"";
    const auto begin = text.rfind(mark) + mark.size();
    *program = new Program{text.substr(begin, text.find(".cu\"", begin) - begin), "", ""};
    return SUCCESS;
}

NVRTC_API int nvrtcCompileProgram(Program* program, int count, const char** options) {
    std::string target;
    for (int i = 0; i < count; ++i)
        if (std::strncmp(options[i], "--gpu-architecture=", 19) == 0) target = options[i] + 19;
    note(*program, target, "begin");
    std::this_thread::sleep_for(std::chrono::duration<double>(seconds_of(program->module)));
    for (const int others = std::atoi(setting("FAKE_NVRTC_MEET", "0").c_str()); begun() < others;)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    note(*program, target, "end");
    if (program->module == setting("FAKE_NVRTC_REFUSES")) {
        program->log = program->module + ".cu(1): error: refused";
        return COMPILATION;
    }
    std::ifstream file(setting("FAKE_NVRTC_IMAGES") + "/" + program->module + ".fatbin", std::ios::binary);
    program->image = file ? std::string(std::istreambuf_iterator<char>(file), {}) : program->module + " " + target;
    return SUCCESS;
}

NVRTC_API int nvrtcGetCUBINSize(Program* program, std::size_t* size) {
    *size = program->image.size();
    return SUCCESS;
}

NVRTC_API int nvrtcGetCUBIN(Program* program, char* out) { return copied(program->image, out); }
NVRTC_API int nvrtcGetPTXSize(Program* program, std::size_t* size) { return nvrtcGetCUBINSize(program, size); }
NVRTC_API int nvrtcGetPTX(Program* program, char* out) { return copied(program->image, out); }

NVRTC_API int nvrtcGetProgramLogSize(Program* program, std::size_t* size) {
    *size = program->log.size() + 1;
    return SUCCESS;
}

NVRTC_API int nvrtcGetProgramLog(Program* program, char* out) { return copied(program->log + '\0', out); }

NVRTC_API int nvrtcDestroyProgram(Program** program) {
    delete *program;
    return SUCCESS;
}
