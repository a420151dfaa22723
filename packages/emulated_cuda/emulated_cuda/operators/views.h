// Tensors on the CPU that are views of CUDA memory, which here is memory of the host.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/ivalue.h>

#include <functional>
#include <unordered_map>
#include <vector>

namespace emulator {

// The views of one call. Each CUDA tensor has one view, and tensors that share a storage have views that share one: an
// operator that compares its arguments (is this output that input?) sees what it would see on CUDA.
class Views {
  public:
    struct Pair {
        at::Tensor cpu, cuda;
        void* memory;  // of the view's storage at first: out= with a wrong size makes the CPU kernel allocate
    };

    at::Tensor view(const at::Tensor& tensor);
    // The same for an argument: a tensor, a list of tensors, a device. Anything else stays as it is.
    c10::IValue view(const c10::IValue& argument);
    const std::vector<Pair>& pairs() const { return pairs_; }

  private:
    std::unordered_map<c10::StorageImpl*, c10::Storage> storages_;  // by the CUDA tensors' storage
    std::unordered_map<c10::TensorImpl*, at::Tensor> views_;        // by CUDA tensor
    std::vector<Pair> pairs_;
};

// Calls `function` for each defined tensor of an argument.
void each_tensor(const c10::IValue& argument, const std::function<void(const at::Tensor&)>& function);

// float16 or bfloat16
bool has_16_bits(at::ScalarType type);

// A new CUDA tensor with the sizes and strides of a CPU tensor.
at::Tensor empty_on_cuda(const at::Tensor& cpu, at::ScalarType type, c10::Device device);

}  // namespace emulator
