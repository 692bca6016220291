"""Long traces: starts that are owed, and their ends, without a call for each.

Nearly all of a long trace is that. What `Machine` does on such a start or end is written out here once more, with the
registers of the host in local variables: 55 to 60 % of the machine's time. Everything else, and every start or end
about which anything is unusual, goes to the machine: nothing is ever reported from here. Tests compare the two ways.
In the trace of a shared store, what a host writes at once is fed at once.
"""

from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any

from duly.core.moments import Instant
from duly.formal.calendar import MINUTE, NEVER
from duly.formal.machine import Machine
from duly.formal.promptness import GAP


def feed_shared(machine: Machine, rows: Iterable[Sequence[Any]], hosts: Iterable[int]) -> None:
    """Take events of a shared store as rows, and the hosts whose events they are."""
    for host, group in groupby(zip(hosts, rows, strict=True), key=itemgetter(0)):
        machine.turn_to(host)
        feed(machine, (row for _, row in group))


def feed(machine: Machine, rows: Iterable[Sequence[Any]]) -> None:  # noqa: C901  # one loop, for its speed
    """Take events of one host as rows: letters, then fields."""
    registers, host, on, promptness = machine.registers, machine.host, machine.on, machine.promptness
    find = registers.tasks.get
    # What starts and ends change, and is put back before the machine takes an event ...
    seq, clock, minute = registers.seq, host.clock, registers.minute
    running, threads = host.running, host.threads_running
    # ... and what they only read. Nothing is ordinary on a host that is not there, no end while a stop is open or
    # after one.
    shared = registers.shared
    present = not shared or host.is_living
    active, epoch, zone, alarm = host.active and present, host.epoch, registers.zone, machine.alarm
    limit, pool, calm = host.limit, host.pool, present and not (host.quiet or host.stops)
    minute_end = minute + MINUTE
    for row in rows:
        letters = row[0]
        if letters == "RS":
            _, seq, at, name, generation, run, _, slots = row
            task = find(name)
            if (
                task is not None
                and task.run is None
                and active
                and task.generation == generation
                and task.floor <= at < alarm
                and at - clock <= GAP
                and slots == running
                and ((due := task.next_due <= at) or task.retry_at <= at)
            ):
                if at > clock:
                    clock = at
                if due:
                    task.due_since_success = task.fresh = True
                else:
                    task.fresh = task.due_since_success
                if not minute <= at < minute_end:
                    minute = zone.minute(at)
                    minute_end = minute + MINUTE
                if minute > task.served_through:
                    task.served_through = minute
                    schedule = task.schedule
                    assert schedule is not None  # it is declared
                    if schedule.known_from <= minute < schedule.known_until:
                        task.next_due = schedule.known_until
                    else:
                        task.next_due = schedule.after(minute)
                task.run, task.run_generation, task.epoch = run, generation, epoch
                task.started = task.floor = at
                task.unstarted = False
                running += 1
                task.run_on_thread = thread = task.thread
                if thread:
                    threads += 1
                continue
        elif letters == "RE":
            _, seq, at, name, generation, run, ok = row
            task = find(name)
            if (
                task is not None
                and task.run == run
                and task.epoch == epoch
                and task.run_generation == generation == task.generation
                and calm
                and at < alarm
                and at - clock <= GAP
                and running < limit
                and (task.fresh or not ok)
                and task.declared
                and not (task.run_on_thread and threads >= pool)
            ):
                if at > clock:
                    clock = at
                if ok:
                    task.retry_at = NEVER
                    task.due_since_success = task.next_due <= at
                else:
                    task.fail(at)
                task.streak = 0
                task.run = None
                task.ended = clock if shared else at  # as Machine._known_since
                running -= 1
                if task.run_on_thread:
                    threads -= 1
                if promptness is not None:
                    if min(task.next_due, task.retry_at) + promptness.bound < task.watched:
                        promptness.watch(task)
                        alarm = machine.alarm = promptness.alarm()
                continue
        registers.seq, host.clock, registers.minute = seq, clock, minute
        host.running, host.threads_running = running, threads
        on[letters](*row)
        seq, clock, minute = registers.seq, host.clock, registers.minute
        running, threads = host.running, host.threads_running
        present = not shared or host.is_living
        active, epoch, zone, alarm = host.active and present, host.epoch, registers.zone, machine.alarm
        limit, pool, calm = host.limit, host.pool, present and not (host.quiet or host.stops)
        minute_end = Instant(minute + MINUTE)
    registers.seq, host.clock, registers.minute = seq, clock, minute
    host.running, host.threads_running = running, threads
