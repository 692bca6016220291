"""One running scheduler: it waits, commits, runs callbacks.

The way of one occurrence, in the order in which it happens:

    loop.poll                    the clock shows a new minute
      agenda.queue_due           what has come due is queued                                      (core: pure)
      agenda.decide              what starts now, and has a slot; only reads                      (core: pure)
      journal.commit(starts)     the next batch takes them
        store.write              a start is durable before its callback begins ...
      agenda.apply               ... and the agenda changes after that
      runner.admit               they take their slots
      runner.launch              the callback runs, on the event loop or in a thread
    runner                       the callback is over: its end is stamped ...
      journal.succeeded          ... and taken by the next batch
        store.write              an end is durable before the task may start again
      settle                     the task gets its new state, its slot is free
        agenda.review            does it owe something already?
        gate.wake                if so, the loop polls at once

Beside it, `announce` and `trace` say what became durable: as events, and as rows of the trace.

engine       what one running scheduler is made of, wired; setup: what it is given
lifecycle    initialize() and stop(), one after the other; calls: what the trace says of them
declare      one initialize(): load, resolve, replace, put in force
loop         poll: clock, decide, commit, launch
settle       durable ends: new states, free slots, waiting successors
journal      group commit
runner       callbacks on the event loop or in threads; stamps and records their ends
first_step   the first step of a callback, at once: most callbacks need no second one
lease        the right of a host to act on a shared store, and the fence around the steps of its callbacks
membership   one host of a shared store: its place in the log, its lease, its beats; shared_clock: the store's clock
colleagues   what a host makes of the others: it applies what they wrote, loads anew, and shares
company      what the loop asks about other hosts; an embedded store has none
cluster      joining a shared store, and declaring there; shared_lifecycle: host after host, if it is buried
shared_monitor  the monitor of a host of a shared store: reads what all hosts write, and judges it
watchdog     names the callback that keeps the event loop from turning
gate         may anything start? is the engine ending?
traffic      what the parts must know of each other while runs are under way
shutdown     drain, release, abandon
failure      what is kept of an exception
announce     durable facts as events; outbox: hands events to logging and on_event
trace        durable facts as rows of the trace, and the monitor
pacing       turns on the event loop
options      what the user chose; host: clock, chance and threads of the machine
"""
