// What libemulator.so offers to the operators (and to the generated stubs): plain C, no type of PyTorch.
//
// A task is a function with its data. The runtime calls run(data) once, or at each replay of a graph, and drop(data)
// (null: nothing) when nobody needs it any more. Times are nanoseconds that a real GPU would take, roughly.
#pragma once
#include <cuda_runtime_api.h>
#include <stdint.h>

extern "C" {

// Writes a line to the file that EMULATOR_LOG names: what the emulator cannot do. The same line only once.
void emulator_log(const char* what, const char* detail);

// Rates of the GPU: bytes a second, and FLOP a second in float32, TF32 and 16 bits.
void emulator_rates(double* bandwidth, double* float32, double* tf32, double* half);

// A kernel has found an index out of bounds: from the next wait on, all calls fail with "device-side assert triggered".
void emulator_device_assert(const char* message);

// +1: from here on the caller computes what kernels would, so a launch is no leak; -1: no longer. For this thread.
void emulator_inside(int change);

// +1: from here on copies to the device and memsets do nothing; -1: no longer. For this thread. PyTorch's own host code
// runs in a shadow for its checks and allocations, and must not change data that a task still has to read.
void emulator_shadow(int change);

// How many kernels this thread has launched; and: it has launched one more.
int64_t emulator_launches();
void emulator_launched();

// Puts a task on a stream. The device's thread runs it when the stream's clock says so.
void emulator_enqueue(cudaStream_t stream, void (*run)(void*), void* data, void (*drop)(void*), int64_t nanoseconds);

// Moves a stream's clock without a task: the caller has computed already.
void emulator_busy(cudaStream_t stream, int64_t nanoseconds);

// Waits until all tasks of a stream have run.
void emulator_wait(cudaStream_t stream);

// Whether a graph is being captured on a stream (and no call has broken the capture), and: adds a task to that graph.
int emulator_capturing(cudaStream_t stream);
void emulator_add_node(cudaStream_t stream, void (*run)(void*), void* data, void (*drop)(void*), int64_t nanoseconds);

}  // extern "C"
