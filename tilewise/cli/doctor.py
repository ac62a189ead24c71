"""The diagnosis of this machine, ``tilewise doctor``: what it has, and what is missing.

Every probe imports what it tests, so that a broken installation gets a diagnosis too.
"""

from __future__ import annotations

import os
import platform
import shutil
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from tilewise import __version__
from tilewise.shown import plural

OPTIONAL = {
    "torch": "PyTorch tensors as arguments, and for tilewise tune, bench and climb on a GPU",
    "cupy": "CuPy arrays as arguments",
    "ml_dtypes": "NumPy arrays of bfloat16",
    "matplotlib": "--plot of bench, climb and roofline, and --gif and --frames of watch",
    "numba": "kernels written in Numba: tilewise.numba",
    "triton": "kernels written in Triton: tilewise.triton",
}


@dataclass(frozen=True)
class Item:
    """A line of the diagnosis.

    Attributes
    ----------
    name : str
    state : str
        ``"ok"``; ``"missing"`` if something that should work does not; ``"absent"`` if it is needed
        only for what ``detail`` says.
    detail : str
        What is there, or what is missing, what for, and how to get it.
    """

    name: str
    state: str
    detail: str


@dataclass(frozen=True)
class Diagnosis:
    """All items; ``ok`` is whether the emulator works."""

    items: tuple[Item, ...]

    @property
    def ok(self) -> bool:
        return not any(item.state == "missing" for item in self.items)

    def to_dict(self) -> dict[str, Any]:
        return {"ok": self.ok, "items": [asdict(item) for item in self.items]}


def diagnose() -> Diagnosis:
    """Look at everything. Raises nothing: whatever fails is an item that says so."""
    probes: dict[str, Callable[[], Item | list[Item]]] = {
        "Python": _python,
        "packages": _packages,
        "NVRTC": _nvrtc,
        "CUDA headers": _headers,
        "nvdisasm": _nvdisasm,
        "assembler": _assembler,
        "GPU": _gpu,
        "cache folder": _cache,
        "emulator": _emulator,
        "optional packages": _optional,
        "ncu": _ncu,
    }
    items: list[Item] = []
    for name, probe in probes.items():
        try:
            found = probe()
        except Exception as error:
            found = Item(name, "missing", f"looking for it failed: {_first_line(error)}")
        items.extend(found if isinstance(found, list) else [found])
    return Diagnosis(tuple(items))


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__


def _python() -> Item:
    return Item("Python", "ok", f"{platform.python_version()} at {sys.executable}")


def _packages() -> list[Item]:
    items = [Item("tilewise", "ok", f"{__version__} at {Path(__file__).parents[1]}")]
    for package, use in (
        ("numpy", "everything"),
        ("cuda-core", "compiling kernels and the GPU"),
        ("cuda-bindings", "compiling kernels and the GPU"),
    ):
        try:
            items.append(Item(package, "ok", metadata.version(package)))
        except metadata.PackageNotFoundError:
            items.append(
                Item(package, "missing", f"needed for {use}; `pip install {package}` brings it")
            )
    return items


def _nvrtc() -> Item:
    try:
        from tilewise.compiler import nvrtc

        major, minor = nvrtc.version()
        # "sm_90a" goes without saying where "sm_90" is named.
        plain = [name for name in nvrtc.architectures() if name[-1].isdigit()]
    except Exception as error:
        return Item("NVRTC", "missing", f"needed to compile any kernel: {_first_line(error)}")
    return Item("NVRTC", "ok", f"{major}.{minor}, compiles for {', '.join(plain)}")


def _headers() -> Item:
    from tilewise.compiler import nvrtc, toolkit

    use = "needed for kernels that include cuda_fp16.h, mma.h, cooperative_groups.h or CUB"
    found = toolkit.find()
    if found is None:
        major, _ = nvrtc.version()
        detail = f"none of CUDA {major}; only {use}; `{toolkit.INSTALL_HINT}` brings them"
        return Item("CUDA headers", "absent", detail)
    place = f"{found.release[0]}.{found.release[1]}, of {found.origin}, at {found.folder}"
    if found.lacks:
        lack = f"{place}, without {' and '.join(found.lacks)}"
        return Item("CUDA headers", "absent", f"{lack}; `{toolkit.INSTALL_HINT}` brings it")
    return Item("CUDA headers", "ok", place)


def _nvdisasm() -> Item:
    from tilewise.compiler import machine_code as sass

    path = sass.find_nvdisasm()
    if path is None:
        return Item(
            "nvdisasm",
            "absent",
            "needed to hold the emulator's shared-memory counts against the machine code; "
            f"without it reports say that they count PTX; `{sass.INSTALL_HINT}` brings it",
        )
    return Item("nvdisasm", "ok", str(path))


def _assembler() -> Item:
    from tilewise.compiler.ptx import assembler

    tools = assembler.tools()
    if not tools:
        return Item(
            "assembler",
            "absent",
            "needed for the registers of kernels of PTX, and to hold their counts against the "
            f"machine code; they run without it; `{assembler.INSTALL_HINT}` brings it",
        )
    return Item("assembler", "ok", ", ".join(tools))


