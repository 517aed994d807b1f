"""An HTTP server on loopback that misbehaves on request, as servers and proxies on the way do."""

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PAGE = b"<!DOCTYPE html><html><title>Please log in</title></html>"


@dataclass
class Site:
    """What the server gives, and how it behaves. Requests are written down as they come."""

    content: bytes
    tag: str | None = '"v1"'
    ranges: bool = True
    """Honours Range."""
    most_of_range: int | None = None
    """Bytes that an answer to a range has at most."""
    range_shift: int = 0
    """Answers ranges with bytes from elsewhere."""
    vague: bool = False
    """Refuses a range without saying how long the file is."""
    cut_after: list[int] = field(default_factory=list)
    """Bytes of body after which each of the next answers is cut off; then they are whole."""
    flip: int | None = None
    """Offset of a byte of the file that is sent wrong."""
    statuses: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    """Status and headers of the next answers, without the file."""
    page: bytes | None = None
    """A web page in place of the file."""
    page_type: str = "text/html; charset=utf-8"
    said_length: int | None = None
    """A wrong Content-Length."""
    length: bool = True
    """Says how long the body is."""
    chunked: bool = False
    redirect: str | None = None
    pause: threading.Event | None = None
    """Waited for after half of the body."""
    half_sent: threading.Event = field(default_factory=threading.Event)
    requests: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    @property
    def offsets(self) -> list[int]:
        """First byte that each request asked for."""
        return [request["offset"] for request in self.requests]


@contextmanager
def serving(site: Site, tls: ssl.SSLContext | None = None) -> Iterator[Site]:
    """Serve a site at `site.url` until the block ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"site": site}))
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    site.url = f"{'http' if tls is None else 'https'}://127.0.0.1:{server.server_address[1]}/some/path/name-of-the-server.bin"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield site
    finally:
        if site.pause is not None:
            site.pause.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    site: Site

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        site = self.site
        asked = self.headers.get("Range")
        offset = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        site.requests.append({"offset": offset, "if_range": self.headers.get("If-Range"), "path": self.path})
        if site.statuses:
            status, headers = site.statuses.pop(0)
            return self._answer(status, headers, b"")
        if site.redirect:
            return self._answer(302, {"Location": site.redirect}, b"")
        if site.page is not None:
            return self._answer(200, {"Content-Type": site.page_type}, site.page)
        condition = self.headers.get("If-Range")
        if asked and site.ranges and condition in (None, site.tag):
            if offset >= len(site.content):
                return self._answer(416, {} if site.vague else {"Content-Range": f"bytes */{len(site.content)}"}, b"")
            offset += site.range_shift
            body = self._body(offset)[: site.most_of_range]
            said = f"bytes {offset}-{offset + len(body) - 1}/{len(site.content)}"
            return self._answer(206, {"Content-Range": said}, body)
        return self._answer(200, {}, self._body(0))

    def _body(self, offset: int) -> bytes:
        content = bytearray(self.site.content)
        if self.site.flip is not None:
            content[self.site.flip] ^= 1
        return bytes(content[offset:])

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        site = self.site
        self.send_response(status)
        file = status in (200, 206) and site.page is None
        if file and site.tag:
            self.send_header("ETag", site.tag)
        for name, value in headers.items():
            self.send_header(name, value)
        if file and site.chunked:
            self.send_header("Transfer-Encoding", "chunked")
        elif site.length or not file:
            self.send_header("Content-Length", str(site.said_length if file and site.said_length is not None else len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        cut = site.cut_after.pop(0) if file and site.cut_after else None
        self._send(body if cut is None else body[:cut], whole=cut is None)
        self.close_connection = True

    def _send(self, body: bytes, whole: bool) -> None:
        with suppress(ConnectionError):  # the client has had enough
            self._send_all(body, whole)

    def _send_all(self, body: bytes, whole: bool) -> None:
        if self.site.chunked and body:
            self.wfile.write(b"%x\r\n" % len(body) + body + b"\r\n" + (b"0\r\n\r\n" if whole else b""))
            return
        half = len(body) // 2
        self.wfile.write(body[:half])
        self.wfile.flush()
        if self.site.pause is not None:
            self.site.half_sent.set()
            self.site.pause.wait(30)
        self.wfile.write(body[half:])
