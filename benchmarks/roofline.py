"""The rungs under the ceilings of the GPU at hand, timed there: what docs/profiling.md shows.

    python benchmarks/roofline.py [--json FILE] [--plot FILE]

It is `tilewise roofline -m 4096 -n 4096 -k 4096`, its document kept with where it comes from.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
from pathlib import Path

from tilewise.cli.main import main as tilewise
from tilewise.provenance import write

RESULTS = Path(__file__).parent / "results"
PLOT = Path(__file__).parents[1] / "docs" / "roofline.png"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", type=Path, default=RESULTS / "roofline_h200.json", metavar="FILE")
    parser.add_argument("--plot", type=Path, default=PLOT, metavar="FILE")
    options = parser.parse_args()
    words = ["roofline", "-m", "4096", "-n", "4096", "-k", "4096", "--plot", str(options.plot)]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        code = tilewise([*words, "--json"])
    if code != 0:
        raise SystemExit(code)
    document = json.loads(printed.getvalue())
    if not document["measured"]:
        raise SystemExit("nothing was timed: there is no GPU whose ceilings are known")
    del document["plot"]
    for row in document["kernels"]:  # paths are this machine's own
        row["file"] = Path(row["file"]).name
    write(options.json, document)
    for row in document["kernels"]:
        print(f"{row['kernel']:18s} {row['seconds'] * 1e3:8.2f} ms  share {row['share']:.3f}")


if __name__ == "__main__":
    main()
