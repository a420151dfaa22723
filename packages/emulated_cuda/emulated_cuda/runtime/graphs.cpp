// Capture and replay of graphs. While a stream captures, its tasks are kept instead of run; a replay is one task that
// runs them all, in the order of their capture.
#include <stdio.h>

#include "runtime.h"

typedef std::shared_ptr<Graph> GraphPointer;  // what the handles cudaGraph_t and cudaGraphExec_t point to

Graph::~Graph() {
    for (Task& node : nodes) {
        if (node.drop) node.drop(node.data);
    }
}

static GraphPointer& graph_of(void* handle) { return *(GraphPointer*)handle; }

// ---- what a capture forbids

// How a thread minds captures: CUDA's "stream capture interaction mode".
static thread_local cudaStreamCaptureMode interaction_mode = cudaStreamCaptureModeGlobal;
// Captures under way: those of mode "global" that any thread has begun; those not "relaxed" that this one has begun.
static std::atomic<int> global_captures{0};
static thread_local int own_captures = 0;

cudaError_t capture_forbids() {
    if (interaction_mode == cudaStreamCaptureModeRelaxed) return cudaSuccess;
    bool global = interaction_mode == cudaStreamCaptureModeGlobal && global_captures > 0;
    return global || own_captures > 0 ? cudaErrorStreamCaptureUnsupported : cudaSuccess;
}

cudaError_t break_capture(Stream* stream) {
    if (stream->graph) stream->graph->invalid = true;
    return report(cudaErrorStreamCaptureUnsupported);
}

void break_all_captures() {
    Lock lock;
    for (Stream* stream : streams()) {
        if (stream->graph) stream->graph->invalid = true;
    }
}

API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
    std::swap(interaction_mode, *mode);
    return cudaSuccess;
}

// ---- capture

static void count_capture(const Stream* stream, int change) {
    if (stream->mode == cudaStreamCaptureModeGlobal) global_captures += change;
    if (stream->mode != cudaStreamCaptureModeRelaxed) own_captures += change;
}

API cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode mode) {
    RETURN_IF_STICKY_ERROR();
    static std::atomic<unsigned long long> count{0};
    Lock lock;
    if ((uintptr_t)handle <= 2) return report(cudaErrorStreamCaptureUnsupported);  // the default stream
    Stream* stream = stream_of(handle);
    if (stream->graph) return report(cudaErrorIllegalState);
    stream->graph = std::make_shared<Graph>();
    stream->graph->id = ++count;
    stream->origin = stream;
    stream->mode = mode;
    stream->thread = std::this_thread::get_id();
    stream->operations = stream->joined = 0;
    count_capture(stream, 1);
    return cudaSuccess;
}

API cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* graph_handle) {
    Lock lock;
    *graph_handle = nullptr;
    Stream* origin = stream_of(handle);
    if (!origin->graph) return report(cudaErrorIllegalState);
    if (origin->origin != origin) return report(cudaErrorStreamCaptureUnmatched);
    if (origin->mode != cudaStreamCaptureModeRelaxed && origin->thread != std::this_thread::get_id()) {
        return report(cudaErrorStreamCaptureWrongThread);
    }
    count_capture(origin, -1);
    GraphPointer graph = origin->graph;
    graph->ended = true;
    bool unjoined = false;  // another stream has captured something that the origin does not wait for
    for (Stream* stream : streams()) {
        if (stream->graph != graph) continue;
        if (stream != origin && stream->joined < stream->operations) unjoined = true;
        stream->graph = nullptr;
        stream->origin = nullptr;
    }
    if (graph->invalid) return report(cudaErrorStreamCaptureInvalidated);
    if (unjoined) return report(cudaErrorStreamCaptureUnjoined);
    *graph_handle = (cudaGraph_t) new GraphPointer(graph);
    return cudaSuccess;
}

API cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
    Stream* stream = stream_of(handle);
    *status = !stream->graph           ? cudaStreamCaptureStatusNone
              : stream->graph->invalid ? cudaStreamCaptureStatusInvalidated
                                       : cudaStreamCaptureStatusActive;
    return cudaSuccess;
}

static cudaError_t capture_info(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                cudaGraph_t* graph, const cudaGraphNode_t** dependencies, size_t* count) {
    Stream* stream = stream_of(handle);
    if (id) *id = stream->graph ? stream->graph->id : 0;
    if (graph) *graph = nullptr;
    if (dependencies) *dependencies = nullptr;
    if (count) *count = 0;
    return cudaStreamIsCapturing(handle, status);
}

// CUDA 13 has one function, which knows edges. CUDA 12 has three under one name in its headers.
#undef cudaStreamGetCaptureInfo
#undef cudaStreamGetCaptureInfo_v2
#undef cudaStreamGetCaptureInfo_v3
#if CUDART_VERSION >= 13000
API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                         cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                         const cudaGraphEdgeData** edges, size_t* count) {
    if (edges) *edges = nullptr;
    return capture_info(stream, status, id, graph, dependencies, count);
}
#else
API cudaError_t cudaStreamGetCaptureInfo_v2(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                            unsigned long long* id, cudaGraph_t* graph,
                                            const cudaGraphNode_t** dependencies, size_t* count) {
    return capture_info(stream, status, id, graph, dependencies, count);
}
API cudaError_t cudaStreamGetCaptureInfo_v3(cudaStream_t stream, cudaStreamCaptureStatus* status,
                                            unsigned long long* id, cudaGraph_t* graph,
                                            const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                                            size_t* count) {
    if (edges) *edges = nullptr;
    return capture_info(stream, status, id, graph, dependencies, count);
}
#endif

API int emulator_capturing(cudaStream_t handle) {
    Stream* stream = stream_of(handle);
    return stream->graph && !stream->graph->invalid;
}

API void emulator_add_node(cudaStream_t stream, void (*run)(void*), void* data, void (*drop)(void*), int64_t ns) {
    submit(stream_of(stream), {run, data, drop, ns});
}

// ---- graphs

API cudaError_t cudaGraphGetNodes(cudaGraph_t graph, cudaGraphNode_t* nodes, size_t* count) {
    if (nodes) {
        emulator_log("cudaGraphGetNodes: only how many, not which", "");
        return report(cudaErrorNotSupported);
    }
    *count = graph_of(graph)->nodes.size();
    return cudaSuccess;
}

API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
    *executable = (cudaGraphExec_t) new GraphPointer(graph_of(graph));
    return cudaSuccess;
}

API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
    return cudaGraphInstantiateWithFlags(executable, graph, flags);
}

static void drop_graph(void* handle) { delete (GraphPointer*)handle; }

API cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
    drop_graph(graph);
    return cudaSuccess;
}

API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
    drop_graph(executable);
    return cudaSuccess;
}

API cudaError_t cudaGraphDebugDotPrint(cudaGraph_t graph, const char* path, unsigned) {
    FILE* file = fopen(path, "w");
    if (!file) return report(cudaErrorInvalidValue);
    fprintf(file, "digraph dot {\n");
    for (size_t i = 0; i < graph_of(graph)->nodes.size(); i++) fprintf(file, "\"graph_0_node_%zu\";\n", i);
    fprintf(file, "}\n");
    fclose(file);
    return cudaSuccess;
}

static void run_graph(void* handle) {
    for (Task& node : graph_of(handle)->nodes) node.run(node.data);
}

API cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
    RETURN_IF_STICKY_ERROR();
    GraphPointer graph = graph_of(executable);
    int64_t nanoseconds = 5000;  // to launch it
    for (Task& node : graph->nodes) nanoseconds += node.nanoseconds;
    submit(stream_of(stream), {run_graph, new GraphPointer(graph), drop_graph, nanoseconds});
    return cudaSuccess;
}
