import ast
from dataclasses import replace
from pathlib import Path

import pytest

import wenet_uio
from tests.support.storage.servers import serving
from wenet_uio.base.messages import said_once
from wenet_uio.dataset.corpus.open_list import open_list
from wenet_uio.dataset.storage import settings
from wenet_uio.prepare.list_making import make_shard_list


@pytest.fixture(autouse=True)
def no_variables(monkeypatch):
    for name in (
        "WENET_UIO_CACHE",
        "NEMO_DATA_STORE_CACHE_DIR",
        "WENET_UIO_CACHE_BYTES",
        "WENET_UIO_DEADLINE",
    ):
        monkeypatch.delenv(name, raising=False)


def test_no_other_module_of_the_data_layer_reads_the_environment():
    readers = set()
    package = Path(wenet_uio.__path__[0])
    for path in [
        *package.glob("dataset/**/*.py"),
        *package.glob("prepare/**/*.py"),
        *package.glob("audio/**/*.py"),
    ]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and node.attr in ("environ", "environb", "getenv"):
                readers.add(path.name)
    # prefetch.py passes the whole environment on to its process; options.py takes the rank;
    # compiled.py takes the C++ compiler, which is no setting of a store
    assert readers == {"settings.py", "prefetch.py", "options.py", "compiled.py"}


def test_the_folder_of_the_cache_has_two_variables_and_a_default(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    assert settings.cache_folder() == Path("/home/someone/.cache/wenet_uio/uio1")
    monkeypatch.setenv("NEMO_DATA_STORE_CACHE_DIR", "/nemo")
    assert settings.cache_folder() == Path("/nemo/uio1")
    monkeypatch.setenv("WENET_UIO_CACHE", "/ours")
    assert settings.cache_folder() == Path("/ours/uio1")
    monkeypatch.setenv("WENET_UIO_CACHE", "")
    assert settings.cache_folder() == Path("/nemo/uio1")


@pytest.mark.parametrize(
    ("text", "number"), [("10", 10), ("1.5K", 1536), ("2 GiB", 2 << 30), ("3T", 3 << 40)]
)
def test_sizes_have_units(text, number, monkeypatch):
    assert settings.parse_bytes(text) == number
    monkeypatch.setenv("WENET_UIO_CACHE_BYTES", text)
    assert settings.cache_bytes() == number


def test_a_size_that_is_not_a_number_of_bytes_is_refused_with_the_variable(monkeypatch):
    assert settings.cache_bytes() is None
    monkeypatch.setenv("WENET_UIO_CACHE_BYTES", "much")
    with pytest.raises(
        ValueError, match="WENET_UIO_CACHE_BYTES: 'much' is not a number of bytes; write .* 500G"
    ):
        settings.cache_bytes()


def test_a_connection_may_be_silent_for_a_tenth_of_the_deadline(monkeypatch):
    assert (settings.deadline(), settings.stall()) == (300, 30)
    monkeypatch.setenv("WENET_UIO_DEADLINE", "50")
    assert (settings.deadline(), settings.stall()) == (50, 5)
    monkeypatch.setenv("WENET_UIO_DEADLINE", "1")
    assert settings.stall() == 0.2


def test_stores_are_described_without_their_secrets(monkeypatch):
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://me:word@host:9000")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "secret")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
    described = (
        "AWS_ENDPOINT_URL=http://…@host:9000, AWS_ACCESS_KEY_ID set, AWS_SECRET_ACCESS_KEY not set"
    )
    assert settings.describe_store("s3") == described
    assert settings.describe_store("memory") == ""


def test_only_credentials_of_oss_that_are_set_are_passed_on(monkeypatch):
    for name in ("OSS_ACCESS_KEY_ID", "OSS_ACCESS_KEY_SECRET", "OSS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OSS_ACCESS_KEY_ID", "me")
    assert settings.oss_settings().credentials() == {"key": "me"}


def test_a_region_of_oss_selects_signatures_of_version_4(monkeypatch):
    monkeypatch.delenv("OSS_REGION", raising=False)
    assert settings.oss_settings().signature == "v1"
    monkeypatch.setenv("OSS_REGION", "oss-cn-hangzhou")
    assert settings.oss_settings().region == "cn-hangzhou"
    assert settings.oss_settings().signature == "v4"


@pytest.mark.parametrize(
    ("text", "seconds"), [("90", 90), ("90s", 90), ("5m", 300), ("1.5h", 5400), (" 2 ", 2)]
)
def test_the_deadline_has_units(text, seconds, monkeypatch):
    monkeypatch.setenv("WENET_UIO_DEADLINE", text)
    assert settings.deadline() == seconds


@pytest.mark.parametrize("text", ["soon", "m", "-5", "0", "inf", "nan", "5 minutes", "1d"])
def test_a_deadline_that_is_no_time_is_refused_with_the_variable(monkeypatch, text):
    monkeypatch.setenv("WENET_UIO_DEADLINE", text)
    with pytest.raises(ValueError, match=f"WENET_UIO_DEADLINE is '{text}'; expected a time"):
        settings.deadline()


@pytest.mark.parametrize("text", ["1e19", "1e300h", "100000001"])
def test_a_deadline_beyond_years_is_capped_and_that_is_said(monkeypatch, caplog, text):
    said_once.clear()
    monkeypatch.setenv("WENET_UIO_DEADLINE", text)
    assert settings.deadline() == settings.deadline() == 1e8
    told = f"WENET_UIO_DEADLINE is '{text}', more than 1e+08 s; 1e+08 s (three years) are taken"
    assert caplog.text.count(told) == 1


def test_a_deadline_of_years_is_taken_as_it_is(monkeypatch, caplog):
    monkeypatch.setenv("WENET_UIO_DEADLINE", "1e8")
    assert settings.deadline() == 1e8
    assert not caplog.messages


WRONG = {
    "WENET_UIO_DEADLINE": ("soon", "WENET_UIO_DEADLINE is 'soon'; expected a time"),
    "WENET_UIO_CACHE_BYTES": ("much", "WENET_UIO_CACHE_BYTES: 'much' is not a number of bytes"),
}


@pytest.mark.parametrize("variable", WRONG)
@pytest.mark.parametrize("is_indexed", [True, False])
@pytest.mark.parametrize("kind", ["raw", "shard"])
def test_a_wrong_variable_is_named_when_a_remote_list_is_opened(
    make_utterances, tmp_path, monkeypatch, variable, is_indexed, kind
):
    """Nothing of it is kept: with a valid variable, the list is whole again."""
    monkeypatch.setenv("WENET_UIO_CACHE", str(tmp_path / "cache"))
    (line,) = make_utterances(1)
    (tmp_path / "a.wav").write_bytes(Path(line.wav).read_bytes())
    make_shard_list([line], tmp_path, str(tmp_path / "local.list"))
    (shard,) = tmp_path.glob("*.tar")
    data_list = str(tmp_path / "data.list")

    with serving(tmp_path) as server:
        remote = replace(line, wav=f"{server.url}/a.wav").to_json()
        Path(data_list).write_text(f"{remote if kind == 'raw' else f'{server.url}/{shard.name}'}\n")
        if is_indexed:
            open_list(data_list, kind)

        value, told = WRONG[variable]
        monkeypatch.setenv(variable, value)
        with pytest.raises(ValueError, match=told):
            open_list(data_list, kind)

        monkeypatch.delenv(variable)
        corpus = open_list(data_list, kind)
        assert (corpus.num_samples, corpus.bad) == (1, [])
