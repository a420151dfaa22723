// One computation on the CPU in place of a CUDA kernel: now, later on the device's thread, or at each replay of a
// graph.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <ATen/cuda/PhiloxCudaState.h>
#include <ATen/record_function.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "special.h"

namespace emulator {

enum class Mode {
    SHADOW,  // the CUDA code runs first, for its checks, errors and allocations, without kernels
    PURE,    // only the CPU's kernel runs
};

// What is known of an operator from the start.
struct Operator {
    std::string name;  // "add.out"
    std::string base;  // "add"
    Mode mode;
    c10::SafeKernelFunction cuda_kernel;  // PyTorch's own
    int generator = -1;                   // which argument is a Generator; -1: none
    bool random = false;                  // draws random numbers, with or without such an argument
    bool sums_in_float32 = false;         // lists.h: SUMS_IN_FLOAT32
    bool matmul = false;                  // lists.h: MATMUL
    bool waits = false;                   // lists.h: WAITING
    bool structured = false;              // lists.h: STRUCTURED
    bool indexing = false;                // takes a list of index tensors
    bool attention = false;
    bool other_shapes = false;  // some results are CUDA's own business: workspaces, padded
};

// Where a CUDA generator stands. Kernels in a graph read that at each replay, from memory that PyTorch fills before.
class RandomPlace {
  public:
    explicit RandomPlace(at::PhiloxCudaState state) : state_(state) {}
    Place place() const;

  private:
    at::PhiloxCudaState state_;
};

struct Work {
    const Operator& op;
    c10::OperatorHandle handle;
    std::vector<c10::IValue> arguments;    // of CPU views
    std::vector<bool> written;             // for each argument: in place or out=
    std::vector<at::Tensor> destinations;  // views that results are copied to; undefined: nowhere
    std::optional<RandomPlace> random;
    bool tf32 = false;
    double flops = 0, bytes = 0;  // what a GPU would compute, read and write
    int64_t nanoseconds = 0;      // on the emulated GPU
    torch::jit::Stack results;

    Work(const Operator& op, const c10::OperatorHandle& handle) : op(op), handle(handle) {}

    // Computes `results` and copies them to their destinations.
    void run();
    bool writes_arguments() const;
    bool is_too_large() const;  // to be computed

    // For the runtime: these own the Work that `data` points to.
    static void run_on_device(void* data);  // errors become a device-side assertion or a line in the log
    static void drop(void* data);

  private:
    bool has_16_bit_arguments() const;
    bool compute(std::vector<c10::IValue> inputs, bool in_float32);
    void call_kernel(const std::vector<c10::IValue>& inputs);
    std::string product_key() const;
    void store();
};

// Inside: no autograd, no autocast, no Python modes, no profiler. All that has seen the call already, on CUDA.
struct BelowAutograd {
    c10::impl::ExcludeDispatchKeyGuard keys{c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                            c10::autocast_dispatch_keyset | c10::python_ks |
                                            c10::DispatchKeySet(c10::DispatchKey::Functionalize)};
    at::DisableRecordFunctionGuard no_profiler;
};

// An exception in words, and its kind.
struct Failure {
    explicit Failure(std::exception_ptr exception);
    std::string message;
    bool out_of_memory = false;
    bool index_error = false;

    // A GPU finds a wrong index in a kernel, and what torch._assert_async refuses. If that is what happened: starts a
    // device-side assertion, returns true.
    bool asserts_on_device(const Operator& op) const;
};

}  // namespace emulator
