#include "special.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/TensorUtils.h>

#include <cmath>
#include <string>
#include <unordered_map>

#include "arguments.h"
#include "synchronized.h"

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

namespace emulator {

namespace {

// ---- attention

struct Attention {
    Tensor query, key, value;  // key and value with a head for each of the query's
    int64_t key_heads;         // before that: with grouped queries, fewer
    std::optional<Tensor> bias;
    bool causal;
    double scale, dropout;

    explicit Attention(const Arguments& arguments)
        : query(arguments.tensor("query")),
          key(with_heads_of_query(arguments.tensor("key"))),
          value(with_heads_of_query(arguments.tensor("value"))),
          key_heads(arguments.tensor("key").size(1)),
          bias(arguments.optional("attn_bias")),
          causal(arguments["is_causal"].toBool()),
          dropout(arguments["dropout_p"].toDouble()) {
        const IValue& given = arguments["scale"];
        scale = given.isNone() ? 1 / std::sqrt(static_cast<double>(query.size(-1))) : given.toDouble();
    }

    Tensor with_heads_of_query(const Tensor& tensor) const {
        int64_t heads = query.size(1);
        return tensor.size(1) == heads ? tensor : tensor.repeat_interleave(heads / tensor.size(1), 1);
    }

    // The gradient of a key or value that several heads shared
    Tensor sum_over_group(const Tensor& gradient) const {
        if (gradient.size(1) == key_heads) return gradient;
        return gradient.view({gradient.size(0), key_heads, -1, gradient.size(2), gradient.size(3)}).sum(2);
    }

    Tensor probabilities(Tensor* logsumexp = nullptr) const {
        Tensor scores = at::matmul(query, key.transpose(-2, -1)) * scale;
        if (bias) scores = scores + *bias;
        if (causal) {
            Tensor visible = at::ones({query.size(-2), key.size(-2)}, at::kBool).tril();
            scores = scores.masked_fill(visible.logical_not(), -INFINITY);
        }
        Tensor sums = at::logsumexp(scores, {-1}, /*keepdim=*/true);
        if (logsumexp) *logsumexp = sums.squeeze(-1);
        return (scores - sums).exp().nan_to_num(0.0);  // a row that sees nothing: 0, as the fused kernels give
    }

