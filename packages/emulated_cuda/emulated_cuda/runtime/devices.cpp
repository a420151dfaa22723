// The GPUs: how many, which, their properties.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>
#include <optional>

#include "runtime.h"

thread_local int current_device = 0;

// Figures of a Tesla T4, and of an H200 for compute capabilities from 9.0 on: rates that kernels reach, not peaks.
static Gpu make_gpu() {
    std::string wish = environment("EMULATOR_GPU", "Tesla T4,7.5");
    size_t comma = wish.rfind(',');
    Gpu g{};
    g.name = wish.substr(0, comma);
    g.major = 7;
    g.minor = 5;
    if (comma != std::string::npos) sscanf(wish.c_str() + comma + 1, "%d.%d", &g.major, &g.minor);
    if (g.major >= 9) {
        g.gib = 139.8;
        g.bandwidth = 4000e9;
        g.link = 52;
        g.float32 = 50e12;
        g.tf32 = 350e12;
        g.half = 700e12;
        g.multiprocessors = 132;
        g.shared_per_multiprocessor = 233472;
        g.shared_per_block = 232448;
        g.l2 = 60 << 20;
        g.bus_bits = 6144;
        g.clock = 1980000;
        g.memory_clock = 2619000;
        g.context_gib = 0.52;
    } else {
        g.gib = 14.56;
        g.bandwidth = 250e9;
        g.link = 11.8;
        g.float32 = g.tf32 = 4.5e12;
        g.half = 25e12;
        g.multiprocessors = 40;
        g.shared_per_multiprocessor = g.shared_per_block = 65536;
        g.l2 = 4 << 20;
        g.bus_bits = 256;
        g.clock = 1590000;
        g.memory_clock = 5001000;
        g.context_gib = 0.11;
    }
    g.threads_per_multiprocessor = g.major >= 8 ? 2048 : 1024;
    g.shared_reserved = g.major >= 8 ? 1024 : 0;
    if (double gib = atof(environment("EMULATOR_GPU_GIB", "0"))) g.gib = gib;
    return g;
}

const Gpu& gpu() {
    static auto* found = new Gpu(make_gpu());
    return *found;
}

API void emulator_rates(double* bandwidth, double* float32, double* tf32, double* half) {
    *bandwidth = gpu().bandwidth;
    *float32 = gpu().float32;
    *tf32 = gpu().tf32;
    *half = gpu().half;
}

// CUDA_VISIBLE_DEVICES as CUDA reads it: numbers up to the first that is none, or of no GPU; one that comes twice
// leaves no device at all.
static std::vector<int> read_visible_devices() {
    int count = std::min(atoi(environment("EMULATOR_GPUS", "1")), MOST_GPUS);
    std::vector<int> numbers;
    const char* text = getenv("CUDA_VISIBLE_DEVICES");
    if (!text) {
        for (int i = 0; i < count; i++) numbers.push_back(i);
        return numbers;
    }
    while (*text) {
        char* end;
        long number = strtol(text, &end, 10);
        if (end == text || number < 0 || number >= count) break;
        if (std::count(numbers.begin(), numbers.end(), number)) return {};
        numbers.push_back(number);
        text = end + strspn(end, " ");
        if (*text != ',') break;
        text++;
    }
    return numbers;
}

// Number of the card that a device is.
static const std::vector<int>& visible_devices() {
    static auto* numbers = new std::vector<int>(read_visible_devices());
    return *numbers;
}

int device_count() { return visible_devices().size(); }
bool is_device(int number) { return number >= 0 && number < device_count(); }

static std::atomic<bool> context_made[MOST_GPUS];
void make_context(int device) { context_made[device] = true; }
bool has_context(int device) { return context_made[device]; }

API cudaError_t cudaGetDeviceCount(int* count) {
    *count = device_count();
    return *count ? cudaSuccess : report(cudaErrorNoDevice);
}

API cudaError_t cudaGetDevice(int* device) {
    if (!device_count()) return report(cudaErrorNoDevice);
    *device = current_device;
    return cudaSuccess;
}

API cudaError_t cudaSetDevice(int device) {
    if (!is_device(device)) return report(cudaErrorInvalidDevice);
    current_device = device;
    make_context(device);  // since CUDA 12
    RETURN_IF_STICKY_ERROR();
    return cudaSuccess;
}

API cudaError_t cudaDriverGetVersion(int* version) {
    *version = atoi(environment("EMULATOR_DRIVER", "0"));
    if (!*version) *version = CUDART_VERSION;
    return cudaSuccess;
}

