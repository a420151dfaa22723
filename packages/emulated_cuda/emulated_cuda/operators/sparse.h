// Operators on sparse CUDA tensors (COO, CSR and their like).
#pragma once

namespace emulator {

// Gives each that computes a kernel of ours, in PyTorch's dispatcher.
void install_sparse();

}  // namespace emulator
