"""HTML pages of reports. Each page is one file: pictures and sounds are embedded, and nothing is
fetched.

The templates lie beside this module; every page extends `base.html`. Jinja2 escapes all text in the
values, and URIs in them are shown without passwords and signatures.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from wenet_uio.base.uris import shown, shown_values


def render(name: str, **values: Any) -> Iterator[str]:
    """Fill the template `name`.html with `values` and yield the page in pieces, as they are made.

    Values may be iterators, which are read while the page is written. So a page with many sounds
    holds one at a time.

    Raises:
        jinja2.TemplateNotFound: there is no such template.
        jinja2.UndefinedError: the template uses a value that was not passed.
    """
    # `shown` is for text of others. Markup, a subclass of str, is made here, as by `data_uri`.
    environment = Environment(
        autoescape=True,
        finalize=lambda value: shown(value) if type(value) is str else value,
        loader=FileSystemLoader(Path(__file__).parent),
        lstrip_blocks=True,
        trim_blocks=True,
        undefined=StrictUndefined,
    )
    yield from environment.get_template(f"{name}.html").generate(values)


def data_uri(content: bytes, media_type: str) -> Markup:
    """Embed a picture or a sound as a value of `src`, such as `data:image/png;base64,…`."""
    encoded = base64.b64encode(content).decode("ascii")

    # base64 has no character that HTML escapes
    return Markup(f"data:{media_type};base64,{encoded}")


def json_data(value: Any) -> Markup:
    """Embed a value as the text of a `<script type="application/json">`.

    URIs in it are shown without passwords and signatures. NaN and infinity are errors.
    """
    text = json.dumps(
        shown_values(value), ensure_ascii=False, allow_nan=False, separators=(",", ":")
    )

    # In a script nothing is escaped; only < could end it, and a string of JSON may spell it so.
    return Markup(text.replace("<", r"\u003c"))


def spelled(value: object) -> str:
    """Spell a value for a table: a dictionary as `name: 3, other: 4`, None as nothing, True as yes."""
    if value is None:
        return ""
    if isinstance(value, dict):
        return ", ".join(f"{name}: {spelled(item)}" for name, item in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(spelled, value))
    if isinstance(value, bool):
        return "yes" if value else "no"
    return str(value)
