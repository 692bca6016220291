"""The targets, row by row, beside what was measured."""

from collections.abc import Iterator

from benchmarks.figures import Figure, Figures, number
from benchmarks.import_cost import RATIO_MAX
from benchmarks.judging import Judge, Verdict
from benchmarks.pages import MINUTELY, PAGES, UNCOUNTED
from benchmarks.plan import OTHER_PYTHONS, THIS_PYTHON, THREADS, Size, compared_with, measurements


class _Judge(Judge):
    """Knows the size of the run."""

    def __init__(self, figures: Figures, size: Size) -> None:
        super().__init__(figures, measurements(size), full=size.is_full)
        self.size = size


def verdicts(figures: Figures, size: Size) -> list[Verdict]:
    """Every row of the table of targets, whether it was measured in this run or not."""
    judge = _Judge(figures, size)
    return [
        *_against_peers(judge),
        *_large_ticks(judge),
        *_growth(judge),
        *_initialize(judge),
        *_quiet(judge),
        *_real_minutes(judge),
        *_gates(judge),
        *_costs(judge),
        *_cron(judge),
        *_checker(judge),
        *_hard_cases(judge),
        *_threads(judge),
        *_layouts(judge),
        *_dashboard(judge),
    ]


DURABLE = (
    ("APScheduler 3, SQLite", 150),
    ("APScheduler 3, SQLite tuned to WAL", 180),
    ("APScheduler 4, SQLite", 1_000),
)
NOTHING_ON_DISK = (
    ("APScheduler 3, memory", 30, "last_start_s", ""),
    ("APScheduler 4, memory", 30, "last_start_s", ""),
    ("aiocron", 5, "last_start_s", ""),
    ("taskiq", 10, "cpu_until_last_start_s", " (processor time)"),
    ("arq", 130, "last_start_s", " (its scan alone)"),
    ("Celery beat", 2_500, "last_start_s", " (its due computation alone)"),
)
SCHEDULE = {"3.11": 0.85, "3.12": 0.95}
SCHEDULE_LATER = 0.7
"""`schedule` keeps nothing and awaits nothing: it calls functions in a loop, which Python 3.13 made faster."""

MILLION_SECONDS = {"3.11": 6.0}
MILLION_SECONDS_LATER = 5.5

WHY_SCHEDULE = (
    "`schedule` calls plain functions one after the other, in memory, and forgets them when its process ends, whereas "
    "duly has each start on disk before it calls anything"
)


WHY_MILLION = (
    "the event loop's thread works nearly all of that time, because one callback after the other is called and its end "
    "recorded there, and the writer's thread needs the interpreter as well"
)


def _against_peers(judge: _Judge) -> Iterator[Verdict]:
    figures, size = judge.figures, judge.size
    usual = size.compared[-1]
    section = f"last start after the due instant, {usual:,} tasks, peer ÷ duly"
    for name, bound in DURABLE:
        tasks = compared_with(name, size)
        peer, ours = f"{name} {tasks}", f"duly {tasks}"
        ratio = figures.ratio(peer, "last_start_s", ours, "last_start_s")
        started = figures.of(peer, "started")
        cut = started is not None and started.low < tasks
        what = name if tasks == usual else f"{name}; {tasks:,} tasks each"
        why = _why_not_faster(figures, peer, ours, bound)
        yield judge.at_least(
            section, what, bound, ratio, peer, ours, headline=name == DURABLE[0][0], lower_bound=cut, why=why
        )
    for name, bound, figure, note in NOTHING_ON_DISK:
        tasks = compared_with(name, size)
        peer, ours = f"{name} {tasks}", f"duly {tasks}"
        ratio = figures.ratio(peer, figure, ours, figure)
        started = figures.of(peer, "started")
        if started is not None and started.low < tasks:
            note += ", extrapolated from those that it reached"  # without their number: rows are compared by name
        what = f"{name}, nothing on disk{note}" + ("" if tasks == usual else f"; {tasks:,} tasks each")
        why = _why_not_faster(figures, peer, ours, bound) if figure == "last_start_s" else ""
        yield judge.at_least(section, what, bound, ratio, peer, ours, why=why)
    for version in (THIS_PYTHON, *OTHER_PYTHONS):
        peer, ours = f"schedule on {version}", f"duly beside schedule on {version}"
        ratio = figures.ratio(peer, "last_start_s", ours, "last_start_s")
        least = SCHEDULE.get(version, SCHEDULE_LATER)
        what = f"schedule, nothing on disk, Python {version}"
        first = version == THIS_PYTHON
        yield judge.at_least(section, what, least, ratio, peer, ours, headline=first, why=WHY_SCHEDULE)


