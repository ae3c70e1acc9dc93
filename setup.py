"""The build of the package: what pyproject.toml says, and the scripts of recipes."""

from __future__ import annotations

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

SCRIPTS = ("path.sh", "requirements.txt", "requirements", "tools", "examples")
"""What a recipe outside of a clone needs."""


class BuildWithRecipes(build_py):
    """Copies the scripts of recipes to wenet_uio/recipes of the built package, with their modes."""

    def run(self) -> None:
        """Build the package, then copy; an editable install finds the scripts in the clone."""
        super().run()
        if not self.editable_mode:
            for script in self.scripts():
                target = self.target_of(script)
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(script, target)

    def get_outputs(self, include_bytecode: bool = True) -> list[str]:
        """Return the built files."""
        outputs = super().get_outputs(include_bytecode)
        return outputs + [str(self.target_of(script)) for script in self.scripts()]

    def scripts(self) -> list[Path]:
        """Return the files to copy, without results of a recipe."""
        left_out = {"data", "dict", "exp", "__pycache__"}
        files = [
            file
            for name in SCRIPTS
            for file in (Path(name).rglob("*") if Path(name).is_dir() else [Path(name)])
        ]
        return [file for file in files if file.is_file() and not left_out & set(file.parts)]

    def target_of(self, script: Path) -> Path:
        """Return where a file is copied to."""
        return Path(self.build_lib, "wenet_uio", "recipes", script)


setup(cmdclass={"build_py": BuildWithRecipes})
