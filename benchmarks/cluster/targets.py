"""The targets of duly on PostgreSQL, row by row, beside what was measured."""

from collections.abc import Callable, Iterator
from dataclasses import replace

from benchmarks.cluster.plan import (
    COMMIT_SECONDS,
    LEASE_SECONDS,
    ORDINARY,
    SCHEDULERS,
    SERVED_WITHIN,
    SLOW_COMMITS,
    TASKS_OF_A_HOST,
    Size,
    key_due,
    measurements,
)
from benchmarks.figures import Figure, Figures
from benchmarks.judging import Judge, Verdict

GOES_ON_SECONDS = LEASE_SECONDS * 4 / 3 + 1
ON_TIME_SECONDS = 1.0
IDLE_TRANSACTIONS = 40
"""Of three hosts in a minute."""

EXPRESSIONS = {"three hosts": "1,440 expressions", "three hosts, one expression": "one expression"}


def verdicts(figures: Figures, size: Size) -> list[Verdict]:
    """Every row, whether it was measured in this run or not."""
    judge = Judge(figures, measurements(size), full=size.is_full)
    return [
        *_faults(judge, size),
        *_due(judge, size),
        *_idle(judge),
        *_store(judge, size),
        *_hosts(judge, size),
        *_one_host(judge, size),
        *_mutex(judge),
        *_slow_commits(judge, size),
        *_most(judge, size),
        *_fence(judge),
    ]


def _faults(judge: Judge, size: Size) -> Iterator[Verdict]:
    figures, key, timetable = judge.figures, "faults duly", size.timetable
    section = f"three hosts and faults, a lease of {LEASE_SECONDS} s"
    least, most = figures.of(key, "runs_least"), figures.of(key, "runs_most")
    yield judge.exactly(section, "runs of a task that is due, each minute", 1, "1", least, most, key)
    paused = timetable.resume_at - timetable.pause_at
    what = f"a host is paused for {paused:.0f} s: overlap of its run with others"
    yield judge.at_most(section, what, 0, "s", figures.of(key, "overlap_s"), key)
    yield judge.stated(section, "… its task starts elsewhere after", figures.of(key, "elsewhere_s"), "s", key)
    least, most = figures.of(key, "made_up_least"), figures.of(key, "made_up_most")
    what = f"{len(timetable.missed)} minutes while all hosts are down: runs for them afterwards"
    yield judge.exactly(section, what, 1, "1", least, most, key)
    what, watched = "a host is killed: its run goes on after", timetable.killed_until - timetable.kill_at
    resumed = figures.of(key, "resumed_s")
    if resumed is None and figures.of(key, "killed") is not None:
        yield _never(judge.at_most(section, what, GOES_ON_SECONDS, "s", Figure.of([watched]), key), watched)
    else:
        yield judge.at_most(section, what, GOES_ON_SECONDS, "s", resumed, key)
    what = "`pg_ctl restart -m fast`: hosts that go on"
    left = figures.of(key, "hosts_after_restart")
    yield judge.exactly(section, what, 3, "3", left, left, key)
    late, what = figures.of(key, "late_after_restart_s"), "… latest start of the next minutes"
    if key in figures and figures.values(key, "served_after_restart") != figures.values(key, "minutes_after_restart"):
        yield _never(judge.at_most(section, what, ON_TIME_SECONDS, "s", Figure.of([SERVED_WITHIN]), key), SERVED_WITHIN)
    else:
        yield judge.at_most(section, what, ON_TIME_SECONDS, "s", late, key)
    refused = figures.of(ORDINARY, "refused_percent")
    yield judge.at_most(section, "refused starts in ordinary minutes", 1, "%", refused, ORDINARY)


def _never(row: Verdict, watched_s: float) -> Verdict:
    """An event that did not come while it was watched took at least that long."""
    return replace(row, measured=f"not within {watched_s:.0f} s")


def _due(judge: Judge, size: Size) -> Iterator[Verdict]:
    section = "tasks due in one minute, three hosts"
    for tasks in size.due:
        key = key_due(tasks, "duly")
        last = judge.figures.of(key, "last_start_s")
        what = f"last start, {tasks:,} tasks"
        if tasks == 2_000:
            yield judge.at_most(section, what, 0.5, "s", last, key)
        else:
            yield judge.stated(section, what, last, "s", key)


def _idle(judge: Judge) -> Iterator[Verdict]:
    figures, key = judge.figures, "idle duly"
    section = "three hosts with nothing to do"
    made = figures.of(key, "transactions_a_minute")
    yield judge.at_most(section, "transactions", IDLE_TRANSACTIONS, "a minute", made, key)
    yield judge.stated(section, "beats", figures.of(key, "beats_a_minute"), "a minute", key)
    used = figures.of(key, "database_ms_a_beat")
    yield judge.at_most(section, "processor time of the database for a beat", 1, "ms", used, key)


