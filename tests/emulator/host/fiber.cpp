// The switch itself: push what a function call must preserve, swap stack pointers, pop.
#include "fiber.hpp"

#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

// void lm_emu_switch(void** save_here, void* go_on_there)
extern "C" void lm_emu_switch(void** save, void* load) __attribute__((visibility("hidden")));

#if defined(__x86_64__)
constexpr std::size_t SAVED = 6;  // words below the return address
asm(R"(
.text
.p2align 4
.globl lm_emu_switch
.hidden lm_emu_switch
.type lm_emu_switch, @function
lm_emu_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
.size lm_emu_switch, .-lm_emu_switch
)");
#elif defined(__aarch64__)
constexpr std::size_t SAVED = 20;  // x19 to x30, d8 to d15
constexpr std::size_t LINK = 11;   // the place of x30 among them
asm(R"(
.text
.p2align 4
.globl lm_emu_switch
.hidden lm_emu_switch
.type lm_emu_switch, %function
lm_emu_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x9, sp
    str x9, [x0]
    mov sp, x1
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
.size lm_emu_switch, .-lm_emu_switch
)");
#else
#error "the fiber switch is written for x86-64 and aarch64"
#endif

namespace lm_emu {

namespace {

#if defined(__SANITIZE_ADDRESS__)
Fiber* left_last = nullptr;  // receives what ASan reports of the stack just left

// After a switch: ASan is notified, and returns the bounds of the stack just left.
void complete_switch(void* shadow, std::byte*& bottom, std::size_t& bytes) {
    const void* left_bottom = nullptr;
    std::size_t left_bytes = 0;
    __sanitizer_finish_switch_fiber(shadow, &left_bottom, &left_bytes);
    if (bottom == nullptr) {
        bottom = const_cast<std::byte*>(static_cast<const std::byte*>(left_bottom));
        bytes = left_bytes;
    }
}
#endif

void no_memory() {
    std::perror("emulator: no memory for the threads' stacks");
    std::abort();
}

}  // namespace

void Fiber::prepare(void (*entry)(), std::byte* bottom, std::size_t bytes, unsigned colour) {
    bottom_ = bottom;
    bytes_ = bytes;
    shadow_ = nullptr;
    const auto top = reinterpret_cast<std::uintptr_t>(bottom + bytes) - 64 * (1 + (colour * 17) % 48);
    auto* word = reinterpret_cast<void**>(top & ~std::uintptr_t{15});
#if defined(__x86_64__)
    *--word = nullptr;  // where a return address would lie: a call leaves the stack 8 short of 16
    *--word = reinterpret_cast<void*>(entry);
    word -= SAVED;
    std::memset(word, 0, SAVED * sizeof *word);
#else
    word -= SAVED;
    std::memset(word, 0, SAVED * sizeof *word);
    word[LINK] = reinterpret_cast<void*>(entry);
#endif
    pointer_ = word;
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(bottom, bytes);
#endif
}

void Fiber::go(Fiber& from, Fiber& to) {
#if defined(__SANITIZE_ADDRESS__)
    left_last = &from;
    __sanitizer_start_switch_fiber(&from.shadow_, to.bottom_, to.bytes_);
#endif
    lm_emu_switch(&from.pointer_, to.pointer_);
#if defined(__SANITIZE_ADDRESS__)
    complete_switch(from.shadow_, left_last->bottom_, left_last->bytes_);
#endif
}

void Fiber::arrived() {
#if defined(__SANITIZE_ADDRESS__)
    complete_switch(nullptr, left_last->bottom_, left_last->bytes_);
#endif
}

std::byte* Stacks::at(unsigned index) {
    if (start_ == nullptr) reserve();
    for (; open_ <= index; ++open_)
        if (mprotect(start_ + open_ * BYTES + GUARD, BYTES - GUARD, PROT_READ | PROT_WRITE) != 0) open_all();
    return start_ + index * BYTES;
}

// The process has run out of mappings: one for all stacks, without guards, takes fewer than before.
void Stacks::open_all() {
    if (mprotect(start_, COUNT * BYTES, PROT_READ | PROT_WRITE) != 0) no_memory();
    open_ = COUNT;
}

void Stacks::close() {
    if (start_ != nullptr) munmap(start_, COUNT * BYTES);
    start_ = nullptr;
    open_ = 0;
}

void Stacks::reserve() {
    void* start = mmap(nullptr, COUNT * BYTES, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED) no_memory();
    start_ = static_cast<std::byte*>(start);
}

}  // namespace lm_emu
