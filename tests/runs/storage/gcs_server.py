"""A local server that speaks what clients use of the JSON API of Google Cloud Storage, and fails on order.

Objects have generations, and preconditions on them hold; nothing outlives the process. Buckets are made by
tests, not by requests: a client that tries to make one is refused.
"""

from __future__ import annotations

import dataclasses
import email.parser
import email.policy
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

_OBJECT = re.compile(r"/(?:download/)?storage/v1/b/([^/]+)/o/(.+)")
_OBJECTS = re.compile(r"/(upload/)?storage/v1/b/([^/]+)/o")
_BUCKET = re.compile(r"/storage/v1/b/([^/]+)")
_COPY = re.compile(r"(.+)/rewriteTo/b/([^/]+)/o/(.+)")


@dataclasses.dataclass(frozen=True)
class Request:
    """One request, as rules for faults see it.

    Attributes:
      verb: GET, POST, PUT, PATCH or DELETE.
      bucket, name: of the object it is about; no name for a listing or a bucket.
      writes: whether it would write an object.
      agent: the client's User-Agent.
    """

    verb: str
    bucket: str
    name: str
    writes: bool
    agent: str


@dataclasses.dataclass(frozen=True)
class Object:
    content: bytes
    generation: int
    updated: float


class Refused(Exception):
    """Answers the request with an HTTP status."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class GcsServer(ThreadingHTTPServer):
    """Serves until `close`.

    Attributes:
      buckets: objects by name, by bucket.
      rule: called with each `Request` before it does anything; returns an HTTP status to fail with, or None.
        It may also wait, which holds that request up.
      requests: all that came.
    """

    daemon_threads = True
    request_queue_size = 128

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.buckets: dict[str, dict[str, Object]] = {}
        self.rule: Callable[[Request], int | None] = lambda request: None
        self.requests: list[Request] = []
        self.lock = threading.Lock()
        self.uploads: dict[str, tuple[str, str, dict[str, str], bytes]] = {}  # resumable ones
        self._generation = time.time_ns() // 1000
        threading.Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead the clients here, without credentials."""
        return {
            "STORAGE_EMULATOR_HOST": self.url,
            "TENSORSTORE_GCS_HTTP_URL": self.url,
            "GCE_METADATA_HOST": "127.0.0.1:9",
            "NO_GCE_CHECK": "true",
            "GOOGLE_CLOUD_PROJECT": "test",
        }

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that are killed leave connections behind."""

    def close(self) -> None:
        self.shutdown()
        self.server_close()

    def files(self, bucket: str, prefix: str = "") -> dict[str, bytes]:
        """Contents by name of the objects whose name begins with `prefix`, which is cut off."""
        with self.lock:
            found = sorted(self.buckets[bucket].items())
        return {k.removeprefix(prefix): x.content for k, x in found if k.startswith(prefix)}

    def put(self, bucket: str, name: str, content: bytes, query: dict[str, str] | None = None) -> Object:
        """Writes an object as a request with the parameters `query` does."""
        with self.lock:
            objects = self._objects(bucket)
            _require(objects.get(name), query or {})
            self._generation += 1
            objects[name] = Object(content, self._generation, time.time())
            return objects[name]

    def get(self, bucket: str, name: str, query: dict[str, str]) -> Object:
        with self.lock:
            found = self._objects(bucket).get(name)
        _require(found, query)
        if found is None:
            raise Refused(404, f"No such object: {bucket}/{name}")
        return found

    def delete(self, bucket: str, name: str, query: dict[str, str]) -> None:
        self.get(bucket, name, query)
        with self.lock:
            self._objects(bucket).pop(name, None)

    def names(self, bucket: str) -> list[str]:
        with self.lock:
            return sorted(self._objects(bucket))

    def _objects(self, bucket: str) -> dict[str, Object]:
        if bucket not in self.buckets:
            raise Refused(404, "The specified bucket does not exist.")
        return self.buckets[bucket]


def _require(found: Object | None, query: dict[str, str]) -> None:
    generation = found.generation if found else 0
    if "ifGenerationMatch" in query and int(query["ifGenerationMatch"]) != generation:
        raise Refused(412, "At least one of the pre-conditions you specified did not hold.")
    if "ifGenerationNotMatch" in query and int(query["ifGenerationNotMatch"]) == generation:
        raise Refused(304, "")


class _Handler(BaseHTTPRequestHandler):
    """One connection of a client."""

    protocol_version = "HTTP/1.1"
    server: GcsServer
    # A header and a body in two packets would wait for each other (Nagle and delayed acknowledgements).
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        url = urlsplit(self.path)
        query = {name: values[0] for name, values in parse_qs(url.query, keep_blank_values=True).items()}
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = url.path
        try:
            if match := _OBJECT.fullmatch(path):
                self._note(match[1], unquote(match[2]), self.command != "GET" and self.command != "DELETE")
                self._object(match[1], match[2], query)
            elif match := _OBJECTS.fullmatch(path):
                name = query.get("name") or _name_of_multipart(self.headers, body)
                self._note(match[2], name if match[1] else "", bool(match[1]))
                self._upload(match[2], name, query, body) if match[1] else self._list(match[2], query)
            elif match := _BUCKET.fullmatch(path):
                self._note(match[1], "", False)
                self.server.names(match[1])
                self._answer({"kind": "storage#bucket", "name": match[1]})
            else:
                raise Refused(403, f"This server has no {self.command} {path}")
        except Refused as error:
            content = {"error": {"code": error.status, "message": str(error)}}
            self._send(error.status, b"" if error.status == 304 else json.dumps(content).encode())

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _note(self, bucket: str, name: str, writes: bool) -> None:
        agent = self.headers.get("User-Agent", "")
        request = Request(self.command, bucket, name, writes, agent)
        self.server.requests.append(request)
        if status := self.server.rule(request):
            raise Refused(status, "This fault was ordered by a test.")

    def _object(self, bucket: str, quoted: str, query: dict[str, str]) -> None:
        if copy := _COPY.fullmatch(quoted):
            found = self.server.get(bucket, unquote(copy[1]), {})
            made = self.server.put(copy[2], unquote(copy[3]), found.content, query)
            resource = _resource(copy[2], unquote(copy[3]), made)
            self._answer({"kind": "storage#rewriteResponse", "done": True, "resource": resource})
            return
        name = unquote(quoted)
        if self.command == "DELETE":
            self.server.delete(bucket, name, query)
            self._send(204, b"")
            return
        found = self.server.get(bucket, name, query)
        if query.get("alt") != "media":
            self._answer(_resource(bucket, name, found))
            return
        start, end = 0, len(found.content)
        if wanted := re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range", "")):
            start = int(wanted[1]) if wanted[1] else max(0, end - int(wanted[2]))
            end = min(end, int(wanted[2]) + 1) if wanted[1] and wanted[2] else end
            if start >= end:
                raise Refused(416, "The requested range cannot be satisfied.")
        headers = {"Content-Range": f"bytes {start}-{end - 1}/{len(found.content)}"} if wanted else {}
        headers |= {"x-goog-generation": str(found.generation), "ETag": f'"{found.generation}"'}
        self._send(206 if wanted else 200, found.content[start:end], headers)

    def _upload(self, bucket: str, name: str, query: dict[str, str], body: bytes) -> None:
        kind = query.get("uploadType")
        if "upload_id" in query:
            self._resume(query["upload_id"], body)
        elif kind == "resumable":
            self.server.names(bucket)
            upload = os.urandom(8).hex()
            self.server.uploads[upload] = (bucket, name, query, b"")
            location = (
                f"{self.server.url}/upload/storage/v1/b/{bucket}/o?upload_id={upload}&name={quote(name)}"
            )
            self._send(200, b"", {"Location": location})
        else:
            content = _parts(self.headers, body)[1] if kind == "multipart" else body
            self._answer(_resource(bucket, name, self.server.put(bucket, name, content, query)))

    def _resume(self, upload: str, body: bytes) -> None:
        bucket, name, query, received = self.server.uploads[upload]
        received += body
        self.server.uploads[upload] = (bucket, name, query, received)
        total = self.headers.get("Content-Range", "").rpartition("/")[2]
        if total == "*" or int(total) > len(received):
            self._send(308, b"", {"Range": f"bytes=0-{len(received) - 1}"})
        else:
            self._answer(_resource(bucket, name, self.server.put(bucket, name, received, query)))

    def _list(self, bucket: str, query: dict[str, str]) -> None:
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        start, end, token = (query.get(n, "") for n in ("startOffset", "endOffset", "pageToken"))
        names = [n for n in self.server.names(bucket) if n.startswith(prefix) and n >= start and n > token]
        names = [n for n in names if not end or n < end]
        limit = int(query.get("maxResults", 1000))
        items, prefixes, last = [], set[str](), ""
        for name in names:
            folder, found, _ = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            if found and prefix + folder + delimiter in prefixes:
                last = name
                continue
            if len(items) + len(prefixes) == limit:
                break
            last = name
            if found:
                prefixes.add(prefix + folder + delimiter)
            else:
                items.append(_resource(bucket, name, self.server.get(bucket, name, {})))
        page: dict[str, Any] = {"kind": "storage#objects", "items": items, "prefixes": sorted(prefixes)}
        if names and last != names[-1]:
            page["nextPageToken"] = last
        self._answer(page)

    def _answer(self, content: Any) -> None:
        self._send(200, json.dumps(content).encode(), {"Content-Type": "application/json"})

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def _resource(bucket: str, name: str, found: Object) -> dict[str, Any]:
    updated = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(found.updated)) + ".000Z"
    return {
        "kind": "storage#object",
        "bucket": bucket,
        "name": name,
        "generation": str(found.generation),
        "size": str(len(found.content)),
        "updated": updated,
        "timeCreated": updated,
    }


def _name_of_multipart(headers: Any, body: bytes) -> str:
    if "multipart" not in headers.get("Content-Type", ""):
        return ""
    return str(json.loads(_parts(headers, body)[0])["name"])


def _parts(headers: Any, body: bytes) -> list[bytes]:
    """The bodies of a multipart/related message, exactly as they were sent."""
    message = email.parser.HeaderParser(policy=email.policy.HTTP).parsestr(
        f"Content-Type: {headers['Content-Type']}\n\n"
    )
    boundary = b"--" + str(message.get_param("boundary")).encode()
    parts = body.split(boundary)[1:-1]
    # Headers end with an empty line; clients differ in their line ends.
    return [
        re.split(rb"\r?\n\r?\n", part, maxsplit=1)[1].removesuffix(b"\n").removesuffix(b"\r")
        for part in parts
    ]


def main() -> None:
    """Serves a bucket for each name on the command line, and prints what leads clients here."""
    server = GcsServer()
    server.buckets = {name: {} for name in sys.argv[1:]}
    for name, value in server.environment.items():
        print(f"export {name}={value}", flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    main()
