"""The search of the built site answers words of users with the page that they look for."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

ANSWERS = {
    "install": "install.html",
    "microphone": "how-to/serve.html",
    "excel": "examples/custom/s0.html",
    "docker": "tutorials/cluster.html",
    "http": "how-to/stores.html",
    "gpu": "how-to/resume.html",
    "cuda": "install.html",
    "resume": "how-to/resume.html",
    "whisper": "how-to/whisper.html",
    "mp3": "how-to/decode.html",
    "phone": "how-to/serve.html",
    "csv": "tutorials/own-corpus.html",
    "noise": "notebooks/operators.html",
    "subtitle": "how-to/decode.html",
    "token": "reference/train_yaml/tokenizer_conf.html",
    "chinese": "examples/aishell/s0.html",
    "wer": "reference/commands/tools/compute-wer.html",
    "export": "how-to/export.html",
    "onnx": "how-to/export.html",
    "slurm": "tutorials/cluster.html",
    "s3": "how-to/stores.html",
    "websocket": "how-to/serve.html",
    "srt": "how-to/decode.html",
    "kubernetes": "tutorials/cluster.html",
    "lora": "reference/train_yaml/lora_conf.html",
    "augmentation": "notebooks/operators.html",
    "tensorboard": "how-to/track.html",
    "http server": "how-to/serve.html",
    "excel table": "examples/custom/s0.html",
    "error": "how-to/errors.html",
    "Streaming": "how-to/decode.html",
    "out of memory": "how-to/batches.html",
    "hot words": "reference/commands/bin/recognize.html",
    "resume gpu": "how-to/resume.html",
}
"""{what is typed: a page that is among the first three}."""
WORKER = """
const fs = require("fs"), vm = require("vm");
const [script, index, queries] = process.argv.slice(1);
const answers = [];
let waiting, handler;
const worker = {
  console,
  addEventListener: (_, listener) => { handler = listener; },
  postMessage: (message) => waiting(message.data),
};
worker.self = worker;
vm.runInNewContext(fs.readFileSync(script, "utf8"), worker);
const ask = (type, data) => new Promise((resolve) => {
  waiting = resolve;
  handler({data: {type, data}});
});
(async () => {
  await ask(0, {...JSON.parse(fs.readFileSync(index)), options: {suggest: true}});
  for (const query of JSON.parse(queries)) {
    const found = await ask(2, query);
    answers.push(found.items.map((sections) => sections[0].location));
  }
  console.log(JSON.stringify(answers));
})();
"""
"""Runs the worker of the search that the site has: type 0 sets it up, type 2 is a query."""


def node() -> str:
    """Path of Node: that of the system, or the one that Playwright brings along."""
    if found := shutil.which("node"):
        return found
    playwright = pytest.importorskip(
        "playwright", reason="neither Node nor Playwright is installed"
    )
    return str(Path(playwright.__file__).parent / "driver" / "node")


def found_by(site: Path, queries: list[str]) -> list[list[str]]:
    """The locations that the search of the site finds for each query, best first."""
    (script,) = site.glob("assets/javascripts/workers/search.*.min.js")
    index = site / "search" / "search_index.json"
    done = subprocess.run(
        [node(), "-e", WORKER, str(script), str(index), json.dumps(queries)],
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout)


def test_each_word_of_users_finds_its_page_among_the_first_three(site):
    found = dict(zip(ANSWERS, found_by(site, list(ANSWERS)), strict=True))
    wrong = {
        words: found[words][:3]
        for words, page in ANSWERS.items()
        if page not in [location.split("#")[0] for location in found[words][:3]]
    }
    assert wrong == {}


@pytest.mark.all
def test_a_word_in_brackets_is_found_and_a_word_of_no_page_is_not(site):
    nothing, bracket = found_by(site, ["xyzzyx", "translations"])
    assert nothing == []
    assert any(location.startswith("how-to/serve.html") for location in bracket)
