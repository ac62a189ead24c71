"""Products in PyTorch's models: operators with gradients, and linear layers that use them.

``torch.ops.tilewise.matmul`` and ``grouped_matmul`` are the operators. :func:`tilewise.matmul` and
:func:`tilewise.grouped_matmul` take tensors too, and call the operators if they have to: for
tensors that require a gradient, in ``torch.compile``, and under autocast.
"""

from __future__ import annotations

from tilewise.python_kernels.packages import need

need("torch", "pip install torch")

from tilewise.torch.grouped import grouped_matmul  # noqa: E402
from tilewise.torch.linear import Linear, linear  # noqa: E402
from tilewise.torch.mlp import mlp  # noqa: E402
from tilewise.torch.modules import Sequential  # noqa: E402
from tilewise.torch.operator import matmul  # noqa: E402
from tilewise.torch.replace import Replaced, replace_linears  # noqa: E402

__all__ = [
    "Linear", "Replaced", "Sequential", "grouped_matmul", "linear", "matmul", "mlp",
    "replace_linears",
]  # fmt: skip
