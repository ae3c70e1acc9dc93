"""Copy the files of a model into a folder as they are published: config, units, CMVN, weights or an
export, and the model card, which names a licence.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from wenet_uio.addons.publish.model_card import CardFacts, model_card_text
from wenet_uio.addons.publish.pull import stated_in, stated_licence
from wenet_uio.base.hub_address import HubAddress, hub_address, is_hub_address
from wenet_uio.base.messages import nearest_name
from wenet_uio.base.run_files import FINAL_WEIGHTS, MODEL_CARD, TRAIN_CONFIG, read_starts
from wenet_uio.config import save_config
from wenet_uio.config.named_files import copy_files
from wenet_uio.config.trust import Trust
from wenet_uio.export.exported import FOLDER_FILES, FOLDERS, ONNX_FILES, TORCHSCRIPT, has_onnx
from wenet_uio.search.recogniser import CHECKPOINTS, load_model_config, weights_in

LOADED = {
    *CHECKPOINTS,
    TORCHSCRIPT,
    *ONNX_FILES,
    *(f"{folder}/{name}" for folder in FOLDERS for name in ONNX_FILES),
}
"""Files of which load_model takes the first: a model must not have those of another."""
_IDENTIFIERS = """
afl-3.0 agpl-3.0 apache-2.0 apple-amlr apple-ascl artistic-2.0 bigcode-openrail-m
bigscience-bloom-rail-1.0 bigscience-openrail-m bsd bsd-2-clause bsd-3-clause bsd-3-clause-clear
bsl-1.0 c-uda cc cc-by-2.0 cc-by-2.5 cc-by-3.0 cc-by-4.0 cc-by-nc-2.0 cc-by-nc-3.0 cc-by-nc-4.0
cc-by-nc-nd-3.0 cc-by-nc-nd-4.0 cc-by-nc-sa-2.0 cc-by-nc-sa-3.0 cc-by-nc-sa-4.0 cc-by-nd-4.0
cc-by-sa-3.0 cc-by-sa-4.0 cc0-1.0 cdla-permissive-1.0 cdla-permissive-2.0 cdla-sharing-1.0
creativeml-openrail-m deepfloyd-if-license ecl-2.0 epl-1.0 epl-2.0 etalab-2.0 eupl-1.1 eupl-1.2
fair-noncommercial-research-license gemma gfdl gpl gpl-2.0 gpl-3.0 grok2-community h-research
intel-research isc lgpl lgpl-2.1 lgpl-3.0 lgpl-lr llama2 llama3 llama3.1 llama3.2 llama3.3
llama4 lppl-1.3c mit mpl-2.0 ms-pl ncsa odbl odc-by ofl-1.1 openmdw-1.0 openmdw-1.1 openrail
openrail++ osl-3.0 other pddl postgresql unknown unlicense wtfpl zlib
"""
LICENCES = frozenset(_IDENTIFIERS.split())
"""Identifiers of https://huggingface.co/docs/hub/repositories-licenses. A licence that the hub has
learned since then may stand in the front matter of the card, which the hub checks itself."""
OTHER = "other"


@dataclass(frozen=True)
class Staged:
    """A model that is ready to be published."""

    folder: Path
    files: tuple[str, ...]
    """Names in the folder and on the hub."""
    licence: str
    base: str | None
    """The model of a hub that it was trained from."""


def stage_model(
    model: str | Path,
    into: Path,
    address: HubAddress,
    *,
    licence: str | None = None,
    licence_name: str | None = None,
    trust_code: Trust = False,
) -> Staged:
    """Write the files of a model into an empty folder, and load the model from there.

    The folder of the model is only read. Weights and exports become links.

    Args:
        model: what load_model takes.
        address: where it will be published; the model card says so.
        licence: identifier of a licence; default: that of the model card.
        licence_name: of the licence `other`; default: that of the model card.
        trust_code: see load_model.

    Raises:
        OSError: a file is missing or cannot be read.
        ValueError: the licence is not known, or the model cannot be loaded from its files.
    """
    from wenet_uio.addons.listen.load import load_model, model_files

    # Weights or an export, under the names by which load_model finds them
    found = model_files(Path(model))
    undecoded = None
    if found.export is not None:
        _link_export(Path(model), found.export, into)
    else:
        weights = found.weights or weights_in(found.run)
        name = weights.name if weights.name in CHECKPOINTS else FINAL_WEIGHTS
        decoded = CHECKPOINTS[0]  # recipes decode with these weights
        if weights.name != decoded and (found.run / decoded).is_file():
            undecoded = weights.name
        _link_file(weights, into / name)

    # train.yaml with the files that it names
    config = load_model_config(found.run / TRAIN_CONFIG, trust_code=trust_code)
    save_config(copy_files(config, into), into / TRAIN_CONFIG, publish=True)

    # README.md, the model card
    starts = read_starts(found.run)
    source = str(starts[0].get("from")) if starts else ""
    base = hub_address(source).name if is_hub_address(source) else None
    facts = CardFacts(
        licence=licence,
        licence_name=licence_name,
        address=address.in_python,
        base=base,
        undecoded=undecoded,
    )
    card = _checked_card(found.run, facts, trust_code)
    (into / MODEL_CARD).write_text(card, encoding="utf-8")
    load_model(into, device="cpu", trust_code=trust_code)

    paths = sorted(path for path in into.rglob("*") if path.is_file())
    names = tuple(str(path.relative_to(into)) for path in paths)
    stated = stated_licence(card)
    assert stated is not None
    return Staged(into, names, stated, base)


def _link_file(file: Path, link: Path) -> None:
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(file.resolve())


def _link_export(named: Path, export: Path, into: Path) -> None:
    """Link the files of an export into the folder `into`.

    Args:
        named: the path that the user gave: the export, or the folder around its folders.
        export: a TorchScript file, or a folder of ONNX files.
    """
    if export.is_file():
        _link_file(export, into / TORCHSCRIPT)
        return

    folders = [export]
    if export != named:
        folders = [named / name for name in FOLDERS if has_onnx(named / name)]
    for folder in folders:
        place = into / folder.name if folder.name in FOLDERS else into
        for file in sorted(folder.iterdir()):
            if file.name in FOLDER_FILES:
                _link_file(file, place / file.name)


def _checked_card(run: Path, facts: CardFacts, trust_code: Trust) -> str:
    """Return the text of the model card: a new one, or that of a person.

    Raises:
        ValueError: it has no licence, or another one than `facts`.
    """
    path = run / MODEL_CARD
    card = model_card_text(run, facts, trust_code=trust_code)
    if card is None:
        card = path.read_text(encoding="utf-8")

    stated = stated_licence(card)
    if stated is None:
        raise ValueError(
            f"{run}: the licence of the model is not known: --license names it, such as apache-2.0 or "
            f"cc-by-4.0, or `license:` in the front matter of {path}"
        )
    if facts.licence not in (None, stated):
        raise ValueError(f"{path}: licence {stated}, and --license {facts.licence}; change one")
    stated_name = stated_in(card, "license_name")
    if facts.licence_name not in (None, stated_name):
        raise ValueError(
            f"{path}: license_name {stated_name}, and --license_name {facts.licence_name}; change one"
        )

    return card


def check_licence(licence: str | None, name: str | None) -> None:
    """Check a licence and, of a licence that has no identifier, its name.

    Raises:
        ValueError: the hub has no such identifier, or the name and the identifier do not belong
            together.
    """
    if licence is not None and licence not in LICENCES:
        nearest = nearest_name(licence, sorted(LICENCES))
        hint = f"; did you mean {nearest}?" if nearest else "."
        raise ValueError(
            f"--license {licence}: the hub has no licence of this name{hint} A licence without an "
            f"identifier is --license {OTHER} --license_name NAME"
        )
    if name is not None and licence != OTHER:
        raise ValueError(
            f"--license_name {name}: it names a licence without an identifier; give --license {OTHER} "
            "too"
        )
