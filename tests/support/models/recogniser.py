"""The recogniser of the fixture `folder`."""

KEYS = ["u5", "u1", "u4", "u2", "u3"]
CONFIG = {
    "encoder": "conformer",
    "encoder_conf": {
        "output_size": 16,
        "attention_heads": 2,
        "linear_units": 16,
        "num_blocks": 1,
        "input_layer": "conv2d",
    },
    "decoder": "transformer",
    "decoder_conf": {"attention_heads": 2, "linear_units": 16, "num_blocks": 1},
    "tokenizer": "char",
    "tokenizer_conf": {"symbol_table_path": "units.txt"},
    "dataset_conf": {"fbank_conf": {"num_mel_bins": 20}, "batch_conf": {"batch_type": "dynamic"}},
}
