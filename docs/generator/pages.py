"""The generated pages of the manual, and the hook by which MkDocs adds them to the site."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from docs.generator.commands import command_page, commands, index_page
from docs.generator.drawings import with_drawings
from docs.generator.keys import key_pages
from docs.generator.plan_page import plan_page
from docs.generator.python_api import api_pages
from docs.generator.repository import (
    file_of,
    notebooks,
    page_of,
    readmes,
    repository_pages,
    site_links,
)

COMMANDS = "reference/commands"
KEYS = "reference/train_yaml"
API = "reference/api"
PLAN = "assets/plan.html"
CHINESE = "zh/"
"""Folder of the Chinese pages: each has the path of the English page that it follows."""
COMMAND_GROUPS = {
    "bin": "Training and decoding",
    "tools": "Data, checks and scoring",
    "recipes": "Recipes",
}
"""{folder of command pages: its title in the navigation}."""


@cache
def pages() -> dict[str, str]:
    """Return {path below docs/: Markdown} of all generated pages."""
    all_commands = commands()
    made = {f"{COMMANDS}/index.md": index_page(all_commands)}
    made |= {f"{COMMANDS}/{command.page}": command_page(command) for command in all_commands}
    made |= {f"{KEYS}/{name}": text for name, text in key_pages().items()}

    made |= {f"{API}/{name}": text for name, text in api_pages().items()}
    return made | repository_pages()


def navigation(written: list[Any]) -> list[Any]:
    """Return the navigation of mkdocs.yml with the generated pages below the pages that list
    them.
    """
    below = _pages_below()

    def with_pages_below(entry: Any) -> Any:
        if isinstance(entry, str):
            return entry
        ((title, content),) = entry.items()
        if isinstance(content, list):
            return {title: [with_pages_below(child) for child in content]}
        return {title: [content, *below[content]] if content in below else content}

    return [with_pages_below(entry) for entry in written]


def _pages_below() -> dict[str, list[Any]]:
    """Return {page: entries of the navigation below it}."""
    return {
        f"{COMMANDS}/index.md": [
            {title: _pages_in(f"{COMMANDS}/{folder}")} for folder, title in COMMAND_GROUPS.items()
        ],
        f"{KEYS}/index.md": [page for page in _pages_in(KEYS) if page != f"{KEYS}/index.md"],
        "reference/recipes.md": _readmes_in("examples"),
        "CONTRIBUTING.md": _readmes_in("wenet_uio", "lab"),
        "notebooks/index.md": [page_of(path) for path in notebooks()],
    }


def _readmes_in(*folders: str) -> list[dict[str, str | None]]:
    """Return {folder: page} of each README, without the number of a recipe's setup, such as s0."""
    files = [path for path in readmes() if path.split("/")[0] in folders]
    return [{re.sub(r"/README\.md$|/s0/README\.md$", "", path): page_of(path)} for path in files]


def _pages_in(folder: str) -> list[str]:
    return [page for page in pages() if page.startswith(f"{folder}/")]


def on_config(config: Any) -> Any:
    """MkDocs calls this function with its configuration; the result has the whole navigation."""
    config.nav = navigation(config.nav)
    return config


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """MkDocs calls this function with the text of a page; its links then lead to pages,
    and it gets its weight in the search.
    """
    path = page.file.src_uri
    page.meta.setdefault("search", {})["boost"] = search_weight(path)
    return site_links(markdown, path)


def search_weight(page: str) -> float:
    """Return the weight of a page in the search: pages for users come before READMEs of the code
    and, if nothing else divides them, before their translations.
    """
    if page.startswith(CHINESE):
        return 0.9
    file = file_of(page)
    return 1.0 if file.startswith(("docs/", "examples/")) else 0.3


def on_files(files: Any, config: Any) -> Any:
    """MkDocs calls this function with the pages that are files; the result has the generated pages
    and the page of a plan, too.
    """
    from mkdocs.structure.files import File  # pyright: ignore[reportMissingImports]: only builds of the manual need it

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    files.append(File.generated(config, PLAN, content=plan_page()))
    return files


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """MkDocs calls this function with the HTML of a page; its drawings get the colours of the
    page, and tables of options and keys a form for phones (assets/manual.css).
    """
    if page.file.src_uri.startswith((COMMANDS, KEYS)):
        html = html.replace("<table>", '<div class="entries"><table>')
        html = html.replace("</table>", "</table></div>")
    return with_drawings(html)


def on_page_context(context: Any, page: Any, config: Any, nav: Any) -> Any:
    """MkDocs calls this function before it writes a page; the page gets the words of the theme and
    the navigation of its language, and links to the same page of the other languages.
    """
    from mkdocs.structure.nav import Navigation  # pyright: ignore[reportMissingImports]: only builds of the manual need it

    is_chinese = page.url.startswith(CHINESE)
    config.theme["language"] = "zh" if is_chinese else "en"

    pages_by_url = {other.url: other for other in nav.pages}
    english_url = page.url.removeprefix(CHINESE)
    for link, prefix in zip(config.extra["alternate"], ("", CHINESE), strict=True):
        url = f"{prefix}{english_url}"
        link["link"] = url if url == page.url or url in pages_by_url else f"{prefix}index.html"

    home = pages_by_url[f"{CHINESE if is_chinese else ''}index.html"]
    chinese_section = pages_by_url[f"{CHINESE}index.html"].parent
    items = [item for item in nav.items if item is not chinese_section]
    context["nav"] = Navigation(chinese_section.children if is_chinese else items, nav.pages)
    context["nav"].homepage = home

    return context
