// Reduction, bias gradients and ArgMax.
#include "cpu/bindings/define.h"
#include "cpu/kernels/reduction.h"
#include "cpu/kernels/stored.h"

namespace py = pybind11;

namespace layermem::cpu {

void bind_reduction(py::module_& m) {
    define(m, "reduce_workspace_bytes", &reduce_workspace_bytes, {arg("axis")});
    define(m, "reduce",
           [](const Axis& axis, const std::string& term, Address y, Address x, float factor, bool accumulate,
              Address workspace) {
               return BoundLaunch{reduce(axis, reduction_term(term), at<float>(y), at<float>(x), factor, accumulate,
                                         at<void>(workspace))};
           },
           {arg("axis"), arg("term"), kw_only(), arg("y"), arg("x"), arg("factor") = 1.0f, arg("accumulate") = false,
            arg("workspace") = 0});
    define(m, "reduce_backward",
           [](const Axis& axis, const std::string& term, Address dx, Address x, Address dy, float factor,
              bool accumulate) {
               return BoundLaunch{reduce_backward(axis, reduction_term(term), at<float>(dx), at<float>(x),
                                                  at<float>(dy), factor, accumulate)};
           },
           {arg("axis"), arg("term"), kw_only(), arg("dx"), arg("x") = 0, arg("dy"), arg("factor") = 1.0f,
            arg("accumulate") = false});
    define(m, "column_sums_workspace_bytes", &column_sums_workspace_bytes, {arg("rows"), arg("columns")});
    define(
        m, "column_sums",
        [](int64_t rows, int64_t columns, Address out, Address in, bool accumulate, Address workspace, int64_t first,
           int64_t of, Address carry, const std::string& storage) {
            return BoundLaunch{column_sums(row_slice(rows, first, of), columns, at<float>(out), at<float>(in),
                                           accumulate, at<void>(workspace), at<void>(carry), storage_named(storage))};
        },
        {arg("rows"), arg("columns"), kw_only(), arg("out"), arg("x"), arg("accumulate") = false, arg("workspace") = 0,
         arg("first") = 0, arg("of") = 0, arg("carry") = 0, arg("storage") = ""});
    define(m, "column_sums_carry_bytes", &column_sums_carry_bytes, {arg("each"), arg("rows"), arg("columns")});
    define(m, "top_k_workspace_bytes", &top_k_workspace_bytes, {arg("k")});
    define(m, "top_k",
           [](int64_t rows, int64_t size, int64_t k, Address index, Address value, Address x, int64_t inner,
              int64_t pitch, Address workspace) {
               const TopK args{
                   rows, size, k, inner, pitch ? pitch : k * inner, at<float>(index), at<float>(value), at<float>(x)};
               return BoundLaunch{top_k(args, at<void>(workspace))};
           },
           {arg("rows"), arg("size"), arg("k"), kw_only(), arg("index") = 0, arg("value") = 0, arg("x"),
            arg("inner") = 1, arg("pitch") = 0, arg("workspace")});
}

}  // namespace layermem::cpu
