"""Looks processes up in /proc by what stands on their command line.

Every session under test has a relay URL of its own, and both programs carry it as an argument, so the
URL finds exactly the processes of that session, whoever started them.
"""

import os
import time


def with_argument(text):
    """The processes other than this one with `text` in an argument, as {pid: arguments}."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == os.getpid():
            continue
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                arguments = file.read().decode(errors="replace").split("\0")[:-1]
        except OSError:
            continue
        if any(text in argument for argument in arguments):
            found[int(name)] = arguments
    return found


def programs(url, name):
    """The pids of the program called `name` in the session of the relay at `url`."""
    matching = with_argument(url).items()
    return [pid for pid, arguments in matching if os.path.basename(arguments[0]) == name]


def none_left(url, seconds=1.0):
    """Whether every process of a session is gone within this time (the contract's bound is one second)."""
    return eventually(lambda: not with_argument(url), seconds)


def eventually(condition, seconds):
    """Whether a condition comes true within this time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True
