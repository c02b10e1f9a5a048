#include "cpu/bindings/bind_update.h"

namespace py = pybind11;

namespace layermem::cpu {

void bind_update(py::module_& m) {
    define(m, "update",
           [](const std::string& rule, int64_t count, Address w, Address dw, Address h0, Address h1, float decay,
              bool l1, float momentum, float momentum2, float delta) {
               return BoundUpdateLaunch{
                   update(count, update_args(rule, w, dw, h0, h1, decay, l1, momentum, momentum2, delta))};
           },
           {arg("rule"), arg("count"), kw_only(), arg("w"), arg("dw"), arg("h0") = 0, arg("h1") = 0, arg("decay") = 0,
            arg("l1") = false, arg("momentum") = 0, arg("momentum2") = 0, arg("delta") = 0});
    define(m, "sum_of_squares",
           [](const std::vector<int64_t>& counts, Address out, const std::vector<Address>& xs, bool root) {
               return BoundLaunch{sum_of_squares(at<float>(out), at_each<const float>(xs), counts, root)};
           },
           {arg("counts"), kw_only(), arg("out"), arg("xs"), arg("root") = false});
    define(m, "row_squares",
           [](int64_t rows, int64_t elements, Address out, Address x) {
               return BoundLaunch{row_squares(rows, elements, at<float>(out), at<const float>(x))};
           },
           {arg("rows"), arg("elements"), kw_only(), arg("out"), arg("x")});
    define(m, "norm_of_rows",
           [](const std::vector<int64_t>& counts, Address out, const std::vector<Address>& squares) {
               return BoundLaunch{norm_of_rows(at<float>(out), at_each<const float>(squares), counts)};
           },
           {arg("counts"), kw_only(), arg("out"), arg("squares")});
}

}  // namespace layermem::cpu
