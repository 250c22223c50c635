"""Runs as Markdown tables: medians, spread, ratios to infeed and to the bare loop."""

from statistics import median

PAIRS = ("segmentation", "segmentation-ordered", "segmentation-lossless")


def is_clean(run: dict) -> bool:
    """Whether a run counts: it ended, was correct, and had the machine for itself."""
    return "samples_per_s" in run and "wrong" not in run and not run["dropped"]


def line_of(run: dict) -> str:
    """Returns one run in one line, as progress."""
    name = f"{run['workload']:29} {run['loader']:18}"
    if "error" in run:
        return f"{name} failed: {run['error'].splitlines()[-1]}"
    if "skipped" in run:
        return f"{name} {run['skipped']}"
    notes = [f"{run['samples_per_s']:10.1f}/s"]
    if "wrong" in run:
        notes.append(f"WRONG: {run['wrong']}")
    if run["dropped"]:
        notes.append(f"dropped: others used {run['foreign_cores']} cores")
    if (run.get("stolen_cores") or 0) > 0.02:
        notes.append(f"the host took {run['stolen_cores']} cores")
    return " ".join([name, *notes])


def markdown(head: dict, runs: list[dict]) -> str:
    """Returns a table for each workload, after the context of the numbers."""
    on = head["machine"]
    simd = "+".join(on["simd"])
    lines = [
        f"Machine: {on['processor']}, {on['cores']} cores, {simd}, "
        f"{on['memory_gib']} GiB, {on['system']}; {head['threads']} threads."
    ]
    for name, d in head["data"].items():
        size = f"{d['files']} files, {d['bytes'] / 1e6:.0f} MB"
        lines.append(f"Data, {name}: {size}, in the page cache.")
    lines.append(f"Commit {head['commit']}; `{head['command']}`.")
    lines.append(f"Versions: {', '.join(versions(runs))}.")
    for workload in dict.fromkeys(r["workload"] for r in runs):
        lines.append("")
        lines += table_of(workload, [r for r in runs if r["workload"] == workload])
    return "\n".join(lines)


def versions(runs: list[dict]) -> list[str]:
    found = {f"{k} {v}" for r in runs for k, v in r.get("versions", {}).items()}
    return sorted(found)


def table_of(workload: str, runs: list[dict]) -> list[str]:
    clean: dict[str, list[dict]] = {}
    for run in filter(is_clean, runs):
        clean.setdefault(run["loader"], []).append(run)
    rate = {name: median(r["samples_per_s"] for r in rs) for name, rs in clean.items()}
    titles = [
        "loader",
        f"{'pairs/s' if workload in PAIRS else 'images/s'}, median",
        "min to max (n)",
        "infeed is",
        "of the bare loop",
        "CPU ms a sample",
        "peak MiB",
        "first batch s",
    ]
    lines = [
        f"### {workload}",
        "",
        row(titles),
        "|---" + "|--:" * (len(titles) - 1) + "|",
    ]
    reference = rate.get("infeed") or rate.get("infeed:unverified")
    for name in sorted(rate, key=rate.__getitem__, reverse=True):
        rs = clean[name]
        rates = [r["samples_per_s"] for r in rs]
        is_other = reference and not name.startswith("infeed")
        is_compared = "bare" in rate and name != "bare"
        cells = [
            name,
            f"**{rate[name]:,.1f}**",
            f"{min(rates):,.1f} to {max(rates):,.1f} ({len(rs)})",
            f"{reference / rate[name]:.2f}x" if is_other else "",
            f"{rate[name] / rate['bare']:.1%}" if is_compared else "",
            of(rs, "cpu_ms_per_sample", ".2f"),
            of(rs, "peak_rss_bytes", ".0f", 2**20),
            of(rs, "first_batch_s", ".2f"),
        ]
        lines.append(row(cells))
    return lines + remarks(runs)


def row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def of(runs: list[dict], key: str, spec: str, unit: float = 1) -> str:
    values = [r[key] / unit for r in runs if r.get(key) is not None]
    return format(median(values), spec) if values else ""


def remarks(runs: list[dict]) -> list[str]:
    """Returns a note on the rows that the table leaves out."""
    lines = []
    loads = [
        r["foreign_cores"]
        for r in runs
        if is_clean(r) and r.get("foreign_cores") is not None
    ]
    if loads:
        lines += [
            "",
            f"Other processes used at most {max(loads):.2f} cores during these runs.",
        ]
    for run in runs:
        if "error" in run or "wrong" in run or run.get("dropped"):
            lines += ["", f"Not counted: {' '.join(line_of(run).split())}."]
    return lines
