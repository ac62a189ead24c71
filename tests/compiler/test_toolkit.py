"""A source that is not trusted has CUDA's headers, which are, open and look for nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest
from watched import Watched, told
from watched import folder as folder
from watched import secret as secret

from tilewise import compiler
from tilewise.compiler import confine, includes, nvrtc, toolkit
from tilewise.errors import CompileError

pytestmark = pytest.mark.usefixtures("ptx_alone")

KERNEL = 'extern "C" __global__ void k(int* x) { *x = VALUE; }\n'
TRUSTED = {
    "cuda_runtime_api.h": f"#define CUDART_VERSION {nvrtc.version()[0]}000\n",
    "crt/host_defines.h": "",
    "cccl/cuda/std/version": "",
    "cuda_plain.h": '#include "cuda_inner.h"\n',
    "cuda_inner.h": "#define VALUE 1\n",
    "cuda_beside.h": '#include "beside.h"\n#include <beside.h>\n',
    "cuda_asks.h": '#if __has_include("beside.h") || __has_include(<beside.h>)\n#error\n#endif\n',
}
"""Headers that use no macro in an include."""
BY_MACRO = {
    "cuda_hook.h": "#ifndef CUDA_HOOK\n#define CUDA_HOOK <cuda_plain.h>\n#endif\n"
    "#include CUDA_HOOK\n",
    "cuda_parts.h": "#define CUDA_ROOT cuda_\n#define CUDA_NAME <CUDA_ROOT/plain.h>\n"
    "#include CUDA_NAME\n",
    "cuda_joined.h": "#define CUDA_JOIN(a, b) a##b\n#include CUDA_JOIN(CUDA_INNER_, 12)\n",
    "cuda_spliced.h": "#include \\\n  /* a name */ CUDA_SPLICED\n",
}
PASTING = {
    "cuda_paste.h": "#define CUDA_CAT(a, b) a##b\n#define CUDA_TWO(x) __##x\n"
    "#define CUDA_EMPTY __\n#define CUDA_HAS has\n#define CUDA_CAT_OF(a, b) CUDA_CAT(a, b)\n",
}
ASKING = {
    "cuda_probe.h": "#ifdef __has_include\n#define CUDA_PROBE(x) __has_include(x)\n#endif\n"
    "#define CUDA_PROBE_TOO(x) CUDA_PROBE(x)\n#define CUDA_WORDS(x) CUDA_##x##_TOO\n"
    "#if CUDA_PROBE_TOO(<there/cuda.h>) || __has_include(OTHER)\n#define CUDA_THERE 1\n#endif\n",
}

ATTACKS = {
    "a macro that a header includes": '#define CUDA_HOOK "{s}"\n#include <cuda_hook.h>\n',
    "behind a comment": '#define/**/CUDA_HOOK "{s}"\n#include <cuda_hook.h>\n',
    "on two lines": '#def\\\nine CUDA_\\\nHOOK "{s}"\n#include <cuda_hook.h>\n',
    "in a header of its own": '#include "hook.cuh"\n#include <cuda_hook.h>\n',
    "where lines are joined": '#define CUDA_SPLICED "{s}"\n#include <cuda_spliced.h>\n',
    "a part of a name": "#define plain ../../outside/secret.txt>\n#include <cuda_parts.h>\n",
    "a name that is pasted": '#define CUDA_INNER_12 "{s}"\n#include <cuda_joined.h>\n',
    "a header that is found beside": "#include <cuda_beside.h>\n#define VALUE 1\n",
    "a header that asks": "#include <cuda_asks.h>\n#define VALUE 1\n",
    "a macro that asks for a macro": (
        '#define OTHER "{s}"\n#include <cuda_probe.h> // asks\n'
        "#ifdef CUDA_THERE\n#define VALUE 1\n#else\n#define VALUE 2\n#endif\n"
    ),
    "a macro that asks for a part of a name": (
        "#define there {d}\n#define cuda secret\n#define h txt\n#include <cuda_probe.h> // asks\n"
        "#ifdef CUDA_THERE\n#define VALUE 1\n#else\n#define VALUE 2\n#endif\n"
    ),
    "a macro that asks, pasted": (
        "#include <cuda_probe.h>\n#define P(a, b) a##b\n"
        '#if P(CUDA_, PROBE)("{s}") || CUDA_WORDS(PROBE)("{s}")\n#define VALUE 1\n#else\n'
        "#define VALUE 2\n#endif\n"
    ),
    "a macro that asks": "#include <cuda_probe.h>\n"
    '#if CUDA_PROBE("{s}")\n#endif\n#define VALUE 1\n',
    "pasted by a header's macro": (
        '#include <cuda_paste.h>\n#if CUDA_CAT(_, _has_include)("{s}")\n#endif\n#define VALUE 1\n'
    ),
    "with a header's prefix": (
        '#include <cuda_paste.h>\n#if CUDA_TWO(has_include)("{s}")\n#endif\n#define VALUE 1\n'
    ),
    "with a header's word": (
        '#include <cuda_paste.h>\n#if CUDA_CAT_OF(CUDA_EMPTY, has_include)("{s}")\n#endif\n'
        "#define VALUE 1\n"
    ),
    "with a header's words": (
        "#include <cuda_paste.h>\n#define P(a, b, c, d) a##b##c##d\n"
        '#define Q(a, b, c, d) P(a, b, c, d)\n#if Q(CUDA_EMPTY, CUDA_HAS, _, include)("{s}")\n'
        "#endif\n#define VALUE 1\n"
    ),
    "dots": "#include <../../outside/secret.txt>\n#define VALUE 1\n",
    "dots behind a folder": "#include <crt/../../../outside/secret.txt>\n#define VALUE 1\n",
    "dots, asked for": (
        "#if __has_include(<crt/../../../outside/secret.txt>)\n#define VALUE 1\n#else\n"
        "#define VALUE 2\n#endif\n"
    ),
    "an alias": ('#pragma include_alias("cuda_inner.h", "{s}")\n#include <cuda_plain.h>\n'),
    "another place of the source": '#line 1 "{d}/k.cu"\n#include <cuda_beside.h>\n'
    "#define VALUE 1\n",
    "a header's guard": "#undef __CUDACC_RTC__\n#undef CUDA_HOOK\n#include <cuda_hook.h>\n",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with headers of CUDA's, and nothing in them that could be misused."""
    base = tmp_path / "cuda"
    add(base / "include", TRUSTED)
    monkeypatch.setattr(toolkit, "_places", lambda include: [(base / "include", "CUDA_HOME")])
    compiler.forget()
    return base / "include"


