"""Build the packages of a release, and check them: `python -m tests.release`, or `make dist`. Nothing is fetched.

Wheel and source archive are built twice and compared, and the wheel a third time from the source archive. Then twine
and check-wheel-contents look at them, the wheel is installed into an environment with nothing but tzdata and tzlocal,
in which the examples of the README run, and pyright looks at its types. `dist` then has the wheel, the source archive,
the list of their components (CycloneDX) and the checksums.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import venv
from collections.abc import Iterable
from pathlib import Path

from tests.programs import ROOT
from tests.release import packages

BIN = Path(sys.executable).parent
PATIENCE_SECONDS = 120


def say(text: str) -> None:
    """Report a step."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def insist(faults: Iterable[str], what: str) -> None:
    """End with what is wrong; otherwise say what is right."""
    if found := list(faults):
        sys.exit(f"{what}: no\n" + "\n".join(f"  {fault}" for fault in found))
    say(f"  {what}")


def tool(*command: str | Path, folder: Path = ROOT, **extra: str) -> str:
    """Run a program to its end, and return what it prints; end with that if it fails."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(each) for each in command],
        cwd=folder,
        env={**kept, **extra},
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command[0]}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


# --- steps -----------------------------------------------------------------------------------------------------------


def build(source: Path, target: Path, *kinds: str) -> None:
    """Build packages of a checkout, without a network; time stamps in them are those of its last commit."""
    moment = "1580601600"  # what hatchling takes where there is no commit
    if (ROOT / ".git").exists():
        moment = tool("git", "log", "-1", "--format=%ct").strip()
    tool(BIN / "python", "-m", "hatchling", "build", "-d", target, *kinds, folder=source, SOURCE_DATE_EPOCH=moment)


def build_again(scratch: Path, dist: Path, version: str) -> None:
    """Build everything a second time, and the wheel from the source archive; nothing may differ."""
    build(ROOT, scratch / "again")
    insist(packages.unlike(dist, scratch / "again"), "two builds are the same, byte by byte")
    with tarfile.open(dist / f"duly-{version}.tar.gz") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", lambda member, _: member)  # new in Python 3.11.4
        archive.extractall(scratch)
    build(scratch / f"duly-{version}", scratch / "unpacked", "-t", "wheel")
    shutil.copyfile(dist / f"duly-{version}.tar.gz", scratch / "unpacked" / f"duly-{version}.tar.gz")
    insist(packages.unlike(dist, scratch / "unpacked"), "the source archive gives the same wheel")


def install(wheel: Path, place: Path, wheels: Path) -> Path:
    """Install a wheel with its requirements into an empty environment; the interpreter of that."""
    venv.create(place, clear=True, with_pip=False, symlinks=True)
    python = place / "bin" / "python"
    pip = (BIN / "python", "-m", "pip", "--python", python)
    tool(*pip, "install", "-q", "--no-index", "--find-links", wheels, wheel)
    tool(*pip, "check")
    listing = json.loads(tool(*pip, "list", "--format", "json"))
    insist(
        packages.differing(packages.installed(listing), packages.ALONE),
        "an empty environment then has duly, tzdata and tzlocal",
    )
    return python


def run_the_examples(python: Path, folder: Path) -> None:
    """Run both examples of the README, and the command, which lacks its libraries and says so."""
    folder.mkdir()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    (folder / "first.py").write_text(packages.example_of(readme, 1))
    (folder / "second.py").write_text(packages.example_of(readme, 2))
    first = [str(python), "-u", "-W", "error", "first.py"]
    with subprocess.Popen(first, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    if (line, process.returncode, errors) != ("still here\n", 0, ""):
        sys.exit(f"the first program of the README: {line!r}, exit code {process.returncode}\n{errors}")
    tool(python, "-W", "error", "second.py", folder=folder)
    hint = subprocess.run([python.parent / "duly", "--version"], capture_output=True, text=True, check=False)
    if hint.returncode != 2 or 'pip install "duly[cli]"' not in hint.stderr:
        sys.exit(f"the command without its extra: exit code {hint.returncode}\n{hint.stderr}")
    say("  the examples of the README run there, and the command says what to install")


def look_at_types(scratch: Path) -> None:
    """Every public name is completely typed."""
    command = [str(BIN / "basedpyright"), "--verifytypes", "duly", "--ignoreexternal", "--outputjson"]
    # It asks the first interpreter of PATH where packages are; an option for that is heard by its other commands only.
    here = {**os.environ, "VIRTUAL_ENV": str(BIN.parent), "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        command, cwd=scratch, env=here, capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False
    )
    try:
        report = json.loads(done.stdout)
    except ValueError:
        sys.exit(f"basedpyright: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    public = packages.public_definitions()
    insist(packages.incomplete(report, public), f"{len(public)} public names are completely typed")


def main() -> None:
    """Run every step, and end at the first that fails."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wheels", type=Path, required=True, help="a folder with wheels of tzdata and tzlocal")
    parser.add_argument("--into", type=Path, default=ROOT / "dist")
    arguments = parser.parse_args()
    version = packages.version()
    dist, scratch = arguments.into, ROOT / "build" / "dist"
    for folder in (dist, scratch):
        shutil.rmtree(folder, ignore_errors=True)
    scratch.mkdir(parents=True)
    say(f"duly {version}")
    if changed := packages.uncommitted():
        say(f"  note: not a release, these are not as committed: {', '.join(changed[:5])}{' …' if changed[5:] else ''}")
    build(ROOT, dist)
    wheel, archive = dist / f"duly-{version}-py3-none-any.whl", dist / f"duly-{version}.tar.gz"
    build_again(scratch, dist, version)
    sources = packages.source_files()
    found = packages.differing(packages.names_in(wheel), packages.expected_in_wheel(sources, version))
    insist(found, "the wheel has the package, man pages and completion, and nothing else")
    found = packages.differing(packages.names_in(archive), packages.expected_in_source_archive(sources, version))
    insist(found, "the source archive has the checkout, and nothing else")
    tool(BIN / "twine", "check", "--strict", wheel, archive)
    tool(BIN / "check-wheel-contents", wheel)
    say("  twine and check-wheel-contents have no objection")
    python = install(wheel, scratch / "empty", arguments.wheels)
    run_the_examples(python, scratch / "examples")
    tool(BIN / "python", "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--force-reinstall", wheel)
    shown = tool(BIN / "duly", "--version", folder=scratch)
    insist([] if shown.startswith(f"duly {version} ") else [shown], "with its libraries, the command says its version")
    look_at_types(scratch)
    components = dist / f"duly-{version}.cdx.json"
    described = ("--pyproject", ROOT / "pyproject.toml", "--output-reproducible", "--of", "JSON", "-o", components)
    tool(BIN / "cyclonedx-py", "environment", *described, python)
    (dist / "SHA256SUMS").write_text(packages.checksums(dist))
    say("\n".join(f"  {path.relative_to(ROOT)}" for path in sorted(dist.iterdir())))


if __name__ == "__main__":
    main()
