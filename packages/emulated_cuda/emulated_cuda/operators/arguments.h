// The arguments of one call.
#pragma once
#include <ATen/ATen.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

#include <optional>
#include <string>
#include <vector>

namespace emulator {

// A call's arguments by the names in its schema: positions differ between operators and versions of PyTorch.
class Arguments {
  public:
    Arguments(const c10::FunctionSchema& schema, const std::vector<c10::IValue>& values)
        : schema_(schema), values_(values) {}

    const c10::IValue& operator[](const char* name) const {
        auto index = schema_.argumentIndexWithName(name);
        TORCH_CHECK(index, "emulator: ", schema_.name(), " has no argument ", name);
        return values_.at(*index);
    }
    bool has(const char* name) const { return schema_.argumentIndexWithName(name).has_value(); }
    at::Tensor tensor(const char* name) const { return (*this)[name].toTensor(); }
    std::optional<at::Tensor> optional(const char* name) const {
        if (!has(name) || (*this)[name].isNone()) return std::nullopt;
        at::Tensor found = tensor(name);
        return found.defined() ? std::optional<at::Tensor>(found) : std::nullopt;
    }
    std::vector<int64_t> integers(const char* name) const { return (*this)[name].toIntVector(); }
    at::Tensor first() const { return values_.at(0).toTensor(); }
    const std::vector<c10::Argument>& returns() const { return schema_.returns(); }

  private:
    const c10::FunctionSchema& schema_;
    const std::vector<c10::IValue>& values_;
};

}  // namespace emulator
