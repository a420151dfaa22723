// Values for CUDA tensors whose kernels do not run. In PyTorch's dispatcher, each operator with a CUDA kernel gets
// another one, the same for all, which
// 1. runs PyTorch's own CUDA code in the "shadow" (checks, errors, allocations, random-number offsets, waits) while
//    kernels, copies and memsets do nothing;
// 2. runs the CPU's kernel on CPU views of the same memory, on the device's thread (later), and copies its results
//    to where step 1 allocated them.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/op_registration/adaption.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/cuda/CUDAGeneratorImpl.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <pybind11/pybind11.h>
#include <torch/library.h>

#include <regex>
#include <unordered_map>
#include <unordered_set>

#include "emulator.h"
#include "lists.h"
#include "sparse.h"
#include "views.h"
#include "work.h"

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

namespace emulator {

namespace {

// Filled once, by install()
std::unordered_map<c10::OperatorName, Operator>& operators() {
    static auto* table = new std::unordered_map<c10::OperatorName, Operator>;
    return *table;
}

thread_local int shadows = 0;  // operators of this thread in whose shadow we are

class Shadow {
  public:
    explicit Shadow(bool data_moves) : data_moves_(data_moves) {
        shadows++;
        emulator_inside(1);
        if (!data_moves_) emulator_shadow(1);
    }
    ~Shadow() {
        shadows--;
        emulator_inside(-1);
        if (!data_moves_) emulator_shadow(-1);
    }

  private:
    bool data_moves_;
};

bool is_written(const c10::Argument& argument) { return argument.alias_info() && argument.alias_info()->isWrite(); }

// Errors that PyTorch's CUDA code raises because the device is emulated. The CPU then computes without a shadow.
bool is_of_emulation(const Failure& failure) {
    auto speaks_of = [&](const char* word) { return failure.message.find(word) != std::string::npos; };
    if (failure.out_of_memory || speaks_of("captur") || speaks_of("assert triggered")) return false;
    for (const char* word : {"CUDA error", "CUBLAS", "INTERNAL ASSERT", "driver", "NVRTC", "cudnn", "CUDNN"}) {
        if (speaks_of(word)) return true;
    }
    return false;
}

double multiply_adds(const Operator& op, const std::vector<IValue>& arguments) {
    auto tensor = [&](int i) { return arguments.at(i).toTensor(); };
    auto columns = [](const Tensor& matrix) { return matrix.dim() > 1 ? matrix.size(1) : 1; };
    const std::string& name = op.base;
    if (name == "mm" || name == "mv" || name == "_int_mm" || name == "_scaled_mm") {
        return 1.0 * tensor(0).numel() * columns(tensor(1));
    }
    if (name == "bmm") return 1.0 * tensor(0).numel() * tensor(1).size(2);
    if (name == "baddbmm" || name == "baddbmm_") return 1.0 * tensor(1).numel() * tensor(2).size(2);
    if (name.rfind("add", 0) == 0 || name == "_addmm_activation") {
        return 1.0 * tensor(1).numel() * columns(tensor(2));
    }
    if (name.find("conv") != std::string::npos) {
        // As if the output had the size of the input; backward computes two products of that size
        bool backward = name == "convolution_backward";
        Tensor weight = tensor(backward ? 2 : 1);
        int64_t in_channels = std::max<int64_t>(1, weight.size(1));
        return (backward ? 2.0 : 1.0) * tensor(0).numel() * weight.numel() / in_channels;
    }
    if (op.attention) {  // two products, and five backward
        bool backward = name.find("backward") != std::string::npos;
        int query = backward ? 1 : 0;
        return (backward ? 5.0 : 2.0) * tensor(query).numel() * tensor(query + 1).size(-2);
    }
    return 0;
}

double count_flops(const Operator& op, const std::vector<IValue>& arguments) {
    if (!op.matmul) return 0;
    try {
        return 2 * multiply_adds(op, arguments);
    } catch (...) {
        return 0;  // shapes that the operator itself will refuse
    }
}

bool tf32_is_allowed(const Operator& op) {
    bool has_tensor_cores_for_it = at::cuda::getCurrentDeviceProperties()->major >= 8;
    if (!op.matmul || op.attention || !has_tensor_cores_for_it) return false;
    auto kind = op.base.find("conv") != std::string::npos ? at::Float32Op::CONV : at::Float32Op::MATMUL;
    try {
        return at::globalContext().float32Precision(at::Float32Backend::CUDA, kind) == at::Float32Precision::TF32;
    } catch (...) {
        return false;  // settings of PyTorch's old and new way at once, which it refuses to read
    }
}

// ---- one call of an operator on CUDA tensors

class Call {
  public:
    Call(const Operator& op, const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack arguments);

