"""TARGET: from `module:attribute` or `path/to/file.py[:attribute]` to checked registrations.

The attribute (`registrations` if none is named) is a list of (name, cron, callback, retry delay), or a function, plain
or async, that returns such a list. Anything wrong with it ends the command with one message.

A file is loaded as the module that `import` finds beside it: `jobs/tasks.py` is `tasks`, and its folder comes first on
the path. So loggers carry that name, and processes that a pool starts afresh can import what they are given.
"""

import importlib
import importlib.util
import inspect
import os
import re
import stat
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import PathFinder, SourceFileLoader
from pathlib import Path
from types import ModuleType
from typing import Any, Final, NoReturn

from duly.cli import signals, streams
from duly.cli.file_trust import warn_of_other_users
from duly.cli.file_watch import Signature, signature
from duly.cli.output import Exit, Failure, fail, failure_of, reason_of
from duly.core.registration import Registration, read_registrations
from duly.core.steps import finish
from duly.engine.failure import frames_without_own, own_frames_left_out
from duly.errors import CronExpressionInvalidError, DulyError
from duly.insight.cron_check import examine
from duly.stores.sqlite.file import kind
from duly.text import meant, plain

DEFAULT_ATTRIBUTE: Final = "registrations"
TARGET_HELP: Final = "module:attribute or path/to/file.py[:attribute]; the default attribute is `registrations`"
_TRACEBACK_FRAMES_MAX: Final = 4
_DOTTED: Final = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


@dataclass(frozen=True, slots=True)
class Target:
    """A file or a module, and an attribute in it."""

    text: str
    file: Path | None
    module: str  # the name under which it is in sys.modules
    attribute: str


@dataclass(frozen=True, slots=True)
class Loaded:
    """The registrations of a target, as declared and as checked, and the source files that they came from."""

    target: Target
    # Not in the repr: when an event loop ends, Python makes the repr of what its main task returned, and drops it.
    declared: Sequence[Any] = field(repr=False)
    registrations: list[Registration] = field(repr=False)
    files: Mapping[Path, Signature | None]


@dataclass(frozen=True, slots=True)
class Wanted:
    """The kind of object that an attribute should be, for the hint where a target has no attribute of that name."""

    advice: str
    """The hint; `{name}` in it stands for the name."""

    one: str
    """How the hint calls another attribute that is of this kind."""

    fits: Callable[[object], bool]
    """Whether an object is of this kind."""


class TargetFailure(Failure):
    """A target raised; `files` are those in its traceback: fixing one of them may help."""

    files: frozenset[Path] = frozenset()


def looks_like_target(text: str) -> bool:
    """Whether a text names a file or `module:attribute`, and is not a cron expression."""
    if any(blank in text for blank in " \t") and not os.path.exists(text):
        return False
    return text.endswith(".py") or ":" in text or os.path.exists(text)


def parse_target(text: str, default: str = DEFAULT_ATTRIBUTE) -> Target:
    """Split the text of a TARGET; the file, if it is one, exists. `default` is the attribute if none is named."""
    head, colon, attribute = text.rpartition(":")
    if not colon or os.path.isfile(text):
        head, attribute = text, ""
    attribute = attribute or default
    if not head or not _DOTTED.fullmatch(attribute):
        fail(f"not a target: {text!r}", f"use {TARGET_HELP}", Exit.TARGET)
    if head.endswith(".py") or os.sep in head or os.path.isfile(head):
        path = Path(head)
        try:
            found = kind(path)
        except OSError as fault:
            hint = "check the owners and modes of its folders"
            fail(f"{head} cannot be looked at: {reason_of(fault)}", hint, Exit.TARGET)
        if found == stat.S_IFDIR:
            fail(f"{head} is a folder", "name a file in it, such as tasks.py", Exit.TARGET)
        if found != stat.S_IFREG:
            fail(f"no such file: {head}", _similar_file(path), Exit.TARGET)
        file = path.resolve()
        return Target(text, file, _module_name(file), attribute)
    if not _DOTTED.fullmatch(head):
        fail(f"not a target: {text!r}", f"use {TARGET_HELP}", Exit.TARGET)
    return Target(text, None, head, attribute)


