// Streams, events and the clock.
//
// Each stream has a clock of its own: the time when all that was put on it so far will have been done. A task moves it
// on by the time that a real GPU would take; an event takes its reading; a stream that waits for an event sets its own
// clock to at least that reading; the host that waits sleeps until then. One thread plays the device: it runs the tasks
// of all streams in the order of their ends. So a program that forgets to wait reads old values, as on a real GPU.
#include <errno.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <queue>

#include "runtime.h"

// ---- the clock

int64_t now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000ll + time.tv_nsec;
}

void wait_until(int64_t time) {
    timespec end = {time / 1000000000, time % 1000000000};
    while (time > now() && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &end, nullptr) == EINTR) {
    }
}

bool launch_blocking() {
    static bool blocking = atoi(environment("CUDA_LAUNCH_BLOCKING", "0"));
    return blocking;
}

// ---- the thread that plays the device

struct Pending {
    int64_t end;
    uint64_t number;  // of two tasks that end at the same time, the one that came first runs first
    Task task;
};

struct Later {
    bool operator()(const Pending& a, const Pending& b) const {
        return a.end != b.end ? a.end > b.end : a.number > b.number;
    }
};

struct Executor {
    pid_t process = getpid();
    std::mutex mutex;
    std::condition_variable come, done;
    std::priority_queue<Pending, std::vector<Pending>, Later> queue;
    std::multiset<int64_t> ends;  // of all that is in the queue or running
    uint64_t count = 0;
    bool stop = false;
    std::thread thread;
};

// A real launch queue holds about as many; then a launch waits until there is room.
constexpr size_t QUEUE_LENGTH = 1024;

// The one of this process: a child of fork() has not inherited the thread.
static Executor* executor() {
    static std::atomic<Executor*> current{nullptr};
    Executor* found = current;
    if (found && found->process == getpid()) return found;
    auto* made = new Executor;
    if (current.compare_exchange_strong(found, made)) return made;
    delete made;  // another thread was faster
    return found;
}

static void play_device(Executor* e) {
    std::unique_lock<std::mutex> lock(e->mutex);
    while (!e->stop) {
        if (e->queue.empty()) {
            e->come.wait(lock);
            continue;
        }
        int64_t rest = e->queue.top().end - now();
        if (rest > 0) {
            e->come.wait_for(lock, std::chrono::nanoseconds(rest));
            continue;
        }
        Pending next = e->queue.top();
        e->queue.pop();
        lock.unlock();
        next.task.run(next.task.data);
        if (next.task.drop) next.task.drop(next.task.data);
        lock.lock();
        e->ends.erase(e->ends.find(next.end));
        e->done.notify_all();
    }
}

// Before PyTorch's libraries are torn down, of whose functions the tasks make use.
static void stop_device() {
    Executor* e = executor();
    {
        std::lock_guard<std::mutex> lock(e->mutex);
        e->stop = true;
        e->come.notify_all();
        e->done.notify_all();
    }
    if (e->thread.joinable()) e->thread.join();
}

void run_at(int64_t end, const Task& task) {
    Executor* e = executor();
    std::unique_lock<std::mutex> lock(e->mutex);
    if (!e->thread.joinable() && !e->stop) {
        e->thread = std::thread(play_device, e);
        atexit(stop_device);
    }
    e->done.wait(lock, [&] { return e->queue.size() <= QUEUE_LENGTH || e->stop; });
    e->ends.insert(end);
    e->queue.push({end, e->count++, task});
    e->come.notify_all();
}

static bool nothing_ends_by(Executor* e, int64_t time) { return e->ends.empty() || *e->ends.begin() > time; }

bool work_is_done(int64_t time) {
    if (now() < time) return false;
    Executor* e = executor();
    std::lock_guard<std::mutex> lock(e->mutex);
    return nothing_ends_by(e, time);
}

void wait_for_work(int64_t time) {
    wait_until(time);
    Executor* e = executor();
    std::unique_lock<std::mutex> lock(e->mutex);
    e->done.wait(lock, [&] { return nothing_ends_by(e, time) || e->stop; });
}