    // Returns the operator's results.
    Stack run();

  private:
    void choose_device();
    Mode choose_mode() const;
    bool draws() const;
    void take_random_numbers(Mode mode);

    bool run_in_shadow();
    void check_devices() const;
    void wait_for_values() const;

    void prepare_work();
    void choose_destinations();
    void model_duration();
    bool touches_host_memory() const;

    Stack add_to_graph();
    Stack enqueue();
    std::vector<std::pair<Tensor, Tensor>> copies_of_written() const;
    Stack compute_now();
    void follow_new_memory();
    void replace_results_of_other_shape();
    void make_results();
    Tensor make_result(const Tensor& result, std::optional<at::ScalarType> rounded_to);
    std::optional<at::ScalarType> type_of_16_bit_results() const;
    std::optional<Tensor> argument_returned_as(size_t result) const;
    void complete_cudnn_attention();

    const Operator& op_;
    const c10::OperatorHandle& handle_;
    const c10::FunctionSchema& schema_;
    c10::DispatchKeySet keys_;
    Stack arguments_;

    c10::cuda::OptionalCUDAGuard device_guard_;
    c10::Device device_{at::kCUDA, 0};
    cudaStream_t stream_ = nullptr;
    bool capturing_ = false;

    Views views_;
    std::unique_ptr<Work> work_;
    std::optional<RandomPlace> random_;
    Stack results_;           // what the operator returns
    bool allocated_ = false;  // the shadow has made the results; only their values are missing
};

Call::Call(const Operator& op, const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack arguments)
    : op_(op), handle_(handle), schema_(handle.schema()), keys_(keys), arguments_(std::move(arguments)) {}

Stack Call::run() {
    choose_device();
    Mode mode = choose_mode();
    if (draws()) take_random_numbers(mode);
    if (mode == Mode::SHADOW) {
        bool complete = run_in_shadow();
        if (complete) return results_;
    } else {
        check_devices();
        if (op_.waits) wait_for_values();
    }

    BelowAutograd below;
    prepare_work();
    if (allocated_ && capturing_) return add_to_graph();
    if (allocated_ && !touches_host_memory()) return enqueue();
    return compute_now();
}

void Call::choose_device() {
    std::optional<c10::Device> found;
    for (const IValue& argument : arguments_) {
        each_tensor(argument, [&](const Tensor& tensor) {
            if (tensor.is_cuda() && !found) found = tensor.device();
        });
    }
    for (const IValue& argument : arguments_) {
        if (!found && argument.isDevice() && argument.toDevice().is_cuda()) found = argument.toDevice();
    }
    if (found) device_guard_.set_device(*found);
    device_ = c10::Device(at::kCUDA, c10::cuda::current_device());
    stream_ = at::cuda::getCurrentCUDAStream(device_.index());
    capturing_ = emulator_capturing(stream_);
}

// An index that is a mask counts its elements on the device before anything is allocated.
Mode Call::choose_mode() const {
    bool has_mask = false;
    for (const IValue& argument : arguments_) {
        if (!argument.isList()) continue;
        each_tensor(argument, [&](const Tensor& tensor) {
            has_mask |= tensor.scalar_type() == at::kBool || tensor.scalar_type() == at::kByte;
        });
    }
    return op_.indexing && has_mask ? Mode::PURE : op_.mode;
}

// Attention without dropout needs no random numbers.
bool Call::draws() const {
    auto dropout = schema_.argumentIndexWithName("dropout_p");
    return op_.random && !(dropout && arguments_[*dropout].toDouble() == 0);
}

// Remembers where the generator stands. In the shadow, PyTorch's code moves it on; else we do, as a small kernel would.
void Call::take_random_numbers(Mode mode) {
    bool given = op_.generator >= 0 && !arguments_[op_.generator].isNone();
    at::Generator generator =
        given ? arguments_[op_.generator].toGenerator() : at::cuda::detail::getDefaultCUDAGenerator(device_.index());
    if (!generator.device().is_cuda()) return;  // PyTorch's code will refuse it
    auto* cuda_generator = at::get_generator_or_default<at::CUDAGeneratorImpl>(generator, generator);
    uint64_t numbers = mode == Mode::PURE ? 4 : 0;
    try {
        std::lock_guard<std::mutex> lock(cuda_generator->mutex_);
        random_.emplace(cuda_generator->philox_cuda_state(numbers));
    } catch (const c10::Error&) {
        if (mode == Mode::PURE) throw;  // a generator that the graph does not know; else PyTorch's code says so
    }
}

// ---- step 1: PyTorch's own code, or what it would check

// True: it has also moved the data, and nothing is left to do.
bool Call::run_in_shadow() {
    // Copies and memsets need no kernel, if strides and types agree: the runtime does them.
    bool data_moves = op_.base == "copy_" || op_.base == "zero_";
    int64_t launches = emulator_launches();
    results_ = arguments_;
    try {
        Shadow shadow(data_moves);
        op_.cuda_kernel.callBoxed(handle_, keys_, &results_);
        allocated_ = true;
    } catch (...) {
        Failure failure(std::current_exception());
        if (!is_of_emulation(failure)) throw;
        emulator_log("shadow failed:", (op_.name + ": " + failure.message.substr(0, 300)).c_str());
        results_.clear();
        cudaGetLastError();
    }
    return allocated_ && data_moves && emulator_launches() == launches;
}

// The check that PyTorch generates around each CUDA kernel, with the name that its message gives.
void Call::check_devices() const {
    bool out = !schema_.arguments().empty() && schema_.arguments().back().is_out();
    std::string method = "wrapper_CUDA_";
    if (op_.structured) {
        method += op_.base + (out ? "_out_" + schema_.overload_name() : "");
    } else {
        method +=
            (schema_.overload_name().empty() ? "_" : schema_.overload_name() + "_") + op_.base + (out ? "_out" : "");
    }
    std::optional<c10::Device> common;
    for (size_t i = 0; i < arguments_.size(); i++) {
        each_tensor(arguments_[i], [&](const Tensor& tensor) {
            bool is_index = i == 1;
            if (op_.indexing && !tensor.is_cuda() && (is_index || tensor.numel() == 1)) return;
            if (!tensor.is_cuda() && tensor.unsafeGetTensorImpl()->is_wrapped_number()) return;
            const std::string& name = schema_.arguments()[i].name();
            c10::impl::check_and_update_common_device(common, tensor, method.c_str(), name.c_str());
        });
    }
}

void Call::wait_for_values() const {
    c10::cuda::warn_or_error_on_sync();
    C10_CUDA_CHECK(cudaStreamSynchronize(stream_));
}

// ---- step 2: the CPU's kernel

void Call::prepare_work() {
    work_ = std::make_unique<Work>(op_, handle_);
    work_->random = random_;
    for (size_t i = 0; i < arguments_.size(); i++) {
        work_->arguments.push_back(views_.view(arguments_[i]));
        work_->written.push_back(is_written(schema_.arguments()[i]));
    }
    if (allocated_) choose_destinations();
    model_duration();
}

// New tensors among the results get values. What is in place or out= has the CPU's kernel as its writer.
void Call::choose_destinations() {
    std::unordered_set<c10::StorageImpl*> of_arguments;
    for (const IValue& argument : arguments_) {
        each_tensor(argument, [&](const Tensor& tensor) {
            if (tensor.is_cuda()) of_arguments.insert(tensor.storage().unsafeGetStorageImpl());
        });
    }
    auto add = [&](const Tensor& result) {
        bool is_new = result.defined() && result.is_cuda() && result.has_storage() &&
                      !of_arguments.count(result.storage().unsafeGetStorageImpl());
        work_->destinations.push_back(is_new ? views_.view(result) : Tensor());
    };
    for (const IValue& result : results_) {
        if (result.isTensorList()) {
            for (const Tensor& tensor : result.toTensorVector()) add(tensor);
        } else {
            add(result.isTensor() ? result.toTensor() : Tensor());
        }
    }
}

// What takes longer on a GPU: moving the bytes or the arithmetic.
void Call::model_duration() {
    double& bytes = work_->bytes;
    bool in_16_bits = false;
    for (const IValue& argument : arguments_) {
        each_tensor(argument, [&](const Tensor& tensor) {
            if (tensor.is_cuda()) bytes += static_cast<double>(tensor.numel()) * tensor.itemsize();
            in_16_bits |= has_16_bits(tensor.scalar_type());
        });
    }
    for (const Tensor& destination : work_->destinations) {
        if (destination.defined()) bytes += destination.nbytes();
    }
    if (op_.base == "copy_" || op_.base == "zero_") bytes = 2.0 * arguments_[0].toTensor().nbytes();

    work_->tf32 = !in_16_bits && tf32_is_allowed(op_);
    work_->flops = count_flops(op_, arguments_);
    double bandwidth, float32, tf32, half;
    emulator_rates(&bandwidth, &float32, &tf32, &half);
    double rate = in_16_bits ? half : work_->tf32 ? tf32 : float32;
    constexpr int64_t LAUNCH = 2500;  // nanoseconds: what the smallest kernel takes
    double seconds = std::max(bytes / bandwidth, work_->flops / rate);
    if (work_->is_too_large()) seconds = std::min(seconds, 2e-3);  // nobody waits for what is not computed
    work_->nanoseconds = LAUNCH + static_cast<int64_t>(seconds * 1e9);
}

// Memory of the host is read or written, as by copy_: that happens before the call returns. Single numbers do not
// count: a kernel gets them by value.
bool Call::touches_host_memory() const {
    bool found = false;
    for (size_t i = 0; i < arguments_.size(); i++) {
        bool is_list = !arguments_[i].isTensor();
        each_tensor(arguments_[i], [&](const Tensor& tensor) {
            if (tensor.is_cuda()) return;
            // what the device has yet to write to pinned memory
            bool later = op_.base == "copy_" && tensor.is_pinned();
            found |= is_list || tensor.numel() > 1 || work_->written[i] || later;
        });
    }
    return found;
}

// While a graph is captured nothing runs. Each replay does.
Stack Call::add_to_graph() {
    int64_t nanoseconds = work_->nanoseconds;
    emulator_add_node(stream_, Work::run_on_device, work_.release(), Work::drop, nanoseconds);
    return std::move(results_);
}

Stack Call::enqueue() {
    for (size_t i = 0; i < arguments_.size(); i++) {
        if (!arguments_[i].isTensor()) continue;
        const Tensor& tensor = arguments_[i].toTensor();
        if (!tensor.defined() || tensor.is_cuda()) continue;
        Tensor copy = tensor.clone();  // the caller may change it before the kernel runs
        if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) copy.unsafeGetTensorImpl()->set_wrapped_number(true);
        work_->arguments[i] = copy;
    }
    int64_t nanoseconds = work_->nanoseconds;
    emulator_enqueue(stream_, Work::run_on_device, work_.release(), Work::drop, nanoseconds);
    C10_CUDA_CHECK(cudaPeekAtLastError());
    return std::move(results_);
}

// While a graph is captured a kernel writes nothing: other tensors may live where it will write at a replay. Here it
// runs, for the sizes of its results, so what it writes to is put back.
std::vector<std::pair<Tensor, Tensor>> Call::copies_of_written() const {
    std::vector<std::pair<Tensor, Tensor>> found;
    for (size_t i = 0; i < arguments_.size(); i++) {
        if (!work_->written[i]) continue;
        each_tensor(work_->arguments[i], [&](const Tensor& view) { found.emplace_back(view, view.clone()); });
    }
    return found;
}

Stack Call::compute_now() {
    if (!capturing_) emulator_wait(stream_);
    auto before = capturing_ ? copies_of_written() : std::vector<std::pair<Tensor, Tensor>>();
    try {
        work_->run();
        for (auto& [view, copy] : before) view.copy_(copy);
    } catch (...) {
        Failure failure(std::current_exception());
        bool asserted = (allocated_ || op_.indexing) && failure.asserts_on_device(op_);
        if (asserted && allocated_) {
            C10_CUDA_CHECK(cudaPeekAtLastError());
            return std::move(results_);
        }
        emulator_log("CPU kernel failed:", (op_.name + ": " + failure.message.substr(0, 300)).c_str());
        throw;
    }
    follow_new_memory();
    if (allocated_) {
        replace_results_of_other_shape();
    } else {
        make_results();
    }
    int64_t nanoseconds = work_->nanoseconds;
    if (capturing_) {
        // Replays write to the out= tensors' CUDA memory, which is new where follow_new_memory() resized one.
        Views views;
        for (size_t i = 0; i < arguments_.size(); i++) work_->arguments[i] = views.view(arguments_[i]);
        work_->results.clear();
        emulator_add_node(stream_, Work::run_on_device, work_.release(), Work::drop, nanoseconds);
    } else {
        emulator_busy(stream_, nanoseconds);
    }
    return std::move(results_);
}

// out= tensors that the CPU's kernel has resized
void Call::follow_new_memory() {
    for (const Views::Pair& pair : views_.pairs()) {
        if (pair.cpu.sizes() == pair.cuda.sizes() && pair.cpu.storage().mutable_data() == pair.memory) continue;
        pair.cuda.resize_(pair.cpu.sizes());
        Views views;
        if (pair.cpu.numel()) views.view(pair.cuda).copy_(pair.cpu);
    }
}

void Call::replace_results_of_other_shape() {
    size_t next = 0;
    for (size_t i = 0; i < results_.size(); i++) {
        if (results_[i].isTensorList()) {
            next += results_[i].toTensorVector().size();
            continue;
        }
        Tensor destination = next < work_->destinations.size() ? work_->destinations[next] : Tensor();
        next++;
        if (!destination.defined() || i >= work_->results.size() || !work_->results[i].isTensor()) continue;
        const Tensor& computed = work_->results[i].toTensor();
        if (!computed.defined() || computed.sizes() == destination.sizes() || op_.other_shapes) continue;
        Tensor cuda = empty_on_cuda(computed, computed.scalar_type(), device_);
        views_.view(cuda).copy_(computed);
        results_[i] = cuda;
    }
}

// Without a shadow there are no CUDA results yet: they get the sizes and strides of the CPU's.
void Call::make_results() {
    auto rounded_to = type_of_16_bit_results();
    for (size_t i = 0; i < work_->results.size(); i++) {
        const IValue& result = work_->results[i];
        if (auto argument = argument_returned_as(i)) {
            results_.push_back(*argument);
            work_->destinations.push_back(Tensor());
        } else if (result.isTensor()) {
            results_.push_back(make_result(result.toTensor(), rounded_to));
        } else if (result.isTensorList()) {
            c10::List<Tensor> list;
            for (const Tensor& tensor : result.toTensorVector()) list.push_back(make_result(tensor, rounded_to));
            results_.push_back(list);
        } else {
            results_.push_back(result);
            work_->destinations.push_back(Tensor());
        }
    }
    if (op_.base == "_scaled_dot_product_cudnn_attention") complete_cudnn_attention();
}

// Also notes the new tensor as the destination of replays.
Tensor Call::make_result(const Tensor& result, std::optional<at::ScalarType> rounded_to) {
    for (const Views::Pair& pair : views_.pairs()) {
        bool is_argument = result.defined() && pair.cpu.is_same(result);
        if (!is_argument) continue;
        work_->destinations.push_back(Tensor());
        return pair.cuda;
    }
    if (!result.defined()) {
        work_->destinations.push_back(Tensor());
        return result;
    }
    if (result.layout() != at::kStrided) {
        work_->destinations.push_back(Tensor());
        return result.to(device_);
    }
    bool is_statistic = op_.base.find("batch_norm") != std::string::npos && result.dim() == 1;  // float32 on a GPU, too
    bool is_rounded = rounded_to && result.scalar_type() == at::kFloat && !is_statistic;
    Tensor cuda = empty_on_cuda(result, is_rounded ? *rounded_to : result.scalar_type(), device_);
    Tensor view = views_.view(cuda);
    if (!capturing_) view.copy_(result);
    work_->destinations.push_back(view);
    return cuda;
}

// Set where the CPU computed in float32 for 16-bit arguments: the first floating-point argument tells.
std::optional<at::ScalarType> Call::type_of_16_bit_results() const {
    std::optional<at::ScalarType> first;
    if (!op_.sums_in_float32) return first;
    for (const IValue& argument : arguments_) {
        each_tensor(argument, [&](const Tensor& tensor) {
            if (!first && tensor.is_floating_point()) first = tensor.scalar_type();
        });
    }
    return first && has_16_bits(*first) ? first : std::nullopt;
}

// The argument that an operator in place or with out= returns. The CPU may have returned a float32 copy of it.
std::optional<Tensor> Call::argument_returned_as(size_t result) const {
    if (result >= schema_.returns().size() || !is_written(schema_.returns()[result])) return std::nullopt;
    for (size_t i = 0; i < arguments_.size(); i++) {
        const c10::Argument& argument = schema_.arguments()[i];
        bool is_same = is_written(argument) &&
                       argument.alias_info()->beforeSets() == schema_.returns()[result].alias_info()->beforeSets();
        if (is_same && arguments_[i].isTensor() && arguments_[i].toTensor().defined()) return arguments_[i].toTensor();
    }
    return std::nullopt;
}

// Besides the output and its logsumexp: sizes and places in the sequence of random numbers.
void Call::complete_cudnn_attention() {
    const Tensor& query = arguments_[0].toTensor();
    const Tensor& key = arguments_[1].toTensor();
    bool drops = results_.size() > 2;
    IValue nowhere = at::empty({}, query.options().dtype(at::kLong));
    IValue seed = drops ? results_[6] : nowhere, offset = drops ? results_[7] : nowhere;
    results_ = {results_[0], results_[1], Tensor(), Tensor(), query.size(2), key.size(2), seed, offset, Tensor()};
}

// ---- the dispatcher

void kernel(const c10::OperatorHandle& handle, c10::DispatchKeySet keys, Stack* stack) {
    const Operator& op = operators().at(handle.operator_name());
    if (shadows > 0) {
        op.cuda_kernel.callBoxed(handle, keys, stack);
        return;
    }
    size_t count = handle.schema().arguments().size();
    Stack arguments(std::make_move_iterator(stack->end() - count), std::make_move_iterator(stack->end()));
    stack->erase(stack->end() - count, stack->end());
    for (IValue& result : Call(op, handle, keys, std::move(arguments)).run()) stack->push_back(std::move(result));
}

bool matches(const std::string& name, const char* list) {
    static auto* compiled = new std::unordered_map<const char*, std::regex>;
    auto known = compiled->find(list);
    if (known == compiled->end()) known = compiled->emplace(list, std::regex(list)).first;
    return std::regex_match(name, known->second);
}

Operator describe(const std::string& name, const std::string& base, const c10::OperatorHandle& handle) {
    bool pure = matches(base, PURE) && !matches(base, NOT_PURE);
    Operator op{name, base, pure ? Mode::PURE : Mode::SHADOW,
                handle.getComputedKernelForDispatchKey(c10::DispatchKey::CUDA)};
    const auto& arguments = handle.schema().arguments();
    for (size_t i = 0; i < arguments.size(); i++) {
        if (arguments[i].type()->str().find("Generator") != std::string::npos) op.generator = static_cast<int>(i);
    }
    bool forward = base.find("backward") == std::string::npos;
    op.random = op.generator >= 0 || base == "native_dropout" || (base.rfind("_scaled_dot_product", 0) == 0 && forward);
    op.sums_in_float32 = matches(base, SUMS_IN_FLOAT32);
    op.matmul = matches(base, MATMUL);
    op.waits = matches(base, WAITING);
    op.structured = matches(base, STRUCTURED);
    op.indexing = base == "index" || base == "_index_put_impl_" || base == "_unsafe_index";
    op.attention = base.rfind("_scaled_dot_product", 0) == 0;
    op.other_shapes = op.attention || base == "log_sigmoid_forward";
    return op;
}

// Returns the number of operators that are ours now.
int64_t install() {
    static auto* library = new torch::Library(torch::Library::IMPL, "aten", c10::DispatchKey::CUDA, __FILE__, __LINE__);
    auto& dispatcher = c10::Dispatcher::singleton();
    const std::string prefix = "aten::";
    for (const c10::OperatorName& full : dispatcher.getAllOpNames()) {
        if (full.name.rfind(prefix, 0) != 0) continue;
        auto handle = dispatcher.findSchema(full);
        if (!handle) continue;
        std::string base = full.name.substr(prefix.size());
        std::string name = full.overload_name.empty() ? base : base + "." + full.overload_name;
        // copy_ is one function for all devices, but it launches kernels
        if (!handle->hasKernelForDispatchKey(c10::DispatchKey::CUDA) && name != "copy_") continue;
        if (matches(name, REAL) || matches(base, REAL)) continue;
        operators().emplace(full, describe(name, base, *handle));
        library->impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&kernel>());
    }
    install_sparse();
    // Recurrent layers then run as without cuDNN: cell by cell.
    library->impl("cudnn_is_acceptable", [](const Tensor&) { return false; });
    return static_cast<int64_t>(operators().size());
}

}  // namespace

}  // namespace emulator

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) { module.def("install", &emulator::install); }
