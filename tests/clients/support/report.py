"""Prints one PASS, FAIL or SKIP line for each case of a suite.

A case that raises is a failure with the exception's text; it never ends the suite.
"""

import sys
import traceback
from contextlib import contextmanager


class Skip(Exception):
    """Raised in a case that cannot be tried here; its text is the reason."""


class Suite:
    """Counts the cases of one script."""

    def __init__(self):
        self._failed = 0

    @contextmanager
    def case(self, name):
        """One case: what runs inside decides its line."""
        try:
            yield
        except Skip as reason:
            print(f"SKIP {name}: {reason}", flush=True)
        except Exception as error:
            self._failed += 1
            print(f"FAIL {name}: {_one_line(error)}", flush=True)
            traceback.print_exc(file=sys.stderr)
        else:
            print(f"PASS {name}", flush=True)

    @contextmanager
    def section(self, name):
        """Several cases that share one session; prints a line only where the session itself fails."""
        try:
            yield
        except Exception as error:
            self._failed += 1
            print(f"FAIL {name}: {_one_line(error)}", flush=True)
            traceback.print_exc(file=sys.stderr)

    def end(self):
        """Leaves the script with status 1 where a case failed."""
        sys.stdout.flush()
        sys.exit(1 if self._failed else 0)


def _one_line(error):
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    return " ".join(f"{type(error).__name__}: {error}".split())[:500]


def expect(condition, what):
    """Fails the case with these words; unlike `assert` it also holds under `python -O`."""
    if not condition:
        raise AssertionError(what)


def expect_equal(seen, wanted, what):
    """Fails the case where two values differ, and shows both."""
    expect(seen == wanted, f"{what}: seen {seen!r}, expected {wanted!r}")