API cudaError_t cudaRuntimeGetVersion(int* version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

#undef cudaGetDeviceProperties  // the headers of CUDA 12 make it cudaGetDeviceProperties_v2
API cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
    if (!is_device(device)) return report(cudaErrorInvalidDevice);
    const Gpu& g = gpu();
    int card = visible_devices()[device];
    memset(p, 0, sizeof *p);
    snprintf(p->name, sizeof p->name, "%s", g.name.c_str());
    for (int i = 0; i < 16; i++) p->uuid.bytes[i] = (char)(0xA0 + i * 3 + card);
    p->pciBusID = 4 + card;
    p->major = g.major;
    p->minor = g.minor;
    p->totalGlobalMem = (size_t)(g.gib * (1ull << 30));
    p->totalConstMem = 65536;
    p->l2CacheSize = g.l2;
    p->memoryBusWidth = g.bus_bits;
    p->memPitch = 2147483647;
    p->textureAlignment = 512;
    p->multiProcessorCount = g.multiprocessors;
    p->warpSize = 32;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = g.threads_per_multiprocessor;
    p->maxBlocksPerMultiProcessor = 16;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = 2147483647;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->sharedMemPerBlock = 49152;
    p->sharedMemPerBlockOptin = g.shared_per_block;
    p->sharedMemPerMultiprocessor = g.shared_per_multiprocessor;
    p->reservedSharedMemPerBlock = g.shared_reserved;
    p->asyncEngineCount = 3;
    p->concurrentKernels = 1;
    p->unifiedAddressing = 1;
    p->managedMemory = 1;
    p->canMapHostMemory = 1;
    p->hostRegisterSupported = 1;
    p->memoryPoolsSupported = 1;
    p->streamPrioritiesSupported = 1;
    p->cooperativeLaunch = 1;
#if CUDART_VERSION < 13000  // later only attributes
    p->clockRate = g.clock;
    p->memoryClockRate = g.memory_clock;
#endif
    return cudaSuccess;
}
API cudaError_t cudaGetDeviceProperties_v2(cudaDeviceProp* p, int device) { return cudaGetDeviceProperties(p, device); }

static std::optional<int> attribute(const cudaDeviceProp& p, cudaDeviceAttr which) {
    switch (which) {
        case cudaDevAttrMaxThreadsPerBlock: return p.maxThreadsPerBlock;
        case cudaDevAttrMaxBlockDimX: return p.maxThreadsDim[0];
        case cudaDevAttrMaxBlockDimY: return p.maxThreadsDim[1];
        case cudaDevAttrMaxBlockDimZ: return p.maxThreadsDim[2];
        case cudaDevAttrMaxGridDimX: return p.maxGridSize[0];
        case cudaDevAttrMaxGridDimY: return p.maxGridSize[1];
        case cudaDevAttrMaxGridDimZ: return p.maxGridSize[2];
        case cudaDevAttrMaxSharedMemoryPerBlock: return p.sharedMemPerBlock;
        case cudaDevAttrTotalConstantMemory: return p.totalConstMem;
        case cudaDevAttrWarpSize: return p.warpSize;
        case cudaDevAttrMaxRegistersPerBlock: return p.regsPerBlock;
        case cudaDevAttrClockRate: return gpu().clock;
        case cudaDevAttrTextureAlignment: return p.textureAlignment;
        case cudaDevAttrMultiProcessorCount: return p.multiProcessorCount;
        case cudaDevAttrCanMapHostMemory: return p.canMapHostMemory;
        case cudaDevAttrConcurrentKernels: return p.concurrentKernels;
        case cudaDevAttrPciBusId: return p.pciBusID;
        case cudaDevAttrPciDeviceId: return p.pciDeviceID;
        case cudaDevAttrMemoryClockRate: return gpu().memory_clock;
        case cudaDevAttrGlobalMemoryBusWidth: return p.memoryBusWidth;
        case cudaDevAttrL2CacheSize: return p.l2CacheSize;
        case cudaDevAttrMaxThreadsPerMultiProcessor: return p.maxThreadsPerMultiProcessor;
        case cudaDevAttrAsyncEngineCount: return p.asyncEngineCount;
        case cudaDevAttrUnifiedAddressing: return p.unifiedAddressing;
        case cudaDevAttrComputeCapabilityMajor: return p.major;
        case cudaDevAttrComputeCapabilityMinor: return p.minor;
        case cudaDevAttrStreamPrioritiesSupported: return p.streamPrioritiesSupported;
        case cudaDevAttrMaxSharedMemoryPerMultiprocessor: return p.sharedMemPerMultiprocessor;
        case cudaDevAttrMaxRegistersPerMultiprocessor: return p.regsPerMultiprocessor;
        case cudaDevAttrCooperativeLaunch: return p.cooperativeLaunch;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: return p.sharedMemPerBlockOptin;
        case cudaDevAttrMaxBlocksPerMultiprocessor: return p.maxBlocksPerMultiProcessor;
        case cudaDevAttrReservedSharedMemoryPerBlock: return p.reservedSharedMemPerBlock;
        case cudaDevAttrMemoryPoolsSupported: return p.memoryPoolsSupported;
        default: return std::nullopt;
    }
}

API cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int device) {
    cudaDeviceProp properties;
    if (cudaError_t error = cudaGetDeviceProperties(&properties, device)) return error;
    std::optional<int> found = attribute(properties, which);
    if (!found) emulator_log("unknown attribute of a device:", std::to_string(which).c_str());
    *value = found.value_or(0);
    return cudaSuccess;
}

API cudaError_t cudaDeviceGetPCIBusId(char* text, int size, int device) {
    if (!is_device(device)) return report(cudaErrorInvalidDevice);
    snprintf(text, size, "00000000:%02X:00.0", 4 + visible_devices()[device]);
    return cudaSuccess;
}

API cudaError_t cudaDeviceCanAccessPeer(int* yes, int device, int peer) {
    if (!is_device(device) || !is_device(peer)) return report(cudaErrorInvalidDevice);
    *yes = device != peer && atoi(environment("EMULATOR_P2P", "0"));
    return cudaSuccess;
}

API cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) { return cudaSuccess; }

API cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
    if (least) *least = 0;
    if (greatest) *greatest = -5;
    return cudaSuccess;
}

API cudaError_t cudaProfilerStart() { return cudaSuccess; }
API cudaError_t cudaProfilerStop() { return cudaSuccess; }