def files_named(text: str) -> list[Path]:
    """The files that a TARGET may mean, whether or not they exist; nothing is imported to find them."""
    target = parse_target(text)
    if target.file is not None:
        return [target.file]
    module = Path(*target.module.split("."))
    places = [Path.cwd(), *map(Path, sys.path)]
    return [place / each for place in places for each in (module.with_suffix(".py"), module / "__init__.py")]


def load_now(text: str) -> Loaded:
    """Load a target where no event loop runs; standard output is for the command's own result."""
    target = parse_target(text)
    with streams.output_to_errors():
        return signals.run(load(target))


async def load(target: Target, earlier: Loaded | None = None) -> Loaded:
    """Import a target and check its registrations.

    With `earlier`, the result of an import before, modules from the target's own folder are imported anew; if that
    fails, the modules are as they were.
    """
    with _imports_of(target, earlier) as files:
        module = _import(target)
        declared = await _registrations(target, module)
    return Loaded(target, declared, _checked(target, declared), files)


def load_object(target: Target, wanted: Wanted) -> Any:
    """Import a target and return its attribute unchecked: the importers read objects of other libraries."""
    with streams.output_to_errors(), _imports_of(target, None):
        return _attribute(target, _import(target), wanted)


def call_object(target: Target, function: Any) -> Any:
    """Call a function that `load_object` returned, and return its result unchecked.

    No event loop runs meanwhile. A coroutine is closed, not awaited: no caller has a use for it.
    """
    with streams.output_to_errors():
        value = _result(target, function, _name(target))
    if inspect.iscoroutine(value):
        value.close()  # otherwise Python warns that it was never awaited
    return value


@contextmanager
def blamed(target: Target, what: str) -> Iterator[None]:
    """Report what is raised inside as an error in the target; `what` says what happened to it."""
    try:
        with streams.output_to_errors():
            yield
    except (Exception, SystemExit) as error:
        _fail_with_traceback(target, what, error)


def _checked(target: Target, declared: Sequence[Any]) -> list[Registration]:
    try:
        return list(finish(read_registrations(declared)).singles())
    except DulyError as error:
        index, task = error.details.get("registrationIndex"), error.details.get("taskName")
        place = f"{target.text}: registration {index}" + (f" ({plain(task)})" if task else "")
        failure = failure_of(error, about=place)
        if isinstance(error, CronExpressionInvalidError):
            failure.hint = examine(error.details["expression"]).advice
        elif failure.hint is not None:
            failure.hint = failure.hint.removeprefix(f"registration {index}: ")
        raise failure from error


# --- importing -------------------------------------------------------------------------------------------------------


_file_modules: set[str] = set()
"""The names of modules that were loaded from files here; loading such a file again replaces its module."""


def _module_name(file: Path) -> str:
    """The name by which `import` finds a file from its own folder; a dot in it would be a package."""
    return file.stem.replace(".", "_")


def _check_name(file: Path, name: str) -> None:
    """Raise if the name of a file means another module: that would be hidden, or found in its place by others."""
    loaded = sys.modules.get(name)
    taken: str | None = None
    if name == "__main__":
        taken = "the program itself"
    elif name in sys.stdlib_module_names:
        taken = "a module of Python's standard library"
    elif loaded is not None and name not in _file_modules and _source(loaded) != file:
        taken = f"a module that is loaded already ({getattr(loaded, '__file__', None) or 'built in'})"
    elif file.suffix == ".py" and (spec := PathFinder.find_spec(name, [str(file.parent)])) is not None:
        found = Path(spec.origin).resolve() if spec.origin else None
        taken = f"also {found or 'a folder'} beside it" if found != file and file.stem == name else None
    if taken is not None:
        fail(f"{file.name} cannot be loaded: to `import`, {name} is {taken}", "rename the file", Exit.TARGET)


def _import(target: Target) -> ModuleType:
    if target.file is not None:
        _check_name(target.file, target.module)
    source = b"" if target.file is None else _source_of(target, target.file)
    try:
        if target.file is not None:
            return _import_file(target.file, target.module, source)
        return importlib.import_module(target.module)
    except ModuleNotFoundError as error:
        # Either TARGET itself is missing, or a package that it is in; any other name is an import inside it.
        if target.file is None and error.name and (target.module + ".").startswith(error.name + "."):
            beside = target.module.replace(".", os.sep) + ".py"
            hint = f"did you mean {beside}?" if os.path.isfile(beside) else f"looked in {os.getcwd()} and on sys.path"
            fail(f"no such module: {error.name}", hint, Exit.TARGET)
        _fail_with_traceback(target, "cannot be imported", error)
    except (Exception, SystemExit) as error:
        _fail_with_traceback(target, "cannot be imported", error)


