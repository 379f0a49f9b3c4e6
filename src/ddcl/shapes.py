"""Names for shapes in signatures: jaxtyping's where it is installed, plain tensors otherwise.

The annotations document the code and are checked only in the tests (``pytest --check-shapes``), so the
library itself needs no jaxtyping at run time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Int
else:
    try:
        from jaxtyping import Bool, Float, Int
    except ImportError:

        class _Unchecked:
            """``Float[Tensor, "N m"]`` without jaxtyping: the array type alone."""

            def __class_getitem__(cls, item: tuple[Any, str]) -> Any:
                return item[0]

        Bool = Float = Int = _Unchecked

__all__ = ["Bool", "Float", "Int"]
