"""PostgreSQL's errors as errors of duly: what each says, what it advises, and whether trying again helps."""

import errno

import psycopg
import pytest

from duly.errors import ClusterZoneError, ForeignSetError, HostGoneError, StoreError, StoreRewoundError
from duly.stores.postgres.faults import SAID_MAX, broken, emptied, fault_of


class Refusal(psycopg.Error):
    """An error as a server sends it."""

    def __init__(self, code: str | None, detail: str | None = None, said: str | None = None, text: str = "") -> None:
        super().__init__(text)
        self.said = {"sqlstate": code, "message_detail": detail, "message_primary": said}

    @property
    def diag(self) -> object:  # type: ignore[override]
        return type("Diagnostic", (), self.said)


def fault(code: str | None, detail: str | None = None, said: str | None = None, text: str = "") -> StoreError:
    found = fault_of(Refusal(code, detail, said, text), "of the shop", "write")
    assert found.details["store"] == "of the shop"
    return found


@pytest.mark.parametrize(
    ("code", "detail", "kind", "message"),
    [
        ("DU001", "buried 3", HostGoneError, "Host 3 of store of the shop was buried"),
        ("DU001", "left 12", HostGoneError, "Host 12 of store of the shop has left"),
        ("DU001", "missing 3", StoreRewoundError, "host 3"),
        ("DU004", "7", StoreRewoundError, "entry 7 of the log"),
        ("DU006", "", ForeignSetError, "share no name with those in force in of the shop"),
        ("DU007", "Asia/Tokyo", ClusterZoneError, "whose hosts run in zone Asia/Tokyo"),
    ],
)
def test_the_answers_of_dulys_own_functions_have_classes_of_their_own(
    code: str, detail: str, kind: type[StoreError], message: str
) -> None:
    """SPEC 9.5, 9.12, 9.14, 9.21."""
    found = fault(code, detail)
    assert type(found) is kind
    assert message in found.message


@pytest.mark.parametrize(
    ("code", "message", "hint", "permanent"),
    [
        ("25006", "is read-only", "connect to the primary", False),
        ("28P01", "refuses the role or its password", "check user, password", True),
        ("3D000", "does not exist", "create the database", True),
        ("42501", "refuses the role a right", "duly store sql --grant ROLE", True),
        ("53100", "cannot grow: the disk of the server is full", "make room", False),
        ("53300", "lacks a resource", "look at the server's limits", False),
        ("55P03", "is locked by hand", "end LOCK", False),
        ("57P01", "was interrupted by its server", "duly tries again", False),
    ],
)
def test_a_known_fault_says_what_to_do(code: str, message: str, hint: str, permanent: bool) -> None:
    """SPEC 9.20: the whole code is looked for first, and then its class."""
    found = fault(code, None, "what PostgreSQL says")
    assert found.message.startswith(f"Store of the shop {message}")
    assert hint in found.details["hint"]
    assert (found.details["code"], found.details["permanent"], found.details["operation"]) == (code, permanent, "write")
    assert isinstance(found.details["cause"], Refusal)


def test_any_other_fault_is_told_in_the_words_of_postgresql() -> None:
    found = fault("22012", None, "division by zero", text="something longer")
    assert found.message == "Store of the shop failed: division by zero"
    assert found.details.get("hint") is None
    assert found.details["permanent"] is True


def test_a_server_that_cannot_be_reached_is_told_in_the_words_of_libpq() -> None:
    found = fault(None, text="\nconnection refused\nIs the server running?\n")
    assert found.message == "Store of the shop cannot be reached: connection refused"
    assert found.details["hint"] == "is the server running, and the URL right?"
    assert (found.details["code"], found.details["permanent"]) == ("", False)
    assert fault(None).message == "Store of the shop cannot be reached: Refusal"


def test_a_long_message_of_postgresql_is_cut() -> None:
    assert fault("22012", None, "x" * SAID_MAX).message.endswith(" " + "x" * SAID_MAX)
    assert fault("22012", None, "x" * (SAID_MAX + 1)).message.endswith(" " + "x" * SAID_MAX + "…")


@pytest.mark.parametrize(
    ("cause", "said"),
    [
        (OSError(errno.EMFILE, "Too many open files"), "Too many open files"),
        (OSError("odd"), "odd"),
        (OSError(errno.EIO, "x" * (SAID_MAX + 1)), "x" * SAID_MAX + "…"),
    ],
)
def test_a_fault_of_this_machine_may_pass(cause: OSError, said: str) -> None:
    """SPEC 9.20: such as too many open files."""
    found = broken(cause, "of the shop", "beat")
    assert found.message == f"Store of the shop cannot be reached: {said}"
    kept = {name: found.details[name] for name in ("store", "operation", "code", "permanent", "cause")}
    assert kept == {"store": "of the shop", "operation": "beat", "code": "", "permanent": False, "cause": cause}


def test_a_table_that_was_emptied_by_hand_is_damage_that_stays() -> None:
    found = emptied("of the shop", "cluster")
    assert found.message == "Store of the shop is damaged: its table cluster is empty"
    assert found.details["permanent"] is True
