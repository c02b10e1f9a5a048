// The default boxes of a map of scores.
#include "cpu/bindings/define.h"
#include "cpu/kernels/prior_box.h"

namespace py = pybind11;

namespace layermem::cpu {

void bind_prior_box(py::module_& m) {
    define(
        m, "prior_box",
        [](Pair size, const std::vector<float>& widths, const std::vector<float>& heights, std::pair<float, float> step,
           float offset, Pair image, bool clip, const std::vector<float>& variance, Address y) {
            const PriorBoxes boxes{size.first, size.second, widths,       heights, step.first, step.second,
                                   offset,     image.first, image.second, clip,    variance};
            return BoundLaunch{prior_box(boxes, at<float>(y))};
        },
        {arg("size"), kw_only(), arg("widths"), arg("heights"), arg("step"), arg("offset"), arg("image"), arg("clip"),
         arg("variance"), arg("y")});
}

}  // namespace layermem::cpu
