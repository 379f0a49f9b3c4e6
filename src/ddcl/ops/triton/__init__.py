"""The operation as fused GPU kernels: reads the tokens once, writes the centroids once, holds nothing of N x K.

Files: ``tiles`` what every kernel does to a block; ``forward_kernels``, ``backward_resident`` and ``backward_streamed``
the kernels, ``gradients`` what the latter share; ``tuning`` sizes of blocks; ``descriptors`` tensors for the copy
engine; ``launch`` the callers. docs/kernels.md tells how and why.
"""

from ddcl.ops.triton.launch import backward, forward
from ddcl.ops.triton.tiles import INTERPRETED
from ddcl.ops.triton.tuning import Tiles

__all__ = ["INTERPRETED", "Tiles", "backward", "forward"]
