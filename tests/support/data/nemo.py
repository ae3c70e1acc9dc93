"""Sets in the tarred format of NeMo, and overrides as its documents print them."""

import json
import re

from tests.support.data.tars import wav, write_tar


def write_tarred(parent, name, texts="abcd", field="text"):
    """Make a set of two tars of two utterances in the folder `parent / name`."""
    folder = parent / name
    folder.mkdir()
    for number in (0, 1):
        names = [f"{name}{number}{part}.wav" for part in (0, 1)]
        write_tar(
            folder / f"audio_{number}.tar", [(member, wav(seed=len(member))) for member in names]
        )
        entries = [
            {"audio_filepath": member, field: text, "shard_id": number}
            for member, text in zip(names, texts[2 * number :], strict=False)
        ]
        (folder / f"manifest_{number}.json").write_text(
            "".join(json.dumps(entry) + "\n" for entry in entries)
        )


def tarred_source(name, parent="SETS", **keys):
    """The source of such a set."""
    return {
        "type": "nemo_tarred",
        "manifest_filepath": f"{parent}/{name}/manifest__OP_0..1_CL_.json",
        "tarred_audio_filepaths": f"{parent}/{name}/audio__OP_0..1_CL_.tar",
        **keys,
    }


def overrides_in(text):
    """The overrides of NeMo's command lines in a text; a value may go on in the next line."""
    found = (
        re.split(r"\s+(?=\+\+)", line.partition(" #")[0].strip())
        for line in re.sub(r",\n", ",", text).splitlines()
    )
    words = [word.removesuffix("\\").strip() for each in found for word in each]
    return [word for word in words if re.match(r"(\+\+)?(mode|model|training_ds|trainer)\.", word)]