def _source_of(target: Target, file: Path) -> bytes:
    name = target.text.removesuffix(f":{target.attribute}")
    try:
        return file.read_bytes()
    except FileNotFoundError:  # found before, or the target would be none; a reload may come later
        fail(f"no such file: {name}", None, Exit.TARGET)
    except OSError as fault:
        fail(f"{name} cannot be read: {reason_of(fault)}", "check its owner and mode", Exit.TARGET)


def _import_file(path: Path, name: str, source: bytes) -> ModuleType:
    """Run a file as a module. It is compiled here: a bytecode cache, which compares time stamps, misses quick edits."""
    warn_of_other_users(path, "others can run code as you")
    spec = importlib.util.spec_from_loader(name, SourceFileLoader(name, str(path)))  # whatever its name ends in
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    _file_modules.add(name)
    exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
    return module


@contextmanager
def _imports_of(target: Target, earlier: Loaded | None) -> Iterator[dict[Path, Signature | None]]:
    """Put the target's folder first on the path for an import inside; its source files are in the dict at the end."""
    root = target.file.parent if target.file is not None else Path.cwd()
    if earlier is None and sys.path[:1] != [str(root)]:
        sys.path.insert(0, str(root))
    importlib.invalidate_caches()
    old = {} if earlier is None else {
        name: module for name, module in list(sys.modules.items()) if _source(module) in earlier.files
    }  # fmt: skip
    for name in old:
        del sys.modules[name]
    before = set(sys.modules) - {target.module}
    writes_bytecode, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    files: dict[Path, Signature | None] = {}
    try:
        yield files
    except BaseException:
        for name in set(sys.modules) - before:
            if _is_own(sys.modules[name], root):
                del sys.modules[name]
        sys.modules.update(old)
        raise
    finally:
        sys.dont_write_bytecode = writes_bytecode
    for name in set(sys.modules) - before:
        if _is_own(module := sys.modules[name], root) and (source := _source(module)) is not None:
            files[source] = signature(source)


_INSTALLED: Final = tuple(Path(sysconfig.get_path(kind)).resolve() for kind in ("stdlib", "purelib", "platlib"))


def _is_own(module: ModuleType, root: Path) -> bool:
    """Whether a module is the target's own: below its folder, and not in a virtual environment there."""
    source = _source(module)
    if source is None or not source.is_relative_to(root.resolve()) or module.__name__.split(".")[0] == "duly":
        return False
    return not any(source.is_relative_to(place) for place in _INSTALLED)


def _source(module: object) -> Path | None:
    name = getattr(module, "__file__", None)
    return Path(name).resolve() if isinstance(name, str) and name.endswith(".py") else None


def _similar_file(path: Path) -> str:
    try:
        names = [each.name for each in path.parent.iterdir() if each.suffix == ".py" and each.is_file()]
    except (FileNotFoundError, NotADirectoryError):
        return f"the folder {path.parent} does not exist"
    except OSError:
        names = []  # the folder may be entered, and not listed
    close = meant(path.name, names)
    return f"did you mean {path.with_name(close)}?" if close else f"use {TARGET_HELP}"


# --- the attribute ---------------------------------------------------------------------------------------------------


def _name(target: Target) -> str:
    """How messages name the attribute of a target."""
    return f"{target.text}: {target.attribute}" if ":" not in target.text else target.text


async def _registrations(target: Target, module: ModuleType) -> Sequence[Any]:
    value = _attribute(target, module, _REGISTRATIONS)
    what = _name(target)
    if callable(value):
        value = await _called(target, value, what)
        what = f"{what}()"
    if not isinstance(value, list | tuple):
        fail(
            f"{what} is {_kind(value)}, not a list of registrations",
            "make it a list of (name, cron, callback, retry delay), or a function without arguments that returns one",
            Exit.TARGET,
        )
    return value


async def _called(target: Target, function: Any, what: str) -> Any:
    value = _result(target, function, what)
    try:
        return await value if inspect.isawaitable(value) else value
    except (Exception, SystemExit) as error:
        _fail_with_traceback(target, "raised when it was called", error)


