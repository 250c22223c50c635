//! The HTML report: one file that opens from disk without a network, in light and dark.
//!
//! The HTML contains all facts. The plots repeat them, drawn by Observable Plot if scripts may run.
//! Names from the dataset reach the page escaped, or inside JSON without a `<`.

mod data;
mod device;
mod feeders;
mod figures;
mod markup;
mod what_if;

use figures::{SHOWN, colour, figure, plot_of, plot_of_curve, swatch};
use markup::{TableCell, TableRow, escape, list, section, table};

use super::numbers;
use super::timeline;
use super::words::{StallPart, behind, error, stall};
use crate::findings::ledger::LedgerEntry;
use crate::findings::{Explanation, MeasuredMachine, Remedy, Subject, UntriedRemedy};
use crate::model::interval::PredictionOutcome;
use crate::model::limit::Resource;
use infeed_core::units::{figures, format_bytes, format_factor, format_percent, format_seconds};

/// Start of the head: the encoding and the content policy. The page may load only its own parts.
const HEAD: &str = include_str!("html/head.html");
const STYLE: &str = include_str!("html/style.css");
const PLOTS: &str = include_str!("html/plots.js");
const D3: &str = include_str!("html/vendor/d3.min.js");
const PLOT: &str = include_str!("html/vendor/plot.umd.min.js");
const LICENSE: &str = include_str!("html/vendor/LICENSE.txt");

/// Returns one self-contained HTML file: verdict, plots, tables, machine. It has about 0.6 MB, most
/// of it for the plots.
pub fn html(e: &Explanation) -> String {
    let sections = [
        resources(e),
        remedies(e),
        what_if::prediction(e),
        evidence(e),
        what_if::crossovers(e),
        consumer(e),
        stages(e),
        queue(e),
        timeline(e),
        device::placement(e),
        device::decoding(e),
        device::transfers(e),
        feeders::hosts(e),
        feeders::counts(e),
        ledger(e),
        notes(e),
        circumstances(e),
    ];
    format!(
        r#"<!doctype html>
<html lang="en">
<head>
{HEAD}<meta name="generator" content="infeed {version}">
<title>{title}</title>
<style>
{STYLE}</style>
</head>
<body>
{head}
{sections}<script type="application/json" id="data">{data}</script>
<!--
{LICENSE}-->
<script>
{D3}
</script>
<script>
{PLOT}
</script>
<script>
{PLOTS}</script>
</body>
</html>
"#,
        version = escape(&e.infeed),
        title = escape(&format!("{}: {}", e.subject.name, e.verdict.claim)),
        head = head(e),
        sections = sections.concat(),
        data = data::json(e),
    )
}

/// The verdict.
fn head(e: &Explanation) -> String {
    let v = &e.verdict;
    let lead = match behind(v) {
        Some(behind) if v.tie => format!("Tie: {behind}."),
        Some(behind) => format!("The second limit is {behind}."),
        None => String::new(),
    };
    let waited = 1.0 - e.stall.compute;
    let mut tiles = vec![
        (numbers::rate(e.run.samples_per_s), "measured".to_owned()),
        (
            numbers::rate(v.rate),
            format!("allowed by {}", v.limit.name()),
        ),
        (
            format_percent(waited),
            "of the time spent waiting for data".to_owned(),
        ),
    ];
    if let Some(best) = e.remedies.iter().find(|remedy| remedy.gains()) {
        tiles.push((
            format_factor(best.gain.mid),
            format!("predicted: {}", best.title()),
        ));
    }
    let warning = |text: &String| format!("<p class=\"warning\">{}</p>\n", escape(text));
    let warnings: String = e.warnings.iter().map(warning).collect();
    let tile = |(number, what): &(String, String)| {
        format!(
            "<div class=\"tile\"><b>{}</b><span>{}</span></div>\n",
            escape(number),
            escape(what)
        )
    };
    let tiles: String = tiles.iter().map(tile).collect();
    format!(
        "<header>\n<p class=\"about\">infeed explain · {} · {}</p>\n<h1>{}</h1>\n\
         <p class=\"lead\">{}</p>\n{warnings}<div class=\"tiles\">\n\
         {tiles}</div>\n</header>",
        escape(&e.subject.name),
        numbers::moment(e.made_at_s),
        escape(&v.claim),
        escape(&lead),
    )
}

