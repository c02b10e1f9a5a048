#include "cpu/threads/thread_pool.h"

#include <pthread.h>
#if defined(__linux__)
#include <sched.h>
#endif

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

namespace layermem::cpu {
namespace {

inline void spin_pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Kernels follow each other within microseconds, so an idle thread polls for work before it sleeps: long enough to
// bridge two launches, short enough not to burden a shared machine.
constexpr int kSpinIterations = 2000;

#if defined(__linux__)
int current_core() { return sched_getcpu(); }

// Moves this thread off the first `count` cores in `taken` if it may run on others, and leaves its affinity as it was.
// Allocates nothing: it runs in workers, which have nowhere to report that memory is short.
void move_off(const std::vector<std::atomic<int>>& taken, size_t count) {
    cpu_set_t allowed;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return;  // more cores than the set can represent
    cpu_set_t others = allowed;
    for (size_t i = 0; i < count; ++i) {
        const int core = taken[i].load();
        if (core >= 0 && core < CPU_SETSIZE) CPU_CLR(core, &others);
    }
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others)) return;
    sched_setaffinity(0, sizeof allowed, &allowed);
}
#else
int current_core() { return -1; }
void move_off(const std::vector<std::atomic<int>>&, size_t) {}
#endif

// One job at a time: run() publishes it under the mutex, then workers and the caller take tasks until none is left.
// Each thread has a range of tasks, takes those first, and then what is left of the ranges of others.  So
// the halves of a batch, say, stay with the same threads from one kernel to the next, and in the caches of their cores:
// lines that another core has written cost more than those that none has.  A worker that wakes too late finds the job
// closed and does not touch it, so the caller waits only for workers that have begun (`busy_`).
class ThreadPool {
  public:
    explicit ThreadPool(int workers)
        : cores_(static_cast<size_t>(workers) + 1), ranges_(static_cast<size_t>(workers) + 1) {
        for (auto& core : cores_) core.store(-1);
        workers_.reserve(static_cast<size_t>(workers));
        try {
            for (size_t i = 1; i < cores_.size(); ++i) workers_.emplace_back([this, i] { serve(i); });
        } catch (const std::system_error&) {
            return;  // the system gives no more threads (ulimit -u, a container's pids limit): those that exist do the
        } catch (const std::bad_alloc&) {
            return;  // work, with the same bits
        }
    }

    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    ~ThreadPool() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            stopping_ = true;
            generation_.fetch_add(1);
        }
        wake_.notify_all();
        for (auto& worker : workers_) worker.join();
    }

    int requested() const { return static_cast<int>(cores_.size()) - 1; }  // workers; the system may have given fewer

    // Runs the tasks [first, count).
    void run(int64_t first, int64_t count, Task task, const void* context) {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            task_ = task;
            context_ = context;
            const auto threads = static_cast<int64_t>(ranges_.size());
            for (int64_t i = 0; i < threads; ++i) {
                TaskRange& range = ranges_[static_cast<size_t>(i)];
                range.next.store(first + chunk_begin(count - first, threads, i));
                range.end = first + chunk_begin(count - first, threads, i + 1);
            }
            cores_[0].store(current_core());
            open_ = true;
            generation_.fetch_add(1);
            if (sleepers_ > 0) wake_.notify_all();
        }
        take_tasks(0);
        std::unique_lock<std::mutex> lock(mutex_);
        open_ = false;  // workers that have not begun by now are not waited for
        if (busy_.load() == 0) return;
        lock.unlock();
        for (int i = 0; i < kSpinIterations && busy_.load() > 0; ++i) spin_pause();
        lock.lock();
        done_.wait(lock, [this] { return busy_.load() == 0; });
    }

  private:
    // Tasks [next, end) are not taken yet.
    struct alignas(64) TaskRange {
        std::atomic<int64_t> next{0};
        int64_t end = 0;
    };

    void take_tasks(size_t self) {
        for (size_t k = 0; k < ranges_.size(); ++k) {
            TaskRange& range = ranges_[(self + k) % ranges_.size()];
            while (range.next.load() < range.end) {
                const int64_t i = range.next.fetch_add(1);
                if (i < range.end) task_(context_, i);
            }
        }
    }

    void serve(size_t self) {
        uint64_t seen = 0;
        for (;;) {
            for (int i = 0; i < kSpinIterations && generation_.load() == seen; ++i) spin_pause();
            std::unique_lock<std::mutex> lock(mutex_);
            if (generation_.load() == seen) {
                ++sleepers_;
                wake_.wait(lock, [&] { return generation_.load() != seen; });
                --sleepers_;
                lock.unlock();
                find_core(self);
                lock.lock();
            }
            seen = generation_.load();
            if (stopping_) return;
            if (!open_) continue;
            busy_.fetch_add(1);
            lock.unlock();
            take_tasks(self);
            lock.lock();
            if (busy_.fetch_sub(1) == 1) done_.notify_one();
        }
    }

    // The operating system may wake a sleeper on the core of the thread that notified it and leave it there, job after
    // job: in a virtual machine an idle core can look busy.  So a worker that wakes on the core of the caller, or of a
    // worker before it, moves away.
    void find_core(size_t self) {
        const int here = current_core();
        bool shared = false;
        for (size_t i = 0; i < self; ++i) shared |= cores_[i].load() == here;
        if (here >= 0 && shared) move_off(cores_, self);
        cores_[self].store(current_core());
    }

    std::vector<std::thread> workers_;
    std::vector<std::atomic<int>> cores_;  // where the caller (0) and each worker began their last job
    std::vector<TaskRange> ranges_;        // of the job's tasks: the caller's (0) and each worker's
    std::mutex mutex_;                     // guards everything below that is not atomic
    std::condition_variable wake_, done_;
    std::atomic<uint64_t> generation_{0};  // changes with every job, and when the pool stops
    std::atomic<int> busy_{0};             // workers inside the current job
    int sleepers_ = 0;
    bool open_ = false, stopping_ = false;
    Task task_ = nullptr;
    const void* context_ = nullptr;
};

