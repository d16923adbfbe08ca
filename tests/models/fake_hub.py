"""A model hub on the loopback device: one repository served from a folder, and ways to fail."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "a" * 40


@contextmanager
def fake_hub(folder: Path | None, name: str = "owner/model") -> Iterator[tuple[str, list[str]]]:
    """Serve `folder` as repository `name`; None knows no repository. Yields the address and the requests seen."""
    seen: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_HEAD(self) -> None:
            self.answer(body=False)

        def do_GET(self) -> None:
            self.answer(body=True)

        def answer(self, *, body: bool) -> None:
            seen.append(f"{self.command} {self.path}")
            path = self.path.partition("?")[0]
            known = [f"/api/models/{name}", *(f"/api/models/{name}/revision/{at}" for at in ("main", COMMIT))]
            if folder is not None and path in known:
                names = sorted(file.name for file in folder.iterdir())
                info = {"id": name, "sha": COMMIT, "siblings": [{"rfilename": file} for file in names]}
                self.send(200, json.dumps(info).encode(), body=body)
            elif folder is not None and path.startswith(f"/api/models/{name}/tree/"):
                files = [
                    {"type": "file", "path": f.name, "size": f.stat().st_size, "oid": "0"} for f in folder.iterdir()
                ]
                self.send(200, json.dumps(files).encode(), body=body)
            elif folder is not None and path.startswith(f"/{name}/resolve/") and (folder / Path(path).name).is_file():
                data = (folder / Path(path).name).read_bytes()
                etag = hashlib.sha256(data).hexdigest()
                self.send(200, data, body=body, headers={"ETag": f'"{etag}"', "X-Repo-Commit": COMMIT})
            else:
                self.send(404, b"{}", body=body, headers={"X-Error-Code": "RepoNotFound"})

        def send(self, status: int, data: bytes, *, body: bool, headers: dict[str, str] | None = None) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            for key, value in (headers or {}).items():
                self.send_header(key, value)
            self.end_headers()
            if body:
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
