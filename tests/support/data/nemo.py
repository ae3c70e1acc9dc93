"""Sets in the tarred format of NeMo."""

import json

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
