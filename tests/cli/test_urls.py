"""Commands on a URL against a real server: what they say of hosts, how the store is named, and no password anywhere."""

import json
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx
import psycopg
import pytest

from duly.core.moments import Instant
from duly.stores.postgres.url import read_url
from duly.stores.shared import EditionVerdict
from duly.web import dashboard
from tests.cli.program import ROOT, Outcome, Service, duly, write_target
from tests.cli.shop import RARELY, TARGET, SharedStage, in_another_process
from tests.postgres_server import PostgresServer, bundled_binaries, server_of
from tests.stores.shared_hosts import MINUTE, TestHost

SECRET = "s3cret"


@pytest.fixture(scope="module")
def server() -> PostgresServer:
    return server_of(bundled_binaries())


@pytest.fixture(scope="module")
def made(server: PostgresServer) -> Iterator[SharedStage]:
    stage = SharedStage(server)
    yield stage
    stage.close()


@pytest.fixture
def stage(made: SharedStage) -> SharedStage:
    made.fill()
    return made


def answers(commands: Sequence[Sequence[str]], folder: Path) -> list[Outcome]:
    """The outcomes of commands, one after the other."""
    return [duly(*command, folder=folder) for command in commands]


# --- what they say ---------------------------------------------------------------------------------------------------


def test_status_lists_the_hosts(stage: SharedStage, tmp_path: Path) -> None:
    """Label, edition, the age of the beat by the clock of the database, and runs."""
    text, document = answers([["status", *stage.options], ["status", *stage.options, "--json"]], tmp_path)
    assert (text.code, text.err) == (0, "")
    lines = text.out.splitlines()
    assert lines[0] == stage.store.url.name
    assert lines[1].startswith("1 living host, edition 1 in force since ")
    (row,) = [line.split() for line in lines if "web-1" in line]
    assert row[:4] == ["1", "web-1", "living", "1"]
    assert "hosts that went within the last hour: 1 buried" in text.out
    assert lines[-1] == "healthy"
    found = json.loads(document.out)
    assert [(each["key"], each["state"], each["runs"]) for each in found["cluster"]["hosts"]] == [
        (1, "living", 1),
        (2, "buried", 0),
    ]
    assert found["cluster"]["edition"] == 1
    assert found["holder"]["alive"]
    (running,) = [each for each in found["tasks"] if each["state"] == "running"]
    assert running["host"] == {"key": 1, "label": "web-1"}
    assert found["warnings"] == []


def test_status_is_unhealthy_without_a_living_host(stage: SharedStage, tmp_path: Path) -> None:
    """SPEC 9.16: or while one is outdated for more than ten minutes."""
    stage.store.connection.read(
        "update hosts set renewed_at = now() - interval '2 hours' where key = 1", within_schema=True, limit_seconds=15
    )
    text = duly("status", *stage.options, folder=tmp_path)
    assert text.code == 1
    assert "unhealthy: no host is living; the last beat was " in text.out
    assert "host 1 (web-1) left 1 run marked running" in text.out


def test_status_names_a_host_that_was_forgotten_in_a_rollout(stage: SharedStage, tmp_path: Path) -> None:
    """SPEC 9.16."""
    stage.store.now = Instant(stage.began + 3 * MINUTE)
    third = TestHost(stage.store, "c" * 32)
    third.join({**RARELY, "mail": ("0 5 1 1 *", 0)}, lease=60 * MINUTE, label="web-3", zone="Africa/Lagos")
    early = duly("status", *stage.options, folder=tmp_path)
    assert (early.code, "(outdated for 7 min" in early.out) == (0, True)
    stage.store.connection.read(
        "update log set at = at - 600000000; update editions set since = since - interval '10 min'; "
        "update hosts set since = since - 600000000",
        within_schema=True,
        limit_seconds=15,
    )
    late = duly("status", *stage.options, folder=tmp_path)
    assert late.code == 1
    assert "unhealthy: host 1 (web-1) declares edition 1, and has been outdated for " in late.out


