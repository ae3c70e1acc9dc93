"""The commands of the package: each has a parser, and a main that reads its arguments with it."""

import argparse
from importlib import import_module

import pytest

from wenet_uio.commands import COMMANDS, parser_of_command


@pytest.mark.parametrize("name", COMMANDS)
def test_the_main_of_every_command_reads_its_arguments_with_the_parser_of_the_command(name, capsys):
    module = import_module(f"wenet_uio.{COMMANDS[name].module}")
    assert isinstance(module.parser(), argparse.ArgumentParser)
    with pytest.raises(SystemExit) as end:
        module.main(["--help"])
    assert (end.value.code, capsys.readouterr().out) == (0, module.parser().format_help())


def test_a_parser_knows_the_name_of_its_command():
    assert parser_of_command("export jit").format_usage().startswith("usage: wenet-uio export jit ")
