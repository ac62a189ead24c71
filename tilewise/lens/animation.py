"""Pictures of a trace's sliding tiles, for a slide or a README."""

from __future__ import annotations

import importlib.util
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewise.provenance import write_whole

MOST_FRAMES = 400
MILLISECONDS = 700  # for a frame of the GIF
MOST_BLOCKS = 64  # of a grid, for which the tiles of all blocks are shown
OTHERS = 350  # for a frame that shows another block's tile of C
_DPI, _WIDTH, _HEIGHT = 100, 6.5, 6.6
_SMALL, _LARGE = 12, 15  # points: at least 10 pixels if a picture is 390 pixels wide
_MOST_VALUES = 16  # rows and columns of C for whose values there is room
# Okabe and Ito's colours, which colour-blind readers can tell apart.
_A, _B, _C, _NOW, _EMPTY, _INK = "#e69f00", "#56b4e9", "#009e73", "#d55e00", "#eceff1", "#1b1f24"
_DONE, _SUMS = "#8fd3bd", "#cfe8df"


@dataclass
class Frame:
    """A picture of the animation.

    Attributes
    ----------
    title, text : str
    tiles : dict of str to set of int
        The elements that the block holds in this phase, or writes, by matrix.
    shared : dict of int to float
        The values in shared memory, by byte.
    now : set of int
        The bytes of shared memory that are read now.
    sums : dict of int to float
        The sum of each thread, by thread.
    written : dict of int to float
        The elements of C that are finished.
    milliseconds : int
        The time for which it is shown.
    is_last : bool
        Whether all of C is finished, so that nothing else is shown.
    """

    title: str
    text: str
    tiles: dict[str, set[int]]
    shared: dict[int, float] = field(default_factory=dict)
    now: set[int] = field(default_factory=set)
    sums: dict[int, float] = field(default_factory=dict)
    written: dict[int, float] = field(default_factory=dict)
    milliseconds: int = MILLISECONDS
    is_last: bool = False


def check(folder_or_file: Path | None = None) -> None:
    """Raise the errors that drawing would raise, before anything is run.

    Raises
    ------
    ImportError
        If matplotlib or pillow is not installed.
    ValueError
        If the file's name does not end in ``.gif``.
    """
    for name, package in (("matplotlib", "matplotlib"), ("PIL", "pillow")):
        if importlib.util.find_spec(name) is None:
            raise ImportError(
                f"pictures need {package}, which is not installed: pip install {package}"
            )
    if folder_or_file is not None and folder_or_file.suffix.lower() != ".gif":
        raise ValueError(f"can't draw {folder_or_file}: its name must end in .gif")


