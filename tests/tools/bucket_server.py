"""The stand-in bucket over HTTP, for what reads ``gs://`` by itself: what TensorStore uses of Google's JSON API."""

from __future__ import annotations

import json
import os
import threading
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from sweep_bucket import Bucket


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def _asked(self) -> tuple[str, str | None, dict[str, str]]:
        """(bucket, object, parameters) of …/b/BUCKET/o[/OBJECT]?…"""
        url = urllib.parse.urlsplit(self.path)
        parts = [urllib.parse.unquote(part) for part in url.path.split("/b/", 1)[1].split("/")]
        return parts[0], parts[2] if len(parts) > 2 else None, dict(urllib.parse.parse_qsl(url.query))

    def _file(self, bucket: str, name: str) -> Path:
        return Bucket()._file(f"{bucket}/{name}")

    def _facts(self, bucket: str, name: str) -> dict[str, str]:
        status = self._file(bucket, name).stat()
        return {"name": name, "bucket": bucket, "generation": str(status.st_mtime_ns), "size": str(status.st_size)}

    def _answer(self, status: int, content: bytes | dict[str, Any] = b"", **headers: str) -> None:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        for name, value in {"content-length": str(len(body)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        bucket, name, asked = self._asked()
        if name is None:
            start, end = f"{bucket}/{asked.get('prefix', '')}", asked.get("endOffset")
            found = [n[len(bucket) + 1 :] for n in sorted(Bucket()._names()) if n.startswith(start)]
            found = [n for n in found if n >= asked.get("startOffset", "") and (not end or n < end)]
            return self._answer(200, {"items": [self._facts(bucket, n) for n in found]})
        try:
            content, facts = self._file(bucket, name).read_bytes(), self._facts(bucket, name)
        except FileNotFoundError:
            return self._answer(404)
        marks = {"x_goog_generation": facts["generation"], "x_goog_stored_content_length": facts["size"]}
        if asked.get("ifGenerationNotMatch") == facts["generation"]:
            return self._answer(304, **marks)
        if asked.get("alt") != "media":
            return self._answer(200, facts)
        if span := self.headers.get("range"):
            first, _, last = span.removeprefix("bytes=").partition("-")
            whole = len(content)
            stop = min(int(last) + 1 if last else whole, whole)
            start_at = int(first) if first else max(0, whole - int(last))
            if not first:
                stop = whole
            if start_at >= whole:
                return self._answer(416, **marks)
            marks["content_range"] = f"bytes {start_at}-{stop - 1}/{whole}"
            return self._answer(206, content[start_at:stop], **marks)
        return self._answer(200, content, **marks)

    def do_POST(self) -> None:
        bucket, _, asked = self._asked()
        content = self.rfile.read(int(self.headers["content-length"]))
        file = self._file(bucket, asked["name"])
        wanted = asked.get("ifGenerationMatch")
        there = self._facts(bucket, asked["name"])["generation"] if file.exists() else "0"
        if wanted is not None and wanted != there:
            return self._answer(412)
        draft = file.with_name(f".{os.getpid()}.{threading.get_ident()}.{file.name}"[:200])
        draft.write_bytes(content)
        draft.replace(file)
        return self._answer(200, self._facts(bucket, asked["name"]))

    def do_DELETE(self) -> None:
        bucket, name, _ = self._asked()
        try:
            self._file(bucket, name or "").unlink()
        except FileNotFoundError:
            return self._answer(404)
        return self._answer(204)

    def log_message(self, *_: Any) -> None:
        if "BUCKET_LOG" in os.environ:
            print(self.command, self.path, _, flush=True)


@contextmanager
def served() -> Iterator[str]:
    """The address of a server of the bucket in ``SWEEP_BUCKET``."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
