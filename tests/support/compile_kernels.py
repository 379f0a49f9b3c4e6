"""Compile every fused kernel for a GPU that need not be there: ``python compile_kernels.py DTYPE CAPABILITY``.

A program of its own: where tests interpret the kernels, Triton cannot compile them in the same process.
"""

from __future__ import annotations

import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from ddcl.ops.triton import backward_resident, backward_streamed, forward_kernels

KERNELS = [
    forward_kernels.resident,
    forward_kernels.streamed,
    backward_resident.resident,
    backward_streamed.tokens,
    backward_streamed.prototypes,
    backward_streamed.effective_gradient,
]
VECTORS = ("z", "centroid", "d_centroid", "effective", "d_z")
NUMBERS = (
    *("norms", "temperature", "total", "reconstruction", "variance", "quantization", "entropy", "level", "shift"),
    *("d_total", "d_reconstruction", "d_variance", "d_quantization", "d_entropy", "d_temperature", "d_bank"),
)
BLOCK = {"BN": 64, "BK": 32, "BM": 32}


def compile_kernel(kernel: triton.JITFunction, dtype: str, capability: int, described: bool) -> None:
    constants = {
        **BLOCK,
        "RAGGED": True,
        "PADDED": not described,
        "DESCRIBED": described,
        "FULL": True,
        "TAIL": True,
        "PRECISION": "tf32x3",
        "STAGES": 1 if dtype == "fp32" else 2,
        "z_m": 1,
        "g_m": 1,
        "t_n": None,
        "l_n": None,
    }
    if dtype != "fp32":
        constants["center"] = None
    if described:
        constants["mask"] = None
    types = dict.fromkeys(VECTORS, f"*{dtype}") | dict.fromkeys(NUMBERS, "*fp32")
    types |= {"bank": f"*{dtype}", "center": "*fp32", "mask": "*u8", "indices": "*i64"}
    if described:
        types |= dict.fromkeys(VECTORS, f"tensordesc<{dtype}[{BLOCK['BN']},{BLOCK['BM']}]>")
        if kernel.fn.__name__ != "resident":
            types["bank"] = f"tensordesc<{dtype}[{BLOCK['BK']},{BLOCK['BM']}]>"
            types["norms"] = f"tensordesc<fp32[{BLOCK['BK']}]>"
        if kernel.fn.__name__ == "prototypes":
            types |= dict.fromkeys(("level", "shift"), f"tensordesc<fp32[{BLOCK['BN']}]>")
    names = kernel.arg_names
    signature = {name: "constexpr" if name in constants else types.get(name, "i32") for name in names}
    chosen = {(names.index(name),): value for name, value in constants.items() if name in names}
    source = ASTSource(kernel, signature, chosen)
    binary = triton.compile(source, target=GPUTarget("cuda", capability, 32), options={"num_warps": 4})
    print(kernel.fn.__name__, "described" if described else "by pointers", len(binary.asm["cubin"]), "bytes")


if __name__ == "__main__":
    dtype, capability = sys.argv[1], int(sys.argv[2])
    for kernel in KERNELS:
        compile_kernel(kernel, dtype, capability, described=False)
        # what has a gradient of reconstruction is moved by pointers, and so is float32
        if capability >= 90 and dtype != "fp32" and kernel is not backward_streamed.effective_gradient:
            compile_kernel(kernel, dtype, capability, described=True)
