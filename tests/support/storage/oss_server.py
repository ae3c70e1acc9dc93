"""A stand-in for Alibaba Cloud OSS on loopback: buckets are folders. It checks signatures of
version 1.

As the store itself, it sends the whole object for a byte range that ends beyond the object.
"""

from __future__ import annotations

import base64
import hmac
from contextlib import contextmanager
from datetime import datetime, timezone
from email.utils import formatdate
from hashlib import md5, sha1
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.support.serve.running_server import running

KEY_ID, SECRET = "AccessKeyOfTheTest", "secret-of-the-test"


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.folder, self.requests = folder, []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        """Write no log."""

    def do_GET(self):
        self._serve()

    def do_HEAD(self):
        self._serve()

    def do_PUT(self):
        self._serve()

    def do_DELETE(self):
        self._serve()

    def _serve(self) -> None:
        parts = urlsplit(self.path)
        bucket, _, key = unquote(parts.path).lstrip("/").partition("/")
        query = {
            name: values[0]
            for name, values in parse_qs(parts.query, keep_blank_values=True).items()
        }
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.requests.append((self.command, key, query))
        if not self._is_signed(f"/{bucket}/{key}", query):
            self._error(403, "SignatureDoesNotMatch", f"<OSSAccessKeyId>{KEY_ID}</OSSAccessKeyId>")
        elif not (self.server.folder / bucket).is_dir():
            self._error(404, "NoSuchBucket")
        elif not key:
            self._bucket(bucket, query)
        elif self.command == "PUT":
            path = self.server.folder / bucket / key
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            self._send(200, b"", {"ETag": f'"{md5(data).hexdigest().upper()}"'})
        elif not (self.server.folder / bucket / key).is_file():
            self._error(404, "NoSuchKey")
        elif self.command == "DELETE":
            (self.server.folder / bucket / key).unlink()
            self._send(204, b"")
        else:
            self._object(self.server.folder / bucket / key)

    def _is_signed(self, resource: str, query: dict[str, str]) -> bool:
        if "x-oss-signature-version" in query:  # version 4
            return query["x-oss-credential"].startswith(
                f"{KEY_ID}/"
            ) and "/cn-test/oss/aliyun_v4_request" in str(query)
        if "Signature" not in query:  # in a header, which signs more than this stand-in knows
            return self.headers.get("Authorization", "").startswith(f"OSS {KEY_ID}:")
        text = f"{self.command}\n\n\n{query['Expires']}\n{resource}"
        signature = base64.b64encode(hmac.digest(SECRET.encode(), text.encode(), sha1)).decode()
        return (query["OSSAccessKeyId"], query["Signature"]) == (KEY_ID, signature)

    def _object(self, path: Path) -> None:
        data = path.read_bytes()
        headers = {
            "ETag": f'"{md5(data).hexdigest().upper()}"',
            "Last-Modified": formatdate(path.stat().st_mtime, usegmt=True),
            "x-oss-object-type": "Normal",
        }
        status = 200
        if wanted := self.headers.get("Range"):
            first, _, last = wanted.removeprefix("bytes=").partition("-")
            end = int(last) + 1 if last else len(data)
            if int(first) < end <= len(data):
                status, headers["Content-Range"] = 206, f"bytes {first}-{end - 1}/{len(data)}"
                data = data[int(first) : end]
        self._send(status, data, headers)

    def _bucket(self, bucket: str, query: dict[str, str]) -> None:
        if "bucketInfo" in query:
            fields = (
                "ExtranetEndpoint",
                "IntranetEndpoint",
                "Location",
                "StorageClass",
                "DataRedundancyType",
                "Comment",
            )
            text = "".join(f"<{name}>x</{name}>" for name in fields)
            text += f"<Name>{bucket}</Name><CreationDate>2024-01-01T00:00:00.000Z</CreationDate>"
            text += "<Owner><ID>1</ID><DisplayName>x</DisplayName></Owner>"
            text += "<AccessControlList><Grant>private</Grant></AccessControlList>"
            text = f"<BucketInfo><Bucket>{text}</Bucket></BucketInfo>"
            self._send(200, text.encode(), {"Content-Type": "application/xml"})
            return
        prefix, found, folders = query.get("prefix", ""), [], set()
        for path in sorted((self.server.folder / bucket).rglob("*")):
            key = path.relative_to(self.server.folder / bucket).as_posix()
            if not path.is_file() or not key.startswith(prefix):
                continue
            if "/" in key[len(prefix) :] and query.get("delimiter"):
                folders.add(prefix + key[len(prefix) :].split("/")[0] + "/")
                continue
            dated = datetime.fromtimestamp(path.stat().st_mtime, timezone.utc).strftime(
                "%Y-%m-%dT%H:%M:%S.000Z"
            )
            found.append(
                f"<Contents><Key>{escape(key)}</Key><LastModified>{dated}</LastModified><ETag>x</ETag><Type>Normal</Type>"
                f"<Size>{path.stat().st_size}</Size><StorageClass>Standard</StorageClass></Contents>"
            )
        found += [
            f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
            for name in sorted(folders)
        ]
        head = f"<Name>{bucket}</Name><Prefix>{escape(prefix)}</Prefix><IsTruncated>false</IsTruncated>"
        text = f"<ListBucketResult>{head}{''.join(found)}</ListBucketResult>"
        self._send(200, text.encode(), {"Content-Type": "application/xml"})

    def _error(self, status: int, code: str, more: str = "") -> None:
        text = f"<Error><Code>{code}</Code><Message>{code}</Message>{more}</Error>"
        self._send(status, text.encode(), {"Content-Type": "application/xml"})

    def _send(self, status: int, data: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {
            "x-oss-request-id": "1",
            **(headers or {}),
            "Content-Length": str(len(data)),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


@contextmanager
def serving_oss(folder: Path, monkeypatch):
    """A stand-in for OSS whose buckets are the subfolders of `folder`, named in the environment."""
    server = _Server(folder)
    monkeypatch.setenv("OSS_ENDPOINT", server.endpoint)
    monkeypatch.setenv("OSS_ACCESS_KEY_ID", KEY_ID)
    monkeypatch.setenv("OSS_ACCESS_KEY_SECRET", SECRET)
    for name in ("OSS_REGION", "OSS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with running(server):
        yield server
