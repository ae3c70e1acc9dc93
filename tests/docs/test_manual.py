"""The pages of the manual hang together; if MkDocs is installed, the site is built strictly."""

import json
import re
from pathlib import Path
from urllib.parse import unquote

import pytest
import yaml

import wenet_uio
from docs.generator.pages import navigation
from docs.generator.pages import pages as generated
from tests.support.docs.blocks import DOCS
from tests.support.serve.browser import PATIENCE, chromium

ROOT = DOCS.parent
WRITTEN = sorted(DOCS.glob("**/*.md"))


def ids(path):
    return str(path.relative_to(DOCS))


@pytest.fixture(scope="module")
def all_pages():
    return {path.relative_to(DOCS).as_posix() for path in WRITTEN} | generated().keys()


@pytest.mark.parametrize("path", WRITTEN, ids=ids)
def test_a_page_is_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 300


@pytest.mark.parametrize("path", WRITTEN, ids=ids)
def test_a_file_of_the_project_that_a_page_names_exists(path):
    named = re.findall(
        r"`((?:wenet_uio|examples|tools|tests|docs)/[\w./+-]+)`", path.read_text(encoding="utf-8")
    )
    assert [name for name in named if not (ROOT / name).exists()] == []


def leaves(entry):
    """The pages of an entry of the navigation: a page, a list, or {title: entry}."""
    if isinstance(entry, str):
        return [entry]
    below = entry.values() if isinstance(entry, dict) else entry
    return [page for part in below for page in leaves(part)]


def test_the_navigation_has_every_page_once(all_pages):
    text = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:")[1]
    assert sorted(leaves(navigation(yaml.safe_load(text)))) == sorted(all_pages)


def test_the_site_is_built_without_a_warning_and_needs_no_other_host(site):
    built = list(site.glob("**/*.html"))
    assert len(built) > 60
    for page in built:
        text = page.read_text(encoding="utf-8")
        assert re.findall(r'<(?:script|img|iframe)[^>]*src="?https?:', text) == []
        assert re.findall(r'<link[^>]*rel="?(?:stylesheet|icon|preconnect)[^>]*https?:', text) == []
        assert re.findall(r"<code>[^<]*(?:\\\||&amp;#124;)[^<]*</code>", text) == [], (
            "an escape in code is shown"
        )
    assert "make_shard_list" in Path(site, "search", "search_index.js").read_text(encoding="utf-8")


def test_every_link_of_the_site_leads_to_a_page_and_to_an_anchor_that_it_has(site):
    texts = {page: page.read_text(encoding="utf-8") for page in site.glob("**/*.html")}
    anchors = {page: set(re.findall(r'\sid="?([^"\s>]+)', text)) for page, text in texts.items()}
    links = 0
    for page, text in texts.items():
        article = re.search(r"<article.*?</article>", text, re.DOTALL)
        for link in re.findall(r'<a [^>]*?href="([^":]*)"', article[0]) if article else ():
            path, _, anchor = map(unquote, link.partition("#"))
            target = (page.parent / path).resolve() if path else page
            assert target.is_file(), (page, link)
            assert not anchor or anchor in anchors[target], (page, link)
            links += 1

    assert links > 1000


def test_a_page_has_the_language_of_its_folder_and_links_to_itself_in_the_other(site):
    for page in site.glob("**/*.html"):
        path = page.relative_to(site)
        english = path.relative_to("zh") if path.parts[0] == "zh" else path
        text = page.read_text(encoding="utf-8")
        assert f'<html lang="{"en" if path == english else "zh"}"' in text

        links = re.findall(r'<link rel="alternate" href="([^"]+)" hreflang="(\w+)">', text)
        # 404.html has absolute links: it is shown for any address. Pages of reports have none.
        if path.name == "404.html" or path.parts[0] == "assets":
            continue
        assert [language for _, language in links] == ["en", "zh"]
        for (link, _), folder in zip(links, (site, site / "zh"), strict=True):
            own = folder / english
            assert (page.parent / link).resolve() == (
                own if own.is_file() else folder / "index.html"
            )


def test_every_chinese_word_is_found_by_its_characters_in_the_search_index(site):
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    separator = re.compile(index["config"]["separator"])
    sections = [entry for entry in index["docs"] if entry["location"].startswith("zh/")]
    assert len(sections) > 20
    for entry in sections:
        for field in ("title", "text"):
            text = re.sub(r"<[^>]+>", " ", entry[field])
            han = re.findall(r"[\u3400-\u9fff]", text)
            assert [word for word in separator.split(text) if word in set(han)] == han, text


PRESSED_AND_FOUND = """() => {
  document.querySelector("input.md-search__input").dispatchEvent(new KeyboardEvent("keyup"));
  return document.querySelector(".md-search-result__meta").innerText.includes("结果");
}"""
"""Releases a key: words that came before the search was ready are looked for at the next key."""


@pytest.mark.all
def test_the_search_finds_a_chinese_word_and_keeps_english_ones(site):
    with chromium() as browser:
        page = browser.new_page()
        page.set_default_timeout(PATIENCE)
        for words, expected in {
            "断点续训": "zh/tutorials/first-recogniser.html#repeat-a-stage",
            "对象存储": "zh/how-to/shards.html#put-them-into-a-store",
            "热词": "zh/how-to/decode.html#hot-words",
            "shard分片": "zh/how-to/shards.html",
            '"权重，配额"': "zh/how-to/mix.html",
            "囧": None,
            "--allow_data_changes": "how-to/resume.html#the-data-changed",
            "another number of GPUs": "how-to/resume.html#another-number-of-gpus",
        }.items():
            page.goto((site / "zh/index.html").as_uri())
            page.fill("input.md-search__input", words)
            page.wait_for_function(PRESSED_AND_FOUND, polling=200)
            links = page.eval_on_selector_all(
                ".md-search-result__link", "links => links.map((link) => link.href)"
            )
            found = [
                re.sub(r"\?[^#]*", "", link.removeprefix(f"{site.as_uri()}/")) for link in links
            ]
            assert expected in found if expected else found == [], words


def test_the_version_is_the_same_in_all_files():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert cited["version"] == wenet_uio.__version__
    assert cited["license"] == "Apache-2.0"
    assert wenet_uio.__version__ in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", ["CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"])
def test_files_that_the_pages_for_contributors_name_exist(name):
    text = (ROOT / name).read_text(encoding="utf-8")
    named = re.findall(r"`([\w.]+/[\w./-]*\w\.\w+|\w+\.md)`", text)
    assert [
        path
        for path in named
        if not (ROOT / path).exists() and not path.startswith(("build/", "local/"))
    ] == []
