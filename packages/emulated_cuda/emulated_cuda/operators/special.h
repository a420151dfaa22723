// Operators that the CPU does not have, or has with other arguments: what they compute, in operators that it has.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>

#include <vector>

namespace emulator {

// Where a CUDA generator stands: its seed, and how many numbers it has given.
struct Place {
    uint64_t seed = 0, offset = 0;

    // The seed of a generator of the CPU for the numbers from here on. They are others than those of Philox.
    uint64_t mixed() const { return seed * 1000003 + offset * 31 + 17; }
};

// Computes the operator, if it is one of these, from arguments on the CPU, and appends its results. `place`: of random
// numbers.
bool compute_special(const c10::OperatorHandle& op, const std::vector<c10::IValue>& arguments, Place place,
                     torch::jit::Stack& results);

// A float32 tensor rounded to the 10 bits of mantissa that tensor cores read of it in TF32. Other types stay.
at::Tensor round_to_tf32(const at::Tensor& tensor);

}  // namespace emulator
