// Copies and memsets.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "runtime.h"

static thread_local int shadow = 0;
API void emulator_shadow(int change) { shadow += change; }

struct Copy {
    char* to;
    const char* from;
    size_t width, height;         // rows of width bytes…
    size_t to_pitch, from_pitch;  // …that begin so far apart
    char* staged;                 // a copy of the source, to be freed
};

static void copy_rows(const Copy& copy) {
    for (size_t row = 0; row < copy.height; row++) {
        memmove(copy.to + row * copy.to_pitch, copy.from + row * copy.from_pitch, copy.width);
    }
}

static void run_copy(void* data) { copy_rows(*(Copy*)data); }

static void drop_copy(void* data) {
    free(((Copy*)data)->staged);
    delete (Copy*)data;
}

Task copy_task(void* to, const void* from, size_t bytes, int64_t nanoseconds) {
    return {run_copy, new Copy{(char*)to, (const char*)from, bytes, 1, bytes, bytes, nullptr}, drop_copy, nanoseconds};
}

// CUDA copies so much from pageable memory before it returns (into a buffer of its own), and reads what is larger
// while the caller waits.
constexpr size_t STAGED_BYTES = 65536;

static cudaError_t copy_async(Copy copy, cudaStream_t handle) {
    RETURN_IF_STICKY_ERROR();
    size_t bytes = copy.width * copy.height;
    if (!bytes) return cudaSuccess;
    Range to, from;
    bool to_known = find_range(copy.to, &to), from_known = find_range(copy.from, &from);
    bool to_device = to_known && to.kind == Kind::DEVICE, from_device = from_known && from.kind == Kind::DEVICE;
    if (shadow && to_device) return cudaSuccess;

    bool pageable = (to_device && !from_known) || (from_device && !to_known);
    double rate = gpu().link;                                    // bytes a nanosecond
    if (pageable) rate /= 2;                                     // through a pinned buffer
    if (to_device && from_device) rate = gpu().bandwidth / 2e9;  // reads and writes
    int64_t nanoseconds = (int64_t)(1500 + bytes / rate);

    Stream* stream = stream_of(handle);
    if (stream->graph) {
        if (stream->graph->invalid) return report(cudaErrorStreamCaptureInvalidated);
        if (pageable) return break_capture(stream);
    } else if (!to_device && !from_device) {
        wait_for_work(stream->busy_until);
        copy_rows(copy);
        return cudaSuccess;
    }

    bool wait = pageable && (from_device || bytes > STAGED_BYTES);
    if (pageable && !wait) {
        copy.staged = (char*)malloc(bytes);
        copy_rows({copy.staged, copy.from, copy.width, copy.height, copy.width, copy.from_pitch, nullptr});
        copy.from = copy.staged;
        copy.from_pitch = copy.width;
    }
    submit(stream, {run_copy, new Copy(copy), drop_copy, nanoseconds});
    if (wait) wait_for_work(stream->busy_until);
    return wait && from_device ? report(surface_assert()) : cudaSuccess;
}

// The direction is not asked: every address tells whose it is (unified addressing).
API cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind, cudaStream_t stream) {
    return copy_async({(char*)to, (const char*)from, bytes, 1, bytes, bytes, nullptr}, stream);
}

API cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                                  size_t height, cudaMemcpyKind, cudaStream_t stream) {
    return copy_async({(char*)to, (const char*)from, width, height, to_pitch, from_pitch, nullptr}, stream);
}

API cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t bytes, cudaStream_t stream) {
    return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}

API cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
    cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
    return error ? error : cudaStreamSynchronize(nullptr);
}

struct Fill {
    char* to;
    int value;
    size_t bytes;
    bool ours;  // memory of the device: pages that we have mapped
};

static void run_fill(void* data) {
    auto [to, value, bytes, ours] = *(Fill*)data;
    constexpr uintptr_t host_page = 4096;
    constexpr size_t large = 64 << 20;
    char* begin = (char*)(((uintptr_t)to + host_page - 1) / host_page * host_page);
    char* end = (char*)(((uintptr_t)to + bytes) / host_page * host_page);
    if (!ours || value != 0 || end < begin + large) {
        memset(to, value, bytes);
        return;
    }
    // Whole pages of zeros: given back, they read as zeros, and take no memory of the host until they are written.
    memset(to, 0, begin - to);
    madvise(begin, end - begin, MADV_DONTNEED);
    memset(end, 0, to + bytes - end);
}

static void drop_fill(void* data) { delete (Fill*)data; }

API cudaError_t cudaMemsetAsync(void* to, int value, size_t bytes, cudaStream_t handle) {
    RETURN_IF_STICKY_ERROR();
    if (!bytes || shadow) return cudaSuccess;
    Stream* stream = stream_of(handle);
    if (stream->graph && stream->graph->invalid) return report(cudaErrorStreamCaptureInvalidated);
    auto* fill = new Fill{(char*)to, value, bytes, is_device_memory(to)};
    submit(stream, {run_fill, fill, drop_fill, (int64_t)(2000 + bytes / (gpu().bandwidth / 1e9))});
    return cudaSuccess;
}

API cudaError_t cudaMemset(void* to, int value, size_t bytes) { return cudaMemsetAsync(to, value, bytes, nullptr); }

// Variables of the device: only kernels read them.
API cudaError_t cudaMemcpyToSymbol(const void*, const void*, size_t, size_t, cudaMemcpyKind) { return cudaSuccess; }
API cudaError_t cudaGetSymbolAddress(void** address, const void*) {
    static char nowhere[4096];
    *address = nowhere;
    return cudaSuccess;
}
