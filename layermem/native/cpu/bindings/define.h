// Functions and constructors as Python calls them, without their C++ types.
//
// pybind11 generates code of its own for every signature that it binds, which took most of the time of compiling this
// folder.  Here a signature generates the call alone; arguments, defaults and errors are handled in define.cpp.
// Parameters may have the types of convert(), or be references to classes that were bound before.
#pragma once
#include <pybind11/pybind11.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "cpu/bindings/bind.h"

namespace layermem::cpu {

// arg("name"), or arg("name") = default value; kw_only(): those after it are given by keyword.  Constants, so that a list
// of them takes no code.
struct Parameter {
    enum class Default { required, none, boolean, integer, real, pair, text };

    const char* name;  // nullptr: kw_only()
    Default kind = Default::required;
    int64_t first = 0, second = 0;
    double real = 0;
    const char* text = "";
};
struct arg {
    constexpr explicit arg(const char* parameter) : name(parameter) {}
    constexpr operator Parameter() const { return {name}; }
    constexpr Parameter operator=(bool value) const { return {name, Parameter::Default::boolean, value}; }
    constexpr Parameter operator=(int value) const { return {name, Parameter::Default::integer, value}; }
    constexpr Parameter operator=(float value) const { return {name, Parameter::Default::real, 0, 0, value}; }
    constexpr Parameter operator=(Pair value) const {
        return {name, Parameter::Default::pair, value.first, value.second};
    }
    constexpr Parameter operator=(const char* value) const { return {name, Parameter::Default::text, 0, 0, 0, value}; }
    constexpr Parameter operator=(std::nullopt_t) const { return {name, Parameter::Default::none}; }

    const char* name;
};
constexpr Parameter kw_only() { return {nullptr}; }
using Parameters = std::initializer_list<Parameter>;

// Whether `from` is a T in range, which it becomes; no Python error is left behind.
bool convert(pybind11::handle from, bool& to);
bool convert(pybind11::handle from, int64_t& to);
bool convert(pybind11::handle from, uint64_t& to);
bool convert(pybind11::handle from, uint32_t& to);
bool convert(pybind11::handle from, float& to);
bool convert(pybind11::handle from, double& to);
bool convert(pybind11::handle from, std::string& to);
bool convert(pybind11::handle from, Pair& to);
bool convert(pybind11::handle from, std::pair<float, float>& to);
bool convert(pybind11::handle from, std::optional<int64_t>& to);
bool convert(pybind11::handle from, std::vector<int64_t>& to);
bool convert(pybind11::handle from, std::vector<uint64_t>& to);
bool convert(pybind11::handle from, std::vector<float>& to);
bool convert(pybind11::handle from, std::vector<bool>& to);
bool convert(pybind11::handle from, std::vector<std::vector<float>>& to);

// The object of a bound class in `from`, or nullptr.
const void* instance(pybind11::handle from, const std::type_info& type);

// The arguments of one call, given ones and defaults, in the order of the parameters.
struct Arguments {
    const struct BoundFunction& function;
    std::vector<pybind11::handle> values;

    [[noreturn]] void refuse(size_t i) const;  // TypeError that names the parameter, its type and the value
};

// Results as Python objects.
pybind11::object to_python(BoundLaunch launch);
pybind11::object to_python(BoundStepLaunch launch);
pybind11::object to_python(BoundUpdateLaunch launch);
pybind11::object to_python(int64_t value);

using AnyFunction = void (*)();

// What Python calls; `call` or `construct` alone knows the type of `function`.
struct Definition {
    AnyFunction function;
    pybind11::object (*call)(AnyFunction function, const Arguments& arguments);
    void* (*construct)(AnyFunction function, const Arguments& arguments);
    const std::type_info* const* types;  // of the parameters
    const std::type_info* result;
};

void add_function(pybind11::module_& m, const char* name, const Definition& definition, Parameters parameters);
void add_constructor(pybind11::handle cls, const Definition& definition, Parameters parameters);

template <class T, class = void>
struct IsConverted : std::false_type {};
template <class T>
struct IsConverted<T, std::void_t<decltype(convert(pybind11::handle(), std::declval<T&>()))>> : std::true_type {};

template <class T>
decltype(auto) argument(const Arguments& arguments, size_t i) {
    if constexpr (IsConverted<T>::value) {
        T value{};
        if (!convert(arguments.values[i], value)) arguments.refuse(i);
        return value;
    } else {
        const void* value = instance(arguments.values[i], typeid(T));
        if (!value) arguments.refuse(i);
        return *static_cast<const T*>(value);
    }
}

template <class R, class... A>
struct Signature {
    using Function = R (*)(A...);
    using Indices = std::index_sequence_for<A...>;

    static constexpr const std::type_info* kTypes[] = {&typeid(std::decay_t<A>)..., nullptr};

    template <size_t... I>
    static R call_with(AnyFunction function, const Arguments& arguments, std::index_sequence<I...>) {
        return reinterpret_cast<Function>(function)(argument<std::decay_t<A>>(arguments, I)...);
    }
    static pybind11::object call(AnyFunction function, const Arguments& arguments) {
        return to_python(call_with(function, arguments, Indices{}));
    }
    static void* construct(AnyFunction function, const Arguments& arguments) {
        return new R(call_with(function, arguments, Indices{}));
    }
};

template <class R, class... A>
Definition as_function(R (*function)(A...)) {
    using S = Signature<R, A...>;
    return {reinterpret_cast<AnyFunction>(function), &S::call, nullptr, S::kTypes, &typeid(R)};
}

template <class R, class... A>
Definition as_constructor(R (*function)(A...)) {
    using S = Signature<R, A...>;
    return {reinterpret_cast<AnyFunction>(function), nullptr, &S::construct, S::kTypes, &typeid(R)};
}

// m.name(...) calls `function`, a pointer or a lambda without captures.
template <class F>
void define(pybind11::module_& m, const char* name, F function, Parameters parameters) {
    add_function(m, name, as_function(+function), parameters);
}

// A class of T whose constructor calls `function`, which returns a T.
template <class T, class F>
pybind11::class_<T> define_class(pybind11::module_& m, const char* name, F function, Parameters parameters,
                                 const char* doc = "") {
    pybind11::class_<T> cls(m, name, doc);
    add_constructor(cls, as_constructor(+function), parameters);
    return cls;
}

}  // namespace layermem::cpu
