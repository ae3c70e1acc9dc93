"""Every URI is shown without its secrets, wherever it stands in a text."""

import io

import pytest

from wenet_uio.base.uris import ShownStream, is_shown_form, shown, shown_values

SECRET = "t0psecret"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ftp://me:t0psecret@host/a.tar", "ftp://…@host/a.tar"),
        ("http://t0psecret@host/a.tar", "http://…@host/a.tar"),
        ("http://me:t0psecret@host", "http://…@host"),
        ("http://me:t0p@t0psecret@host:80/a.tar", "http://…@host:80/a.tar"),
        ("http://me:it's_t0psecret@host/a.tar", "http://…@host/a.tar"),
        ("http://me:t0p/t0psecret@host/a.tar", "http://…@host/a.tar"),
        ("http://me:t0p?t0psecret#@host/a.tar", "http://…@host/a.tar"),
        ("https://host/a.tar?X-Amz-Signature=t0psecret", "https://host/a.tar?…"),
        ("https://host/a.tar?t0psecret", "https://host/a.tar?…"),
        (
            "https://host/a.tar?OSSAccessKeyId=t0psecret&Expires=1&Signature=t0p%2F==",
            "https://host/a.tar?…",
        ),
        ("https://host/{000..511}.tar?sv=1&sig=t0psecret", "https://host/{000..511}.tar?…"),
        (
            "https://me:t0psecret@host/a.tar?token=t0psecret: HTTP 403",
            "https://…@host/a.tar?…: HTTP 403",
        ),
        ("(see http://host/a?sig=t0psecret), then b", "(see http://host/a?…), then b"),
        ("url: /a.tar?X-Amz-Signature=t0psecret (Caused by x)", "url: /a.tar?… (Caused by x)"),
        ("Invalid URL 'http://me:t0psecret@[::1/a'", "Invalid URL 'http://…@[::1/a'"),
        ("http://a:t0psecret@h/x http://b:t0psecret@h/y", "http://…@h/x http://…@h/y"),
        ("['http://a:t0psecret@h/x', 'me@x']", "['http://…@h/x', 'me@x']"),
        ('["http://h/x?s=t0psecret","me@x"]', '["http://h/x?…","me@x"]'),
        (
            "{'OSSAccessKeyId': 't0psecret', 'Code': 'Denied'}",
            "{'OSSAccessKeyId': '…', 'Code': 'Denied'}",
        ),
        ('{"Authorization": "Basic t0psecret=="}', '{"Authorization": "…"}'),
        ("<AWSAccessKeyId>t0psecret</AWSAccessKeyId>", "<AWSAccessKeyId>…</AWSAccessKeyId>"),
        ("AWS_SECRET_ACCESS_KEY=t0psecret python", "AWS_SECRET_ACCESS_KEY=… python"),
        ("Signature=t0psecret&Expires=9", "Signature=…&Expires=9"),
        ("a.wav?sig=t0psecret", "a.wav?…"),
    ],
)
def test_passwords_signatures_and_tokens_are_not_shown(text, expected):
    assert shown(text) == expected
    assert SECRET not in expected
    assert shown(expected) == expected  # a text that passes twice stays as it is


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8080/dir@v2/a.tar",
        "http://[::1]:8080/a@b.tar",
        "s3://bucket/some folder/a.tar",
        "abfs://container@account.dfs.core.windows.net/a.tar",
        "data/train/what? yes.wav",
        "a local path: /data/me@host/a.tar",
        "3 tokens; key: value; 4 > 3, a = b",
        "AWS_ACCESS_KEY_ID set, AWS_SECRET_ACCESS_KEY not set",
        "SignatureDoesNotMatch: The request signature we calculated does not match",
        "",
    ],
)
def test_a_text_without_a_secret_stays_as_it_is(text):
    assert shown(text) == text


@pytest.mark.parametrize(
    "text", ["a" * 200_000, "a-" * 100_000, "://a:b" * 30_000, "?a=" + "." * 200_000, "'" * 200_000]
)
def test_a_long_text_is_searched_in_linear_time(text):
    shown(f"http://host/ {text}=")  # a quadratic search would take hours


def test_every_text_of_a_tree_of_values_is_shown():
    values = {
        "data": [{"paths": ("http://a:t0psecret@h/x?y", 3)}],
        "http://a:t0psecret@h": None,
        "plain": "a?b=c",
    }
    assert shown_values(values) == {
        "data": [{"paths": ["http://…@h/x?…", 3]}],
        "http://…@h": None,
        "plain": "a?b=c",
    }


def test_a_stream_shows_what_is_written_to_it():
    plain = io.StringIO()
    stream = ShownStream(plain)
    print("reading", "http://me:t0psecret@host/a", file=stream, flush=True)
    stream.writelines(["http://h/?t0psecret\n", "end\n"])
    assert plain.getvalue() == "reading http://…@host/a\nhttp://h/?…\nend\n"
    assert not stream.isatty()


def test_the_shown_form_of_a_uri_with_a_secret_is_recognised():
    assert is_shown_form(shown("http://me:word@host/a.tar"))
    assert is_shown_form(shown("http://host/a.tar?sig=word"))
    assert not is_shown_form("http://host/wait….wav")
