// Region-of-interest pooling.
#include "cpu/bindings/define.h"
#include "cpu/kernels/roi_pooling.h"

namespace py = pybind11;

namespace layermem::cpu {
namespace {

RoiPoolArgs roi_args(int64_t n, int64_t c, Pair size, int64_t rois, Pair out, float spatial_scale) {
    RoiPoolArgs args{};
    args.n = n;
    args.c = c;
    args.h = size.first;
    args.w = size.second;
    args.rois = rois;
    args.ho = out.first;
    args.wo = out.second;
    args.spatial_scale = spatial_scale;
    return args;
}

}  // namespace

void bind_roi_pooling(py::module_& m) {
    define(m, "roi_pool_forward",
           [](int64_t n, int64_t c, Pair size, int64_t rois, Pair out, float spatial_scale, Address y, Address x,
              Address regions, Address argmax) {
               RoiPoolArgs args = roi_args(n, c, size, rois, out, spatial_scale);
               args.out = at<float>(y);
               args.in = at<float>(x);
               args.regions = at<float>(regions);
               args.argmax = at<int32_t>(argmax);
               return BoundLaunch{roi_pool_forward(args)};
           },
           {kw_only(), arg("n"), arg("c"), arg("size"), arg("rois"), arg("out"), arg("spatial_scale"), arg("y"),
            arg("x"), arg("regions"), arg("argmax") = 0});
    define(m, "roi_pool_backward",
           [](int64_t n, int64_t c, Pair size, int64_t rois, Pair out, float spatial_scale, Address dx, Address dy,
              Address regions, Address argmax, bool accumulate) {
               RoiPoolArgs args = roi_args(n, c, size, rois, out, spatial_scale);
               args.out = at<float>(dx);
               args.in = at<float>(dy);
               args.regions = at<float>(regions);
               args.argmax = at<int32_t>(argmax);
               args.accumulate = accumulate;
               return BoundLaunch{roi_pool_backward(args)};
           },
           {kw_only(), arg("n"), arg("c"), arg("size"), arg("rois"), arg("out"), arg("spatial_scale"), arg("dx"),
            arg("dy"), arg("regions"), arg("argmax"), arg("accumulate") = false});
    define(m, "ps_roi_pool_forward",
           [](int64_t n, int64_t c, Pair size, int64_t rois, Pair out, float spatial_scale, Address y, Address x,
              Address regions) {
               RoiPoolArgs args = roi_args(n, c, size, rois, out, spatial_scale);
               args.out = at<float>(y);
               args.in = at<float>(x);
               args.regions = at<float>(regions);
               return BoundLaunch{ps_roi_pool_forward(args)};
           },
           {kw_only(), arg("n"), arg("c"), arg("size"), arg("rois"), arg("out"), arg("spatial_scale"), arg("y"),
            arg("x"), arg("regions")});
    define(m, "ps_roi_pool_backward",
           [](int64_t n, int64_t c, Pair size, int64_t rois, Pair out, float spatial_scale, Address dx, Address dy,
              Address regions, bool accumulate) {
               RoiPoolArgs args = roi_args(n, c, size, rois, out, spatial_scale);
               args.out = at<float>(dx);
               args.in = at<float>(dy);
               args.regions = at<float>(regions);
               args.accumulate = accumulate;
               return BoundLaunch{ps_roi_pool_backward(args)};
           },
           {kw_only(), arg("n"), arg("c"), arg("size"), arg("rois"), arg("out"), arg("spatial_scale"), arg("dx"),
            arg("dy"), arg("regions"), arg("accumulate") = false});
}

}  // namespace layermem::cpu
