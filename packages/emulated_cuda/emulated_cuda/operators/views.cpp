#include "views.h"

#include <ATen/core/jit_type.h>

using at::Tensor;
using c10::IValue;

namespace emulator {

Tensor Views::view(const Tensor& tensor) {
    if (!tensor.defined() || !tensor.is_cuda() || tensor.layout() != at::kStrided) return tensor;
    auto known = views_.find(tensor.unsafeGetTensorImpl());
    if (known != views_.end()) return known->second;

    auto* cuda_storage = tensor.storage().unsafeGetStorageImpl();
    auto storage = storages_.find(cuda_storage);
    if (storage == storages_.end()) {
        // It does not own the memory: as on a GPU, memory that PyTorch frees may be used again before the kernel ran,
        // and the order of the stream is what keeps that right.
        at::DataPtr memory(cuda_storage->mutable_data(), nullptr, [](void*) {}, at::kCPU);
        c10::Storage made(c10::Storage::use_byte_size_t{}, cuda_storage->nbytes(), std::move(memory),
                          c10::GetAllocator(at::kCPU), /*resizable=*/true);
        storage = storages_.emplace(cuda_storage, std::move(made)).first;
    }
    auto view = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage->second),
                                                         c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
    auto* impl = view.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
    if (tensor.is_conj()) impl->_set_conj(true);
    if (tensor.is_neg()) impl->_set_neg(true);
    views_.emplace(tensor.unsafeGetTensorImpl(), view);
    pairs_.push_back({view, tensor, storage->second.mutable_data()});
    return view;
}

// Tensor?[], as the indices of index and index_put are
static bool is_list_of_optional_tensors(const IValue& argument) {
    if (!argument.isList() || argument.toListRef().empty()) return false;
    const IValue& first = argument.toListRef()[0];
    if (!first.isTensor() && !first.isNone()) return false;
    auto type = argument.type()->cast<c10::ListType>();
    return type && type->getElementType()->kind() == c10::TypeKind::OptionalType;
}

IValue Views::view(const IValue& argument) {
    if (argument.isTensor()) return view(argument.toTensor());
    if (argument.isTensorList()) {
        c10::List<Tensor> list;
        for (const Tensor& tensor : argument.toTensorVector()) list.push_back(view(tensor));
        return list;
    }
    if (is_list_of_optional_tensors(argument)) {
        c10::List<std::optional<Tensor>> list;
        for (const IValue& element : argument.toListRef()) {
            list.push_back(element.isNone() ? std::optional<Tensor>() : view(element.toTensor()));
        }
        return list;
    }
    if (argument.isDevice() && argument.toDevice().is_cuda()) return c10::Device(at::kCPU);
    return argument;
}

void each_tensor(const IValue& argument, const std::function<void(const Tensor&)>& function) {
    auto call = [&](const Tensor& tensor) {
        if (tensor.defined()) function(tensor);
    };
    if (argument.isTensor()) {
        call(argument.toTensor());
    } else if (argument.isTensorList()) {
        for (const Tensor& tensor : argument.toTensorVector()) call(tensor);
    } else if (argument.isList()) {
        for (const IValue& element : argument.toListRef()) {
            if (element.isTensor()) call(element.toTensor());
        }
    }
}

bool has_16_bits(at::ScalarType type) { return type == at::kHalf || type == at::kBFloat16; }

Tensor empty_on_cuda(const Tensor& cpu, at::ScalarType type, c10::Device device) {
    return at::empty_strided(cpu.sizes(), cpu.strides(), cpu.options().dtype(type).device(device));
}

}  // namespace emulator
