"""Reading Nsight Compute: what it prints, what it complains of, and the comparison.

There is no GPU here, and no Nsight Compute. A program called ``ncu`` stands in for it, which takes
its options and prints as it does; the launches under it are made on the emulator, whose counts it
prints as the hardware's.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from reference import is_thorough, some, thorough
from scripts import script

from tilewise.cli.show.nsight import hardware as show_hardware
from tilewise.devices import get_device
from tilewise.errors import CompileError, DeviceUnavailableError, LaunchError
from tilewise.lens import hardware_cases, metrics
from tilewise.lens.agreement import counts, emulate
from tilewise.lens.case_spec import Spec
from tilewise.lens.compare import compare
from tilewise.lens.hardware_cases import CASES, make
from tilewise.lens.metrics import AS_PTX, EXACT, METRICS, NEAR, Hardware, given_registers, number
from tilewise.lens.nsight import ProfilerError, measure, parse, require
from tilewise.lens.nsight_child import OUTCOME, Case, load, save
from tilewise.tensor_map import tensor_map

PRINTED = """\
==PROF== Connected to process 1243 (/usr/bin/python3.12)
==PROF== Profiling "tiled" - 0: 0%....50%....100% - 9 passes
"ID", said the kernel, "is not mine"
==PROF== Profiling "scale" - 1: 0%....50%....100% - 9 passes
==PROF== Disconnected from process 1243
"ID","Process ID","Process Name","Host Name","Kernel Name","Context","Stream","Block Size",\
"Grid Size","Device","CC","l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum",\
"l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum",\
"l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum","launch__occupancy_limit_shared_mem",\
"launch__registers_per_thread","smsp__inst_executed_op_shared_atom.sum"
"","","","","","","","","","","","","request","sector","block","register/thread","inst"
"0","1243","python3.12","127.0.0.1","tiled","1","7","(32, 32, 1)","(11, 20, 1)","0","9.0",\
"0","56,320","225,280","7","32","n/a"
"1","1243","python3.12","127.0.0.1","void scale<int>(T1, const T1 *, T1 *)","1","7",\
"(256, 1, 1)","(4, 1, 1)","0","9.0","0","32","128","32","16","(!) n/a"
==WARNING== Found metrics that are not available.
"""

FORBIDDEN = """\
==PROF== Connected to process 4242 (/usr/bin/python3.12)
==ERROR== ERR_NVGPUCTRPERM - The user does not have permission to access NVIDIA GPU Performance \
Counters on the target device 0. For instructions on enabling permissions and to get more \
information see https://developer.nvidia.com/ERR_NVGPUCTRPERM
==PROF== Disconnected from process 4242
==WARNING== No kernels were profiled.
"""

# What every ncu of these tests begins with.
PRELUDE = '''\
#!{python}
import subprocess, sys

if sys.argv[1:] == ["--version"]:
    print("NVIDIA (R) Nsight Compute Command Line Profiler")
    print("Copyright (c) 2018-2025 NVIDIA Corporation")
    print("Version 2025.3.0.0 (build 36273991) (public-release)")
    raise SystemExit
options = sys.argv[1:]
assert options[options.index("--page") + 1] == "raw" and "--csv" in options
asked = options[options.index("--metrics") + 1].split(",")
command = options[options.index("--metrics") + 2 :]


def table(launches):
    """launches: a kernel's name and its values by metric."""
    head = ["ID", "Process ID", "Process Name", "Host Name", "Kernel Name", "Context", "Stream"]
    head += ["Block Size", "Grid Size", "Device", "CC", *sorted(asked)]
    lines = [head, [""] * 11 + ["unit"] * len(asked)]
    for index, (name, values) in enumerate(launches):
        where = [index, 99, "python3", "127.0.0.1", name, 1, 7, "(32, 32, 1)", "(1, 1, 1)", 0, 9.0]
        lines.append([*where, *(values.get(metric, "n/a") for metric in sorted(asked))])
    for line in lines:
        print(",".join('"' + str(cell) + '"' for cell in line))


