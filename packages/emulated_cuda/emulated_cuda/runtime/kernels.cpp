// Kernels: registered with their names, never run (but for the one of torch.cuda._sleep).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "runtime.h"

static thread_local int inside = 0;
static thread_local int64_t launches = 0;
API void emulator_inside(int change) { inside += change; }
API int64_t emulator_launches() { return launches; }
API void emulator_launched() { launches++; }

// ---- what the compiled host code of a .cu file calls when its library is loaded

static std::unordered_map<const void*, const char*>& kernel_names() {
    static auto* names = new std::unordered_map<const void*, const char*>;
    return *names;
}

API void** __cudaRegisterFatBinary(void*) { return (void**)malloc(64); }
API void __cudaRegisterFatBinaryEnd(void**) {}
API void __cudaUnregisterFatBinary(void**) {}
API char __cudaInitModule(void**) { return 1; }
API void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}

API void __cudaRegisterFunction(void**, const char* host_function, char*, const char* name, int, uint3*, uint3*, dim3*,
                                dim3*, int*) {
    Lock lock;
    kernel_names()[host_function] = name;
}

API cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* host_function) {
    *kernel = (cudaKernel_t)host_function;
    return cudaSuccess;
}

// ---- kernel<<<grid, block, shared, stream>>>(…) pushes these four; the kernel's host function pops them and launches

struct Configuration {
    dim3 grid, block;
    size_t shared;
    cudaStream_t stream;
};

static std::vector<Configuration>& configurations() {
    static thread_local auto* stack = new std::vector<Configuration>;
    return *stack;
}

API unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    configurations().push_back({grid, block, shared, stream});
    return 0;
}

API cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    Configuration last = configurations().back();
    configurations().pop_back();
    *grid = last.grid;
    *block = last.block;
    *shared = last.shared;
    *(cudaStream_t*)stream = last.stream;
    return cudaSuccess;
}

// ---- launches

static const char* kernel_name(const void* host_function) {
    Lock lock;
    auto found = kernel_names().find(host_function);
    return found == kernel_names().end() ? "?" : found->second;
}

static void do_nothing(void*) {}

static cudaError_t launch(const char* name, void** arguments, cudaStream_t handle) {
    RETURN_IF_STICKY_ERROR();
    launches++;
    Stream* stream = stream_of(handle);
    if (stream->graph && stream->graph->invalid) return report(cudaErrorStreamCaptureInvalidated);
    if (strstr(name, "spin_kernel")) {  // torch.cuda._sleep: its argument is a number of cycles
        int64_t nanoseconds = *(int64_t*)arguments[0] * 1000000 / gpu().clock;
        if (stream->graph) {
            submit(stream, {do_nothing, nullptr, nullptr, nanoseconds});
        } else {
            emulator_busy(handle, nanoseconds);
        }
    } else if (!inside) {
        emulator_log("LEAK: kernel launched outside of a computed op:", name);
        static std::atomic<bool> said{false};
        bool meant = *environment("EMULATOR_RUNTIME_ONLY", "") || *environment("EMULATOR_TRITON", "");
        if (!meant && !said.exchange(true)) {
            fprintf(stderr, "Emulated device: nobody computes this kernel, results are wrong: %s\n", name);
        }
    }
    return cudaSuccess;
}

API cudaError_t cudaLaunchKernel(const void* function, dim3, dim3, void** arguments, size_t, cudaStream_t stream) {
    return launch(kernel_name(function), arguments, stream);
}

API cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3, dim3, void** arguments, size_t, cudaStream_t stream) {
    return launch(kernel_name((const void*)kernel), arguments, stream);
}

API cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void* function, void** arguments) {
    return launch(kernel_name(function), arguments, config->stream);
}

API cudaError_t cudaLaunchCooperativeKernel(const void* function, dim3, dim3, void** arguments, size_t,
                                            cudaStream_t stream) {
    return launch(kernel_name(function), arguments, stream);
}

// Kernels that PyTorch compiles at their first call (NVRTC): the driver launches them.
API CUresult cuLaunchKernel(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                            CUstream stream, void** arguments, void**) {
    return (CUresult)launch("compiled at run time", arguments, stream);
}

API cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* attributes, const void*) {
    memset(attributes, 0, sizeof *attributes);
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 32;
    attributes->ptxVersion = attributes->binaryVersion = gpu().major * 10 + gpu().minor;
    attributes->maxDynamicSharedSizeBytes = 49152;
    return cudaSuccess;
}

API cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
API cudaError_t cudaKernelSetAttributeForDevice(cudaKernel_t, cudaFuncAttribute, int, int) { return cudaSuccess; }
API cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, const void*, int block_size, size_t) {
    *blocks = std::max(1, gpu().threads_per_multiprocessor / std::max(block_size, 1));
    return cudaSuccess;
}

API cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, const void* function, int size,
                                                                       size_t shared, unsigned) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, size, shared);
}
