"""Stand-in of the Hub: the part of its HTTP interface that ``datasets`` needs to stream a public data set."""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

COMMIT = "c0ffee" * 6 + "c0ff"


@contextmanager
def serve(name: str, folder: Path) -> Iterator[tuple[str, list[str]]]:
    """(address, paths that were asked for) of a Hub whose one data set ``name`` is ``folder`` at COMMIT."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def answer(self, code: int, body: bytes = b"", **headers: str) -> None:
            self.send_response(code)
            for key, value in ({"Content-Length": str(len(body)), "X-Repo-Commit": COMMIT} | headers).items():
                self.send_header(key.replace("_", "-"), value)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def do_GET(self) -> None:
            path, _, _ = self.path.partition("?")
            asked.append(path)
            if re.fullmatch(f"/api/datasets/{name}(/revision/[^/]+)?", path):
                found = [{"rfilename": str(f.relative_to(folder))} for f in sorted(folder.rglob("*")) if f.is_file()]
                self.answer(200, json.dumps({"id": name, "sha": COMMIT, "siblings": found}).encode())
            elif tree := re.fullmatch(f"/api/datasets/{name}/tree/{COMMIT}/?(.*)", path):
                self.answer(200, json.dumps([entry(f) for f in sorted((folder / tree[1]).iterdir())]).encode())
            elif (file := re.fullmatch(f"/datasets/{name}/resolve/{COMMIT}/(.*)", path)) and (
                folder / file[1]
            ).is_file():
                data = (folder / file[1]).read_bytes()
                headers = {"ETag": hashlib.sha1(data).hexdigest(), "Accept-Ranges": "bytes"}
                if part := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range") or ""):
                    start, stop = int(part[1]), min(int(part[2] or len(data)), len(data) - 1)
                    headers["Content-Range"] = f"bytes {start}-{stop}/{len(data)}"
                    self.answer(206, data[start : stop + 1], **headers)
                else:
                    self.answer(200, data, **headers)
            else:
                self.answer(404, X_Error_Code="EntryNotFound" if f"/{name}/" in path else "RepoNotFound")

        do_HEAD = do_GET  # noqa: N815

    def entry(file: Path) -> dict[str, object]:
        kind = {"type": "directory"} if file.is_dir() else {"type": "file", "size": file.stat().st_size}
        return {"path": str(file.relative_to(folder)), "oid": COMMIT, **kind}

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", asked
    finally:
        server.shutdown()
        server.server_close()
