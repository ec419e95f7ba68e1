"""From a notebook's cells to the functions and constants that they define.

Imports, functions, classes and assignments are run, in the order of the cells; other
statements are not, so a loop or a print that stands loose in a cell can't get in the
way. The cell of an answer that is a value is run as a whole. A cell or statement that
fails is left out and told.
"""

import ast
import linecache
import signal
import traceback

KEPT = (
    ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign, ast.AnnAssign
)  # fmt: skip
STATEMENT_S = 2.0


class TooSlow(Exception):
    """Raised in student code when its time for one call is over."""


class alarm:
    """Raise TooSlow in the block after some seconds of computing.

    Waiting doesn't count, so that a busy machine fails nobody; a question as a whole
    has a limit of its own.
    """

    def __init__(self, seconds):
        self.seconds = seconds

    def __enter__(self):
        def ring(*_):
            raise TooSlow

        signal.signal(signal.SIGPROF, ring)
        signal.setitimer(signal.ITIMER_PROF, self.seconds)

    def __exit__(self, *_):
        signal.setitimer(signal.ITIMER_PROF, 0)


def parsed(source, label):
    """The statements of a cell. Lines that only IPython knows become `pass`.

    Only lines at which Python stumbles: `% n` may go on with the line above. Raises
    what ast.parse does.
    """
    lines = source.split("\n")
    while True:
        try:
            return ast.parse("\n".join(lines), label).body
        except SyntaxError as error:
            at = min(error.lineno or 1, len(lines)) - 1
            line = lines[at].strip()
            if not line.startswith(("%", "!", "?")) and not line.endswith("?"):
                raise
            lines[at] = lines[at][: -len(lines[at].lstrip())] + "pass"


def lift(cells, tell):
    """Run what the cells define; tell(cell, words) hears what went wrong.

    cells: (label, source), or (label, source, True) to run a cell as a whole
    """
    namespace = {"__name__": "notebook", "__builtins__": __builtins__}
    for label, source, *whole in cells:
        linecache.cache[label] = (len(source), None, source.splitlines(True), label)
        tell(label, None)
        try:
            body = parsed(source, label)
        except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
            line = getattr(error, "lineno", None)
            where = f", line {line}" if line else ""
            tell(label, f"can't be read as Python{where}: {words(error)}")
            continue
        for node in body:
            if isinstance(node, KEPT) or any(whole):
                run(node, label, namespace, tell)
    return namespace


def run(node, label, namespace, tell):
    try:
        code = compile(ast.Module([node], type_ignores=[]), label, "exec")
        with alarm(STATEMENT_S):
            exec(code, namespace)
    except TooSlow:
        tell(label, f"line {node.lineno} took longer than {STATEMENT_S:.0f} s")
    except BaseException as error:
        tell(label, f"line {node.lineno}: {words(error)}")


def words(error):
    """An exception as one short line; its own __str__ may be anything."""
    try:
        text = str(error).strip().split("\n")[0]
    except BaseException:
        text = ""
    name = type(error).__name__
    return f"{name}: {text}"[:300] if text else name


def place(error, labels):
    """The last line of the student's that an exception came through."""
    found = ""
    for frame in traceback.extract_tb(error.__traceback__):
        if frame.filename in labels:
            found = f" ({frame.filename}, line {frame.lineno}: {frame.line})"[:200]
    return found
