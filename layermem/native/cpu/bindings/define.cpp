#include "cpu/bindings/define.h"

#include <limits>
#include <memory>

namespace py = pybind11;

namespace layermem::cpu {

// ---- values from Python ---------------------------------------------------------------------------------------------

namespace {

bool not_converted() {
    PyErr_Clear();
    return false;
}

py::object as_index(py::handle from) { return py::reinterpret_steal<py::object>(PyNumber_Index(from.ptr())); }

template <class T>
bool convert_items(py::handle from, std::vector<T>& to) {
    if (!PySequence_Check(from.ptr()) || PyUnicode_Check(from.ptr()) || PyBytes_Check(from.ptr())) return false;
    for (const py::handle item : py::reinterpret_borrow<py::sequence>(from)) {
        T value{};
        if (!convert(item, value)) return false;
        to.push_back(std::move(value));
    }
    return true;
}

template <class T>
bool convert_both(py::handle from, std::pair<T, T>& to) {
    std::vector<T> items;
    if (!convert_items(from, items) || items.size() != 2) return false;
    to = {items[0], items[1]};
    return true;
}

}  // namespace

bool convert(py::handle from, bool& to) {
    if (!PyBool_Check(from.ptr()) && !PyIndex_Check(from.ptr())) {  // numpy.bool_ is neither
        if (std::string(Py_TYPE(from.ptr())->tp_name).rfind("numpy.bool", 0) != 0) return false;
    }
    const int truth = PyObject_IsTrue(from.ptr());
    to = truth == 1;
    return truth >= 0 || not_converted();
}

bool convert(py::handle from, int64_t& to) {
    const py::object index = as_index(from);
    if (!index) return not_converted();
    to = PyLong_AsLongLong(index.ptr());
    return to != -1 || !PyErr_Occurred() || not_converted();
}

bool convert(py::handle from, uint64_t& to) {
    const py::object index = as_index(from);
    if (!index) return not_converted();
    to = PyLong_AsUnsignedLongLong(index.ptr());
    return to != std::numeric_limits<uint64_t>::max() || !PyErr_Occurred() || not_converted();
}

bool convert(py::handle from, uint32_t& to) {
    uint64_t wide = 0;
    if (!convert(from, wide) || wide > std::numeric_limits<uint32_t>::max()) return false;
    to = static_cast<uint32_t>(wide);
    return true;
}

bool convert(py::handle from, double& to) {
    to = PyFloat_AsDouble(from.ptr());
    return to != -1 || !PyErr_Occurred() || not_converted();
}

bool convert(py::handle from, float& to) {
    double wide = 0;
    if (!convert(from, wide)) return false;
    to = static_cast<float>(wide);
    return true;
}

bool convert(py::handle from, std::string& to) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_Check(from.ptr()) ? PyUnicode_AsUTF8AndSize(from.ptr(), &size) : nullptr;
    if (!text) return not_converted();
    to.assign(text, static_cast<size_t>(size));
    return true;
}

bool convert(py::handle from, std::optional<int64_t>& to) { return from.is_none() || convert(from, to.emplace()); }
bool convert(py::handle from, Pair& to) { return convert_both(from, to); }
bool convert(py::handle from, std::pair<float, float>& to) { return convert_both(from, to); }
bool convert(py::handle from, std::vector<int64_t>& to) { return convert_items(from, to); }
bool convert(py::handle from, std::vector<uint64_t>& to) { return convert_items(from, to); }
bool convert(py::handle from, std::vector<float>& to) { return convert_items(from, to); }
bool convert(py::handle from, std::vector<bool>& to) { return convert_items(from, to); }
bool convert(py::handle from, std::vector<std::vector<float>>& to) { return convert_items(from, to); }

const void* instance(py::handle from, const std::type_info& type) {
    py::detail::type_caster_generic caster(type);
    return caster.load(from, false) ? caster.value : nullptr;
}

// ---- results --------------------------------------------------------------------------------------------------------

py::object to_python(BoundLaunch launch) { return py::cast(std::move(launch)); }
py::object to_python(BoundStepLaunch launch) { return py::cast(std::move(launch)); }
py::object to_python(BoundUpdateLaunch launch) { return py::cast(std::move(launch)); }
py::object to_python(int64_t value) { return py::int_(value); }

// ---- signatures -----------------------------------------------------------------------------------------------------

