"""PTX that is given: its text cut into parts, its lines, its parameters, its machine code."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path

import pytest

from tilewise.compiler import machine_code
from tilewise.compiler.ptx import assembler, given
from tilewise.compiler.ptx.lines import with_own_lines
from tilewise.compiler.ptx.module import entries
from tilewise.compiler.ptx.parameters import parameters
from tilewise.compiler.ptx.placed import with_alignment
from tilewise.compiler.ptx.text import split
from tilewise.errors import CompileError, LimitError, UnsupportedInstructionError
from tilewise.kernel import SOURCES, Kernel
from tilewise.limits import Limits

HEAD = ".version 8.0\n.target sm_80\n.address_size 64\n"
ONE = f"{HEAD}.visible .entry k(.param .u64 x)\n{{\nret;\n}}\n"
has_assembler = pytest.mark.skipif(
    not assembler.tools(), reason="neither nvJitLink nor ptxas is here"
)


def test_a_module_is_cut_into_functions_and_declarations() -> None:
    text = (
        "// .entry no(\n.version 8.5 .target sm_90a, debug .address_size 64\n"
        '.file 1 "a//b;{.py", 12, 34\n'
        ".global .align 4 .b32 x[2] = {1, 2}; .extern .func f(.param .b32 a);\n"
        ".func (.reg .b32 r) f(.param .b32 a) .noreturn { { ret; } /* } */ }\n"
        ".weak .entry k () .maxntid 128, 1, 1 .minnctapersm 2 {\n"
        '.pragma "}"; ret; }\n.section .debug_str\n{\n.b8 1 }\n@@DWARF .byte }\n'
    )
    found = split(text)
    assert (found.version, found.target, found.address_size) == ("8.5", "sm_90a", 64)
    assert found.files == {1: "a//b;{.py"}
    assert found.kernels == ("k",)
    assert list(found.functions) == ["f", "k"]
    assert len(found.declarations) == 2
    assert len(found.text) == len(text)
    body = found.functions["k"]
    assert text[body.start : body.end].strip() == '.pragma "}"; ret;'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD + ".func f() { {", "line 4 of the PTX: a '{' is never closed"),
        (HEAD + "}", "line 4 of the PTX: a '}' opens nowhere"),
        (HEAD + ".global .b32 x", "line 4 of the PTX: '.global .b32 x' has no end"),
        (HEAD + ".func () { }", "names no function"),
        ("hello", "is it PTX|has no end"),
        ("", "has no .target, as PTX begins with"),
    ],
)
def test_what_is_no_ptx_is_refused(text: str, message: str) -> None:
    with pytest.raises(CompileError, match=message):
        given.given(text, "k")


def test_parameters_are_as_they_are_declared() -> None:
    text = (
        ".param .u64 .ptr .global .align 16 a, .param .align 8 .b8 b[24],.param.f32 c,"
        "\n\t.param .b32 d, .param .u64 e, .param .align 4 .f32 f[3]"
    )
    assert parameters(text) == [
        ("a", "u64", 8, 8, "*"), ("b", "b8", 24, 8, ""), ("c", "f32", 4, 4, ""),
        ("d", "b32", 4, 4, ""), ("e", "u64", 8, 8, ""), ("f", "b8", 12, 4, ""),
    ]  # fmt: skip
    with pytest.raises(CompileError, match=r"parameter '\.param nonsense' can't be read"):
        parameters(".param nonsense")


@pytest.mark.parametrize(
    ("target", "arch", "is_taken"),
    [
        ("sm_80", "sm_80", True), ("sm_80", "sm_90a", True), ("sm_80", "sm_75", False),
        ("sm_90a", "sm_90a", True), ("sm_90a", "sm_90", False), ("sm_90a", "sm_100a", False),
        ("sm_100f", "sm_103a", True), ("sm_100f", "sm_120", False), ("sm_52", "sm_80", True),
    ],
)  # fmt: skip
def test_ptx_runs_on_its_own_architecture_and_later_ones(
    target: str, arch: str, is_taken: bool
) -> None:
    assert (given.refusal(target, arch) == "") == is_taken
    if not is_taken:
        with pytest.raises(ValueError, match=f"for {arch}: PTX for {target} runs on"):
            given.given(ONE.replace("sm_80", target), "k", arch=arch)


def test_the_default_architecture_is_the_targets() -> None:
    assert given.default_arch(ONE) == "sm_80"
    assert given.default_arch(ONE.replace("sm_80", "sm_52")) == "sm_75"


def test_a_kernel_is_found_by_its_symbol_and_its_name() -> None:
    mangled = "_Z3addILi4EEvPf"
    text = ONE + f".visible .entry {mangled}() {{ ret; }}\n"
    assert given.given(text, mangled).symbol == mangled
    assert given.given(text, "add<4>").symbol == mangled
    assert [each.symbol for each in entries(text)] == ["k", mangled]
    with pytest.raises(CompileError, match=r"<ptx> has k, add<4>; say which"):
        given.given(text)
    with pytest.raises(CompileError, match=r"no kernel called 'sub'; it has k, add<4>"):
        given.given(text, "sub")


def test_functions_without_lines_get_their_own() -> None:
    text = (
        HEAD + ".func f()\n{\n.loc 1 7 1\nret;\n}\n.entry k()\n{\n"
        ".reg .b32 a;\nL: mov.b32\n a, 1; { mov.b32 a, 2;\n@p bra L;\nret; }\n}\n"
    )
    found = with_own_lines(split(text), text, "ä.ptx")
    assert found.file == 1
    assert found.ptx.count("\n") == text.count("\n") + 2
    assert "L: .loc 1 12 1 mov.b32\n a, 1; { .loc 1 13 1 mov.b32 a, 2;" in found.ptx
    assert ".loc 1 14 1 @p bra L;\n.loc 1 15 1 ret;" in found.ptx
    assert ".loc 1 12 1 @p bra L;\n.loc 1 15 1 ret;" in found.by_block
    assert '.file 1 "\\303\\244.ptx"' in found.ptx
    assert ".loc 1 7 1\nret;" in found.ptx
    assert with_own_lines(split(found.ptx), found.ptx, "x.ptx").file == 0


def test_static_shared_memory_is_aligned_as_it_is_placed() -> None:
    text = (
        HEAD + ".extern .shared .align 4 .b8 d[];\n.entry k() {\n"
        ".shared .align 4 .b8 a[24];\n.shared .align 4 .b8 b[8];\n.shared .b32 c;\n"
        "st.shared.b32 [a], 1; ret; }\n"
    )
    found = with_alignment(split(text), text)
    assert ".shared  .align 16 .b8 a[24];\n.shared  .align 8 .b8 b[8];" in found
    assert ".shared .b32 c;" in found  # no access is wider than it is
    assert ".extern .shared .align 4 .b8 d[];" in found
    assert "st.shared.b32 [a]" in found


@has_assembler
@pytest.mark.parametrize(
    "rung", ["05_tiled", pytest.param("09_thread_tile_2d", marks=pytest.mark.thorough)]
)
def test_the_machine_code_reaches_memory_as_nvrtcs_does(rung: str) -> None:
    macros = {"real": "float", "TILE": 16, "BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 8,
              "THREAD_M": 8, "THREAD_N": 8}  # fmt: skip
    source = Kernel(SOURCES / "ladder" / f"{rung}.cu", rung[3:], macros).compile()
    found = given.given(source.ptx, source.symbol)
    ours, theirs = (
        Counter((each.opcode, each.width) for each in read.instructions or ())
        for read in map(machine_code.disassemble, (found, source))
    )
    assert ours == theirs
    assert found.resources.shared_bytes == source.resources.shared_bytes
    assert found.resources.registers > 0


@has_assembler
def test_ptx_that_is_wrong_names_its_line() -> None:
    text = ONE.replace("ret;", ".reg .b32 %r<2>;\nfrobnicate.b32 %r1, 5;\nret;")
    with pytest.raises(CompileError, match=r"my\.ptx:7: error: .*'frobnicate'"):
        given.given(text, "k", path=Path("my.ptx"))


@has_assembler
def test_what_is_too_new_for_an_assembler_is_no_fault_of_the_ptx() -> None:
    found = given.given(ONE.replace("8.0", "99.0"), "k")
    assert found.cubin == b""
    assert "can't make machine code of it" in found.resources.missing
    assert "Unsupported .version 99.0" in found.resources.missing


def test_without_an_assembler_the_resources_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembler, "tools", tuple)
    given.forget()
    try:
        found = given.given(ONE + " ", "k")
    finally:
        given.forget()
    assert found.cubin == b""
    hint = 'neither nvJitLink nor ptxas is there (pip install "tilewise[ptx]")'
    assert found.resources.missing == hint
    assert found.resources.to_dict()["registers"] is None
    assert hint in str(found.resources)


@has_assembler
def test_machine_code_is_kept_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEWISE_CACHE_DIR", str(tmp_path))
    text = ONE + "// kept\n"
    first = given.given(text, "k")
    given.forget()

    def refuse(*args: object) -> None:
        raise AssertionError("it is assembled again")

    monkeypatch.setattr(assembler, "assemble", refuse)
    again = given.given(text, "k")
    assert (again.cubin, again.resources) == (first.cubin, first.resources)


@has_assembler
def test_ptxas_does_it_where_nvjitlink_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    if assembler.find_ptxas() is None:
        pytest.skip("ptxas is not here")
    monkeypatch.setattr(assembler, "_nvjitlink", lambda: None)
    given.forget()
    (tool,) = assembler.tools()
    assert tool.startswith("ptxas ")
    assert given.given(ONE + "// by ptxas\n", "k").resources.registers > 0


@has_assembler
def test_within_limits_a_process_of_its_own_assembles() -> None:
    limits = Limits(seconds=30)
    assert given.given(ONE, "k", limits=limits).cubin == given.given(ONE, "k").cubin
    long = "fma.rn.f32 %f1, %f2, %f1, %f3;\nadd.f32 %f2, %f1, %f3;\n" * 5_000
    text = ONE.replace("ret;", f".reg .f32 %f<4>;\n{long}ret;")
    with pytest.raises(LimitError, match=r"k\.ptx: .*limit of 0\.05 seconds"):
        given.given(text, "k", path=Path("k.ptx"), limits=Limits(seconds=0.05))


def test_a_source_is_read_in_the_ptxs_folder_alone(tmp_path: Path) -> None:
    inside = tmp_path / "in"
    inside.mkdir()
    (tmp_path / "secret.cu").write_text("secret")
    (inside / "mine.cu").write_text("// mine")
    (inside / "link.cu").symlink_to(tmp_path / "secret.cu")
    path = inside / "k.ptx"

    def source(name: str) -> tuple[str, str]:
        text = ONE.replace("ret;", ".loc 1 1 1\nret;") + f'.file 1 "{name}"\n'
        path.write_text(text)
        found = Kernel.from_ptx(path, "k").compile()
        return found.file, found.source

    assert source("mine.cu") == ("mine.cu", "// mine")
    assert source(str(inside / "mine.cu"))[1] == "// mine"
    for outside in ("../secret.cu", str(tmp_path / "secret.cu"), "link.cu", "/etc/passwd", "no.cu"):
        assert source(outside) == (outside, "")


BOMBS = {
    "an open comment": HEAD + "/*" * 500_000,
    "quotes": ONE + '"' * 500_001,
    "labels": ONE.replace("ret;", "a:" * 500_000 + "ret;"),
    "scopes": ONE.replace("ret;", "{" * 300_000 + "}" * 300_000 + "ret;"),
    "a vector": ONE.replace("ret;", "ld.b32 " + "{" * 300_000 + "}" * 300_000 + ",[a];"),
    "initial values": ONE + ".global .b32 x[2] = " + "{}" * 300_000 + ";",
    "functions": HEAD + ".func f() {" * 100_000,
    "a long name": ONE + ".global .b32 " + "x" * 500_000 + "[1]" * 100_000 + "!;",
    "a long number": ONE + ".global .b8 x[" + "9" * 100_000 + "];",
    "a long line": ONE.replace("ret;", ".loc " + "9" * 100_000 + " 1 1\nret;"),
    "attributes": ONE + ".func .attribute(" + "(" * 100_000 + ") f(){ret;}",
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    "what",
    [
        pytest.param(x, marks=pytest.mark.thorough) if x in ("scopes", "a vector") else x
        for x in BOMBS
    ],
)
def test_text_that_would_take_for_ever_does_not(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assembler, "tools", tuple)  # which bounds its time by Limits
    begin, said = time.process_time(), ""
    try:
        Kernel.from_ptx(BOMBS[what] + "\n", "k").launch(1, 1, (None,), device="emulator")
    except (CompileError, UnsupportedInstructionError) as error:
        said = str(error)
    assert len(said) < 300
    assert time.process_time() - begin < 10


def test_more_than_16_mib_are_refused() -> None:
    with pytest.raises(ValueError, match="bytes; at most"):
        given.given(ONE + " " * (17 << 20), "k")
