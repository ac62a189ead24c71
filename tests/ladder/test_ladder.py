"""Every rung, right at every size: C = alpha A B + beta C, with nothing else read or written."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reference import THOROUGH, examples, held, some, thorough

from tilewise.devices import Device
from tilewise.devices.gpu import Gpu
from tilewise.errors import LaunchError
from tilewise.kernel import Kernel
from tilewise.ladder.geometry import Sizes, listed, threads
from tilewise.ladder.rungs import RUNGS, Rung, rung, tile_each
from tilewise.launch import LaunchReport
from tilewise.numbers import check
from tilewise.places import ITEM_SIZES, TensorMap
from tilewise.precision import HALVES, sums_of
from tilewise.precision import dtype_of as numpy_dtype
from tilewise.tensor_map import MappedArray

pytestmark = pytest.mark.usefixtures("no_machine_code")

Array = npt.NDArray[Any]
DTYPES = ("float32", "float64")
NAMES = (
    "single_thread",
    "single_block",
    "naive",
    "coalesced",
    "tiled",
    "tiled_conflicts",
    "tiled_branchless",
    "thread_tile_1d",
    "thread_tile_2d",
    "vectorized",
    "warp_tile",
    "double_buffered",
    "tuned",
    "tensor_core",
    "ldmatrix",
    "multistage",
    "warpgroup",
    "specialized",
    "persistent",
)
REAL = tuple(each for each in RUNGS if each.dtypes == DTYPES)
# Of the tiles from 2 to 32, what is drawn from; 16 and 32 have tests of their own.
FEW = (2, 3, 5, 8)
SPECIAL = (np.nan, np.inf, -np.inf, 0.0)
MARK = 77.0  # before C and between its rows, where nobody may write

every_rung = pytest.mark.parametrize("each", RUNGS, ids=lambda each: each.name)
every_dtype = pytest.mark.parametrize(
    ("each", "dtype"),
    [pytest.param(each, x, id=f"{each.name}-{x}") for each in RUNGS for x in each.dtypes],
)
every_tile = pytest.mark.parametrize(
    ("each", "tile"),
    [
        pytest.param(each, tile, id=f"{each.name}-{tile}", marks=[thorough] * (place > 0))
        for each in RUNGS
        for place, tile in enumerate((16, 32) if isinstance(each.tiles, range) else each.tiles)
    ],
)


@dataclass(frozen=True)
class Case:
    """One product to compute."""

    m: int
    n: int
    k: int
    dtype: str | None = None  # by default the rung's own
    tile: int | None = None  # by default a small one
    alpha: float = 1.0
    beta: float = 0.0
    pads: tuple[int, int, int] = (0, 0, 0)  # leading dimension beyond the width, of A, B and C
    shifts: tuple[int, int, int] = (0, 0, 0)  # elements before the first, of A, B and C
    exponent: int = 0  # of the matrices' size, as a power of 2
    special: tuple[tuple[str, int, float], ...] = ()  # (matrix, index, value)
    seed: int = field(default=0, repr=False)
    counts: bool = field(default=False, repr=False)  # whether the emulator does
    reports: list[LaunchReport] = field(default_factory=list, repr=False, compare=False)

    def matrices(self, dtype: str = "float32") -> dict[str, Array]:
        """A, B and C, a leading dimension wide: NaN between the rows of A and B."""
        name = self.dtype or dtype
        if not held([name]):
            pytest.skip("NumPy's bfloat16 needs ml_dtypes")
        kind = numpy_dtype(name)
        rng = np.random.default_rng(self.seed)
        made: dict[str, Array] = {}
        widths = {"a": (self.m, self.k), "b": (self.k, self.n), "c": (self.m, self.n)}
        for (name, (rows, width)), pad in zip(widths.items(), self.pads, strict=True):
            whole = np.full((rows, max(width, 1) + pad), MARK if name == "c" else np.nan, kind)
            with np.errstate(over="ignore", under="ignore"):
                numbers = rng.standard_normal((rows, width)) * 2.0**self.exponent
                whole[:, :width] = numbers.astype(kind)
            for where, index, value in self.special:
                if where == name and rows * width:
                    whole[np.unravel_index(index % (rows * width), (rows, width))] = value
            made[name] = whole
        if self.beta == 0:
            made["c"][:, : self.n] = np.nan  # must not be read, so must not spread
        return made

    def launch(self, each: Rung, device: Device) -> tuple[Array, dict[str, Array]]:
        """C as the kernel left it, a leading dimension wide, and what it was given."""
        dtype = each.dtype(self.dtype)
        given_arrays = self.matrices(dtype)
        whole = {
            name: np.concatenate(
                (np.full(shift, MARK if name == "c" else np.nan, x.dtype), x.ravel())
            )
            for (name, x), shift in zip(given_arrays.items(), self.shifts, strict=True)
        }
        there = {name: device.array(x) for name, x in whole.items()}
        tile = self.tile
        if tile is None and each.tiles:
            tile = 4 if 4 in each.tiles else each.tiles[0]
        lda, ldb, ldc = (given_arrays[name].shape[1] for name in "abc")
        a, b, c = (
            there[name].pointer + shift * whole[name].itemsize if shift else there[name]
            for name, shift in zip("abc", self.shifts, strict=True)
        )
        kernel = each.kernel(dtype, tile)
        grid, block = each.geometry(self.m, self.n, tile, dtype)
        sizes = Sizes(self.m, self.n, self.k, lda, ldb, ldc)
        # Of a pointer that is not an array's, no tensor map is made: the kernel looks at it first.
        trailing = [
            MappedArray(there["abc"[x.place.array]], x) if isinstance(x, TensorMap) else x
            for x in each.trailing(sizes, tile, dtype)
        ]
        self.reports.append(
            kernel.launch(
                grid,
                block,
                (
                    self.m,
                    self.n,
                    self.k,
                    self.alpha,
                    a,
                    lda,
                    b,
                    ldb,
                    self.beta,
                    c,
                    ldc,
                    *trailing,
                ),
                each.shared(tile, dtype),
                device,
                counts=self.counts,
            )
        )
        for name in "ab":
            np.testing.assert_array_equal(bits(there[name].to_numpy()), bits(whole[name]))
        after, shift = there["c"].to_numpy(), self.shifts[2]
        assert (after[:shift] == MARK).all(), "written before C"
        return after[shift:].reshape(given_arrays["c"].shape), given_arrays


def bits(x: Array) -> Array:
    """The same numbers as integers, which are equal where NaN is NaN."""
    return x.view(f"u{x.itemsize}")


def assert_right(each: Rung, device: Device, case: Case) -> Array:
    """Launch and check; returns C without what is between its rows."""
    whole, given_arrays = case.launch(each, device)
    assert (whole[:, case.n :] == MARK).all(), "written between the rows of C"
    c = whole[:, : case.n]
    a, b, c0 = given_arrays["a"][:, : case.k], given_arrays["b"], given_arrays["c"]
    found = check(c, a, b[:, : case.n], c0[:, : case.n], case.alpha, case.beta)
    assert found.correct, found
    return c


scalars = st.sampled_from([0.0, 1.0, -1.0, 0.5, -2.25, 0.1])


@st.composite
def cases(draw: st.DrawFn, each: Rung) -> Case:
    """From nothing to past two tiles, sizes of whole tiles among them; rows 16 bytes apart, or a
    multiple of it, as often as not."""
    tile = draw(st.sampled_from(FEW if isinstance(each.tiles, range) else each.tiles or (8,)))
    sizes = st.builds(
        lambda tiles, more: max(tiles * tile + more, 0),
        st.sampled_from([0, 0, 1, 2] if tile < 64 else [0, 0, 1]),
        st.sampled_from([-1, 0, 0, 1, 2, 3, 4, 8, 9]),
    )
    m, n, k = draw(sizes), draw(sizes), draw(st.sampled_from([0, 1, 4, 7, 8, 9, 16, 17, 26, 70]))
    pads = draw(st.tuples(*[st.integers(0, 3)] * 3))
    piece = 8 if each.dtypes == HALVES else 4
    if draw(st.booleans()):
        pads = (-max(k, 1) % piece, -max(n, 1) % piece, -max(n, 1) % piece)
    return Case(
        m,
        n,
        k,
        dtype=draw(st.sampled_from(held(each.dtypes))),
        tile=tile if each.tiles else None,
        alpha=draw(scalars),
        beta=draw(scalars),
        pads=pads,
        shifts=draw(
            st.sampled_from([(0, 0, 0), (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (3, 2, 1)])
        ),
        exponent=draw(st.sampled_from([0, 0, 0, -70, 63, -540, 511])),
        special=draw(
            st.lists(
                st.tuples(st.sampled_from("abc"), st.integers(0, 500), st.sampled_from(SPECIAL)),
                max_size=3,
            ).map(tuple)
        ),
        seed=draw(st.integers(0, 2**32 - 1)),
    )


@pytest.mark.parametrize("each", RUNGS[:7], ids=lambda each: each.name)
@examples(THOROUGH, quick=2)
@given(data=st.data())
def test_any_problem(each: Rung, device: Device, data: st.DataObject) -> None:
    assert_right(each, device, data.draw(cases(each)))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("each", RUNGS[7:], ids=lambda each: each.name)
@examples(25, quick=1)  # a block of 128 x 128 takes the emulator a while
@given(data=st.data())
def test_any_problem_by_large_tiles(each: Rung, device: Device, data: st.DataObject) -> None:
    assert_right(each, device, data.draw(cases(each)))


@every_rung
@pytest.mark.parametrize(
    "case",
    [
        Case(1, 1, 1),
        Case(8, 8, 8),
        Case(9, 5, 13, pads=(1, 2, 3), beta=0.5),
        Case(9, 5, 0, beta=2.0),
        Case(4, 5, 9, alpha=0.0, beta=2.0, special=(("a", 3, np.nan), ("b", 7, np.inf))),
        Case(7, 5, 9, special=(("a", 62, np.nan), ("b", 44, np.inf))),
    ],
    ids=lambda case: f"{case.m}x{case.n}x{case.k}",
)
def test_small_problems(each: Rung, device: Device, case: Case) -> None:
    assert_right(each, device, case)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("which", [0, 1])
@every_tile
def test_around_a_tile(each: Rung, tile: int, which: int, device: Device) -> None:
    """Exactly one, one less and one more; with all rows 16 bytes apart, or a multiple of it, with
    such rows that end within 16 bytes, with odd rows, and with pointers that are one off."""
    dtype = each.dtypes[which]
    for case in (
        Case(tile, tile, 16, dtype, tile, beta=0.5),
        Case(tile - 1, tile - 1, 7, dtype, tile, alpha=-0.5, beta=1.0, pads=(1, 1, 1)),
        Case(tile + 1, tile + 1, 9, dtype, tile, pads=(2, 2, 4)),
        Case(tile, tile, 8, dtype, tile, beta=0.5, shifts=(1, 1, 1)),
    ):
        assert_right(each, device, case)


@pytest.mark.sampled(10)
@pytest.mark.parametrize(
    ("each", "dtype"),
    [pytest.param(each, x, id=f"{each.name}-{x}") for each in RUNGS[9:] for x in each.dtypes],
)
@pytest.mark.usefixtures("emulator")
def test_16_bytes_at_a_time_where_that_can_be(each: Rung, dtype: str, device: Device) -> None:
    """From `vectorized` on: with pointers one off, as many sectors or more take more requests."""
    tile = each.tiles[0]
    found = []
    for shifts in ((0, 0, 0), (1, 1, 1)):
        case = Case(tile, tile, 16, dtype, tile, beta=0.5, shifts=shifts, counts=True)
        assert_right(each, device, case)
        counters = case.reports[0].counters
        assert counters is not None
        found.append((counters.global_load_requests, counters.global_store_requests))
    (loads, stores), (loads_apart, stores_apart) = found
    assert loads < loads_apart
    assert stores < stores_apart


@pytest.mark.sampled(6)
@every_rung
@pytest.mark.parametrize(("m", "n", "k"), [(0, 3, 2), (3, 0, 2), (0, 0, 0)])
def test_an_empty_c(each: Rung, device: Device, m: int, n: int, k: int) -> None:
    assert_right(each, device, Case(m, n, k))


@pytest.mark.sampled(10)
@every_rung
def test_the_default_tile(each: Rung, device: Device) -> None:
    few = {"single_thread": (9, 11, 7), "single_block": (21, 33, 37)}
    m, n, k = few.get(each.name, (35, 40, 37))
    assert_right(each, device, Case(m, n, k, tile=each.default_tile, beta=1.0))


@pytest.mark.sampled(5)
@every_rung
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_nothing_spreads_from_an_element_to_another_row_or_column(
    each: Rung, device: Device, value: float
) -> None:
    # The last element of A and B is what a clamped or wrapped index would point at.
    m, n, k = 7, 6, 5
    last_of_a = Case(m, n, k, special=(("a", m * k - 1, value),))
    c = assert_right(each, device, last_of_a)
    assert np.isfinite(c[:-1]).all()
    assert not np.isfinite(c[-1]).any()
    last_of_b = Case(m, n, k, special=(("b", k * n - 1, value),))
    c = assert_right(each, device, last_of_b)
    assert np.isfinite(c[:, :-1]).all()
    assert not np.isfinite(c[:, -1]).any()


@pytest.mark.sampled(4)
@every_dtype
def test_alpha_zero_only_scales_c(each: Rung, device: Device, dtype: str) -> None:
    case = Case(6, 5, 4, dtype, alpha=0.0, beta=-0.3, special=(("a", 2, np.nan), ("b", 9, np.inf)))
    c = assert_right(each, device, case)
    kind = numpy_dtype(dtype)
    wide = case.matrices()["c"].astype(sums_of(kind)) * sums_of(kind).type(-0.3)
    np.testing.assert_array_equal(c, wide.astype(kind))


@pytest.mark.sampled(9)
@pytest.mark.parametrize("each", REAL, ids=lambda each: each.name)
def test_no_two_kernels_are_told_apart_by_the_result(each: Rung, device: Device) -> None:
    # All add up in the order of k, with one fused multiply-add a step: bit for bit the same. (Of
    # alpha A B + beta C, the compiler fuses the one product or the other.) Not those whose warps
    # share k.
    whole = [tile for tile in each.tiles or () if each.macros(tile).get("SLICES", 1) == 1]
    case = Case(13, 11, 23, alpha=0.7, seed=5)
    first = assert_right(RUNGS[0], device, case)
    tiled = replace(case, tile=whole[0]) if whole else case
    np.testing.assert_array_equal(assert_right(each, device, tiled), first)


def test_warps_that_share_k_add_their_sums_up(device: Device) -> None:
    """Each has its part of every phase's k, and the first comes first."""
    tuned = rung("tuned")
    sliced = [(tile, sizes) for tile in tuned.tiles if (sizes := tuned.macros(tile))["SLICES"] > 1]
    assert sliced
    for tile, sizes in some(sliced, 1):
        k, slices = sizes["BLOCK_K"], sizes["SLICES"]
        case = Case(13, 11, k, tile=tile, seed=5)
        given_arrays = case.matrices()
        total = np.zeros((13, 11), np.float32)
        for part in np.split(np.arange(k), slices):
            a, b = given_arrays["a"][:, part].copy(), given_arrays["b"][part].copy()
            sums = np.zeros_like(total)
            RUNGS[0].kernel("float32", None).launch(
                1, 1, (13, 11, len(part), 1.0, a, len(part), b, 11, 0.0, sums, 11), device=device
            )
            total += sums
        np.testing.assert_array_equal(assert_right(tuned, device, case), total)


