// The driver: what c10 asks it for (contexts, virtual memory for expandable segments), and what Triton does.
#include <dlfcn.h>
#include <stdlib.h>
#include <sys/mman.h>

#include <map>

#include "runtime.h"

// PyTorch does not call it. The real libraries that it loads (cuDNN, cuFFT, NCCL…) do, and shall see no GPU.
API CUresult cuInit(unsigned) { return CUDA_ERROR_NO_DEVICE; }

API CUresult cuDriverGetVersion(int* version) { return (CUresult)cudaDriverGetVersion(version); }

// The driver's errors have the numbers of the runtime's, whose texts are in the real libcudart that PyTorch has loaded.
API CUresult cuGetErrorString(CUresult error, const char** text) {
    auto real = (const char* (*)(cudaError_t))dlsym(RTLD_DEFAULT, "cudaGetErrorString");
    *text = real ? real((cudaError_t)error) : "unknown error";
    return CUDA_SUCCESS;
}

// ---- devices and contexts: the handle of a context is the device's number + 1

API CUresult cuDeviceGet(CUdevice* device, int number) {
    *device = number;
    return CUDA_SUCCESS;
}

API CUresult cuDeviceGetAttribute(int* value, CUdevice_attribute which, CUdevice device) {
    if (which == CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED) {
        *value = 1;
        return CUDA_SUCCESS;
    }
    if (which == CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED) {
        *value = 0;
        return CUDA_SUCCESS;
    }
    return (CUresult)cudaDeviceGetAttribute(value, (cudaDeviceAttr)which, device);  // the same numbers
}

static CUcontext context_of(int device) { return (CUcontext)(intptr_t)(device + 1); }

API CUresult cuDevicePrimaryCtxGetState(CUdevice device, unsigned* flags, int* active) {
    if (!is_device(device)) return CUDA_ERROR_INVALID_DEVICE;
    *flags = 0;
    *active = has_context(device);
    return CUDA_SUCCESS;
}

API CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice device) {
    *context = context_of(device);
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetCurrent(CUcontext* context) {
    *context = context_of(current_device);
    return CUDA_SUCCESS;
}

API CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }

API CUresult cuCtxGetDevice(CUdevice* device) {
    *device = current_device;
    return CUDA_SUCCESS;
}

API CUresult cuCtxGetLimit(size_t* value, CUlimit) {
    *value = 0;
    return CUDA_SUCCESS;
}

API CUresult cuCtxSetLimit(CUlimit, size_t) { return CUDA_SUCCESS; }

// ---- virtual memory: address space and memory apart. PyTorch's expandable segments reserve much of the first, and map
// the second into it page by page.

struct Memory {
    size_t size;
    int device;
};
static std::map<CUmemGenericAllocationHandle, Memory>& memories() {
    static auto* found = new std::map<CUmemGenericAllocationHandle, Memory>;
    return *found;
}

API CUresult cuMemGetAllocationGranularity(size_t* bytes, const CUmemAllocationProp*,
                                           CUmemAllocationGranularity_flags) {
    *bytes = PAGE;
    return CUDA_SUCCESS;
}

API CUresult cuMemAddressReserve(CUdeviceptr* address, size_t size, size_t, CUdeviceptr, unsigned long long) {
    *address = (CUdeviceptr)map_pages(size, PROT_NONE);
    return *address ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

API CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
    munmap((void*)address, size);
    return CUDA_SUCCESS;
}

API CUresult cuMemCreate(CUmemGenericAllocationHandle* handle, size_t size, const CUmemAllocationProp* properties,
                         unsigned long long) {
    static CUmemGenericAllocationHandle last = 0;
    Lock lock;
    int device = properties->location.id;
    make_context(device);
    if (!take_memory(device, size)) return CUDA_ERROR_OUT_OF_MEMORY;
    *handle = ++last;
    memories()[*handle] = {size, device};
    return CUDA_SUCCESS;
}

API CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    Lock lock;
    auto found = memories().find(handle);
    if (found == memories().end()) return CUDA_ERROR_INVALID_VALUE;
    return_memory(found->second.device, found->second.size);
    memories().erase(found);
    return CUDA_SUCCESS;
}

