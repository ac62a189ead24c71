"""What a source may read: its own folder and those that the caller names, and nothing else."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import pytest
from reference import some
from watched import Watched, told
from watched import folder as folder
from watched import secret as secret

from tilewise import compiler
from tilewise.compiler import (
    apart,
    confine,
    header_search,
    includes,
    nvrtc,
    shipped,
    source_files,
    starting,
)
from tilewise.errors import CompileError, LimitError
from tilewise.kernel import Kernel
from tilewise.limits import Limits

pytestmark = pytest.mark.usefixtures("ptx_alone")

KERNEL = 'extern "C" __global__ void k(int* x) { *x = VALUE; }\n'


ATTACKS = {
    "absolute": '#include "{s}"\n#define VALUE 1\n',
    "angled": "#include <{s}>\n#define VALUE 1\n",
    "two slashes": '#include "/{s}"\n#define VALUE 1\n',
    "dots": '#include "../outside/secret.txt"\n#define VALUE 1\n',
    "dots inside": '#include "parts/../../outside/secret.txt"\n#define VALUE 1\n',
    "digraph": '%:include "{s}"\n#define VALUE 1\n',
    "spliced": '#inc\\\nlude "{s}"\n#define VALUE 1\n',
    "spliced name": '#include "{half}\\\n{rest}"\n#define VALUE 1\n',
    "spliced with a carriage return": '#inc\\\r\nlude "{s}"\n#define VALUE 1\n',
    "comments": '/* */ # /* \n */ include /* */ "{s}"\n#define VALUE 1\n',
    "comments before": '/* a\n b */#include "{s}"\n#define VALUE 1\n',
    "after a raw string": 'const char* t = R"x(/* " )x";\n#include "{s}"\n#define VALUE 1\n',
    "after an apostrophe": '#if 0\ndon\'t /*\n#endif\n#include "{s}"\n#define VALUE 1\n',
    "a comment that ends at once": '// /*\n#include "{s}"\n#define VALUE 1\n',
    "a comment with a carriage return": '// a\r\n#include "{s}"\n#define VALUE 1\n',
    "white space": '\f\v#\t\finclude\t"{s}"\n#define VALUE 1\n',
    "macro": '#define H "{s}"\n#include H\n#define VALUE 1\n',
    "macro with arguments": '#define H(x) x\n#include H("{s}")\n#define VALUE 1\n',
    "next": '#include_next "{s}"\n#define VALUE 1\n',
    "import": '#import "{s}"\n#define VALUE 1\n',
    "embed": '#define VALUE 1\nconst unsigned char there[] = {{\n#embed "{s}"\n}};\n',
    "has": '#if __has_include("{s}")\n#define VALUE 1\n#else\n#define VALUE 2\n#endif\n',
    "has, angled": "#if __has_include(<{s}>)\n#define VALUE 1\n#else\n#define VALUE 2\n#endif\n",
    "has, by macro": '#define H __has_include\n#if H("{s}")\n#define VALUE 1\n#endif\n',
    "has, macro name": '#define H "{s}"\n#if __has_include(H)\n#define VALUE 1\n#endif\n',
    "has, in code": '#define VALUE (defined __has_include("{s}"))\n',
    "has, hidden": '#define d(x) x\n#define VALUE d(__has_include)("{s}")\n',
    "has, spliced": '#if __has_\\\ninclude("{s}")\n#define VALUE 1\n#endif\n',
    "has, pasted": '#define P(a, b) a##b\n#if P(__has_, include)("{s}")\n#define VALUE 1\n#endif\n',
    "has, pasted thrice": (
        '#define P(a, b, c) a %:%: b %:%: c\n#define VALUE P(_, _has_, include)("{s}")\n'
    ),
    "has, pasted by joined lines": (
        '#define P(a, b) a#\\\r\n#b\n#if P(_, _has_include)("{s}")\n#define VALUE 1\n#endif\n'
    ),
    "has, pasted by NVRTC's own macro": (
        '#if _NV_CONCAT_EVAL1(__has_, include)("{s}")\n#define VALUE 1\n#endif\n'
    ),
    "has, pasted of five": (
        '#if _NV_PASTE5(_, _, has, _include, )("{s}")\n#define VALUE 1\n#endif\n'
    ),
    "has, behind a letter": '#if é__has_include("{s}")\n#endif\n#define VALUE 1\n',
    "has, behind a letter's number": '#if \\u00e9__has_include("{s}")\n#endif\n#define VALUE 1\n',
    "has, pasted of many": (
        "#define P(a, b, c, d) a##b##c##d\n"
        '#define Q(a, b, c, d) P(a, b, c, d)\n#if Q(_, P(_, h, a, s), _, P(in, cl, u, de))("{s}")\n'
        "#endif\n#define VALUE 1\n"
    ),
    "has, pasted behind a letter": (
        '#define P(a, b) a##b\n#if P(\\u00e9__has_, include)("{s}") + P(é__, has_include)("{s}")\n'
        "#endif\n#define VALUE 1\n"
    ),
    "has, pasted beside a plain one": (
        "#ifdef __has_include\n#endif\n#define P(a, b) a##b\n"
        '#if P(_, _has_include)("{s}")\n#define VALUE 1\n#else\n#define VALUE 2\n#endif\n'
    ),
    "has, pasted behind plain ones": (
        "#if defined(__has_include) && defined(__has_include_next) && defined(__has_embed)\n"
        "#endif\n"
        "#define P(a, b) a##b\n#define VALUE (1\n"
        '#if P(__has_include, _next)("{s}") || P(_, _has_embed)("{s}")\n+ 1\n#endif\n)\n'
    ),
    "pragma": '#pragma GCC dependency "{s}"\n#define VALUE 1\n',
    "alias": '#pragma include_alias("a.cuh", "{s}")\n#include "a.cuh"\n#define VALUE 1\n',
    "line": '#line 1 "{s}"\n#define VALUE nothing\n',
    "assembly": '#define VALUE 1\nasm(".include \\"{s}\\"");\n',
    "assembly in a function": (
        '#define VALUE 1\n__device__ void f() {{ asm volatile(".incbin \\"{s}\\";"); }}\n'
    ),
}
OPTIONS = {
    "C++20 import": (('import "{s}";\n#define VALUE 1\n'), "--std=c++20"),
    "C++20 import by macro": ('#define H "{s}"\nimport H;\n#define VALUE 1\n', "--std=c++20"),
    "C++20 export import": ('/**/ export import <{s}>;\n#define VALUE 1\n', "--std=c++20"),
    "trigraph": ('??=include "{s}"\n#define VALUE 1\n', "--std=c++14"),
    "trigraph splice": ('// a??/\n#inc??/\nlude "{s}"\n#define VALUE 1\n', "--std=c++14"),
    "pasted by an option": ('#if P(__has_,include)("{s}")\n#endif', "-DP(a,b)=a##b"),
    "named by an option": ("#include H\n#define VALUE 1\n", '-DH="{s}"'),
    "named by an option, changed": (
        '#undef H\n#define H "{s}"\n#include H\n#define VALUE 1\n', '-DH="a.cuh"',
    ),
}  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("attack", [*ATTACKS, *OPTIONS])
@pytest.mark.parametrize("has_path", [True, False])
def test_nothing_else_is_opened_probed_or_quoted(
    attack: str,
    has_path: bool,
    secret: Watched,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (folder / "parts").mkdir()
    s = str(secret.path)
    text, *options = OPTIONS.get(attack) or (ATTACKS[attack],)
    source = text.format(s=s, half=s[:-6], rest=s[-6:]) + KERNEL
    answers = []
    for number in range(2):
        monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / f"cache{number}"))
        compiler.forget()
        given = tuple(option.format(s=s) for option in options)
        answers.append(told(source, folder / "k.cu" if has_path else None, given))
        if number == 0:
            assert secret.opened() == 0
            secret.path.unlink()
    assert "of_the_machine" not in answers[0]
    assert answers[0] == answers[1]  # whether the file is there can't be told


def test_the_watch_sees_what_a_trusted_source_opens(secret: Watched, folder: Path) -> None:
    source = f'#define H "{secret.path}"\n#include H\n#define VALUE 1\n' + KERNEL
    with pytest.raises(CompileError, match="of_the_machine"):
        compiler.compile(source, "k", path=folder / "k.cu", trusted=True)
    assert secret.opened()


def test_an_include_that_is_refused_names_its_line(secret: Watched, folder: Path) -> None:
    for source in (f'\n\n#include "{secret.path}"\n', '\n\n#include "../outside/secret.txt"\n'):
        with pytest.raises(CompileError, match=r"k\.cu:3: .*outside the folder of the source.*inc"):
            compiler.compile(source + KERNEL, "k", path=folder / "k.cu")
    (folder / "own.cuh").write_text(f"\n#include <{secret.path}>\n")
    with pytest.raises(CompileError, match=r"own\.cuh:2: .*outside the folder"):
        compiler.compile('#include "own.cuh"\n' + KERNEL, "k", path=folder / "k.cu")


def test_a_link_leads_no_further_than_a_path(secret: Watched, folder: Path) -> None:
    (folder / "link.cuh").symlink_to(secret.path)
    (folder / "up").symlink_to(secret.path.parent)
    (folder / "none.cuh").symlink_to(secret.path.with_name("none"))
    (folder / "loop.cuh").symlink_to(folder / "loop.cuh")
    for name in ("link.cuh", "up/secret.txt", "none.cuh", "loop.cuh"):
        source = f'#include "{name}"\n#if __has_include("{name}")\n#define VALUE 1\n#endif\n'
        with pytest.raises(CompileError) as caught:
            compiler.compile(source + KERNEL, "k", path=folder / "k.cu")
        assert "of_the_machine" not in str(caught.value)
    assert secret.opened() == 0
    (folder / "parts").mkdir()
    (folder / "parts" / "real.cuh").write_text("#define VALUE 1\n")
    (folder / "inner.cuh").symlink_to(folder / "parts" / "real.cuh")
    compiler.compile('#include "inner.cuh"\n' + KERNEL, "k", path=folder / "k.cu")


def test_what_is_no_regular_file_is_not_read(folder: Path) -> None:
    os.mkfifo(folder / "pipe.cuh")
    with (folder / "large.cuh").open("wb") as file:
        file.truncate(1 << 40)
    (folder / "binary.cuh").write_bytes(b"\xff\xfe\0")
    begin = time.monotonic()
    for name, why in (
        ("pipe.cuh", "no regular file"),
        ("large.cuh", "bytes; at most"),
        ("binary.cuh", "not UTF-8"),
    ):  # fmt: skip
        # In a comment too, which is looked at as well.
        compiler.compile(f'#define VALUE 1\n/*\n#include "{name}"\n*/\n' + KERNEL, "k",
                         path=folder / "k.cu")  # fmt: skip
        with pytest.raises(CompileError, match=rf"k\.cu:1: .*{why}"):
            compiler.compile(f'#include "{name}"\n' + KERNEL, "k", path=folder / "k.cu")
    with pytest.raises(ValueError, match="no regular file"):
        Kernel(folder / "pipe.cuh", "k")
    with pytest.raises(ValueError, match="at most"):
        Kernel(folder / "large.cuh", "k")
    assert time.monotonic() - begin < 30


@pytest.mark.parametrize(
    "line",
    [
        '// #include "/proc/kmsg"',
        '/*\n#include "/proc/kmsg"\n*/',
        '#if 0\n#include "/dev/zero"\n#endif',
        '/* #include "/proc/self/mem" */',
        'const char* t = "#include </proc/kmsg>";',
    ],
)
def test_what_is_left_out_does_no_harm(line: str, folder: Path) -> None:
    for path in (None, folder / "k.cu"):
        source = f"{line}\n#define VALUE 1234\n{KERNEL}"
        assert ", 1234;" in compiler.compile(source, "k", path=path).ptx


@pytest.mark.parametrize(
    "name", ["/proc/self/environ", "/proc/self/mem", "/etc/passwd", "/dev/zero"]
)
def test_files_of_the_system_are_not_quoted(name: str) -> None:
    with pytest.raises(CompileError, match=r"<source>:1: .*outside the folder") as caught:
        compiler.compile(f'#include "{name}"\n{KERNEL}', "k")
    assert "PATH=" not in str(caught.value)
    assert "root:" not in str(caught.value)


def test_headers_of_one_name_in_several_folders(folder: Path, tmp_path: Path) -> None:
    for part, value in (("a", 3), ("b", 40)):
        (folder / part).mkdir()
        (folder / part / "value.cuh").write_text(f"#define VALUE_{part} {value}\n")
        (folder / part / "outer.cuh").write_text('#pragma once\n#include "value.cuh"\n')
    more = tmp_path / "more"
    more.mkdir()
    (more / "far.cuh").write_text('#include <a/outer.cuh>\n#include "../more/last.cuh"\n')
    (more / "last.cuh").write_bytes(b"\xef\xbb\xbf#define LAST 500\r\n")
    source = (
        '#include "a/outer.cuh"\n#include \\\n "./b/../b/outer.cuh" // and that\n'
        "#include <far.cuh>\n#ifdef __has_include\n#if defined(__has_include) && "
        '__has_include("b/value.cuh") && !__has_include(<value.cuh>)\n'
        "#define VALUE VALUE_a + VALUE_b + LAST + __LINE__\n#endif\n#endif\n" + KERNEL
    )
    for trusted in (False, True):
        compiled = compiler.compile(
            source, "k", path=folder / "k.cu", include=[more], trusted=trusted
        )
        assert ", 553;" in compiled.ptx
        assert compiled.source == source
    with pytest.raises(CompileError, match=r"far\.cuh"):
        compiler.compile(source, "k", path=folder / "k.cu")
    with pytest.raises(TypeError, match="a sequence of folders"):
        compiler.compile(source, "k", include="more")


def test_a_relative_path_is_of_the_folder_that_one_is_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = '#include "v.cuh"\n' + KERNEL
    for number in (2345, 6789, 2345):
        (tmp_path / str(number)).mkdir(exist_ok=True)
        (tmp_path / str(number) / "v.cuh").write_text(f"#define VALUE {number}\n")
        monkeypatch.chdir(tmp_path / str(number))
        compiled = compiler.compile(source, "k", path=Path("k.cu"))
        assert f", {number};" in compiled.ptx


def test_what_a_trusted_source_finds_out_is_kept_apart(secret: Watched) -> None:
    if not _has_landlock():
        pytest.skip("this system has no Landlock")
    source = (
        f'#define P(a, b) a##b\n#if P(_, _has_include)("{secret.path}")\n#define VALUE 4567\n'
        "#else\n#define VALUE 89\n#endif\n" + KERNEL
    )
    for is_trusted, value in ((True, 4567), (False, 89), (True, 4567)):
        compiler.forget()
        assert f", {value};" in compiler.compile(source, "k", trusted=is_trusted).ptx


def test_a_header_that_comes_later_is_found(folder: Path) -> None:
    source = '#if __has_include("v.cuh")\n#include "v.cuh"\n#else\n#define VALUE 77\n#endif\n'
    assert ", 77;" in compiler.compile(source + KERNEL, "k", path=folder / "k.cu").ptx
    (folder / "v.cuh").write_text("#define VALUE 88\n")
    assert ", 88;" in compiler.compile(source + KERNEL, "k", path=folder / "k.cu").ptx


def test_a_source_that_pastes_other_names_compiles() -> None:
    source = (
        "#define NAME(a, b) a##b\n// It has a sink, _, and includes nothing.\n"
        "__device__ int NAME(va, lue)() { return 1; }\n#define VALUE value()\n"
    )
    compiler.compile(source + KERNEL, "k")


def test_doubtful_sources_take_a_system_that_closes_files(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "// _ has include\n#define P(a, b) a##b\n#define VALUE P(12, 34)\n" + KERNEL
    assert includes.gather(source, "k.cu", None).is_doubtful
    if _has_landlock():
        assert ", 1234;" in compiler.compile(source, "k").ptx
    monkeypatch.setattr(confine, "can_close_files", lambda: False)
    with pytest.raises(CompileError, match=r"may be pasted .* can't forbid that"):
        compiler.compile(source + "// anew\n", "k")
    # The system knows Landlock, but does not do it.
    monkeypatch.setattr(confine, "can_close_files", lambda: True)
    python = [
        "import sys; from tilewise.compiler import apart, confine, nvrtc",
        "confine.close_files = lambda: False",
        "apart.main()",
    ]
    for limits in (None, Limits()):
        with (
            pytest.raises(CompileError, match=r"may be pasted .* can't forbid that"),
            _process(monkeypatch, "\n".join(python)),
        ):
            compiler.compile(source + "// anew\n", "k", limits=limits)
    assert ", 1234;" in compiler.compile(source, "k", trusted=True).ptx


@contextmanager
def _process(monkeypatch: pytest.MonkeyPatch, program: str) -> Iterator[None]:
    """Processes of the compiler's run ``program`` instead."""
    with monkeypatch.context() as patch:
        patch.setattr(starting, "_RUN", program)
        yield