def _result(target: Target, function: Any, what: str) -> Any:
    try:
        inspect.signature(function).bind()
    except TypeError as cause:
        fail(f"{what}() cannot be called without arguments: {cause}", None, Exit.TARGET)
    except ValueError:
        pass  # some callables written in C have no signature
    try:
        return function()
    except (Exception, SystemExit) as error:
        _fail_with_traceback(target, "raised when it was called", error)


def _attribute(target: Target, module: ModuleType, wanted: Wanted) -> Any:
    value: Any = module
    for name in target.attribute.split("."):
        try:
            value = getattr(value, name)
        except AttributeError:
            fail(f"{target.text}: there is no {name!r}", _similar_attribute(value, name, wanted), Exit.TARGET)
    return value


def _similar_attribute(owner: object, name: str, wanted: Wanted) -> str:
    public = [each for each in vars(owner) if not each.startswith("_")] if hasattr(owner, "__dict__") else []
    fitting = [each for each in public if _fits(wanted, getattr(owner, each))]
    # Others as well: they may be functions that return what is wanted, or lead to it.
    if close := meant(name, fitting) or meant(name, public):
        return f"did you mean {close}?"
    advice = wanted.advice.format(name=name)
    # A name that is far off was hardly meant; that it is there may help all the same.
    return f"{advice}; {fitting[0]} is {wanted.one}" if fitting else advice


def _fits(wanted: Wanted, value: object) -> bool:
    """Whether a value is of the wanted kind; one that cannot even be looked at, such as some lazy proxies, is not."""
    try:
        return wanted.fits(value)
    except Exception:
        return False


def _has_the_shape(value: object) -> bool:
    return isinstance(value, list | tuple) and bool(value) and all(
        isinstance(item, list | tuple) and len(item) == 4 for item in value
    )  # fmt: skip


_REGISTRATIONS: Final = Wanted(
    "define {name}: a list of (name, cron, callback, retry delay), or a function that returns one",
    "such a list",
    _has_the_shape,
)


def _kind(value: object) -> str:
    return "None" if value is None else f"a value of type {type(value).__name__}"


# --- the target's traceback, shortened -------------------------------------------------------------------------------


def _fail_with_traceback(target: Target, what: str, error: BaseException) -> NoReturn:
    excerpt, whole = shortened_traceback(error), "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, SyntaxError):
        reason = whole.rsplit("\n", 1)[-1]  # the lines before it are in the excerpt
    elif (reason := _in_one_line(whole)) != whole and not _is_chained(error):  # the end of a chain's excerpt is it
        excerpt = f"{excerpt}\n{whole}"
    failure = TargetFailure(f"{target.text} {what}: {reason}", None, Exit.TARGET, excerpt)
    names = {frame.filename for frame in traceback.extract_tb(error.__traceback__)}
    names |= {error.filename} if isinstance(error, SyntaxError) and error.filename else set()
    root = (target.file.parent if target.file is not None else Path.cwd()).resolve()
    failure.files = frozenset(path for name in names if (path := Path(name).resolve()).is_relative_to(root))
    raise failure from error


def _in_one_line(whole: str) -> str:
    """The type of an exception, and the first line of its text that says something."""
    first, *others = [line.strip() for line in whole.splitlines() if line.strip()]
    return f"{first} {others[0]}" if first.endswith(":") and others else first


def shortened_traceback(error: BaseException) -> str:
    """The last few frames of a traceback, without those of duly and of the import machinery.

    What the exception was raised from, and the members of a group, are shown with it.
    """
    if _is_chained(error):
        return "".join(own_frames_left_out(error, _TRACEBACK_FRAMES_MAX).format()).rstrip("\n")
    shown = own_frames_left_out(error, _TRACEBACK_FRAMES_MAX)
    lines = traceback.format_list(shown.stack)
    if (left_out := frames_without_own(error) - len(shown.stack)) > 0:
        lines.insert(0, f"  … {left_out} more\n")
    if isinstance(error, SyntaxError):
        lines += traceback.format_exception_only(error)[:-1]  # the place; the message has been printed above it
    return "".join(lines).rstrip("\n")


def _is_chained(error: BaseException) -> bool:
    """Whether the excerpt of an exception has others in it, and so its message, too."""
    context = None if error.__suppress_context__ else error.__context__
    return bool(error.__cause__ or context or isinstance(error, BaseExceptionGroup))