def _store(judge: Judge, size: Size) -> Iterator[Verdict]:
    figures, key = judge.figures, "store"
    section = f"processor time of the database, {size.many:,} tasks in chunks of 5,000"
    yield judge.at_most(section, "starts", 0.8, "s", figures.of(key, "starts_database_s"), key)
    yield judge.at_most(section, "their ends, with history", 1.5, "s", figures.of(key, "ends_database_s"), key)


def _hosts(judge: Judge, size: Size) -> Iterator[Verdict]:
    figures = judge.figures
    for key, expressions in EXPRESSIONS.items():
        section = f"{size.many:,} tasks of {expressions} due in one minute, three hosts"
        yield judge.at_most(section, "first start", 0.1, "s", figures.of(key, "first_start_s"), key)
        yield judge.at_most(section, "last start", 5, "s", figures.of(key, "last_start_s"), key)
        yield judge.at_most(section, "all ends durable", 6, "s", figures.of(key, "ends_durable_s"), key)
        least, most = figures.of(key, "share_least_percent"), figures.of(key, "share_most_percent")
        yield judge.at_least(section, "the least share of a host", 23, least, key, unit="%")
        yield judge.at_most(section, "the largest share of a host", 43, "%", most, key)
        yield judge.at_most(section, "refused starts", 10, "%", figures.of(key, "refused_percent"), key)
        log = figures.of(key, "log_bytes_a_run")
        yield judge.at_most(section, "the log", 20, "bytes a run", log, key)
        yield judge.stated(section, "processor time of the hosts", figures.of(key, "hosts_cpu_s"), "s", key)
        yield judge.stated(section, "processor time of the database", figures.of(key, "database_cpu_s"), "s", key)


def _one_host(judge: Judge, size: Size) -> Iterator[Verdict]:
    figures, here, there = judge.figures, "one host", "one host, SQLite"
    section = f"{size.many:,} tasks of 1,440 expressions due in one minute, one host"
    yield judge.stated(section, "last start", figures.of(here, "last_start_s"), "s", here)
    ratio = figures.ratio(here, "last_start_s", there, "last_start_s")
    yield judge.at_most(section, "last start, PostgreSQL ÷ SQLite", 3, "×", ratio, here, there)


def _mutex(judge: Judge) -> Iterator[Verdict]:
    figures = judge.figures
    section = "writes of single tasks, one after the other"
    key = "mutex, 3 hosts"
    many = figures.of(key, "writes_a_second")
    yield judge.at_least(section, "3 hosts", 150, many, key, unit="a second")
    key = "mutex, 20 hosts"
    many = figures.of(key, "writes_a_second")
    yield judge.stated(section, "20 hosts", many, "a second", key, more_is_better=True)
    yield judge.at_most(section, "20 hosts, the longest write", 0.5, "s", figures.of(key, "worst_s"), key)


def _slow_commits(judge: Judge, size: Size) -> Iterator[Verdict]:
    figures, commit_ms = judge.figures, 1000 * COMMIT_SECONDS
    for key, expressions in SLOW_COMMITS.items():
        kind = "one expression" if expressions == "together" else "1,440 expressions"
        section = f"commits of {commit_ms:.0f} ms, {size.crowd} hosts × {TASKS_OF_A_HOST} tasks of {kind}"
        yield judge.at_most(section, "last start", 1, "s", figures.of(key, "last_start_s"), key)
        yield judge.stated(section, "first start", figures.of(key, "first_start_s"), "s", key)
        yield judge.stated(section, "all ends durable", figures.of(key, "ends_durable_s"), "s", key)
        yield judge.stated(section, "hosts that started some", figures.of(key, "busy_hosts"), "", key)
        yield judge.stated(section, "refused starts", figures.of(key, "refused_percent"), "%", key)
        yield judge.stated(section, "processor time of the hosts", figures.of(key, "hosts_cpu_s"), "s", key)
        yield judge.stated(section, "the shortest write", figures.of(key, "shortest_write_s"), "s", key)


def _most(judge: Judge, size: Size) -> Iterator[Verdict]:
    figures, key = judge.figures, "most"
    section = f"{size.most:,} tasks"
    yield judge.at_most(section, "loading, processor time of the database", 3, "s",
                        figures.of(key, "load_database_s"), key)  # fmt: skip
    yield judge.at_most(section, "loading, processor time of the host", 1, "s", figures.of(key, "load_cpu_s"), key)
    yield judge.at_most(section, "burial of a host, under the lock", 0.5, "s", figures.of(key, "bury_s"), key)
    yield judge.stated(section, "`initialize` of a host that joins", figures.of(key, "initialize_s"), "s", key)


def _fence(judge: Judge) -> Iterator[Verdict]:
    key = "fence"
    cost = judge.figures.of(key, "fence_us_a_step")
    yield judge.at_most("the step fence", "processor time for a step", 1, "µs", cost, key)


# --- beside others ---------------------------------------------------------------------------------------------------


