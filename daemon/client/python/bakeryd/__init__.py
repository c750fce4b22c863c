"""Takes locks from bakeryd, for hosts that share nothing but a disk.

    import bakeryd

    client = bakeryd.Client()
    with client.lock("nightly-backup", timeout=60) as hold:
        hold.check()  # LostError, while there is still time to stop
        print(hold.token)

Begin with Client.lock and Client.try_lock. The guide api.md has the whole picture. A hold outlives
its connection: a place in the queue and a hold have a session, under which the client asks again
until the deadline. The deadline counts on CLOCK_BOOTTIME, so a hold is lost in time even if nothing
answers. _client.py has the requests, _hold.py a hold and its thread, _wire.py connections, events
and the alarm.
"""

from ._arguments import MAX_VALUE
from ._callbacks import Request
from ._client import DEFAULT_SOCKET, Client, LockInfo, Mode, Value
from ._errors import (
    BusyError,
    Error,
    ForbiddenError,
    InvalidError,
    LostError,
    NoLockError,
    ProtocolError,
    TimeoutError,
    UnavailableError,
    UnreachableError,
    UpgradeError,
)
from ._hold import Hold

__all__ = [
    "DEFAULT_SOCKET",
    "MAX_VALUE",
    "BusyError",
    "Client",
    "Error",
    "ForbiddenError",
    "Hold",
    "InvalidError",
    "LockInfo",
    "LostError",
    "Mode",
    "NoLockError",
    "ProtocolError",
    "Request",
    "TimeoutError",
    "UnavailableError",
    "UnreachableError",
    "UpgradeError",
    "Value",
]
