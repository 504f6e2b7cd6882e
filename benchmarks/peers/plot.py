"""``python -m benchmarks.peers.plot PICTURE.png < FIGURES.json``, in an environment with matplotlib.

``FIGURES.json`` has ``note``, and in ``panels`` what :func:`benchmarks.peers.bursts.panels` says. The background is
white, so that the picture reads on dark pages as well.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, Final

_STYLES: Final = (  # of our arms, and of the others in the order in which they come
    ("#d1495b", "o", "-"),
    ("#d1495b", "v", "--"),
    ("#d1495b", "x", ":"),
    ("#edae49", "s", "-"),
    ("#00798c", "^", "-"),
    ("#6c757d", "D", "-"),
)
_MEASURES: Final = (
    ("tokens/s", "tokens_per_s", None),
    ("first token, s\n(line p50, shade to p90)", "first_p50_ms", "first_p90_ms"),
    ("between two messages, s\n(line p50, shade to p90)", "gap_p50_ms", "gap_p90_ms"),
)


def draw(data: dict[str, Any], picture: Path) -> None:
    """A column for each kind, a row of plots for each measure; both axes are logarithmic."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    kinds = list(data["panels"])
    figure, grid = pyplot.subplots(
        len(_MEASURES), len(kinds), figsize=(5.2 * len(kinds), 9.6), sharex=True, sharey="row", squeeze=False
    )
    for axes, (label, middle, high) in zip(grid, _MEASURES, strict=True):
        for ax, kind in zip(axes, kinds, strict=True):
            for (name, widths), (colour, marker, dash) in zip(data["panels"][kind].items(), _STYLES, strict=False):
                at = [int(width) for width in widths]
                scale = 1.0 if high is None else 1e-3
                line = [scale * figures[middle] for figures in widths.values()]
                ax.plot(at, line, color=colour, marker=marker, linestyle=dash, linewidth=1.8, label=name)
                if high is not None and dash == "-":
                    edge = [scale * figures[high] for figures in widths.values()]
                    ax.fill_between(at, line, edge, color=colour, alpha=0.12, linewidth=0)
            ax.set_xscale("log", base=2)
            ax.set_yscale("log")
            ax.set_xticks(at, [str(width) for width in at])
            ax.yaxis.set_major_locator(mpl.ticker.LogLocator(subs=(1, 2, 5)))
            ax.yaxis.set_major_formatter(mpl.ticker.FuncFormatter(lambda value, _: f"{value:g}"))
            ax.yaxis.set_minor_formatter(mpl.ticker.NullFormatter())
            ax.grid(color="#dde1e5")
        axes[0].set_ylabel(label)
    for ax, kind in zip(grid[0], kinds, strict=True):
        ax.set_title(kind)
    for ax in grid[-1]:
        ax.set_xlabel("streams at once")
    handles, labels = grid[0][0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="upper center", ncols=3, frameon=False, bbox_to_anchor=(0.5, 0.995))
    figure.text(0.5, 0.008, data["note"], ha="center", fontsize=8, color="#444444")
    figure.tight_layout(rect=(0, 0.035, 1, 0.945))
    figure.savefig(picture, dpi=100, facecolor="white", metadata={"Software": None}, pil_kwargs={"optimize": True})


if __name__ == "__main__":
    draw(json.load(sys.stdin), Path(sys.argv[1]))
