"""A product to watch or profile: its matrices, its kernel, and the launch that computes it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilewise import host_memory
from tilewise.compiler import Compiled
from tilewise.devices import virtual
from tilewise.devices.emulator import Emulator, EmulatorArray
from tilewise.kernel import Kernel
from tilewise.ladder.geometry import Geometry
from tilewise.ladder.prepared import Prepared, dtype_of, prepare
from tilewise.ladder.problem import Gemm, check_sizes, random_problem
from tilewise.ladder.rungs import Rung
from tilewise.ladder.signature import check_signature
from tilewise.launch import Launch
from tilewise.precision import dtype_of as numpy_dtype


@dataclass(frozen=True)
class Placed:
    """A product in an emulator's memory.

    Attributes
    ----------
    launch : Launch
    a, b, c : EmulatorArray
    """

    launch: Launch
    a: EmulatorArray
    b: EmulatorArray
    c: EmulatorArray


@dataclass(frozen=True)
class PreparedGemm:
    """A GEMM, C = alpha A B + beta C, and the kernel that computes it in one launch.

    Attributes
    ----------
    gemm : Gemm
        The problem, with matrices of zeros or random ones, as ``is_drawn`` says. There is always a
        C.
    prepared : Prepared
        The kernel, and how it is launched.
    alpha, beta : float
        The factors as they were asked for.
    is_drawn : bool
    """

    gemm: Gemm
    prepared: Prepared
    alpha: float
    beta: float
    is_drawn: bool = False

    @classmethod
    def of(
        cls,
        target: str | Rung | Kernel,
        m: int,
        n: int,
        k: int,
        *,
        dtype: str | None = None,
        tile: int | None = None,
        alpha: float = 1.0,
        beta: float = 0.0,
    ) -> PreparedGemm:
        """Return the product of zeros, which take no memory until they are accessed.

        Parameters
        ----------
        target : str, Rung or Kernel
            The target, as in :func:`tilewise.ladder.run`.
        m, n, k : int
            The sizes, at least 1.
        dtype : str, optional
            The dtype, one of :data:`tilewise.precision.DTYPES`; by default the rung's first, or
            float32.
        tile : int, optional
            The tile, as in :func:`tilewise.ladder.run`.
        alpha, beta : float

        Raises
        ------
        FileNotFoundError, MemoryError, ValueError, TypeError
        """
        check_sizes(m, n, k)
        kind = numpy_dtype(dtype_of(target, dtype))
        a, b, c = (virtual.zeros(shape, kind) for shape in ((m, k), (k, n), (m, n)))
        gemm = Gemm.of(a, b, c, alpha=alpha, beta=beta)
        return cls(gemm, prepare(target, gemm, tile), alpha, beta)

    @property
    def kernel(self) -> Kernel:
        return self.prepared.kernel

    @property
    def tile(self) -> int | None:
        return self.prepared.tile

    @property
    def geometry(self) -> Geometry:
        """The grid and the block."""
        return self.prepared.geometry

    @property
    def problem(self) -> dict[str, Any]:
        """The problem as plain data."""
        gemm = self.gemm
        return {
            "m": gemm.m, "n": gemm.n, "k": gemm.k, "dtype": gemm.dtype.name, "tile": self.tile,
            "alpha": float(self.alpha), "beta": float(self.beta),
        }  # fmt: skip

    @property
    def args(self) -> tuple[Any, ...]:
        """The kernel's arguments, with the host's own matrices."""
        return self.prepared.args(self.gemm, self.gemm.a, self.gemm.b, self.gemm.c)

    def compile(self, arch: str) -> Compiled:
        """Compile the kernel, which must take the arguments of a product.

        Raises
        ------
        CompileError, ValueError
        LaunchError
            If the architecture can't run the rung.
        TypeError
            If the kernel has another signature than those of the ladder.
        """
        compiled = self.kernel.compile(arch)
        check_signature(compiled, self.gemm, self.args)
        return compiled

    def drawn(self, seed: int) -> PreparedGemm:
        """Return the same product with random matrices.

        Raises
        ------
        MemoryError
            If the matrices and their copies are more than this machine holds.
        """
        gemm = self.gemm
        m, n, k = gemm.m, gemm.n, gemm.k
        held = gemm.dtype.itemsize * (m * k + k * n + m * n)
        # They are drawn in float64, one by one, and the emulator has copies. With too little memory
        # the system would end the process without a message.
        needed = held + max(held, 8 * max(m * k, k * n, m * n))
        there = host_memory.installed()
        if there is not None and there < needed:
            raise MemoryError(
                f"the matrices, of numbers, and their copies take {needed / 2**30:,.0f} GiB, and "
                f"it has {there / 2**30:,.0f} GiB"
            )
        a, b, c = random_problem(m, n, k, gemm.dtype, seed)
        return replace(self, gemm=Gemm.of(a, b, c, alpha=self.alpha, beta=self.beta), is_drawn=True)

    def on(self, emulator: Emulator, checks: str = "raise") -> Placed:
        """Copy the matrices to an emulator; a C that is not read is left uninitialised there."""
        gemm, (grid, block) = self.gemm, self.geometry
        assert gemm.c is not None
        a, b = (self._there(emulator, x) for x in (gemm.a, gemm.b))
        c = (
            self._there(emulator, gemm.c)
            if gemm.beta
            else emulator.empty(gemm.c.shape, gemm.c.dtype)
        )
        module = self.kernel.variables.for_a_look(emulator, self.kernel.compile(emulator.arch))
        launch = Launch(
            grid, block, self.prepared.args(gemm, a, b, c), self.prepared.shared, checks,
            limits=self.kernel.limits, module=module,
        )  # fmt: skip
        return Placed(launch, a, b, c)

    def _there(self, emulator: Emulator, host: Any) -> EmulatorArray:
        return emulator.array(host) if self.is_drawn else emulator.zeros(host.shape, host.dtype)