COPY = """extern "C" __global__ void copy(
    int rows, int width, float* to, long long to_pitch, const float* from, long long from_pitch)
{
    for (int row = 0; row < rows; ++row)
        for (int col = 0; col < width; ++col)
            to[row * to_pitch + col] = from[row * from_pitch + col];
}"""


@every_rung
@pytest.mark.parametrize("far", ["a", "b", "c"])
def test_offsets_past_an_int(each: Rung, far: str, gpu: Gpu) -> None:
    """By 12 GiB, which a GPU has and need not fill."""
    pitch = 2**30  # the third row starts at element 2**31
    case = Case(3, 3, 3, alpha=0.5, beta=2.0)
    dtype = each.dtypes[0]
    near = {name: gpu.array(x) for name, x in case.matrices(dtype).items()}
    there = {**near, far: gpu.empty((3, pitch), dtype)}
    leading = {name: pitch if name == far else 3 for name in "abc"}
    element = "unsigned short" if each.dtypes == HALVES else "float"
    copy = Kernel(COPY.replace("float", element), "copy")
    copy.launch(1, 1, (3, 3, there[far], pitch, near[far], 3), device=gpu)
    grid, block = each.geometry(3, 3)
    sizes = Sizes(3, 3, 3, *leading.values())
    args = (
        3, 3, 3, case.alpha, there["a"], leading["a"], there["b"], leading["b"], case.beta,
        there["c"], leading["c"], *(
            MappedArray(there["abc"[x.place.array]], x) if isinstance(x, TensorMap) else x
            for x in each.trailing(sizes)
        ),
    )  # fmt: skip
    each.kernel().launch(grid, block, args, each.shared(each.default_tile), gpu)
    copy.launch(1, 1, (3, 3, near["c"], 3, there["c"], leading["c"]), device=gpu)
    a, b, c = case.matrices(dtype).values()
    assert check(near["c"].to_numpy(), a, b, c, case.alpha, case.beta).correct


