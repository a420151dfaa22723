#include "work.h"

#include <ATen/CPUGeneratorImpl.h>

#include <cstdlib>
#include <cstring>
#include <iostream>
#include <list>
#include <mutex>
#include <sstream>

#include "emulator.h"
#include "special.h"
#include "views.h"

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

namespace emulator {

Place RandomPlace::place() const {
    uint64_t seed = state_.captured_ ? *state_.seed_.ptr : state_.seed_.val;
    uint64_t offset = state_.captured_ ? *state_.offset_.ptr + state_.offset_intragraph_ : state_.offset_.val;
    return {seed, offset};
}

// ---- a memory for large products

namespace {

// Loops that measure speed compute the same large product again and again, which takes a CPU seconds each time.
class Products {
  public:
    static constexpr double MIN_FLOPS = 3e8;

    std::optional<Stack> find(const std::string& key) {
        std::lock_guard<std::mutex> lock(mutex_);
        for (auto product = products_.begin(); product != products_.end(); ++product) {
            if (product->key == key) {
                products_.splice(products_.begin(), products_, product);
                return products_.front().results;
            }
        }
        return std::nullopt;
    }

    void keep(const std::string& key, const Stack& results) {
        size_t bytes = 0;
        for (const IValue& result : results) {
            if (!result.isTensor() || !result.toTensor().defined()) return;
            bytes += result.toTensor().nbytes();
        }
        if (bytes >= MAX_BYTES) return;
        std::lock_guard<std::mutex> lock(mutex_);
        products_.push_front({key, results});
        if (products_.size() > MAX_PRODUCTS) products_.pop_back();
    }

