"""What a URI of a list may name: stores, neither local files through a driver, nor code of an
object, nor services of the machine.
"""

import json
import os
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from tests.support.serve.running_server import running
from tests.support.storage.servers import serving, serving_ftp
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.storage import addresses, objects
from wenet_uio.dataset.storage.addresses import SCHEMES, HostError, check_host
from wenet_uio.dataset.storage.transfer import transport
from wenet_uio.dataset.storage.versions import DriverError, RefusedError

LINK_LOCAL = (
    "169.254.169.254",
    "169.254.170.2",
    "[fe80::1]",
    "fe80::1%lo",
    "::ffff:169.254.169.254",
    "64:ff9b::169.254.169.254",
    "2002:a9fe:a9fe::1",
    "metadata.google.internal",
    "METADATA.google.internal.",
    "100.100.100.200",
    "fd00:ec2::254",
)
STORES = ("127.0.0.1", "localhost", "10.1.2.3", "[::1]", "example.com", "192.168.0.1", "")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "store"
    folder.mkdir()
    (folder / "secret").write_text("of this machine")
    return folder


def references(url, folder):
    """Reference files whose template runs a command."""
    command = f"touch {folder}/ran"
    template = "{{ cycler.__init__.__globals__.os.popen('" + command + "').read() }}"
    (folder / "refs.json").write_text(
        json.dumps({"version": 1, "templates": {"t": template}, "refs": {"k1": ["{{t}}"]}})
    )
    return f"reference://k1::{url}/refs.json"


@pytest.mark.parametrize("data_type", ["raw", "shard"])
def test_a_list_runs_no_code_and_reads_no_local_file_through_a_driver(folder, data_type):
    secret = folder / "secret"
    with serving(folder) as server:
        for uri in (
            references(server.url, folder),
            f"simplecache::file://{secret}",
            f"simplecache::{server.url}/secret",
            f"filecache::local://{secret}",
            f"zip://secret::{server.url}/secret",
            f"local://{secret}",
            f"dir://{folder}",
            "memory://secret",
            "github://user:repo@main/x.tar",
            "data://text/plain,x",
        ):
            line = uri if data_type == "shard" else json.dumps({"key": "a", "wav": uri, "txt": "x"})
            (folder / "data.list").write_text(f"{line}\n")
            with pytest.raises((DriverError, OSError, ValueError)) as caught:
                corpus = open_list(str(folder / "data.list"), data_type)
                raise ValueError(corpus.bad[0].reason)
            assert "WENET_UIO_STORES" in str(caught.value) or "chained" in str(caught.value), uri
        assert not server.requests
    assert not (folder / "ran").exists()


def test_every_scheme_of_the_table_is_allowed_and_no_other_driver(monkeypatch):
    import fsspec

    for scheme in {*fsspec.available_protocols(), *SCHEMES} - {"file"}:
        if scheme in SCHEMES:
            assert transport(f"{scheme}://bucket/x")
            continue
        with pytest.raises(DriverError, match=f"names {scheme}"):
            transport(f"{scheme}://bucket/x")
        monkeypatch.setenv("WENET_UIO_STORES", f"other, {scheme}")
        assert transport(f"{scheme}://bucket/x")
        monkeypatch.delenv("WENET_UIO_STORES")


def test_an_object_with_the_mark_of_a_chain_in_its_name_is_refused_by_name():
    with pytest.raises(DriverError, match="rename it"):
        transport("s3://bucket/a::b").version("s3://bucket/a::b")


@pytest.mark.parametrize("host", LINK_LOCAL)
def test_services_of_the_machine_are_refused_until_they_are_named(host, monkeypatch):
    with pytest.raises(HostError, match="WENET_UIO_STORES"):
        check_host(host)
    monkeypatch.setenv("WENET_UIO_STORES", host.strip("[].").lower())
    check_host(host)


@pytest.mark.parametrize("host", STORES)
def test_other_hosts_may_be_stores(host):
    check_host(host)


@contextmanager
def redirecting(target):
    """A server that redirects every request."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", target)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET  # noqa: N815 - the name that http.server calls

        def log_message(self, *args):
            """Write no log."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    with running(server):
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.mark.parametrize("scheme", ["http", "https", "ftp", "webhdfs"])
def test_an_address_of_the_machine_is_refused_before_anything_is_asked(folder, scheme):
    uri = f"{scheme}://169.254.169.254/latest/meta-data/x"
    with pytest.raises(RefusedError, match=r"169\.254\.169\.254 is a service"):
        objects.read_bytes(uri)


def test_a_redirect_to_a_service_of_the_machine_is_refused(folder):
    with redirecting("http://169.254.169.254/latest/meta-data/x") as url:
        for uri in (f"{url}/x", f"{url}/x".replace("http", "webhdfs")):
            with pytest.raises(RefusedError, match=r"169\.254\.169\.254 is a service"):
                objects.read_bytes(uri)


@pytest.mark.parametrize("serve", [serving, serving_ftp], ids=["http", "ftp"])
def test_a_name_that_leads_to_a_service_is_refused_before_anything_is_asked(
    folder, serve, monkeypatch
):
    """`localhost` stands for a name of a stranger, 127.0.0.1 for the service."""
    with serve(folder) as server:
        url = getattr(server, "url", server).replace("127.0.0.1", "localhost")
        assert objects.read_bytes(f"{url}/secret") == b"of this machine"
        monkeypatch.setattr(addresses, "METADATA_HOSTS", {"127.0.0.1"})
        os.utime(folder / "secret", (1, 1))
        if serve is serving:
            server.requests.clear()
            thread = []
            # A thread has no open connections.
            work = threading.Thread(target=lambda: thread.append(refusal(f"{url}/secret?new")))
            work.start()
            work.join()
            (error,) = thread
            assert not server.requests
        else:
            error = refusal(f"{url}/secret?new")
        assert isinstance(error, RefusedError), error
        assert "127.0.0.1 is a service" in str(error)


def refusal(uri):
    """The error of reading an object."""
    try:
        return objects.read_bytes(uri)
    except OSError as error:
        return error