def beside(figures: Figures, size: Size) -> list[list[str]]:
    """The table of duly and others on the same PostgreSQL: a row of heads, then what, and a cell for each of them."""
    timetable = size.timetable
    paused = timetable.resume_at - timetable.pause_at
    watched = timetable.killed_until - timetable.kill_at
    rows = {
        "runs of a task in each due minute": _runs,
        "start after the minute began": _late,
        f"overlap after one host was paused for {paused:.0f} s": _overlap,
        "… the task starts on another host": _elsewhere,
        f"{len(timetable.missed)} minutes that fell due while all hosts were down": _made_up,
        f"a run whose host was killed goes on (watched for {watched:.0f} s)": _goes_on,
        "after `pg_ctl restart -m fast`": _after_restart,
        **{f"last start of {tasks:,} due": _last_start(tasks) for tasks in size.due},
        "transactions per idle minute": _transactions,
        "processor time of the database per idle minute": _idle_time,
    }
    return [["", *SCHEDULERS], *([what, *(cell(figures, name) for name in SCHEDULERS)] for what, cell in rows.items())]


def _one(figures: Figures, key: str, name: str) -> float | None:
    values = figures.values(key, name)
    return values[-1] if values else None


def _runs(figures: Figures, name: str) -> str:
    return _span(figures, f"faults {name}", "runs_least", "runs_most") or figures.reason(f"faults {name}")


def _late(figures: Figures, name: str) -> str:
    key = f"faults {name}"
    if key not in figures:
        return figures.reason(key)
    late = _one(figures, key, "late_s")
    return f"not within {SERVED_WITHIN:.0f} s" if late is None else f"{late:.2f} s"


def _overlap(figures: Figures, name: str) -> str:
    key = f"faults {name}"
    if key not in figures:
        return figures.reason(key)
    seconds = _one(figures, key, "overlap_s")
    if seconds is None:
        return "no host ran it when one was to be paused"
    return "none" if not _one(figures, key, "overlap_steps") else f"**{seconds:.1f} s**"


def _elsewhere(figures: Figures, name: str) -> str:
    key = f"faults {name}"
    if key not in figures:
        return figures.reason(key)
    seconds, paused = _one(figures, key, "elsewhere_s"), _one(figures, key, "paused_s")
    late = seconds is None or (paused is not None and seconds > paused)
    return "not before the host goes on" if late else f"after {seconds:.0f} s"


def _made_up(figures: Figures, name: str) -> str:
    key = f"faults {name}"
    if key not in figures:
        return figures.reason(key)
    span = _span(figures, key, "made_up_least", "made_up_most")
    words = {"0": "**lost**", "1": "one run for them"}
    return words.get(span or "", f"{span} runs for them")


def _goes_on(figures: Figures, name: str) -> str:
    key = f"faults {name}"
    if key not in figures:
        return figures.reason(key)
    if not _one(figures, key, "killed"):
        return "no host ran it when one was to be killed"
    seconds = _one(figures, key, "resumed_s")
    return "**no**" if seconds is None else f"after {seconds:.1f} s"


def _after_restart(figures: Figures, name: str) -> str:
    key = f"faults {name}"
    if key not in figures:
        return figures.reason(key)
    left, before = _one(figures, key, "hosts_after_restart"), _one(figures, key, "hosts_before_restart")
    served, minutes = _one(figures, key, "served_after_restart"), _one(figures, key, "minutes_after_restart")
    hosts = f"{left:.0f} of {before:.0f} hosts go on"
    if not left:
        hosts = f"**all {before:.0f} hosts end**"
    return f"{hosts}; {served:.0f} of {minutes:.0f} minutes served"


def _last_start(tasks: int) -> Callable[[Figures, str], str]:
    def cell(figures: Figures, name: str) -> str:
        key = key_due(tasks, name)
        if key not in figures:
            return figures.reason(key)
        last, started, runs = (_one(figures, key, what) or 0.0 for what in ("last_start_s", "started", "runs"))
        again = f"; **{runs:,.0f} runs**" if runs > started else ""
        if started < tasks:
            patience = _one(figures, key, "patience_s")
            return f"{started:,.0f} of them within {patience:.0f} s{again}"
        return f"{last:.2f} s{again}"

    return cell


def _transactions(figures: Figures, name: str) -> str:
    key = f"idle {name}"
    made = _one(figures, key, "transactions_a_minute")
    return figures.reason(key) if made is None else f"{made:.0f}"


def _idle_time(figures: Figures, name: str) -> str:
    key = f"idle {name}"
    if key not in figures:
        return figures.reason(key)
    used = _one(figures, key, "database_ms_a_minute")
    return "not counted here" if used is None else f"{used:.0f} ms"


def _span(figures: Figures, key: str, least: str, most: str) -> str | None:
    low, high = _one(figures, key, least), _one(figures, key, most)
    if low is None or high is None:
        return None
    return f"{low:g}" if low == high else f"{low:g}–{high:g}"
