"""Mutants of functions, judged by tests that are collected once for many of them: much quicker than once for each.

The wrong code of a function takes the place of the right one in the module that is loaded, so that everybody who has
imported the function runs it. That is the same as importing the wrong module as long as nothing has run the function
before: who asks sees to that. What cannot be done in this way is passed over without a verdict.
"""

import gc
import inspect
import json
import os
import signal
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import CodeType, FunctionType

import pytest
from _pytest.runner import runtestprotocol

from tests.mutation.covering import FAST, Judges
from tests.mutation.loading import load
from tests.mutation.mutants import Mutant
from tests.mutation.trials import (
    QUIETLY,
    Announce,
    Outcome,
    Trial,
    Verdict,
    by_name,
    in_this_child,
    limit_computing,
    selected,
    tried,
    without_shrinking,
)

Swap = tuple[FunctionType, CodeType]


def is_of_functions(mutant: Mutant, source: str) -> bool:
    """Whether a mutant changes nothing but the inside of functions."""
    return _changed(mutant, source) is not None


def held(
    cases: Mapping[Mutant, Sequence[str]], sources: Mapping[str, str], judges: Judges, *, jobs: int, until: float
) -> Iterator[tuple[Mutant, Outcome]]:
    """Judge mutants, each by its tests, in a process that loads the tests of all of them."""
    if not cases:
        return
    mutants = list(cases)
    reading, writing = os.pipe()
    child = os.fork()
    if not child:

        def tell(mutant: Mutant, outcome: Outcome) -> None:
            line = [mutants.index(mutant), outcome.verdict.value, outcome.test]
            os.write(writing, json.dumps(line).encode() + b"\n")

        os.close(reading)
        in_this_child(lambda: _Court(cases, sources, judges, jobs, until).hold(tell))
    os.close(writing)
    try:
        with os.fdopen(reading) as lines:
            for line in lines:
                index, verdict, test = json.loads(line)
                yield mutants[index], Outcome(Verdict(verdict), test)
    finally:
        with suppress(ProcessLookupError):
            os.kill(child, signal.SIGINT)  # if it still sits, it ends those on trial as well
        os.waitpid(child, 0)