def test_status_says_which_host_cannot_write(stage: SharedStage, tmp_path: Path) -> None:
    """SPEC 9.20: a right was revoked; its beats arrive."""
    stage.first.beat(fault="permission denied for table runs")
    text, document = answers([["status", *stage.options], ["status", *stage.options, "--json"]], tmp_path)
    reason = "host 1 (web-1) cannot write, and this does not pass by itself: permission denied for table runs"
    assert f"unhealthy: {reason}" in text.out
    assert (text.code, document.code) == (1, 1)
    told = json.loads(document.out)
    assert {"code": "host-cannot-write", "text": reason} in told["problems"]
    assert [host["fault"] for host in told["cluster"]["hosts"] if host["key"] == 1] == [
        "permission denied for table runs"
    ]
    stage.first.beat()
    (after,) = answers([["status", *stage.options]], tmp_path)
    assert "cannot write" not in after.out


def test_history_and_explain_name_the_host(stage: SharedStage, tmp_path: Path) -> None:
    """Which ran it, which took it over, and that a burial cut it short."""
    at = stage.moment(2)
    table, each, document, explained = answers(
        [
            ["history", *stage.options],
            ["history", *stage.options, "--verbose"],
            ["history", "backup", *stage.options, "--json"],
            ["explain", "backup", "--at", at, *stage.options],
        ],
        tmp_path,
    )
    assert [line.split()[-3:] for line in table.out.splitlines()[1:4]] == [
        ["web-1", "success", "cron"],
        ["web-2", "interrupted", "cron"],
        ["web-1", "running", "interrupted"],
    ]
    assert "host" in table.out.splitlines()[0].split()
    assert "  host       host 2 (web-2)" in each.out
    assert [run["host"]["label"] for run in json.loads(document.out)["runs"]] == ["web-2", "web-1"]
    assert "host 2 (web-2) ran it" in explained.out
    assert "host 2 (web-2) was buried: its last beat was at " in explained.out


def test_explain_says_when_the_steps_of_a_run_were_held(stage: SharedStage, tmp_path: Path) -> None:
    """SPEC 9.6: its host did not reach the database for two minutes more than its lease."""
    stage.first.beat(held=2 * MINUTE)
    at = stage.moment(4)  # host 1 repeats the run that the burial cut short, and goes on
    text, document = answers(
        [
            ["explain", "backup", "--at", at, *stage.options],
            ["explain", "backup", "--at", at, *stage.options, "--json"],
        ],
        tmp_path,
    )
    assert "host 1 (web-1) did not reach the store in time: from " in text.out
    assert "it took no step of its coroutines" in text.out
    (held,) = [each for each in json.loads(document.out)["reasons"] if each["code"] == "stepsHeld"]
    assert (held["facts"]["host"], held["facts"]["times"], held["facts"]["heldMs"]) == (1, 1, 120_000)


def test_plan_says_which_hosts_become_outdated(stage: SharedStage, tmp_path: Path) -> None:
    """SPEC 9.14."""
    (tmp_path / "tasks.py").write_text(TARGET)
    (tmp_path / "same.py").write_text("\n".join(line for line in TARGET.splitlines() if "mail" not in line))
    (tmp_path / "other.py").write_text(TARGET.replace('"backup"', '"x"').replace('"report"', '"y"'))
    new, document, same, other = answers(
        [
            ["plan", "tasks.py", *stage.options],
            ["plan", "tasks.py", *stage.options, "--json"],
            ["plan", "same.py", *stage.options],
            ["plan", "other.py", *stage.options],
        ],
        tmp_path,
    )
    assert ", with 1 living host" in new.out.splitlines()[0]
    assert "A host that joins puts edition 2 in force, instead of 1" in new.out
    assert "host 1 (web-1) is then outdated" in new.out
    assert json.loads(document.out)["edition"] == {
        "verdict": "applied",
        "edition": 2,
        "inForce": 1,
        "outdatedHosts": [{"key": 1, "label": "web-1"}],
    }
    assert "A host that joins declares edition 1, which is in force: nothing changes" in same.out
    assert "A host that joins is refused" in other.out


