import base64
import json
import re
from pathlib import Path

import jinja2
import numpy as np
import pytest

from tests.support.markup import check_markup
from wenet_uio.base import pages
from wenet_uio.base.pages import data_uri, json_data, render, spelled
from wenet_uio.base.pages.charts import COLOURS

FOLDER = Path(pages.__file__).parent
FILES = sorted(path for kind in ("html", "css", "js") for path in FOLDER.glob(f"*.{kind}"))
STATIC = FOLDER.parents[1] / "addons" / "serve" / "static"
PAIR = re.compile(r"--([\w-]+): light-dark\((#\w{6}), (#\w{6})\)")
ATTACK = '"><script>alert(1)</script>'


def page_of(**values):
    """A page of errors with one utterance."""
    article = {"key": "", "summary": "", "sound": None, "pairs": [], **values}
    texts = {name: values.get(name, "") for name in ("title", "measure", "unit", "language")}
    counts = dict.fromkeys(("wrong", "utterances", "shown"), 1)
    lists = {"totals": {}, "confusions": [], "articles": [article], "players": True}
    return "".join(render("errors", **texts, **counts, **lists))


def test_text_is_escaped_in_elements_and_attributes():
    page = page_of(title=ATTACK, key=ATTACK, sound=ATTACK)
    assert "<script>alert" not in page
    # Twice the title, once the heading, and two attributes
    assert page.count("&#34;&gt;&lt;script&gt;") == 5


def test_uris_are_shown_without_their_secrets_and_pictures_stay_whole():
    sound = data_uri(b"\xfb\xef" * 3000 + b"?sig=", "audio/flac")
    page = page_of(title="http://a:secret@host/a", key="http://h/?sig=secret", sound=sound)
    assert "http://…@host/a" in page
    assert "http://h/?…" in page
    assert "secret" not in page
    assert str(sound) in page


def test_data_in_a_script_stays_data_and_shows_no_secret():
    text = str(json_data({"a": ["</script>", "<!--", "http://h/?sig=secret"], "b": 1.5}))
    assert "<" not in text
    assert "secret" not in text
    assert json.loads(text) == {"a": ["</script>", "<!--", "http://h/?…"], "b": 1.5}
    with pytest.raises(ValueError, match="not JSON compliant"):
        json_data(float("nan"))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        ({"median": 0.42, "of": None}, "median: 0.42, of: "),
        ([1, "a"], "1, a"),
        ({}, ""),
        (True, "yes"),
        (0.1, "0.1"),
    ],
)
def test_values_are_spelled_without_the_signs_of_python(value, text):
    assert spelled(value) == text


def test_a_missing_value_is_an_error():
    with pytest.raises(jinja2.UndefinedError, match="'totals' is undefined"):
        list(render("errors", title="", measure="", unit=""))


def test_an_unknown_template_is_an_error():
    with pytest.raises(jinja2.TemplateNotFound, match="nothing.html"):
        list(render("nothing"))


def test_values_are_read_while_the_page_is_written():
    made = []

    def rows():
        for number in range(3):
            made.append(number)
            yield {"key": f"key{number}", "detail": "", "sound": None, "text": ""}

    section = {
        "kind": "silent",
        "meaning": "",
        "count": 3,
        "is_loss": False,
        "first_rows": rows(),
        "more_rows": iter(()),
        "more": 0,
        "left_out": 0,
    }
    numbers = dict.fromkeys(("utterances", "hours", "losses", "suspects", "kept", "seconds"), 3)
    page = render("check", title="", text="", notes=[], charts=[], sections=[section], **numbers)
    assert any("key0" in piece for piece in page)
    assert made == [0]
    assert "key2" in "".join(page)


def test_data_uris_hold_the_content_and_are_not_escaped():
    content = bytes(range(256))
    uri = data_uri(content, "audio/wav")
    kind, data = uri.split(",")
    assert kind == "data:audio/wav;base64"
    assert base64.b64decode(data) == content
    assert f'src="{uri}"' in page_of(sound=uri)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_files_of_pages_fetch_nothing_and_are_short(path):
    source = path.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 300
    assert not re.search(r"https?:|<link|@import|url\(|fetch\(|\|\s*safe", source)
    if path.suffix == ".html" and path.stem not in ("base", "parts"):
        assert source.startswith('{% extends "base.html" %}')


def test_a_page_states_language_title_and_width_and_closes_its_elements():
    page = page_of(title="a title", key="k", pairs=[("a", "b"), (None, "c"), ("d", None)])
    check_markup(page)
    assert '<html lang="en">' in page
    assert "<title>a title · wenet_uio</title>" in page
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page


def colours(theme):
    """{name: (red, green, blue)} of the style sheets in one theme."""
    found = {}
    for path in (*FILES, *STATIC.glob("*.css")):
        for name, *pair in PAIR.findall(path.read_text(encoding="utf-8")):
            digits = pair[theme].removeprefix("#")
            found[name] = tuple(int(digits[place : place + 2], 16) for place in (0, 2, 4))
    return found


def luminance(colour):
    """Of WCAG 2."""
    shares = [value / 255 for value in colour]
    linear = [s / 12.92 if s <= 0.04045 else ((s + 0.055) / 1.055) ** 2.4 for s in shares]
    return float(np.dot(linear, [0.2126, 0.7152, 0.0722]))


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
def test_text_of_the_palette_has_a_contrast_of_4_5_and_drawings_3(theme):
    if not STATIC.is_dir():
        pytest.skip("some colours are those of the server, which was taken away")
    found = colours(theme)
    grounds = ("paper", "card")
    pairs = {
        (text, ground, 4.5) for text in ("ink", "soft", "accent", "record") for ground in grounds
    }
    marked = ("note", "alert", "substituted", "deleted", "inserted", "line")
    pairs |= {("ink", ground, 4.5) for ground in (*marked, "shade-0", "shade-1", "shade-2")}
    pairs |= {(f"on-{ground}", ground, 4.5) for ground in ("accent", "record")}
    drawn = ("edge", "calm", "hot", *(f"series-{number}" for number in range(COLOURS)))
    pairs |= {(line, "card", 3.0) for line in drawn}
    low = {}
    for text, ground, least in pairs:
        lights = sorted((luminance(found[text]), luminance(found[ground])))
        contrast = (lights[1] + 0.05) / (lights[0] + 0.05)
        if contrast < least:
            low[text, ground] = contrast
    assert low == {}
    judged = {name for pair in pairs for name in pair[:2]}
    assert judged == found.keys(), "a colour without a judgement"


def test_the_package_ships_the_files_of_pages():
    pyproject = (Path(pages.__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    assert (
        '"wenet_uio.base.pages" = ["*.html", "*.css", "*.js"]'
        in pyproject.partition("[tool.setuptools.package-data]")[2]
    )
