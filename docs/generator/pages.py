"""The generated pages of the manual, and the hook by which MkDocs adds them to the site."""

from __future__ import annotations

from typing import Any

from docs.generator.commands import command_page, commands, index_page
from docs.generator.keys import key_pages
from docs.generator.python_api import api_pages

COMMANDS = "reference/commands"
KEYS = "reference/train_yaml"
API = "reference/api"
CHINESE = "zh/"
"""Folder of the Chinese pages: each has the path of the English page that it follows."""


def pages() -> dict[str, str]:
    """Return {path below docs/: Markdown} of all generated pages."""
    all_commands = commands()
    made = {f"{COMMANDS}/index.md": index_page(all_commands)}
    made |= {f"{COMMANDS}/{command.page}": command_page(command) for command in all_commands}
    made |= {f"{KEYS}/{name}": text for name, text in key_pages().items()}

    return made | {f"{API}/{name}": text for name, text in api_pages().items()}


def on_files(files: Any, config: Any) -> Any:
    """MkDocs calls this function with the pages that are files; the result has the generated pages,
    too.
    """
    from mkdocs.structure.files import File  # pyright: ignore[reportMissingImports]: only builds of the manual need it

    for path, text in pages().items():
        files.append(File.generated(config, path, content=text))
    return files


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
