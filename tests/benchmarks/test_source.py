"""Results name the code that was measured."""

import subprocess
from pathlib import Path

from benchmarks.source import Source, digest, source


def test_a_digest_follows_from_names_and_contents_alone(tmp_path: Path) -> None:
    """Two copies have one digest; a change, another name or a further file is another; compiled files do not count."""
    for name in ("one", "two"):
        (tmp_path / name / "web").mkdir(parents=True)
        (tmp_path / name / "a.py").write_text("x = 1")
        (tmp_path / name / "web" / "page.html").write_text("<p>")
    one, two = tmp_path / "one", tmp_path / "two"
    before = digest(one)
    (one / "__pycache__").mkdir()
    (one / "__pycache__" / "a.pyc").write_text("compiled")
    assert digest(one) == digest(two) == before
    (two / "web" / "page.html").write_text("<b>")
    assert digest(two) != before
    (one / "a.py").rename(one / "b.py")
    assert digest(one) != before


def test_a_commit_is_named_with_changes_and_left_out_where_there_is_none(tmp_path: Path) -> None:
    """A checkout, one with an edited file, and an unpacked archive."""
    (tmp_path / "src" / "duly").mkdir(parents=True)
    module = tmp_path / "src" / "duly" / "a.py"
    module.write_text("x = 1")
    alone = source(tmp_path)
    assert (alone.commit, str(alone)) == ("", f"src/duly {alone.source}")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *command], check=True)
    head = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout[:12]
    assert source(tmp_path) == Source(head, alone.source)
    assert str(source(tmp_path)) == f"commit {head}, src/duly {alone.source}"
    module.write_text("x = 2")
    assert source(tmp_path).commit == f"{head} with changes"


def test_earlier_results_say_nothing_about_their_code() -> None:
    """And nothing is shown then."""
    assert str(Source()) == ""
