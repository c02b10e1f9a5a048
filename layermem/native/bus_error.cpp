// The handler runs on the thread that touched the page, so it calls only what POSIX lists as async-signal-safe.
#include "bus_error.h"

#include <csignal>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace layermem {

#if defined(__unix__) || defined(__APPLE__)
namespace {

constexpr int kDeviceError = 4;  // errors.py
constexpr char kMessage[] =
    "\nlayermem: a file that is mapped into memory failed: the file of --spill or a data set was cut short, or its "
    "disk failed.\n  Check the disk, and resume from the last snapshot.\n";

void on_bus_error(int number, siginfo_t* info, void* /*context*/) {
    if (info->si_code <= 0) {  // another process sent it
        std::signal(number, SIG_DFL);
        raise(number);
        return;
    }
    [[maybe_unused]] const auto written = write(STDERR_FILENO, kMessage, sizeof kMessage - 1);
    _exit(kDeviceError);
}

}  // namespace

void exit_on_bus_error() {
    struct sigaction action{};
    action.sa_sigaction = on_bus_error;
    action.sa_flags = SA_SIGINFO;
    sigemptyset(&action.sa_mask);
    sigaction(SIGBUS, &action, nullptr);
}
#else
void exit_on_bus_error() {}
#endif

}  // namespace layermem
