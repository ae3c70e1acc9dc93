"""A server whose certificate cannot be right is refused at once, not after the deadline."""

import http.server
import ssl
import subprocess
import threading
import time

import pytest
import s3fs

from wenet_uio.dataset.storage import objects
from wenet_uio.dataset.storage.transfer import transfer, version_of
from wenet_uio.dataset.storage.versions import RefusedError, Version

DATA = b"the object"
NAMES = "DNS:localhost,IP:127.0.0.1"
PAST = ("20200101000000Z", "20200102000000Z")
PRESENT = ("20200101000000Z", "20991231000000Z")
FUTURE = ("20980101000000Z", "20991231000000Z")
CERTIFICATES = {
    "self-signed": (NAMES, PRESENT, False, "self-signed certificate"),
    "of another host": ("DNS:elsewhere.test", PRESENT, True, "not valid for '127.0.0.1'"),
    "expired": (NAMES, PAST, True, "certificate has expired"),
    "not valid yet": (NAMES, FUTURE, True, "certificate is not yet valid"),
}
"""Names and times of a certificate, whether the client trusts who signed it, and what is said."""


def certificate(folder, names, times):
    """A self-signed certificate with its key, in one file."""
    (folder / "ca.conf").write_text(
        "[ca]\ndefault_ca = own\n"
        f"[own]\nnew_certs_dir = {folder}\ndatabase = {folder}/index.txt\n"
        f"serial = {folder}/serial\ndefault_md = sha256\npolicy = policy\nx509_extensions = names\n"
        f"[policy]\ncommonName = supplied\n[names]\nsubjectAltName = {names}\n"
        "basicConstraints = CA:TRUE\n"
    )
    (folder / "index.txt").touch()
    (folder / "serial").write_text("01\n")
    request = ("req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    signing = ("ca", "-batch", "-selfsign", "-notext", "-config", folder / "ca.conf")
    start, end = times
    for command in (
        (*request, "-subj", "/CN=test", "-keyout", folder / "key.pem", "-out", folder / "csr.pem"),
        (
            *(*signing, "-keyfile", folder / "key.pem", "-in", folder / "csr.pem"),
            *("-startdate", start, "-enddate", end, "-out", folder / "cert.pem"),
        ),
    ):
        subprocess.run(("openssl", *map(str, command)), check=True, capture_output=True)
    return folder / "cert.pem", folder / "key.pem"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(DATA)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(DATA)

    do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

    def log_message(self, *_):
        pass


class QuietServer(http.server.ThreadingHTTPServer):
    def handle_error(self, request, client_address):
        """A client that refuses the certificate breaks the connection."""


@pytest.fixture
def serving(tmp_path):
    """Starts an HTTPS server with a certificate; gives the URI of its object and the file of the
    certificate.
    """
    servers = []

    def start(names, times):
        cert, key = certificate(tmp_path, names, times)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(cert, key)
        server = QuietServer(("127.0.0.1", 0), Handler)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return f"https://127.0.0.1:{server.server_address[1]}/a.tar", cert

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture(autouse=True)
def one_attempt(monkeypatch):
    """A second attempt fails the test, however long the deadline is."""

    class Clock:
        monotonic = time.monotonic

        @staticmethod
        def sleep(seconds):
            raise AssertionError("another attempt is made")

    monkeypatch.setattr("wenet_uio.dataset.storage.transfer.time", Clock)


@pytest.mark.parametrize("case", CERTIFICATES)
def test_a_certificate_that_cannot_be_right_is_refused_at_once(serving, monkeypatch, case):
    names, times, is_trusted, said = CERTIFICATES[case]
    uri, cert = serving(names, times)
    if is_trusted:
        monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(cert))

    for read in (
        lambda: version_of(uri),
        lambda: transfer(uri, print, 0, None, Version(len(DATA))),
        lambda: objects.read_range(uri, 0, 4, Version(len(DATA))),
    ):
        with pytest.raises(RefusedError, match=f"^{uri}: .*{said}.*REQUESTS_CA_BUNDLE"):
            read()


def test_a_certificate_of_an_authority_that_is_named_is_taken(serving, monkeypatch):
    uri, cert = serving(NAMES, PRESENT)
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(cert))
    assert version_of(uri).size == len(DATA)


def test_the_driver_of_s3_refuses_such_a_certificate_at_once(serving, monkeypatch):
    uri, _ = serving(NAMES, PRESENT)
    endpoint = uri.removesuffix("/a.tar")
    monkeypatch.setenv("WENET_UIO_DEADLINE", "300")  # the driver itself tries for two seconds
    for name, value in {
        "ENDPOINT_URL": endpoint,
        "ACCESS_KEY_ID": "a",
        "SECRET_ACCESS_KEY": "b",
    }.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    # An instance keeps the keys of an earlier server.
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(RefusedError, match="^s3://bucket/a.tar: .*self-signed.*AWS_CA_BUNDLE"):
        version_of("s3://bucket/a.tar")
