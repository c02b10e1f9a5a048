// The keywords of an update, which cpu.update and cpu.inner_product_backward_update share.
#pragma once
#include <string>

#include "cpu/bindings/define.h"
#include "cpu/kernels/update.h"

namespace layermem::cpu {

inline Update update_args(const std::string& rule, Address w, Address dw, Address h0, Address h1, float decay, bool l1,
                          float momentum, float momentum2, float delta) {
    Update args{};
    args.rule = update_rule(rule);
    args.w = at<float>(w);
    args.dw = at<float>(dw);
    args.h0 = at<float>(h0);
    args.h1 = at<float>(h1);
    args.decay = decay;
    args.l1 = l1;
    args.momentum = momentum;
    args.momentum2 = momentum2;
    args.delta = delta;
    return args;
}

}  // namespace layermem::cpu
