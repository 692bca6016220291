"""The curves: seconds against the number of tasks, both axes logarithmic, as SVG."""

from pathlib import Path

from benchmarks.figures import Figures
from benchmarks.plan import OTHER_PYTHONS, PEERS, Size

COLOURS = ("#4477aa", "#66ccee", "#228833", "#ccbb44", "#ee6677", "#aa3377", "#bbbbbb", "#000000", "#ee8866", "#44bb99")
"""Colours that readers with colour blindness can tell apart."""

FILES = ("tick.svg", "initialize.svg")

Curve = tuple[str, list[str], str]


def draw(figures: Figures, size: Size, folder: Path) -> list[Path]:
    """One file for each plot that has anything to show."""
    compared = sorted({*size.compared, size.slow, size.slowest})
    ticks: list[Curve] = [("duly", [f"tick {tasks}" for tasks in size.growing], "last_start_s")]
    ticks += [
        (f"duly, Python {version}", [f"tick {tasks} on {version}" for tasks in size.growing], "last_start_s")
        for version in OTHER_PYTHONS
    ]
    ticks += [(name, [f"{name} {tasks}" for tasks in compared], "last_start_s") for name, *_ in PEERS]
    initialized: list[Curve] = [
        ("duly, cold", [f"initialize {tasks}" for tasks in size.growing], "cold_s"),
        ("duly, warm", [f"initialize {tasks}" for tasks in size.growing], "warm_s"),
    ]
    initialized += [(name, [f"{name} {tasks}" for tasks in compared], "initialize_s") for name, *_ in PEERS]
    made = (
        _plot(figures, ticks, "From the due instant to the last start", folder / FILES[0]),
        _plot(figures, initialized, "Declaring tasks", folder / FILES[1]),
    )
    return [path for path in made if path is not None]


def drawn(folder: Path) -> list[Path]:
    """The files that an earlier run has drawn."""
    return [folder / name for name in FILES if (folder / name).exists()]


def _plot(figures: Figures, curves: list[Curve], title: str, path: Path) -> Path | None:
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "duly"  # the same figures give the same file
    matplotlib.rcParams["svg.fonttype"] = "none"
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    shown = 0
    for label, keys, name in curves:
        points = [
            (figures.values(key, "tasks")[0], value.median, value.low, value.high)
            for key in keys
            if (value := figures.of(key, name)) is not None and value.low > 0
        ]
        if not points:
            continue
        tasks, seconds, low, high = zip(*points, strict=True)
        ours = label.startswith("duly")
        colour = COLOURS[shown % len(COLOURS)]
        axes.plot(tasks, seconds, "o-" if ours else "s--", label=label, color=colour, linewidth=2 if ours else 1)
        axes.fill_between(tasks, low, high, color=colour, alpha=0.15)
        shown += 1
    if not shown:
        pyplot.close(figure)
        return None
    axes.set(xscale="log", yscale="log", xlabel="tasks", ylabel="seconds", title=title)
    axes.grid(visible=True, which="major", alpha=0.3)
    axes.legend(fontsize="small", loc="center left", bbox_to_anchor=(1, 0.5), frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})
    pyplot.close(figure)
    return path
