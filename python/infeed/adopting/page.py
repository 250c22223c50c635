"""The report of `adopt` as a page: one file that opens from disk, in light and dark.

Style and structure are those of the page of `infeed explain --html`.
"""

import base64
import html
from collections.abc import Iterable, Sequence

import numpy as np

from infeed._core import __version__
from infeed.adopting.equivalence import Equivalence
from infeed.adopting.samples import Array
from infeed.adopting.steps import Finding
from infeed.preview import png, rgb_or_gray

_STYLE = """\
:root {
  color-scheme: light dark;
  --page: #ffffff; --panel: #f4f6f8; --ink: #191d21; --soft: #56606b; --rule: #d5dae0;
  --good: #00704f; --wait: #c8430a;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #14181c; --panel: #1d2329; --ink: #e7eaed; --soft: #a3adb8;
    --rule: #363f48; --good: #4fcf9f; --wait: #ff7d4a;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0 auto; max-width: 68rem; padding: 1.5rem 1.25rem 4rem;
  background: var(--page); color: var(--ink);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif;
}
h1 { margin: 0.25rem 0 0.5rem; font-size: 1.75rem; line-height: 1.2; }
h1::first-letter { text-transform: uppercase; }
h2 { margin: 0 0 0.5rem; font-size: 1.15rem; }
p { margin: 0 0 0.75rem; max-width: 46rem; }
section { margin-top: 2.5rem; padding-top: 1.25rem; border-top: 1px solid var(--rule); }
.about, figcaption { color: var(--soft); font-size: 0.875rem; }
code, pre {
  font: 0.8125rem/1.5 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono",
    monospace;
}
pre {
  margin: 0; padding: 0.75rem 1rem; overflow-x: auto; background: var(--panel);
  border-radius: 6px;
}
h1, h2, p, li, td, th, figcaption { overflow-wrap: anywhere; }
.tiles {
  display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr));
  gap: 0.75rem; margin: 1.25rem 0;
}
.tile {
  min-width: 0; padding: 0.75rem 1rem; background: var(--panel); border-radius: 8px;
}
.tile b { display: block; font-size: 1.35rem; line-height: 1.3; }
.tile span { color: var(--soft); font-size: 0.875rem; }
table { width: 100%; border-collapse: collapse; font-size: 0.9rem; }
th {
  color: var(--soft); font-weight: 500; text-align: left; padding: 0.3rem 0.6rem;
  border-bottom: 1px solid var(--rule);
}
td {
  vertical-align: top; padding: 0.4rem 0.6rem; border-bottom: 1px solid var(--rule);
}
th:first-child, td:first-child { padding-left: 0; }
.python td:nth-child(2), .differs { color: var(--wait); }
.pictures { display: flex; flex-wrap: wrap; gap: 1rem; margin-bottom: 1.25rem; }
figure { margin: 0; min-width: 0; }
figure img {
  display: block; width: 16rem; max-width: 100%; image-rendering: pixelated;
  border: 1px solid var(--rule);
}
"""

_POLICY = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; "
    "form-action 'none'"
)

# Ratio of rates below which the pipeline counts as slower.
SLOWER = 0.95

_Rates = tuple[Sequence[float], Sequence[float]]


def page(
    adopted: str,
    findings: Sequence[Finding],
    equivalence: Equivalence | None,
    rates: _Rates | None,
    limit: str | None,
    code: str,
) -> str:
    """Returns the page. It loads nothing and runs no script.

    Args:
        adopted: Name of the adopted loader's class.
        findings: What each part of the loader became.
        equivalence: Result of the comparison of samples, if there was one.
        rates: Samples per second of their loader and of the pipeline, by turn.
        limit: What limits the pipeline.
        code: The code of the pipeline.
    """
    claim = _claim(findings, equivalence, rates)
    sections = [
        _parts(findings),
        "" if equivalence is None else _proof(equivalence),
        "" if rates is None else _gain(rates, limit),
        _section("Code of the pipeline", f"<pre><code>{_text(code)}</code></pre>\n"),
    ]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<link rel="icon" href="data:,">
