"""Runs as a Markdown table: medians, spread, and ratios to infeed and to the bare loop."""

from statistics import median

UNITS = {"segmentation": "pairs/s", "segmentation-ordered": "pairs/s"}


def is_clean(run: dict) -> bool:
    """Whether a run counts: it ended, did the job, and had the machine to itself."""
    return "samples_per_s" in run and "wrong" not in run and not run["dropped"]


def line_of(run: dict) -> str:
    """One run in one line, as progress."""
    name = f"{run['workload']:22} {run['loader']:18}"
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
    """All workloads, each in a table of its own, under what a number needs beside it."""
    on = head["machine"]
    lines = [
        f"Machine: {on['processor']}, {on['cores']} cores, {'+'.join(on['simd'])}, "
        f"{on['memory_gib']} GiB, {on['system']}; {head['threads']} threads.",
        *(
            f"Data, {name}: {d['files']} files, {d['bytes'] / 1e6:.0f} MB, in the page cache."
            for name, d in head["data"].items()
        ),
        f"Commit {head['commit']}; `{head['command']}`.",
        f"Versions: {', '.join(versions(runs))}.",
    ]
    for workload in dict.fromkeys(r["workload"] for r in runs):
        lines += ["", *table_of(workload, [r for r in runs if r["workload"] == workload])]
    return "\n".join(lines)


def versions(runs: list[dict]) -> list[str]:
    found = {f"{k} {v}" for r in runs for k, v in r.get("versions", {}).items()}
    return sorted(found)


def table_of(workload: str, runs: list[dict]) -> list[str]:
    clean: dict[str, list[dict]] = {}
    for run in filter(is_clean, runs):
        clean.setdefault(run["loader"], []).append(run)
    rate = {name: median(r["samples_per_s"] for r in rs) for name, rs in clean.items()}
    lines = [
        f"### {workload}",
        "",
        f"| loader | {UNITS.get(workload, 'images/s')}, median | min to max (n) | infeed is "
        "| of the bare loop | CPU ms a sample | peak MiB | first batch s |",
        "|---|--:|--:|--:|--:|--:|--:|--:|",
    ]
    reference = rate.get("infeed") or rate.get("infeed:unverified")
    for name in sorted(rate, key=rate.__getitem__, reverse=True):
        rs = clean[name]
        all_of = [r["samples_per_s"] for r in rs]
        times = f"{reference / rate[name]:.2f}x" if reference and name != "infeed" else ""
        share = f"{rate[name] / rate['bare']:.1%}" if "bare" in rate and name != "bare" else ""
        lines.append(
            f"| {name} | **{rate[name]:,.1f}** | {min(all_of):,.1f} to {max(all_of):,.1f} ({len(rs)}) "
            f"| {times} | {share} | {of(rs, 'cpu_ms_per_sample', '.2f')} "
            f"| {of(rs, 'peak_rss_bytes', '.0f', 2**20)} | {of(rs, 'first_batch_s', '.2f')} |"
        )
    lines += remarks(runs)
    return lines


def of(runs: list[dict], key: str, form: str, unit: float = 1) -> str:
    values = [r[key] / unit for r in runs if r.get(key) is not None]
    return format(median(values), form) if values else ""


def remarks(runs: list[dict]) -> list[str]:
    """What the table leaves out, so that nothing is dropped in silence."""
    lines = []
    loads = [r["foreign_cores"] for r in runs if is_clean(r) and r.get("foreign_cores") is not None]
    if loads:
        lines += ["", f"Other processes used at most {max(loads):.2f} cores during these runs."]
    for run in runs:
        if "error" in run or "wrong" in run or run.get("dropped"):
            lines += ["", f"Not counted: {' '.join(line_of(run).split())}."]
    return lines
