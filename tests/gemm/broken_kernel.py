"""The Hopper kernel with a part of its source changed, so that checks have a fault to find."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from tilewise.gemm.families.hopper.variants import SOURCE
from tilewise.gemm.steps import Plan, Step
from tilewise.kernel import SOURCES, Kernel


def broken(tmp_path: Path, plan: Plan, old: str, new: str) -> Plan:
    """The plan with a part of its kernel's source changed."""
    for folder in ("gemm", "ptx"):
        shutil.copytree(SOURCES / folder, tmp_path / folder)
    gemm = tmp_path / "gemm"
    others = {path for path in gemm.glob("*.cu") if path.name != SOURCE.name}
    (changed,) = (
        path for path in {*gemm.iterdir()} - others if old in path.read_text(encoding="utf-8")
    )
    source = changed.read_text(encoding="utf-8")
    assert source.count(old) == 1
    changed.write_text(source.replace(old, new), encoding="utf-8")
    first, *rest = plan.steps
    kernel = Kernel(gemm / SOURCE.name, first.kernel.name, first.kernel.defines, include=[tmp_path])
    return replace(plan, steps=(Step(kernel, first.launch), *rest))