def test_names_and_numbers() -> None:
    assert tuple(each.name for each in RUNGS) == NAMES
    assert [each.number for each in RUNGS] == list(range(1, len(NAMES) + 1))
    assert all(rung(each.name) is each for each in RUNGS)
    files = sorted(path.name for path in RUNGS[0].path.parent.glob("*.cu"))
    assert files == [each.path.name for each in RUNGS]


def test_an_unknown_name_lists_those_there_are() -> None:
    with pytest.raises(ValueError, match=r"'tilde'.*" + ".*".join(NAMES)):
        rung("tilde")


@every_rung
def test_a_rung_opens_with_idea_cost_and_next(each: Rung) -> None:
    source = each.path.read_text()
    comment = source.split("\n\n")[0].splitlines()
    assert all(line.startswith("// ") for line in comment)
    words = [line[3:].split(":")[0] for line in comment if re.match(r"// [A-Z]\w+: ", line)]
    assert words in (["Idea", "Cost", "Next"], ["Idea", "Cost"][: 2 * (each is RUNGS[-1])])
    # NVRTC has no headers of its own, and none but ours are included.
    assert not re.findall(r'#include (?!"[^"]+\.cuh")', source)


def signature(each: Rung) -> str:
    source = each.path.read_text()
    bounds = r"(?:__\w+__\([\w, ]+\) )*"
    found = re.search(rf'extern "C" __global__ void {bounds}{each.name}\(([^)]*)\)', source)
    assert found
    return " ".join(found[1].split())


