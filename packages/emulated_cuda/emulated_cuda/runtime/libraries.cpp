// cuBLAS, as far as ATen's host code needs it, and NCCL within one process (nn.DataParallel). Between processes the
// Python side of the emulator uses gloo. Neither has its header here: numbers and pointers do.
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "runtime.h"

// ---- cuBLAS: a handle or descriptor is some memory; 0 is success. All the rest are generated stubs.

static int new_handle(void** handle) {
    *handle = malloc(64);
    return 0;
}

static int free_handle(void* handle) {
    free(handle);
    return 0;
}

API int cublasCreate_v2(void** handle) { return new_handle(handle); }
API int cublasDestroy_v2(void* handle) { return free_handle(handle); }

API int cublasGetMathMode(void*, int* mode) {
    *mode = 0;
    return 0;
}

API int cublasGetPointerMode_v2(void*, int* mode) {
    *mode = 0;
    return 0;
}

API int cublasLtCreate(void** handle) { return new_handle(handle); }
API size_t cublasLtGetVersion() { return CUDART_VERSION / 1000 * 10000; }
API int cublasLtMatmulDescCreate(void** descriptor, int, int) { return new_handle(descriptor); }
API int cublasLtMatmulDescDestroy(void* descriptor) { return free_handle(descriptor); }
API int cublasLtMatmulPreferenceCreate(void** preference) { return new_handle(preference); }
API int cublasLtMatmulPreferenceDestroy(void* preference) { return free_handle(preference); }
API int cublasLtMatrixLayoutCreate(void** layout, int, uint64_t, uint64_t, int64_t) { return new_handle(layout); }
API int cublasLtMatrixLayoutDestroy(void* layout) { return free_handle(layout); }

struct HeuristicResult {  // cublasLtMatmulHeuristicResult_t
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

API int cublasLtMatmulAlgoGetHeuristic(void*, void*, void*, void*, void*, void*, void*, int, HeuristicResult* result,
                                       int* count) {
    memset(result, 0, sizeof *result);
    *count = 1;
    return 0;
}

// ---- NCCL: broadcast and sum

struct Communicator {
    int rank;
    int size;
};

struct Call {
    bool reduce;
    const void* from;
    void* to;
    size_t count;
    int type;
    int root;
    Communicator* communicator;
    Stream* stream;
};

static size_t type_size(int type) {
    static const size_t sizes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1};
    return sizes[type];
}

// The calls of a group, one for each rank. They run when the group ends.
static thread_local int open_groups = 0;
static std::vector<Call>& group() {
    static thread_local auto* calls = new std::vector<Call>;
    return *calls;
}

struct Sum {
    std::vector<const void*> from;
    void* to;
    size_t count;
};

template <typename Number, typename Wide>
static void run_sum(void* data) {
    auto* sum = (Sum*)data;
    std::vector<Wide> total(sum->count, Wide(0));
    for (const void* from : sum->from) {
        for (size_t i = 0; i < sum->count; i++) total[i] += Wide(((const Number*)from)[i]);
    }
    for (size_t i = 0; i < sum->count; i++) ((Number*)sum->to)[i] = Number(total[i]);
}

// By ncclDataType_t; null for those of 8 bits with a point
static void (*sum_of(int type))(void*) {
    static void (*const sums[])(void*) = {
        run_sum<int8_t, int8_t>,   run_sum<uint8_t, uint8_t>,    run_sum<int32_t, int32_t>, run_sum<uint32_t, uint32_t>,
        run_sum<int64_t, int64_t>, run_sum<uint64_t, uint64_t>,  run_sum<__half, float>,    run_sum<float, float>,
        run_sum<double, double>,   run_sum<__nv_bfloat16, float>};
    return type < (int)(sizeof sums / sizeof *sums) ? sums[type] : nullptr;
}

static void drop_sum(void* data) { delete (Sum*)data; }

API int ncclCommInitAll(void** communicators, int count, const int*) {
    for (int i = 0; i < count; i++) communicators[i] = new Communicator{i, count};
    return 0;
}

API int ncclCommDestroy(void* communicator) {
    delete (Communicator*)communicator;
    return 0;
}

API int ncclGroupStart() {
    open_groups++;
    return 0;
}

API int ncclGroupEnd() {
    if (--open_groups > 0) return 0;
    std::vector<Call> calls;
    calls.swap(group());
    const Call* root = nullptr;
    int64_t start = now();  // when all streams are ready
    for (const Call& call : calls) {
        start = std::max(start, call.stream->busy_until.load());
        if (call.communicator->rank == call.root) root = &call;
    }
    if (!root) return 0;
    if ((int)calls.size() != root->communicator->size) emulator_log("NCCL: a group of more than one operation", "");
    for (const Call& call : calls) {
        size_t bytes = call.count * type_size(call.type);
        int64_t end = start + 5000 + bytes / 20;  // 20 GB/s
        {
            Lock lock;
            end = call.stream->busy_until = std::max(call.stream->busy_until.load(), end);
        }
        if (!call.reduce) {
            if (&call != root) run_at(end, copy_task(call.to, root->from, bytes, 0));
        } else if (&call == root) {
            if (!sum_of(call.type)) {
                emulator_log("ncclReduce of 8-bit floating-point numbers", "");
                continue;
            }
            auto* sum = new Sum{{}, call.to, call.count};
            for (const Call& other : calls) sum->from.push_back(other.from);
            run_at(end, {sum_of(call.type), sum, drop_sum, 0});
        }
    }
    return 0;
}

static int add_call(const Call& call) {
    ncclGroupStart();
    group().push_back(call);
    return ncclGroupEnd();
}

API int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, void* communicator,
                      cudaStream_t stream) {
    return add_call({false, from, to, count, type, root, (Communicator*)communicator, stream_of(stream)});
}

API int ncclBcast(void* buffer, size_t count, int type, int root, void* communicator, cudaStream_t stream) {
    return ncclBroadcast(buffer, buffer, count, type, root, communicator, stream);
}

API int ncclReduce(const void* from, void* to, size_t count, int type, int operation, int root, void* communicator,
                   cudaStream_t stream) {
    if (operation != 0) emulator_log("ncclReduce of another operation than the sum", "");
    return add_call({true, from, to, count, type, root, (Communicator*)communicator, stream_of(stream)});
}