  private:
    static constexpr size_t MAX_BYTES = 512 << 20;
    static constexpr size_t MAX_PRODUCTS = 8;
    struct Product {
        std::string key;
        Stack results;
    };
    std::list<Product> products_;  // the last used first
    std::mutex mutex_;
};

Products& products() {
    static auto* made = new Products;  // never destroyed: the device's thread may outlive static objects
    return *made;
}

// Of every byte: an input that differs in one element must not find another's product.
uint64_t hash_of(const Tensor& tensor) {
    // Four lanes with the multipliers of xxHash: as fast as memory
    constexpr uint64_t FIRST = 11400714785074694791ull, SECOND = 14029467366897019727ull;
    auto mixed = [](uint64_t hash, uint64_t word) {
        hash += word * SECOND;
        return ((hash << 31) | (hash >> 33)) * FIRST;
    };
    Tensor plain = tensor.resolve_conj().resolve_neg();
    Tensor dense = plain.is_non_overlapping_and_dense() ? plain : plain.contiguous();
    uint64_t lanes[4] = {1, 2, 3, 4};
    const char* bytes = static_cast<const char*>(dense.const_data_ptr());
    size_t size = dense.nbytes(), position = 0;
    for (; position + sizeof lanes <= size; position += sizeof lanes) {
        for (int lane = 0; lane < 4; lane++) {
            uint64_t word;
            std::memcpy(&word, bytes + position + lane * sizeof word, sizeof word);
            lanes[lane] = mixed(lanes[lane], word);
        }
    }
    uint64_t hash = size;
    for (; position < size; position++) hash = mixed(hash, bytes[position]);
    for (uint64_t lane : lanes) hash = mixed(hash, lane);
    for (int64_t length : dense.sizes()) hash = mixed(hash, length);
    for (int64_t stride : dense.strides()) hash = mixed(hash, stride);
    return mixed(hash, static_cast<uint64_t>(dense.scalar_type()));
}

}  // namespace

// ---- computing

bool Work::writes_arguments() const {
    for (bool is_written : written) {
        if (is_written) return true;
    }
    return false;
}

bool Work::has_16_bit_arguments() const {
    bool found = false;
    for (const IValue& argument : arguments) {
        each_tensor(argument, [&](const Tensor& tensor) { found |= has_16_bits(tensor.scalar_type()); });
    }
    return found;
}

std::string Work::product_key() const {
    std::ostringstream key;
    key << op.name << tf32;
    for (const IValue& argument : arguments) {
        key << '|';
        bool has_tensors = argument.isTensor() || argument.isTensorList();
        if (has_tensors) {
            each_tensor(argument, [&](const Tensor& tensor) { key << hash_of(tensor) << ','; });
        } else {
            key << argument;
        }
    }
    return key.str();
}

bool Work::is_too_large() const {
    auto limit = [](const char* variable) {
        const char* text = std::getenv(variable);
        return text ? std::atof(text) : 1e30;
    };
    static const double most_flops = limit("EMULATOR_MAX_GFLOP") * 1e9,
                        most_bytes = limit("EMULATOR_MAX_MIB") * (1 << 20);
    return flops > most_flops || bytes > most_bytes;
}

void Work::run() {
    if (!destinations.empty() && is_too_large()) {
        emulator_log("not computed, too large (EMULATOR_MAX_GFLOP, EMULATOR_MAX_MIB):", op.name.c_str());
        for (const Tensor& destination : destinations) {
            bool may_be_indices = destination.defined() && !destination.is_floating_point();
            if (may_be_indices) destination.zero_();  // a CPU kernel would follow any others
        }
        return;
    }
    std::string key;
    if (flops > Products::MIN_FLOPS && !random && !writes_arguments()) {
        key = product_key();
        if (auto known = products().find(key)) {
            results = *known;
            store();
            return;
        }
    }
    bool has_16_bits = has_16_bit_arguments();
    bool in_float32 = op.sums_in_float32 && has_16_bits;
    if (!compute(arguments, in_float32)) {
        if (has_16_bits) emulator_log("computed in float32, no CPU kernel for 16 bits:", op.name.c_str());
        compute(arguments, /*in_float32=*/true);
    }
    if (!key.empty()) products().keep(key, results);
    store();
}

// float32 copies of the 16-bit tensors among a call's inputs, and their way back.
class Raised {
  public:
    Raised(const std::vector<bool>& written, std::vector<IValue>& inputs) {
        for (size_t i = 0; i < inputs.size(); i++) {
            if (inputs[i].isTensor()) {
                inputs[i] = raised(inputs[i].toTensor(), written[i]);
            } else if (inputs[i].isTensorList()) {
                c10::List<Tensor> list;
                for (const Tensor& tensor : inputs[i].toTensorVector()) list.push_back(raised(tensor, written[i]));
                inputs[i] = list;
            }
        }
    }

    void write_back() {
        for (auto& [copy, original] : written_) original.copy_(copy);
    }

  private:
    Tensor raised(const Tensor& tensor, bool is_written) {
        if (!tensor.defined() || !has_16_bits(tensor.scalar_type())) return tensor;
        Tensor copy = tensor.to(at::kFloat);
        if (is_written) written_.emplace_back(copy, tensor);
        return copy;
    }

