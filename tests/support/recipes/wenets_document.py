"""A run.sh as the document of WeNet's AISHELL run-through prints it, stage by stage."""

from __future__ import annotations

import re

STAGE = re.compile(r"^if \[ \$\{stage\} -le (-?\d+) \].*?^fi$", re.DOTALL | re.MULTILINE)
SETTING = re.compile(r"^[a-z_]+=.*$", re.MULTILINE)
HEAD = """\
set -euo pipefail
stage=$1 stop_stage=$2 data=$PWD/corpus data_type=$3 train_set=train dict=data/dict/lang_char.txt
num_utts_per_shard=1000 num_nodes=1 job_id=2023 HOST_NODE_ADDR=localhost:0
"""
"""What the document takes from the top of WeNet's run.sh."""


def script_of(document: str) -> str:
    """Return the settings and stages 0 to 6 of the document in their order, with the package's name
    in place of WeNet's.

    Eight data workers for each rank are too many for a machine that runs tests.
    """
    stages = {int(stage[1]): stage[0] for stage in STAGE.finditer(document)}
    assert list(stages) == [-1, 0, 1, 2, 3, 4, 5, 6]
    settings = SETTING.findall(STAGE.sub("", document))
    lines = [HEAD, *settings, "num_workers=1", *(stages[number] for number in range(7))]
    return "\n".join(lines).replace("wenet/bin", "wenet_uio/bin") + "\n"