API CUresult cuMemMap(CUdeviceptr address, size_t size, size_t, CUmemGenericAllocationHandle handle,
                      unsigned long long) {
    Lock lock;
    auto found = memories().find(handle);
    if (found == memories().end()) return CUDA_ERROR_INVALID_VALUE;
    add_range(address, {size, Kind::DEVICE, found->second.device, false});
    return CUDA_SUCCESS;
}

API CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const CUmemAccessDesc*, size_t) {
    mprotect((void*)address, size, PROT_READ | PROT_WRITE);
    return CUDA_SUCCESS;
}

API CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    madvise((void*)address, size, MADV_DONTNEED);
    mprotect((void*)address, size, PROT_NONE);
    remove_ranges(address, size);
    return CUDA_SUCCESS;
}

// ---- NVML, as far as expandable segments ask it (can the GPU share memory with others in a fabric?) and the message
// of an OutOfMemoryError (which processes use the GPU?): no, and none. It has no header here.

API int nvmlInit_v2() { return 0; }

API int nvmlDeviceGetHandleByPciBusId_v2(const char*, void** device) {
    static char handle;
    *device = &handle;
    return 0;
}

API int nvmlDeviceGetGpuFabricInfoV(void*, void*) { return 0; }  // the caller has filled in "not supported"

API int nvmlDeviceGetComputeRunningProcesses(void*, unsigned* count, void*) {
    *count = 0;
    return 0;
}

static int nvml_not_supported() {
    constexpr int NVML_ERROR_NOT_SUPPORTED = 3;
    return NVML_ERROR_NOT_SUPPORTED;
}

API int nvmlDeviceGetNvLinkRemoteDeviceType() { return nvml_not_supported(); }
API int nvmlDeviceGetNvLinkRemotePciInfo_v2() { return nvml_not_supported(); }
API int nvmlSystemGetCudaDriverVersion_v2(int* version) { return cudaDriverGetVersion(version); }

API CUresult cuPointerGetAttribute(void* value, CUpointer_attribute, CUdeviceptr address) {
    *(CUdeviceptr*)value = address;  // CU_POINTER_ATTRIBUTE_DEVICE_POINTER, which is all that Triton asks
    return CUDA_SUCCESS;
}

// ---- modules: Triton loads its kernels with them

API CUresult cuModuleLoadData(CUmodule* module, const void*) {
    *module = (CUmodule)malloc(8);
    return CUDA_SUCCESS;
}

API CUresult cuModuleGetFunction(CUfunction* function, CUmodule, const char*) {
    *function = (CUfunction)malloc(8);
    return CUDA_SUCCESS;
}

API CUresult cuFuncGetAttribute(int* value, CUfunction_attribute, CUfunction) {
    *value = 0;
    return CUDA_SUCCESS;
}

API CUresult cuFuncSetAttribute(CUfunction, CUfunction_attribute, int) { return CUDA_SUCCESS; }
API CUresult cuFuncSetCacheConfig(CUfunction, CUfunc_cache) { return CUDA_SUCCESS; }

API CUresult cuLaunchKernelEx(const CUlaunchConfig*, CUfunction, void**, void**) {
    emulator_log("a Triton kernel was launched: no values", "");
    return CUDA_SUCCESS;
}

API CUresult cuOccupancyMaxActiveClusters(int* clusters, CUfunction, const CUlaunchConfig*) {
    *clusters = 1;
    return CUDA_SUCCESS;
}

// ---- how PyTorch finds all these: by name

static CUresult missing_function() {
    emulator_log("a driver function without an implementation was called", "");
    return CUDA_ERROR_NOT_SUPPORTED;
}

API cudaError_t cudaGetDriverEntryPointByVersion(const char* symbol, void** function, unsigned, unsigned long long,
                                                 cudaDriverEntryPointQueryResult* result) {
    *function = dlsym(RTLD_DEFAULT, symbol);
    if (!*function) *function = (void*)missing_function;
    if (result) *result = cudaDriverEntryPointSuccess;
    return cudaSuccess;
}

API cudaError_t cudaGetDriverEntryPoint(const char* symbol, void** function, unsigned long long flags,
                                        cudaDriverEntryPointQueryResult* result) {
    return cudaGetDriverEntryPointByVersion(symbol, function, 0, flags, result);
}
