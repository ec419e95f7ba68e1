"""Has numpy and torch loaded, and forks a process of its own for each question.

Started as `python -I zygote.py FD` by eagle3/grading/worker.py. It never runs student
code itself, and knows nothing of the checks: only inputs come through the socket.
"""

import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import contextlib  # noqa: E402
import gc  # noqa: E402
import json  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402

import jail  # noqa: E402
import numpy  # noqa: E402
import runner  # noqa: E402
import torch  # noqa: E402

sys.path.remove(HERE)
# What torch imports at a first use, done once here.
torch.zeros(2, 2).softmax(-1).sum().item()
numpy.random.default_rng(0)
TIME_IS_UP = 124


def supervise(order, job, root):
    """Fork once more, and kill that process when its time is over."""
    os.setpgid(0, 0)
    if order["walls"]:
        jail.separate()
    child = os.fork()
    if not child:
        code = 1
        try:
            os.setsid()  # a signal to its group reaches nobody else
            jail.close_all_but([job])
            with socket.socket(fileno=job) as connection:
                stream = connection.makefile("rwb")
                work = json.loads(stream.readline())
                jail.enter(order, root)
                runner.run(work, stream)
            code = 0
        finally:
            os._exit(code)
    os.close(job)
    end = time.monotonic() + order["wall_s"]
    while True:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            code = os.waitstatus_to_exitcode(status)
            os._exit(code if code >= 0 else 128 - code)
        if time.monotonic() > end:
            jail.kill(child)
            os.waitpid(child, 0)
            os._exit(TIME_IS_UP)
        time.sleep(0.004)


def main():
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # a child's garbage collection then copies none of this memory
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the grader decides when to stop
    with tempfile.TemporaryDirectory() as root:
        walls = jail.walls_stand(root)
    control.sendall(json.dumps({"walls": walls}).encode() + b"\n")
    while True:
        message, job = jail.receive_order(control)
        if message is None:
            return
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as root:
            code = one_question(json.loads(message), job, root, control)
        control.sendall(json.dumps({"code": code}).encode() + b"\n")


def one_question(order, job, root, control):
    pid = os.fork()
    if not pid:
        try:
            control.close()
            jail.end_with_parent()
            supervise(order, job, root)
        finally:
            os._exit(1)
    os.close(job)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):  # a grader left
        main()
