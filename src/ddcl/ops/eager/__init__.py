r"""The operation in blocks of tokens, with its gradients written out.

No N x K tensor larger than a bounded block is ever held (``ops.blocks`` states the bounds), so training memory
is O(N m). The formulas, per token and head, with x and p centred on the bank's mean where the bank lies
far from the origin (the operation is translation equivariant, and float32 would spend its digits on the offset):

.. math::
    g_k = 2 x \cdot p_k - |p_k|^2, \quad \Delta_k = d_k - \min_j d_j = \max_j g_j - g_k, \quad
    q_k = e^{-\Delta_k / T} / Z

    L = \min d + \textstyle\sum_k q_k \Delta_k, \quad R = |x - \mu|^2, \quad
    V = \tfrac12 \textstyle\sum_{jk} q_j q_k |p_j - p_k|^2 = \sum_k q_k |p_k|^2 - |\mu|^2 = L - R, \quad
    H = \ln Z + \sum_k q_k \Delta_k / T

Backward, for upstream gradients :math:`G` of :math:`\mu` and :math:`\ell, r, v, h, b` of L, R, V, H and
min d (theory: section 3, extended to every output):

.. math::
    A &= G + 2 (v - r)(x - \mu) - 2 c\, x, \qquad c = \ell + v + h / T \\
    u_k &= q_k (a_k - \textstyle\sum_j q_j a_j), \quad a_k = p_k \cdot A + c\,|p_k|^2
        \qquad (u = 0 \text{ in mode stop}) \\
    W_k &= 2 u_k / T - 2 \ell q_k \\
    \partial x &= \textstyle\sum_k W_k p_k + 2 \ell x + 2 r (x - \mu) + 2 b (x - p_*) \\
    \partial p_k &= \textstyle\sum_n W_k x + q_k [G - 2 r (x - \mu) - 2 v \mu] + (2 v q_k - W_k) p_k
        - 2 b (x - p_*)\,1_{k = *} \\
    \partial T &= \textstyle\sum_k u_k \Delta_k / T^2
"""

from ddcl.ops.eager.backward import backward
from ddcl.ops.eager.forward import forward

__all__ = ["backward", "forward"]
