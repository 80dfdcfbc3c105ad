"""A small HTTP server that imitates the hub for one model, and its failures."""

import hashlib
import json
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread
from typing import Any

LARGE = ".safetensors"  # what the hub keeps as LFS files, whose SHA-256 it tells


@dataclass(frozen=True)
class Seen:
    """A request as the server saw it."""

    path: str
    range: str | None
    token: str | None


@dataclass
class FakeHub:
    """What the hub has and how it behaves; a test changes the fields."""

    model_id: str = "tiny/qwen"
    revision: str = "a" * 40
    files: dict[str, bytes] = field(default_factory=dict)
    wrong_hash: set[str] = field(default_factory=set)
    cut_at: dict[str, int] = field(default_factory=dict)  # file -> bytes that ever get through
    status: int = 200  # other than 200: of every answer
    error_code: str = ""
    gated: bool = False
    page: bytes = b""  # an answer that no hub would give
    silent: bool = False
    seen: list[Seen] = field(default_factory=list)
    over: Event = field(default_factory=Event)  # ends the silence

    def __post_init__(self) -> None:
        hub = self

        class Handler(_Handler):
            def do_GET(self) -> None:
                self.answer(hub)

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    def asked_for(self, name: str) -> list[Seen]:
        return [seen for seen in self.seen if seen.path.endswith(f"/{name}")]

    def listing(self) -> dict[str, Any]:
        return {
            "id": self.model_id,
            "sha": self.revision,
            "siblings": [self._sibling(name, content) for name, content in self.files.items()],
        }

    def _sibling(self, name: str, content: bytes) -> dict[str, Any]:
        sibling: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": "b" * 40}
        if name.endswith(LARGE):
            told = b"something else" if name in self.wrong_hash else content
            sha256 = hashlib.sha256(told).hexdigest()
            sibling["lfs"] = {"sha256": sha256, "size": len(content), "pointerSize": 134}
        return sibling


class _Handler(BaseHTTPRequestHandler):
    def answer(self, hub: FakeHub) -> None:
        path = self.path.partition("?")[0]
        hub.seen.append(Seen(path, self.headers["Range"], self.headers["Authorization"]))
        if hub.silent:
            hub.over.wait()
        elif hub.page:
            self._send(200, hub.page)
        elif hub.status != 200:
            self._refuse(hub.status, hub.error_code)
        elif path == f"/api/models/{hub.model_id}":
            self._send(200, json.dumps(hub.listing()).encode())
        elif hub.gated:
            self._refuse(401, "GatedRepo")
        else:
            self._send_file(hub, path)

    def _send_file(self, hub: FakeHub, path: str) -> None:
        prefix = f"/{hub.model_id}/resolve/{hub.revision}/"
        name = path.removeprefix(prefix)
        if not path.startswith(prefix) or name not in hub.files:
            self._refuse(404, "EntryNotFound")
            return
        content = hub.files[name]
        begin = int((self.headers["Range"] or "bytes=0-").removeprefix("bytes=").rstrip("-"))
        self.send_response(206 if begin else 200)
        self.send_header("Content-Length", str(len(content) - begin))
        if begin:
            last = len(content) - 1
            self.send_header("Content-Range", f"bytes {begin}-{last}/{len(content)}")
        self.end_headers()
        self.wfile.write(content[begin : hub.cut_at.get(name, len(content))])

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _refuse(self, status: int, error_code: str) -> None:
        self.send_response(status)
        if error_code:
            self.send_header("X-Error-Code", error_code)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Keep the tests' output free of access lines."""
