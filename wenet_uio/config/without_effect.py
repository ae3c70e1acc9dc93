"""Keys and options of WeNet that change nothing here, each with the reason.

They are accepted, because files and scripts of WeNet have them, and the log names those that are
given. Some more keys have fields in their sections, described as "Not used": WeNet needs them in
the train.yaml of its model, so they are kept with their values.
"""

from __future__ import annotations

KEYS: dict[tuple[str, ...], str] = {
    ("collate_conf",): "dataset_conf has its settings",
    ("raw_wav",): "the data list says what is read",
    ("lfmmi_dir",): "there is no LF-MMI here",
    ("lfr_conf",): "the family stacks frames",
    ("syncbn",): "statistics of batch normalisation are those of each rank",
    ("dataset_conf", "syncbn"): "statistics of batch normalisation are those of each rank",
    ("dataset_conf", "split_with_space"): "the tokenizer splits texts",
    ("dataset_conf", "speaker_conf"): "no model uses speakers",
    ("tokenizer_conf", "connect_symbol"): "texts are joined as their tokenizer says",
}
"""{path of a key of a yaml: why it changes nothing}."""

_STATES = (
    "a state has all that a run needs to resume: weights, optimizer, data position, random numbers"
)
_SHARDED = "train_engine torch_fsdp shards weights, gradients and optimizer over the ranks"
_RANKS = "wenet_uio.bin.launch connects the ranks"
TRAIN_OPTIONS: dict[str, str] = {
    "--deepspeed.save_states": _STATES,
    "--deepspeed": "--train_engine deepspeed selects this engine",
    **dict.fromkeys(
        ("--fsdp_cpu_offload", "--fsdp_sync_module_states", "--fsdp_sharding_strategy"), _SHARDED
    ),
    **dict.fromkeys(("--ddp.init_method", "--ddp.rank", "--local_rank", "--local-rank"), _RANKS),
    "--fp16_grad_sync": "gradients are exchanged in their own type",
    "--jit": "export_jit.py writes the TorchScript model and checks it",
    "--lfmmi_dir": "there is no LF-MMI here",
    **dict.fromkeys(("--lora_modules", "--lora_attn_attr"), "LoRA adapts every attention module"),
    **dict.fromkeys(("--lora_init_yaml", "--lora_reinit"), "low-rank weights start at random"),
}
"""{option of WeNet's train.py: why it changes nothing}."""
RECOGNIZE_OPTIONS: dict[str, str] = {
    "--connect_symbol": "texts are joined as their tokenizer says",
    "--context_bias_mode": "hot words count if --context_list_path is given",
    **dict.fromkeys(
        ("--hlg", "--word", "--lm_scale", "--decoder_scale", "--r_decoder_scale"),
        "no mode uses an HLG",
    ),
    "--attn_weight": "no mode rescores a transducer's hypotheses",
}
"""{option of WeNet's recognize.py: why it changes nothing}."""
