"""Write the model card of a run: README.md with the facts that a user of the model needs.

Its first block is the front matter of model hubs (yaml). No path of this machine and no secret is
written.
"""

from __future__ import annotations

import json
import logging
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import yaml

from wenet_uio.addons.publish.calibrations import calibrations
from wenet_uio.addons.publish.error_rates import (
    describe_share,
    error_rates,
    measure,
    table_of_changes,
)
from wenet_uio.base.files import written_aside
from wenet_uio.base.run_files import MODEL_CARD, TRAIN_CONFIG, read_starts
from wenet_uio.base.uris import published, shown
from wenet_uio.config import Config, ConfigError, load_config
from wenet_uio.config.trust import Trust
from wenet_uio.config.yaml_file import parse_yaml, read_yaml
from wenet_uio.models import build_model
from wenet_uio.models.speech_model import SpeechModel
from wenet_uio.search.modes import possible_modes
from wenet_uio.search.recogniser import CHECKPOINTS, streaming_obstacle
from wenet_uio.text.tokenizer import OWN_UNITS
from wenet_uio.train.checkpoint import numbered_files
from wenet_uio.train.environment import PACKAGES

MARKER = "<!-- report_run.py of wenet_uio writes this file anew. Remove this line to keep changes of the text. -->"
OF_OTHER_LICENCE = ("license_name", "license_link")
"""Keys of the front matter that belong to the licence `other`."""
FRONT_MATTER = re.compile(r"\A---\n(.*?\n)---\n", re.DOTALL)

log = logging.getLogger(__name__)


class CardFacts(NamedTuple):
    """Facts about the model that the folder of its run does not have.

    None: as in the existing card, or left out.
    """

    languages: Sequence[str] | None = None
    """ISO 639-1 codes."""
    metric: str | None = None
    """wer or cer: what the error rates are, if no decoded text is scored yet."""
    licence: str | None = None
    """Identifier of a licence, such as apache-2.0."""
    licence_name: str | None = None
    """Name of a licence whose identifier is `other`."""
    address: str | None = None
    """org/name, or org/name@revision, of the model on a hub; None: it is a folder."""
    base: str | None = None
    """org/name of the model that it was trained from."""
    undecoded: str | None = None
    """Name of the weights, if the error rates of the run are those of others."""


NOTHING_MORE = CardFacts()


def write_model_card(
    folder: str | Path, facts: CardFacts = NOTHING_MORE, *, trust_code: Trust = False
) -> Path | None:
    """Write README.md into the folder of a run and return its path.

    Keys that a person added to the front matter, such as `license`, stay. A README.md without
    MARKER was written by a person and stays as it is: the log says so, and None is returned.

    Args:
        trust_code: which encoder and model of other packages may run.

    Raises:
        ConfigError: the train.yaml is wrong, or names code that is not trusted.
    """
    text = model_card_text(folder, facts, trust_code=trust_code)
    if text is None:
        return None

    path = Path(folder, MODEL_CARD)
    with written_aside(path, "w") as file:
        file.write(text)

    return path


def model_card_text(folder: str | Path, facts: CardFacts, *, trust_code: Trust) -> str | None:
    """Return the text of a model card; see write_model_card.

    Raises:
        ConfigError: the train.yaml is wrong.
    """
    folder = Path(folder)
    try:
        kept = _read_front_matter(folder / MODEL_CARD)
    except ValueError as error:
        log.warning("%s; the model card is not written. Move the file away to get it", error)
        return None

    config = load_config(folder / TRAIN_CONFIG, of_model=True, trust_code=trust_code)
    front = _merge_front_matter(config, kept, facts, measure(folder))
    return _Card(folder, config, front, facts).text()


