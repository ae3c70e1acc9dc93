"""Files of the repository as pages of the site: the READMEs of its folders, and the notebooks."""

from __future__ import annotations

import json
import posixpath
import re
from functools import cache
from pathlib import Path

from docs.generator.commands import ROOT

READMES = (
    "README.md",
    "examples/*/*/README.md",
    "wenet_uio/**/README.md",
    "lab/benchmark/*.md",
    "lab/guarantees/README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "SECURITY.md",
)
OVERVIEW = "overview.md"
"""Page of the README on top, because a page README.md would be the start page of a site."""
MADE_FROM = {
    "wenet_uio/commands.py": "reference/commands/index.md",
    "wenet_uio/config/config.py": "reference/train_yaml/index.md",
    "wenet_uio/config/source.py": "reference/train_yaml/data.md",
    "wenet_uio/dataset/__init__.py": "reference/api/dataset.md",
    "wenet_uio/__init__.py": "reference/api/recogniser.md",
    "docs/generator/plan_page.py": "assets/plan.html",
}
"""{module: page that is made from it}. The repository does not have these pages: a link to the
module leads to the page on the site."""
LINK = re.compile(
    r"^ *```.*?^ *```$|^ {4}[^\n]*$"  # blocks of code
    r"|\[(?P<text>(?:[^\[\]]|\[[^\]]*\])*)\]\((?P<target>[^)\s]+)\)"  # the text may have an image
    r"|`[^`\n]+`",
    re.DOTALL | re.MULTILINE,
)
"""A link, or code, in which no link is looked for."""


@cache
def readmes() -> list[str]:
    """List the READMEs and the other documents outside of docs/, relative to the root."""
    files = [path for pattern in READMES for path in sorted(ROOT.glob(pattern))]
    return [path.relative_to(ROOT).as_posix() for path in files]


def notebooks() -> list[str]:
    """List the notebooks, relative to the root."""
    return [path.relative_to(ROOT).as_posix() for path in sorted(ROOT.glob("docs/**/*.ipynb"))]


def page_of(path: str) -> str | None:
    """Return the page of a file or folder of the repository, relative to docs/; None if the site
    does not have it.
    """
    if path in ("README.md", "README.zh.md"):
        return OVERVIEW if path == "README.md" else "zh/index.md"
    if path in MADE_FROM:
        return MADE_FROM[path]
    if path.startswith("docs/"):
        page = path.removeprefix("docs/")
        if not Path(page).suffix:
            return posixpath.join(page, "index.md")
        return page.removesuffix(".ipynb") + ".md" if page.endswith(".ipynb") else page

    readme = path if path.endswith(".md") else posixpath.join(path, "README.md")
    if readme not in readmes():
        return None
    return f"{posixpath.dirname(readme)}.md" if readme.endswith("/README.md") else readme


def file_of(page: str) -> str:
    """Return the file of the repository that a page is made from, relative to the root."""
    return {page_of(path): path for path in readmes()}.get(page, f"docs/{page}")


def site_links(text: str, page: str) -> str:
    """Return the Markdown of a page with links that lead to the pages of the site.

    The repository has links between files. A link to a file without a page becomes its text.
    """
    folder = posixpath.dirname(file_of(page))

    def mended(match: re.Match[str]) -> str:
        target = match["target"]
        if target is None:  # code; GitHub needs an escape of | in a table
            return match[0].replace("\\|", "|")
        if re.match(r"[a-z]+:|#", target):
            return match[0]

        text = LINK.sub(mended, match["text"])
        path, hash_sign, anchor = target.partition("#")
        target_page = page_of(posixpath.normpath(posixpath.join(folder, path)))
        if target_page is None:
            return text
        relative = posixpath.relpath(target_page, posixpath.dirname(page) or ".")
        return f"[{text}]({relative}{hash_sign}{anchor})"

    return LINK.sub(mended, text)


def notebook_page(path: str) -> str:
    """Return a notebook as Markdown: its texts, and its code as blocks. No outputs are stored."""
    notebook = json.loads((ROOT / path).read_text(encoding="utf-8"))
    parts = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        parts.append(f"```python\n{source}\n```" if cell["cell_type"] == "code" else source)

    name = posixpath.basename(path)
    parts.insert(1, f'<a href="{name}" download>{name}</a> is this page as a notebook for Jupyter.')
    return "\n\n".join(parts) + "\n"


def repository_pages() -> dict[str, str]:
    """Return {path below docs/: Markdown} of the READMEs and the notebooks."""
    made = {str(page_of(path)): (ROOT / path).read_text(encoding="utf-8") for path in readmes()}
    return made | {str(page_of(path)): notebook_page(path) for path in notebooks()}