<meta name="generator" content="infeed {_text(__version__)}">
<title>{_text(f"{adopted}: {claim}")}</title>
<style>
{_STYLE}</style>
</head>
<body>
<header>
<p class="about">infeed adopt · {_text(adopted)}</p>
<h1>{_text(claim)}</h1>
{_tiles(findings, equivalence, rates)}</header>
{"".join(sections)}</body>
</html>
"""


def _claim(
    findings: Sequence[Finding],
    equivalence: Equivalence | None,
    rates: _Rates | None,
) -> str:
    """Returns the headline."""
    called = sum(finding.became is None for finding in findings)
    claims = []
    if equivalence is not None:
        claims.append("samples differ" if equivalence.problems else "equal samples")
    if rates is not None:
        ratio = f"{_ratio(rates):.2f} times the samples/s"
        if _ratio(rates) < SLOWER:
            claims.insert(0, f"slower: {ratio}")
        else:
            claims.append(ratio)
    if called or not claims:
        claims.append(f"{called} part{'' if called == 1 else 's'} called in Python")
    return ", ".join(claims)


def _ratio(rates: _Rates) -> float:
    theirs, ours = rates
    return sum(ours) / sum(theirs)


def _tiles(
    findings: Sequence[Finding],
    equivalence: Equivalence | None,
    rates: _Rates | None,
) -> str:
    native = sum(finding.became is not None for finding in findings)
    tiles = [(f"{native} of {len(findings)}", "parts of the loader are replaced")]
    if equivalence is not None:
        tiles.insert(0, (str(equivalence.samples), "samples compared"))
    if rates is not None:
        theirs, ours = (sum(turns) / len(turns) for turns in rates)
        tiles.insert(0, (f"{theirs:.0f} samples/s", "of the adopted loader"))
        tiles.insert(1, (f"{ours:.0f} samples/s", "of the pipeline"))
    drawn = (
        f'<div class="tile"><b>{_text(number)}</b><span>{_text(meaning)}</span></div>\n'
        for number, meaning in tiles
    )
    return f'<div class="tiles">\n{"".join(drawn)}</div>\n'


def _parts(findings: Sequence[Finding]) -> str:
    rows = "".join(
        f"<tr{'' if found.became else chr(32) + _PYTHON}><td>{_text(found.part)}</td>"
        f"<td><code>{_text(found.became or 'called in Python')}</code></td>"
        f"<td>{_text(found.reason)}</td></tr>\n"
        for found in findings
    )
    return _section("Parts of the loader", _table(("part", "becomes", "note"), rows))


_PYTHON = 'class="python"'


def _proof(equivalence: Equivalence) -> str:
    style = ' class="differs"' if equivalence.problems else ""
    body = f"<p{style}>{_text(str(equivalence))}.</p>\n"
    for number, theirs, ours in equivalence.pictures:
        # Pictures of random chains have other draws, so their difference says nothing.
        shows = not equivalence.is_random
        body += _picture_pair(number, theirs, ours, shows_difference=shows)
    if equivalence.comparisons:
        heads = ("statistic of random draws", "adopted loader", "pipeline", "p-value")
        rows = "".join(
            f"<tr><td>{_text(one.title)}</td><td>{one.theirs:.4g}</td>"
            f"<td>{one.ours:.4g}</td><td>{one.p_value:.2g}</td></tr>\n"
            for one in equivalence.comparisons
        )
        body += _table(heads, rows)
    return _section("Proof", body)


def _gain(rates: _Rates, limit: str | None) -> str:
    rows = "".join(
        f"<tr><td>{turn}</td><td>{their:.1f}</td><td>{our:.1f}</td>"
        f"<td>{our / their:.2f}</td></tr>\n"
        for turn, (their, our) in enumerate(zip(*rates, strict=True), start=1)
    )
    heads = ("turn", "adopted loader, samples/s", "pipeline, samples/s", "ratio")
    theirs, ours = rates
    low, high = min(ours) / max(theirs), max(ours) / min(theirs)
    summary = (
        f"<p>{_ratio(rates):.2f} times the samples/s; {low:.2f} to {high:.2f} between "
        "turns.</p>\n"
    )
    if limit is not None:
        summary += f"<p>{_text(limit)}.</p>\n"
    return _section("Gain", summary + _table(heads, rows))


def _picture_pair(
    number: int, theirs: Array, ours: Array, *, shows_difference: bool
) -> str:
    """Returns two pictures of a sample next to each other, with the same scale."""
    pair = [rgb_or_gray(np.squeeze(array)) for array in (theirs, ours)]
    pixels = [array.astype(np.float64) for array in pair if array is not None]
    if len(pixels) < 2:
        return ""
    low = min(float(array.min()) for array in pixels)
    high = max(float(array.max()) for array in pixels)
    titles = [f"sample {number}, adopted loader", f"sample {number}, infeed"]
    shown = [_scale(array, low, high) for array in pixels]
    if shows_difference and pixels[0].shape == pixels[1].shape:
        apart = np.abs(pixels[0] - pixels[1])
        most = float(apart.max())
        titles.append(f"difference; white is {most:.3g}")
        shown.append(_scale(apart, 0.0, most))
    figures = (
        f'<figure><img alt="{_text(title)}" src="{_uri(picture)}">'
        f"<figcaption>{_text(title)}</figcaption></figure>\n"
        for title, picture in zip(titles, shown, strict=True)
    )
    return f'<div class="pictures">\n{"".join(figures)}</div>\n'


def _scale(array: Array, low: float, high: float) -> Array:
    scaled = (array - low) * (255 / max(high - low, 1e-9))
    return np.ascontiguousarray(np.clip(np.rint(scaled), 0, 255).astype(np.uint8))


def _uri(pixels: Array) -> str:
    return "data:image/png;base64," + base64.b64encode(png(pixels)).decode()


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{title}</h2>\n{body}</section>\n"


def _table(heads: Iterable[str], rows: str) -> str:
    head = "".join(f'<th scope="col">{name}</th>' for name in heads)
    return (
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\n</table>\n"
    )


def _text(text: str) -> str:
    """Escapes text for content and quoted attributes."""
    shown = (c if c.isprintable() or c.isspace() else "\ufffd" for c in text)
    return html.escape("".join(shown))
