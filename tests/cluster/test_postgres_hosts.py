"""Real schedulers on a real PostgreSQL, in one process: they are one scheduler."""

import asyncio
import subprocess
import sys
from datetime import timedelta
from functools import partial
from itertools import count
from urllib.parse import quote

import pytest

import duly
from duly.errors import ForeignSetError, StopSchedulerError, StoreError, StoreSchemaError
from duly.events import Event, PropertyViolated, StoreFault, StoreRecovered
from duly.formal import Value
from duly.formal.properties import BY_ID, PropertyKind
from duly.stores import PostgresStore
from tests.cluster.judged_trace import judge
from tests.postgres_server import PostgresServer, bundled_binaries, server_of

LEASE = timedelta(seconds=5)
_schemas = count(1)


@pytest.fixture
def server() -> PostgresServer:
    """The server of this test process."""
    return server_of(bundled_binaries())


@pytest.fixture
def schema() -> str:
    """A schema of the test's own."""
    return f"hosts {next(_schemas)}"


def rows(server: PostgresServer, schema: str, statement: str) -> list[tuple[object, ...]]:
    return server.execute(f'set search_path = "{schema}"', statement)


async def test_two_schedulers_on_one_database_serve_a_minute_once(server: PostgresServer, schema: str) -> None:
    began: list[int] = []
    ran = asyncio.Event()

    async def work() -> None:
        run = duly.current_run()
        assert run is not None
        run.check()
        assert run.fence is not None
        began.append(run.run_id)
        ran.set()

    schedulers = [duly.Scheduler(PostgresStore(server.url(), schema=schema, lease=LEASE), trace=True) for _ in range(2)]
    for scheduler in schedulers:
        await scheduler.initialize([("report", "* * * * *", work, timedelta(seconds=1))])
    await ran.wait()
    for scheduler in schedulers:
        await scheduler.stop()
    history = rows(server, schema, "select scheduled, outcome from runs order by seq")
    assert len({scheduled for scheduled, _ in history}) == len(history) == len(began)
    assert {outcome for _, outcome in history} == {"success"}
    assert rows(server, schema, "select gone from hosts order by key") == [("l",), ("l",)]
    report = judge(server.url(), schema, bounded=False)
    assert {verdict.value for verdict in report.verdicts.values()} == {Value.SATISFIED}
    assert (report.ended, report.violations, report.crashes) == (True, (), 0)


async def test_twelve_first_starts_at_once_are_one_scheduler(server: PostgresServer, schema: str) -> None:
    """SPEC 9.14, 9.22: one of them creates the schema and puts the set in force, the others join."""
    ran: list[int] = []
    first = asyncio.Event()

    async def work() -> None:
        run = duly.current_run()
        assert run is not None
        ran.append(run.run_id)
        first.set()

    schedulers = [duly.Scheduler(PostgresStore(server.url(), schema=schema, lease=LEASE)) for _ in range(12)]
    tasks = [("report", "* * * * *", work, timedelta(seconds=1))]
    await asyncio.gather(*(scheduler.initialize(tasks) for scheduler in schedulers))
    await first.wait()
    await asyncio.gather(*(scheduler.stop() for scheduler in schedulers))
    assert rows(server, schema, "select edition, count(*) from hosts group by 1") == [(1, 12)]
    assert rows(server, schema, "select kind, count(*) from log where kind in ('joined', 'replaced') group by 1") in (
        [("joined", 11), ("replaced", 1)],
        [("replaced", 1), ("joined", 11)],
    )
    served = rows(server, schema, "select scheduled from runs")
    assert len(set(served)) == len(served) == len(ran)


async def test_two_applications_in_one_schema_are_told_so(server: PostgresServer, schema: str) -> None:
    """SPEC 9.14: the second one shares no name with the first."""

    async def work() -> None:
        pass

    shop, office = (duly.Scheduler(PostgresStore(server.url(), schema=schema, lease=LEASE)) for _ in range(2))
    await shop.initialize([("invoices", "0 3 * * *", work, timedelta(seconds=1))])
    with pytest.raises(ForeignSetError, match="schema"):
        await office.initialize([("coffee", "0 9 * * *", work, timedelta(seconds=1))])
    await shop.stop()
    await office.initialize([("coffee", "0 9 * * *", work, timedelta(seconds=1))])  # nobody is there any more
    await office.stop()


