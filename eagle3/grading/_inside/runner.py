"""Calls a student's function on the inputs of a question and sends what comes back."""

import itertools
import json
import sys

import lift
import plain
import torch

CASE_S = 3.0
NUMBERS = itertools.count()  # of the calls that the grader answers


class NoBook:
    """The finished module is not there while a student is graded."""

    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "eagle3":
            raise ImportError(
                "eagle3 is not there while you are graded: write the piece yourself"
            )
        return None


def to_torch(value):
    if isinstance(value, list):
        return [to_torch(item) for item in value]
    if isinstance(value, dict):
        return {key: to_torch(item) for key, item in value.items()}
    return torch.from_numpy(value.copy()) if hasattr(value, "dtype") else value


class Remote:
    """A function that the grader answers."""

    def __init__(self, name, stream):
        self.name, self.stream = name, stream

    def __call__(self, *arguments):
        packed = [plain.pack(argument) for argument in arguments]
        number = next(NUMBERS)
        message = {"call": self.name, "number": number, "arguments": packed}
        plain.write_line(self.stream, message)
        reply = json.loads(self.stream.readline())
        while reply["number"] != number:  # of a call that was cut off
            reply = json.loads(self.stream.readline())
        if "error" in reply:
            raise ValueError(reply["error"])
        return to_torch(plain.unpack(reply["value"]))


def arguments_of(case, stream):
    found = []
    for item in case:
        if type(item) is dict and set(item) == {"remote"}:
            found.append(Remote(item["remote"], stream))
        else:
            found.append(to_torch(plain.unpack(item)))
    return found


def one_call(function, arguments, labels):
    """{"value"} or {"error"} of one call."""
    try:
        with lift.alarm(CASE_S):
            value = function(*arguments)
        return {"value": plain.pack(value)}
    except lift.TooSlow:
        return {"slow": CASE_S}
    except plain.NotPlain as error:
        return {"odd": str(error)}
    except NotImplementedError:
        return {"empty": True}
    except BaseException as error:
        return {"error": lift.words(error) + lift.place(error, labels)}


def run(job, stream):
    """Do a whole question, then say so; see eagle3/grading/worker.py."""
    sys.modules.pop("eagle3", None)
    sys.meta_path.insert(0, NoBook())

    def send(message):
        plain.write_line(stream, message)

    def tell(label, text):
        send({"cell": label, "problem": text})

    send({"ready": True})
    namespace = lift.lift(job["cells"], tell)
    labels = {cell[0] for cell in job["cells"]}
    thing = namespace.get(job["name"])
    send({"defined": job["name"] in namespace, "callable": callable(thing)})
    if job["cases"] is None:
        send({"case": 0, "again": False, "begins": True})
        reply = one_call(lambda: thing, (), labels)
        send({"case": 0, "again": False, **reply})
    elif callable(thing):
        for number, case in enumerate(job["cases"]):
            # The second call has the same objects: changes in place come to light.
            arguments = arguments_of(case, stream)
            for again in (False, True):
                send({"case": number, "again": again, "begins": True})
                reply = one_call(thing, arguments, labels)
                send({"case": number, "again": again, **reply})
                if "value" not in reply:
                    break
    send({"done": True})
