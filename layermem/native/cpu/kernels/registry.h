// Kernels by name, on arguments that the caller packs.  Python reaches kernels in no other way.
//
// LAYERMEM_KERNEL(name) beside a function registers it.  The caller packs the arguments as a struct whose members are
// the parameters of the function; it reads its declaration from the header (layermem/backends/struct_layout.py).
// A parameter that has a check() is checked when it is unpacked.
#pragma once
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "cpu/kernels/launch.h"

namespace layermem::cpu {

// The result of a kernel: a launch, or a number that depends on its arguments, such as the bytes of its workspace.
using Bound = std::variant<int64_t, Launch, StepLaunch, UpdateLaunch>;

// Reads arguments one after the other, at the offsets of a struct.  A vector or a string is an offset into the same
// bytes and a count; an optional integer is a flag and its value, 64 bits each.
class PackedArguments {
  public:
    PackedArguments(const char* bytes, int64_t size) : bytes_(bytes), size_(size), end_(size) {}

    template <class T>
    T take() {
        if constexpr (std::is_same_v<T, std::string>) {
            const std::vector<char> text = take_vector<char>();
            return {text.begin(), text.end()};
        } else if constexpr (IsVector<T>::value) {
            return take_vector<typename T::value_type>();
        } else if constexpr (std::is_same_v<T, std::optional<int64_t>>) {
            const auto given = take<int64_t>(), value = take<int64_t>();
            return given ? T(value) : std::nullopt;
        } else if constexpr (std::is_trivially_copyable_v<T>) {
            T value;
            std::memcpy(static_cast<void*>(&value), at(alignof(T), sizeof(T)), sizeof(T));
            check(value, 0);
            return value;
        } else {
            at(alignof(T), 0);
            T value = take_members<T>();
            at(alignof(T), 0);
            check(value, 0);
            return value;
        }
    }

    // Whether all arguments were read, and no bytes follow but the elements of vectors.
    bool is_complete() const { return (at_ + 7) / 8 * 8 == end_; }

  private:
    template <class T>
    struct IsVector : std::false_type {};
    template <class T>
    struct IsVector<std::vector<T>> : std::true_type {};

    struct AnyMember {  // becomes the member that an aggregate has at its place
        PackedArguments& packed;
        template <class T>
        operator T() const {
            return packed.take<T>();
        }
    };

    // An aggregate, from as many members as it has: braces take them in order.
    template <class T, class... Members>
    T take_members() {
        if constexpr (takes<T, Members..., AnyMember>(0))
            return take_members<T, Members..., AnyMember>();
        else
            return T{Members{*this}...};
    }
    template <class T, class... Members, class = decltype(T{std::declval<Members>()...})>
    static constexpr bool takes(int) {
        return true;
    }
    template <class T, class... Members>
    static constexpr bool takes(long) {
        return false;
    }

    template <class T>
    std::vector<T> take_vector() {
        const auto offset = take<int64_t>(), count = take<int64_t>();
        if (offset < 0 || offset > size_ || count < 0 || count > size_) refuse();
        if (offset < end_) end_ = offset;
        PackedArguments elements(bytes_, size_);
        elements.at_ = offset;
        std::vector<T> values;
        values.reserve(static_cast<size_t>(count));
        for (int64_t i = 0; i < count; ++i) values.push_back(elements.take<T>());
        return values;
    }

    template <class T>
    static auto check(const T& value, int) -> decltype(value.check()) {
        value.check();
    }
    template <class T>
    static void check(const T&, long) {}

    const char* at(int64_t align, int64_t bytes) {
        at_ = (at_ + align - 1) / align * align;
        if (at_ + bytes > size_) refuse();
        const char* found = bytes_ + at_;
        at_ += bytes;
        return found;
    }

    [[noreturn]] static void refuse() { throw std::invalid_argument("arguments end too early"); }

    const char* bytes_;
    int64_t size_, end_;  // the first vector's elements lie at end_, where there are any
    int64_t at_ = 0;
};

using Kernel = Bound (*)(PackedArguments& packed);

template <auto function>
struct KernelCall;
template <class R, class... A, R (*function)(A...)>
struct KernelCall<function> {
    static Bound call(PackedArguments& packed) {
        std::tuple<std::decay_t<A>...> arguments{packed.take<std::decay_t<A>>()...};
        if (!packed.is_complete()) throw std::invalid_argument("arguments are not those of its declaration");
        using Result = std::conditional_t<std::is_same_v<R, bool>, int64_t, R>;
        return static_cast<Result>(std::apply(function, std::move(arguments)));
    }
};

std::vector<std::string> kernel_names();
// std::invalid_argument for an unknown name, or for arguments that are not those of the kernel.
Bound bind_kernel(const std::string& name, const char* packed, int64_t bytes);

struct KernelRegistration {
    KernelRegistration(const char* name, Kernel kernel);
};

}  // namespace layermem::cpu

#define LAYERMEM_KERNEL(name) static const KernelRegistration kRegister_##name(#name, &KernelCall<&(name)>::call);
