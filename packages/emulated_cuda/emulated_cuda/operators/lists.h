// Which operators go which way. Regular expressions over the names of PyTorch's operators ("add"; in REAL also with the
// overload: "empty.memory_format"). Operators that a new PyTorch brings and no list names run in the shadow, which is
// right for all whose host code only checks, allocates and launches.
#pragma once

namespace emulator {

// Left to PyTorch: their CUDA code launches no kernel, or it is never called on CUDA tensors.
inline const char* const REAL =
    // new tensors without values
    "empty\\..*|empty_strided|"
    // other looks at the same memory
    "as_strided|view|_reshape_alias|view_as_real|view_as_complex|unfold|alias|_nested.*|"
    // the storage of a tensor
    "set_|resize_|record_stream|is_set_to|_debug_has_internal_overlap|"
    // a value for the host: a copy, which the runtime does
    "_local_scalar_dense|"
    // pinned memory
    "is_pinned|_pin_memory|"
    // decisions of the host
    "_fused_sdp_choice|_use_cudnn.*|_cudnn_init_dropout_state|"
    // hardware and number formats that are not emulated
    "miopen.*|_use_miopen.*|_cslt.*|_triton.*|_mps.*|_convert_weight.*";

// The same for sparse tensors: parts and properties, new tensors, copies, and what is an operator on the dense values.
inline const char* const REAL_SPARSE =
    "_?values|_?indices|(crow|col|ccol|row)_indices|_nnz|_dim[IV]|(sparse|dense)_dim|is_coalesced|_coalesced_|"
    "empty|empty_like|zeros|_sparse_coo_tensor_with.*|clone|copy_|copy_sparse_to_sparse_|"
    "resize_|resize_as_sparse_|sparse_resize_.*|permute|unsqueeze|select.*|view_as_.*|zero_|fill_|normal_";

// Computed without the shadow of their CUDA code, because that needs values from the device, kernels compiled at run
// time, or libraries that are not there.
inline const char* const PURE =
    // the size of the result depends on values
    "nonzero|nonzero_static|masked_select|_?unique.*|repeat_interleave|bincount|histc|_histogram.*|equal|"
    "_to_sparse.*|_sparse.*|_validate.*|_jagged.*|_padded.*|"
    // cuFFT
    "_fft.*|"
    // cuSOLVER and MAGMA
    "linalg.*|_linalg.*|cholesky.*|_cholesky.*|lu_.*|triangular.*|ormqr|geqrf|_ldl.*|_compute_linear_combination|"
    // cuDNN, and the code that chooses between it and others
    "_cudnn.*|cudnn.*|_conv.*|conv.*|slow_conv.*|_slow_conv.*|_thnn.*|.*batch_norm.*|_scaled_dot_product_cudnn.*|"
    "grid_sampler.*|_ctc_loss.*|"
    // attention of many parts in one operator
    "_flash.*|_efficient.*|_transformer.*|_native_multi.*|"
    // sorting, counting and segments, with temporary memory of Thrust and CUB
    "embedding_dense_backward|_embedding_bag.*|multinomial|kthvalue|median|nanmedian|mode|_segment.*|segment.*|"
    "index_reduce.*|masked_scatter.*|isin|"
    // compiled at run time (NVRTC)
    "special_.*|"
    // others: without a shadow their results are right, too; temporary memory is not counted
    "_weight_norm.*|_spdiags|_cdist.*|cdist.*|_foreach_norm.*|_foreach_max.*";

// …but this one, which PURE matches, is an ordinary reduction.
inline const char* const NOT_PURE = "linalg_vector_norm";

// Of PURE: their CUDA code waits for the device, and torch.cuda.set_sync_debug_mode speaks of it.
inline const char* const WAITING =
    "nonzero|masked_select|_?unique.*|repeat_interleave|equal|bincount|index|_index_put_impl_|_unsafe_index";

// Of PURE: "structured" in native_functions.yaml. Their checks of devices name themselves in another way.
inline const char* const STRUCTURED =
    "_linalg_(det|eigh|slogdet|solve_ex|svd)|linalg_(cholesky_ex|cross|inv_ex|ldl_factor_ex|ldl_solve|lu|lu_factor_ex|"
    "lu_solve|qr)|triangular_solve|lu_unpack|index_reduce.*|slow_conv_transpose2d|special_.*";

// With 16-bit inputs, a GPU sums in float32 and rounds once, at the end: so does the CPU, given float32 inputs.
inline const char* const SUMS_IN_FLOAT32 =
    // products
    "mm|addmm|addmm_|bmm|baddbmm|baddbmm_|addmv|addmv_|dot|vdot|mv|addbmm|_addmm_activation|"
    // convolutions
    "cudnn_conv.*|convolution_backward|_conv.*|conv.*|slow_conv.*|_slow_conv.*|"
    // recurrent cells, norms of layers
    "_thnn_fused.*|native_layer_norm.*|native_group_norm.*|.*batch_norm.*|_fused_rms_norm.*|"
    // softmax and attention
    "_softmax.*|_log_softmax.*|logsumexp|_scaled_dot_product.*|"
    // reductions
    "mean|sum|var.*|std.*|norm|linalg_vector_norm|cumsum|prod|embedding_dense_backward|_cdist.*|"
    // linear algebra
    "_linalg.*|linalg.*|"
    // losses and activations with exponentials
    "nll_loss.*|mse_loss.*|smooth_l1.*|binary_cross.*|gelu.*|log_sigmoid.*";

// Limited by arithmetic rather than memory: their modeled time counts FLOP, and TF32 may apply.
inline const char* const MATMUL =
    "mm|addmm|addmm_|bmm|baddbmm|baddbmm_|_addmm_activation|_scaled_mm|_int_mm|addmv|addmv_|mv|"
    "cudnn_convolution.*|convolution_backward|_scaled_dot_product.*";

}  // namespace emulator