async def test_a_url_alone_is_enough(server: PostgresServer) -> None:
    ran = asyncio.Event()

    async def work() -> None:
        ran.set()

    scheduler = duly.Scheduler(server.url())
    assert "postgresql://duly@" in repr(scheduler)
    await scheduler.initialize([("report", "* * * * *", work, timedelta(seconds=1))])
    await ran.wait()
    await scheduler.stop()
    server.execute("drop schema duly cascade")


async def test_blocking_callbacks_run_in_threads_and_can_ask_whether_they_may_go_on(
    server: PostgresServer, schema: str
) -> None:
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()

    def work() -> None:
        run = duly.current_run()
        assert run is not None
        run.check()
        loop.call_soon_threadsafe(asked.set)

    scheduler = duly.Scheduler(PostgresStore(server.url(), schema=schema, lease=LEASE))
    await scheduler.initialize([("report", "* * * * *", work, timedelta(seconds=1))])
    await asked.wait()
    await scheduler.stop()


async def test_a_stop_that_raises_leaves_no_connection_behind(server: PostgresServer, schema: str) -> None:
    """SPEC 9.19: its host was buried meanwhile."""

    async def work() -> None:
        pass

    url = f"{server.url()}&application_name={quote(schema)}"
    scheduler = duly.Scheduler(PostgresStore(url, schema=schema, lease=timedelta(seconds=30)), monitor=True)
    await scheduler.initialize([("report", "0 0 1 1 *", work, timedelta(seconds=1))])
    opened = f"select pid from pg_stat_activity where application_name = '{schema}'"
    assert server.execute(opened)
    rows(server, schema, "update hosts set gone = 'b' returning key")
    with pytest.raises(StopSchedulerError):
        await scheduler.stop()
    while server.execute(opened):  # noqa: ASYNC110 -- its threads close them, and PostgreSQL tells nobody
        await asyncio.sleep(0.01)


async def test_a_role_that_may_not_create_tables_is_told_the_command(server: PostgresServer, schema: str) -> None:
    """SPEC 9.22."""
    server.execute('drop role if exists "newcomer"', 'create role "newcomer" login')
    scheduler = duly.Scheduler(PostgresStore(server.url(user="newcomer"), schema=schema))
    with pytest.raises(StoreSchemaError, match="duly store install"):
        await scheduler.initialize([])
    assert "not running" in repr(scheduler)


async def test_a_server_that_does_not_answer_is_an_error_that_names_no_password() -> None:
    scheduler = duly.Scheduler("postgresql://app:secret@127.0.0.1:1/shop")
    with pytest.raises(StoreError) as raised:
        await scheduler.initialize([])
    assert "secret" not in str(raised.value)
    assert "secret" not in repr(scheduler)


@pytest.mark.parametrize("given", ["postgresql+psycopg://app@/shop", "postgresql://a@b@c/shop"])
def test_a_url_that_cannot_be_read_is_refused_when_the_scheduler_is_made(given: str) -> None:
    with pytest.raises(StoreError):
        duly.Scheduler(given)