@every_rung
def test_all_have_one_signature(each: Rung) -> None:
    real, scalar = ("half_t", "float") if each.dtypes == HALVES else ("real", "real")
    assert signature(each).startswith(
        f"int m, int n, int k, {scalar} alpha, const {real}* a, int lda, const {real}* b, int ldb, "
        f"{scalar} beta, {real}* c, int ldc"
    )


@pytest.mark.parametrize(
    ("each", "tile", "which"),
    [
        pytest.param(
            each, tile, which, id=f"{each.name}-{tile}-{which}",
            # A quick run compiles one rung of each kind: without tiles, with square ones, with
            # tiles of several elements a thread (in the wider type), and of warpgroups.
            marks=[thorough]
            * (
                tile != each.default_tile
                or which != (each.name == "thread_tile_2d")
                or each.name not in ("naive", "tiled_conflicts", "thread_tile_2d", "warpgroup")
            ),
        )
        for each in RUNGS
        for tile in (
            (each.default_tile,) if isinstance(each.tiles, range) else each.tiles or (None,)
        )
        for which in (0, 1)
    ],
)  # fmt: skip
def test_resources(each: Rung, tile: int | None, which: int) -> None:
    dtype = each.dtypes[which]
    used = each.kernel(dtype, tile).compile().resources
    size, sizes = ITEM_SIZES[dtype], each.macros(tile, dtype)
    if each.number < 5:
        assert used.shared_bytes == 0
    elif "TILE" in sizes:
        assert used.shared_bytes == 2 * sizes["TILE"] ** 2 * size
    else:  # at least a tile of A and one of B
        tiles = (sizes["BLOCK_M"] + sizes["BLOCK_N"]) * sizes["BLOCK_K"] * size
        dynamic = each.shared(tile, dtype)
        assert used.shared_bytes <= 48 * 1024
        assert tiles <= used.shared_bytes + dynamic <= 227 * 1024
    if tile == each.default_tile:
        assert used.spill_bytes == 0
    assert 8 <= used.registers <= 255
    by_block = each.number >= 5 and each.name != "persistent"  # that waits for its cluster
    assert used.barriers == int(by_block)


