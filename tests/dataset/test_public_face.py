"""The names that `wenet_uio.dataset` offers."""

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.edited_package import edited_package, run_with
from wenet_uio import dataset

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", dataset.__all__)
def test_every_public_name_loads_and_is_documented(name):
    found = getattr(dataset, name)
    assert found.__name__ == name
    assert len(inspect.getdoc(found)) > 40


def test_a_name_that_is_not_public_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'build_everything'"):
        _ = dataset.build_everything


def test_lists_open_without_torch():
    code = "import sys; from wenet_uio.dataset import ListError, open_corpus; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_packing_does_without_torch_and_requests():
    code = "import sys, wenet_uio.prepare.list_making; sys.exit(bool({'torch', 'requests'} & sys.modules.keys()))"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_the_data_layer_does_not_load_the_sections_of_models(tmp_path):
    code = "import sys, wenet_uio.dataset.dataset; print('wenet_uio.config.encoder' in sys.modules)"
    assert run_with(edited_package(tmp_path, {}), code) == "False\n"