def test_a_store_that_no_host_has_used_is_named(server: PostgresServer, tmp_path: Path) -> None:
    """A plan of it is a first start-up; everything else says that there is nothing yet."""
    (tmp_path / "tasks.py").write_text(TARGET)
    options = ["--store", server.url(), "--schema", "never"]
    status, plan = answers([["status", *options], ["plan", "tasks.py", *options]], tmp_path)
    assert status.code == 4
    assert "no host has used this store yet: postgresql://duly@" in status.err
    assert (plan.code, "3 new" in plan.out) == (0, True)


def test_the_trace_of_all_hosts_is_exported(stage: SharedStage, tmp_path: Path) -> None:
    """One segment; a store without one says so, to verify as well."""
    arguments = [stage.url, "--schema", stage.schema]
    done = duly("verify", stage.url, "--schema", "never", folder=tmp_path)
    assert done.code == 4
    export, verify = answers([["trace", "export", *arguments], ["verify", *arguments]], tmp_path)
    for each in (export, verify):
        assert (each.code, each.out) == (7, "")
        assert "holds no trace" in each.err
    fresh = TestHost(stage.store, "e" * 32)
    request, arrivals = fresh.request({**RARELY, "mail": ("0 5 1 1 *", 0)}, traced=True, zone="Africa/Lagos")
    stage.store.arrive(fresh.identifier, arrivals)
    assert stage.store.replace(request).verdict is EditionVerdict.APPLIED
    export, verify = answers(
        [["trace", "export", *arguments, "-o", "t.jsonl", "--json"], ["verify", *arguments, "--json"]], tmp_path
    )
    assert (export.code, export.err, verify.code, verify.err) == (0, "", 0, "")
    lines = (tmp_path / "t.jsonl").read_text().splitlines()
    told, judged = json.loads(export.out), json.loads(verify.out)
    assert (told["events"], told["segments"], told["seal"]) == (len(lines) - 2, 1, "open")
    assert [json.loads(line)[0] for line in lines[1:4]] == ["BT", "IS", "RG"]
    assert (judged["events"], judged["verdict"], judged["current"]) == (len(lines) - 2, "holding", True)


def test_names_of_tasks_are_completed_from_a_url(stage: SharedStage, tmp_path: Path) -> None:
    """The store is given before, or in the environment."""
    found = duly(
        folder=tmp_path,
        DULY_STORE=stage.url,
        DULY_SCHEMA=stage.schema,
        _DULY_COMPLETE="bash_complete",
        COMP_WORDS="duly explain ba",
        COMP_CWORD="2",
    )
    assert found.out.split(",")[-1].strip() == "backup"


async def test_the_dashboard_shows_a_store_on_a_server(stage: SharedStage) -> None:
    """By its URL, as an application and as a command."""
    app = dashboard(stage.url.replace("duly@", f"duly:{SECRET}@"), schema=stage.schema)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://test") as client:
        pages = {
            path: await client.get(path) for path in ("/tasks", "/runs", "/about", "/task?name=backup", "/api/v1/runs")
        }
    assert {path: page.status_code for path, page in pages.items()} == dict.fromkeys(pages, 200)
    assert "backup" in pages["/tasks"].text
    assert "(schema " in pages["/about"].text
    assert not any(SECRET in page.text for page in pages.values())


# --- how a store is named --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def keeper(server: PostgresServer) -> Iterator[PostgresServer]:
    """A server on which the role `keeper` needs its password; everybody else is trusted."""
    server.execute("drop role if exists keeper", f"create role keeper login superuser password '{SECRET}'")
    rules = server.folder / "data" / "pg_hba.conf"
    before = rules.read_text()
    rules.write_text(f"local all keeper scram-sha-256\n{before}")
    server.execute("select pg_reload_conf()")
    for _ in range(1000):  # until the server has read it
        try:
            psycopg.connect(server.url(user="keeper", password="wrong")).close()
        except psycopg.OperationalError:
            break
    yield server
    rules.write_text(before)
    server.execute("select pg_reload_conf()", "drop owned by keeper cascade", "drop role keeper")