// ---- streams

std::set<Stream*>& streams() {
    static auto* found = new std::set<Stream*>;
    return *found;
}

static Stream* new_stream(int device, int priority) {
    Lock lock;
    auto* stream = new Stream{device, priority};
    streams().insert(stream);
    return stream;
}

// Handles 0, 1 (legacy) and 2 (per thread) mean the default stream of the current device. That it waits for others and
// they for it is left out: PyTorch's streams are all of the kind that does not (cudaStreamNonBlocking).
Stream* stream_of(cudaStream_t handle) {
    if ((uintptr_t)handle > 2) return (Stream*)handle;
    static Stream* defaults[MOST_GPUS];
    Lock lock;
    Stream*& stream = defaults[current_device];
    if (!stream) stream = new_stream(current_device, 0);
    return stream;
}

int64_t advance(Stream* stream, int64_t nanoseconds) {
    Lock lock;
    return stream->busy_until = std::max(stream->busy_until.load(), now()) + nanoseconds;
}

void submit(Stream* stream, const Task& task) {
    if (stream->graph) {
        Lock lock;
        stream->operations++;
        stream->graph->nodes.push_back(task);
        return;
    }
    int64_t end = advance(stream, task.nanoseconds);
    run_at(end, task);
    if (launch_blocking()) wait_for_work(end);
}

void wait_for_device(int device) {
    int64_t end = 0;
    {
        Lock lock;
        for (Stream* stream : streams()) {
            if (device == ALL_DEVICES || stream->device == device) end = std::max(end, stream->busy_until.load());
        }
    }
    wait_for_work(end);
}

API void emulator_enqueue(cudaStream_t stream, void (*run)(void*), void* data, void (*drop)(void*), int64_t ns) {
    submit(stream_of(stream), {run, data, drop, ns});
}

API void emulator_busy(cudaStream_t handle, int64_t nanoseconds) {
    Stream* stream = stream_of(handle);
    if (stream->graph) return;
    int64_t end = advance(stream, nanoseconds);
    if (launch_blocking()) wait_until(end);
}

API void emulator_wait(cudaStream_t stream) { wait_for_work(stream_of(stream)->busy_until); }

API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned, int priority) {
    RETURN_IF_STICKY_ERROR();
    *handle = (cudaStream_t)new_stream(current_device, std::clamp(priority, -5, 0));
    return cudaSuccess;
}

API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) {
    return cudaStreamCreateWithPriority(handle, flags, 0);
}
API cudaError_t cudaStreamCreate(cudaStream_t* handle) { return cudaStreamCreateWithPriority(handle, 0, 0); }

// Its tasks may still run, and events may point to it: it stays.
API cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }

API cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
    *priority = stream_of(handle)->priority;
    return cudaSuccess;
}

API cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    RETURN_IF_STICKY_ERROR();
    Stream* stream = stream_of(handle);
    if (stream->graph) return break_capture(stream);
    if (cudaError_t error = capture_forbids()) {
        break_all_captures();
        return report(error);
    }
    wait_for_work(stream->busy_until);
    return report(surface_assert());
}

API cudaError_t cudaStreamQuery(cudaStream_t handle) {
    RETURN_IF_STICKY_ERROR();
    Stream* stream = stream_of(handle);
    if (stream->graph) return break_capture(stream);
    if (!work_is_done(stream->busy_until)) return cudaErrorNotReady;
    return report(surface_assert());
}

API cudaError_t cudaDeviceSynchronize() {
    RETURN_IF_STICKY_ERROR();
    bool capturing = capture_forbids() != cudaSuccess;
    {
        Lock lock;
        for (Stream* stream : streams()) capturing |= stream->device == current_device && stream->graph;
    }
    if (capturing) {
        break_all_captures();
        return report(cudaErrorStreamCaptureUnsupported);
    }
    wait_for_device(current_device);
    return report(surface_assert());
}