def _read_front_matter(path: Path) -> dict[str, Any]:
    """Read the front matter of the existing card; empty without a card.

    Raises:
        ValueError: a person wrote the file, or its front matter is damaged.
    """
    if not path.exists():
        return {}

    text = path.read_text(encoding="utf-8", errors="replace").replace("\r\n", "\n")
    if MARKER not in text.splitlines():
        raise ValueError(f"{path}: not written by this tool (its marker line is missing)")

    block = FRONT_MATTER.match(text)
    values = parse_yaml(block[1], str(path)) if block else {}
    if not isinstance(values, dict):
        raise ConfigError(f"{path}: its front matter is not `key: value` lines")

    return values


def _merge_front_matter(
    config: Config, kept: Mapping[str, Any], facts: CardFacts, scored: str | None
) -> dict[str, Any]:
    """Merge the keys of the existing front matter with those that are known.

    Args:
        scored: what the error rates of the run are, such as WER.
    """
    known: dict[str, Any] = {}
    if facts.languages:
        # The front matter has one language as a text, and several as a list.
        has_several = len(facts.languages) > 1
        known["language"] = list(facts.languages) if has_several else facts.languages[0]
    metric = scored or facts.metric
    if metric:
        known["metrics"] = [metric.lower()]
    if facts.licence:
        if facts.licence != kept.get("license"):
            kept = {key: value for key, value in kept.items() if key not in OF_OTHER_LICENCE}
        known["license"] = facts.licence
    if facts.licence_name:
        known["license_name"] = facts.licence_name
    if facts.base:
        known["base_model"] = facts.base

    always = {
        "library_name": "wenet_uio",
        "pipeline_tag": "automatic-speech-recognition",
        "tags": ["automatic-speech-recognition", "speech", "wenet_uio", config.encoder],
    }
    return {**kept, **known, **always}