MOST = 0.7


def _why_not_faster(figures: Figures, peer: str, ours: str, bound: float) -> str:
    """How far duly is from a ratio to a peer, and how much of its time is processor time."""
    theirs, last = figures.of(peer, "last_start_s"), figures.of(ours, "last_start_s")
    used = figures.of(ours, "cpu_until_last_start_s")
    if theirs is None or last is None or used is None:
        return ""
    begin = (
        f"duly's last start comes after {number(1000 * last.median)} ms and would have to come after "
        f"{number(1000 * theirs.median / bound)} ms; "
    )
    first = figures.of(ours, "first_start_s")
    if first is not None and first.median > MOST * last.median:
        return f"{begin}its first comes after {number(1000 * first.median)} ms, when the first commit is on disk"
    return (
        f"{begin}until then it uses {number(1000 * used.median)} ms of processor "
        "time, on two threads that share one interpreter, so it hardly waits for anything, and which part of the work "
        "could be left out is not known"
    )


def _large_ticks(judge: _Judge) -> Iterator[Verdict]:
    figures, size = judge.figures, judge.size
    middle, large = size.growing[-2], size.growing[-1]
    section = "all due in one minute"
    key = f"tick {middle}"
    yield judge.at_most(section, f"last start, {middle:,} tasks", 1.5, "s", figures.of(key, "last_start_s"), key)
    for version in (THIS_PYTHON, *OTHER_PYTHONS):
        ours = version == THIS_PYTHON
        key = f"tick {large}" if ours else f"tick {large} on {version}"
        bound = MILLION_SECONDS.get(version, MILLION_SECONDS_LATER)
        what = f"last start, {large:,} tasks, Python {version}"
        last = figures.of(key, "last_start_s")
        yield judge.at_most(section, what, bound, "s", last, key, headline=ours, why=WHY_MILLION)
    for tasks in (middle, large):
        key = f"tick {tasks}"
        first = figures.of(key, "first_start_s")
        yield judge.at_most(section, f"first start, {tasks:,} tasks", 0.3, "s", first, key)
        durable = figures.of(key, "ends_durable_s")
        yield judge.at_most(section, f"all ends durable after the last end, {tasks:,} tasks", 0.2, "s", durable, key)


def _growth(judge: _Judge) -> Iterator[Verdict]:
    figures, size = judge.figures, judge.size
    small, large = size.growing[0], size.growing[-1]
    section = f"growth from {small:,} to {large:,} tasks, exponent"
    for what, key, name in (
        ("last start", "tick", "last_start_s"),
        ("`initialize`, cold", "initialize", "cold_s"),
        ("`initialize`, warm", "initialize", "warm_s"),
    ):
        keys = f"{key} {small}", f"{key} {large}"
        yield judge.at_most(section, what, 1.15, "", figures.slope(*keys, name), *keys)


WHY_WARM = (
    "every stored record is read, checked and compared with its registration, a million tasks are made, and the "
    "garbage collector passes over them"
)
INDEXES = "comparing the index of names with the table"
WHY_COLD_PEERS = (
    "a cold start creates, fills and syncs the store, however few tasks there are, and searches for the next minute of "
    "1,440 different expressions, where the peer's tasks share one"
)


def _initialize(judge: _Judge) -> Iterator[Verdict]:
    figures, size = judge.figures, judge.size
    key = f"initialize {size.large}"
    section = "`initialize`"
    plain = f"a loop that builds {size.large:,} tuples, and one SQLite insert of them"
    for what, name, bound, why in (("cold", "cold_s", 5.0, ""), ("warm", "warm_s", 4.0, WHY_WARM)):
        figure = figures.of(key, name)
        yield judge.at_most(section, f"{what}, {size.large:,} tasks", bound, "s", figure, key, why=why)
    yield judge.stated(section, f"{INDEXES}, a part of warm", figures.of(key, "indexes_s"), "s", key)
    yield judge.stated(section, plain, figures.of(key, "plain_s"), "s", key)
    for what in ("cold", "warm"):
        yield judge.stated(section, f"{what} ÷ that loop and insert", figures.of(key, f"{what}_ratio"), "×", key)
    tasks = size.compared[-1]
    ours = f"duly initialize {tasks}"
    for name, least in (("APScheduler 3, SQLite", 400), ("APScheduler 3, memory", 30)):
        peer = f"{name} {tasks}"
        ratio = figures.ratio(peer, "initialize_s", ours, "cold_s")
        what = f"{name} ÷ duly (cold), {tasks:,} tasks"
        yield judge.at_least(section, what, least, ratio, peer, ours, why=WHY_COLD_PEERS)


