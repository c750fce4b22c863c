"""The errors, by the codes of bakeryd's refusals."""

from __future__ import annotations

import builtins
import contextlib
from typing import Dict, Iterator, Type


def printable(text: str) -> str:
    """Return text with control characters escaped: a terminal may get it."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


class Error(Exception):
    """The base of all errors of this package. Codes without a class of their own have this one."""

    code = ""
    message: str
    hint: str  # instruction to the user; may be empty

    def __init__(self, message: str, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.code = code or self.code
        self.message, self.hint = message or f'refused by bakeryd: "{self.code}"', hint

    def __str__(self) -> str:
        return printable(f"{self.message}; hint: {self.hint}" if self.hint else self.message)

    def prefix(self, what: str) -> None:
        """Put what was being done in front of the message, unless bakeryd has done it."""
        if not self.message.startswith(f"{what}: "):
            self.message = f"{what}: {self.message}"


class InvalidError(Error, ValueError):
    """An argument or a request is invalid."""

    code = "invalid"


class ForbiddenError(Error):
    """The policy does not allow the call to the user of this process."""

    code = "forbidden"


class BusyError(Error):
    """The lock is not free, and the call does not wait."""

    code = "busy"


class TimeoutError(Error, builtins.TimeoutError):
    """The lock was not free in time."""

    code = "timeout"


class NoLockError(Error):
    """No lock has the name."""

    code = "missing"


class UpgradeError(Error):
    """A shared hold cannot become exclusive: the lock has other holders or waiters."""

    code = "upgrade"


class LostError(Error):
    """The hold ended without unlock, or is about to."""

    code = "lost"


class UnavailableError(Error):
    """This host is not joined to the lockspace, or bakeryd has too many clients."""

    code = "unavailable"


class UnreachableError(UnavailableError):
    """bakeryd does not answer. No refusal has this code."""

    code = "unreachable"


class ProtocolError(Error):
    """The answer is not in bakeryd's protocol. No refusal has this code."""

    code = "protocol"


_refusals = (InvalidError, ForbiddenError, BusyError, TimeoutError, NoLockError, UpgradeError, LostError, UnavailableError)
_classes: Dict[str, Type[Error]] = {c.code: c for c in _refusals}


def refusal(code: str, message: str, hint: str) -> Error:
    """Return the error for a refusal of bakeryd."""
    return _classes.get(code, Error)(message, hint, code)


def malformed(what: str) -> ProtocolError:
    """Return the error for what is not in bakeryd's protocol."""
    return ProtocolError(f"not an answer of bakeryd: {what}")


@contextlib.contextmanager
def doing(what: str) -> Iterator[None]:
    """Prefix the errors of a block."""
    try:
        yield
    except Error as e:
        e.prefix(what)
        raise