// The pool of the process, for one kernel at a time.  A kernel that runs while another has the pool begins on its own
// thread: updates beside communication do not wait for a convolution of the step, nor it for them.
std::mutex pool_mutex;  // of the pool, for all calling threads
std::atomic<int> requested_threads{
    static_cast<int>(std::thread::hardware_concurrency() ? std::thread::hardware_concurrency() : 1)};
ThreadPool* pool = nullptr;  // made by the first kernel that has more than one task; never freed at exit, when daemon
                             // threads may be inside a kernel
bool fork_handler_installed = false;

// In a child process the threads do not exist: the pool is neither joined nor freed, as they may hold its mutex.
void drop_pool_after_fork() {
    pool = nullptr;
    new (&pool_mutex) std::mutex;
}

}  // namespace

int threads() { return requested_threads.load(); }

void set_threads(int count) {
    const std::lock_guard<std::mutex> lock(pool_mutex);
    requested_threads = std::max(count, 1);
    if (pool && pool->requested() != requested_threads - 1) {
        delete pool;
        pool = nullptr;
    }
}

void run_tasks(int64_t count, Task task, const void* context) {
    std::unique_lock<std::mutex> lock(pool_mutex, std::defer_lock);
    int64_t done = 0;
    while (done < count && (requested_threads == 1 || count - done == 1 || !lock.try_lock())) task(context, done++);
    if (done >= count) return;
    if (!fork_handler_installed) {
        pthread_atfork(nullptr, nullptr, drop_pool_after_fork);
        fork_handler_installed = true;
    }
    if (!pool) pool = new ThreadPool(requested_threads - 1);
    pool->run(done, count, task, context);
}

}  // namespace layermem::cpu