class _Court:
    """A plugin: instead of running the tests that were collected, it judges mutants by them."""

    def __init__(
        self,
        cases: Mapping[Mutant, Sequence[str]],
        sources: Mapping[str, str],
        judges: Judges,
        jobs: int,
        until: float,
    ) -> None:
        self._cases = cases
        self._sources = sources
        self._judges = judges
        self._jobs = jobs
        self._until = until
        self._kills: Counter[tuple[str, str]] = Counter()
        self._items: dict[str, list[pytest.Item]] = {}
        self._waiting = deque(cases)
        self._sound: dict[str, bool] = {}
        self._tell: Callable[[Mutant, Outcome], None]

    def hold(self, tell: Callable[[Mutant, Outcome], None]) -> int:
        """Tell each verdict; returns as pytest does."""
        self._tell = tell
        signal.signal(signal.SIGINT, signal.default_int_handler)
        load()
        files = sorted({test.partition("::")[0] for tests in self._cases.values() for test in tests})
        return int(pytest.main(["-s", *QUIETLY, *without_shrinking(), "-m", FAST, *files], plugins=[self]))

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = by_name(session.items)
        gc.collect()
        gc.freeze()  # what is here now is shared with the forked processes, as long as their collectors let it be
        while self._waiting:
            for mutant, outcome in tried(self._trials(), jobs=self._jobs):
                if outcome.test is not None and not self._is_sound(outcome.test):
                    self._waiting.append(mutant)
                    continue
                if outcome.test is not None:
                    self._kills[mutant.path, outcome.test] += 1
                    self._kills[mutant.path + mutant.scope.name, outcome.test] += 1
                self._tell(mutant, outcome)
        return True

    def _trials(self) -> Iterator[Trial[Mutant]]:
        while self._waiting:
            mutant = self._waiting.popleft()
            tests = [test for test in self._cases[mutant] if self._sound.get(test, True)]
            swaps = _swaps(mutant, self._sources[mutant.path])
            items = selected(self._items, sorted(tests, key=partial(self._promise, mutant), reverse=True))
            items = [item for item in items if self._sound.get(item.nodeid, True)]
            if swaps and items and time.monotonic() < self._until:
                yield Trial(mutant, [item.nodeid for item in items], partial(self._judge, swaps, items), self._judges)

    def _is_sound(self, test: str) -> bool:
        """Whether a test passes here without any mutant: one that does not is no judge, such as on a busy machine."""
        if test not in self._sound:
            one = Trial(None, [test], partial(self._judge, (), self._items[test]), self._judges)
            ((_, outcome),) = tried([one], jobs=1)
            self._sound[test] = outcome.verdict is Verdict.SURVIVED
        return self._sound[test]

    def _promise(self, mutant: Mutant, test: str) -> float:
        """How likely a test is to kill a mutant, for its time: by those of the same function, and module, it killed."""
        kills = 5 * self._kills[mutant.path + mutant.scope.name, test] + self._kills[mutant.path, test]
        return kills / (0.05 + self._judges.seconds(test))

    def _judge(self, swaps: Iterable[Swap], items: Sequence[pytest.Item], announce: Announce) -> int:
        os.chdir(tempfile.gettempdir())  # a mutant may take ":memory:" for the name of a file
        for function, code in swaps:
            function.__code__ = code
        for number, (item, after) in enumerate(zip(items, [*items[1:], None], strict=True)):
            announce(number)
            limit_computing(self._judges.seconds(item.nodeid))
            runtestprotocol(item, nextitem=after)  # not the hook: a test that fails is not repeated here
            if item.session.testsfailed:
                return 1
        return 0


def _swaps(mutant: Mutant, source: str) -> list[Swap]:
    """The replacement and its place; empty if a function is not found, or not as the source has it."""
    module = sys.modules.get(mutant.module)
    found = []
    for right, wrong in _changed(mutant, source) or ():
        function: object = module
        with suppress(AttributeError):
            for name in right.co_qualname.split("."):
                function = inspect.getattr_static(function, name)
        if isinstance(function, property):
            function = function.fget
        elif isinstance(function, classmethod | staticmethod):
            function = function.__func__
        if isinstance(function, FunctionType):
            function = inspect.unwrap(function)  # such as a generator that is a context manager
        if (
            not isinstance(function, FunctionType)
            or function.__code__ != right
            or right.co_freevars != wrong.co_freevars
        ):
            return []
        found.append((function, wrong))
    return found


def _changed(mutant: Mutant, source: str) -> list[tuple[CodeType, CodeType]] | None:
    """The functions of a module that a mutant changes, right and wrong; None if it changes anything beside them."""
    right, wrong = (
        _functions(compile(text, mutant.path, "exec", dont_inherit=True))
        for text in (source, mutant.applied_to(source))
    )
    if right[1] != wrong[1]:
        return None
    return [(one, other) for one, other in zip(right[0], wrong[0], strict=True) if one != other]


def _functions(code: CodeType) -> tuple[list[CodeType], list[object]]:
    """The functions and methods in a module's code, and all the rest of it."""
    functions: list[CodeType] = []
    rest: list[object] = [code.co_code, code.co_names]
    for constant in code.co_consts:
        if not isinstance(constant, CodeType):
            rest.append((type(constant), constant))
        elif not constant.co_flags & inspect.CO_NEWLOCALS:  # the body of a class
            inner, others = _functions(constant)
            functions += inner
            rest += others
        elif constant.co_name.startswith("<"):  # a lambda, or what is left of a comprehension
            rest.append(constant)
        else:
            functions.append(constant)
            rest.append(constant.co_qualname)
    return functions, rest