class _Card:
    """The text of a model card."""

    def __init__(
        self, folder: Path, config: Config, front: Mapping[str, Any], facts: CardFacts
    ) -> None:
        self.folder, self.config, self.front = folder, config, front
        self.address, self.undecoded = facts.address, facts.undecoded
        name = folder.resolve().name
        if facts.address is not None:
            name, _, _ = facts.address.partition("@")  # without the revision
        self.name = " ".join(name.split())
        self.model = untrained_model(config)
        self.starts = read_starts(folder)
        self.start: dict[str, Any] = self.starts[-1] if self.starts else {}
        epochs = [path for _, path in sorted(numbered_files(folder, "epoch_*.yaml"))]
        self.epochs = len(epochs)
        self.last_epoch: dict[str, Any] = read_yaml(epochs[-1]) if epochs else {}
        self.obstacle = streaming_obstacle(self.model, config.dataset_conf)
        """Why the model does not stream; empty if it does."""

    def text(self) -> str:
        """Return the whole file."""
        front = yaml.safe_dump(dict(self.front), sort_keys=False, allow_unicode=True)
        parts = [
            f"---\n{front}---\n{MARKER}",
            self._summary_section(),
            self._use_section(),
            self._rates_section(),
            self._confidence_section(),
            self._data_section(),
            self._model_section(),
            self._training_section(),
            self._limits_section(),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def _summary_section(self) -> str:
        """Return the title, and what the model is."""
        language = self.front.get("language")
        codes = [language] if isinstance(language, str) else language or []
        languages = f" ({_markdown_cell(', '.join(map(str, codes)))})" if codes else ""
        complete = any((self.folder / name).exists() for name in CHECKPOINTS)
        state = "" if complete else " Training is not complete."

        return (
            f"# {_markdown_cell(self.name)}\n\nA speech recogniser{languages} with a {self.config.encoder} "
            f"encoder and {_parameter_count(self.model)} parameters, trained with wenet_uio.{state}"
        )

    def _use_section(self) -> str:
        """Return how to load and run the model."""
        if self.address is None:
            model, load, quoted = self.name, "load_model", shlex.quote(self.name)
            package, place = ".", "beside this folder"
        else:
            model, load = self.address, "from_pretrained"
            quoted = shlex.quote(f"hf://{model}")
            package, place = "'.[hub]'", "anywhere"

        lines = [
            "## Use",
            "",
            f"`pip install {package}` in the repository of wenet_uio installs the package. The "
            f"commands run {place}.",
            "",
            "```python",
            "import wenet_uio",
            f"recogniser = wenet_uio.{load}({json.dumps(model, ensure_ascii=False)})",
            'print(recogniser.transcribe("talk.mp3").text)',
            "```",
            "",
            "```sh",
            f"wenet-uio transcribe --model {quoted} talk.mp3",
            f"wenet-uio serve --model {quoted}",
            "```",
        ]
        return "\n".join(lines)

    def _rates_section(self) -> str:
        """Return the section of error rates."""
        if self.undecoded:
            return (
                f"## Error rates\n\nNot measured: these are the weights of {self.undecoded}; the run "
                "was decoded with others."
            )

        table = error_rates(self.folder)
        if not table.rows:
            return "## Error rates\n\nNo decoded text is scored yet."

        section = "## Error rates\n\n" + _markdown_table(table.head, table.rows)
        changes = table_of_changes(self.folder)
        if not changes.rows:
            return section
        return (
            f"{section}\n\n{_markdown_table(changes.head, changes.rows)}\n\nThe second table compares with "
            "the model before fine-tuning. Hearing is the change of normalised texts, so of words; "
            "writing is the rest: case, marks and digits of the same words."
        )

    def _confidence_section(self) -> str:
        """Return the section of confidences; empty if they were not measured."""
        table = calibrations(self.folder)
        if self.undecoded or not table.rows:
            return ""

        return (
            "## Confidences\n\nThe confidences of words, and how many of the words are right. Calibration "
            "error: mean difference between both for words of about the same confidence.\n\n"
            + _markdown_table(table.head, table.rows)
        )

    def _data_section(self) -> str:
        """Return the section of the training data."""
        rows = []
        for title, key in (("training", "train_data"), ("validation", "cv_data")):
            record = self.start.get(key)
            if record:
                utterances, hours = f"{record['utterances']}", f"{record['hours']:.4g}"
                rows.append([title, published(record["list"]), utterances, hours])

        paragraphs: list[str] = []
        if rows:
            paragraphs.append(_markdown_table(("set", "data list", "utterances", "hours"), rows))

        seconds = self.start.get("utterance_seconds")
        if seconds:
            paragraphs.append(
                f"Training utterances last {seconds['median']} s in the median, {seconds['most']} "
                f"s at the 95th percentile, and {seconds['longest']} s at most."
            )

        samples = self.last_epoch.get("samples")
        if samples:
            left_out = {**samples["filtered"], **samples["bad"]}
            reasons = ", ".join(f"{count} {reason}" for reason, count in left_out.items()) or "none"
            paragraphs.append(
                f"Utterances read in the last epoch: {samples['read']}. Left out: {_markdown_cell(reasons)}."
            )

        return "\n\n".join(["## Data", *paragraphs]) if paragraphs else ""

    def _model_section(self) -> str:
        """Return the section of the model: its parts, sizes and features."""
        config, data = self.config, self.config.dataset_conf
        encoder = (
            f"{config.encoder}: {config.encoder_conf.num_blocks} blocks, width "
            f"{config.encoder_conf.output_size}, {config.encoder_conf.attention_heads} heads"
        )
        decoder = f"{config.decoder}: {config.decoder_conf.num_blocks} blocks"
        losses = [
            f"{name} {weight:.4g}" for name, weight in self.model.trained_weights.items() if weight
        ]
        units = f"{config.tokenizer}, {config.vocabulary_size} labels"
        features = f"{config.feature_dim} of {data.feats_type} a frame"
        if config.cmvn:
            features += ", normalised by global mean and variance"

        rows = [
            ("model", config.model),
            ("parameters", _parameter_count(self.model)),
            ("encoder", encoder),
            ("decoder", decoder if self.model.has_trained_decoder else ""),
            ("predictor", config.predictor),
            ("losses", ", ".join(losses)),
            ("units", units if config.vocabulary_size else ""),
            ("features", features),
            ("sample rate", f"{data.resample_conf.resample_rate} Hz"),
            ("decode modes", ", ".join(possible_modes(self.model))),
        ]
        known = [row for row in rows if row[1]]

        return f"## Model\n\n{_markdown_table(('', ''), known)}\n\n`{TRAIN_CONFIG}` has the whole config."

    def _training_section(self) -> str:
        """Return the section of the training: steps, optimizer, machine and versions."""
        config, start = self.config, self.start
        optimizer = f"{config.optim}, lr {config.optim_conf.lr}, {config.scheduler}"
        commit = start.get("commit")
        versions = [f"{name} {start[name]}" for name in ("python", *PACKAGES) if name in start]
        source, source_commit = start.get("from"), start.get("from_commit")
        rows = [
            ("trained from", published(source) if source else None),
            ("its commit", str(source_commit) if source_commit else None),
            ("weights", describe_share(self.folder)),
            ("epochs", str(self.epochs or "")),
            ("optimizer steps", str(self.last_epoch.get("step", ""))),
            ("optimizer", optimizer),
            ("engine, arithmetic", f"{config.train_engine}, {config.dtype}"),
            ("commit of wenet_uio", commit if commit != "unknown" else None),
            ("begun", str(self.starts[0].get("started", "")) if self.starts else None),
            ("processes", str(start["ranks"]) if "ranks" in start else None),
            ("GPUs", start.get("gpus")),
            ("CPU", start.get("cpu")),
            ("packages", ", ".join(versions)),
        ]
        return "## Training\n\n" + _markdown_table(("", ""), [row for row in rows if row[1]])

    def _limits_section(self) -> str:
        """Return the section of limits."""
        rate = self.config.dataset_conf.resample_conf.resample_rate
        seconds = self.start.get("utterance_seconds") or {}
        longest = seconds.get("longest")
        languages = " and language" if self.front.get("language") else ""
        limits = [f"Audio is resampled to {rate} Hz; content above {rate // 2} Hz is not used."]
        if self.obstacle:
            limits.append(
                "The model does not stream, so a stream decodes its newest window again: "
                f"{self.obstacle}."
            )
        else:
            limits.append("The model streams: it encodes audio chunk by chunk.")

        if longest:
            limits.append(
                f"The longest training utterance has {longest} s; recordings are cut at pauses."
            )

        if self.config.tokenizer not in OWN_UNITS:
            limits.append("The text has only the units of the training texts.")
        limits.append(
            f"Accuracy on other kinds of speech{languages} than those of the training data is not "
            "known."
        )
        return "## Limits\n\n" + "\n".join(f"- {limit}" for limit in limits)


def untrained_model(config: Config) -> SpeechModel:
    """Return the model without weights, on the meta device.

    No memory is allocated, and neither CMVN nor the labels of <sos> are needed.
    """
    # The labels of <sos> and <eos> change no shape, so that any number will do.
    conf = config.tokenizer_conf
    special_tokens = {"<sos>": 0, "<eos>": 0, **(conf.special_tokens or {})}
    tokenizer_conf = conf.model_copy(update={"special_tokens": special_tokens})
    config = config.model_copy(update={"cmvn": None, "tokenizer_conf": tokenizer_conf})
    with torch.device("meta"):
        return build_model(config)


def _parameter_count(model: SpeechModel) -> str:
    count = sum(weight.numel() for weight in model.parameters())
    return f"{count / 1e6:.1f} million" if count >= 1e6 else str(count)


def _markdown_table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(_markdown_cell, line))} |" for line in lines)


def _markdown_cell(value: object) -> str:
    """Return a text within a line of Markdown: no markup, no secret."""
    text = " ".join(shown(value).split())
    return re.sub(r"([|*`<\[\\])", r"\\\1", text)