def test_libpqs_own_ways_lead_to_a_store(keeper: PostgresServer, stage: SharedStage, tmp_path: Path) -> None:
    """SPEC 9.22: service, password file, environment, several hosts; so that no password stands in a command line."""
    folder = keeper.folder
    (tmp_path / "services").write_text(f"[shop]\nhost={folder}\ndbname=postgres\nuser=keeper\n")
    (tmp_path / "passwords").write_text(f"*:*:*:keeper:{SECRET}\n")
    (tmp_path / "passwords").chmod(0o600)
    ways = [
        ("postgresql://?service=shop", {"PGSERVICEFILE": str(tmp_path / "services"), "PGPASSWORD": SECRET}),
        (f"postgresql://keeper@/postgres?host={folder}", {"PGPASSFILE": str(tmp_path / "passwords")}),
        (f"postgres://keeper@/postgres?host=/nowhere,{folder}", {"PGPASSWORD": SECRET}),
        ("postgresql:///postgres", {"PGHOST": str(folder), "PGUSER": "keeper", "PGPASSWORD": SECRET}),
    ]
    for url, extra in ways:
        done = duly("status", "--json", folder=tmp_path, DULY_STORE=url, DULY_SCHEMA=stage.schema, **extra)
        assert (done.code, done.err) == (0, ""), url
        assert len(json.loads(done.out)["tasks"]) == 2
        assert SECRET not in done.out + done.err


COMMANDS = [
    "status --store",
    "status --json --store",
    "history --store",
    "history --json --store",
    "explain backup --store",
    "explain nothing --store",
    "plan tasks.py --store",
    "plan tasks.py --json --store",
    "trace export",
    "verify",
    "copy state.db",
    "copy --no-trace",
]
"""Commands whose next argument is the URL of a store."""

URLS = [
    "postgresql://keeper:SECRET@/postgres?host=FOLDER",
    "postgresql://keeper@/postgres?host=FOLDER&password=SECRET",
    "postgresql://keeper:wrong-SECRET@/postgres?host=FOLDER",
    "postgresql://keeper:SECRET@127.0.0.1:1/shop",
    "postgresql://keeper:SECRET@/nothing?host=FOLDER",
    "postgresql+psycopg://keeper:SECRET@/shop",
    "postgresql://keeper:SECRET/x@127.0.0.1:1/shop",
    "postgresql://SECRET%zz@/shop",
]
"""Right, in the query, wrong, unreachable, without its database, SQLAlchemy's, and two that libpq cannot read."""


def test_no_command_ever_shows_a_password(keeper: PostgresServer, stage: SharedStage, tmp_path: Path) -> None:
    """SPEC 9.22: neither in output nor in errors, whatever the command does with the URL."""
    (tmp_path / "tasks.py").write_text(TARGET)
    urls = [each.replace("SECRET", SECRET).replace("FOLDER", str(keeper.folder)) for each in URLS]
    commands = []
    for number, url in enumerate(urls):
        more = [[f"copied-{number}.db"] if each.startswith("copy --") else [] for each in COMMANDS]
        commands += [[*c.split(), url, *m, "--schema", stage.schema] for c, m in zip(COMMANDS, more, strict=True)]
        commands += [["store", "check", url], ["store", "install", url, "--schema", "shown"]]
        if number > 1:  # it would serve a store that is there until it is ended
            commands += [["run", "tasks.py", "--store", url]]
            commands += [["mcp", "--store", url], ["web", "--host", "0.0.0.0", "--store", url]]
    done = in_another_process(commands, tmp_path)
    for command, printed in zip([*commands, ["the rest"]], done, strict=True):
        assert SECRET not in printed.out + printed.err, command
        assert "Traceback" not in printed.err, (command, printed.err)
    codes = {printed.code for printed in done[: len(COMMANDS)]}
    assert codes >= {0, 4, 5, 7}  # with the right password they have something to say
    assert {printed.code for printed in done[2 * len(COMMANDS) + 4 : -1]} <= {2, 4}
    served = duly("mcp", "--store", urls[0], "--schema", stage.schema, folder=tmp_path)
    assert (served.code, SECRET in served.out + served.err) == (0, False)
    assert all(SECRET not in file.read_text(errors="replace") for file in tmp_path.iterdir() if file.is_file())


