import base64
import re
from pathlib import Path

import jinja2
import pytest

from wenet_uio import pages
from wenet_uio.pages import data_uri, render

TEMPLATES = sorted(Path(pages.__file__).parent.glob("*.html"))
ATTACK = '"><script>alert(1)</script>'


def test_text_is_escaped_in_elements_and_attributes():
    page = "".join(render("plan", title=ATTACK, figures={ATTACK: ATTACK}, plots=ATTACK))
    assert "<script" not in page
    assert page.count("&#34;&gt;&lt;script&gt;") == 4


def test_uris_are_shown_without_their_secrets_and_pictures_stay_whole():
    picture = data_uri(b"\xfb\xef" * 3000 + b"?sig=", "image/png")
    page = "".join(
        render(
            "plan",
            title="http://a:secret@host/a",
            figures={"": "http://h/?sig=secret"},
            plots=picture,
        )
    )
    assert "http://…@host/a" in page
    assert "http://h/?…" in page
    assert "secret" not in page
    assert str(picture) in page


def test_a_missing_value_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="'plots' is undefined"):
        list(render("plan", title="", figures={}))


def test_an_unknown_template_is_an_error():
    with pytest.raises(jinja2.TemplateNotFound, match="nothing.html"):
        list(render("nothing"))


def test_values_are_read_while_the_page_is_written():
    made = []

    def rows():
        for number in range(3):
            made.append(number)
            yield {"key": f"key{number}", "detail": "", "sound": None, "text": ""}

    section = {"kind": "silent", "meaning": "", "count": 3, "is_loss": False, "rows": rows()}
    page = render("check", title="", text="", histograms="", sections=[section])
    assert any(piece == "key0" for piece in page)
    assert made == [0]
    assert "key2" in "".join(page)


def test_data_uris_hold_the_content_and_are_not_escaped():
    content = bytes(range(256))
    uri = data_uri(content, "audio/wav")
    kind, data = uri.split(",")
    assert kind == "data:audio/wav;base64"
    assert base64.b64decode(data) == content
    assert f'src="{uri}"' in "".join(render("plan", title="", figures={}, plots=uri))


@pytest.mark.parametrize("path", TEMPLATES, ids=lambda path: path.stem)
def test_templates_share_the_base_and_fetch_nothing(path):
    source = path.read_text(encoding="utf-8")
    assert source.startswith(
        "<!doctype html>" if path.stem == "base" else '{% extends "base.html" %}'
    )
    assert not re.search(r"https?:|//|<script|<link|@import|url\(|\|\s*safe", source)


def test_the_package_ships_its_templates():
    pyproject = (Path(pages.__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8")
    assert (
        '"wenet_uio.pages" = ["*.html"]' in pyproject.partition("[tool.setuptools.package-data]")[2]
    )
