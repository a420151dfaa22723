// Errors as CUDA keeps them, and the log of what the emulator cannot do.
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "runtime.h"

std::recursive_mutex& state_mutex() {
    static auto* mutex = new std::recursive_mutex;
    return *mutex;
}

const char* environment(const char* name, const char* otherwise) {
    const char* value = getenv(name);
    return value && *value ? value : otherwise;
}

API void emulator_log(const char* what, const char* detail) {
    static const char* path = getenv("EMULATOR_LOG");
    if (!path || !*path) return;
    Lock lock;
    static auto* said = new std::set<std::string>;
    if (!said->insert(std::string(what) + " " + detail).second) return;
    if (FILE* file = fopen(path, "a")) {
        fprintf(file, "[%d] %s %s\n", getpid(), what, detail);
        fclose(file);
    }
}

static thread_local cudaError_t last_error = cudaSuccess;
// A device-side assert destroys the context: from then on all calls fail, in all threads, until the process ends. The
// host sees it only when it waits for the device: first it is pending, then sticky.
static std::atomic<cudaError_t> sticky{cudaSuccess};
static std::atomic<cudaError_t> pending{cudaSuccess};

cudaError_t report(cudaError_t error) {
    if (error != cudaSuccess && error != cudaErrorNotReady) last_error = error;
    return error;
}

cudaError_t sticky_error() { return sticky; }

cudaError_t surface_assert() {
    if (pending != cudaSuccess) sticky = pending.load();
    return sticky;
}

API void emulator_device_assert(const char* message) {
    if (pending == cudaSuccess) fprintf(stderr, "%s\n", message);  // a real kernel prints one line a thread
    pending = cudaErrorAssert;
    if (launch_blocking()) sticky = cudaErrorAssert;
}

API cudaError_t cudaPeekAtLastError() { return sticky != cudaSuccess ? sticky.load() : last_error; }

API cudaError_t cudaGetLastError() {
    cudaError_t error = cudaPeekAtLastError();
    last_error = cudaSuccess;
    return error;
}