@pytest.mark.parametrize(("tile", "shared_bytes"), [(16, 2048), (32, 8192)])
def test_shared_memory_of_a_tile(tile: int, shared_bytes: int) -> None:
    assert rung("tiled").kernel("float32", tile).compile().resources.shared_bytes == shared_bytes


@pytest.mark.parametrize("dtype", DTYPES)
def test_branchless_loads_without_a_branch(dtype: str) -> None:
    def branches_in_a_phase(name: str) -> int:
        ptx = rung(name).kernel(dtype, 8).compile().ptx
        phase = ptx[: ptx.rindex("bar.sync")].rsplit("ld.param", 1)[1]
        loads = [found.start() for found in re.finditer(r"ld\.global", phase)]
        assert len(loads) == 2
        labels = [found.start() for found in re.finditer(r"^\$L\w+:", phase, re.MULTILINE)]
        start = max(label for label in labels if label < loads[0])
        if name == "tiled":
            start = labels[0]
        return len(re.findall(r"\bbra\b", phase[start:]))

    assert branches_in_a_phase("tiled_branchless") == 0
    assert branches_in_a_phase("tiled") >= 2


def test_tuned_has_its_tile_by_the_size() -> None:
    tuned = rung("tuned")
    found = [tuned.tile_for(n, n, n) or 0 for n in (128, 1024, 4096)]
    assert found == sorted(found)
    assert len(set(found)) == 3
    assert tuned.tile_for(128, 128, 128, tile=64) == 64
    assert tuned.tile_for(0, 5, 0) in tuned.tiles
    assert rung("tiled").tile_for(5000, 5000, 5000) == rung("tiled").default_tile
    with pytest.raises(ValueError, match="tile is 20; it must be"):
        tuned.tile_for(5, 5, 5, tile=20)
    with pytest.raises(TypeError, match="int32 is not supported"):
        tuned.tile_for(5, 5, 5, "int32")
    # A grid has at most 65,535 blocks down C.
    assert tuned.geometry(2**21, 8, tuned.tile_for(2**21, 8, 8))[0] == (1, 32768, 1)
    # Tiles of one name need not be as wide in both dtypes.
    assert tuned.geometry(256, 256, 128, "float32")[0] == (1, 2, 1)
    assert tuned.geometry(256, 256, 128, "float64")[0] == (2, 2, 1)


