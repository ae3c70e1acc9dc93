"""Drawings of the manual: files of SVG, which the site has inside of its pages.

A browser gives an image of a file the colours of the system. Inside of a page a drawing gets those
that the reader chose with the button on top.
"""

from __future__ import annotations

import re

from docs.generator.commands import ROOT

ASSETS = ROOT / "docs" / "assets"
IMAGE = re.compile(r'<img alt="([^"]*)" src="[^"]*assets/([\w-]+\.svg)" />')


def with_drawings(html: str) -> str:
    """Return the HTML of a page with each image of a drawing replaced by the drawing."""
    return IMAGE.sub(lambda image: _drawing(image[2], image[1]), html)


def _drawing(name: str, alternative: str) -> str:
    """Return a drawing as an element of a page; programs that read pages aloud get the
    alternative.
    """
    svg = (ASSETS / name).read_text(encoding="utf-8")
    svg = re.sub(r"\s*<(title|style)>.*?</\1>", "", svg, flags=re.DOTALL)
    head = re.sub(r' (?:color|height)="[^"]*"', "", svg[: svg.index(">")])
    head = head.replace(
        ' role="img"',
        f' class="drawing" role="img" aria-label="{alternative}" data-search-exclude=""',
    )
    return head + svg[svg.index(">") :]