def launched():
    """Run the process's own work here, on the emulator for a GPU: its exit code, and reports."""
    from pathlib import Path

    from tilewise.devices import get_device
    from tilewise.lens import nsight_child

    assert command[:3] == [sys.executable, "-m", "tilewise.lens.nsight_child"], command
    emulator, reports = get_device("emulator"), []

    class Recorder:
        name, arch, description = "gpu", emulator.arch, "the emulator for a GPU"

        def launch(self, compiled, launch):
            reports.append((compiled.symbol, emulator.launch(compiled, launch)))
            return reports[-1][1]

    nsight_child.get_device = {{"gpu": Recorder()}}.__getitem__
    return nsight_child.main(Path(command[3])), reports


def values(report):
    """The emulator's counts by Nsight Compute's names, written as it writes them."""
    from tilewise.lens.metrics import METRICS, given_registers

    registers = given_registers(report.resources.registers)
    counters = report.counters.to_dict() | {{"registers": registers}}
    found = {{}}
    for name, alternatives in METRICS.items():
        for first, *rest in alternatives:  # where it is a sum, the first is all of it
            found[first] = f"{{counters[name]:,}}"
            found |= {{metric: "0" for metric in rest if metric.lstrip("-") not in found
                      and metric[0] != "-"}}
    del found["smsp__inst_executed_op_shared_atom.sum"]
    for limit, blocks in (("blocks", 32), ("registers", 2), ("shared_mem", 7), ("warps", "2")):
        found["launch__occupancy_limit_" + limit] = blocks
    return found


