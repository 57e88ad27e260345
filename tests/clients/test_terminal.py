"""`tandem chat` as a person has it: at a terminal, with editing, a history and Ctrl-C."""

import fcntl
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time

import pytest

from tandem import make_model

UP = "\x1b[A"
INTERRUPT = "\x03"
END = "\x04"


class Terminal:
    """A program at a terminal of its own; `seen` is all that it has written."""

    def __init__(self, *arguments, environment):
        self.end, inner = pty.openpty()
        termios.tcsetwinsize(inner, (24, 100))
        program = [os.environ["TANDEM_PROGRAM"], *arguments]
        self.process = subprocess.Popen(
            program, stdin=inner, stdout=inner, stderr=inner, start_new_session=True,
            env={**os.environ, "TERM": "xterm", **environment},
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(inner)
        self.seen = ""

    def type(self, text):
        os.write(self.end, text.encode())

    def read(self, seconds):
        if select.select([self.end], [], [], seconds)[0]:
            try:
                self.seen += os.read(self.end, 65536).decode(errors="replace")
            except OSError:
                # The program has ended.
                return

    def wait_for(self, pattern, seconds=60):
        """Waits until something is written that was not there before, and gives it with all before it."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen, re.DOTALL)):
            assert time.monotonic() < deadline, f"no {pattern!r} in {self.seen!r}"
            self.read(0.1)
        before, self.seen = self.seen[: found.end()], self.seen[found.end():]
        return before

    def code(self):
        deadline = time.monotonic() + 30
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it goes on: {self.seen!r}"
            self.read(0.05)
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        os.close(self.end)


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "tiny"
    folder.mkdir()
    make_model(folder)
    return folder


@pytest.fixture
def chat(model, tmp_path):
    opened = []

    def open(*arguments):
        terminal = Terminal(
            "chat", "--backend", "cpu", "--model", str(model), "--temperature", "0", *arguments,
            environment={"XDG_STATE_HOME": str(tmp_path / "state")},
        )
        opened.append(terminal)
        terminal.wait_for("type a message.*> ")
        return terminal

    yield open
    for terminal in opened:
        terminal.close()


def test_a_conversation_with_history(chat, tmp_path):
    terminal = chat("--max-tokens", "8")
    terminal.type("Hello, owl\r")
    first = terminal.wait_for("\n.+\n.*> ")
    terminal.type("/new\r")
    terminal.wait_for("a new conversation.*> ")
    # The arrow brings back what was typed; the same question has the same answer.
    terminal.type(UP + UP)
    terminal.wait_for("Hello, owl")
    terminal.type("\r")
    again = terminal.wait_for("\n.+\n.*> ")
    answer = lambda text: text.split("\n", 1)[1].rsplit("\n", 1)[0].strip()
    assert answer(first) == answer(again)
    terminal.type(END)
    assert terminal.code() == 0

    history = tmp_path / "state" / "tandem" / "history"
    assert "Hello, owl" in history.read_text()
    assert history.stat().st_mode & 0o077 == 0
    terminal = chat("--max-tokens", "8")
    terminal.type(UP + UP)
    terminal.wait_for("Hello, owl")


def test_control_c_stops_an_answer_and_then_leaves(chat):
    # So long that nobody waits for its end.
    terminal = chat("--max-tokens", "4000")
    terminal.type("Go on for ever.\r")
    terminal.wait_for("Go on for ever\\.[^\n]*\n[^\n]")
    terminal.type(INTERRUPT)
    terminal.wait_for("stopped; Ctrl-C again leaves.*> ")
    terminal.type(INTERRUPT)
    assert terminal.code() == 0


def test_nothing_is_kept_unasked(chat, tmp_path):
    terminal = chat("--no-history", "--max-tokens", "4")
    terminal.type("/help\r")
    terminal.wait_for("begin a new conversation.*> ")
    terminal.type("one \\\rtwo\r")
    terminal.wait_for("\n.+\n.*> ")
    terminal.type("/exit\r")
    assert terminal.code() == 0
    assert not (tmp_path / "state").exists()


def test_a_pipe_is_a_conversation_too(model):
    program = [os.environ["TANDEM_PROGRAM"], "chat", "--backend", "cpu", "--model", str(model), "--temperature", "0"]
    ended = subprocess.run([*program, "--max-tokens", "4"], input=b"One.\n\n/new\n", capture_output=True, timeout=60)
    assert ended.returncode == 0 and ended.stderr == b""
    assert len([line for line in ended.stdout.split(b"\n") if line]) == 2 and b"> " not in ended.stdout

