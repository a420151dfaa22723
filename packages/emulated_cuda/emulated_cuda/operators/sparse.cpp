// Sparse tensors: the size of a result depends on values, and half of the work is cuSPARSE's. So nothing runs in a
// shadow: all is copied to the CPU, computed there, and copied back, while the caller waits. What only looks at a
// sparse tensor, makes one or copies one is left to PyTorch (lists.h: REAL_SPARSE).
#include "sparse.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/library.h>

#include <regex>

#include "emulator.h"
#include "lists.h"
#include "views.h"
#include "work.h"

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

namespace emulator {

namespace {

const std::string PREFIX = "aten::";
constexpr int64_t NANOSECONDS = 50000;  // some launches; nothing is modeled here

// CUDA's code for sparse tensors checks that, too; the CPU's would not see it.
c10::Device common_device(const c10::FunctionSchema& schema, const Stack& arguments) {
    std::optional<c10::Device> common;
    const std::string method = "wrapper_SparseCUDA_" + schema.name().substr(PREFIX.size());
    for (size_t i = 0; i < arguments.size(); i++) {
        each_tensor(arguments[i], [&](const Tensor& tensor) {
            bool is_number = !tensor.is_cuda() && tensor.layout() == at::kStrided && tensor.dim() == 0;
            if (is_number) return;
            const std::string& name = schema.arguments()[i].name();
            c10::impl::check_and_update_common_device(common, tensor, method.c_str(), name.c_str());
        });
    }
    return common && common->is_cuda() ? *common : c10::Device(at::kCUDA, c10::cuda::current_device());
}

Tensor moved(const Tensor& tensor, c10::Device device) {
    return tensor.defined() && tensor.device() != device ? tensor.to(device) : tensor;
}

IValue moved(const IValue& value, c10::Device device) {
    if (value.isTensor()) return moved(value.toTensor(), device);
    if (value.isTensorList()) {
        c10::List<Tensor> list;
        for (const Tensor& tensor : value.toTensorVector()) list.push_back(moved(tensor, device));
        return list;
    }
    if (value.isDevice()) return device;
    return value;
}

// What an operator in place or with out= has left in the CPU's copy of its argument
void copy_back(const Tensor& cpu, const Tensor& cuda) {
    if (cuda.layout() == at::kStrided) {
        if (cuda.sizes() != cpu.sizes()) cuda.resize_(cpu.sizes());
    } else {
        at::resize_as_sparse_(cuda, cpu);
    }
    cuda.copy_(cpu);
}

bool is_written(const c10::Argument& argument) { return argument.alias_info() && argument.alias_info()->isWrite(); }

void kernel(const c10::OperatorHandle& handle, c10::DispatchKeySet, Stack* stack) {
    BelowAutograd below;
    const auto& schema = handle.schema();
    auto first = stack->end() - schema.arguments().size();
    Stack arguments(first, stack->end()), results;
    stack->erase(first, stack->end());

    c10::Device device = common_device(schema, arguments);
    c10::cuda::CUDAGuard guard(device);
    for (const IValue& argument : arguments) results.push_back(moved(argument, at::kCPU));
    Stack inputs = results;
    handle.callBoxed(&results);

    for (size_t i = 0; i < arguments.size(); i++) {
        bool is_ours =
            is_written(schema.arguments()[i]) && arguments[i].isTensor() && arguments[i].toTensor().is_cuda();
        if (is_ours) copy_back(inputs[i].toTensor(), arguments[i].toTensor());
    }
    for (const IValue& result : results) {
        IValue found;
        for (size_t i = 0; i < arguments.size(); i++) {  // an operator in place returns its argument
            bool is_same = inputs[i].isTensor() && result.isTensor() && inputs[i].toTensor().is_same(result.toTensor());
            if (is_same) found = arguments[i];
        }
        stack->push_back(found.isNone() ? moved(result, device) : found);
    }
    emulator_busy(at::cuda::getCurrentCUDAStream(device.index()), NANOSECONDS);
}

void install_for(c10::DispatchKey key) {
    auto* library = new torch::Library(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
    const std::regex real(REAL_SPARSE);
    for (const c10::OperatorName& full : c10::Dispatcher::singleton().getAllOpNames()) {
        auto handle = c10::Dispatcher::singleton().findSchema(full);
        bool is_kernel = full.name.rfind(PREFIX, 0) == 0 && handle && handle->hasKernelForDispatchKey(key);
        if (!is_kernel) continue;
        std::string base = full.name.substr(PREFIX.size());
        if (std::regex_match(base, real)) continue;
        std::string name = full.overload_name.empty() ? base : base + "." + full.overload_name;
        library->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&kernel>());
    }
}

}  // namespace

void install_sparse() {
    install_for(c10::DispatchKey::SparseCUDA);
    install_for(c10::DispatchKey::SparseCsrCUDA);
}

}  // namespace emulator