def frames(trace: Mapping[str, Any], block: int = 0) -> list[Frame]:
    """Return a picture of each load of tiles, of each use, and of the result.

    They are followed by a picture of each other recorded block with its tile of C, and, if all
    blocks were recorded, by one of the finished C.

    Parameters
    ----------
    trace : mapping
        The trace, in the format of docs/trace.md.
    block : int
        The number of the block among the recorded ones.

    Raises
    ------
    ValueError
        If that block has no phases, because its kernel has no tiles.
    """
    found: list[Frame] = []
    steps = trace["blocks"][block]["steps"]
    shared: dict[int, float] = {}
    sums: dict[int, float] = {}
    tiles: dict[str, set[int]] = {}
    reads: set[int] = set()
    phase, used = -1, 0
    uses, many = _uses(steps), _sums(steps) > 1
    for place, step in enumerate(steps):
        kind, space = step["kind"], step.get("space")
        if step["phase"] not in (None, phase):
            phase, used, tiles = step["phase"], 0, {}
        if kind == "load" and space == "global" and step["phase"] is not None:
            tiles.setdefault(str(step["array"]), set()).update(_reached(step))
        elif kind == "store" and space == "shared":
            shared |= _stored(step)
        elif kind == "barrier" and step["phase"] is not None and used == 0 and tiles:
            title = f"Phase {phase + 1}: a tile of A and a tile of B"
            text = "Each thread loads an element of both into shared memory."
            if many:
                text = "The threads load both into shared memory."
            found.append(Frame(title, text, dict(tiles), dict(shared), set(), dict(sums)))
        elif kind == "load" and space == "shared":
            reads |= _bytes(step)
        elif kind == "compute" and step["phase"] is not None and step["line"] in uses:
            if many and not _ends_a_phase(steps, place, uses):
                continue
            used += 1
            if many:
                title = f"Phase {phase + 1}: the tiles are used"
                text = "Each thread multiplies what it reads, and adds to several sums."
                found.append(Frame(title, text, dict(tiles), dict(shared), reads))
                reads = set()
                continue
            sums |= dict(zip(_threads(step), map(_number, step["values"]), strict=True))
            title = f"Phase {phase + 1}, use {used}"
            text = "Each thread multiplies an element of its row by one of its column."
            found.append(Frame(title, text, dict(tiles), dict(shared), reads, dict(sums)))
            reads = set()
        elif kind == "store" and space == "global":
            if many:
                continue
            tiles = {str(step["array"]): set(step["at"])}
            text = "Each thread writes its sum."
            found.append(
                Frame("The block's tile of C", text, tiles, {}, set(), dict(sums), _written(steps))
            )
    if many and phase >= 0:
        text = "Each thread writes its sums."
        own = {"c": _elements(steps)}
        found.append(Frame("The block's tile of C", text, own, written=_written(steps)))
    if phase < 0:
        raise ValueError(f"{trace['kernel']} has no phases to draw: it has no tiles")
    return [*found[:MOST_FRAMES], *_others(trace, block)]


def _others(trace: Mapping[str, Any], block: int) -> list[Frame]:
    """Return pictures of the other blocks' tiles of C, and of C if all its elements are there."""
    found: list[Frame] = []
    written = _written(trace["blocks"][block]["steps"])
    others = [each for place, each in enumerate(trace["blocks"]) if place != block]
    for each in others:
        written = written | _written(each["steps"])
        x, y, _ = each["index"]
        tiles: dict[str, set[int]] = {"c": _elements(each["steps"])}
        for step in each["steps"]:
            if (step["kind"], step.get("space")) == ("load", "global"):
                tiles.setdefault(str(step["array"]), set()).update(_reached(step))
        text = "It multiplies its rows of A by its columns of B, in as many phases."
        found.append(
            Frame(f"Block ({x}, {y}): its own tile of C", text, tiles, written=written,
                  milliseconds=OTHERS)
        )  # fmt: skip
    (c,) = (each for each in trace["arrays"] if each["name"] == "c")
    if len(written) == c["rows"] * c["columns"]:
        count = len(trace["blocks"])
        text = f"{count} blocks wrote a tile each." if count > 1 else "One block wrote all of it."
        found.append(
            Frame("C is finished", text, {}, written=written, milliseconds=4 * MILLISECONDS,
                  is_last=True)
        )  # fmt: skip
    return found


def _written(steps: Sequence[Mapping[str, Any]]) -> dict[int, float]:
    """Return the elements of global memory that are stored, with their values."""
    found: dict[int, float] = {}
    for step in steps:
        if (step["kind"], step.get("space")) == ("store", "global"):
            for at, value in zip(step["at"], step["values"], strict=True):
                values = value if isinstance(value, list) else [value]
                found |= {at + i: float(each) for i, each in enumerate(values)}
    return found


def _uses(steps: Sequence[Mapping[str, Any]]) -> set[int | None]:
    """Return the source lines at which tiles are used.

    If some lines both read shared memory and compute, only those count, because the last phase may
    have more arithmetic, such as the scaling by alpha.
    """
    read = {s["line"] for s in steps if s["kind"] == "load" and s.get("space") == "shared"}
    computed = {s["line"] for s in steps if s["kind"] == "compute" and s["phase"] is not None}
    return read & computed or computed


