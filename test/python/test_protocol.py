"""Answers that only another bakeryd, or something else, gives: newer, malformed, refusing."""

from __future__ import annotations

import contextlib
import os
import pathlib
import socket
import tempfile
import threading
import unittest
import unittest.mock
from typing import Any, Callable, List

import bakeryd
import space

ACCEPTED = b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: bakery-link/1\r\n\r\n"
GRANTED = b'{"event":"granted","name":"x","mode":"exclusive","token":"18446744073709551615","lease_ms":60000,"future":[1]}\n'


class Protocol(unittest.TestCase):
    """A server that gives the same bytes to each client."""

    def serve(self, answer: bytes) -> bakeryd.Client:
        """Serve and return a client."""
        directory = tempfile.TemporaryDirectory(dir=os.environ["BAKERY_SPACES"])
        self.addCleanup(directory.cleanup)
        path = str(pathlib.Path(directory.name) / "sock")
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen()

        def answer_all() -> None:
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(ConnectionError):
                    if not connection.recv(1 << 16):
                        return
                    connection.sendall(answer)
                    while connection.recv(1 << 16):
                        connection.sendall(b'{"event":"released"}\n')

        thread = threading.Thread(target=answer_all)
        thread.start()

        def end() -> None:
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(path)
            thread.join()
            listener.close()

        self.addCleanup(end)
        return bakeryd.Client(path)

    def test_newer_bakeryd(self) -> None:
        """Events and members that the client does not know are ignored."""
        future = b'{"event":"future","token":7,"lease_ms":"?"}\n'
        refusal = b'{"event":"refused","code":"future","message":"not today","hint":"come back","retry":{}}\n'
        waiting = b'{"event":"waiting","ahead":2,"queued":3,"lease_ms":5000,"eta":"soon"}\n\n'
        places = []
        client = self.serve(ACCEPTED + future + waiting + future + GRANTED + future)
        with client.lock("x", on_waiting=lambda *place: places.append(place)) as hold:
            self.assertEqual((hold.token, places), ((1 << 64) - 1, [(2, 3)]))
            hold.check()
        with self.assertRaises(bakeryd.Error) as raised:
            self.serve(ACCEPTED + refusal).lock("x")
        self.assertEqual((type(raised.exception), raised.exception.code), (bakeryd.Error, "future"))
        self.assertEqual(str(raised.exception), 'lock "x": not today; hint: come back')

    def test_lost_with_the_grant(self) -> None:
        """Events in the same packet as the grant count."""
        lost = b'{"event":"lost","message":"the lease was lost"}\n'
        hold = self.serve(ACCEPTED + GRANTED + lost).lock("x")
        self.assertTrue(hold.lost.wait(space.PATIENCE))
        with self.assertRaisesRegex(bakeryd.LostError, 'lock "x" lost: the lease was lost; hint: stop'):
            hold.check()
        hold.unlock()

    def test_silent(self) -> None:
        """A bakeryd that does not answer in time is named as the cause."""
        with unittest.mock.patch.object(bakeryd._client, "ANSWER_TIMEOUT", 0.1):
            with self.assertRaisesRegex(bakeryd.TimeoutError, "not granted within 0.1 s: no answer of bakeryd within 0.2 s; hint: bakeryd is"):
                self.serve(ACCEPTED).lock("x", timeout=0.1)
            with self.assertRaisesRegex(bakeryd.UnreachableError, "no answer of bakeryd within 0.1 s; hint: bakeryd is stopped or hangs"):
                self.serve(ACCEPTED).try_lock("x")

    def test_malformed(self) -> None:
        """An answer that is not in the protocol is an error that shows it."""
        for answer, why in (
            (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", "b'hi'.* status HTTP/1.1 200 OK"),
            (b"x" * (300 << 10), "more than 262144 bytes before the first line"),
            (ACCEPTED + b"hi\n", "b'hi'"),
            (ACCEPTED + b"[" * 60000 + b"\n", "b'\\[\\["),
            (ACCEPTED + b"[1]\n", "want an object"),
            (ACCEPTED + b"x" * (200 << 10), "a line of more than 65536 bytes"),
            (ACCEPTED + b'{"event":7}\n', '"event" is 7, want str'),
            (ACCEPTED + b'{"event":"refused"}\n', "refused without a code"),
            (ACCEPTED + GRANTED.replace(b'"x"', b'"y"'), "granted .'y', 'exclusive'.* asked for .'x'"),
            (ACCEPTED + GRANTED.replace(b"615", b"616"), "token '18446744073709551616', want"),
            (ACCEPTED + GRANTED.replace(b'"18446744073709551615"', b"7"), '"token" is 7, want str'),
        ):
            with self.subTest(answer=answer[:100]):
                with self.assertRaisesRegex(bakeryd.ProtocolError, f'lock "x": not an answer of bakeryd: .*{why}'):
                    self.serve(answer).lock("x")

    def test_refused_link(self) -> None:
        """A link may be refused by an HTTP answer."""
        body = b'{"error":{"code":"unavailable","message":"too many clients","hint":"end clients"}}'
        answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: %d\r\n\r\n" % len(body) + body
        calls: List[Callable[[str], Any]] = [self.serve(answer).lock, self.serve(answer).value]
        for call in calls:
            with self.assertRaisesRegex(bakeryd.UnavailableError, '"x": too many clients; hint: end clients') as raised:
                call("x")
            self.assertEqual(raised.exception.code, "unavailable")