/// The observations and the arithmetic behind the verdict.
fn evidence(e: &Explanation) -> String {
    let v = &e.verdict;
    // The section on remedies has the advice if there are remedies.
    let advice = match e.remedies.is_empty() {
        true => v.advice.as_slice(),
        false => &[],
    };
    let parts = [
        ("evidence", v.evidence.as_slice()),
        ("capacity", &v.capacity),
        ("try", advice),
    ];
    let items: String = parts
        .iter()
        .filter(|(_, lines)| lines.iter().any(|line| !line.is_empty()))
        .map(|(label, lines)| format!("<dt>{label}</dt><dd>{}</dd>\n", list(lines)))
        .collect();
    section(
        "Evidence",
        &format!("<dl class=\"verdict\">\n{items}</dl>\n"),
    )
}

/// The consumer's time by activity.
fn consumer(e: &Explanation) -> String {
    let row = |part: &StallPart| {
        let name = format!("{}{}", swatch(part.colour), escape(part.what));
        TableRow::plain(vec![
            TableCell::markup(name),
            TableCell::text(part.term),
            TableCell::number(format_percent(part.share)),
        ])
    };
    let parts = stall(e);
    let rows: Vec<TableRow> = parts.iter().map(row).collect();
    let shown = parts.iter().filter(|part| part.share >= SHOWN).count();
    let first = format!(
        "The run took {}, {} of them up to the first batch; of the rest the consumer waited {} and \
         computed {}.",
        format_seconds(e.run.seconds),
        format_seconds(e.run.first_batch_s),
        format_seconds(e.run.wait_s),
        format_seconds(e.run.step_s),
    );
    section(
        "Time of the training loop",
        &format!(
            "<p>{}</p>\n{}{}",
            escape(&first),
            plot_of(shown, "stall", ""),
            table("", &["activity", "term", "share"], &rows)
        ),
    )
}

fn stages(e: &Explanation) -> String {
    // A stage without samples has no cost, for example the decoding of pixels in memory.
    let used = e.run.stages.iter().filter(|stage| stage.samples > 0);
    let rows: Vec<TableRow> = used
        .map(|stage| {
            let n = stage.samples as f64;
            let name = format!("{}{}", swatch(colour(&stage.name)), escape(&stage.name));
            TableRow::plain(vec![
                TableCell::markup(name),
                TableCell::number(numbers::short_rate(stage.rate_per_core)),
                TableCell::number(format_seconds(stage.cpu_s / n)),
                TableCell::number(format_seconds(stage.wall_s / n)),
                TableCell::number(format_seconds(stage.p99_s)),
                TableCell::number(format_bytes(stage.bytes_in as f64 / n)),
                TableCell::number(format_bytes(stage.bytes_out as f64 / n)),
                TableCell::number(format_percent(stage.cpu_share)),
            ])
        })
        .collect();
    if rows.is_empty() {
        return String::new();
    }
    let heads = [
        "stage",
        "per core",
        "CPU",
        "wall",
        "p99",
        "in",
        "out",
        "CPU share",
    ];
    section(
        "Cost of a sample by stage",
        &(plot_of(
            rows.len(),
            "stages",
            "Full bars: processor time. Pale: wall time.",
        ) + &table("stacked", &heads, &rows)),
    )
}

fn resources(e: &Explanation) -> String {
    let row = |resource: &Resource| TableRow {
        class: match resource.limit == e.verdict.limit {
            true => "limit",
            false => "",
        },
        below: None,
        cells: vec![
            TableCell::markup(resource.limit.name().to_owned()),
            TableCell::number(numbers::interval(resource.rate, numbers::short_rate)).over_all(),
            TableCell::text(&resource.arithmetic).over_all(),
        ],
    };
    let rows: Vec<TableRow> = e.resources.iter().map(row).collect();
    if rows.is_empty() {
        return String::new();
    }
    let caption = "Bars: samples per second that each resource allows, the limit marked. Whiskers: \
                   the interval. Dashed: the measured rate.";
    section(
        "Rate by resource",
        &(plot_of(rows.len(), "resources", caption)
            + &table(
                "stacked",
                &["resource", "allows", "how it is computed"],
                &rows,
            )),
    )
}

