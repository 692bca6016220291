"""The statements that create a shared store, as text."""

from duly.stores.postgres.script import grants, installation, lock, quoted, script


def test_a_script_for_migration_tools_is_one_transaction() -> None:
    """SPEC 9.22: `duly store sql` prints it; with a role, the rights of a host stand at its end."""
    text = script("jobs")
    assert text.startswith(f'begin;\n{lock("jobs")};\ncreate schema if not exists "jobs";\n')
    assert installation("jobs") in text
    assert text.endswith("\ncommit;\n")
    assert "grant " not in text
    assert script("jobs", "app") == text.removesuffix("\ncommit;\n") + f"\n{grants('jobs', 'app')}\ncommit;\n"


def test_names_are_quoted_wherever_they_stand() -> None:
    """A quotation mark in the name of a schema or of a role ends no identifier and no text."""
    assert quoted('a "b"') == '"a ""b"""'
    assert "E'duly:it''s \\\\'" in lock("it's \\")
    assert 'on schema "a""b" to "c""d"' in grants('a"b', 'c"d')
    assert ':"schema"' not in installation('a"b')
    assert '"a""b"' in installation('a"b')
