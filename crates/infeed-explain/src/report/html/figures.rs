//! Placeholders for plots, and the colours of activities.

use super::markup::escape;

/// Share of the time from which on a plot shows it.
pub(super) const SHOWN: f64 = 0.005;

/// A placeholder for a plot of several values. It stays empty if scripts may not run. A single
/// value needs no plot, because the table has it.
pub(super) fn plot_of(values: usize, id: &str, caption: &str) -> String {
    match values {
        0 | 1 => String::new(),
        _ => figure(id, caption),
    }
}

/// A placeholder for a plot. It stays empty if scripts may not run.
pub(super) fn figure(id: &str, caption: &str) -> String {
    let caption = match caption {
        "" => String::new(),
        caption => format!("<figcaption>{}</figcaption>", escape(caption)),
    };
    format!("<figure id=\"{id}\"><div></div>{caption}</figure>\n")
}

/// A placeholder for a plot over time, unless it would be a flat zero.
pub(super) fn plot_of_curve(mut values: impl Iterator<Item = f64>, id: &str) -> String {
    match values.any(|value| value >= SHOWN) {
        true => figure(id, ""),
        false => String::new(),
    }
}

pub(super) fn swatch(colour: &str) -> String {
    format!("<span class=\"swatch\" style=\"background:var(--{colour})\"></span>")
}

/// Returns the colour of a thread's activity, as a name in `style.css`. Only names in that file are
/// returned, whatever name a span has.
pub(super) fn colour(what: &str) -> &'static str {
    let known = [
        "read",
        "decode",
        "transform",
        "write",
        "python",
        "wait",
        "step",
    ];
    known.into_iter().find(|&k| k == what).unwrap_or("step")
}
