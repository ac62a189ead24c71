"""Ctrl-C wherever it comes: one line and the exit code 130, or the command was done already."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import hears_ctrl_c
from reference import thorough

from tilewise.cli.interrupt import Interruptible, ended_at_once
from tilewise_command import end

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
LINE = "tilewise: interrupted\n"

pytestmark = pytest.mark.skipif(os.name == "nt", reason="of signals that Windows has not")

# Each sends Ctrl-C to itself, at a place that a person hits by luck.
BEGIN = """
import os, signal, sys, threading, time
import tilewise_command

def ctrl_c(kill=os.kill, pid=os.getpid(), number=signal.SIGINT):
    kill(pid, number)

sys.argv = ["tilewise", "kernels"]
"""
RUN = "sys.exit(tilewise_command.main())\n"
IN_A_COMMAND = """
import tilewise.cli.show as show

def kernels(rungs):
    {}

show.kernels = kernels
"""
PLACES = {
    "before the command": """
import tilewise.cli.main as cli
carry_out = cli._answer
def answer(*given):
    ctrl_c()
    return carry_out(*given)
cli._answer = answer
""",
    "in the command": IN_A_COMMAND.format("ctrl_c(); time.sleep(60)"),
    "twice": IN_A_COMMAND.format("""
    try:
        ctrl_c()
    finally:
        ctrl_c()
"""),
    "in a library that takes it for another error": IN_A_COMMAND.format("""
    try:
        ctrl_c()
    except BaseException:
        raise ImportError("half of it is here")
"""),
    "in a library that goes on": IN_A_COMMAND.format("""
    try:
        ctrl_c()
    except BaseException:
        pass
"""),
    "in a finaliser": IN_A_COMMAND.format("""
    class Finalised:
        def __del__(self):
            ctrl_c()
    Finalised()
    time.sleep(60)
"""),
    "behind the command": """
import tilewise.cli.main as cli
carry_out = cli._answer
def answer(*given):
    code = carry_out(*given)
    ctrl_c()
    return code
cli._answer = answer
""",
    "while a thread is waited for": """
threading.Thread(target=time.sleep, args=(60,)).start()
def late():
    threading.main_thread().join()
    time.sleep(0.5)  # A signal just ahead of the wait is only heard after it, by Python itself.
    ctrl_c()
threading.Thread(target=late).start()
""",
    "in what is called at the end": IN_A_COMMAND.format("import atexit; atexit.register(ctrl_c)"),
}


def outcome(script: str) -> tuple[int, str, str]:
    found = subprocess.run(
        [sys.executable, "-c", script], env=ENVIRONMENT, capture_output=True, text=True,
        check=False, preexec_fn=hears_ctrl_c, timeout=50,
    )  # fmt: skip
    return found.returncode, found.stdout, found.stderr


@pytest.mark.sampled(5)
@pytest.mark.parametrize("place", PLACES)
def test_it_is_one_line_and_the_exit_code(place: str) -> None:
    code, _, told = outcome(BEGIN + PLACES[place] + RUN)
    assert (code, told) == (130, LINE)


@thorough
def test_it_changes_nothing_when_all_is_done() -> None:
    """Python has taken its handlers away when it frees what a module holds."""
    held = "class Held:\n    def __del__(self, ctrl_c=ctrl_c):\n        ctrl_c()\n\nheld = Held()\n"
    code, out, told = outcome(BEGIN + held + RUN)
    assert (code, told) == (0, "")
    assert out == outcome(BEGIN + RUN)[1]


def test_where_it_is_ignored_it_stays_so() -> None:
    ignored = "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    code, _, told = outcome(BEGIN + ignored + PLACES["behind the command"] + RUN)
    assert (code, told) == (0, "")


@pytest.fixture
def hears_interrupts() -> Iterator[None]:
    """A shell's background jobs are begun with Ctrl-C ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_interrupts")
def test_a_caller_has_its_own_handler_back() -> None:
    before = signal.getsignal(signal.SIGINT)
    with ended_at_once() as interruptible:
        now: object = signal.getsignal(signal.SIGINT)
        assert now is interruptible
        with pytest.raises(KeyboardInterrupt), interruptible:
            os.kill(os.getpid(), signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is before


def test_outside_of_the_body_it_is_for_the_handler_of_before() -> None:
    heard: list[int] = []
    interruptible = Interruptible(lambda number, _: heard.append(number))
    interruptible(2, None)
    with interruptible:
        pass
    interruptible(3, None)
    assert heard == [2, 3]
    with pytest.raises(KeyboardInterrupt), interruptible:
        interruptible(4, None)
    interruptible(5, None)
    assert heard == [2, 3]


@thorough  # a plain run starts it either way above, and in test_terminal.py
def test_the_program_ends_by_the_same_function_whichever_way_it_is_started() -> None:
    for words in (["-m", "tilewise_command"], ["-m", "tilewise"]):
        script = (
            "import runpy, signal, sys, tilewise.cli.show as show\n"
            "import tilewise.cli.interrupt as interrupt\n"
            "show.kernels = lambda _: print(type(signal.getsignal(signal.SIGINT)).__name__)\n"
            f"sys.argv = ['tilewise', 'kernels']; runpy.run_module({words[1]!r}, "
            "run_name='__main__', alter_sys=True)\n"
        )
        assert outcome(script) == (0, "Interruptible\n", ""), words
    assert end.__module__ == "tilewise_command"