def _quiet(judge: _Judge) -> Iterator[Verdict]:
    figures, size = judge.figures, judge.size
    section = f"{size.large:,} tasks, none due"
    for what, name, bound, unit in (
        ("processor time", "cpu_ms_a_minute", 5, "ms a minute"),
        ("wake-ups", "wake_ups_a_minute", 1, "a minute"),
        ("files written (database, WAL)", "files_written", 0, ""),
    ):
        yield judge.at_most(section, what, bound, unit, figures.of("idle", name), "idle")
    section = f"one due task among {size.large:,}, a history of {size.history:,} runs, an hour in leaps"
    late = figures.of("one due", "late_ms")
    yield judge.at_most(section, "start after the boundary", 5, "ms", late, "one due", headline=True)
    what = f"p99.9 of it (the latest of {size.hour})"
    yield judge.stated(section, what, figures.of("one due", "late_p999_ms"), "ms", "one due")
    ratio = figures.ratio("one due", "cpu_ms_a_minute", "one due, few", "cpu_ms_a_minute")
    yield judge.at_most(section, "cost ÷ cost among 1,000", 2, "×", ratio, "one due", "one due, few")


def _real_minutes(judge: _Judge) -> Iterator[Verdict]:
    figures, size, key = judge.figures, judge.size, "real minutes"
    watched = figures.of(key, "many: minutes")  # as many as --minutes said in the run that measured them
    minutes = size.real_minutes if watched is None else round(watched.median)
    kind = f"{minutes} {'real minutes' if size.system_clock else 'minutes in leaps'}"
    section = f"{kind}, {size.minutely:,} tasks due in each"
    for what, name, unit in (
        ("start after the boundary, p50", "late_p50_ms", "ms"),
        ("start after the boundary, p99", "late_p99_ms", "ms"),
        ("start after the boundary, p99.9", "late_p999_ms", "ms"),
        ("processor time, share of one core", "cpu_percent", "%"),
        ("a commit, median", "commit_median_ms", "ms"),
        ("a commit, longest", "commit_max_ms", "ms"),
        ("checkpoints", "checkpoints", ""),
        ("a commit with a checkpoint, longest", "checkpoint_max_ms", "ms"),
        ("longest time without a start in a burst", "gap_max_ms", "ms"),
        ("the store's file, largest", "file_max_mb", "MB"),
        ("its WAL, largest", "wal_max_mb", "MB"),
        ("processor time while the other process is measured", "quiet_cpu_ms", "ms"),
    ):
        yield judge.stated(section, what, figures.of(key, f"many: {name}"), unit, key)
    section = f"{kind}, one due task among {size.large:,}, a history of {size.history:,} runs"
    for what, name, unit in (
        ("start after the boundary, median", "late_ms", "ms"),
        (f"start after the boundary, p99.9 (the latest of {minutes})", "late_p999_ms", "ms"),
        ("processor time of a minute", "cpu_ms_a_minute", "ms"),
        ("processor time while the other process is measured", "between_cpu_ms", "ms"),
    ):
        yield judge.stated(section, what, figures.of(key, f"one: {name}"), unit, key)


