// What the files of the runtime share. Nothing of it is visible outside of libemulator.so.
//
// The library is loaded before PyTorch (LD_PRELOAD) and takes the place of libcudart, of the parts of the driver and of
// cuBLAS that PyTorch calls, and of NCCL within one process. Memory of a device is memory of the host. Kernels do not
// run: the operators compute on the CPU what a kernel would. The asynchrony is real: see streams.cpp.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "emulator.h"

// Stands before each function that is called from outside. The build reads these lines, to make stubs for what is
// missing: "API" in column 0, the function's name and "(" on the same line.
#define API extern "C" __attribute__((visibility("default")))

// From here to the end of the file that includes this one, only what is marked API is exported.
#pragma GCC visibility push(hidden)

constexpr int MOST_GPUS = 16;

// State that several files or threads share lives in singletons that are never destroyed: when the process ends,
// PyTorch's destructors still call CUDA after those of this library would have run.
std::recursive_mutex& state_mutex();

// Held while the shared state is read or changed.
struct Lock : std::lock_guard<std::recursive_mutex> {
    Lock() : lock_guard(state_mutex()) {}
};

// ---- errors.cpp

// An environment variable; the default if it is unset or empty.
const char* environment(const char* name, const char* otherwise);

// Remembers an error for cudaGetLastError, and returns it.
cudaError_t report(cudaError_t error);

// The error that has ended the context's life (a device-side assert that the host has seen): every call repeats it.
cudaError_t sticky_error();

// The host has waited for the device: a device-side assert that happened meanwhile becomes sticky.
cudaError_t surface_assert();

#define RETURN_IF_STICKY_ERROR() \
    if (cudaError_t sticky_error_ = sticky_error()) return report(sticky_error_)

// ---- devices.cpp

struct Gpu {
    std::string name;
    int major, minor;            // compute capability
    double gib;                  // memory
    double bandwidth;            // bytes a second
    double link;                 // bytes a nanosecond between pinned memory of the host and the device
    double float32, tf32, half;  // FLOP a second
    int multiprocessors;
    int threads_per_multiprocessor;
    size_t shared_per_multiprocessor;  // shared memory, in bytes
    size_t shared_per_block;           // the most, which a kernel has to ask for
    size_t shared_reserved;
    size_t l2;                // bytes
    int bus_bits;             // width of the memory bus
    int clock, memory_clock;  // kHz
    double context_gib;       // what the context of a process takes
};
const Gpu& gpu();

constexpr int ALL_DEVICES = -1;
int device_count();
bool is_device(int number);

// The device of this thread, as cudaSetDevice has set it.
extern thread_local int current_device;

// The context of a device comes with the first call that needs it, and takes memory.
void make_context(int device);
bool has_context(int device);

// ---- memory.cpp

enum class Kind { DEVICE, HOST };
struct Range {
    size_t size;
    Kind kind;
    int device;
    bool registered;  // memory of the program that cudaHostRegister has pinned: not ours to free
};

// The range of known memory that an address lies in; false if in none (pageable memory of the host).
bool find_range(const void* address, Range* range = nullptr);
bool is_device_memory(const void* address);
void add_range(uintptr_t begin, const Range& range);
void remove_ranges(uintptr_t begin, size_t size);

// Takes memory of a device; false if it has not so much left.
bool take_memory(int device, size_t bytes);
void return_memory(int device, size_t bytes);

// Physical memory comes in pages of 2 MiB, as on real GPUs.
constexpr size_t PAGE = 2 << 20;
size_t round_to_page(size_t bytes);

// Address space that begins at a multiple of PAGE; null if there is none. protection: as for mmap.
void* map_pages(size_t bytes, int protection);

// ---- streams.cpp

// Something to do on the device (see emulator.h), and how long a real GPU would take.
struct Task {
    void (*run)(void*);
    void* data;
    void (*drop)(void*);
    int64_t nanoseconds;
};

struct Graph {
    std::vector<Task> nodes;  // in the order in which they were captured, on whatever stream
    unsigned long long id = 0;
    bool invalid = false;  // a forbidden call has broken the capture
    bool ended = false;    // it is no longer being captured
    ~Graph();
};

struct Stream {
    int device;
    int priority;
    std::atomic<int64_t> busy_until{0};  // the stream's clock: when all that was put on it will have been done

    // While the stream takes part in a capture:
    std::shared_ptr<Graph> graph;  // null: it does not
    Stream* origin = nullptr;      // where the capture began
    cudaStreamCaptureMode mode = cudaStreamCaptureModeGlobal;
    std::thread::id thread;  // which began it
    int operations = 0;      // captured on this stream
    int joined = 0;          // how many of them another stream of the capture waits for
};

struct Event {
    int device;
    unsigned flags;
    bool recorded = false;
    int64_t time = 0;  // of the stream's clock when it was recorded
    // If it was recorded during a capture: the graph, the stream and how many operations were before it.
    std::shared_ptr<Graph> graph;
    Stream* stream = nullptr;
    int operations = 0;
};

int64_t now();                     // nanoseconds
void wait_until(int64_t time);     // for the clock only
void wait_for_work(int64_t time);  // for the clock, and for all tasks that end by then
bool work_is_done(int64_t time);   // whether wait_for_work would return at once
void wait_for_device(int device);  // for all its streams
bool launch_blocking();            // CUDA_LAUNCH_BLOCKING=1: each call waits for its task

std::set<Stream*>& streams();
Stream* stream_of(cudaStream_t handle);

// Moves a stream's clock by so much, and returns its new time.
int64_t advance(Stream* stream, int64_t nanoseconds);

// Gives a task to the thread that plays the device.
void run_at(int64_t end, const Task& task);

// Puts a task on a stream: for later, or into the graph that is being captured there.
void submit(Stream* stream, const Task& task);

// ---- graphs.cpp

// An error if a call that a capture forbids (cudaMalloc…) comes while one is under way.
cudaError_t capture_forbids();

// A call on a capturing stream that is not allowed there: breaks the capture, returns the error.
cudaError_t break_capture(Stream* stream);
void break_all_captures();

// ---- copies.cpp

// A task that copies bytes.
Task copy_task(void* to, const void* from, size_t bytes, int64_t nanoseconds);