def test_lines_stay_lines() -> None:
    text = '#inc\\\nlude <x>\n#define A \\\n 1\\\n\n#include \\\n\\\n<a>\n#\\\nimport\\\n"b"\nend'
    found = includes.gather(text, "k.cu", Path("/nowhere"))
    assert found.source.count("\n") == text.count("\n")
    assert [r for r in found.source.splitlines() if "end" in r] == ["end"]
    assert found.source.splitlines().index("end") == text.splitlines().index("end")


def test_a_long_source_is_looked_at_in_a_short_time() -> None:
    begin = time.process_time()
    pieces = (
        "/*", "*/ ", "#include ", '#include "', "__has_include(", "\\\n", "#/*\n", " ", "# ",
        "import ", "<", '"', "defined ", "export ", "_ ", "#define ",
    )  # fmt: skip
    for piece in some(pieces, 6):
        includes.gather(piece * 100_000, "k.cu", Path("/nowhere"))
    assert time.process_time() - begin < 30


def test_headers_that_are_not_there_are_looked_for_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked: list[Path] = []
    real = source_files.read

    def read(file: Path, most: int) -> str:
        looked.append(file)
        return real(file, most)

    monkeypatch.setattr(header_search, "read", read)
    text = "#if 0\n" + '#include "nothere.h"\n' * 6000 + "#endif\n"
    includes.gather(text, "k.cu", folder)
    assert len(looked) == 1


