"""Compile Triton's matmul for the tensor cores of compute capability 8.0, and call it.

Triton compiles for ``sm_80``, so that it uses ``mma.sync`` and ``cp.async``; ptxas compiles that
PTX to machine code for the GPU at hand. Neither needs a GPU, and the machine code is kept in a
folder.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import tempfile
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from padded_products import VECTOR, Call
from triton_configs import CONFIGS, Config

from tilewise.bench.products import Operands
from tilewise.bench.suites import Shape, View
from tilewise.compiler.compiled import Compiled, Parameter
from tilewise.counted import Resources
from tilewise.devices.gpu import Gpu
from tilewise.launch import Launch
from tilewise.places import Place
from tilewise.provenance import write_whole

SOURCE = Path(__file__).with_name("triton_matmul.py")
KINDS = {"bfloat16": "bf16", "float16": "fp16"}
GROUP = 8  # rows of tiles
SIZES = ("m", "n", "k", "a_row", "a_column", "b_row", "b_column", "d_row")


class Variant(NamedTuple):
    """What a kernel is compiled for.

    Attributes
    ----------
    dtype : str
    layout : str
        A's letter and B's, as :attr:`tilewise.bench.suites.Shape.layout` has them.
    divisible : tuple of str
        Of ``SIZES``, those that are multiples of ``VECTOR``; of ``a``, ``b`` and ``d``, the
        matrices whose addresses are of 16 bytes.
    is_even : bool
        Whether k is a multiple of the tile's.
    config : Config
    """

    dtype: str
    layout: str
    divisible: tuple[str, ...]
    is_even: bool
    config: Config

    @property
    def name(self) -> str:
        """Its files' name."""
        text = repr(tuple(self)) + SOURCE.read_text(encoding="utf-8")
        tile = "x".join(map(str, self.config))
        return f"{self.dtype}_{self.layout}_{tile}_{hashlib.sha256(text.encode()).hexdigest()[:12]}"

    @property
    def constants(self) -> dict[str, int | bool]:
        """The kernel's arguments that are known when it is compiled."""
        unit_a, unit_b = (
            f"{of}_{'row' if letter == 'T' else 'column'}"
            for of, letter in zip("ab", self.layout, strict=True)
        )
        block = {f"BLOCK_{of}": size for of, size in zip("MNK", self.config, strict=False)}
        return {unit_a: 1, unit_b: 1, **block, "GROUP": GROUP, "EVEN_K": self.is_even}


def sizes_of(shape: Shape) -> dict[str, int]:
    """Return the kernel's arguments, ``SIZES``, of a product.

    Raises
    ------
    ValueError
        If the kernel does not take it: a batch, a D of float32 or by columns, or a matrix of 2³¹
        elements.
    """
    if shape.batch != 1 or shape.is_wide or shape.d.by_columns:
        raise ValueError(f"{shape.name}: it takes one product, D of A's dtype and by rows")
    a, b, d = shape.views()
    if any(view.elements >= 1 << 31 for view in (a, b, d)):
        raise ValueError(f"{shape.name}: it takes matrices of fewer than 2³¹ elements")
    strides = (*a.strides, *b.strides, d.strides[0])
    return dict(zip(SIZES, (shape.m, shape.n, shape.k, *strides), strict=True))


def variant_of(shape: Shape, dtype: str, config: Config) -> Variant:
    """Return what answers a product by a configuration.

    Raises
    ------
    ValueError
        If the kernel does not take it.
    """
    views: dict[str, View] = dict(zip("abd", shape.views(), strict=True))
    given = {**sizes_of(shape), **{name: view.offset for name, view in views.items()}}
    divisible = tuple(name for name, value in given.items() if value % VECTOR == 0)
    return Variant(dtype, shape.layout, divisible, shape.k % config.k == 0, config)


def variants(shape: Shape, dtype: str, configs: Sequence[Config] = CONFIGS) -> list[Variant]:
    """Return what may answer a product: each configuration, made for its sizes, once."""
    sizes = shape.m, shape.n, shape.k
    return [
        variant_of(shape, dtype, config)
        for config in dict.fromkeys(each.for_sizes(*sizes) for each in configs)
    ]


