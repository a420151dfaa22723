// Operators that the CPU does not have, or has with other arguments: what they compute, in operators that it has.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

namespace emulator {

// Computes the operator, if it is one of these, from arguments on the CPU, and appends its results. `seed`: for random
// numbers.
bool compute_special(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, uint64_t seed,
                     torch::jit::Stack& results);

// A float32 tensor rounded to the 10 bits of mantissa that tensor cores read of it in TF32. Other types stay.
at::Tensor round_to_tf32(const at::Tensor& tensor);

}  // namespace emulator