def test_geometry() -> None:
    assert rung("single_thread").geometry(100, 200) == ((1, 1, 1), (1, 1, 1))
    assert rung("single_block").geometry(32, 20) == ((1, 1, 1), (32, 20, 1))
    assert rung("naive").geometry(65, 100) == ((3, 4, 1), (32, 32, 1))
    assert rung("coalesced").geometry(65, 100) == ((4, 3, 1), (32, 32, 1))
    assert rung("tiled").geometry(65, 100, 16) == ((7, 5, 1), (16, 16, 1))
    assert rung("tiled").geometry(0, 100, 16) == ((7, 1, 1), (16, 16, 1))


@pytest.mark.parametrize(("m", "n"), [(1025, 1), (1, 1025), (33, 32)])
def test_single_block_has_an_end(m: int, n: int) -> None:
    assert rung("single_block").geometry(32, 32)[1] == (32, 32, 1)
    with pytest.raises(ValueError, match=rf"at most 1,024; {m:,} x {n:,} is {m * n:,}"):
        rung("single_block").geometry(m, n)


def test_a_grid_has_an_end() -> None:
    assert rung("tiled").geometry(65535 * 16, 1, 16)[0] == (1, 65535, 1)
    with pytest.raises(ValueError, match=r"m is 1,048,561.*m may be 1,048,560 at most"):
        rung("tiled").geometry(65535 * 16 + 1, 1, 16)
    assert rung("tiled").geometry(1, 2**31 - 1, 2)[0] == (2**30, 1, 1)
    with pytest.raises(ValueError, match=r"n is 2,147,483,647.*n may be 131,070 at most"):
        rung("naive").geometry(1, 2**31 - 1, 2)
    with pytest.raises(ValueError, match="-1 x 4"):
        rung("tiled").geometry(-1, 4)