@dataclass(frozen=True)
class Built:
    """A kernel that Triton and ptxas compiled.

    Attributes
    ----------
    compiled : Compiled
    shared : int
        Dynamic shared memory a block, bytes.
    variant : Variant
    """

    compiled: Compiled
    shared: int
    variant: Variant

    def call(self, gpu: Gpu, shape: Shape) -> Call:
        """Return what puts a product on PyTorch's current stream.

        Raises
        ------
        LaunchError
            If it takes more than the GPU has.
        """
        import torch

        sizes, config = sizes_of(shape), self.variant.config
        given = [sizes[name] for name in SIZES if name not in self.variant.constants]
        # Behind them stand addresses of memory that Triton itself would use; it uses none.
        none = len(self.compiled.parameters) - 3 - len(given)
        tiles = -(-shape.m // config.m) * -(-shape.n // config.n)
        args = (Place(0), Place(1), Place(2), *given, *[0] * none)
        launch = Launch((tiles, 1, 1), (32 * config.warps, 1, 1), args, self.shared)
        prepared = gpu.prepare(self.compiled, launch)

        def call(x: Operands) -> None:
            stream = torch.cuda.current_stream().cuda_stream
            gpu.enqueue(prepared, stream, [each.data_ptr() for each in (x.a, x.b, x.d)])

        return call


def build(found: Iterable[Variant], folder: Path, arch: str, workers: int) -> list[str]:
    """Compile what is not in the folder yet.

    Parameters
    ----------
    found : iterable of Variant
    folder : Path
        It is made where it is missing.
    arch : str
        Of the machine code, as ``"sm_90"``.
    workers : int
        Processes.

    Returns
    -------
    list of str
        What did not compile, and why.
    """
    folder.mkdir(parents=True, exist_ok=True)
    missing = [x for x in dict.fromkeys(found) if not (folder / f"{x.name}.json").exists()]
    if not missing:
        return []
    with ProcessPoolExecutor(workers) as pool:
        told = pool.map(_build, missing, [folder] * len(missing), [arch] * len(missing))
        return [each for each in told if each]


def load(variant: Variant, folder: Path) -> Built | None:
    """Return what was built; None where it did not compile, or was not built."""
    try:
        entry = json.loads((folder / f"{variant.name}.json").read_text(encoding="utf-8"))
        cubin = zlib.decompress((folder / f"{variant.name}.cubin.z").read_bytes())
    except FileNotFoundError:
        return None
    parameters = tuple(
        Parameter(f"matmul_param_{i}", kind, size := 4 if kind.endswith("32") else 8, size)
        for i, kind in enumerate(entry["parameters"])
    )
    resources = Resources(entry["registers"], 0, entry["spill_bytes"], 0, 0, 0)
    compiled = Compiled(
        "matmul", "matmul", entry["arch"], "", SOURCE.name, "", cubin, resources, parameters
    )
    return Built(compiled, entry["shared"], variant)


def compiled_ptx(variant: Variant) -> Any:
    """Return what Triton compiled a variant to, for ``sm_80``: its ``asm`` and ``metadata``."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource
    from triton_matmul import matmul

    names, constants = matmul.arg_names, variant.constants
    kind = KINDS[variant.dtype]
    signature = {
        name: "constexpr" if name in constants else f"*{kind}" if name in ("a", "b", "d") else "i32"
        for name in names
    }
    attributes = {
        (names.index(name),): [["tt.divisibility", 2 * VECTOR if name in "abd" else VECTOR]]
        for name in variant.divisible
        if name not in constants
    }
    source = ASTSource(
        matmul, signature, {(names.index(x),): value for x, value in constants.items()}, attributes
    )
    options = {"num_stages": variant.config.stages, "num_warps": variant.config.warps}
    return triton.compile(source, target=GPUTarget("cuda", 80, 32), options=options)


def _build(variant: Variant, folder: Path, arch: str) -> str:
    from triton import knobs

    try:
        kernel = compiled_ptx(variant)
    except Exception as error:  # Triton's own types are many
        return f"{variant.config}: {' '.join(str(error).split())[:200]}"
    ptx = kernel.asm["ptx"]
    if "wgmma" in ptx:
        return f"{variant.config}: Triton's PTX has wgmma, which sm_80 does not"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        said = subprocess.run(
            [knobs.nvidia.ptxas.path, "-v", f"-arch={arch}", "-o", cubin.name, "-"],
            input=ptx, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if said.returncode:
            return f"{variant.config}: ptxas: {said.stderr.strip()[:200]}"
        write_whole(folder / f"{variant.name}.cubin.z", zlib.compress(cubin.read(), 9))
    entry = {
        "arch": arch,
        "shared": kernel.metadata.shared,
        "registers": int(re.findall(r"Used (\d+) registers", said.stderr)[-1]),
        "spill_bytes": sum(map(int, re.findall(r"(\d+) bytes spill", said.stderr))),
        "parameters": re.findall(r"\.param \.(\w+)", ptx[: ptx.index(")\n")]),
        "ptxas": knobs.nvidia.ptxas.version,
        "triton": kernel.metadata.triton_version,
        "variant": variant,
    }
    write_whole(folder / f"{variant.name}.json", json.dumps(entry).encode())
    return ""
