// Releases the GIL while C++ runs; planning and the cpu device use it.
#pragma once
#include <pybind11/pybind11.h>

namespace layermem {

// Does what pybind11::gil_scoped_release does, but a thread may end in the destructor: while Python exits,
// PyEval_RestoreThread ends a daemon thread by pthread_exit, which unwinds its stack.  In a noexcept destructor that
// would abort the process.
class ReleaseGil {
  public:
    ReleaseGil() : state_(PyEval_SaveThread()) {}
    ReleaseGil(const ReleaseGil&) = delete;
    ReleaseGil& operator=(const ReleaseGil&) = delete;
    ~ReleaseGil() noexcept(false) { PyEval_RestoreThread(state_); }

  private:
    PyThreadState* state_;
};

}  // namespace layermem
