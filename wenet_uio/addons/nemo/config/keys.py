"""Keys of NeMo's loaders that have no key here: those that change nothing, and what to write instead
of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from wenet_uio.addons.nemo.config.references import MISSING, missing_in, unresolved_in
from wenet_uio.base.messages import nearest_name
from wenet_uio.config.base import ConfigError

SORTED = "the plan sorts all utterances by length before it cuts batches"
SHUFFLED = "the plan shuffles the whole corpus and needs no buffer"
PLANNED = "the plan gives every rank its own batches, every epoch another order, and every run of one seed the same"
LOADER = "there is one loader"
NOT_NEEDED = {
    "use_lhotse": LOADER,
    "force_map_dataset": LOADER,
    "force_iterable_dataset": LOADER,
    "num_buckets": SORTED,
    "num_cuts_for_bins_estimate": SORTED,
    "bucket_buffer_size": SORTED,
    "concurrent_bucketing": SORTED,
    "shuffle_buffer_size": SHUFFLED,
    "shuffle_n": SHUFFLED,
    "shard_seed": PLANNED,
    "num_workers": "the number of workers is an option of train.py: --num_workers",
    "prefetch_factor": "the batches that a worker keeps ready are an option of train.py: --prefetch",
    "persistent_workers": "the workers run as long as the loader",
    "pin_memory": "the loader decides it",
    "defer_setup": "the first rank of a node indexes the data while the others wait",
    "lang_field": "every field of a line stays with its sample",
    "prompt_format": "model: whisper makes its prompt of the fields source_lang or lang, "
    "target_lang and task, and other models have none; write what a language model is to read into "
    "the texts",
    "force_finite": "an epoch is one pass",
    "metadata_only": "batches are planned from the index, without audio",
    "max_open_streams": "the plan bounds the number of open tars",
    "tarred_random_access": "the index makes every tar accessible at random",
    "skip_missing_manifest_entries": "entries without audio are listed and never stop a run",
    "slice_length": "the index makes every tar accessible at random",
    "drop_last": "an epoch has every utterance once",
    "pretokenize": "texts are tokenized before planning if batches or filters need it",
    "cuda_expandable_segments": "PYTORCH_CUDA_ALLOC_CONF sets PyTorch's allocator",
    "labels": "the characters of the vocabulary are in tokenizer_conf.symbol_table_path",
    "parser": "texts are normalised when the data is prepared",
    "return_sample_id": "every batch has the keys of its utterances",
    "return_language_id": "every field of a line stays with its sample",
    "val_loss_idx": "all validation data counts for the validation loss",
    "test_loss_idx": "recognize.py scores the data that it gets",
    "use_start_end_token": "an attention decoder adds <sos> and <eos> itself; labels of CTC and of a "
    "transducer have neither",
    "load_audio": "audio is always read",
    "int_values": "audio is read as numbers between -1 and 1",
    "max_utts": "a shorter list has fewer utterances",
    "bos_id": "tokenizer_conf.special_tokens has the ids of <sos> and <eos>",
    "eos_id": "tokenizer_conf.special_tokens has the ids of <sos> and <eos>",
    "pad_id": "padding is no label",
    "blank_index": "ctc_conf.ctc_blank_id has the id of the blank",
    "unk_index": "the tokenizer has the id of unknown characters",
    "keep_excessive_supervisions": "cuts are not truncated",
    "truncate_offset_type": "cuts are not truncated",
    "concatenate_gap_seconds": "utterances are not joined",
    "concatenate_duration_factor": "utterances are not joined",
    "concatenate_merge_supervisions": "utterances are not joined",
    "db_norm": "utterances are not joined",
    "pad_direction": "padding is behind the utterance",
    "concat_sampling_technique": "utterances are not joined",
    "concat_sampling_temperature": "utterances are not joined",
    "concat_sampling_probabilities": "utterances are not joined",
    "concat_sampling_scale": "utterances are not joined",
    "concat_shuffle": "utterances are not joined",
    "concat_sampling_seed": "utterances are not joined",
}
"""{key of NeMo without effect here: because …}."""
AUDIO_TO_AUDIO = "the section trains a model from audio to audio; models here write texts"
CLASSES = "the section trains a classifier; models here write texts"
JOINED = "utterances are not joined while training; tools/join_utterances.py joins them before"
INSTEAD = {
    "normalize": "texts are normalised when the data is prepared; write normalize: false",
    "normalize_text": "texts are normalised when the data is prepared; remove the key",
    "symbols_to_keep": "texts are normalised when the data is prepared; remove the key",
    "normalize_transcripts": "texts are normalised when the data is prepared; remove the key",
    "add_misc": "every field of a line stays with its sample; write add_misc: false",
    "is_concat": JOINED,
    "concatenate_samples": JOINED,
    "noise_manifest": "write dataset_conf.noise_conf: {data_list: LIST}",
    "batch_augmentor": "write dataset_conf.overlap_conf: {prob: 0.5} for a second talker, or "
    "noise_conf",
    "truncate_duration": "cuts are not truncated while training; cut them when the data is prepared",
    "cut_into_windows_duration": "audio is not cut while training; python -m "
    "wenet_uio.bin.transcribe and tools/make_raw_list.py read segments",
    "cut_into_windows_hop": "audio is not cut while training; remove the key",
    "pad_min_duration": "utterances are padded to the longest of their batch; remove the key",
    "random_padding": "utterances are padded to the longest of their batch; remove the key",
    "rir_path": "write dataset_conf.reverb_conf: {data_list: LIST} with a list of impulse responses",
    "hf_data_cfg": "data sets of Hugging Face are not downloaded while training; save them as "
    "parquet and write input_cfg: [{type: parquet, path: FOLDER}]",
    "streaming": "data sets of Hugging Face are not downloaded while training; remove the key",
    "audio_key": "write input_cfg with a source of type parquet, which has names of columns",
    "text_key": "write text_field",
    "sample_rate_key": "audio has its sample rate itself; remove the key",
    "vad_stream": CLASSES,
    "window_length_in_sec": CLASSES,
    "shift_length_in_sec": CLASSES,
    "normalize_audio": CLASSES,
    "is_regression_task": CLASSES,
    "cal_labels_occurrence": CLASSES,
    "labels_file": CLASSES,
    **dict.fromkeys(
        (
            "input_key",
            "target_key",
            "audio_duration",
            "random_offset",
            "normalization_signal",
            "input_channel_selector",
            "target_channel_selector",
            "reference_key",
            "reference_channel_selector",
            "embedding_key",
            "audio_to_target_with_reference",
            "target_length",
        ),
        AUDIO_TO_AUDIO,
    ),
    "max_spk_count": "diarisation is no task of models here",
    "num_spks": "diarisation is no task of models here",
    "session_len_sec": "diarisation is no task of models here",
}
"""{key of NeMo that would change what is trained: what to write instead}."""
OFF: dict[str, tuple[Any, ...]] = {
    "trim_silence": (False,),
    "use_start_end_token": (False,),
    "normalize": (False,),
    "normalize_transcripts": (False,),
    "normalize_text": (False,),
    "add_misc": (False,),
    "is_concat": (False,),
    "concatenate_samples": (False,),
    "vad_stream": (False,),
    "normalize_audio": (False,),
    "is_regression_task": (False,),
    "cal_labels_occurrence": (False,),
    "rir_enabled": (False,),
    "perturb_speed": (False,),
    "max_utts": (0,),
    "load_audio": (True,),
    "int_values": (False,),
    "streaming": (False,),
    "random_offset": (False,),
    "labels": ([], None),
}
"""{key: values that change nothing, and need no word}."""


def check_keys(
    section: Mapping[str, Any], known: Iterable[str], where: str, notes: list[str]
) -> dict[str, Any]:
    """Return the keys of a loader that are read; note those that are not needed.

    Args:
        section: keys of the loader; none is null.
        known: keys that are read.
        where: beginning of messages.
        notes: gets a line for each key that is not needed.

    Raises:
        ConfigError: a key is unknown or would change what is trained, or a value that is read is a
            reference to a key that does not exist.
    """
    readable = set(known)
    kept: dict[str, Any] = {}
    for key, value in section.items():
        # The type counts: 0 is not false.
        if any(value == off and type(value) is type(off) for off in OFF.get(key, ())):
            continue
        if key in NOT_NEEDED:
            notes.append(f"{where}.{key}: not needed here, because {NOT_NEEDED[key]}")
        elif key in readable:
            kept[key] = value
        else:
            raise ConfigError(
                f"{where}.{key}: {INSTEAD.get(key) or _unknown_key_hint(key, readable)}"
            )

    for key, value in unresolved_in(kept):
        raise ConfigError(f"{where}.{key}: {value.text}: {value.problem}")

    return kept


def refuse_missing(section: Mapping[str, Any], where: str, prefix: str) -> None:
    """Raise a ConfigError that names every key whose value must be given.

    Args:
        section: keys that are read.
        where: beginning of the message.
        prefix: how overrides name the section, such as `model.train_ds`.
    """
    missing = list(missing_in(section))
    if missing:
        overrides = " ".join(f"++{prefix}.{key}=VALUE" for key in missing)
        raise ConfigError(
            f"{where}.{missing[0]}: {MISSING} stands for a value that must be given; write it, or "
            f"--override_config {overrides}"
        )


def _unknown_key_hint(key: str, readable: set[str]) -> str:
    names = readable | set(NOT_NEEDED) | set(OFF)
    nearest = nearest_name(key, sorted(names))
    hint = f"did you mean {nearest!r}?" if nearest else "known: " + ", ".join(sorted(readable))
    return f"unknown key; {hint}"