def _gates(judge: _Judge) -> Iterator[Verdict]:
    tasks = judge.size.growing[-1]
    key = f"tick {tasks}"
    bound = 2 * -(-tasks // 5_000) + 20
    section = "low-noise gates, held by tests/engine/test_many_tasks.py"
    commits = judge.figures.of(key, "commits")
    yield judge.at_most(section, f"commits of a tick, {tasks:,} tasks", bound, "", commits, key)


WHY_BLOCKED = (
    "a dictionary or a set of a million names grows in one operation of the interpreter; "
    "[decision 7](decisions/0007-bursts.md) says what came of dividing it"
)


WHY_TICK = (
    "not known; with every step of the event loop's thread timed, none took more than 6 ms of processor time, but "
    "others wait for several of them, and the thread itself waits for the interpreter, which the writer's thread uses "
    "as well"
)
WHY_REINITIALIZE = (
    "the dictionary of the million names in force grows in one operation of the interpreter, which takes 32 ms of "
    "processor time; and tasks that leave are withdrawn without a pause, 100,000 in 15 ms, because an end that settles "
    "meanwhile must find either the old order or the new one"
)


def _costs(judge: _Judge) -> Iterator[Verdict]:
    figures, size = judge.figures, judge.size
    section = "what a run costs"
    over = figures.of("overhead", "overhead_us_a_run")
    what = "event loop's thread, beyond a bare `create_task`"
    yield judge.at_most(section, what, 3, "µs", over, "overhead")
    bare = figures.of("overhead", "bare_us_a_task")
    yield judge.stated(section, "a bare `create_task`", bare, "µs", "overhead")
    key = "overhead uncollected"
    over, bare = figures.of(key, "overhead_us_a_run"), figures.of(key, "bare_us_a_task")
    yield judge.stated(section, "event loop's thread, the collector switched off", over, "µs", key)
    yield judge.stated(section, "a bare `create_task`, the collector switched off", bare, "µs", key)
    yield judge.stated(section, "writer thread", figures.of("overhead", "writer_us_a_run"), "µs", "overhead")
    section = "`import duly`"
    ratio = figures.of("import", "ratio")
    what = "÷ `import asyncio`, processor time beyond an empty interpreter"
    yield judge.at_most(section, what, RATIO_MAX, "×", ratio, "import")
    yield judge.stated(section, "processor time beyond it", figures.of("import", "duly_ms"), "ms", "import")
    yield judge.stated(section, "`import asyncio` beyond it", figures.of("import", "asyncio_ms"), "ms", "import")
    section = "memory"
    held = figures.of("memory", "bytes_a_task")
    what = f"beyond the caller's registrations, {size.large:,} tasks"
    yield judge.at_most(section, what, 300, "bytes a task", held, "memory")
    grown = figures.of("growth", "grown_kb")
    # A byte a run would be growth; what a dictionary or the allocator rounds up to is not.
    what = f"left behind by {size.growth_runs:,} runs"
    yield judge.at_most(section, what, size.growth_runs / 1000, "kB", grown, "growth")
    store = figures.of("growth", "store_grown_kb")
    yield judge.stated(section, f"the store's file after {size.growth_runs:,} runs", store, "kB", "growth")
    section = f"event loop kept from others, {size.large:,} tasks, without collector pauses"
    for key, note in (("canary", ""), ("canary frozen", ", after gc.freeze()")):
        for phase in ("initialize", "tick"):
            if phase == "initialize" and note:
                continue
            worst = figures.of(key, f"{phase}_blocked_max_ms")
            why = WHY_BLOCKED if phase == "initialize" else WHY_TICK
            yield judge.at_most(section, f"during {phase}{note}", 15, "ms", worst, key, why=why)
            running = figures.of(key, f"{phase}_running_max_ms")
            what = f"… without the time for which its thread had no processor, during {phase}{note}"
            yield judge.stated(section, what, running, "ms", key)
            pause = figures.of(key, f"{phase}_collector_ms")
            yield judge.stated(section, f"longest collector pause during {phase}{note}", pause, "ms", key)
    noise = figures.of("canary", "noise_blocked_max_ms")
    yield judge.stated(section, "the machine's own noise, before the scheduler exists", noise, "ms", "canary")


SPARSE = "0 0 29 2 *"


def _cron(judge: _Judge) -> Iterator[Verdict]:
    from benchmarks.ours.cron import EXPRESSIONS

    figures = judge.figures
    section = "cron expressions, the least of all expressions"
    for figure, call, bounds in (
        ("parse_us", "parse_cron", {"cronsim": 4, "croniter": 15}),
        ("next_us", "next_after", {"cronsim": 2, "croniter": 15}),
    ):
        for library, bound in bounds.items():
            ratios = [
                (ratio.median, ratio, expression)
                for expression in EXPRESSIONS
                if (ratio := _cron_ratio(figures, expression, library, figure)) is not None
            ]
            least = min(ratios, default=None, key=lambda each: each[0])
            what = f"{library} ÷ `{call}`" + (f", at `{least[2]}`" if least else "")
            yield judge.at_least(section, what, bound, least[1] if least else None, "cron")
    for library in ("cronsim", "croniter"):
        ratio = _cron_ratio(figures, SPARSE, library, "next_us")
        yield judge.at_least(section, f"{library} ÷ `next_after` of the sparse `{SPARSE}`", 20, ratio, "cron")


def _cron_ratio(figures: Figures, expression: str, library: str, figure: str) -> Figure | None:
    return figures.ratio("cron", f"{expression}|{library}|{figure}", "cron", f"{expression}|duly|{figure}")


def _checker(judge: _Judge) -> Iterator[Verdict]:
    figures, size, key = judge.figures, judge.size, "checker"
    section = f"`duly verify`, a trace of {size.events:,} events, in processor time of one core"
    safety = figures.of(key, "safety_events_a_second")
    yield judge.at_least(section, "safety properties", 500_000, safety, key, unit="events a second")
    everything = figures.of(key, "all_events_a_second")
    what = "all properties, with the bounded ones"
    yield judge.stated(section, what, everything, "events a second", key, more_is_better=True)
    grown = figures.of(key, "peak_growth_mib")
    yield judge.stated(section, "memory beyond that for a tenth of the trace", grown, "MiB", key)


def _hard_cases(judge: _Judge) -> Iterator[Verdict]:
    figures, size = judge.figures, judge.size
    section = "hard cases"
    key = "failures"
    what = f"{size.hard_large:,} tasks, 1 % fail once:"
    yield judge.stated(section, f"{what} last start", figures.of(key, "last_start_s"), "s", key)
    yield judge.stated(section, f"{what} retry after its time", figures.of(key, "retry_late_ms"), "ms", key)
    key = "changes"
    what = f"{size.changed:,} of {size.hard_large:,} overridden while running"
    yield judge.stated(section, what, figures.of(key, "reinitialize_s"), "s", key)
    kept = figures.of(key, "reinitialize_blocked_max_ms")
    yield judge.at_most(section, f"{what}: event loop kept", 15, "ms", kept, key, why=WHY_REINITIALIZE)
    for key, what, tasks in (
        ("limited", "`max_concurrency=100`", size.hard),
        ("blocking", "blocking callbacks", size.blocking),
    ):
        last = figures.of(key, "last_start_s")
        yield judge.stated(section, f"{tasks:,} due, {what}: last start", last, "s", key)
    for key in ("on_event", "INFO logging"):
        price = figures.ratio(key, "last_start_s", "plain", "last_start_s")
        yield judge.stated(section, f"{size.hard:,} due, {key}: last start ÷ without", price, "×", key, "plain")
    for key, what in (("plain", "without log lines"), ("INFO logging", "with a log line for each start and end")):
        cost = figures.of(key, "cpu_us_a_run")
        yield judge.stated(section, f"{size.hard:,} due, processor time of a run {what}", cost, "µs", key)
    for key, why in (("trace", _why_trace(figures)), ("monitor", "")):
        price = figures.ratio(key, "last_start_s", "plain", "last_start_s")
        what = f"{size.hard:,} due, {key}: last start ÷ without"
        yield judge.at_most(section, what, 2, "×", price, key, "plain", why=why)


def _why_trace(figures: Figures) -> str:
    traced, plain = figures.of("trace", "writer_cpu_s"), figures.of("plain", "writer_cpu_s")
    if traced is None or plain is None:
        return ""
    return (
        f"two more rows for each run: the store's thread uses {number(traced.median)} s of processor time instead of "
        f"{number(plain.median)} s, and then takes longer than the calls, with which it shares the interpreter"
    )


def _threads(judge: _Judge) -> Iterator[Verdict]:
    figures, tasks = judge.figures, judge.size.blocking
    section = f"{tasks:,} blocking callbacks due, last start"
    for threads in THREADS:
        ours, peer = f"threads {threads}", f"APScheduler 3, {threads} threads"
        yield judge.stated(section, f"{threads} threads", figures.of(ours, "last_start_s"), "s", ours)
        ratio = figures.ratio(peer, "last_start_s", ours, "last_start_s")
        what = f"{threads} threads, APScheduler 3 in memory ÷ duly"
        yield judge.stated(section, what, ratio, "×", peer, ours, more_is_better=True)


def _layouts(judge: _Judge) -> Iterator[Verdict]:
    figures, key = judge.figures, "layouts"
    section = f"states as rows and as spans, {judge.size.layout_tasks:,} tasks, processor time of a run's start and end"
    for workload in ("neighbours", "random ends", "scattered"):
        for layout in ("rows", "spans"):
            cost = figures.of(key, f"{workload}, {layout}: run_us")
            yield judge.stated(section, f"{workload}, {layout}", cost, "µs", key)


BESIDE = {
    "alone": "alone",
    "other": "beside clients of another store",
    "dashboard": "beside clients of its store",
    "within": "with clients of its own process, `duly run --web`",
}
BESIDE_MAX = 1.25
"""Two runs of one and the same thing on a busy machine differ by as much."""

PAGE_MS = {100_000: 100, 1_000_000: 300}
PAGE_MS_LATER = 300


WHY_MINUTELY = (
    "such a task has 20,160 runs in the fourteen days; on a file, a third of its page's time goes into finding them, "
    "and a fifth into joining them to the few hundred marks that can be seen"
)
WHY_FIRST_PAGE = (
    "most of it is importing the dashboard, and the thread that counts a million tasks has begun in the same process; "
    "the page of `duly web` itself, in the next row, does not wait for it"
)


def _dashboard(judge: _Judge) -> Iterator[Verdict]:
    figures = judge.figures
    for tasks in judge.size.shown:
        key = f"web {tasks}"
        section = f"the dashboard of {tasks:,} tasks, processor time"
        for what in PAGES:
            bound = PAGE_MS.get(tasks, PAGE_MS_LATER)
            took = figures.of(key, f"{what}: p95_ms")
            why = WHY_MINUTELY if what == MINUTELY else ""
            yield judge.at_most(section, f"{what}, p95", bound, "ms", took, key, why=why)
        cold = figures.of(key, "cold_ms")
        yield judge.at_most(section, "first page of a new process", 500, "ms", cold, key, why=WHY_FIRST_PAGE)
        command = figures.of(key, "command_ms")
        yield judge.at_most(section, "first page of a new `duly web`", 500, "ms", command, key)
        yield judge.at_most(section, "sampler, of a core", 5, "%", figures.of(key, "sampler_percent"), key)
        yield judge.at_most(section, "all tasks counted", 10, "s", figures.of(key, "counted_cpu_s"), key)
        yield judge.at_most(section, "transferred, first load", 30, "kB", figures.of(key, "first_load_kb"), key)
        yield judge.at_most(section, "memory", 100, "MB", figures.of(key, "memory_mb"), key)
    key = "web uncounted"
    section = f"the dashboard of {judge.size.shown[0]:,} tasks, 2,000 expressions due twice an hour, processor time"
    for what in UNCOUNTED:
        took = figures.of(key, f"{what}: p95_ms")
        yield judge.at_most(section, f"{what}, p95", PAGE_MS.get(judge.size.shown[0], PAGE_MS_LATER), "ms", took, key)
    key = "web shared"
    section = f"the dashboard of {judge.size.shown[0]:,} tasks on PostgreSQL, processor time with that of the server"
    for what in PAGES:
        took, bound = figures.of(key, f"{what}: p95_ms"), PAGE_MS.get(judge.size.shown[0], PAGE_MS_LATER)
        why = WHY_MINUTELY if what == MINUTELY else ""
        yield judge.at_most(section, f"{what}, p95", bound, "ms", took, key, why=why)
    key = "web beside"
    section = f"{judge.size.beside:,} tasks due in each minute, beside ten clients that ask without pause"
    for name, words in BESIDE.items():
        late = figures.of(key, f"{name}: late_max_ms")
        yield judge.stated(section, f"latest start, {words}", late, "ms", key)
    ratio = figures.ratio(key, "dashboard: late_max_ms", key, "other: late_max_ms")
    what = "latest start beside clients of its store ÷ beside clients of another store"
    yield judge.at_most(section, what, BESIDE_MAX, "×", ratio, key)
    ratio = figures.ratio(key, "dashboard: wal_max_mb", key, "alone: wal_max_mb")
    yield judge.at_most(section, "its WAL, largest, beside clients of its store ÷ alone", BESIDE_MAX, "×", ratio, key)
    yield judge.stated(section, "pages answered meanwhile", figures.of(key, "dashboard: pages"), "", key)
