/* The table for AVX-512 with VNNI: everything but the integer matmul (avx512_matmul.c) comes from the shared code. */
#include "kernels/lanes_avx512.h"

#include "kernels/lanes_rows.inc"

#include "kernels/lanes_epilogue.inc"
#include "kernels/lanes_tile.inc"

#include "kernels/lanes_attention.inc"
#include "kernels/lanes_matmul.inc"

const Kernels kernels_avx512vnni = {.name = "avx512vnni",
                                    .quantise = quantise,
                                    .rmsnorm = rmsnorm,
                                    .layernorm = layernorm,
                                    .matmul_q = matmul_q_avx512vnni,
                                    .matmul_f = matmul_f,
                                    .silu_mul = silu_mul,
                                    .gelu_mul = gelu_mul,
                                    .gelu = gelu,
                                    .softcap = softcap,
                                    .scale = scale,
                                    .add_scaled = add_scaled,
                                    .relu = relu,
                                    .add = add,
                                    .rope = rope,
                                    .kv_store = kv_store,
                                    .attention = attention,
                                    .logsumexp = logsumexp,
                                    .topk = topk,
                                    .sum = sum,
                                    .to_bf16 = to_bf16,
                                    .from_bf16 = from_bf16};
