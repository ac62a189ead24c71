"""Processes that answer one request, whether a server forks them or they are started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest
from reference import some, thorough
from waiting import assert_soon

from tilewise.compiler import forking, processes, starting
from tilewise.compiler.clock import Clock
from tilewise.compiler.processes import Heard

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")


def ask(asked: str, seconds: float | None = 30, *files: int, grace: float = 0.0) -> Heard:
    """Ask a process that does what it is asked."""
    clock = Clock(seconds, "k.cu")
    return processes.ask("answering", asked.encode(), clock, files=files, grace=grace)


def said(asked: str, *files: int) -> str:
    """What it answers."""
    heard = ask(asked, 30, *files)
    assert (heard.is_started, heard.is_late, heard.code) == (True, False, 0)
    return heard.said.decode()


def server() -> int:
    """The server's number."""
    return int(said("who").split()[1])


def is_there(process: int) -> bool:
    """Whether there is a process of this number, which has not ended."""
    try:
        status = Path(f"/proc/{process}/stat").read_text()
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in "ZX"


def assert_soon_gone(*numbers: int) -> None:
    assert_soon(lambda: not any(map(is_there, numbers)))


@pytest.fixture(params=["forked", pytest.param("started", marks=thorough)])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Both ways to get a process."""
    if request.param == "started":
        monkeypatch.setattr(forking, "can_fork", lambda: False)
    return str(request.param)


@pytest.fixture(scope="module", autouse=True)
def ended() -> Iterator[None]:
    yield
    forking.end_servers()


@pytest.mark.usefixtures("way")
def test_the_answer_and_the_end() -> None:
    assert said("say something") == "something"
    assert said(f"much {5 << 20}") == "x" * (5 << 20)
    for asked, code, how, is_full in (
        (f"die {signal.SIGSEGV}", -signal.SIGSEGV, "signal SIGSEGV", False),
        (f"die {signal.SIGABRT}", -signal.SIGABRT, "signal SIGABRT", True),
        ("exit 3", 3, "exit code 3", False),
        ("exit 0", 0, "exit code 0", False),
        ("nothing", 1, "exit code 1", False),
    ):
        heard = ask(asked)
        assert heard == Heard(b"", True, False, code)
        assert (heard.how, heard.is_out_of_memory) == (how, is_full)
    assert said("say again") == "again"


def test_one_that_breaks_down_leaves_the_server() -> None:
    before = server()
    ask(f"die {signal.SIGSEGV}")
    ask(f"slowly {os.devnull}", 0.1)
    assert server() == before


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("way", ["forked", "started"], indirect=True)
def test_one_whose_time_is_over_is_killed(tmp_path: Path) -> None:
    begin = time.monotonic()
    heard = ask(f"slowly {tmp_path / 'who'}", 0.4)
    assert (heard.said, heard.is_late, heard.code) == (b"", True, -signal.SIGKILL)
    assert time.monotonic() - begin < 20
    assert_soon_gone(int((tmp_path / "who").read_text().split()[0]))


@pytest.mark.usefixtures("way")
def test_one_whose_time_is_over_may_say_a_last_word() -> None:
    heard = ask("growing", 0.3, grace=20)
    assert (heard.said, heard.is_late, heard.code) == (b"stopped", True, 0)
    assert ask("wait 60", 0.2, grace=0.1) == Heard(b"", True, True, -signal.SIGKILL)


@pytest.mark.usefixtures("way")
def test_a_limit_of_memory_is_that_of_one_request() -> None:
    few, more = int(said("full 20")), int(said("full 60"))
    assert 10 < few <= 20
    assert 50 < more <= 60


def test_it_has_what_this_process_has_at_the_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for value in ("one", "two ü"):
        folder = tmp_path / value
        folder.mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setenv("TILEWISE_ODD", value)
        assert said("variable TILEWISE_ODD") == value
        assert said("folder") == str(folder)
        with (tmp_path / "file").open("w+") as file:
            file.write(value)
            file.flush()
            file.seek(0)
            assert said(f"read {file.fileno()}", file.fileno()) == value
    monkeypatch.delenv("TILEWISE_ODD")
    assert said("variable TILEWISE_ODD") == "None"
    folder.rmdir()
    assert said("say without a folder") == "without a folder"


def test_files_keep_their_numbers_whatever_the_server_has_open(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("found")
    for number in some(range(3, 16), 7):
        first = os.open(tmp_path / "file", os.O_RDONLY)
        try:
            last = os.dup2(first, 200 + number)
            assert said(f"read {last}", first, last) == "found"
        finally:
            os.close(200 + number)
        try:
            os.lseek(first, 0, os.SEEK_SET)
            assert said(f"read {first}", first) == "found"
        finally:
            os.close(first)


def test_it_reaches_nothing_of_the_server() -> None:
    found = said("open").split()
    assert found.count("socket") == 1  # on which it is asked
    assert set(found) <= {"socket", "pipe", "/dev/null"}


def test_threads_ask_at_once() -> None:
    def asked(number: int) -> str:
        if number % 5 == 4:
            return str(ask(f"die {signal.SIGSEGV}").code)
        return said(f"say {number}")

    with ThreadPoolExecutor(6) as threads:
        found = list(threads.map(asked, range(24)))
    assert found == ["-11" if each % 5 == 4 else str(each) for each in range(len(found))]


def test_one_request_does_not_wait_for_another(tmp_path: Path) -> None:
    with ThreadPoolExecutor(1) as other:
        slow = other.submit(ask, f"slowly {tmp_path / 'who'}", 1)
        while not (tmp_path / "who").exists():
            time.sleep(0.01)
        assert said("say quick") == "quick"
        assert not slow.done()
        assert slow.result().is_late


def test_a_server_that_was_killed_is_replaced() -> None:
    before = server()
    os.kill(before, signal.SIGKILL)
    assert_soon_gone(before)
    assert server() != before


def test_what_a_server_forked_ends_with_it(tmp_path: Path) -> None:
    who = tmp_path / "who"
    with ThreadPoolExecutor(1) as other:
        slow = other.submit(ask, f"slowly {who}", 50)
        while not (who.exists() and who.read_text().endswith("\n")):
            time.sleep(0.01)
        process, its_server = map(int, who.read_text().split())
        os.kill(its_server, signal.SIGKILL)
        assert slow.result() == Heard(b"", True, False, -signal.SIGKILL)
    assert_soon_gone(process, its_server)


def test_what_was_asked_is_answered_when_another_server_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = server()
    with ThreadPoolExecutor(1) as other:
        slow = other.submit(ask, "wait 0.4", 30)
        time.sleep(0.1)
        monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])  # modules are found elsewhere
        assert server() != before
        assert slow.result() == Heard(b"None", True, False, 0)
    assert_soon_gone(before)


PATCHED = "import os, answering\nfrom tilewise.compiler import fork_server\n{}\nanswering.main()"


def test_a_server_that_nobody_asks_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(starting, "_RUN", PATCHED.format("fork_server.IDLE_SECONDS = 0.2"))
    before = server()
    assert_soon_gone(before)
    assert server() != before


@pytest.mark.parametrize("number", [pytest.param(1, marks=thorough), 2])
def test_where_no_process_can_be_forked_one_is_started(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse = (
        "real, calls = os.fork, []\ndef fork():\n    calls.append(0)\n"
        f"    if len(calls) >= {number}: raise BlockingIOError\n    return real()\nos.fork = fork"
    )
    monkeypatch.setattr(starting, "_RUN", PATCHED.format(refuse))
    assert server() == os.getpid()


def test_where_no_channel_can_be_made_one_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise PermissionError

    monkeypatch.setattr("socket.socketpair", refused)
    assert server() == os.getpid()


DEADLINE = 300
"""The seconds in which a program ends; most take half a second, and 14 s on a busy machine."""
SCRIPT = """
import answering, os, signal, sys, threading, time
from tilewise.compiler import processes
from tilewise.compiler.clock import Clock
def ask(asked):
    return processes.ask("answering", asked.encode(), Clock(60, "k.cu")).said.decode()
