"""linerate: what a network path gives a host, what holds it back, what a change is worth.

    import linerate
    check = linerate.check("pit")
    check.up.throughput_bps, check.up.verdict.cause
"""

import json
import os
import pathlib
import shutil
import subprocess
import sysconfig

from .documents import Document, document

__all__ = ["Document", "Error", "check", "document", "program", "read", "run", "stream"]


class Error(Exception):
    """The program failed: its message, its exit status (1: the run or a gate failed; 2: wrong options;
    3: this host lacks something), and the document if there is one."""

    def __init__(self, message, status, document=None):
        super().__init__(message)
        self.status = status
        self.document = document


def program():
    """The program to run: the one of LINERATE, of this package, or in PATH."""
    own = pathlib.Path(sysconfig.get_path("scripts")) / "linerate"
    found = os.environ.get("LINERATE") or (str(own) if own.is_file() else shutil.which("linerate"))
    if not found:
        raise FileNotFoundError("linerate is not installed: pip install linerate")
    return found


def run(command, *words, **options):
    """Runs a command and returns its document. A keyword is an option: `time="5s"` is
    `--time 5s`, `reverse=True` is `--reverse`; a list gives it once for each entry."""
    line = [program(), *command.split(), *(str(word) for word in words if word is not None)]
    for name, value in options.items():
        option = "--" + name.rstrip("_").replace("_", "-")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if one is True:
                line.append(option)
            elif one is not None and one is not False:
                line.append(f"{option}={one}")
    done = subprocess.run(
        [*line, "--json", "--quiet"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    made = document(json.loads(done.stdout)) if done.stdout.strip() else None
    if done.returncode != 0:
        raise Error(done.stderr.strip(), done.returncode, made)
    return made


def check(host=None, **options):
    """What a path gives and what holds it back; without a host, of a demonstration path."""
    return run("check", host, **options)


def stream(host=None, **options):
    """One test of throughput: a Record, or a Sweep of several. `lab="rate=100mbit,rtt=30ms"` emulates
    the path."""
    return run("stream", host, **options)


def read(path):
    """Reads a document that `--output FILE` wrote."""
    with open(path, encoding="utf-8") as file:
        return document(json.load(file))