fn queue(e: &Explanation) -> String {
    if e.run.queue.is_empty() {
        return String::new();
    }
    let ready = || e.run.queue.iter().map(|point| point.ready);
    let empty = ready().filter(|&ready| ready == 0).count() as f64 / ready().count() as f64;
    let summary = match ready().max() {
        None | Some(0) => "No batch was ready at any sampled moment.".to_owned(),
        Some(most) => format!(
            "At {} of the sampled moments no batch was ready; at most {most} were.",
            format_percent(empty)
        ),
    };
    section(
        "Batches ready in the loader",
        &format!(
            "<p>{summary}</p>\n{}{}",
            plot_of_curve(e.run.queue.iter().map(|point| point.ready as f64), "ready"),
            plot_of_curve(e.run.queue.iter().map(|point| point.waiting), "waiting"),
        ),
    )
}

fn timeline(e: &Explanation) -> String {
    let overlap = timeline::overlap(&e.timeline);
    if overlap.shown_us == 0 {
        return String::new();
    }
    let seconds = |us: u64| format_seconds(us as f64 / 1e6);
    let summary = match overlap.step_us {
        0 => format!(
            "No step was computed in the {} shown.",
            seconds(overlap.shown_us)
        ),
        step_us => format!(
            "Of the {} shown, steps took {}; the loader worked in {} of that time. Waits of the \
             loop are shaded.",
            seconds(overlap.shown_us),
            seconds(step_us),
            format_percent(overlap.both_us as f64 / step_us as f64),
        ),
    };
    let drawn = data::timeline_plot(e);
    let caption = match drawn.cut_us {
        Some(us) => format!("Truncated at {}.", seconds(us)),
        None => String::new(),
    };
    let key = |what: &String| {
        format!(
            "<li><i style=\"background:var(--{})\"></i>{}</li>",
            colour(what),
            escape(what)
        )
    };
    let key: String = drawn.whats.iter().map(key).collect();
    section(
        "Threads in the first seconds",
        &format!(
            "<p>{}</p>\n<ul class=\"key\">{key}</ul>\n\
             <div class=\"controls\"><label>show <select id=\"view-length\"></select></label>\
             <label>from <input id=\"view-start\" type=\"range\" min=\"0\" max=\"1000\" value=\"0\">\
             </label></div>\n{}",
            escape(&summary),
            figure("timeline", &caption),
        ),
    )
}

fn remedies(e: &Explanation) -> String {
    if e.remedies.is_empty() && e.not_tried.is_empty() {
        return String::new();
    }
    // Remedies without gain come last. Their numbers stay, because `--apply N` uses them.
    let mut numbered: Vec<(usize, &Remedy)> = e.remedies.iter().enumerate().collect();
    numbered.sort_by_key(|(_, remedy)| !remedy.gains());
    let rows: Vec<TableRow> = numbered.iter().map(|(at, r)| remedy_row(*at, r)).collect();
    let heads = [
        "remedy",
        "gain",
        "samples/s",
        "step",
        "disk",
        "convert",
        "limit then",
    ];
    let mut body = String::new();
    if !rows.is_empty() {
        let caption =
            "Predicted gains: rate with the remedy divided by the rate without, and its interval.";
        body += &plot_of(rows.len(), "gains", caption);
        body += &table("stacked remedies", &heads, &rows);
    }
    if !e.not_tried.is_empty() {
        let line = |not: &UntriedRemedy| format!("{}: {}", not.name, not.why);
        let lines: Vec<String> = e.not_tried.iter().map(line).collect();
        body += &format!(
            "<dl class=\"after\"><dt>not tried</dt><dd>{}</dd></dl>\n",
            list(&lines)
        );
    }
    section("Remedies and their gain", &body)
}

fn remedy_row(at: usize, remedy: &Remedy) -> TableRow {
    let idle = !remedy.gains();
    let name = format!("{}. {}", at + 1, escape(&remedy.title()));
    let mut below = format!("<span class=\"sub\">{}</span>", escape(&remedy.quality));
    if remedy.is_unclear() {
        below += "<span class=\"sub\">Unclear: the machine is too busy to tell.</span>";
    }
    if !remedy.command.is_empty() && !idle {
        below += &format!(
            "<div class=\"command\"><code>{}</code></div>",
            escape(&remedy.command)
        );
    }
    let gain = format!(
        "<span><span class=\"nowrap{}\">{}</span><span class=\"sub nowrap\">{} to {}</span></span>",
        if idle { "" } else { " gain" },
        format_factor(remedy.gain.mid),
        format_factor(remedy.gain.low),
        format_factor(remedy.gain.high),
    );
    TableRow {
        class: if idle { "idle" } else { "" },
        below: Some(below),
        cells: vec![
            TableCell::markup(name),
            TableCell::markup(gain),
            TableCell::number(figures(remedy.rate.mid)),
            TableCell::number(format_seconds(remedy.step_time.mid)),
            TableCell::number(numbers::cost(remedy.disk_bytes as f64, format_bytes)),
            TableCell::number(numbers::cost(remedy.convert_s, format_seconds)),
            TableCell::text(remedy.limit.name()),
        ],
    }
}

