"""An HTTP receiver as somebody else runs it: it remembers what it accepted, and does what a row asks for."""

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

_OK, _BAD, _BUSY = 204, 400, 503


class Receiver:
    """On a free port of 127.0.0.1. ``accepted``: the ids of rows in the order in which they were accepted."""

    def __init__(self) -> None:
        """Listens at once; ``start`` answers."""
        self.accepted: list[int] = []
        handler = type("Handler", (_Handler,), {"accepted": self.accepted, "lock": threading.Lock()})
        self._server = _Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        """Where rows go."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/rows"

    def start(self) -> None:
        """Answer."""
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: its senders are killed."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    accepted: ClassVar[list[int]]
    lock: ClassVar[threading.Lock]

    def do_POST(self) -> None:
        row = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        asked = row["payload"]
        time.sleep(asked["ms"] / 1000)
        status = _BAD if asked["dies"] else _BUSY if row["attempt"] <= asked["fails"] else _OK
        if status == _OK:
            with self.lock:
                self.accepted.append(int(row["id"]))
        self.send_response(status)
        if status == _BUSY:
            self.send_header("Retry-After", "0")
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class has it so
        """Nothing."""
