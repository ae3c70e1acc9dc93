"""Make a virtual environment for each adapter, with pinned packages."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TORCH = ("torch==2.13.0", "numpy==2.3.5")
"""Packages of the environment `torch`. Environments that need torch read its packages: torch is on
disk once."""


@dataclass(frozen=True)
class Entry:
    """What one row of the table needs."""

    adapter: str
    """Module in `adapters/`."""
    packages: tuple[str, ...] = ()
    needs_torch: bool = True
    requirements: Path | None = None
    """A file of requirements beside `packages`."""
    alone: tuple[str, ...] = ()
    """Packages installed without their dependencies, because these name another torch or drivers of
    remote stores."""
    home: str = ""
    """Folder of the environment, where rows share one; the name of the row by default."""


HUGGINGFACE = ("datasets==5.2.0", "torchdata==0.11.0")
LITDATA = (
    "boto3==1.44.5",
    "filelock==4.2.11",
    "lightning-utilities==0.15.3",
    "obstore==0.12.1",
    "requests==2.34.2",
    "tifffile==2026.3.3",
)
OURS = ROOT / "requirements.txt"
ENTRIES = {
    "ours": Entry("ours", needs_torch=False, requirements=OURS),
    "ours_dropping_one": Entry(
        "ours_dropping_one", needs_torch=False, requirements=OURS, home="ours"
    ),
    "torchdata": Entry("torchdata_loader", ("torchdata==0.11.0",)),
    "webdataset": Entry("webdataset_loader", ("webdataset==1.0.2",)),
    "lhotse": Entry("lhotse_loader", ("lhotse==1.33.0", "urllib3==2.5.0", "torchdata==0.11.0")),
    "lhotse_alpha": Entry("lhotse_alpha_loader", ("lhotse==2.0.0a7", "torchdata==0.11.0")),
    "litdata": Entry("litdata_loader", LITDATA, alone=("litdata==0.2.76",)),
    "litdata_keep": Entry(
        "litdata_keep_loader", LITDATA, alone=("litdata==0.2.76",), home="litdata"
    ),
    "streaming": Entry(
        "streaming_loader",
        (
            "numpy==2.1.3",
            "transformers==4.57.6",
            "brotli==1.2.1",
            "python-snappy==0.7.3",
            "xxhash==3.6.0",
            "zstd==1.5.7.2",
            "catalogue==2.0.10",
            "pillow==12.0.0",
            "tqdm==4.70.1",
        ),
        alone=("mosaicml-streaming==0.13.0",),
    ),
    "lance": Entry("lance_loader", ("lancedb==0.40.0",)),
    "grain": Entry("grain_loader", ("grain==0.2.18",), needs_torch=False),
    "huggingface": Entry("huggingface_loader", HUGGINGFACE),
    "huggingface_map": Entry("huggingface_map_loader", HUGGINGFACE, home="huggingface"),
}
"""The rows of the table with the versions that are compared. This is the only list of versions."""
DEFAULT = [name for name in ENTRIES if name != "ours_dropping_one"]


class NotInstalledError(Exception):
    """An environment that cannot be made. The message is the reason for the table."""


def python_of(name: str, folder: Path) -> Path:
    """Return the interpreter of an entry; make its environment first, unless it is complete.

    An environment that an interrupted run left is made again.

    Raises:
        NotInstalledError: a package cannot be installed.
    """
    entry = ENTRIES[name]
    wanted = list(entry.packages)
    if entry.requirements is not None:
        wanted += entry.requirements.read_text().splitlines()

    shared = _made(folder / "torch", list(TORCH), None) if entry.needs_torch else None
    return _made(folder / (entry.home or name), wanted, shared, entry.alone) / "bin" / "python"


def _made(home: Path, wanted: list[str], shared: Path | None, alone: tuple[str, ...] = ()) -> Path:
    """Return the environment in `home`; make it first, unless it has these packages.

    Args:
        shared: another environment, whose packages this one reads.
        alone: packages without their dependencies.
    """
    complete = home / "complete.txt"
    content = "\n".join([*wanted, *alone]) + "\n"
    if complete.exists() and complete.read_text() == content:
        return home

    print(f"environment {home.name}: installing", file=sys.stderr)
    _run([sys.executable, "-m", "venv", "--clear", str(home)])
    if shared is not None:
        # Python adds the folders in .pth files to its path.
        (packages,) = home.glob("lib/python*/site-packages")
        (shared_packages,) = shared.glob("lib/python*/site-packages")
        (packages / "shared_torch.pth").write_text(f"{shared_packages}\n")

    requirements = home / "requirements.txt"
    requirements.write_text("\n".join(wanted) + "\n")
    install = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-cache-dir"]
    _run([*install, "-r", str(requirements)])
    if alone:
        _run([*install, "--no-deps", *alone])

    complete.write_text(content)
    return home


def _run(command: list[str]) -> None:
    """Run a command outside of the environment of this process."""
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    if done.returncode:
        raise NotInstalledError(_reason(done.stderr or done.stdout))


def _reason(output: str) -> str:
    """Return the last line of pip's output with an error."""
    lines = output.strip().splitlines()
    errors = [line for line in lines if "ERROR" in line] or lines
    return errors[-1].strip() if errors else "no message"
