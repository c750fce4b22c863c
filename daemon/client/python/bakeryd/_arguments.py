"""Checks of arguments, before anything is sent."""

from __future__ import annotations

import base64
import math
import os
import secrets
import sys
from typing import Any, Dict, Optional

from ._errors import InvalidError, LostError

MAX_NAME = 128  # bytes of a lock's name
MAX_VALUE = 256  # bytes of a lock's value
MAX_COMMAND = 80  # bytes of a command that are shown in listings


def lock_request(name: str, mode: str, permits: int, command: Optional[str], linger: bool, requests: bool) -> Dict[str, Any]:
    """Return the request for a lock, of valid arguments."""
    check_name(name)
    check_mode(mode)
    check_permits(permits, 0)
    if command is None:
        command = os.path.basename((getattr(sys, "argv", None) or [""])[0])
    command = "".join(c if c.isprintable() else "?" for c in command)
    return {
        "name": name,
        "mode": mode,
        "timeout_ms": 0,
        "permits": permits,
        "pid": os.getpid(),
        "command": command.encode()[:MAX_COMMAND].decode(errors="ignore"),
        "session": secrets.token_hex(16),
        "requests": requests,
        "no_linger": not linger,
    }


def check_name(name: str) -> None:
    if not isinstance(name, str):
        raise InvalidError(f"lock name {name!r}, want a str")
    size = len(name.encode(errors="surrogatepass"))
    if not 0 < size <= MAX_NAME:
        raise InvalidError(f'lock name "{name[:MAX_NAME]}" of {size} bytes, want 1 to {MAX_NAME}')
    if any(c < " " or "\x7f" <= c < "\xa0" or "\ud800" <= c < "\ue000" for c in name):
        raise InvalidError(f"lock name {name!r}, want no control characters and no surrogates")


def check_mode(mode: str) -> None:
    """Raise InvalidError for what is no mode."""
    if mode not in ("exclusive", "shared"):
        raise InvalidError(f'mode {mode!r}, want "exclusive" or "shared"')


def check_process(request: Dict[str, Any]) -> None:
    """Raise LostError in a fork of the process that made the request: both would hold the lock."""
    if os.getpid() != request["pid"]:
        why = f"process {request['pid']} requested it, and this one is a fork of that"
        raise LostError(why, "take the lock in this process")


def check_permits(permits: int, least: int) -> None:
    if not isinstance(permits, int) or permits < least:
        raise InvalidError(f"permits {permits!r}, want a whole number from {least}")


def milliseconds(timeout: Optional[float]) -> int:
    """Return a timeout as it is sent, rounded up because 0 means none."""
    if timeout is None:
        return 0
    if not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
        raise InvalidError(
            f"timeout {timeout!r}, want seconds, more than 0", "use None to wait without limit, and try_lock not to wait"
        )
    return math.ceil(min(timeout, 1e9) * 1000)


def encode_value(value: bytes) -> str:
    """Return a value as it is sent."""
    if not isinstance(value, (bytes, bytearray)):
        raise InvalidError(f"value {str(value)[:20]!r} is of type {type(value).__name__}, want bytes, at most {MAX_VALUE}")
    if len(value) > MAX_VALUE:
        raise InvalidError(f"value {value[:20]!r} of {len(value)} bytes, want at most {MAX_VALUE}")
    return base64.b64encode(value).decode()
