// Memory: the device's is address space of the host whose pages come when they are touched, so that a GPU of 140 GiB
// costs nothing; what is taken is counted against the size of the device.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <map>

#include "runtime.h"

static std::map<uintptr_t, Range>& ranges() {
    static auto* found = new std::map<uintptr_t, Range>;
    return *found;
}

static size_t used[MOST_GPUS];

bool find_range(const void* address, Range* range) {
    Lock lock;
    auto next = ranges().upper_bound((uintptr_t)address);
    if (next == ranges().begin()) return false;
    auto& [begin, found] = *std::prev(next);
    if ((uintptr_t)address >= begin + found.size) return false;
    if (range) *range = found;
    return true;
}

bool is_device_memory(const void* address) {
    Range range;
    return find_range(address, &range) && range.kind == Kind::DEVICE;
}

void add_range(uintptr_t begin, const Range& range) {
    Lock lock;
    ranges()[begin] = range;
}

void remove_ranges(uintptr_t begin, size_t size) {
    Lock lock;
    ranges().erase(ranges().lower_bound(begin), ranges().lower_bound(begin + size));
}

static size_t gib_to_bytes(double gib) { return (size_t)(gib * (1ull << 30)); }
static size_t capacity() { return gib_to_bytes(gpu().gib); }
static size_t context_bytes(int device) { return has_context(device) ? gib_to_bytes(gpu().context_gib) : 0; }

bool take_memory(int device, size_t bytes) {
    Lock lock;
    if (used[device] + bytes + context_bytes(device) > capacity()) return false;
    used[device] += bytes;
    return true;
}

void return_memory(int device, size_t bytes) {
    Lock lock;
    used[device] -= bytes;
}

size_t round_to_page(size_t bytes) { return (bytes + PAGE - 1) / PAGE * PAGE; }

void* map_pages(size_t bytes, int protection) {
    size_t size = bytes + PAGE;  // enough to begin at a multiple of PAGE; what is before and behind goes back
    void* mapped = mmap(nullptr, size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) return nullptr;
    uintptr_t begin = (uintptr_t)mapped, aligned = round_to_page(begin);
    if (aligned > begin) munmap(mapped, aligned - begin);
    if (begin + size > aligned + bytes) munmap((void*)(aligned + bytes), begin + size - aligned - bytes);
    return (void*)aligned;
}

API cudaError_t cudaMalloc(void** address, size_t bytes) {
    RETURN_IF_STICKY_ERROR();
    make_context(current_device);
    *address = nullptr;
    if (!bytes) return cudaSuccess;
    if (cudaError_t error = capture_forbids()) return report(error);
    bytes = round_to_page(bytes);
    if (!take_memory(current_device, bytes)) return report(cudaErrorMemoryAllocation);
    *address = map_pages(bytes, PROT_READ | PROT_WRITE);
    if (!*address) {
        return_memory(current_device, bytes);
        return report(cudaErrorMemoryAllocation);
    }
    add_range((uintptr_t)*address, {bytes, Kind::DEVICE, current_device, false});
    return cudaSuccess;
}

// Frees memory that begins at an address. The device may still use it: wait first, as CUDA does. Of all devices,
// because a copy between two may run on the other one's stream.
static cudaError_t free_memory(void* address, Kind kind) {
    wait_for_device(ALL_DEVICES);
    Lock lock;
    auto found = ranges().find((uintptr_t)address);
    if (found == ranges().end() || found->second.kind != kind || found->second.registered) {
        return report(cudaErrorInvalidValue);
    }
    if (kind == Kind::DEVICE) return_memory(found->second.device, found->second.size);
    munmap(address, found->second.size);
    ranges().erase(found);
    return report(surface_assert());
}

API cudaError_t cudaFree(void* address) {
    RETURN_IF_STICKY_ERROR();
    make_context(current_device);
    if (!address) return cudaSuccess;
    if (cudaError_t error = capture_forbids()) return report(error);
    return free_memory(address, Kind::DEVICE);
}

// The allocator of CUDA itself (cudaMallocAsync): without its pools, each call takes and gives back.
API cudaError_t cudaMallocAsync(void** address, size_t bytes, cudaStream_t) { return cudaMalloc(address, bytes); }
API cudaError_t cudaFreeAsync(void* address, cudaStream_t) { return cudaFree(address); }

API cudaError_t cudaDeviceGetDefaultMemPool(cudaMemPool_t* pool, int device) {
    *pool = (cudaMemPool_t)(intptr_t)(device + 1);
    return cudaSuccess;
}

API cudaError_t cudaMemPoolGetAttribute(cudaMemPool_t pool, cudaMemPoolAttr, void* value) {
    Lock lock;
    *(uint64_t*)value = used[(intptr_t)pool - 1];
    return cudaSuccess;
}

API cudaError_t cudaMemPoolSetAttribute(cudaMemPool_t, cudaMemPoolAttr, void*) { return cudaSuccess; }
API cudaError_t cudaMemPoolSetAccess(cudaMemPool_t, const cudaMemAccessDesc*, size_t) { return cudaSuccess; }
API cudaError_t cudaMemPoolTrimTo(cudaMemPool_t, size_t) { return cudaSuccess; }

API cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
    RETURN_IF_STICKY_ERROR();
    make_context(current_device);
    Lock lock;
    *total = capacity();
    *free = *total - std::min(*total, used[current_device] + context_bytes(current_device));
    return cudaSuccess;
}

API cudaError_t cudaHostAlloc(void** address, size_t bytes, unsigned) {
    RETURN_IF_STICKY_ERROR();
    make_context(current_device);
    bytes = std::max<size_t>(bytes, 1);
    void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED) return report(cudaErrorMemoryAllocation);
    add_range((uintptr_t)mapped, {bytes, Kind::HOST, current_device, false});
    *address = mapped;
    return cudaSuccess;
}

API cudaError_t cudaMallocHost(void** address, size_t bytes) { return cudaHostAlloc(address, bytes, 0); }
API cudaError_t cudaFreeHost(void* address) { return address ? free_memory(address, Kind::HOST) : cudaSuccess; }

API cudaError_t cudaHostRegister(void* address, size_t bytes, unsigned) {
    Lock lock;
    if (find_range(address)) return report(cudaErrorHostMemoryAlreadyRegistered);
    add_range((uintptr_t)address, {bytes, Kind::HOST, current_device, true});
    return cudaSuccess;
}

API cudaError_t cudaHostUnregister(void* address) {
    wait_for_device(ALL_DEVICES);
    Lock lock;
    auto found = ranges().find((uintptr_t)address);
    if (found == ranges().end() || !found->second.registered) return report(cudaErrorHostMemoryNotRegistered);
    ranges().erase(found);
    return cudaSuccess;
}

API cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
    memset(attributes, 0, sizeof *attributes);
    Range range;
    bool known = find_range(address, &range), device = known && range.kind == Kind::DEVICE;
    attributes->type = device ? cudaMemoryTypeDevice : known ? cudaMemoryTypeHost : cudaMemoryTypeUnregistered;
    attributes->device = known ? range.device : 0;
    if (known) attributes->devicePointer = (void*)address;
    if (!device) attributes->hostPointer = (void*)address;
    return cudaSuccess;
}