def _compiled_for() -> int:
    """Return the major version of CUDA that NVRTC compiles for; 0 if it can't be loaded."""
    from tilewise.compiler import version
    from tilewise.errors import DeviceUnavailableError

    try:
        return version()[0]
    except DeviceUnavailableError:
        return 0


def _gpu() -> list[Item]:
    without = "needed for --device gpu and for times; the emulator needs none"
    try:
        from cuda.bindings import driver

        status, *_ = driver.cuInit(0)
    except Exception:  # cuda-pathfinder has an exception of its own for a library it can't find
        return [Item("driver", "absent", f"no NVIDIA driver; {without}")]
    if status != driver.CUresult.CUDA_SUCCESS:
        return [Item("driver", "absent", f"the NVIDIA driver says {status.name}; {without}")]
    _, version = driver.cuDriverGetVersion()
    found = f"for CUDA {version // 1000}.{version % 1000 // 10}"
    items = [Item("driver", "ok", found)]
    needed = _compiled_for()
    if version // 1000 < needed:
        too_old = f"{found}; kernels need one for CUDA {needed}; {without}"
        items = [Item("driver", "absent", too_old)]
    _, count = driver.cuDeviceGetCount()
    if count == 0:
        items.append(Item("GPU", "absent", f"the driver shows none; {without}"))
    attribute = driver.CUdevice_attribute
    for index in range(count):
        _, device = driver.cuDeviceGet(index)
        _, name = driver.cuDeviceGetName(128, device)
        _, memory = driver.cuDeviceTotalMem(device)
        major, minor, processors = (
            driver.cuDeviceGetAttribute(wanted, device)[1]
            for wanted in (
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
                attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR,
                attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
            )
        )
        plain = name.split(b"\0", 1)[0].decode(errors="replace")
        items.append(
            Item(
                f"GPU {index}",
                "ok",
                f"{plain}, compute capability {major}.{minor}, {processors} multiprocessors, "
                f"{memory / 2**30:.0f} GiB",
            )
        )
    return items


def _cache() -> Item:
    from tilewise.compiler import cache as compiler_cache

    use = "needed to compile a kernel only once; set TILEWISE_CACHE_DIR to a folder"
    folder = compiler_cache.directory()
    if folder is None:
        return Item("cache folder", "absent", f"no home folder to put it in; {use}")
    sizes = []
    for entry in folder.rglob("*"):
        # Another process may take a file away while this one looks.
        with suppress(FileNotFoundError):
            if entry.is_file():
                sizes.append(entry.stat().st_size)
    what = f"{folder}, {plural(len(sizes), 'file')}, {sum(sizes) / 2**20:.1f} MiB"
    if not _writable(folder):
        return Item("cache folder", "absent", f"{what}, not writable; {use}")
    return Item("cache folder", "ok", f"{what}, writable")


def _writable(folder: Path) -> bool:
    """Return whether files can be made in ``folder``, or it in the nearest parent that there is."""
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


SELF_TEST = """
extern "C" __global__ void reverse(int n, float* out, const float* in) {
    __shared__ float tile[64];
    int i = threadIdx.x;
    tile[i] = in[i];
    __syncthreads();
    out[n - 1 - i] = 2 * tile[i];
}
"""


def _emulator() -> Item:
    """Compile a kernel and run it, through all that a launch on the emulator goes through."""
    try:
        import numpy as np

        from tilewise.kernel import Kernel

        given = np.arange(64, dtype=np.float32)
        got = np.zeros_like(given)
        report = Kernel(SELF_TEST, "reverse").launch(1, 64, (64, got, given), device="emulator")
    except Exception as error:
        detail = f"the self-test failed: {type(error).__name__}: {_first_line(error)}"
        return Item("emulator", "missing", detail)
    counters = report.counters
    if not np.array_equal(got, 2 * given[::-1]) or counters is None:
        return Item("emulator", "missing", "the self-test kernel gave a wrong result")
    if counters.global_load_sectors != 8 or counters.barriers < 1:
        return Item("emulator", "missing", f"the self-test was counted wrong: {counters}")
    return Item("emulator", "ok", "compiled a kernel and ran it: result and counters right")


def _optional() -> list[Item]:
    items = []
    for package, use in OPTIONAL.items():
        version = _version_of(package)
        if version is None:
            items.append(Item(package, "absent", f"not installed; only needed for {use}"))
        else:
            items.append(Item(package, "ok", f"{version}, for {use}"))
    return items


def _ncu() -> Item:
    use = "tilewise profile --hardware, on a GPU"
    path = shutil.which("ncu")
    if path is None:
        return Item("ncu", "absent", f"Nsight Compute is not on the PATH; only needed for {use}")
    return Item("ncu", "ok", f"{path}, for {use}")


def _version_of(package: str) -> str | None:
    """Return the installed version, without importing what may take seconds to import.

    CuPy's distributions are called after the CUDA version that they are built for.
    """
    names = _distributions().get(package, [])
    return metadata.version(names[0]) if names else None


@cache
def _distributions() -> Mapping[str, list[str]]:
    """Return each package's distributions. They are kept: reading them takes 0.2 s."""
    return metadata.packages_distributions()
