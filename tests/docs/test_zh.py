"""The Chinese pages have the headings, blocks, commands, numbers and tables of the English pages
that they follow.
"""

import re
from pathlib import Path

import pytest

from tests.support.docs.blocks import BLOCK, DOCS, blocks_of

ROOT = DOCS.parent
CHINESE = DOCS / "zh"
PAGES = sorted(path.relative_to(CHINESE) for path in CHINESE.glob("**/*.md"))
INDENTED = re.compile(r"(?<=\n\n)(?: {4}.*\n|\n(?= {4}))+")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def slug(heading):
    """The anchor that MkDocs gives to an English heading."""
    return re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())


def without_blocks(text):
    return INDENTED.sub("", BLOCK.sub("", text))


def headings(text):
    """(level, anchor) of each heading; a Chinese heading states the anchor of the English one."""
    found = re.findall(r"^(#+) (.+?)(?: \{#([\w-]+)\})?$", without_blocks(text), re.MULTILINE)
    return [
        (len(level), anchor or (slug(title) if len(level) > 1 else ""))
        for level, title, anchor in found
    ]


def code(text):
    return set(re.findall(r"`([^`\n]+)`", without_blocks(text)))


def numbers(text):
    """Numbers in the sentences, outside of code, links and anchors."""
    sentences = re.sub(r"`[^`\n]+`|\]\([^)]*\)|\{#[^}]*\}", "", without_blocks(text))
    return set(re.findall(r"\d+(?:\.\d+)*", sentences))


def rows(text):
    """Number of lines of each table."""
    return [len(each.splitlines()) for each in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]


def skeleton(text):
    """What a page and its translation have in common."""
    return {
        "headings": headings(text),
        "blocks": [match[0] for match in BLOCK.finditer(text)],
        "indented blocks": [match.strip("\n") for match in INDENTED.findall(text)],
        "code": code(text),
        "numbers": numbers(text),
        "lines of tables": rows(text),
        "items of lists": [len(re.findall(r"^(?:-|\d+\.) ", without_blocks(text), re.MULTILINE))],
    }


def only_in(values, others):
    """What a message names of values that differ: the members that the others lack."""
    return [value for value in values if value not in others] if values != others else []


def targets(page):
    """Files that the links of a page lead to; for a Chinese page, the English page in its place."""
    paths = [
        (page.parent / link.split("#")[0]).resolve()
        for link in LINK.findall(page.read_text(encoding="utf-8"))
        if not re.match(r"[a-z]+:|#", link)
    ]
    return {
        DOCS / path.relative_to(CHINESE) if path.is_relative_to(CHINESE) else path for path in paths
    }


@pytest.fixture(params=PAGES, ids=str)
def pair(request):
    """A Chinese page and its English page."""
    return CHINESE / request.param, DOCS / request.param


def test_a_chinese_page_has_the_skeleton_of_the_english_page_that_it_names_first(pair):
    chinese, english = pair
    assert english.is_file(), f"{chinese}: it follows no English page"
    text = chinese.read_text(encoding="utf-8")
    assert (chinese.parent / LINK.findall(text)[0]).resolve() == english

    expected, translated = [
        skeleton(page.read_text(encoding="utf-8")) for page in (english, chinese)
    ]
    for what, value in expected.items():
        assert translated[what] == value, (
            f"{chinese}: {what} differ from the English page: translate its change. Only English: "
            f"{only_in(value, translated[what])}; only Chinese: {only_in(translated[what], value)}"
        )


def test_a_chinese_page_links_to_all_that_the_english_page_links_to(pair):
    chinese, english = pair
    assert targets(english) - targets(chinese) == set()


def test_a_link_to_a_page_that_exists_in_chinese_leads_to_the_chinese_page(pair):
    chinese, _ = pair
    for link in LINK.findall(chinese.read_text(encoding="utf-8"))[1:]:
        target = (chinese.parent / link.split("#")[0]).resolve()
        assert target not in [DOCS / page for page in PAGES], link


def test_a_change_of_any_heading_block_row_or_item_of_an_english_page_is_noticed(pair):
    _, english = pair
    text = english.read_text(encoding="utf-8")
    lines = text.splitlines(keepends=True)
    inside = {line for block in blocks_of(english) for line in block.text.splitlines()}
    checked = 0

    for number, line in enumerate(lines):
        if re.match(r"#|\||- |\d+\. | {4}", line) or (line.strip() and line.strip("\n") in inside):
            shorter = "".join(lines[:number] + lines[number + 1 :])
            assert skeleton(shorter) != skeleton(text), line
            checked += 1

    assert checked > 3


def test_the_chinese_readme_says_nothing_that_the_english_one_does_not():
    chinese, english = [
        Path(ROOT, name).read_text(encoding="utf-8") for name in ("README.zh.md", "README.md")
    ]
    assert LINK.findall(chinese)[0] == "README.md"
    assert LINK.findall(english)[0] == "README.zh.md"

    blocks = [skeleton(text)["indented blocks"] for text in (chinese, english)]
    assert len(blocks[0]) > 1
    assert [block for block in blocks[0] if block not in blocks[1]] == []
    assert numbers(chinese) - numbers(english) == set()
    assert code(chinese) - code(english) == set()
    assert [len(level) for level, _ in re.findall(r"^(#+) (.+)$", chinese, re.MULTILINE)] == [
        len(level) for level, _ in re.findall(r"^(#+) (.+)$", english, re.MULTILINE)
    ]