// A function of the host in a stream is called at once, after all that is before it.
API cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* data) {
    Stream* stream = stream_of(handle);
    if (stream->graph) {
        submit(stream, {function, data, nullptr, 0});
        return cudaSuccess;
    }
    wait_for_work(stream->busy_until);
    function(data);
    return cudaSuccess;
}

API cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t function, void* data, unsigned) {
    Stream* stream = stream_of(handle);
    if (stream->graph) return break_capture(stream);
    wait_for_work(stream->busy_until);
    function(handle, cudaSuccess, data);
    return cudaSuccess;
}

// ---- events

API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned flags) {
    RETURN_IF_STICKY_ERROR();
    *handle = (cudaEvent_t) new Event{current_device, flags};
    return cudaSuccess;
}

API cudaError_t cudaEventCreate(cudaEvent_t* handle) { return cudaEventCreateWithFlags(handle, 0); }

API cudaError_t cudaEventDestroy(cudaEvent_t handle) {
    delete (Event*)handle;
    return cudaSuccess;
}

API cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream_handle) {
    RETURN_IF_STICKY_ERROR();
    Lock lock;
    auto* event = (Event*)handle;
    Stream* stream = stream_of(stream_handle);
    if (event->device != stream->device) return report(cudaErrorInvalidResourceHandle);
    event->recorded = true;
    event->graph = stream->graph;
    event->stream = stream;
    event->operations = stream->operations;
    if (!stream->graph) event->time = std::max(stream->busy_until.load(), now());
    return cudaSuccess;
}

API cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned) {
    return cudaEventRecord(event, stream);
}

API cudaError_t cudaEventQuery(cudaEvent_t handle) {
    RETURN_IF_STICKY_ERROR();
    auto* event = (Event*)handle;
    if (event->graph) return report(cudaErrorCapturedEvent);
    if (event->recorded && !work_is_done(event->time)) return cudaErrorNotReady;
    return report(surface_assert());
}

API cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
    RETURN_IF_STICKY_ERROR();
    auto* event = (Event*)handle;
    if (event->graph) {
        event->graph->invalid = true;
        return report(cudaErrorCapturedEvent);
    }
    if (event->recorded) wait_for_work(event->time);
    return report(surface_assert());
}

API cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t start_handle, cudaEvent_t end_handle) {
    RETURN_IF_STICKY_ERROR();
    auto *start = (Event*)start_handle, *end = (Event*)end_handle;
    if ((start->flags | end->flags) & cudaEventDisableTiming) return report(cudaErrorInvalidResourceHandle);
    if (!start->recorded || !end->recorded || start->device != end->device)
        return report(cudaErrorInvalidResourceHandle);
    if (!work_is_done(std::max(start->time, end->time))) return cudaErrorNotReady;
    *milliseconds = (end->time - start->time) / 1e6;
    return cudaSuccess;
}

API cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
    RETURN_IF_STICKY_ERROR();
    Lock lock;
    auto* event = (Event*)event_handle;
    Stream* stream = stream_of(handle);
    if (!event->recorded) return cudaSuccess;
    if (!event->graph) {
        if (stream->graph) {
            stream->graph->invalid = true;
            return report(cudaErrorStreamCaptureIsolation);
        }
        stream->busy_until = std::max(stream->busy_until.load(), event->time);
        return cudaSuccess;
    }
    if (event->graph->ended) return report(cudaErrorCapturedEvent);
    if (!stream->graph) {  // it takes part in the capture from here on
        stream->graph = event->graph;
        stream->origin = event->stream->origin;
        stream->mode = event->stream->mode;
        stream->operations = 0;
        stream->joined = -1;
    } else if (stream->graph != event->graph) {
        return report(cudaErrorStreamCaptureIsolation);
    }
    if (event->stream != stream) {
        event->stream->joined = std::max(event->stream->joined, event->operations);
        stream->operations++;
    }
    return cudaSuccess;
}
