// One step of an LSTM after its inner products.
#include "cpu/bindings/define.h"
#include "cpu/kernels/recurrent.h"

namespace py = pybind11;

namespace layermem::cpu {
void bind_recurrent(py::module_& m) {
    define(m, "lstm_unit_forward",
           [](int64_t items, int64_t cells, Address next_c, Address h, Address c, Address gates, Address cont) {
               return BoundLaunch{lstm_unit_forward(
                   items, {cells, at<float>(c), at<float>(gates), at<float>(cont), at<float>(next_c), at<float>(h)})};
           },
           {arg("items"), arg("cells"), kw_only(), arg("next_c"), arg("h"), arg("c"), arg("gates"), arg("cont")});
    define(m, "lstm_unit_backward",
           [](int64_t items, int64_t cells, Address dc, Address dgates, Address c, Address gates, Address cont,
              Address d_next_c, Address dh, bool accumulate_dc, bool accumulate_dgates) {
               return BoundLaunch{lstm_unit_backward(
                   items, {cells, at<float>(c), at<float>(gates), at<float>(cont), at<float>(d_next_c), at<float>(dh),
                           at<float>(dc), at<float>(dgates), accumulate_dc, accumulate_dgates})};
           },
           {arg("items"), arg("cells"), kw_only(), arg("dc") = 0, arg("dgates") = 0, arg("c"), arg("gates"),
            arg("cont"), arg("d_next_c"), arg("dh"), arg("accumulate_dc") = false, arg("accumulate_dgates") = false});
}

}  // namespace layermem::cpu
