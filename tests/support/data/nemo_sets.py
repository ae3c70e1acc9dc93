"""Tarred sets of NeMo that convert_to_tarred.py makes of small manifests."""

import json
from pathlib import Path

import soundfile

from tools import convert_to_tarred
from wenet_uio.config.source import parse_source
from wenet_uio.dataset.corpus.open_list import open_list

SHARDS = 4


def entry_of(path, text, **fields):
    return {
        "audio_filepath": str(path),
        "duration": round(soundfile.info(path).duration, 6),
        "text": text,
        **fields,
    }


def write(path, entries):
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    return path


def entries_of(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def convert(manifest, target, *options, shards=SHARDS):
    return convert_to_tarred.main(
        [
            f"--manifest_path={manifest}",
            f"--target_dir={target}",
            f"--num_shards={shards}",
            *options,
        ]
    )


def corpus_of(folder, manifests="tarred_audio_manifest.json", shards=SHARDS):
    tars = f"{folder}/audio__OP_0..{shards - 1}_CL_.tar"
    source = parse_source(
        {
            "type": "nemo_tarred",
            "manifest_filepath": f"{folder}/{manifests}",
            "tarred_audio_filepaths": tars,
        }
    )
    (found,) = source.lists()
    return open_list(*found)