fn ledger(e: &Explanation) -> String {
    if e.ledger.is_empty() {
        return String::new();
    }
    let row = |entry: &LedgerEntry| {
        let name = format!(
            "{}<span class=\"sub\">{}, {}</span>",
            escape(&entry.remedy),
            escape(&entry.subject),
            numbers::day(entry.made_at_s),
        );
        TableRow::plain(vec![
            TableCell::markup(name),
            TableCell::number(numbers::factor_interval(entry.predicted)),
            TableCell::number(format_factor(entry.measured)),
            TableCell::number(error(entry)),
        ])
    };
    let rows: Vec<TableRow> = e.ledger.iter().rev().map(row).collect();
    let count = |outcome| e.ledger.iter().filter(|l| l.outcome() == outcome).count();
    let mut summary = format!(
        "{} of {} measured gains are in the predicted interval.",
        count(PredictionOutcome::Held),
        e.ledger.len()
    );
    match count(PredictionOutcome::TooWide) {
        0 => {}
        1 => summary += " One more is in an interval that is too wide to count.",
        wide => summary += &format!(" {wide} more are in intervals that are too wide to count."),
    }
    let caption = "On the dashed line, measured equals predicted; the band is 10 % to either side.";
    section(
        "Predicted against measured",
        &format!(
            "<p>{summary}</p>\n<div class=\"pair\">{}<div>{}</div></div>\n",
            plot_of(rows.len(), "ledger", caption),
            table("", &["checked", "predicted", "measured", "error"], &rows)
        ),
    )
}

fn notes(e: &Explanation) -> String {
    if e.notes.is_empty() {
        return String::new();
    }
    section(
        "Notes",
        &list(&e.notes).replacen("<ul>", "<ul class=\"notes\">", 1),
    )
}

/// The dataset, the machine and the version.
fn circumstances(e: &Explanation) -> String {
    let facts = |facts: Vec<(&str, String)>| -> String {
        let fact =
            |(name, value): &(&str, String)| format!("<dt>{name}</dt><dd>{}</dd>\n", escape(value));
        let shown = facts.iter().filter(|(_, value)| !value.is_empty());
        format!("<dl>\n{}</dl>\n", shown.map(fact).collect::<String>())
    };
    let mut out = section(
        "Measured on",
        &format!(
            "<div class=\"pair\">\n{}{}</div>\n",
            facts(of_machine(&e.machine, &e.infeed)),
            facts(of_subject(&e.subject))
        ),
    );
    for (title, text) in [("Plan", &e.plan), ("Pipeline", &e.subject.pipeline)] {
        if !text.trim().is_empty() {
            out += &section(title, &format!("<pre>{}</pre>\n", escape(text.trim_end())));
        }
    }
    out
}

fn of_machine<'a>(m: &MeasuredMachine, infeed: &str) -> Vec<(&'a str, String)> {
    let bytes = |bytes: f64| format_bytes(bytes);
    vec![
        ("infeed", infeed.to_owned()),
        ("processor", m.cpu.clone()),
        ("cores", m.cores.to_string()),
        ("memory", bytes(m.memory_bytes as f64)),
        (
            "memory bandwidth",
            m.memory_bytes_per_s
                .map_or_else(String::new, |rate| format!("{}/s", bytes(rate))),
        ),
        ("system", m.system.clone()),
        ("profile", m.profile.clone().unwrap_or_default()),
    ]
}

fn of_subject<'a>(s: &Subject) -> Vec<(&'a str, String)> {
    vec![
        ("dataset", s.name.clone()),
        (
            "records",
            format!("{}, about {}", s.records, format_bytes(s.bytes as f64)),
        ),
        ("batch", format!("{} rows", s.batch_rows)),
        (
            "threads",
            format!("{} workers, {} I/O", s.workers, s.readers),
        ),
        ("step", s.step_s.map_or_else(String::new, format_seconds)),
        (
            "between epochs",
            match s.fits_in_memory {
                true => "the data stays in memory: reads after the first are warm",
                false => "the data does not stay in memory: reads are cold",
            }
            .to_owned(),
        ),
    ]
}
