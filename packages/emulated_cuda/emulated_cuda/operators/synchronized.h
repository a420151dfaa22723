// The parts of nn.SyncBatchNorm: a process's own sums, and what follows from those of all.
#pragma once
#include <ATen/core/stack.h>

#include "arguments.h"
#include "special.h"

namespace emulator {

torch::jit::Stack batch_norm_stats(const Arguments& arguments, Place);
torch::jit::Stack batch_norm_gather_stats(const Arguments& arguments, Place);
torch::jit::Stack batch_norm_elements(const Arguments& arguments, Place);
torch::jit::Stack batch_norm_backward_reduce(const Arguments& arguments, Place);
torch::jit::Stack batch_norm_backward_elements(const Arguments& arguments, Place);

}  // namespace emulator