def _ends_a_phase(steps: Sequence[Mapping[str, Any]], place: int, uses: set[int | None]) -> bool:
    """Return whether no later step uses its phase's tiles."""
    phase = steps[place]["phase"]
    return not any(
        step["kind"] == "compute" and step["phase"] == phase and step["line"] in uses
        for step in steps[place + 1 :]
    )


def _elements(steps: Sequence[Mapping[str, Any]]) -> set[int]:
    """Return the elements that are stored in global memory."""
    stores = (s for s in steps if s["kind"] == "store" and s.get("space") == "global")
    return {element for step in stores for element in _reached(step)}


def _reached(step: Mapping[str, Any]) -> set[int]:
    """Return the elements of global memory that a step accesses, including each one of a vector."""
    return {
        at + i
        for at, value in zip(step["at"], step["values"], strict=True)
        for i in range(len(value) if isinstance(value, list) else 1)
    }


def _sums(steps: Sequence[Mapping[str, Any]]) -> int:
    """Return the most elements that a thread stores in global memory."""
    stored: dict[int, int] = {}
    for step in steps:
        if step["kind"] == "store" and step.get("space") == "global":
            for thread, value in zip(_threads(step), step["values"], strict=True):
                many = len(value) if isinstance(value, list) else 1
                stored[thread] = stored.get(thread, 0) + many
    return max(stored.values(), default=0)