"""


def start(program: str, *words: str) -> subprocess.Popen[str]:
    """Start a program that asks."""
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-X", "dev", "-c", SCRIPT + program, *words],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip


def test_nobody_outlives_a_process_that_is_killed(tmp_path: Path) -> None:
    who = tmp_path / "who"
    with start("ask('slowly ' + sys.argv[1])", str(who)) as process:
        while not (who.exists() and who.read_text().endswith("\n")):
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    assert_soon_gone(*map(int, who.read_text().split()))


def test_a_process_has_no_child_that_stays_and_leaves_none() -> None:
    program = """
print(ask("who"), flush=True)
try:
    print(os.waitpid(-1, 0))
except ChildProcessError:
    print("no child")
"""
    with start(program) as process:
        told, _ = process.communicate(timeout=DEADLINE)
    who, children = told.splitlines()
    assert children == "no child"
    assert_soon_gone(*map(int, who.split()))


def test_a_process_that_was_forked_has_a_server_of_its_own() -> None:
    program = """
before = ask("who").split()[1]
child = os.fork()
if child == 0:
    print(ask("who").split()[1], flush=True)
    os._exit(0)
os.waitpid(child, 0)
print(ask("who").split()[1], before)
"""
    with start(program) as process:
        told, _ = process.communicate(timeout=DEADLINE)
    of_child, of_parent = told.splitlines()
    assert len(set(of_parent.split())) == 1
    assert of_child not in of_parent.split()
    assert_soon_gone(int(of_child), *map(int, of_parent.split()))


def test_ctrl_c_is_left_to_the_one_who_asked() -> None:
    assert said("ctrl-c") == "None"


def test_what_is_given_up_is_killed(tmp_path: Path) -> None:
    who = tmp_path / "who"
    # A signal that comes just before the main thread begins to wait does not end its wait: Python
    # notices it afterwards. So it is sent until it is noticed, and raises an error once.
    program = """