namespace {

// As a docstring names the type.
std::string type_name(const std::type_info& type) {
    static const std::vector<std::pair<const std::type_info*, const char*>> kNames = {
        {&typeid(bool), "bool"},
        {&typeid(int64_t), "int"},
        {&typeid(uint64_t), "int"},
        {&typeid(uint32_t), "int"},
        {&typeid(float), "float"},
        {&typeid(double), "float"},
        {&typeid(std::string), "str"},
        {&typeid(std::optional<int64_t>), "int | None"},
        {&typeid(Pair), "tuple[int, int]"},
        {&typeid(std::pair<float, float>), "tuple[float, float]"},
        {&typeid(std::vector<int64_t>), "collections.abc.Sequence[int]"},
        {&typeid(std::vector<uint64_t>), "collections.abc.Sequence[int]"},
        {&typeid(std::vector<float>), "collections.abc.Sequence[float]"},
        {&typeid(std::vector<bool>), "collections.abc.Sequence[bool]"},
        {&typeid(std::vector<std::vector<float>>), "collections.abc.Sequence[collections.abc.Sequence[float]]"},
    };
    for (const auto& [known, name] : kNames)
        if (*known == type) return name;
    const py::handle cls = py::detail::get_type_handle(type, /*throw_if_missing=*/true);
    return cls.attr("__module__").cast<std::string>() + "." + cls.attr("__qualname__").cast<std::string>();
}

py::object default_value(const Parameter& parameter) {
    switch (parameter.kind) {
        case Parameter::Default::required: return {};
        case Parameter::Default::none: return py::none();
        case Parameter::Default::boolean: return py::bool_(parameter.first != 0);
        case Parameter::Default::integer: return py::int_(parameter.first);
        case Parameter::Default::real: return py::float_(parameter.real);
        case Parameter::Default::text: return py::str(parameter.text);
        case Parameter::Default::pair: return py::make_tuple(py::int_(parameter.first), py::int_(parameter.second));
    }
    return {};
}

}  // namespace

// A definition with its parameters.
struct BoundFunction {
    struct Bound {
        const char* name;
        const std::type_info* type;
        py::object default_value;  // null: required
    };

    std::string name;
    Definition definition;
    std::vector<Bound> parameters;
    size_t positional;  // the others are given by keyword

    BoundFunction(const char* function_name, const Definition& of, Parameters described)
        : name(function_name), definition(of), positional(described.size()) {
        for (const Parameter& parameter : described) {
            if (parameter.name)
                parameters.push_back({parameter.name, of.types[parameters.size()], default_value(parameter)});
            else
                positional = parameters.size();
        }
    }

    // "name(a: int, *, b: float = 1.0) -> result", the first line of the docstring
    std::string signature() const {
        std::string text = name + "(" + (definition.construct ? "self" : "");
        for (size_t i = 0; i < parameters.size(); ++i) {
            if (text.back() != '(') text += ", ";
            if (i == positional) text += "*, ";
            text += std::string(parameters[i].name) + ": " + type_name(*parameters[i].type);
            if (parameters[i].default_value) text += " = " + py::repr(parameters[i].default_value).cast<std::string>();
        }
        return text + ") -> " + (definition.construct ? "None" : type_name(*definition.result));
    }

    Arguments match(const py::args& args, const py::kwargs& kwargs) const {
        Arguments arguments{*this, {}};
        size_t keywords = 0;
        for (const Bound& parameter : parameters) {
            const size_t i = arguments.values.size();
            const py::handle keyword = PyDict_GetItemString(kwargs.ptr(), parameter.name);
            const bool given = i < positional && i < args.size();
            if (keyword && given) refuse("got '" + std::string(parameter.name) + "' twice");
            if (!keyword && !given && !parameter.default_value) refuse("needs '" + std::string(parameter.name) + "'");
            keywords += keyword ? 1 : 0;
            arguments.values.push_back(given     ? PyTuple_GET_ITEM(args.ptr(), static_cast<Py_ssize_t>(i))
                                       : keyword ? keyword
                                                 : parameter.default_value);
        }
        if (args.size() > positional || keywords < kwargs.size()) refuse("got arguments that it does not take");
        return arguments;
    }

    [[noreturn]] void refuse(const std::string& why) const {
        throw py::type_error(name + " " + why + ": " + signature());
    }
};

void Arguments::refuse(size_t i) const {
    const BoundFunction::Bound& parameter = function.parameters[i];
    throw py::type_error(function.name + ": '" + parameter.name + "' must be " + type_name(*parameter.type) +
                         ", but is " + py::repr(values[i]).cast<std::string>());
}

void add_function(py::module_& m, const char* name, const Definition& definition, Parameters parameters) {
    py::options options;
    options.disable_function_signatures();
    const BoundFunction bound(name, definition, parameters);
    m.attr(name) = py::cpp_function(
        [bound](const py::args& args, const py::kwargs& kwargs) {
            return bound.definition.call(bound.definition.function, bound.match(args, kwargs));
        },
        py::name(name), py::scope(m), py::doc(bound.signature().c_str()));
}

void add_constructor(py::handle cls, const Definition& definition, Parameters parameters) {
    py::options options;
    options.disable_function_signatures();
    const BoundFunction bound("__init__", definition, parameters);
    cls.attr("__init__") = py::cpp_function(
        [bound](py::detail::value_and_holder& self, const py::args& args, const py::kwargs& kwargs) {
            self.value_ptr() = bound.definition.construct(bound.definition.function, bound.match(args, kwargs));
        },
        py::name("__init__"), py::is_method(cls), py::doc(bound.signature().c_str()),
        py::detail::is_new_style_constructor());
}

}  // namespace layermem::cpu