def test_looking_for_headers_has_a_limit(folder: Path) -> None:
    text = "".join(f'#include "nothere{number}.h"\n' for number in range(100_000))
    source = f"#if 0\n{text}#endif\n{KERNEL}"
    begin = time.process_time()
    with pytest.raises(LimitError, match=r"k\.cu: .*limit of 0\.5 seconds"):
        compiler.compile(source, "k", path=folder / "k.cu", limits=Limits(seconds=0.5))
    assert time.process_time() - begin < 10


@pytest.mark.thorough
def test_a_source_is_as_large_as_a_file(folder: Path) -> None:
    most = source_files.MOST_BYTES
    for source in (" " * (most + 1), "ü" * (most // 2 + 1)):
        with pytest.raises(ValueError, match=r"source has 16,777,21\d bytes; at most 16,777,216"):
            compiler.compile(source, "k")
    # Headers are counted in bytes too.
    for number in range(3):
        (folder / f"h{number}.cuh").write_text("//" + "ü" * (most // 5), encoding="utf-8")
    source = "".join(f'#include "h{number}.cuh"\n' for number in range(3))
    with pytest.raises(CompileError, match=r"k\.cu:3: .*at most [\d,]+ are read"):
        compiler.compile(source + KERNEL, "k", path=folder / "k.cu")


def test_headers_that_are_too_many_or_of_odd_names(folder: Path) -> None:
    (folder / 'a"b.cuh').write_text("")
    with pytest.raises(CompileError, match="a header whose path has a quotation mark"):
        compiler.compile('#include <a"b.cuh>\n' + KERNEL, "k", path=folder / "k.cu")
    for number in range(header_search.MOST_FILES + 1):
        (folder / f"h{number}.cuh").touch()
    source = "".join(
        f'#include "h{number}.cuh"\n' for number in range(header_search.MOST_FILES + 1)
    )
    with pytest.raises(CompileError, match=r"k\.cu:1001: .*no more than 1,000 headers are read"):
        compiler.compile(source + KERNEL, "k", path=folder / "k.cu")


def test_half_a_character_is_refused_in_words() -> None:
    half, said = "\udcff", r"has '\\udcff' in it, half of a character"
    with pytest.raises(ValueError, match=f"source {said}"):
        compiler.compile(f"// {half}\n{KERNEL}", "k")
    with pytest.raises(ValueError, match=f"macro VALUE {said}"):
        compiler.compile(KERNEL, "k", defines={"VALUE": half})
    with pytest.raises(ValueError, match=f"option {said}"):
        compiler.compile(KERNEL, "k", options=[f"-DVALUE={half}"])
    with pytest.raises(ValueError, match=f"name {said}"):
        compiler.compile(KERNEL, half)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere every path is text")
def test_a_path_that_is_not_utf_8_is_refused_in_words(folder: Path) -> None:
    half = Path(os.fsdecode(b"\xff"))
    with pytest.raises(ValueError, match=r"path has '\\udcff' in it"):
        compiler.compile(KERNEL, "k", path=folder / half / "k.cu")
    with pytest.raises(ValueError, match=r"folder of include= has '\\udcff' in it"):
        compiler.compile(KERNEL, "k", include=[folder / half])


def test_a_folder_beside_tilewises_own_is_not_its_own(tmp_path: Path) -> None:
    beside = Path(f"{shipped.FOLDER}-of-others")
    search = header_search.Search("k.cu", (), (), False, {})
    texts = {str(beside / "k.cuh"): "_ has include", "k.cu": "#define P(a, b) a##b"}
    assert includes._check(texts, search, [])
    assert not includes._check({str(shipped.FOLDER / "k.cuh"): "_ has include"}, search, ["a##b"])


def test_a_process_of_its_own_opens_no_file_at_all(secret: Watched) -> None:
    """The second wall: what the first would let through."""
    if not _has_landlock():
        pytest.skip("this system has no Landlock")
    source = f'#include "{secret.path}"\n#define VALUE 1\n{KERNEL}'
    options = ["--gpu-architecture=sm_90a", "--no-source-include"]
    assert "of_the_machine" in nvrtc.run(source, "k.cu", options).log
    assert secret.opened()
    found = apart.run(source, "k.cu", options, limits=Limits())
    assert not found.ok
    assert "of_the_machine" not in found.log
    assert secret.opened() == 0
    trusted = apart.run(source, "k.cu", options, limits=Limits(), is_trusted=True)
    assert "of_the_machine" in trusted.log


def _has_landlock() -> bool:
    child = os.fork()
    if child == 0:
        os._exit(0 if confine.close_files() else 1)
    return os.waitpid(child, 0)[1] == 0


@pytest.mark.parametrize(
    "option",
    [
        "--fdevice-time-trace={t}", "-fdevice-time-trace={t}", "-time={t}", "--time={t}",
        "-include={s}", "--pre-include={s}", "-I{d}", "-I {d}", "--include-path={d}", "@{s}",
        "--pch", "--create-pch={t}", "--use-pch={s}", "--pch-dir={d}", "-dlto", "--dlink-time-opt",
        "-Xptxas=--options-file={s}", "--ptxas-options=-optf={s}", "--ptxas-options=@{s}",
        "--ptxas-options=-o={t}", "-Xptxas=-v,--options-file={s}", "--no-such-option",
        "-DX=1\n#include <{s}>", "--optix-ir", "-v -o {t}",
    ],
)  # fmt: skip
def test_options_that_read_or_write_files(option: str, secret: Watched, tmp_path: Path) -> None:
    target = tmp_path / "written"
    given = option.format(s=secret.path, d=secret.path.parent, t=target)
    with pytest.raises(ValueError, match=r"options has .*trusted=True"):
        compiler.compile("#define VALUE 1\n" + KERNEL, "k", options=[given])
    assert secret.opened() == 0
    assert [each for each in tmp_path.iterdir() if each.name.startswith("written")] == []


def test_the_name_of_a_kernel_asks_for_no_file(secret: Watched) -> None:
    source = "template <int I> __global__ void k(int* x) { *x = I; }\n"
    name = f'k<__has_include("{secret.path}")>'
    with pytest.raises(ValueError, match=r"files can be looked for; that takes trusted=True"):
        compiler.compile(source, name)
    source = "#define P(a, b) a##b\n" + source
    for pasted in ("P(_,_has_include)", "_NV_CONCAT_EVAL1(_,_has_include)"):
        given = f'k<{pasted}("{secret.path}")>'
        assert includes.gather(source, "k.cu", None, name=given).is_doubtful
        with suppress(CompileError):
            compiler.compile(source, given)
    assert secret.opened() == 0


@pytest.mark.parametrize(
    "value",
    ['__has_include("{s}")', '0 + __has_include(<{s}>)', 'P(__has_,include)("{s}")',
     'defined __has_include_next("{s}")', '__has_embed("{s}")', 'P(__has, _include)("{s}")'],
)  # fmt: skip
def test_macros_that_are_given_ask_for_no_file(
    value: str, secret: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "#if X\n#endif\n#define P(a, b) a##b\n#if X\n#endif\n#define VALUE X\n" + KERNEL
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    given = value.format(s=secret.path)
    refused = r"the macro .* has __has.* in it, .* that takes trusted=True"
    with pytest.raises(ValueError, match=refused):
        compiler.compile(source, "k", defines={"X": given})
    for option in ("-DX=", "--define-macro=X=", "-DX(a)="):
        with pytest.raises(ValueError, match=refused):
            compiler.compile(source, "k", options=[option + given])
    assert secret.opened() == 0
    with suppress(CompileError):
        compiler.compile(source, "k", defines={"X": given}, trusted=True)
    with pytest.raises(ValueError, match="one line"):
        compiler.compile(source, "k", defines={"X": f'1\r#include "{secret.path}"'})


def test_macros_that_are_given_paste_nothing(
    secret: Watched, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = "#if X\n#endif\n#define VALUE 1\n" + KERNEL
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path / "cache"))
    given = f'P(_,_has_include)("{secret.path}")'
    for option in ("-DP(a,b)=a##b", "--define-macro=P(a,b)=a##b"):
        for more, defines in (((f"-DX={given}",), None), ((), {"X": given})):
            with suppress(CompileError):
                compiler.compile(source, "k", options=[option, *more], defines=defines)
    assert secret.opened() == 0


def test_options_of_a_trusted_source(secret: Watched, tmp_path: Path) -> None:
    secret.path.write_text("#define VALUE 4321\n")
    options = [f"--pre-include={secret.path}", f"-time={tmp_path / 'times.csv'}"]
    for value in (4321, 8765):  # what an option reads is not known, so it is not kept
        secret.path.write_text(f"#define VALUE {value}\n")
        ptx = compiler.compile(KERNEL, "k", options=options, trusted=True).ptx
        assert f", {value};" in ptx
    assert (tmp_path / "times.csv").exists()


def test_options_that_every_source_may_have() -> None:
    for option in (
        "--maxrregcount=32", "-maxrregcount=32", "--use_fast_math", "--std=c++20", "-G", "-DX=1",
        "--define-macro=X", "-UX", "--ptxas-options=-O1", "-Xptxas=--opt-level=1", "--fmad=false",
        "--diag-suppress=177,550", "-lineinfo", "--restrict", "-w", "--ftz=true",
        "--ptxas-options=--warn-on-spills",
    ):  # fmt: skip
        compiler.compile("#define VALUE 1\n" + KERNEL, "k", options=[option])


def test_threads_compile_at_once(folder: Path) -> None:
    (folder / "value.cuh").write_text("#define VALUE 5\n")
    found = []

    def work(number: int) -> None:
        source = f'#include "value.cuh"\n// {number}\n' + KERNEL
        found.append(compiler.compile(source, "k", path=folder / "k.cu"))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4


def test_a_kernel_may_include(folder: Path, tmp_path: Path) -> None:
    (folder / "value.cuh").write_text("#define VALUE 6\n")
    x = np.zeros(1, np.int32)
    Kernel('#include "value.cuh"\n' + KERNEL, "k", include=[folder]).launch(
        1, 1, (x,), device="emulator"
    )
    assert x[0] == 6
    outside = f'#include "{folder / "value.cuh"}"\n' + KERNEL
    with pytest.raises(CompileError, match="outside the folder"):
        Kernel(outside, "k").compile()
    Kernel(outside, "k", trusted=True).compile()


@pytest.mark.parametrize("name", ["nowhere", "file"])
def test_a_folder_to_include_from_that_is_none(name: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    folder = tmp_path / name
    what = "it is a file" if name == "file" else "there is no such folder"
    with pytest.raises(FileNotFoundError, match=f"include has '{folder}': {what}"):
        Kernel(KERNEL, "k", include=[tmp_path, folder])