    // The probabilities, or their gradient, with the elements dropped that `place` chooses
    Tensor dropped(const Tensor& probabilities, Place place) const {
        if (dropout == 0) return probabilities;
        Tensor kept = at::empty(probabilities.sizes(), at::kBool);
        kept.bernoulli_(1 - dropout, at::detail::createCPUGenerator(place.mixed()));
        return probabilities * kept * (dropout < 1 ? 1 / (1 - dropout) : 0.0);
    }
};

// What the backward pass needs to drop the same elements, under the names that these operators give it
IValue part_of_place(const std::string& name, Place place) {
    auto seed = static_cast<int64_t>(place.seed), offset = static_cast<int64_t>(place.offset);
    if (name == "rng_state") return at::tensor({seed, offset}, at::kLong);
    if (name == "philox_seed") return at::scalar_tensor(seed, at::kLong);
    if (name == "philox_offset") return at::scalar_tensor(offset, at::kLong);
    return {};
}

Place place_of_forward(const Arguments& arguments) {
    Tensor seed = arguments.tensor("philox_seed").to(at::kLong),
           offset = arguments.tensor("philox_offset").to(at::kLong);
    bool both = seed.numel() == 2;  // FlashAttention's rng_state
    auto number = [](const Tensor& tensor) { return static_cast<uint64_t>(tensor.item<int64_t>()); };
    return both ? Place{number(seed[0]), number(seed[1])} : Place{number(seed), number(offset)};
}

Stack attention_forward(const Arguments& arguments, Place place) {
    Attention attention(arguments);
    Tensor logsumexp;
    Tensor out = at::matmul(attention.dropped(attention.probabilities(&logsumexp), place), attention.value);
    out = out.transpose(1, 2).contiguous().transpose(1, 2);  // strides as those of the fused kernels
    Stack results{out, logsumexp};
    for (size_t i = 2; attention.dropout > 0 && i < arguments.returns().size(); i++) {
        results.push_back(part_of_place(arguments.returns()[i].name(), place));
    }
    return results;
}

Stack attention_backward(const Arguments& arguments, Place) {
    Attention attention(arguments);
    Place place = attention.dropout > 0 ? place_of_forward(arguments) : Place();
    Tensor gradient = arguments.first(), out = arguments.tensor("out");
    Tensor probabilities = attention.probabilities();
    Tensor of_probabilities = attention.dropped(at::matmul(gradient, attention.value.transpose(-2, -1)), place);
    Tensor of_scores = probabilities * (of_probabilities - (gradient * out).sum(-1, /*keepdim=*/true));
    Stack results{
        at::matmul(of_scores, attention.key) * attention.scale,
        attention.sum_over_group(at::matmul(of_scores.transpose(-2, -1), attention.query) * attention.scale),
        attention.sum_over_group(at::matmul(attention.dropped(probabilities, place).transpose(-2, -1), gradient))};
    if (arguments.has("grad_input_mask")) {  // the memory-efficient kernel, which can learn its bias
        results.push_back(attention.bias ? at::sum_to(of_scores, attention.bias->sizes()) : Tensor());
    }
    return results;
}

// ---- what the CPU computes in another way

Stack rms_norm_backward(const Arguments& arguments, Place) {
    Tensor gradient = arguments.first(), input = arguments.tensor("input");
    auto weight = arguments.optional("weight");
    Tensor normalized = input * arguments.tensor("rstd");
    Tensor weighted = weight ? gradient * *weight : gradient;
    int64_t dims = input.dim(), dims_of_norm = arguments.integers("normalized_shape").size();
    std::vector<int64_t> outer, inner;
    for (int64_t dim = 0; dim < dims; dim++) (dim < dims - dims_of_norm ? outer : inner).push_back(dim);
    Tensor mean = (weighted * normalized).mean(inner, /*keepdim=*/true);
    Tensor of_weight = gradient * normalized;
    if (!outer.empty()) of_weight = of_weight.sum(outer);
    return {(weighted - normalized * mean) * arguments.tensor("rstd"), weight ? of_weight : Tensor()};
}

// The CPU's takes a buffer that its forward has filled. CUDA's leaves it empty.
Stack log_sigmoid_backward(const Arguments& arguments, Place) {
    return {arguments.tensor("grad_output") * arguments.tensor("self").neg().sigmoid()};
}

// ---- dropout

Stack dropout(const Arguments& arguments, Place place) {
    Tensor input = arguments.tensor("input");
    double probability = arguments["p"].toDouble();
    const IValue& train = arguments["train"];
    if (!train.isNone() && !train.toBool()) return {input.clone(), at::ones(input.sizes(), at::kBool)};
    Tensor mask =
        at::empty(input.sizes(), at::kBool).bernoulli_(1 - probability, at::detail::createCPUGenerator(place.mixed()));
    return {input * mask * (probability < 1 ? 1 / (1 - probability) : 0.0), mask};
}

// ---- cuDNN

Tensor convolve(const Arguments& arguments, const std::optional<Tensor>& bias, const c10::IValue& groups,
                bool transposed = false) {
    auto padding = arguments.integers("padding");
    auto output_padding = transposed ? arguments.integers("output_padding") : std::vector<int64_t>(padding.size(), 0);
    return at::convolution(arguments.first(), arguments.tensor("weight"), bias, arguments.integers("stride"), padding,
                           arguments.integers("dilation"), transposed, output_padding, groups.toInt());
}

Stack convolution(const Arguments& arguments, Place) { return {convolve(arguments, {}, arguments["groups"])}; }

Stack transposed_convolution(const Arguments& arguments, Place) {
    return {convolve(arguments, {}, arguments["groups"], /*transposed=*/true)};
}

Stack convolution_relu(const Arguments& arguments, Place) {
    return {convolve(arguments, arguments.optional("bias"), arguments["groups"]).relu()};
}

Stack convolution_add_relu(const Arguments& arguments, Place) {
    Tensor out = convolve(arguments, arguments.optional("bias"), arguments["groups"]);
    const IValue& alpha = arguments["alpha"];
    return {out.add(arguments.tensor("z"), alpha.isNone() ? at::Scalar(1) : alpha.toScalar()).relu()};
}

Stack depthwise_convolution(const Arguments& arguments, Place) {
    return {convolve(arguments, arguments.optional("bias"), arguments.first().size(1))};
}

Stack batch_norm(const Arguments& arguments, Place) {
    auto [out, mean, inverse_deviation] = at::native_batch_norm(
        arguments.tensor("input"), arguments.optional("weight"), arguments.optional("bias"),
        arguments.optional("running_mean"), arguments.optional("running_var"), arguments["training"].toBool(),
        arguments["exponential_average_factor"].toDouble(), arguments["epsilon"].toDouble());
    return {out, mean, inverse_deviation, at::empty({0}, at::kByte)};
}

Stack batch_norm_backward(const Arguments& arguments, Place) {
    auto [input, weight, bias] = at::native_batch_norm_backward(
        arguments.tensor("grad_output"), arguments.tensor("input"), arguments.optional("weight"),
        arguments.optional("running_mean"), arguments.optional("running_var"), arguments.optional("save_mean"),
        arguments.optional("save_var"), /*train=*/true, arguments["epsilon"].toDouble(), {true, true, true});
    return {input, weight, bias};
}

// nn.functional.grid_sample where its arguments are those of most: cuDNN's has no others.
constexpr int64_t BILINEAR = 0, ZEROS = 0;

Stack grid_sampler(const Arguments& arguments, Place) {
    return {at::grid_sampler_2d(arguments.first(), arguments.tensor("grid"), BILINEAR, ZEROS, /*align_corners=*/true)};
}

Stack grid_sampler_backward(const Arguments& arguments, Place) {
    auto [input, grid] =
        at::grid_sampler_2d_backward(arguments.tensor("grad_output"), arguments.first(), arguments.tensor("grid"),
                                     BILINEAR, ZEROS, /*align_corners=*/true, {true, true});
    return {input, grid};
}

// ---- cells of recurrent layers. The workspaces have the sizes of CUDA's and are read by `backward` alone.

std::vector<Tensor> gates(const Arguments& arguments, const char* gates, const char* bias, int count) {
    Tensor found = arguments.tensor(gates);
    if (auto added = arguments.optional(bias)) found = found + *added;
    return found.chunk(count, 1);
}

Stack lstm_cell(const Arguments& arguments, Place) {
    auto input = gates(arguments, "input_gates", "input_bias", 4);
    auto hidden = gates(arguments, "hidden_gates", "hidden_bias", 4);
    Tensor in = (input[0] + hidden[0]).sigmoid(), forget = (input[1] + hidden[1]).sigmoid();
    Tensor cell = (input[2] + hidden[2]).tanh(), out = (input[3] + hidden[3]).sigmoid();
    Tensor cy = forget * arguments.tensor("cx") + in * cell;
    return {out * cy.tanh(), cy, at::cat({in, forget, cell, out}, 1)};
}

Stack lstm_cell_backward(const Arguments& arguments, Place) {
    auto saved = arguments.tensor("workspace").chunk(4, 1);
    const Tensor &in = saved[0], &forget = saved[1], &cell = saved[2], &out = saved[3];
    Tensor cx = arguments.tensor("cx"), tanh = arguments.tensor("cy").tanh();
    Tensor grad_hy = arguments.optional("grad_hy").value_or(at::zeros_like(cx));
    Tensor grad = arguments.optional("grad_cy").value_or(at::zeros_like(cx)) + grad_hy * out * (1 - tanh * tanh);
    Tensor of_gates = at::cat({grad * cell * in * (1 - in), grad * cx * forget * (1 - forget),
                               grad * in * (1 - cell * cell), grad_hy * tanh * out * (1 - out)},
                              1);
    return {of_gates, grad * forget, arguments["has_bias"].toBool() ? of_gates.sum(0) : Tensor()};
}

Stack gru_cell(const Arguments& arguments, Place) {
    auto input = gates(arguments, "input_gates", "input_bias", 3);
    auto hidden = gates(arguments, "hidden_gates", "hidden_bias", 3);
    Tensor reset = (input[0] + hidden[0]).sigmoid(), update = (input[1] + hidden[1]).sigmoid();
    Tensor fresh = (input[2] + reset * hidden[2]).tanh(), hx = arguments.tensor("hx");
    return {fresh + update * (hx - fresh), at::cat({reset, update, fresh, hx, hidden[2]}, 1)};
}

Stack gru_cell_backward(const Arguments& arguments, Place) {
    auto saved = arguments.tensor("workspace").chunk(5, 1);
    const Tensor &reset = saved[0], &update = saved[1], &fresh = saved[2], &hx = saved[3], &hidden = saved[4];
    Tensor grad = arguments.tensor("grad_hy");
    Tensor of_update = grad * (hx - fresh) * update * (1 - update);
    Tensor of_fresh = grad * (1 - update) * (1 - fresh * fresh);
    Tensor of_reset = of_fresh * hidden * reset * (1 - reset);
    Tensor of_input = at::cat({of_reset, of_update, of_fresh}, 1);
    Tensor of_hidden = at::cat({of_reset, of_update, of_fresh * reset}, 1);
    bool bias = arguments["has_bias"].toBool();
    return {of_input, of_hidden, grad * update, bias ? of_input.sum(0) : Tensor(), bias ? of_hidden.sum(0) : Tensor()};
}

using Special = Stack (*)(const Arguments&, Place);
const std::unordered_map<std::string, Special>& specials() {
    static const std::unordered_map<std::string, Special> functions = {
        {"aten::_scaled_dot_product_flash_attention", attention_forward},
        {"aten::_scaled_dot_product_efficient_attention", attention_forward},
        {"aten::_scaled_dot_product_cudnn_attention", attention_forward},
        {"aten::_scaled_dot_product_flash_attention_backward", attention_backward},
        {"aten::_scaled_dot_product_efficient_attention_backward", attention_backward},
        {"aten::_scaled_dot_product_cudnn_attention_backward", attention_backward},
        {"aten::native_dropout", dropout},
        {"aten::_fused_rms_norm_backward", rms_norm_backward},
        {"aten::log_sigmoid_backward", log_sigmoid_backward},
        {"aten::cudnn_convolution", convolution},
        {"aten::cudnn_convolution_transpose", transposed_convolution},
        {"aten::cudnn_convolution_relu", convolution_relu},
        {"aten::cudnn_convolution_add_relu", convolution_add_relu},
        {"aten::_conv_depthwise2d", depthwise_convolution},
        {"aten::conv_depthwise3d", depthwise_convolution},
        {"aten::cudnn_batch_norm", batch_norm},
        {"aten::cudnn_batch_norm_backward", batch_norm_backward},
        {"aten::cudnn_grid_sampler", grid_sampler},
        {"aten::cudnn_grid_sampler_backward", grid_sampler_backward},
        {"aten::batch_norm_stats", batch_norm_stats},
        {"aten::batch_norm_gather_stats", batch_norm_gather_stats},
        {"aten::batch_norm_gather_stats_with_counts", batch_norm_gather_stats},
        {"aten::batch_norm_elemt", batch_norm_elements},
        {"aten::batch_norm_backward_reduce", batch_norm_backward_reduce},
        {"aten::batch_norm_backward_elemt", batch_norm_backward_elements},
        {"aten::_thnn_fused_lstm_cell", lstm_cell},
        {"aten::_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward},
        {"aten::_thnn_fused_gru_cell", gru_cell},
        {"aten::_thnn_fused_gru_cell_backward", gru_cell_backward},
    };
    return functions;
}

}  // namespace

bool compute_special(const c10::OperatorHandle& op, const std::vector<IValue>& arguments, Place place, Stack& results) {
    const auto& schema = op.schema();
    if (!schema.overload_name().empty()) return false;  // out=: nothing in PyTorch calls these
    auto found = specials().find(schema.name());
    if (found == specials().end()) return false;
    for (IValue& result : found->second(Arguments(schema, arguments), place)) results.push_back(std::move(result));
    return true;
}

Tensor round_to_tf32(const Tensor& tensor) {
    if (tensor.scalar_type() != at::kFloat) return tensor;
    Tensor bits = tensor.contiguous().view(at::kInt);
    Tensor last_kept = bits.bitwise_right_shift(13).bitwise_and(1);  // ties go to the even neighbor
    return (bits + 0xFFF + last_kept).bitwise_and(~0x1FFF).view(at::kFloat);
}

}  // namespace emulator