def test_without_the_driver_the_error_says_what_to_install() -> None:
    program = """
import subprocess
import sys
sys.modules["psycopg"] = None
import duly
try:
    duly.Scheduler("postgresql://app@/shop")
except duly.StoreError as error:
    print(error, error.details["hint"], sep="\\n")
"""
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    said, hint = answer.stdout.splitlines()
    assert "not installed" in said
    assert hint == 'pip install "duly[postgres]"'


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"lease": 30}, TypeError),
        ({"lease": timedelta(milliseconds=999)}, ValueError),
        ({"lease": timedelta(hours=2)}, ValueError),
        ({"label": 3}, TypeError),
        ({"label": "x" * 201}, ValueError),
        ({"schema": "public"}, StoreError),
        ({"schema": None}, TypeError),
    ],
)
def test_wrong_options_are_refused(options: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        PostgresStore("postgresql://app@/shop", **options)  # type: ignore[arg-type]


async def test_monitors_judge_what_all_hosts_write(server: PostgresServer, schema: str) -> None:
    """Two hosts with monitors, which find nothing; then an entry is put into the log, and both tell of it."""
    ran, found = asyncio.Event(), [asyncio.Event(), asyncio.Event()]
    told: list[list[Event]] = [[], []]

    async def work() -> None:
        ran.set()

    def listen(number: int, event: Event) -> None:
        told[number].append(event)
        if isinstance(event, PropertyViolated) and event.property == "S2":
            found[number].set()

    schedulers = [
        duly.Scheduler(
            PostgresStore(server.url(), schema=schema, lease=timedelta(seconds=3)),
            monitor=True,
            on_event=partial(listen, number),
        )
        for number in range(2)
    ]
    yearly = [("once", "0 0 1 1 *", work, timedelta(seconds=1)), ("report", "* * * * *", work, timedelta(seconds=1))]
    for scheduler in schedulers:
        await scheduler.initialize(yearly)
    await ran.wait()
    assert [violated_safety(events) for events in told] == [[], []]
    # A start of host 1 that is not owed, as a broken store would have granted it.
    rows(
        server,
        schema,
        "do $$ declare seq_ bigint := enter_1(); now_ bigint := clock_1(); begin "
        "insert into log (seq, host, number, nonce, at, kind, entry) values (seq_, 1, -99, gen_random_uuid(), now_, "
        "'written', jsonb_build_object('ends', '[]'::jsonb, 'running', 0, 'starts', jsonb_build_array("
        "jsonb_build_object('g', '{1}', 'run', '1000900000000', 'cause', 'cron', 'at', now_, 'scheduled', now_, "
        "'mark', now_ / 60000000 * 60, 'interruptions', 0, 'of', jsonb_build_array(now_, now_, 1))))); end $$",
    )
    await asyncio.gather(*(each.wait() for each in found))
    for events in told:
        (violation,) = [each for each in events if isinstance(each, PropertyViolated) and each.property == "S2"]
        assert (violation.task_name, violation.registers["host"]) == ("once", 1)
        ((kind, number),) = rows(server, schema, f"select kind, number from log where seq = {violation.position}")
        assert (kind, number) == ("written", -99)
    for scheduler in schedulers:
        await scheduler.stop()


def violated_safety(events: list[Event]) -> list[PropertyViolated]:
    """Violations but for bounds, which a machine that is short of compute may miss."""
    violations = [event for event in events if isinstance(event, PropertyViolated)]
    return [each for each in violations if BY_ID[each.property].kind is not PropertyKind.BOUNDED]


@pytest.mark.real_time
async def test_a_restart_of_the_server_delays_and_loses_nothing(schema: str) -> None:
    """SPEC 9.20."""
    server = PostgresServer(bundled_binaries())
    try:
        begun, ended, failed, recovered = (asyncio.Event() for _ in range(4))

        def hear(event: Event) -> None:
            if isinstance(event, StoreFault):
                failed.set()
            elif isinstance(event, StoreRecovered):
                recovered.set()

        async def work() -> None:
            begun.set()
            await asyncio.sleep(0.3)
            ended.set()

        store = PostgresStore(server.url(), schema=schema, lease=timedelta(seconds=20))
        scheduler = duly.Scheduler(store, on_event=hear)
        await scheduler.initialize([("report", "* * * * *", work, timedelta(seconds=1))])
        await begun.wait()
        await asyncio.to_thread(server.stop)
        await ended.wait()
        await failed.wait()
        await asyncio.to_thread(server.start)
        await recovered.wait()
        await scheduler.stop()
        outcomes = rows(server, schema, "select outcome from runs order by seq")
        assert outcomes[0] == ("success",)
    finally:
        server.discard()
