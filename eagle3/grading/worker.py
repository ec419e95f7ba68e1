"""The grader's end of the wall: sends a question's inputs, collects what comes. [Ours]

A worker owns one helper process that has torch loaded (`_inside/zygote.py`). For each
question the helper forks a process, which is walled in before it sees student code.
All that comes back is read as plain data with a limit on its size.
"""

import json
import select
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from eagle3.grading._inside import plain
from eagle3.grading.questions import Remote

ZYGOTE = Path(__file__).parent / "_inside" / "zygote.py"
MAX_ANSWER, MAX_LINE = 64 << 20, 4 << 20
MAX_TROUBLES = 50
GRACE_S = 10.0  # to begin, and again to clear up
TIME_IS_UP, KILLED = 124, 128 + 9


@dataclass(frozen=True)
class Limits:
    """What student code may use for one question.

    cpu_s: seconds of computing      wall_s: seconds in all, waiting included
    memory_mb: beyond what Python and torch take
    """

    cpu_s: int = 10
    wall_s: float = 60.0
    memory_mb: int = 1024


@dataclass
class Answers:
    """What came back for a question.

    values: (case, second call or not) -> value, or the words why there is none
    seen: the same key -> what the grader's own functions saw in that call
    problems: cell -> what went wrong in it      defined, callable: the name
    ended: why the process stopped early, in words, or None
    """

    values: dict[tuple[int, bool], Any] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    defined: bool = False
    callable: bool = False
    ended: str | None = None
    seen: dict[tuple[int, bool], dict[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class NoValue:
    """Why a call gave no value. empty: the answer is still the stub"""

    words: str
    empty: bool = False


class Worker:
    """Runs questions one after the other; use it in a `with` block.

    hidden: folders that student code must not see even if Python's own folders hold
        them
    """

    def __init__(self, limits: Limits | None = None, hidden: Sequence[Path] = ()):
        self.limits = limits or Limits()
        self.hidden = [str(path.resolve()) for path in hidden]
        self.walls = False
        self._start()

    def __enter__(self) -> "Worker":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self) -> None:
        self._control, theirs = socket.socketpair()
        environment = {"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
        self._process = subprocess.Popen(
            [sys.executable, "-I", str(ZYGOTE), str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=environment,
            stdin=subprocess.DEVNULL,
        )
        theirs.close()
        self._replies = self._control.makefile("rb")
        first = self._replies.readline()
        if not first:
            raise OSError(
                "the helper that runs student code did not start; see the lines above."
            )
        self.walls = json.loads(first)["walls"]

    def _restart(self) -> None:
        """Another helper: nothing that a student did may stop the others."""
        self.close(patience_s=0)
        self._start()

    def close(self, patience_s: float = 5) -> None:
        """End the helper process, which takes its own with it."""
        self._replies.close()
        self._control.close()
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(patience_s)
        self._process.kill()
        self._process.wait()

    def ask(
        self,
        name: str,
        cells: Sequence[Sequence[Any]],
        cases: Sequence[Sequence[Any]] | None,
        remotes: Mapping[int, Mapping[str, Remote]] | None = None,
    ) -> Answers:
        """Call a student's function on inputs, twice on each.

        name: of the function      cells: of the notebook, see `Piece`
        cases: inputs of each call; None asks for the value of the name itself
        remotes: case -> name -> function that the grader answers

        Raises OSError where the system gives no process for student code.
        """
        packed = None
        if cases is not None:
            packed = [[_pack(value) for value in case] for case in cases]
        job = {"name": name, "cells": list(cells), "cases": packed}
        deadline = time.monotonic() + self.limits.wall_s + GRACE_S
        with self._order() as mine:
            talk = _Talk(mine, deadline, remotes)
            talk.send(job)
            answers = talk.listen()
        code = self._ended_with(deadline + GRACE_S)
        if not talk.ready:
            raise OSError("the system gave no process for student code, or no walls.")
        if code is None:
            answers.ended = "lost its process"
        elif not talk.done:
            answers.ended = _ending(code, talk, self.limits)
        return answers

    def _order(self) -> socket.socket:
        """Order a process; the grader's end of the line to it."""
        order = {**asdict(self.limits), "hidden": self.hidden, "walls": self.walls}
        text = json.dumps(order).encode()
        mine, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [text], [theirs.fileno()])
            except OSError:  # the helper is gone
                self._restart()
                socket.send_fds(self._control, [text], [theirs.fileno()])
        return mine

    def _ended_with(self, deadline: float) -> int | None:
        """How the process ended, as the helper says; None if it says nothing."""
        left = max(0.0, deadline - time.monotonic())
        if select.select([self._control], [], [], left)[0]:
            with suppress(OSError):
                if line := self._replies.readline():
                    return int(json.loads(line)["code"])
        self._restart()
        return None


def _pack(value: Any) -> Any:
    if isinstance(value, dict) and set(value) == {"remote"}:
        return value
    return plain.pack(value)


def _ending(code: int, talk: "_Talk", limits: Limits) -> str:
    where = f" in {talk.at}" if talk.at else ""
    if talk.broken:
        return f"{talk.broken}{where}"
    if code == TIME_IS_UP:
        return f"stopped after {limits.wall_s:.0f} s{where}"
    if code in (KILLED, 128 + 24):
        return f"used up its {limits.cpu_s} s of computing time{where}"
    if code > 128:
        return f"crashed with signal {code - 128}{where}"
    return f"ended the process{where}"


class _Talk:
    """One conversation with a student's process."""

    def __init__(
        self,
        connection: socket.socket,
        deadline: float,
        remotes: Mapping[int, Mapping[str, Remote]] | None,
    ):
        self.connection, self.deadline = connection, deadline
        self.remotes = remotes or {}
        self.buffer, self.received = b"", 0
        self.ready, self.done, self.broken, self.at = False, False, "", ""
        self.call = (-1, False)

    def here(self) -> Mapping[str, Remote]:
        """The grader's own functions of the current case."""
        return self.remotes.get(self.call[0], {})

    def begin(self, call: tuple[int, bool]) -> None:
        """A call begins, once and in order: what was seen can't be made unseen."""
        if call > self.call:
            self.call = call
            for remote in self.here().values():
                remote.begin()

    def send(self, message: Any) -> None:
        """A student's process may be gone, or never read."""
        self.connection.settimeout(max(0.1, self.deadline - time.monotonic()))
        with suppress(OSError):
            self.connection.sendall(json.dumps(message).encode() + b"\n")

    def line(self) -> bytes | None:
        while b"\n" not in self.buffer:
            left = self.deadline - time.monotonic()
            if left <= 0 or not select.select([self.connection], [], [], left)[0]:
                return None
            try:
                piece = self.connection.recv(1 << 18)
            except OSError:
                return None
            self.received += len(piece)
            if self.received > MAX_ANSWER or len(self.buffer) > MAX_LINE:
                self.broken = "sent back far too much"
                return None
            if not piece:
                return None
            self.buffer += piece
        line, self.buffer = self.buffer.split(b"\n", 1)
        return line

    def listen(self) -> Answers:
        answers = Answers()
        while not self.done and (line := self.line()) is not None:
            try:
                self.take(json.loads(line), answers)
            except Exception:  # anything can be written on the wire
                self.broken = "sent back something that can't be read"
                break
        return answers

    def take(self, message: dict[str, Any], answers: Answers) -> None:
        if "ready" in message:
            self.ready = True
        elif "call" in message:
            self.send({"number": message.get("number"), **self.answer(message)})
        elif "cell" in message:
            self.at = str(message["cell"])[:80]
            if message["problem"] is not None and len(answers.problems) < MAX_TROUBLES:
                answers.problems[self.at] = str(message["problem"])[:400]
        elif "defined" in message:
            self.at = ""
            answers.defined = message["defined"] is True
            answers.callable = message["callable"] is True
        elif "case" in message:
            key = (int(message["case"]), message["again"] is True)
            if "begins" in message:
                self.begin(key)
            elif key == self.call and key not in answers.values:
                answers.values[key] = _value(message)
                answers.seen[key] = {
                    name: remote.seen() for name, remote in self.here().items()
                }
        elif "done" in message:
            self.done = True

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """What the grader says to a call of one of its own functions."""
        function = self.here().get(message["call"])
        if function is None:
            return {"error": "there is no such function"}
        try:
            arguments = [plain.unpack(item) for item in message["arguments"]]
            return {"value": plain.pack(function(*arguments))}
        except (ValueError, TypeError, IndexError, OverflowError) as error:
            return {"error": str(error)[:300]}


def _value(message: dict[str, Any]) -> Any:
    if "value" in message:
        try:
            return plain.unpack(message["value"])
        except plain.NotPlain as error:
            return NoValue(f"it returned {error}")
    if "slow" in message:
        return NoValue(
            f"one call took more than {float(message['slow']):.0f} s of computing"
        )
    if "odd" in message:
        return NoValue(f"it returned {str(message['odd'])[:200]}")
    if "empty" in message:
        return NoValue("not written yet", empty=True)
    return NoValue(f"it stopped with {str(message['error'])[:500]}")
