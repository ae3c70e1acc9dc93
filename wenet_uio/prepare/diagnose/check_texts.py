"""Mend the texts of a list: characters that nobody sees, in lines of raw lists and members of tars."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from wenet_uio.base.files import written_aside
from wenet_uio.dataset.corpus.base import Corpus
from wenet_uio.dataset.formats.data_list import TEXT, values_of
from wenet_uio.dataset.formats.sample_layout import JSON_TEXT
from wenet_uio.dataset.types import SampleRef
from wenet_uio.prepare.diagnose.findings import CHARACTERS, Report
from wenet_uio.text.characters import clean, oddities, without_mark


class OddText(NamedTuple):
    """A text that `clean` changes."""

    key: str
    before: str
    after: str

    def as_dict(self, *, mended: bool) -> dict[str, object]:
        """Return the line of the ledger; `after` is None if the text was not mended."""
        kinds = [oddity.kind for oddity in oddities(self.before)]
        after = self.after if mended else None
        return {"key": self.key, "kinds": kinds, "before": self.before, "after": after}


def odd_texts(corpus: Corpus, shard: int, rows: Iterable[int]) -> dict[int, OddText]:
    """Return the texts of some rows of a shard that `clean` changes, by row."""
    odd: dict[int, OddText] = {}
    keys = corpus.rows(shard)
    for row in rows:
        text = corpus.texts(SampleRef(shard, row)).texts[0]
        after = clean(text)
        if after != text:
            odd[row] = OddText(keys.key(row), text, after)

    return odd


def has_odd_texts(report: Report) -> bool:
    """Tell whether a check found a text that `clean` changes."""
    return any(report.counts[kind] for kind in CHARACTERS)


def mended_line(line: bytes, text_field: str | None, mended: str) -> bytes:
    """Return a line of a raw list with another text, and all its other values.

    Args:
        text_field: names of the text, the preferred one first; None: the usual ones.
    """
    values = values_of(line)
    candidates = tuple(text_field.split(";")) if text_field else TEXT
    field = next(name for name in candidates if name in values)
    return json.dumps({**values, field: mended}, ensure_ascii=False).encode()


def mended_member(data: bytes, text: OddText) -> bytes | None:
    """Return the content of a member of a tar with the mended text; None if the member is not the
    text of the sample.

    The member holds just the text, or a JSON object in which one of JSON_TEXT is the text.
    """
    try:
        content = without_mark(data.decode())
    except UnicodeDecodeError:
        return None

    if content == text.before:
        return text.after.encode()

    values = _object_in(content)
    changed = {
        name: text.after
        for name in JSON_TEXT
        if isinstance(values.get(name), str) and without_mark(values[name]) == text.before
    }
    return json.dumps({**values, **changed}, ensure_ascii=False).encode() if changed else None


def _object_in(content: str) -> Mapping[str, str]:
    """Return the JSON object that a text is; an empty one if it is none."""
    try:
        values = json.loads(content) if content.lstrip().startswith("{") else {}
    except (ValueError, RecursionError):
        return {}
    return values if isinstance(values, dict) else {}


def write_texts_ledger(mended: Iterable[OddText], kept: Iterable[OddText], path: str) -> None:
    """Write key, kinds, and text before and after of all odd texts as lines of JSON.

    Args:
        kept: texts that could not be mended.
    """
    with written_aside(path, "w") as file:
        for texts, is_mended in ((mended, True), (kept, False)):
            for text in texts:
                file.write(json.dumps(text.as_dict(mended=is_mended)) + "\n")
