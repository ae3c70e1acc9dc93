"""The markup of pages."""

from __future__ import annotations

from html.parser import HTMLParser

VOID = {"meta", "link", "img", "br", "input"}
"""Elements without an end tag."""
OPTIONAL = {"li", "p", "td", "th", "tr", "tbody"}
"""Elements whose end tag HTML lets out."""


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.ids: list[str] = []
        self.sources: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        names = [name for name, _ in attrs]
        assert len(names) == len(set(names)), f"<{tag}> has an attribute twice: {names}"
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in ("src", "href", "poster", "data"):
                self.sources.append(value or "")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        while self.open and self.open[-1] != tag and self.open[-1] in OPTIONAL:
            self.open.pop()
        assert self.open, f"</{tag}> closes nothing"
        assert self.open[-1] == tag, f"</{tag}> closes <{self.open[-1]}>"
        self.open.pop()


def check_markup(page: str) -> None:
    """Check that elements close in order, that ids occur once, and that a page embeds its files."""
    assert page.startswith("<!doctype html>")
    parser = _Parser()
    parser.feed(page)
    parser.close()
    assert [tag for tag in parser.open if tag not in OPTIONAL] == []
    assert len(parser.ids) == len(set(parser.ids)), parser.ids
    assert [source for source in parser.sources if not source.startswith("data:")] == []