noticed = threading.Event()
def once(*_):
    if not noticed.is_set():
        noticed.set()
        raise KeyboardInterrupt
def interrupt():
    while not os.path.exists(sys.argv[1]) or not os.path.getsize(sys.argv[1]):
        time.sleep(0.01)
    while not noticed.is_set():
        os.kill(os.getpid(), signal.SIGINT)
        noticed.wait(1)
signal.signal(signal.SIGINT, once)
threading.Thread(target=interrupt).start()
try:
    ask("slowly " + sys.argv[1])
except KeyboardInterrupt:
    print(ask("say again"))
"""
    with start(program, str(who)) as process:
        told, _ = process.communicate(timeout=DEADLINE)
    assert told == "again\n"
    assert_soon_gone(*map(int, who.read_text().split()))


@pytest.mark.parametrize("error", [None, TimeoutError()])
def test_a_server_that_does_not_start_is_not_waited_for_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """But later, if it only took too long; and in a forked process."""
    begun, now = [], [100.0]

    def not_started(module: str) -> None:
        begun.append(module)
        if error is not None:
            raise error

    monkeypatch.setattr(forking, "_started", not_started)
    monkeypatch.setattr(forking, "_servers", {})
    monkeypatch.setattr(forking, "_refused", {})
    monkeypatch.setattr(forking, "time", SimpleNamespace(monotonic=lambda: now[0]))
    assert [forking.has_server("answering") for _ in range(3)] == [False] * 3
    assert begun == ["answering"]
    now[0] += forking._PAUSE
    assert not forking.has_server("answering")
    assert len(begun) == (1 if error is None else 2)
    begun.clear()
    monkeypatch.setattr(forking, "_lock", forking._lock)
    forking._begin_anew()
    assert not forking.has_server("answering")
    assert begun == ["answering"]


def test_a_server_is_there_or_is_started() -> None:
    assert forking.has_server("answering")
    assert is_there(server())
    forking.end_servers()
    assert forking.has_server("answering")
