#include "pool.h"

#include <pthread.h>
#if defined(__linux__)
#include <sched.h>
#endif

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

namespace layermem::cpu {
namespace {

inline void relax() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Kernels follow each other within microseconds, so a thread that has nothing to do looks for work a little
// while before it sleeps: long enough to bridge two launches, short enough to be no burden on a shared machine.
constexpr int LOOKS = 2000;

#if defined(__linux__)
int core() { return sched_getcpu(); }

// Moves this thread off the cores in `taken` if it may run on others, and leaves it free to move again.
void leave(const std::vector<int>& taken) {
    cpu_set_t allowed, others;
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return;  // more cores than the set holds
    others = allowed;
    for (int c : taken)
        if (c >= 0 && c < CPU_SETSIZE) CPU_CLR(c, &others);
    if (CPU_COUNT(&others) == 0 || sched_setaffinity(0, sizeof others, &others)) return;
    sched_setaffinity(0, sizeof allowed, &allowed);
}
#else
int core() { return -1; }
void leave(const std::vector<int>&) {}
#endif

class Team {
  public:
    explicit Team(int helpers) : cores_(static_cast<size_t>(helpers) + 1) {
        for (auto& c : cores_) c.store(-1);
        for (int i = 0; i < helpers; ++i) members_.emplace_back([this, i] { serve(i + 1); });
    }

    ~Team() {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            leaving_ = true;
            signal_.fetch_add(1);
        }
        wake_.notify_all();
        for (auto& member : members_) member.join();
    }

    int helpers() const { return static_cast<int>(members_.size()); }

    void run(int64_t count, Task task, const void* context) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            task_ = task, context_ = context, count_ = count;
            next_.store(0);
            cores_[0].store(core());
            open_ = true;
            signal_.fetch_add(1);
            if (sleepers_ > 0) wake_.notify_all();
        }
        take();
        std::unique_lock<std::mutex> lock(mutex_);
        open_ = false;  // a helper that has not begun by now is not waited for
        if (busy_.load() == 0) return;
        lock.unlock();
        for (int i = 0; i < LOOKS && busy_.load() > 0; ++i) relax();
        lock.lock();
        done_.wait(lock, [this] { return busy_.load() == 0; });
    }

  private:
    void take() {
        for (int64_t i; (i = next_.fetch_add(1)) < count_;) task_(context_, i);
    }

    void serve(int self) {
        uint64_t seen = 0;
        for (;;) {
            for (int i = 0; i < LOOKS && signal_.load() == seen; ++i) relax();
            std::unique_lock<std::mutex> lock(mutex_);
            if (signal_.load() == seen) {
                ++sleepers_;
                wake_.wait(lock, [&] { return signal_.load() != seen; });
                --sleepers_;
                lock.unlock();
                find_core(self);
                lock.lock();
            }
            seen = signal_.load();
            if (leaving_) return;
            if (!open_) continue;
            busy_.fetch_add(1);
            lock.unlock();
            take();
            lock.lock();
            if (busy_.fetch_sub(1) == 1) done_.notify_one();
        }
    }

    // A kernel of the system may wake a sleeper on the core of whoever called it and leave it there, job after job: in
    // a virtual machine an idle core looks like one that is taken.  So a member that wakes beside the caller, or beside
    // one of those before it, moves away.
    void find_core(int self) {
        const int here = core();
        std::vector<int> taken;
        bool shared = false;
        for (int i = 0; i < self; ++i) {
            taken.push_back(cores_[static_cast<size_t>(i)].load());
            shared |= taken.back() == here;
        }
        if (here >= 0 && shared) leave(taken);
        cores_[static_cast<size_t>(self)].store(core());
    }

    std::vector<std::thread> members_;
    std::vector<std::atomic<int>> cores_;  // where the caller and each member began their last job
    std::mutex mutex_;
    std::condition_variable wake_, done_;
    std::atomic<uint64_t> signal_{0};  // changes with every job
    std::atomic<int64_t> next_{0};     // the next task that nobody has taken
    std::atomic<int> busy_{0};         // helpers inside the current job
    int sleepers_ = 0;
    bool open_ = false, leaving_ = false;
    Task task_ = nullptr;
    const void* context_ = nullptr;
    int64_t count_ = 0;
};

std::mutex owner;  // one kernel at a time, whoever calls
int wanted = static_cast<int>(std::thread::hardware_concurrency() ? std::thread::hardware_concurrency() : 1);
std::unique_ptr<Team> team;
bool minds_forks = false;

void forget_team() {  // the threads did not survive the fork: neither join them nor free what they may hold
    team.release();
    new (&owner) std::mutex;
}

}  // namespace

int threads() { return wanted; }

void set_threads(int count) {
    std::lock_guard<std::mutex> lock(owner);
    wanted = count < 1 ? 1 : count;
    if (team && team->helpers() != wanted - 1) team.reset();
}

void run_tasks(int64_t count, Task task, const void* context) {
    if (count <= 0) return;
    std::lock_guard<std::mutex> lock(owner);
    if (wanted == 1 || count == 1) {
        for (int64_t i = 0; i < count; ++i) task(context, i);
        return;
    }
    if (!minds_forks) {
        pthread_atfork(nullptr, nullptr, forget_team);
        minds_forks = true;
    }
    if (!team) team = std::make_unique<Team>(wanted - 1);
    team->run(count, task, context);
}

}  // namespace layermem::cpu