def add(folder: Path, texts: dict[str, str]) -> None:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    compiler.forget()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("attack", ATTACKS)
@pytest.mark.parametrize("has_path", [True, False])
def test_nothing_else_is_opened_probed_or_quoted(
    attack: str,
    has_path: bool,
    place: Path,
    secret: Watched,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add(place, BY_MACRO | PASTING | ASKING)
    s, outside = str(secret.path), secret.path.parent
    (outside / "beside.h").symlink_to(secret.path)
    monkeypatch.chdir(outside)
    (folder / "hook.cuh").write_text(f'#define CUDA_HOOK "{s}"\n')
    source = ATTACKS[attack].format(s=s, d=outside) + KERNEL
    answers = []
    for number in range(2):
        monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / f"cache{number}"))
        compiler.forget()
        answers.append(told(source, folder / "k.cu" if has_path else None))
        if number == 0:
            assert secret.opened() == 0
            secret.path.unlink()
    assert "of_the_machine" not in answers[0]
    assert answers[0] == answers[1]  # whether the file is there can't be told


def test_macros_that_are_given(place: Path, secret: Watched) -> None:
    add(place, BY_MACRO)
    source = "#include <cuda_hook.h>\n" + KERNEL
    for option in (f'-DCUDA_HOOK="{secret.path}"', f'--define-macro=CUDA_HOOK="{secret.path}"'):
        assert "of_the_machine" not in told(source, None, (option,))
    with pytest.raises(CompileError) as caught:
        compiler.compile(source, "k", defines={"CUDA_HOOK": f'"{secret.path}"'})
    assert "of_the_machine" not in str(caught.value)
    assert secret.opened() == 0


def test_the_watch_sees_what_a_trusted_source_has_opened(place: Path, secret: Watched) -> None:
    add(place, BY_MACRO)
    source = (
        f'#define CUDA_HOOK "{secret.path}"\n#include <cuda_hook.h>\n#define VALUE 1\n' + KERNEL
    )
    with pytest.raises(CompileError, match="of_the_machine"):
        compiler.compile(source, "k", trusted=True)
    assert secret.opened()


def test_headers_of_the_callers_are_not_trusted(
    secret: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever wrote the source may have written them: a whole toolkit of their own."""
    given = tmp_path / "hand-in"
    add(given, {**TRUSTED, "cuda_fp16.h": f'#include "{secret.path}"\n#define VALUE 1\n'})
    monkeypatch.setattr(toolkit, "USUAL", tmp_path / "none")
    source = "#include <cuda_fp16.h>\n" + KERNEL
    assert includes.gather(source, "k.cu", None, [given]).is_doubtful
    said = []
    for _ in range(2):
        with pytest.raises(CompileError) as caught:
            compiler.compile(source, "k", include=[given])
        said.append(str(caught.value))
        if secret.path.exists():
            assert secret.opened() == 0
            secret.path.unlink()
    assert "of_the_machine" not in said[0]
    assert said[0] == said[1]
    (given / "cuda_fp16.h").write_text('#include "cuda_plain.h"\n')
    if confine.can_close_files():
        assert compiler.compile(source, "k", include=[given]).ptx


def test_a_link_in_place_of_a_header(place: Path, secret: Watched, folder: Path) -> None:
    (folder / "cuda_plain.h").symlink_to(secret.path)
    source = '#include "cuda_plain.h"\n#define VALUE 1\n' + KERNEL
    assert "outside the folder" in told(source, folder / "k.cu")
    assert secret.opened() == 0


def test_plain_uses_compile_in_this_process(place: Path, folder: Path) -> None:
    """So that they need no system that can close files, and no time for a process."""
    add(place, BY_MACRO | PASTING | ASKING)
    for header in ("cuda_plain.h", "cuda_hook.h"):
        source = f"// {header} has a sink\n#include <{header}>\n#define CAT(a, b) a##b\n" + KERNEL
        assert not includes.gather(source, "k.cu", folder).is_doubtful
        assert compiler.compile(source, "k", path=folder / "k.cu").ptx


def test_what_could_be_misused_is_found(place: Path) -> None:
    nothing = frozenset[str]()
    assert toolkit._looked_for(place) == toolkit.Misused(nothing, nothing, "")
    add(place, BY_MACRO | PASTING)
    found = toolkit._looked_for(place)
    assert {"CUDA_HOOK", "CUDA_NAME", "CUDA_JOIN", "CUDA_ROOT", "12", "plain"} <= found.names
    assert "CUDA_CAT" not in found.names
    assert (found.asking, found.words) == (nothing, "__ h has")
    add(place, ASKING)
    found = toolkit._looked_for(place)
    assert found.asking == {"CUDA_PROBE", "CUDA_PROBE_TOO"}
    assert {"there", "OTHER"} <= found.names
    assert {"CUDA_", "_TOO"} <= set(found.words.split())