'''

COUNTS = """\
print("==PROF== Connected to process 99 (/usr/bin/python3)")
status, reports = launched()
print("==PROF== Disconnected from process 99")
if status:
    print(f"==ERROR== The application returned an error code ({status}).")
    print("==WARNING== No kernels were profiled.")
    sys.exit(status)
table([(symbol, values(report)) for symbol, report in reports])
"""

Ncu = Callable[[str], None]


def has_launched(*symbols: str) -> str:
    """What an ncu does under which these kernels were launched, where none is for its counts."""
    outcome = json.dumps({"gpu": "a GPU", "symbols": symbols})
    return f"from pathlib import Path\n(Path(command[3]) / {OUTCOME!r}).write_text({outcome!r})\n"


@pytest.fixture
def ncu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Ncu:
    """Puts an ``ncu`` on the PATH that ends as the given lines of Python say."""

    def put(end: str) -> None:
        folder = tmp_path / "bin"
        folder.mkdir()
        program = folder / "ncu"
        program.write_text(PRELUDE.format(python=sys.executable) + end)
        program.chmod(0o755)
        monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)

    return put


SCALE = """
template <class T> __global__ void scale(T by, const T* x, T* out) {
    out[threadIdx.x] = by * x[threadIdx.x];
}
struct Pair { int a, b; };
extern "C" __global__ void pair(Pair p, int n, unsigned char flag, const float* x, float* out) {
    if (threadIdx.x < n) out[threadIdx.x] = x ? x[threadIdx.x] : p.a + FIRST * p.b + flag;
}
"""


def scale(n: int = 32) -> Case:
    args = (2, np.arange(n, dtype=np.int32), np.zeros(n, np.int32))
    return Case(SCALE, "scale<int>", 1, n, args, {"FIRST": 1})


def hardware(**counters: int) -> Hardware:
    metrics = {
        metric.lstrip("-"): 0 if place else value
        for name, value in counters.items()
        for place, metric in enumerate(METRICS[name][0])
    }
    metrics["launch__registers_per_thread"] = 32
    return Hardware("k", counters, 32, {}, "a GPU", "1.0", metrics)


def test_parse() -> None:
    """The table alone: not what stands around it, nor the row of units."""
    tiled, scaled = parse(PRINTED)
    assert tiled["Kernel Name"] == "tiled"
    assert tiled["Grid Size"] == "(11, 20, 1)"
    assert number(tiled["l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum"]) == 56320
    assert number(tiled["smsp__inst_executed_op_shared_atom.sum"]) is None
    assert scaled["Kernel Name"] == "void scale<int>(T1, const T1 *, T1 *)"
    assert number(scaled["launch__registers_per_thread"]) == 16


@pytest.mark.parametrize("printed", ["", FORBIDDEN, "ID of the process: 3\n1,2\n"])
def test_parse_without_a_table(printed: str) -> None:
    assert parse(printed) == []


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0), ("6,307,840", 6307840), ("12.00", 12), ("1,024.0", 1024), ("0.5", None),
        (str(2**60 + 1), 2**60 + 1), ("n/a", None), ("(!) n/a", None), ("", None), ("nan", None),
        ("inf", None), ("(!) 7", 7),
    ],
)  # fmt: skip
def test_number(text: str, value: int | None) -> None:
    assert number(text) == value


def test_cases_are_what_they_were_in_the_other_process(tmp_path: Path) -> None:
    wide = np.arange(24, dtype=np.float64).reshape(4, 6)
    pitched, alone = wide[:, :4], np.array([np.nan, -0.0], np.float32)
    args = (
        3, -1.5, float("inf"), None, True, np.float32(0.1), np.int64(2**40), b"\x01\x02",
        np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")])[0], pitched, alone, alone,
        np.empty((0, 3), np.int8), np.array(7, np.uint16),
    )  # fmt: skip
    source = tmp_path / "kernel.cu"
    source.write_text(SCALE)
    defines = {"FIRST": np.int32(4), "NAME": "a b", "ON": True}
    save(
        tmp_path,
        [Case(source, "pair", (2, 3), 64, args, defines, 128, ["--ptxas-options=-O1"]), scale()],
    )
    there, second = load(tmp_path)
    assert there.source == source
    assert second.source == SCALE
    assert second.kernel.path is None
    assert (there.name, there.grid, there.block, there.shared) == (
        "pair",
        (2, 3, 1),
        (64, 1, 1),
        128,
    )
    assert there.defines == {"FIRST": 4, "NAME": "a b", "ON": True}
    assert there.kernel.options == ("--ptxas-options=-O1",)
    assert there.args[:5] == args[:5]
    assert there.args[4] is True
    assert [type(x) for x in there.args[5:7]] == [np.float32, np.int64]
    assert there.args[5:8] == args[5:8]
    assert there.args[8] == args[8].tobytes()
    assert there.args[9].strides == pitched.strides
    np.testing.assert_array_equal(there.args[9], pitched)
    assert there.args[10] is there.args[11]
    assert there.args[10].tobytes() == alone.tobytes()
    assert there.args[12].shape == (0, 3)
    assert there.args[13] == 7
    assert there.args[13].shape == ()


@pytest.mark.parametrize(
    ("case", "kind", "words"),
    [
        (Case(SCALE, "pair", 0, 1, ()), ValueError, "grid"),
        (Case(SCALE, "pair", 1, (1, 1, 1, 1), ()), ValueError, "block"),
        (Case(SCALE, "pair", 1, 1, (object(),)), TypeError, "pair, argument 0"),
        (Case(SCALE, "pair", 1, 1, (np.eye(3).T[::2],)), ValueError, "not row-contiguous"),
        (Case(SCALE, "pair", 1, 1, (), {"FIRST": [1]}), TypeError, "macro FIRST"),
        (Case("nothing.cu", "pair", 1, 1, ()), FileNotFoundError, "nothing.cu"),
    ],
)
def test_bad_cases(case: Case, kind: type[Exception], words: str) -> None:
    """Before anything is started: also where there is no Nsight Compute."""
    with pytest.raises(kind, match=words):
        measure([scale(), case])


def test_no_cases() -> None:
    assert measure([]) == []


def test_measure(ncu: Ncu) -> None:
    """Each case's own counts, in order: of pitched arrays, dynamic shared memory, templates."""
    ncu(COUNTS)
    specs = [
        spec
        for spec in CASES
        if (spec.kernel, spec.seed, spec.dtype) == ("tiled_conflicts", 3, "float64")
        or (spec.kernel in ("histogram", "strided_copy") and spec.dtype != "float64")
    ]
    assert len(specs) == 7
    specs = some(specs, 3)
    first, *found = measure([scale(), *map(make, specs)])
    for spec, one in zip(specs, found, strict=True):
        report, _ = emulate(spec)
        rows = compare(counts(report), one)
        assert {row.name for row in rows} == set(METRICS) - {"shared_atomic_requests"}
        assert [row for row in rows if not row.equal] == []
        assert one.kernel == spec.kernel
        assert one.registers == given_registers(report.resources.registers)
    assert first.kernel == "scale<int>"
    assert first.counters["global_load_requests"] == 1
    assert first.limits == {"blocks": 32, "registers": 2, "shared": 7, "warps": 2}
    assert first.gpu == "the emulator for a GPU"
    assert first.ncu == "2025.3.0.0"
    assert json.loads(json.dumps(first.to_dict()))["counters"] == first.counters
    assert first.metrics[METRICS["global_load_requests"][0][0]] == 1


@thorough
def test_the_callers_arrays_stay(ncu: Ncu) -> None:
    ncu(COUNTS)
    case = scale()
    measure([case])
    assert not case.args[2].any()


@thorough
def test_second_metrics_are_taken_where_the_first_is_not_there(ncu: Ncu) -> None:
    first, second = (names[0] for names in METRICS["shared_load_requests"])
    ncu(
        COUNTS.replace("table(", f"reports and asked.remove({first!r})\ntable(")
        + f"assert {second!r} in asked\n"
    )
    (found,) = measure([scale()])
    (row,) = compare({"shared_load_requests": 0}, found)
    assert row.metric == second


def test_metrics_that_ncu_does_not_know_are_not_asked_for_again(ncu: Ncu) -> None:
    """Some versions profile nothing then, and name the one that they miss."""
    unknown = "smsp__sass_branch_targets_threads_divergent"
    refused = rf"==ERROR== Failed to find metric regex:^{unknown}\.(sum|min|max)$"
    ncu(
        f"if {unknown + '.sum'!r} in asked:\n    print({refused!r})\n    sys.exit(1)\n"
        "assert 'smsp__inst_executed.sum' in asked\n"
        + has_launched("scale")
        + "table([('scale', dict.fromkeys(asked, 1))])\n"
    )
    (found,) = measure([scale()])
    assert "divergent_branches" not in found.counters
    assert found.counters["warp_instructions"] > 0


def test_no_ncu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProfilerError, match=r"not on the PATH.*CUDA toolkit.*without it") as caught:
        measure([scale()])
    assert isinstance(caught.value, DeviceUnavailableError)
    with pytest.raises(ProfilerError, match="not on the PATH"):
        require()


def test_ncu_that_does_not_start(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = tmp_path / "ncu"
    program.write_bytes(b"\x7fELF of another machine")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProfilerError, match="can't be started"):
        measure([scale()])


@pytest.mark.sampled(2)
@pytest.mark.parametrize("launches", [False, True])
def test_forbidden(ncu: Ncu, launches: bool) -> None:
    """Whether or not the process came to its end all the same."""
    ncu(("launched()\n" if launches else "") + f"print({FORBIDDEN!r})\nsys.exit(1)\n")
    with pytest.raises(ProfilerError, match=r"https://developer.nvidia.com/ERR_NVGPUCTRPERM"):
        measure([scale()])


def test_no_gpu(ncu: Ncu, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process itself is started here, and finds none."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    ncu(
        "status = subprocess.run(command).returncode\n"
        "print(f'==ERROR== The application returned an error code ({status}).')\n"
        "print('==WARNING== No kernels were profiled.')\nsys.exit(status)\n"
    )
    with pytest.raises(DeviceUnavailableError, match="no GPU can be used") as caught:
        measure([scale()])
    assert not isinstance(caught.value, ProfilerError)
    assert "error code" not in str(caught.value)


def test_without_a_gpu_nothing_is_emulated(ncu: Ncu) -> None:
    ncu("")
    if get_device("auto").name == "gpu":
        pytest.skip("there is a GPU")
    with pytest.raises(DeviceUnavailableError, match="no GPU can be used"):
        require()


@thorough
def test_a_kernel_that_does_not_compile(ncu: Ncu) -> None:
    """Nothing is launched then, not even what comes before it."""
    ncu(COUNTS.replace("if status:", "assert not reports\nif status:"))
    with pytest.raises(CompileError, match="FIRST"):
        measure([scale(), Case(SCALE, "pair", 1, 1, ())])


@thorough
def test_arguments_that_do_not_fit(ncu: Ncu) -> None:
    ncu(COUNTS)
    with pytest.raises(TypeError, match="scale<int> takes 3 arguments, not 1"):
        measure([Case(SCALE, "scale<int>", 1, 32, (1,), {"FIRST": 1})])


@thorough
def test_a_launch_that_fails(ncu: Ncu) -> None:
    """What the process says, and what Nsight Compute says to it."""
    ncu(COUNTS.replace("if status:", "print('==ERROR== Failed to profile')\nif status:"))
    with pytest.raises(LaunchError, match=r"2048.*Nsight Compute says: Failed to profile$"):
        measure([scale(2048)])


def test_a_process_that_dies(ncu: Ncu) -> None:
    ncu(
        "print('==PROF== Connected to process 99')\n"
        "print('Fatal Python error: Segmentation fault')\n"
        "print('==ERROR== The application returned an error code (139).')\nsys.exit(139)\n"
    )
    with pytest.raises(ProfilerError, match="ended before") as caught:
        measure([scale()])
    assert str(caught.value).endswith("printed last:\nFatal Python error: Segmentation fault")


@pytest.mark.parametrize(
    ("kernels", "words"),
    [
        (["_5scale_"], r"1 launches \(\w+scale\w+\), and what was launched is 2 launches"),
        (["pair", "_5scale_"], r"counted 2 launches \(pair, \w+scale\w+\)"),
        ([], "has counted no launch.*Nsight Compute says: no room"),
    ],
)
def test_other_launches_than_ours(ncu: Ncu, kernels: list[str], words: str) -> None:
    ncu(
        has_launched("_5scale_", "pair")
        + f"table([(name, dict.fromkeys(asked, 1)) for name in {kernels}])\n"
        + ("" if kernels else "print('==ERROR== no room')\n")
    )
    x = np.zeros(4, np.float32)
    pair = Case(SCALE, "pair", 1, 4, (bytes(8), 4, 1, None, x), {"FIRST": 1})
    with pytest.raises(ProfilerError, match=words):
        measure([scale(), pair])


def test_compare() -> None:
    """What both have, in one order, with Nsight Compute's names."""
    found = hardware(shared_load_requests=5, global_load_sectors=8)
    counters = {"global_load_sectors": 8, "shared_load_requests": 4, "flops": 3, "fadd": 1}
    first, second = compare(counters, found)
    assert (first.name, first.emulator, first.hardware, first.equal) == (
        "global_load_sectors", 8, 8, True,
    )  # fmt: skip
    assert first.metric == "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"
    assert (second.emulator, second.hardware, second.equal) == (4, 5, False)
    assert second.to_dict()["name"] == "shared_load_requests"
    (registers,) = compare({"registers": 30}, found)
    assert (registers.hardware, registers.metric) == (32, "launch__registers_per_thread")


def test_sums_name_all_that_is_in_them() -> None:
    atoms = METRICS["global_atomic_requests"][0]
    found = Hardware("k", {"global_atomic_requests": 3}, None, {}, "", "", dict.fromkeys(atoms, 1))
    (row,) = compare({"global_atomic_requests": 3, "registers": 1}, found)
    assert row.metric == (
        "l1tex__t_requests_pipe_lsu_mem_global_op_atom.sum + "
        "l1tex__t_requests_pipe_lsu_mem_global_op_red.sum"
    )


@pytest.mark.parametrize(
    ("of_banks", "of_instructions", "conflicts", "expected"),
    [
        (12682, 12672, 10, (12672, 0)),  # a cp.async came in between
        (160, 160, 32, (160, 32)),  # the instructions' own
        (4200, 2800, 0, (4200, 0)),  # two lanes of an instruction share
        (2235, 2456, 1672, (2235, 1672)),
    ],
)
def test_what_loads_waited_for_arrivals_is_not_theirs(
    of_banks: int, of_instructions: int, conflicts: int, expected: tuple[int, int]
) -> None:
    launch = {
        "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": f"{of_banks:,}",
        "smsp__sass_l1tex_data_pipe_lsu_wavefronts_mem_shared_op_ld.sum": f"{of_instructions:,}",
        "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum": f"{conflicts:,}",
    }
    found = metrics.hardware("k", launch, "a GPU", "1.0").counters
    assert (found["shared_load_wavefronts"], found["shared_load_bank_conflicts"]) == expected


def test_exact_counters_are_counters() -> None:
    assert set(EXACT) < set(METRICS)
    assert len(set(EXACT)) == len(EXACT) == 24
    assert set(AS_PTX) < set(METRICS) - set(EXACT)
    assert set(NEAR) < set(METRICS) - set(EXACT) - set(AS_PTX)


def test_table(capsys: pytest.CaptureFixture[str]) -> None:
    found = hardware(
        global_load_requests=2**40, shared_load_bank_conflicts=0, warp_instructions=7, fadd=0
    )
    counters = dict(found.counters) | {"shared_load_bank_conflicts": 3, "warp_instructions": 9}
    show_hardware(compare(counters, found))
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert [line.split() for line in lines[1:4]] == [
        ["global", "load", "requests", "1,099,511,627,776", "1,099,511,627,776", "equal"],
        ["shared", "load", "bank", "conflicts", "3", "0", "differs"],
        ["warp", "instructions", "9", "7", "differs"],
    ]
    assert lines[4] == "1 counter more: 0 on both sides"
    text = " ".join(lines[5:])
    assert "l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_ld.sum" in text
    assert "l1tex__t_requests" not in text
    assert "as ptxas made them" in " ".join(text.split())


def test_table_of_what_is_equal(capsys: pytest.CaptureFixture[str]) -> None:
    found = hardware(global_load_requests=4)
    show_hardware(compare(dict(found.counters) | {"registers": 32}, found))
    assert len(capsys.readouterr().out.splitlines()) == 3


def test_table_of_other_differences(capsys: pytest.CaptureFixture[str]) -> None:
    """What ptxas makes of instructions explains no other register count."""
    show_hardware(compare({"registers": 30}, hardware()))
    shown = capsys.readouterr().out
    assert "launch__registers_per_thread" in shown
    assert "ptxas" not in shown


def test_table_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    show_hardware(())
    assert "counted anything" in capsys.readouterr().out


FEW = 6 if is_thorough() else 3


def benchmark(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    """The benchmark's command, with few of its cases."""
    few = some([spec for spec in CASES if spec.kernel in ("reduction", "stencil")], FEW)
    monkeypatch.setattr(hardware_cases, "CASES", few)
    monkeypatch.setattr(sys, "argv", ["counters.py", *options])
    script("counters.py", "__main__")


def test_benchmark(
    ncu: Ncu,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What it keeps makes the same cases again."""
    ncu(COUNTS)
    file = tmp_path / "counters.json"
    benchmark(monkeypatch, "--json", str(file))
    assert f"{FEW} of {FEW} cases equal" in capsys.readouterr().out
    kept = json.loads(file.read_text())
    assert kept["ncu"] == "2025.3.0.0"
    assert kept["metrics"]["ffma"] == "smsp__sass_thread_inst_executed_op_ffma_pred_on.sum"
    assert len(kept["cases"]) == FEW
    for case in kept["cases"]:
        spec = Spec.of(case["spec"])
        assert spec in CASES
        assert spec.name == case["name"]
        assert case["hardware"] == case["emulator"]
        assert {name for name in EXACT if name.startswith("global")} < set(case["hardware"])
        assert case["other_metrics"] == {}


@thorough
def test_benchmark_that_differs(
    ncu: Ncu, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """In one counter that must be equal, of one case; and in one that need not be, of all."""
    ncu(
        COUNTS.replace(
            "table([",
            "all_values = [values(report) for _, report in reports]\n"
            f"all_values[1][{METRICS['global_store_sectors'][0][0]!r}] = '1,000'\n"
            "for each in all_values: each['smsp__inst_executed.sum'] = '1'\n"
            "values = dict(zip((id(report) for _, report in reports), all_values)).get\n"
            "table([",
        ).replace("values(report)) for", "values(id(report))) for")
    )
    with pytest.raises(SystemExit) as caught:
        benchmark(monkeypatch, "--only", "stencil")
    assert caught.value.code == 1
    shown = capsys.readouterr().out
    assert [line.split()[-1] for line in shown.splitlines()[:4:3]] == ["equal", "equal"]
    spec = next(spec for spec in CASES if spec.name == shown.splitlines()[1].split()[0])
    sectors = counts(emulate(spec)[0])["global_store_sectors"]
    assert f"global_store_sectors: {sectors} on the emulator, on the GPU 1000 l1tex__t_sec" in shown
    assert "2 of 3 cases equal" in shown
    assert "warp_instructions        3 of 3" in shown


@pytest.mark.parametrize("options", [("--only", "no such"), ("--only", "a", "--json", "x.json")])
def test_benchmark_of_no_case(options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(SystemExit) as caught:
        benchmark(monkeypatch, *options)
    assert caught.value.code == 2


def test_benchmark_without_ncu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as caught:
        benchmark(monkeypatch)
    assert caught.value.code == 2
    assert "not on the PATH" in capsys.readouterr().err


def test_a_case_keeps_what_its_source_may_read(tmp_path: Path) -> None:
    source = 'extern "C" __global__ void k() {}'
    save(tmp_path, [Case(source, "k", 1, 1, (), include=[tmp_path], trusted=True)])
    (case,) = load(tmp_path)
    assert case.kernel.include == (str(tmp_path),)
    assert case.kernel.trusted


def test_tensor_maps_are_what_they_were_in_the_other_process(tmp_path: Path) -> None:
    """With their array's own strides and everything that the map says."""
    x = np.zeros((12, 64), np.float16)[:, :32]
    given = tensor_map(x, (4, 32), swizzle="64B", fill="nan", promotion=256)
    (spec,) = (s for s in CASES if s.name == "tensor_copy-uint16-0-64B")
    case = make(spec)
    case = replace(case, args=(given, given, *case.args[2:]))
    save(tmp_path, [case])
    ((first, second, *_),) = (again.args for again in load(tmp_path))
    assert first.map == given.map
    assert first.array.strides == x.strides
    assert first.array is second.array


LISTING = """
if "--query-metrics" in sys.argv:
    print("Device NVIDIA H200 (GH100)")
    print("l1tex__tmain_other      Counter   request   # of requests")
    print("smsp__inst_executed_op_ldsm   Counter   inst   # of instructions")
    print("sm__cycles_active       Counter   cycle     # of cycles")
    raise SystemExit
"""


def candidates(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.setattr(sys, "argv", ["metric_candidates.py", *options])
    script("metric_candidates.py", "__main__")


@thorough
def test_candidates(
    ncu: Ncu,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Each metric that is not 0 is shown, what the GPU lists is asked for, and all is kept."""
    ncu(
        "import pathlib\n"
        "pathlib.Path(sys.argv[0]).with_name('asked').write_text(' '.join(asked))\n"
        + COUNTS.replace(
            "values(report))",
            "{**values(report), 'l1tex__tmain_other.sum': 3, "
            "'smsp__inst_executed_op_ldsm.sum': '1,200'})",
        )
    )
    program = tmp_path / "bin" / "ncu"
    program.write_text(
        program.read_text().replace(
            "import subprocess, sys\n", f"import subprocess, sys\n{LISTING}"
        )
    )
    file = tmp_path / "candidates.json"
    few = ("--only", "0-eight_way", "--json", str(file), "--everything")
    candidates(monkeypatch, *few)
    shown = capsys.readouterr().out
    assert re.search(r"ncu +smsp__inst_executed_op_ldsm +1,200\n", shown)
    assert "\nmatrix_rows: " in shown
    assert re.search(r"\nmatrix_rows shared_store_wavefronts: of 1 cases equal: .*op_st 1", shown)
    kept = json.loads(file.read_text())
    assert "l1tex__tmain_other.sum" in kept["there"]
    assert not any("cycles" in name for name in kept["there"])
    # Of what is not listed, only what instrumented instructions count is asked for.
    assert "l1tex__data_bank_reads.sum" not in program.with_name("asked").read_text()
    assert "smsp__sass_inst_executed_op_ldsm.sum" in program.with_name("asked").read_text()
    assert {case["name"].partition("-")[0] for case in kept["cases"]} == {
        "matrix_rows", "async_copy", "shared_atomic",
    }  # fmt: skip
    assert all(case["metrics"]["l1tex__tmain_other.sum"] == 3 for case in kept["cases"])
    assert all(case["emulator"]["global_load_requests"] for case in kept["cases"])


def test_candidates_without_ncu(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SystemExit) as caught:
        candidates(monkeypatch)
    assert caught.value.code == 2
    assert "not on the PATH" in capsys.readouterr().err
