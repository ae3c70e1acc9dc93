"""The page in the language of the browser, and what it tells people who do not know what to say."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path

import numpy as np
import pytest
import soundfile

import wenet_uio
from tests.addons.listen.conftest import write_model
from tests.support.serve.browser import chromium
from tests.support.serve.clients import served
from wenet_uio.addons.listen.examples import Examples, write_examples
from wenet_uio.addons.serve.options import Limits, ServeOptions

STATIC = Path(str(files("wenet_uio.addons.serve") / "static"))
SCRIPT = "<img src=x onerror=alert(1)>"
FEW_WORDS = Examples(
    ("turn on the light in the kitchen", "what is the time", SCRIPT),
    ("kitchen", "light", "off", "on", "the", "time", "turn", "what"),
    ("en",),
)
LANGUAGES = {"en-GB": "en", "zh-CN": "zh"}
SIZES = {"phone": (390, 844), "desktop": (1280, 800)}
OUTSIDE = """() => [...document.querySelectorAll("body *")].filter((element) => {
  const { left, right, width } = element.getBoundingClientRect();
  return element.checkVisibility() && width && (left < 0 || right > innerWidth + 1);
}).map((element) => element.outerHTML.slice(0, 80))"""
"""Elements that lie beyond an edge of the window."""
CUT = """() => [...document.querySelectorAll("button, p, li, h1, summary, label, select")].filter((element) =>
  element.checkVisibility() && element.scrollWidth > element.clientWidth + 1
  && getComputedStyle(element).display !== "inline").map((element) => element.textContent)"""
"""Elements whose text does not fit into them."""
SHOWN = """() => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const texts = [];
  while (walker.nextNode()) {
    const { data, parentElement } = walker.currentNode;
    const isData = parentElement.closest(".spoken, .segment p, .partial, .name, h2");
    if (data.trim() && parentElement.checkVisibility() && !isData) texts.push(data.trim());
  }
  for (const element of document.querySelectorAll("[aria-label], [title], [placeholder], [aria-valuetext]"))
    for (const name of ["aria-label", "title", "placeholder", "aria-valuetext"])
      if (element.getAttribute(name)) texts.push(element.getAttribute(name));
  return texts;
}"""
"""All texts of the page itself: not those that were spoken, and no names of files."""


def tables():
    """{language: {key: text}} of texts.js."""
    text = (STATIC / "texts.js").read_text(encoding="utf-8")
    found = {}
    for code, body in re.findall(r"^  (\w+): \{\n(.*?)^  \},\n", text, re.DOTALL | re.MULTILINE):
        pairs = re.findall(r'^    (\w+):\s+((?:"[^"]*"(?:\s\+\n\s+)?)+),\n', body, re.MULTILINE)
        assert len(pairs) == len(re.findall(r"^    \w+:", body, re.MULTILINE))
        found[code] = {key: "".join(re.findall(r'"([^"]*)"', parts)) for key, parts in pairs}
    return found


def test_both_languages_have_the_same_texts_with_the_same_values():
    english, chinese = (tables()[code] for code in ("en", "zh"))
    assert list(english) == list(chinese)
    assert len(english) > 90
    for key, text in english.items():
        values = set(re.findall(r"\{(\w+)\}", text)) - {"reason"}  # that of the server is English
        assert ("{reason}" in text) == (key == "refused")
        assert set(re.findall(r"\{(\w+)\}", chinese[key])) == values, key
    same = {key for key, text in english.items() if text == chinese[key]}
    assert same == {"srt", "vtt", "wordTimes"}


def test_each_text_is_used_and_each_text_that_is_used_is_there():
    english = tables()["en"]
    sources = [path.read_text("utf-8") for path in STATIC.iterdir() if path.name != "texts.js"]
    named = set(re.findall(r'data-(?:text|label|action)="(\w+)"', "".join(sources)))
    named |= set(re.findall(r'\bsay\("(\w+)"', "".join(sources)))
    assert named <= set(english)
    unnamed = [
        key
        for key in english
        if key not in named
        and not key.startswith("refused_")
        and not any(f'"{key}"' in source or f".{key}" in source for source in sources)
    ]
    assert unnamed == []


class TextsOfPage(HTMLParser):
    """Collects texts and labels that stand in index.html itself."""

    def __init__(self):
        super().__init__()
        self.texts, self.within = [], []

    def handle_starttag(self, tag, attrs):
        if tag not in ("meta", "link", "input", "rect", "path"):
            self.within.append(tag)
        self.texts += [value for name, value in attrs if name in ("aria-label", "title", "alt")]

    def handle_endtag(self, tag):
        if tag not in ("rect", "path"):
            self.within.remove(tag)

    def handle_data(self, data):
        if data.strip() and "noscript" not in self.within:
            self.texts.append(data.strip())


def test_no_text_of_the_page_stands_outside_of_the_table():
    page = TextsOfPage()
    page.feed((STATIC / "index.html").read_text("utf-8"))
    assert page.texts == ["wenet_uio"]
    for path in STATIC.glob("*.js"):
        if path.name == "texts.js":
            continue
        code = re.sub(r"(?s:/\*.*?\*/)|// .*", "", path.read_text("utf-8"))
        literals = re.findall(r'"([^"\n]*)"|`([^`]*)`', code)
        sentences = [
            text for pair in literals for text in pair if re.search(r"[A-Z][a-z]+ [a-z]", text)
        ]
        assert sentences == [], path.name


def test_each_refusal_has_words_of_its_own():
    from wenet_uio.addons.serve.app import STATUS_OF_LIMIT

    codes = {key.removeprefix("refused_") for key in tables()["en"] if key.startswith("refused_")}
    assert codes == {*STATUS_OF_LIMIT, "audio", "channel", "empty", "failed", "hot_words", "token"}


@pytest.fixture(scope="module")
def browser():
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def few_words(tmp_path_factory):
    """A server of a model that says what it knows."""
    folder = write_model(tmp_path_factory.mktemp("few") / "home")
    write_examples(folder, FEW_WORDS)
    with served(wenet_uio.load_model(folder, device="cpu")) as running:
        yield running


@pytest.fixture(scope="module")
def unknown(tmp_path_factory):
    """A server of a model that cannot stream, and of which nothing is known."""
    folder = write_model(tmp_path_factory.mktemp("unknown") / "whole", use_dynamic_chunk=False)
    limits = Limits(max_upload_bytes=150_000)
    with served(wenet_uio.load_model(folder, device="cpu"), ServeOptions(limits=limits)) as running:
        yield running


def test_a_chinese_browser_gets_a_chinese_page_that_says_what_can_be_said(visitor, few_words):
    page = visitor.visit(few_words.url, locale="zh-CN")
    about = page.get_by_role("region", name="这个模型能听懂什么")
    about.wait_for()
    assert about.locator("li").all_inner_texts() == list(FEW_WORDS.sentences)
    assert about.locator("span.spoken").all_inner_texts() == list(FEW_WORDS.words)
    assert about.get_by_text("它能听懂：英语。").is_visible()
    assert page.evaluate("document.documentElement.lang") == "zh-Hans"
    assert about.locator("li").first.get_attribute("lang") == "en"
    assert page.locator("#speak").inner_text() == "开始"
    english = [text for text in page.evaluate(SHOWN) if re.search("[a-z]{3}", text)]
    assert english == []


@pytest.mark.all
@pytest.mark.parametrize(
    ("locale", "lang", "start"),
    [
        ("en-GB", "en", "Start"),
        ("zh-TW", "zh-Hans", "开始"),
        ("ZH", "zh-Hans", "开始"),
        ("de-DE", "en", "Start"),
    ],
)
def test_the_page_follows_the_browser_or_is_english(visitor, few_words, locale, lang, start):
    page = visitor.visit(few_words.url, locale=locale)
    assert page.evaluate("document.documentElement.lang") == lang
    assert page.locator("#speak").inner_text() == start


def test_developers_advice_is_in_the_log_and_not_on_the_page(visitor, unknown, caplog):
    page = visitor.visit(unknown.url)
    page.get_by_text("With this model the text comes a little later").wait_for()
    assert not page.locator("#about").is_visible()
    assert "use_dynamic_chunk" not in page.content()
    with caplog.at_level("INFO"):
        unknown.server.warm_up()
    assert "train with use_dynamic_chunk" in caplog.text


@pytest.mark.all
def test_examples_are_behind_the_token(visitor, few_words):
    recogniser = few_words.server._models.current.recogniser
    with served(recogniser, ServeOptions(token="open sesame")) as guarded:
        page = visitor.visit(guarded.url)
        page.get_by_label("Token").wait_for()
        assert "kitchen" not in page.evaluate("fetch('health').then((answer) => answer.text())")
        assert page.evaluate("fetch('v1/models').then((answer) => answer.status)") == 401
        assert not page.locator("#about").is_visible()
        page.get_by_label("Token").fill("open sesame")
        page.get_by_label("Token").press("Tab")
        page.get_by_text("turn on the light in the kitchen").wait_for()


WORDS = [("sure", 0.99), ("guess", 0.2), ("plain", None)]
RECORDING = """(segments) => import("/static/recording.js").then(({ Recording }) => {
  const recording = new Recording("call.wav", "call", () => {});
  recording.addSegments(segments);
  recording.progress = "1:04";
  document.getElementById("recordings").prepend(recording.element);
  document.getElementById("results").hidden = false;
})"""


def segment(words, **fields):
    return {
        "start": 61.0,
        "end": 64.0,
        "text": " ".join(word for word, _ in words),
        "words": [
            {"word": word, "start": 61.0, "end": 61.5, "confidence": confidence}
            for word, confidence in words
        ],
        "cues": [],
        **fields,
    }


def test_a_word_of_unknown_confidence_has_no_shade_and_no_legend(visitor, few_words):
    page = visitor.visit(few_words.url)
    page.evaluate(RECORDING, [segment([("plain", None)])])
    word = page.locator(".segment .word")
    assert word.get_attribute("data-confidence") is None
    assert word.get_attribute("data-tip") == "1:01.00 – 1:01.50"
    assert not page.get_by_text("fairly sure").is_visible()
    assert page.get_by_text("Point at a word").is_visible()
    page.evaluate(RECORDING, [segment(WORDS)])
    assert page.get_by_text("fairly sure").is_visible()


def open_all(page):
    """Show everything that the page may show."""
    page.evaluate(
        """() => {
          for (const each of document.querySelectorAll("details")) each.open = true;
          for (const id of ["token-field"]) document.getElementById(id).hidden = false;
        }"""
    )


@pytest.mark.all
@pytest.mark.parametrize("locale", LANGUAGES)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("model", ["few_words", "unknown", "many_languages"])
def test_no_page_scrolls_sideways_and_nothing_is_clipped(
    visitor, request, monkeypatch, locale, size, model
):
    width, height = SIZES[size]
    server = request.getfixturevalue("few_words" if model == "many_languages" else model)
    if model == "many_languages":
        recogniser = server.server._models.current.recogniser
        languages = ("en", "zh", "de", "es", "ru", "ko", "fr", "ja", "haw", "jw", "yue", "not_one")
        monkeypatch.setattr(recogniser, "examples", Examples(languages=languages))
    page = visitor.visit(server.url, locale=locale, viewport={"width": width, "height": height})
    page.locator("#about:not([hidden]), #notices:not(:empty)").first.wait_for()
    open_all(page)
    page.evaluate(RECORDING, [segment(WORDS, channel_name="left"), segment([("plain", None)])])
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate(OUTSIDE) == []
    assert page.evaluate(CUT) == []
    if locale == "zh-CN":
        shown = [re.sub(r"call\.wav|not_one", "", text) for text in page.evaluate(SHOWN)]
        assert [text for text in shown if re.search("[a-z]{3}", text)] == []


@pytest.mark.all
def test_errors_are_in_the_language_of_the_page(visitor, unknown, tmp_path):
    broken, large, short = (tmp_path / f"{name}.wav" for name in ("broken", "large", "short"))
    broken.write_bytes(b"no sound at all")
    large.write_bytes(bytes(200_000))
    soundfile.write(short, np.zeros(16000), 16000)
    thrown = "throw new DOMException('no', 'NotAllowedError')"
    script = f"navigator.mediaDevices.getUserMedia = async () => {{ {thrown} }}"
    page = visitor.visit(unknown.url, locale="zh-CN", script=script)
    page.locator("#speak").click()
    page.get_by_role("alert").filter(has_text="浏览器拒绝了麦克风").wait_for()
    page.locator("summary", has_text="录音的声道").click()
    page.locator("#channel").select_option(value="1")
    page.locator("#file").set_input_files([str(broken), str(large), str(short)])
    page.locator("[data-failed]").nth(2).wait_for()
    failed = page.locator("[data-failed] .progress").all_inner_texts()
    assert sorted(failed) == [
        "文件大小为 0.2 MiB；服务器最多接收 0.1 MiB。",
        "服务器读不懂这个文件。它可能已损坏，或者不是录音。",
        "这段录音没有所选的声道。",
    ]
