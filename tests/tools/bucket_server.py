"""The stand-in bucket over HTTP: what TensorStore, gcsfs and Google's own client use of Google's JSON API.

Objects arrive whole (``uploadType=media`` or ``multipart``) or in parts (``resumable``), with the precondition
``ifGenerationMatch``; listings come by page and by folder; deletions may come in batches.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, ClassVar

from sweep_bucket import Bucket

PAGE = 1000  # names of a listing's page, as Google has it at most


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    uploads: ClassVar[dict[str, tuple[str, str, dict[str, str], bytearray]]] = {}  # not whole yet
    commits = threading.Lock()

    def _asked(self) -> tuple[str, str | None, dict[str, str]]:
        """(bucket, object, parameters) of …/b/BUCKET/o[/OBJECT]?…"""
        url = urllib.parse.urlsplit(self.path)
        parts = [urllib.parse.unquote(part) for part in url.path.partition("/b/")[2].split("/")]
        return parts[0], parts[2] if len(parts) > 2 else None, dict(urllib.parse.parse_qsl(url.query))

    def _file(self, bucket: str, name: str) -> Path:
        return Bucket()._file(f"{bucket}/{name}")

    def _facts(self, bucket: str, name: str) -> dict[str, str]:
        status = self._file(bucket, name).stat()
        updated = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(status.st_mtime))
        return {
            "kind": "storage#object",
            "name": name,
            "bucket": bucket,
            "generation": str(status.st_mtime_ns),
            "metageneration": "1",
            "size": str(status.st_size),
            "updated": updated,
            "timeCreated": updated,
        }

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
            if not urllib.parse.urlsplit(self.path).path.endswith("/o"):
                return self._answer(200, {"kind": "storage#bucket", "name": bucket, "id": bucket})
            return self._answer(200, self._page(bucket, found, asked))
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

    def _page(self, bucket: str, names: list[str], asked: dict[str, str]) -> dict[str, Any]:
        """A page of a listing; with a delimiter, what lies in folders stands as their prefixes."""
        prefix, delimiter = asked.get("prefix", ""), asked.get("delimiter")
        entries: dict[str, bool] = {}  # to whether it is a folder
        for name in names:
            head, cut, _ = name[len(prefix) :].partition(delimiter) if delimiter else (name, "", "")
            entries[prefix + head + cut if cut else name] = bool(cut)
        after = asked.get("pageToken", "")
        left = [entry for entry in entries if entry > after]
        page = left[: min(PAGE, int(asked.get("maxResults", PAGE)))]
        answer: dict[str, Any] = {"kind": "storage#objects"}
        answer["items"] = [self._facts(bucket, entry) for entry in page if not entries[entry]]
        answer["prefixes"] = [entry for entry in page if entries[entry]]
        if len(page) < len(left):
            answer["nextPageToken"] = page[-1]
        return answer

    def _put(self, bucket: str, name: str, content: bytes, asked: dict[str, str]) -> None:
        file = self._file(bucket, name)
        wanted = asked.get("ifGenerationMatch")
        draft = file.with_name(f".{os.getpid()}.{threading.get_ident()}.{file.name}"[:200])
        draft.write_bytes(content)
        with self.commits:  # the condition holds while the object is replaced
            there = self._facts(bucket, name)["generation"] if file.exists() else "0"
            if wanted is not None and wanted != there:
                draft.unlink()
                return self._answer(412)
            draft.replace(file)
        return self._answer(200, self._facts(bucket, name))

    def do_POST(self) -> None:
        bucket, _, asked = self._asked()
        content = self.rfile.read(int(self.headers.get("content-length") or 0))
        if urllib.parse.urlsplit(self.path).path.startswith("/batch/"):
            return self._batch(content)
        if "upload_id" in asked:
            return self._part(asked["upload_id"], content)
        if asked.get("uploadType") == "multipart":
            boundary = re.findall(r'boundary="?([^";]+)', self.headers["content-type"])[0].encode()
            described, whole = content.split(b"--" + boundary)[1], content.split(b"--" + boundary, 2)[2]
            whole = whole[: whole.rindex(b"--" + boundary)].removesuffix(b"\n").removesuffix(b"\r")
            name = json.loads(re.split(rb"\r?\n\r?\n", described, maxsplit=1)[1])["name"]
            return self._put(bucket, name, re.split(rb"\r?\n\r?\n", whole, maxsplit=1)[1], asked)
        if asked.get("uploadType") == "resumable":
            upload = f"{time.monotonic_ns()}"
            name = asked.get("name") or json.loads(content)["name"]
            self.uploads[upload] = (bucket, name, asked, bytearray())
            where = f"http://{self.headers['host']}/upload/storage/v1/b/{bucket}/o?upload_id={upload}"
            return self._answer(200, location=where)
        return self._put(bucket, asked["name"], content, asked)

    def do_PUT(self) -> None:
        self.do_POST()

    def _part(self, upload: str, content: bytes) -> None:
        """The next part of an upload: 308 with what is there, until the part that tells the size of the whole."""
        if upload not in self.uploads:
            return self._answer(404)
        bucket, name, asked, so_far = self.uploads[upload]
        span, _, size = self.headers["content-range"].removeprefix("bytes ").partition("/")
        if span != "*":
            start = int(span.partition("-")[0])
            so_far[start:] = content
        if size != "*" and len(so_far) == int(size):
            del self.uploads[upload]
            return self._put(bucket, name, bytes(so_far), asked)
        return self._answer(308, **({"range": f"bytes=0-{len(so_far) - 1}"} if so_far else {}))

    def _batch(self, content: bytes) -> None:
        """Deletions in one request, each with its answer."""
        boundary = "==answers=="
        answers = []
        for number, path in re.findall(rb"Content-ID: *<?([^\r\n>]+)>?.*?DELETE ([^ ]+) HTTP", content, re.DOTALL):
            bucket, name = path.decode().split("/b/", 1)[1].split("/o/", 1)
            status = "204 No Content" if self._gone(bucket, urllib.parse.unquote(name)) else "404 Not Found"
            answers.append(
                f"--{boundary}\r\nContent-Type: application/http\r\nContent-ID: <response-{number.decode()}>\r\n\r\n"
                f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n\r\n"
            )
        body = ("".join(answers) + f"--{boundary}--").encode()
        self._answer(200, body, content_type=f"multipart/mixed; boundary={boundary}")

    def _gone(self, bucket: str, name: str) -> bool:
        """Delete an object; whether it was there."""
        try:
            self._file(bucket, name).unlink()
        except FileNotFoundError:
            return False
        return True

    def do_DELETE(self) -> None:
        bucket, name, _ = self._asked()
        self._answer(204 if self._gone(bucket, name or "") else 404)

    def log_message(self, *_: Any) -> None: ...


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