    std::vector<std::pair<Tensor, Tensor>> written_;
};

// False: the CPU has no such kernel for these types.
bool Work::compute(std::vector<IValue> inputs, bool in_float32) {
    std::optional<Raised> raised;
    if (in_float32) {
        raised.emplace(written, inputs);
        for (size_t i = 0; i < inputs.size(); i++) {
            bool is_type = handle.schema().arguments()[i].name() == "dtype" && inputs[i].isInt();
            bool is_narrow = is_type && has_16_bits(static_cast<at::ScalarType>(inputs[i].toInt()));
            if (is_narrow) inputs[i] = static_cast<int64_t>(at::kFloat);  // rounded when it is stored
        }
    }
    if (op.base == "_softmax" || op.base == "_log_softmax") {
        inputs[2] = false;  // half_to_float, which the CPU refuses: float32 inputs give float32 anyway
    }
    if (op.base == "_softmax_backward_data" || op.base == "_log_softmax_backward_data") {
        bool is_16_bits = has_16_bits(static_cast<at::ScalarType>(inputs[3].toInt()));
        if (is_16_bits) inputs[3] = static_cast<int64_t>(at::kFloat);  // input_dtype: rounded when it is stored
    }
    if (tf32) {
        for (size_t i = 0; i < inputs.size(); i++) {
            bool is_factor = inputs[i].isTensor() && !written[i] && inputs[i].toTensor().dim() >= 2;
            if (is_factor) inputs[i] = round_to_tf32(inputs[i].toTensor());
        }
    }
    try {
        call_kernel(inputs);
    } catch (const c10::Error& error) {
        std::string message = error.what_without_backtrace();
        bool lacks_kernel = message.find("not implemented for") != std::string::npos ||
                            message.find("mixed dtype") != std::string::npos;
        if (lacks_kernel && !in_float32) return false;
        throw;
    }
    if (raised) raised->write_back();
    return true;
}

void Work::call_kernel(const std::vector<IValue>& inputs) {
    results.clear();
    Place place = random ? random->place() : Place();
    if (compute_special(handle, inputs, place, results)) return;
    Stack stack(inputs.begin(), inputs.end());
    if (random && op.generator >= 0) {
        stack[op.generator] = std::optional<at::Generator>(at::detail::createCPUGenerator(place.mixed()));
    }
    handle.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &stack);
    results = std::move(stack);
}

void Work::store() {
    size_t next = 0;
    auto put = [&](const Tensor& result) {
        Tensor destination = next < destinations.size() ? destinations[next] : Tensor();
        next++;
        if (!destination.defined() || !result.defined()) return;
        if (destination.sizes() == result.sizes()) {
            destination.copy_(result);
        } else if (!op.other_shapes) {
            emulator_log("other shape than on CUDA:", op.name.c_str());
        }
    };
    for (const IValue& result : results) {
        if (result.isTensorList()) {
            for (const Tensor& tensor : result.toTensorVector()) put(tensor);
        } else {
            put(result.isTensor() ? result.toTensor() : Tensor());
        }
    }
}

// ---- on the device's thread

Failure::Failure(std::exception_ptr exception) {
    try {
        std::rethrow_exception(exception);
    } catch (const c10::OutOfMemoryError& error) {
        out_of_memory = true;
        message = error.what_without_backtrace();
    } catch (const c10::IndexError& error) {
        index_error = true;
        message = error.what_without_backtrace();
    } catch (const c10::Error& error) {
        message = error.what_without_backtrace();
    } catch (const std::exception& error) {
        message = error.what();
    } catch (...) {
        message = "?";
    }
}

bool Failure::asserts_on_device(const Operator& op) const {
    bool wrong_index = index_error || message.find("out of bounds") != std::string::npos ||
                       message.find("out of range") != std::string::npos;
    bool asserted = op.base == "_assert_async";
    if (!wrong_index && !asserted) return false;
    std::string condition =
        asserted ? "input[0] != 0" : "-sizes[i] <= index && index < sizes[i] && \"index out of bounds\"";
    std::string text = "/pytorch/aten/src/ATen/native/cuda/" + op.base +
                       ".cu: block: [0,0,0], thread: [0,0,0] Assertion `" + condition +
                       "` failed. (emulator: " + message + ")";
    emulator_device_assert(text.c_str());
    return true;
}

void Work::run_on_device(void* data) {
    BelowAutograd below;
    auto* work = static_cast<Work*>(data);
    try {
        work->run();
    } catch (...) {
        Failure failure(std::current_exception());
        if (!failure.asserts_on_device(work->op)) {
            emulator_log("CPU kernel failed:", (work->op.name + ": " + failure.message.substr(0, 300)).c_str());
            std::cerr << "emulator: no value for " << work->op.name << ": " << failure.message << std::endl;
        }
    }
    work->results.clear();
}

void Work::drop(void* data) { delete static_cast<Work*>(data); }

}  // namespace emulator