@pytest.mark.parametrize("tile", [-1, 0, 1, 33, 1024])
@pytest.mark.parametrize("each", [each for each in RUNGS if each.tiles], ids=lambda x: x.name)
def test_tiles_out_of_range(each: Rung, tile: int) -> None:
    message = f"tile is {tile}; it must be {listed(each.tiles)} for {each.name}$"
    with pytest.raises(ValueError, match=message):
        each.kernel(None, tile)
    with pytest.raises(ValueError, match=message):
        each.geometry(5, 5, tile)


def test_tiles_in_words() -> None:
    assert listed(range(2, 33)) == "from 2 to 32"
    assert listed((16, 32, 64)) == "16, 32 or 64"
    assert listed((128,)) == "128"
    assert listed((1, 2)) == "1 or 2"
    assert listed((*range(2, 33), 64, 128)) == "from 2 to 32, 64 or 128"


def test_the_tile_that_is_asked_for_where_it_is_taken() -> None:
    found = tile_each(16)
    assert set(found) == set(NAMES)
    assert (found["single_block"], found["tiled"], found["vectorized"]) == (None, 16, 16)
    assert (found["warp_tile"], tile_each(64)["tiled"]) == (rung("warp_tile").default_tile, 32)
    assert tile_each(None) == {each.name: each.default_tile for each in RUNGS}
    taken = "from 2 to 32, 64, 96, 128, 192 or 256"
    with pytest.raises(ValueError, match=f"tile is 33; it must be {taken}"):
        tile_each(33)
    with pytest.raises(TypeError, match=r"tile is 2\.5"):
        tile_each(2.5)  # type: ignore[arg-type]


@pytest.mark.parametrize("each", [each for each in RUNGS if each.tiles], ids=lambda x: x.name)
def test_every_tile_has_a_block_that_fits(each: Rung) -> None:
    assert each.default_tile in each.tiles
    assert list(each.tiles) == sorted(each.tiles)
    for tile in each.tiles:
        _, (x, y, z) = each.geometry(5, 5, tile)
        count = threads(each.macros(tile)) if "BLOCK_M" in each.macros(tile) else tile * tile
        assert x * y * z == count <= 1024


def test_tiles_that_mean_nothing() -> None:
    with pytest.raises(ValueError, match="single_thread has no tiles"):
        rung("single_thread").kernel("float32", 16)
    with pytest.raises(ValueError, match="single_block has no tiles"):
        rung("single_block").geometry(5, 5, 16)
    with pytest.raises(TypeError, match=r"tile is 2\.5"):
        rung("tiled").kernel("float32", 2.5)  # type: ignore[arg-type]


def test_a_dtype_that_is_not_supported() -> None:
    with pytest.raises(TypeError, match="int32 is not supported: tiled takes float32 and float64"):
        rung("tiled").kernel("int32")
    with pytest.raises(TypeError, match=r"float32 is not supported: .* takes float16 and bfloat16"):
        rung("tensor_core").kernel("float32")


def test_a_rung_of_one_architecture() -> None:
    only = replace(rung("tiled"), needs="sm_90a")
    only.check_arch("sm_90a")
    for arch in ("sm_80", "sm_90", "sm_100"):
        with pytest.raises(LaunchError, match=rf"no other \(sm_90a\), and this is {arch};"):
            only.check_arch(arch)
