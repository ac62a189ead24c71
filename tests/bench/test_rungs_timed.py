"""benchmarks/tensor_core_rungs.py: what it checks and says, without a GPU."""

from __future__ import annotations

import argparse
from types import SimpleNamespace

import pytest
from scripts import script

from tilewise.devices import Device
from tilewise.ladder.rungs import rung

pytest.importorskip("torch", reason="the script times PyTorch's product")
SCRIPT = script("tensor_core_rungs.py")
pytestmark = pytest.mark.usefixtures("no_machine_code")


def test_what_is_wrong_is_told(emulator: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    values = SCRIPT["checked"].__globals__
    monkeypatch.setitem(values, "CHECKED", ((33, 40, 24),))
    monkeypatch.setitem(values, "HALVES", ("float16",))
    rungs = [rung("tensor_core"), rung("warpgroup")]
    assert list(SCRIPT["checked"](emulator, rungs)) == []
    found = SimpleNamespace(correct=False, verdict=SimpleNamespace(lines=lambda: ["WRONG by 3"]))
    monkeypatch.setitem(values, "run", lambda *_, **__: found)
    wrong = list(SCRIPT["checked"](emulator, rungs))
    assert wrong[0] == "tensor_core 33 x 40 x 24 float16, 0 between rows, beta 0.0: WRONG by 3"
    assert len(wrong) == 2 * 3 * 2


@pytest.mark.parametrize("text", ["", "a", "a=b", "=b.so:f", "a=:f", "a=b.so:"])
def test_libraries_that_are_none(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"is not NAME=FILE\.so:FUNCTION"):
        SCRIPT["Beside"](text)


def test_a_row_in_words() -> None:
    row = {"kernel": "persistent", "n": 8192, "error_share": 0.2}
    rows = {"persistent": row, "vendor": {**row, "kernel": "vendor"}}
    seconds = {"persistent": [1.0, 1.5, 9.0], "vendor": [1.2]}
    first, second = SCRIPT["with_times"](rows, seconds)
    assert (first["kernel"], second["kernel"]) == ("vendor", "persistent")
    assert second["ratio"] == pytest.approx(0.8)
    timed = row | {"tflops": 704.0, "ratio": 1.05, "registers": 168}
    assert SCRIPT["told"](timed, 880e12) == (
        " 8,192   704.0 TFLOP/s, 0.800 of the ceiling, 1.050 of the vendor's, 168 registers  "
        "persistent"
    )
    assert "WRONG" in SCRIPT["told"](row | {"error_share": 2.0}, None)


def test_launches_follow_the_current_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CUDA graph is captured on a stream of its own: launches on another one are not in it."""
    used: list[int] = []
    gpu = SimpleNamespace(
        multiprocessors=132, arch="sm_90a", prepare=lambda *_: None,
        enqueue=lambda prepared, stream, addresses: used.append(stream),
    )  # fmt: skip
    streams = iter((5, 7, 9))
    monkeypatch.setattr(
        SCRIPT["torch"].cuda, "current_stream", lambda: SimpleNamespace(cuda_stream=next(streams))
    )
    call, _ = SCRIPT["call_of"](gpu, rung("tensor_core"), 256)
    x = SimpleNamespace(**dict.fromkeys("abd", SimpleNamespace(data_ptr=lambda: 256)))
    call(x)
    call(x)
    assert used == [5, 7]


def test_only_rungs_that_there_are(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["tensor_core_rungs.py", "--only", "persistent,nonsense"])
    with pytest.raises(SystemExit) as ended:
        SCRIPT["main"]()
    assert ended.value.code == 2
    assert "no such rung as 'nonsense'; there are tensor_core" in capsys.readouterr().err
