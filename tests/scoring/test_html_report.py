import base64
import io
import re
from html.parser import HTMLParser

import numpy as np
import pytest
import soundfile

from tests.support.markup import check_markup
from wenet_uio.scoring.html_report import write_html
from wenet_uio.scoring.scores import score
from wenet_uio.scoring.words import WordRules


def page(references, hypotheses, utterances=10, audio=None):
    file = io.StringIO()
    scores = score(references, hypotheses, WordRules())
    write_html(scores, file, title="a < b", utterances=utterances, audio=audio)
    return file.getvalue()


def test_errors_are_marked_by_kind_and_markup_in_text_is_escaped():
    text = page({"u<1>": "a b c x&y"}, {"u<1>": "a d c e x&y"})
    assert "<h1>a &lt; b</h1>" in text
    assert "<h3>u&lt;1&gt;</h3>" in text
    assert (
        'dir="auto">A <span class="sub"><del>B</del> <ins>D</ins></span> C <ins class="ins">E</ins> '
        "X&amp;Y</p></article>" in text
    )
    assert '<del class="del">B</del>' in page({"u": "a b"}, {"u": "a"})


def test_scripts_in_texts_keys_and_the_title_stay_text():
    script = "<script>alert(1)</script>"
    file = io.StringIO()
    rules = WordRules(remove_tags=False, case_sensitive=True)
    scores = score({script: script}, {script: f"{script}b"}, rules)
    write_html(scores, file, title=script, utterances=1)
    assert "<script>alert" not in file.getvalue()
    # Titles, error, key, text
    assert file.getvalue().count("&lt;script&gt;alert(1)&lt;/script&gt;") == 2 + 2 + 1 + 2
    check_markup(file.getvalue())


def test_audio_is_read_while_the_page_is_written():
    events = []

    class File(io.StringIO):
        def write(self, text):
            events.extend(key for key in ("u", "v") if f"<h3>{key}" in text or text == key)
            return super().write(text)

        def writelines(self, pieces):
            for piece in pieces:
                self.write(piece)

    def audio(key):
        events.append(f"audio of {key}")

    scores = score({"u": "a", "v": "a"}, {"u": "b", "v": "b"}, WordRules())
    write_html(scores, File(), title="", utterances=2, audio=audio)
    assert events == ["audio of u", "u", "audio of v", "v"]


def test_the_utterances_with_most_errors_come_first_and_those_without_are_left_out():
    references = {"none": "a b", "one": "a b", "two": "a b"}
    hypotheses = {"none": "a b", "one": "a x", "two": "y x"}
    assert re.findall("<h3>(.*?)</h3>", page(references, hypotheses)) == ["two", "one"]
    assert re.findall("<h3>(.*?)</h3>", page(references, hypotheses, utterances=1)) == ["two"]
    assert "2 of 3 utterances have errors" in page(references, hypotheses)
    assert "<del>B</del> <ins>X</ins></span><td>2\n" in page(references, hypotheses)


def test_the_page_embeds_the_audio_and_fetches_nothing():
    tone = (1000 * np.sin(np.arange(800))).astype(np.float32).round()
    text = page({"u": "a", "v": "a"}, {"u": "b", "v": "b"}, audio={"u": (tone, 8000)}.get)
    sources = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag, attributes):
            sources.extend(value for name, value in attributes if name in ("src", "href"))

    Parser().feed(text)
    (source,) = sources
    kind, data = source.split(",")
    assert kind == "data:audio/flac;base64"
    samples, rate = soundfile.read(io.BytesIO(base64.b64decode(data)), dtype="int16")
    assert rate == 8000
    assert (samples == tone).all()


def test_errors_are_said_in_words_and_scripts_are_not_called_languages():
    text = page({"u": "四 fünf 6 か a"}, {"u": "四 sechs 6 か a b"})
    assert "2 errors in 5 words: 1 substituted, 1 inserted" in text
    for name in ("Latin letters", "Chinese characters", "digits", "hiragana"):
        assert f"<td>{name}<td>" in text
    assert not re.search("English|Mandarin|N=|None", text)
    check_markup(text)


@pytest.mark.parametrize(
    ("words", "code"), [("四 五 a", "zh"), ("か 四 五", "ja"), ("fünf", ""), ("", "")]
)
def test_the_language_of_the_texts_is_stated_where_their_script_tells_it(words, code):
    text = page({"u": words, "v": ""}, {"u": f"{words} x y", "v": "x"})
    assert set(re.findall('class="spoken" lang="(.*?)"', text)) == {code}


@pytest.mark.parametrize(
    ("text", "measure"), [("四 五", "CER, %<th>characters<"), ("four", "WER, %<th>words<")]
)
def test_the_page_names_what_is_counted(text, measure):
    file = io.StringIO()
    scores = score({"u": text}, {"u": ""}, WordRules("auto"))
    write_html(scores, file, title="", utterances=1)
    assert f"<th>{measure}" in file.getvalue()
