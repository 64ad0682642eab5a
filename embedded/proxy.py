"""A TCP proxy on 127.0.0.1 between a client and a part: cuts, holds back, or adds TLS to a server without it."""

import asyncio
import contextlib
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from embedded.certificates import Certificate
from embedded.errors import PartFailed
from embedded.ports import free_port

_CHUNK = 65_536
_RESET = struct.pack("ii", 1, 0)  # linger for no time: closing sends RST, as a broken connection does


class Proxy:
    """Forwards 127.0.0.1:``port`` to 127.0.0.1:``target_port`` from a thread of its own.

    With ``certificate`` clients speak TLS to it, and with ``client_authority`` (a PEM file) they must show a
    certificate that it signed. The target always gets plain TCP.
    """

    def __init__(
        self,
        target_port: int,
        *,
        port: int | None = None,
        certificate: Certificate | None = None,
        client_authority: Path | None = None,
    ) -> None:
        """Describe the proxy; nothing listens yet."""
        self.port = port or free_port()
        self._target_port = target_port
        self._tls = None if certificate is None else _context(certificate, client_authority)
        self._thread: threading.Thread | None = None
        self._joined: set[asyncio.Task[None]] = set()

    def start(self) -> Self:
        """Listen, and return once it does."""
        listening: list[BaseException | None] = []
        told = threading.Event()

        def tell(error: BaseException | None) -> None:
            listening.append(error)
            told.set()

        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve(tell)), daemon=True)
        self._thread.start()
        told.wait()
        if listening[0] is not None:
            self._thread.join()
            self._thread = None
            raise PartFailed(f"the proxy cannot listen on 127.0.0.1:{self.port}: {listening[0]}")
        return self

    def close(self) -> None:
        """Cut every connection and stop listening. Idempotent."""
        if self._thread is not None:
            self._in_loop(self._stop.set)
            self._thread.join()
            self._thread = None

    def hold(self) -> None:
        """Go on accepting and keep every connection open, but forward nothing."""
        self._in_loop(self._flowing.clear)

    def release(self) -> None:
        """Forward again, what was held back first."""
        self._in_loop(self._flowing.set)

    def cut(self) -> None:
        """Break every connection that is open now; new ones are served."""
        self._in_loop(self._cut)

    def __enter__(self) -> Self:
        """Listen."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop listening."""
        self.close()

    def _in_loop(self, action: Callable[[], object]) -> None:
        done = threading.Event()

        def act() -> None:
            action()
            done.set()

        self._loop.call_soon_threadsafe(act)
        done.wait()

    def _cut(self) -> None:
        for task in self._joined:
            task.cancel()

    async def _serve(self, tell: Callable[[BaseException | None], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._stop, self._flowing = asyncio.Event(), asyncio.Event()
        self._flowing.set()
        try:
            server = await asyncio.start_server(self._accept, "127.0.0.1", self.port, ssl=self._tls)
        except OSError as error:
            tell(error)
            return
        tell(None)
        await self._stop.wait()
        server.close()
        self._cut()
        await asyncio.gather(*self._joined, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = self._loop.create_task(self._join(reader, writer))
        self._joined.add(task)
        task.add_done_callback(self._joined.discard)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            target_reader, target_writer = await asyncio.open_connection("127.0.0.1", self._target_port)
        except OSError:
            writer.transport.abort()
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, target_writer))
                group.create_task(self._pump(target_reader, writer))
        except asyncio.CancelledError:
            for end in (writer, target_writer):
                end.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            raise
        finally:
            for end in (writer, target_writer):
                end.transport.abort()

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):  # one end broke: the other is told by the end of file
            while chunk := await source.read(_CHUNK):
                await self._flowing.wait()
                sink.write(chunk)
                await sink.drain()
        with contextlib.suppress(OSError, NotImplementedError):
            await self._flowing.wait()
            if sink.can_write_eof():
                sink.write_eof()
            else:  # TLS knows no half-closed connection
                sink.close()


def _context(certificate: Certificate, client_authority: Path | None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    if client_authority is not None:
        context.load_verify_locations(client_authority)
        context.verify_mode = ssl.CERT_REQUIRED
    return context
