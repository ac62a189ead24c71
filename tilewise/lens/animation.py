"""The sliding tiles of a trace as pictures: for a slide, or a README."""

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
MILLISECONDS = 700  # a frame of the GIF
_DPI, _WIDTH, _HEIGHT = 100, 9.0, 6.4
# Okabe and Ito's colours, which the colour-blind tell apart.
_A, _B, _C, _NOW, _EMPTY, _INK = "#e69f00", "#56b4e9", "#009e73", "#d55e00", "#eceff1", "#1b1f24"


@dataclass
class Frame:
    """One picture.

    Attributes
    ----------
    title, text : str
    tiles : dict of str to set of int
        By matrix, the elements that the block holds in this phase, or writes.
    shared : dict of int to float
        What lies in shared memory, by byte.
    now : set of int
        The bytes of it that are read now.
    sums : dict of int to float
        By thread, its sum.
    """

    title: str
    text: str
    tiles: dict[str, set[int]]
    shared: dict[int, float] = field(default_factory=dict)
    now: set[int] = field(default_factory=set)
    sums: dict[int, float] = field(default_factory=dict)


def check(folder_or_file: Path | None = None) -> None:
    """Raise what drawing would, before anything is run.

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
    """A picture of each load of tiles, one of each use, and one of the result.

    Parameters
    ----------
    trace : mapping
        As docs/trace.md has it.
    block : int
        Which of its blocks.

    Raises
    ------
    ValueError
        If that block has no phases: its kernel has no tiles.
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
            found.append(Frame("The block's tile of C", text, tiles, {}, set(), dict(sums)))
    if many and phase >= 0:
        written = {"c": _elements(steps)}
        text = "Each thread writes its sums."
        found.append(Frame("The block's tile of C", text, written))
    if phase < 0:
        raise ValueError(f"{trace['kernel']} has no phases to draw: it has no tiles")
    return found[:MOST_FRAMES]


def _uses(steps: Sequence[Mapping[str, Any]]) -> set[int | None]:
    """The lines at which tiles are used: those that compute with what they read, if there are
    any. The last phase may have more in it, as the scaling by alpha."""
    read = {s["line"] for s in steps if s["kind"] == "load" and s.get("space") == "shared"}
    computed = {s["line"] for s in steps if s["kind"] == "compute" and s["phase"] is not None}
    return read & computed or computed


def _ends_a_phase(steps: Sequence[Mapping[str, Any]], place: int, uses: set[int | None]) -> bool:
    """Whether no step behind this one uses its phase's tiles."""
    phase = steps[place]["phase"]
    return not any(
        step["kind"] == "compute" and step["phase"] == phase and step["line"] in uses
        for step in steps[place + 1 :]
    )


def _elements(steps: Sequence[Mapping[str, Any]]) -> set[int]:
    """The elements that are stored in global memory."""
    stores = (s for s in steps if s["kind"] == "store" and s.get("space") == "global")
    return {element for step in stores for element in _reached(step)}


def _reached(step: Mapping[str, Any]) -> set[int]:
    """The elements of global memory that a step reaches, each of a vector's."""
    return {
        at + i
        for at, value in zip(step["at"], step["values"], strict=True)
        for i in range(len(value) if isinstance(value, list) else 1)
    }


def _sums(steps: Sequence[Mapping[str, Any]]) -> int:
    """The most elements that a thread stores in global memory."""
    stored: dict[int, int] = {}
    for step in steps:
        if step["kind"] == "store" and step.get("space") == "global":
            for thread, value in zip(_threads(step), step["values"], strict=True):
                many = len(value) if isinstance(value, list) else 1
                stored[thread] = stored.get(thread, 0) + many
    return max(stored.values(), default=0)


def _stored(step: Mapping[str, Any]) -> dict[int, float]:
    """What a step stores in shared memory, by byte; each element of a vector."""
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
    """Draw the frames to a GIF, and to a folder as PNG; how many there are.

    Raises
    ------
    ImportError, ValueError
        As :func:`check` and :func:`frames`.
    OSError
        If a file can't be written.
    """
    check(gif)
    from PIL import Image

    pictures = [_picture(trace, frame, block) for frame in frames(trace, block)]
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(pictures):
            write_whole(folder / f"{number:03d}.png", data)
    if gif is not None:
        images = [Image.open(io.BytesIO(data)).convert("RGB").quantize(64) for data in pictures]
        whole = io.BytesIO()
        times = [MILLISECONDS] * (len(images) - 1) + [3 * MILLISECONDS]
        images[0].save(whole, "GIF", save_all=True, append_images=images[1:], duration=times,
                       loop=0)  # fmt: skip
        write_whole(gif, whole.getvalue())
    return len(pictures)


def _picture(trace: Mapping[str, Any], frame: Frame, block: int) -> bytes:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH, _HEIGHT), facecolor="white")
    FigureCanvasAgg(figure)
    figure.text(0.03, 0.95, frame.title, fontsize=17, weight="bold", color=_INK, va="center")
    figure.text(0.03, 0.895, frame.text, fontsize=13, color=_INK, va="center")
    matrices = {each["name"]: each for each in trace["arrays"]}
    own = _own_elements(trace, block)
    for name, place, colour in (
        ("b", (0.66, 0.485, 0.32, 0.40), _B), ("a", (0.33, 0.03, 0.32, 0.40), _A),
        ("c", (0.66, 0.03, 0.32, 0.40), _C),
    ):  # fmt: skip
        each = matrices[name]
        fill: npt.NDArray[Any] = np.full((each["rows"], each["columns"]), _EMPTY, object)
        for at in frame.tiles.get(name, ()) or (own if name == "c" else ()):
            fill[at // each["leading"], at % each["leading"]] = colour
        _grid(figure, place, fill, None, f"{name.upper()}, {each['rows']} x {each['columns']}")
    left = 0.03
    for each, colour in zip(trace["shared"][:2], (_A, _B), strict=False):
        fill, text = _shared(each, frame, colour)
        _grid(figure, (left, 0.55, 0.27, 0.25), fill, text, f"{each['name']}, shared memory")
        left += 0.30
    x, y, _ = trace["block"]
    if frame.sums and x * y <= 64:
        text = np.full((y, x), "", object)
        for thread, total in frame.sums.items():
            text[thread // x % y, thread % x] = f"{total:.1f}"
        place = (0.03, 0.10, 0.27, 0.25)
        _grid(figure, place, np.full((y, x), "#cfe8df", object), text, "each thread's sum")
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=_DPI)
    return data.getvalue()


def _own_elements(trace: Mapping[str, Any], block: int) -> set[int]:
    """The elements of C that the block writes."""
    return _elements(trace["blocks"][block]["steps"])


def _shared(
    array: Mapping[str, Any], frame: Frame, colour: str
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Colours and values of an array in shared memory."""
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
    """A matrix of cells, square where that fits."""
    from matplotlib.colors import to_rgb

    rows, columns = fill.shape
    axes = figure.add_axes(place)
    axes.set_title(title, fontsize=13, color=_INK, pad=4)
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
            axes.text(column, row, word, ha="center", va="center", fontsize=12, color=ink)
