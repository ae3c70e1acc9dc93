"""The commands of the package: `wenet-uio NAME`, their modules and their parsers."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from importlib import import_module


@dataclass(frozen=True)
class SubCommand:
    """A command of the package."""

    module: str
    """Module below wenet_uio that has its `parser` and `main`."""
    purpose: str
    prints_data: bool = False
    """Its standard output has texts of utterances, which are printed unchanged."""


GROUPS = {
    "recipes": {
        "recipe new": SubCommand("bin.new_recipe", "write a recipe for a corpus of your own"),
        "recipe copy": SubCommand("bin.copy_recipe", "copy the recipe of a public corpus"),
        "recipe home": SubCommand("bin.recipe_home", "print the folder of the recipes' scripts"),
        "completion": SubCommand("bin.completion", "print the completion of a shell"),
        "download": SubCommand("bin.download", "download a file, or an archive and unpack it"),
    },
    "data": {
        "lists": SubCommand("bin.make_raw_list", "list audio files with their texts"),
        "pack": SubCommand("bin.make_shard_list", "pack audio and texts into tar shards"),
        "tar": SubCommand("bin.convert_to_tarred", "pack a manifest into a tarred set of NeMo"),
        "index": SubCommand("bin.index_data", "make the indexes of lists that have none"),
        "check": SubCommand("bin.check_data", "read every sample; name what is lost or suspect"),
        "plan": SubCommand("bin.plan_report", "plan an epoch: padding, steps, filtered samples"),
        "profile": SubCommand("bin.profile_data", "measure where the time of a batch goes"),
        "manifest": SubCommand("bin.convert_manifest", "convert manifests, cuts, Kaldi folders"),
        "extract": SubCommand("bin.extract_shard", "list or extract samples of shards", True),
        "upload": SubCommand("bin.put_shards", "copy shards to object storage"),
        "join": SubCommand("bin.join_utterances", "join utterances to longer ones"),
        "pseudo": SubCommand("bin.pseudo_lists", "make the data lists of pseudo labels"),
        "cmvn": SubCommand("bin.compute_cmvn_stats", "mean and variance of the features"),
        "units": SubCommand("bin.make_dict", "write the units file of a text"),
        "lm": SubCommand("bin.make_lm", "estimate an n-gram language model of texts"),
        "bpe": SubCommand("bin.spm_train", "train a sentencepiece model"),
        "tokens": SubCommand("bin.text2token", "cut texts into tokens", True),
        "bins": SubCommand("bin.estimate_duration_bins", "estimate bins of duration for batches"),
        "batch-size": SubCommand("bin.find_batch_size", "find the largest batches that train"),
    },
    "training": {
        "train": SubCommand("bin.train", "train a model on one device, or resume its run"),
        "launch": SubCommand(
            "bin.launch", "train on several devices: launch … -m wenet_uio.bin.train …"
        ),
        "average": SubCommand(
            "bin.average_model", "average the weights of the best or newest epochs"
        ),
        "report": SubCommand("bin.report_run", "write report.html and the model card of a run"),
        "ablation": SubCommand("bin.ablation_table", "write table and plot of an ablation"),
        "modes": SubCommand("bin.decoding_defaults", "print how recipes decode a model"),
    },
    "recognition": {
        "recognize": SubCommand("bin.recognize", "recognise a test set in several decode modes"),
        "score": SubCommand("bin.compute_wer", "error rates, intervals, pages of errors", True),
        "transcribe": SubCommand("bin.transcribe", "transcribe recordings of any length", True),
        "serve": SubCommand("bin.serve", "a page to speak to, streams, recordings over HTTP"),
        "align": SubCommand("bin.align", "times of words, and transcripts that do not fit"),
    },
    "models": {
        "pull": SubCommand("bin.pull", "download a model of a hub"),
        "push": SubCommand("bin.push", "publish a model on a hub"),
        "convert": SubCommand("bin.convert_checkpoint", "convert a model of another package"),
        "export jit": SubCommand("bin.export_jit", "TorchScript model for WeNet's C++ runtime"),
        "export onnx": SubCommand("bin.export_onnx", "ONNX models for WeNet and sherpa-onnx"),
    },
}
"""{title: {name: sub-command}}."""
COMMANDS = {name: command for group in GROUPS.values() for name, command in group.items()}
FIRST_WORDS = {name.split()[0] for name in COMMANDS if " " in name}
"""First words of names of two words."""


def parser_of_command(name: str) -> argparse.ArgumentParser:
    """Return the parser of a sub-command; imports its module."""
    parser = import_module(f"wenet_uio.{COMMANDS[name].module}").parser()
    parser.prog = f"wenet-uio {name}"
    return parser
