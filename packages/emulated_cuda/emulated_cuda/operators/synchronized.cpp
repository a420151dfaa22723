#include "synchronized.h"

using at::Tensor;
using torch::jit::Stack;

namespace emulator {

// All dimensions but that of the channels, which is the second
static std::vector<int64_t> others(const Tensor& input) {
    std::vector<int64_t> found;
    for (int64_t dim = 0; dim < input.dim(); dim++) {
        if (dim != 1) found.push_back(dim);
    }
    return found;
}

// A number for each channel, so that it meets the input's elements
static Tensor beside(const Tensor& of_channels, const Tensor& input) {
    std::vector<int64_t> sizes(input.dim(), 1);
    sizes[1] = -1;
    return of_channels.view(sizes);
}

static Tensor centered(const Arguments& arguments, const Tensor& input) {
    return input - beside(arguments.tensor("mean"), input);
}

Stack batch_norm_stats(const Arguments& arguments, Place) {
    Tensor input = arguments.first();
    Tensor variance = input.var(others(input), /*unbiased=*/false);
    return {input.mean(others(input)), (variance + arguments["eps"].toDouble()).rsqrt()};
}

// Of all processes: a row each in mean and invstd
Stack batch_norm_gather_stats(const Arguments& arguments, Place) {
    Tensor means = arguments.tensor("mean"), deviations = arguments.tensor("invstd");
    double eps = arguments["eps"].toDouble(), momentum = arguments["momentum"].toDouble();
    Tensor counts = arguments.has("counts") ? arguments.tensor("counts").to(means.scalar_type())
                                            : at::full({means.size(0)}, arguments["count"].toInt(), means.options());
    Tensor shares = (counts / counts.sum()).view({-1, 1});
    Tensor mean = (means * shares).sum(0);
    Tensor variance = ((deviations.pow(-2) - eps + (means - mean).square()) * shares).sum(0);
    if (auto running = arguments.optional("running_mean")) running->lerp_(mean.to(running->scalar_type()), momentum);
    if (auto running = arguments.optional("running_var")) {
        Tensor unbiased = variance * (counts.sum() / (counts.sum() - 1));
        running->lerp_(unbiased.to(running->scalar_type()), momentum);
    }
    return {mean, (variance + eps).rsqrt()};
}

Stack batch_norm_elements(const Arguments& arguments, Place) {
    Tensor input = arguments.first();
    Tensor out = centered(arguments, input) * beside(arguments.tensor("invstd"), input);
    if (auto weight = arguments.optional("weight")) out = out * beside(*weight, input);
    if (auto bias = arguments.optional("bias")) out = out + beside(*bias, input);
    return {out};
}

Stack batch_norm_backward_reduce(const Arguments& arguments, Place) {
    Tensor gradient = arguments.first(), input = arguments.tensor("input");
    Tensor sum = gradient.sum(others(input)), product = (gradient * centered(arguments, input)).sum(others(input));
    return {sum, product, product * arguments.tensor("invstd"), sum};
}

Stack batch_norm_backward_elements(const Arguments& arguments, Place) {
    Tensor gradient = arguments.first(), input = arguments.tensor("input"), deviation = arguments.tensor("invstd");
    Tensor count = arguments.tensor("count").sum();
    Tensor slope = arguments.tensor("sum_dy_xmu") * deviation.square() / count;
    Tensor rest = gradient - beside(arguments.tensor("sum_dy") / count, input);
    rest = (rest - centered(arguments, input) * beside(slope, input)) * beside(deviation, input);
    if (auto weight = arguments.optional("weight")) rest = rest * beside(*weight, input);
    return {rest};
}

}  // namespace emulator