@pytest.mark.parametrize(
    "command",
    [["plan", "URL", "--store", "state.db"], ["next", "URL"], ["check", "URL"], ["URL"], ["run", "--once", "a", "URL"]],
    ids=" ".join,
)
def test_a_url_in_a_wrong_place_is_not_quoted_with_its_password(command: list[str], tmp_path: Path) -> None:
    """A slip of the hand must not end up in a log."""
    for url in (f"postgresql://app:p@{SECRET}@db/shop", f"postgresql://app@db/shop?password={SECRET}"):
        done = duly(*(url if each == "URL" else each for each in command), folder=tmp_path)
        assert done.code != 0
        assert SECRET not in done.out + done.err


def test_a_url_of_sqlalchemy_gets_the_hint(tmp_path: Path) -> None:
    """SPEC 9.22."""
    done = duly("status", "--store", f"postgresql+asyncpg://app:{SECRET}@db/shop", folder=tmp_path)
    assert done.code == 4
    assert "write postgresql:// instead" in done.err


def test_without_psycopg_the_extra_is_named(tmp_path: Path) -> None:
    """A file needs no driver."""
    (tmp_path / "psycopg.py").write_text("raise ImportError('not here')")
    write_target(tmp_path, '[("a", "0 0 1 1 *", quick, timedelta(0))]')
    path = {"PYTHONPATH": f"{tmp_path}:{ROOT / 'src'}"}
    done = duly("status", "--store", "postgresql://app@/shop", folder=tmp_path, **path)
    assert (done.code, done.out) == (4, "")
    assert 'pip install "duly[postgres]"' in done.err
    assert duly("plan", "tasks.py", "--store", "state.db", folder=tmp_path, **path).code == 0


@pytest.mark.real_time
def test_two_programs_on_one_url_are_hosts_of_one_scheduler(server: PostgresServer, tmp_path: Path) -> None:
    """SPEC 9.1: `duly run` takes the URL; each process is a host with a label, and `status` shows both."""
    write_target(tmp_path, '[("endless", "* * * * *", endless, timedelta(hours=1))]')
    server.execute("drop schema if exists together cascade")
    options = ["--store", server.url(), "--schema", "together"]
    run = ["tasks.py", "--trace", *options]
    with Service(*run, folder=tmp_path) as one, Service(*run, folder=tmp_path) as two:
        ready = [each.expect("ProgramReady") for each in (one, two)]
        assert ready[0]["store"] == read_url(server.url(), "together").name
        found = duly("status", *options, "--json", folder=tmp_path).json
        hosts = found["cluster"]["hosts"]
        assert [each["state"] for each in hosts] == ["living", "living"]
        assert {each["label"].split()[-1] for each in hosts} == {str(one.pid), str(two.pid)}
        refused = duly("copy", *options[1:2], "state.db", *options[2:], folder=tmp_path)
        assert refused.code == 5
        judged = duly("verify", *options[1:], "--no-bounds", "--json", folder=tmp_path)
        assert (judged.code, judged.json["current"], judged.json["crashes"]) == (0, True, 0)
        assert duly("trace", "export", *options[1:], "-o", "t.jsonl", folder=tmp_path).code == 0
        hosts_in_the_trace = {json.loads(line)[3] for line in (tmp_path / "t.jsonl").read_text().splitlines()[1:-1]}
        assert hosts_in_the_trace == {1, 2}


def test_a_monitor_on_a_url_keeps_a_trace_and_judges_it(server: PostgresServer, tmp_path: Path) -> None:
    write_target(tmp_path, '[("a", "0 0 1 1 *", quick, timedelta(0))]')
    server.execute("drop schema if exists watched cascade")
    options = ["--store", server.url(), "--schema", "watched"]
    with Service("tasks.py", "--monitor", *options, folder=tmp_path) as service:
        service.expect("ProgramReady")
        judged = duly("verify", *options[1:], "--no-bounds", "--json", folder=tmp_path)
        assert (judged.code, judged.json["current"]) == (0, True)
        service.send(signal.SIGTERM)
        assert service.end().code == 0
    assert "violations" not in service.lines[-1]
