"""What is said of a command line that can't be understood: in our own words, with what is meant."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import as_if_on_a_gpu

from tilewise.cli.main import COMMANDS, main

# Of typer, of click that is in it, and of what checks their values.
THEIRS = ("Value error", "Input should", "Invalid value", "argument(s)", "parse", "Usage", "Error")
OF_ALL = "`tilewise --help` lists the commands, `tilewise COMMAND --help` its options."


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("ru tiled", "there is no command 'ru'; did you mean run?"),
        ("laddr", "there is no command 'laddr'; did you mean ladder?"),
        ("zzz", "there is no command 'zzz'"),
        ("--version zzz", "there is no command 'zzz'"),
        ("run tiled --tle 4", "there is no option --tle of `tilewise run`; did you mean --tile?"),
        ("warm --layuot", "there is no option --layuot of `tilewise warm`; did you mean --layout?"),
        ("watch tiled --xyzzy", "there is no option --xyzzy of `tilewise watch`"),
        ("--versoin", "there is no option --versoin; did you mean --version?"),
        ("occupancy", "RUNG|FILE.cu:NAME is missing: a rung of the ladder, or any kernel"),
        ("explain -m 5 -n 5", "-k is missing: columns of A, rows of B; at least 1"),
        ("explain -m 5", "-n (columns of B and C) and -k (columns of A, rows of B) are missing"),
        ("explain --groups 8", "-m (rows of A and C), -n (columns of B and C) and -k (columns of "
         "A, rows of B) are missing"),
        ("tune -k 8 --layout NT", "-m (rows of A and C) and -n (columns of B and C) are missing"),
        ("multiply", "A.npy (m x k), B.npy (k x n, of A's dtype) and -o (where the product goes) "
         "are missing"),
        ("multiply A.npy", "B.npy (k x n, of A's dtype) and -o (where the product goes) are "
         "missing"),
        ("multiply -o C.npy A.npy", "B.npy is missing: k x n, of A's dtype"),
        ("multiply A.npy B.npy", "-o is missing: where the product goes"),
        ("run tiled -m", "-m is given no value"),
        ("run tiled --out --device emulator", "--out is given no value"),
        ("multiply a.npy b.npy --out --resume", "--out is given no value"),
        ("multiply a.npy b.npy -o --memory 1M", "-o is given no value"),
        ("multiply a.npy b.npy --out --help", "--out is given no value"),
        ("watch tiled --out --tile=8", "--out is given no value"),
        ("explain -m --layout NT", "-m is given no value"),
        ("explain -m 4 -n 4 -k 4 --gpu --layout NT", "--gpu is given no value"),
        ("run k.cu:k --grid 1 --block --args 1 2", "--block is given no value"),
        ("run k.cu:k --grid 1 --block 1 --args", "--args is given no value"),
        ("run k.cu:k --limit --no-limits", "--limit is given no value"),
        ("run tiled --json=5", "--json takes no value"),
        ("run tiled x y", "'x y' is more than `tilewise run` takes"),
        ("run tiled --dtype foo", "--dtype is 'foo'; it takes one of bfloat16, float16, float32, "
         "float64"),
        ("explain -m 4 -n 4 -k 4 --layout=NS", "--layout is 'NS'; it takes one of NN, NT, TN, TT"),
        ("tiles -m 1.5 -n 3 -k 3", "-m is '1.5'; it takes an integer"),
        ("run tiled -mfoo", "-m is 'foo'; it takes an integer"),
        (
            "--tile 4 run tiled",
            "there is no option --tile before a command; those of a command come after it, as in "
            "`tilewise run --tile`",
        ),
        ("run tiled --alpha x", "--alpha is 'x'; it takes a number"),
    ],
)  # fmt: skip
def test_what_is_not_understood(
    words: str, told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    as_if_on_a_gpu(monkeypatch)
    assert main(words.split()) == 2
    captured = capsys.readouterr()
    command = words.split()[0]
    is_known = command in [each.__name__ for each in COMMANDS]
    hint = f"`tilewise {command} --help` says what it takes." if is_known else OF_ALL
    assert captured.err == f"tilewise: {told}\n{hint}\n"
    assert not any(word in captured.err for word in THEIRS)
    assert captured.out == ""


@pytest.mark.parametrize("command", ["run", "watch", "profile", "occupancy"])
def test_a_kernel_that_was_meant(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "tild"]) == 2
    told = capsys.readouterr().err
    assert "no kernel called 'tild' on the ladder; did you mean tiled? There are single" in told
    assert main([command, "xyzzy"]) == 2
    assert "on the ladder; there are single_thread" in capsys.readouterr().err


def test_a_folder_is_no_file_of_kernels(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine.cu").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(["run", "mine.cu:k", "--grid", "1", "--block", "1"]) == 2
    assert capsys.readouterr().err == (
        "tilewise: mine.cu is a folder; `tilewise kernels mine.cu` lists the kernels of its files\n"
    )


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("run mine.cpp:k", "mine.cpp is a file whose name ends in none of .cu, .cuh and .ptx; "
         "rename it to mine.cu if it is CUDA C++"),
        ("run mine.cpp:space::k<3>", "mine.cpp is a file whose name ends in none of .cu"),
        ("watch mine.cpp", "mine.cpp is a file whose name ends in none of .cu"),
        ("run below:k", "below is a folder; `tilewise kernels below` lists the kernels of its"),
        ("profile below", "below is a folder; `tilewise kernels below` lists the kernels of its"),
        ("run /dev/null:k", "/dev/null is not a regular file; copy its contents into one"),
        ("run none.cpp:k", "no kernel called 'none.cpp:k' on the ladder; there are"),
        (f"run {'x' * 5000}:k", "' on the ladder; there are"),
        ("kernels /dev/null", "/dev/null is not a regular file; copy its contents into one"),
        ("kernels none", "there is no file none"),
    ],
    ids=range(10),
)  # fmt: skip
def test_other_files(
    words: str,
    told: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.cpp").write_text("__global__ void k() {}\n")
    (tmp_path / "below").mkdir()
    assert main(words.split()) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize("size", ["-1", "3000000000"])
@pytest.mark.parametrize("option", ["-m", "-n", "-k"])
def test_commands_on_a_product_refuse_the_same_sizes(
    option: str, size: str, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = {"-m": "8", "-n": "8", "-k": "8", option: size}
    words = [word for pair in sizes.items() for word in pair]
    told = []
    for command in ("explain", "tiles", "profile tiled", "roofline tiled", "watch tiled"):
        assert main([*command.split(), *words]) == 2, command
        told.append(capsys.readouterr().err)
    value = f"{option[1]} is {int(size):,}"
    assert told[0] == f"tilewise: {value}; it must be from 1 to 2,147,483,647\n"
    assert len(set(told)) == 1
    assert main(["run", "tiled", *words]) == 2
    assert capsys.readouterr().err.startswith(f"tilewise: {value}; ")


def test_occupancy_names_the_shared_memory_that_is_given(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["occupancy", "tiled", "--shared", "300000", "--arch", "sm_90"]) == 2
    assert capsys.readouterr().err == (
        "tilewise: --shared is 300,000 bytes, and tiled has 8,192 of its own; a block of sm_90 has "
        "at most 232,448\n"
    )
    assert main(["occupancy", "tiled", "--shared", "-1"]) == 2
    assert "--shared is -1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("warm -m 8", "-n and -k are missing: -m, -n and -k go together"),
        ("warm -m 8 -n 8", "-k is missing: -m, -n and -k go together"),
        ("occupancy tiled --block 0", "--block is 0; every extent must be at least 1"),
        ("occupancy tiled --block 4,-1", "--block is 4 x -1; every extent must be at least 1"),
    ],
)
def test_a_value_that_is_none_is_told_as_it_was_given(
    words: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words.split()) == 2
    assert capsys.readouterr().err == f"tilewise: {told}\n"
