"""The generated pages of the manual, and the hook by which MkDocs adds them to the site."""

from __future__ import annotations

from typing import Any

from docs.generator.commands import command_page, commands, index_page
from docs.generator.keys import key_pages
from docs.generator.python_api import api_pages

COMMANDS = "reference/commands"
KEYS = "reference/train_yaml"
API = "reference/api"


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