def _stored(step: Mapping[str, Any]) -> dict[int, float]:
    """Return the values that a step stores in shared memory, by byte; each one of a vector."""
    found: dict[int, float] = {}
    for at, value in zip(step["at"], step["values"], strict=True):
        values = value if isinstance(value, list) else [value]
        for i, each in enumerate(values):
            found[at + step["width"] // len(values) * i] = float(each)
    return found


def _number(value: Any) -> float:
    return float(value[0] if isinstance(value, list) else value)


def _bytes(step: Mapping[str, Any]) -> set[int]:
    return {place + i for place in step["at"] for i in range(0, step["width"], 4)}


def _threads(step: Mapping[str, Any]) -> list[int]:
    return [t for first, count in step["threads"] for t in range(first, first + count)]


def draw(trace: Mapping[str, Any], gif: Path | None, folder: Path | None, block: int = 0) -> int:
    """Draw the frames to a GIF, and to a folder as PNG, and return their number.

    Raises
    ------
    ImportError, ValueError
        As in :func:`check` and :func:`frames`.
    OSError
        If a file can't be written.
    """
    check(gif)
    from PIL import Image

    drawn = frames(trace, block)
    pictures = [_picture(trace, frame, block) for frame in drawn]
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(pictures):
            write_whole(folder / f"{number:03d}.png", data)
    if gif is not None:
        images = [Image.open(io.BytesIO(data)).convert("RGB").quantize(64) for data in pictures]
        whole = io.BytesIO()
        times = [frame.milliseconds for frame in drawn]
        images[0].save(whole, "GIF", save_all=True, append_images=images[1:], duration=times,
                       loop=0)  # fmt: skip
        write_whole(gif, whole.getvalue())
    return len(pictures)


def _picture(trace: Mapping[str, Any], frame: Frame, block: int) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), facecolor="white")
    FigureCanvasAgg(figure)
    figure.text(0.03, 0.965, frame.title, fontsize=_LARGE, weight="bold", color=_INK, va="center")
    figure.text(0.03, 0.915, frame.text, fontsize=_SMALL, color=_INK, va="center")
    matrices = {each["name"]: each for each in trace["arrays"]}
    if frame.is_last:
        _finished(figure, matrices["c"], frame)
        return _png(figure)
    own = _own_elements(trace, block)
    for name, place, colour in (
        ("b", (0.66, 0.46, 0.32, 0.37), _B), ("a", (0.33, 0.02, 0.32, 0.37), _A),
        ("c", (0.66, 0.02, 0.32, 0.37), _C),
    ):  # fmt: skip
        each = matrices[name]
        fill: npt.NDArray[Any] = np.full((each["rows"], each["columns"]), _EMPTY, object)
        if name == "c":
            for at in frame.written:
                fill[at // each["leading"], at % each["leading"]] = _DONE
        for at in frame.tiles.get(name, ()) or (own if name == "c" else ()):
            fill[at // each["leading"], at % each["leading"]] = colour
        _grid(figure, place, fill, None, f"{name.upper()}, {each['rows']} x {each['columns']}")
    left = 0.03
    for each, colour in zip(trace["shared"][:2], (_A, _B), strict=False):
        fill, text = _shared(each, frame, colour)
        _grid(figure, (left, 0.53, 0.28, 0.28), fill, text, f"{each['name']}, shared")
        left += 0.31
    x, y, _ = trace["block"]
    if frame.sums and x * y <= 64:
        text = np.full((y, x), "", object)
        for thread, total in frame.sums.items():
            text[thread // x % y, thread % x] = f"{total:.1f}"
        place = (0.03, 0.07, 0.28, 0.28)
        _grid(figure, place, np.full((y, x), _SUMS, object), text, "each thread's sum")
    return _png(figure)


def _png(figure: Any) -> bytes:
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=_DPI)
    return data.getvalue()


def _finished(figure: Any, c: Mapping[str, Any], frame: Frame) -> None:
    """Draw all of C, with its values if there is room."""
    shape = c["rows"], c["columns"]
    fill, text = np.full(shape, _DONE, object), np.full(shape, "", object)
    for at, value in frame.written.items():
        text[at // c["leading"], at % c["leading"]] = f"{value:.1f}"
    has_room = max(shape) <= _MOST_VALUES
    _grid(
        figure, (0.03, 0.02, 0.94, 0.82), fill, text if has_room else None,
        f"C, {shape[0]} x {shape[1]}",
    )  # fmt: skip


def _own_elements(trace: Mapping[str, Any], block: int) -> set[int]:
    """Return the elements of C that the block writes."""
    return _elements(trace["blocks"][block]["steps"])


def _shared(
    array: Mapping[str, Any], frame: Frame, colour: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the colours and the values of an array in shared memory."""
    shape = array["rows"], array["columns"]
    fill, text = np.full(shape, _EMPTY, object), np.full(shape, "", object)
    for row in range(shape[0]):
        for column in range(shape[1]):
            at = array["offset"] + array["element"] * (row * shape[1] + column)
            if at in frame.shared:
                fill[row, column] = _NOW if at in frame.now else colour
                if shape[0] * shape[1] <= 64:
                    text[row, column] = f"{frame.shared[at]:.1f}"
    return fill, text


def _grid(
    figure: Any,
    place: tuple[float, float, float, float],
    fill: npt.NDArray[Any],
    text: npt.NDArray[Any] | None,
    title: str,
) -> None:
    """Draw a matrix of cells, which are square if that fits."""
    from matplotlib.colors import to_rgb

    rows, columns = fill.shape
    axes = figure.add_axes(place)
    axes.set_title(title, fontsize=_SMALL, color=_INK, pad=4)
    axes.imshow([[to_rgb(colour) for colour in row] for row in fill], aspect="equal")
    if rows <= 64 and columns <= 64:
        axes.set_xticks(np.arange(-0.5, columns), minor=True)
        axes.set_yticks(np.arange(-0.5, rows), minor=True)
        axes.grid(which="minor", color="white", linewidth=1.2)
    axes.tick_params(which="both", length=0, labelbottom=False, labelleft=False)
    for spine in axes.spines.values():
        spine.set_visible(False)
    if text is not None:
        for (row, column), word in np.ndenumerate(text):
            ink = "white" if fill[row, column] == _NOW else _INK
            axes.text(column, row, word, ha="center", va="center", fontsize=_SMALL, color=ink)
