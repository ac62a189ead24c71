"""Products in PyTorch's models: an operator with gradients, and linear layers by it.

``torch.ops.tilewise.matmul`` is the operator. :func:`tilewise.matmul` takes tensors too, and calls
it where it must: for tensors that require a gradient, in ``torch.compile``, under autocast.
"""

from __future__ import annotations

from tilewise.python_kernels.packages import need

need("torch", "pip install torch")

from tilewise.torch.linear import Linear, linear  # noqa: E402
from tilewise.torch.operator import matmul  # noqa: E402
from tilewise.torch.replace import Replaced, replace_linears  # noqa: E402

__all__ = ["Linear", "Replaced", "linear", "matmul", "replace_linears"]
