//! The contents of a dataset, as text.

use std::collections::BTreeMap;
use std::path::Path;

use infeed::pipeline::MemoryField;
use infeed_core::order::mixing::BatchVariety;
use infeed_core::printable::printable;
use infeed_core::sample::Size;
use infeed_source::left_out::LeftOut;

use super::check::{FolderCheck, TurnedFile};
use crate::terminal::human_bytes;

/// Maximum number of list entries in the text. JSON has all.
const LISTED: usize = 12;

/// Width of the labels.
const LABEL: usize = 12;

/// The contents of a dataset.
#[derive(Default)]
pub(super) struct Report {
    pub(super) images: Option<FolderCheck>,
    pub(super) masks: Option<FolderCheck>,
    /// Number of images by class folder.
    pub(super) classes: BTreeMap<String, u64>,
    /// Classes of masks with their share of all pixels.
    pub(super) mask_classes: Vec<(String, f64)>,
    /// Parts that the source does not read.
    pub(super) left_out: Vec<LeftOut>,
    /// Stems of images without a mask, and of masks without an image.
    pub(super) without_mask: Vec<String>,
    pub(super) without_image: Vec<String>,
    /// Pairs whose image and mask differ in size.
    pub(super) mismatched: Vec<String>,
    pub(super) arrays: Vec<MemoryField>,
    /// Whether the pipeline applies EXIF orientations.
    pub(super) is_oriented: bool,
    /// Set for a source whose records are not separate files.
    pub(super) records: Option<RecordSummary>,
}

/// The records of a source.
pub(super) struct RecordSummary {
    pub(super) count: u64,
    /// Number of records of the source, if the pipeline selects some.
    pub(super) of: Option<u64>,
    /// Selection with its frequencies, as lines of a plan.
    pub(super) selection: String,
    pub(super) checked: u64,
    /// Number of shards or row groups, and their bytes. None if each record is stored separately.
    pub(super) groups: Option<(usize, u64)>,
    /// Name and kind of each field.
    pub(super) fields: Vec<(String, String)>,
    /// Name and reason of damaged records.
    pub(super) damaged: Vec<(String, String)>,
    /// Number of all boxes that were checked.
    pub(super) boxes: u64,
    /// Records with boxes that lie mostly outside the image, and the number of these boxes.
    pub(super) outside: Vec<(String, u64)>,
    pub(super) mixing: Option<BatchVariety>,
}

impl Report {
    pub(super) fn arrays(arrays: Vec<MemoryField>) -> Report {
        Report {
            arrays,
            ..Report::default()
        }
    }

    /// Returns the contents in lines of at most `width` characters, except for long names.
    pub(super) fn text(&self, width: usize) -> String {
        let mut lines = Vec::new();
        if let Some(records) = &self.records {
            records_text(records, &mut lines);
        }
        for (name, folder) in [("images", &self.images), ("masks", &self.masks)] {
            if let Some(folder) = folder {
                folder_text(name, folder, self.is_oriented, &mut lines);
            }
        }
        for field in &self.arrays {
            let dtype = field
                .dtype
                .map_or("bytes", infeed_core::sample::DType::name);
            let (name, records) = (&field.name, field.records.unwrap_or(0));
            lines.push(format!(
                "{name:<11} {} {dtype}, {records} of {:?}",
                field.kind, field.shape
            ));
        }
        self.classes_text(&mut lines);
        if !self.mask_classes.is_empty() {
            let share = |(name, share): &(String, f64)| format!("{name} {:.2} %", share * 100.0);
            let shares: Vec<String> = self.mask_classes.iter().map(share).collect();
            lines.push(format!("pixels of   {}", join_first(&shares, ", ")));
        }
        for parts in &self.left_out {
            let (counted, named) = (parts.count_text(), parts.names_text());
            let note = match parts.note.as_str() {
                "" => String::new(),
                note => format!("; {note}"),
            };
            lines.push(format!("left out    {counted}: {named}{note}"));
        }
        for (what, stems) in [
            ("no mask", &self.without_mask),
            ("no image", &self.without_image),
        ] {
            if !stems.is_empty() {
                lines.push(format!(
                    "{what:<11} {}: {}",
                    stems.len(),
                    join_first(stems, ", ")
                ));
            }
        }
        if !self.mismatched.is_empty() {
            let list = join_first(&self.mismatched, "\n  ");
            lines.push(format!(
                "sizes differ in {} pairs\n  {list}",
                self.mismatched.len()
            ));
        }
        let lines = lines.iter().flat_map(|line| fold_line(line, width));
        lines.map(|line| line + "\n").collect()
    }

    fn classes_text(&self, lines: &mut Vec<String>) {
        if self.classes.is_empty() {
            return;
        }
        let mut counts: Vec<u64> = self.classes.values().copied().collect();
        counts.sort_unstable();
        let names: Vec<String> = self
            .classes
            .iter()
            .map(|(name, count)| format!("{name} {count}"))
            .collect();
        lines.push(format!(
            "classes     {}, with {} to {} images (median {})",
            counts.len(),
            counts.first().unwrap_or(&0),
            counts.last().unwrap_or(&0),
            counts[counts.len() / 2],
        ));
        lines.push(format!("            {}", join_first(&names, ", ")));
    }
}

/// Breaks a line between words. Continuation lines begin below the text, behind the label.
fn fold_line(line: &str, width: usize) -> Vec<String> {
    if line.chars().count() <= width || line.contains('\n') {
        return vec![line.to_owned()];
    }
    let label: String = line.chars().take(LABEL).collect();
    let text: String = line.chars().skip(LABEL).collect();
    let pad = " ".repeat(LABEL);
    let mut parts = vec![String::new()];
    // Blanks within names stay.
    for word in text.split(' ') {
        let line = parts.last().map_or(0, |line: &String| line.chars().count());
        if line > 0 && line + 1 + word.chars().count() > width.saturating_sub(LABEL) {
            parts.push(word.to_owned());
        } else if let Some(last) = parts.last_mut() {
            if line > 0 {
                last.push(' ');
            }
            last.push_str(word);
        }
    }
    let indent = |(at, part)| match at {
        0 => format!("{label}{part}"),
        _ => format!("{pad}{part}"),
    };
    parts.into_iter().enumerate().map(indent).collect()
}

fn join_first(all: &[String], separator: &str) -> String {
    let shown: Vec<_> = all
        .iter()
        .take(LISTED)
        .map(|item| printable(item))
        .collect();
    let mut text = shown.join(separator);
    if all.len() > LISTED {
        text.push_str(&format!("{separator}and {} more", all.len() - LISTED));
    }
    text
}

fn records_text(records: &RecordSummary, lines: &mut Vec<String>) {
    let lie = records.groups.map_or(String::new(), |(groups, bytes)| {
        format!(" in {groups} shards, {}", human_bytes(bytes))
    });
    let of = records.of.map_or(String::new(), |all| format!(" of {all}"));
    lines.push(format!("records     {}{of}{lie}", records.count));
    for line in records.selection.lines() {
        match (line.strip_prefix("  "), line.strip_prefix("epoch: ")) {
            (Some(part), _) => lines.push(part.to_owned()),
            (None, Some(epoch)) => lines.push(format!("epoch       {epoch}")),
            (None, None) => {}
        }
    }
    if records.checked < records.count {
        lines.push(format!(
            "checked     {} of them, spread over all",
            records.checked
        ));
    }
    for (name, kind) in &records.fields {
        lines.push(format!("{name:<11} {kind}"));
    }
    lines.push(format!("damaged     {}", records.damaged.len()));
    let damaged = records.damaged.iter();
    let damaged: Vec<String> = damaged
        .map(|(name, reason)| format!("{name}: {reason}"))
        .collect();
    if !damaged.is_empty() {
        lines.push(format!("  {}", join_first(&damaged, "\n  ")));
    }
    if !records.outside.is_empty() {
        let names: Vec<String> = records
            .outside
            .iter()
            .map(|(name, _)| name.clone())
            .collect();
        lines.push(format!(
            "outside     {} of {} boxes lie mostly outside their image, in {} records",
            records.outside.iter().map(|(_, count)| count).sum::<u64>(),
            records.boxes,
            names.len()
        ));
        lines.push(format!("  {}", join_first(&names, "\n  ")));
    }
    let Some(mixing) = &records.mixing else {
        return;
    };
    for (what, variety) in [("labels", &mixing.labels), ("shards", &mixing.groups)] {
        if let Some(variety) = variety {
            lines.push(format!(
                "mixing      {:.1} {what} in a batch of {}; {:.1} with a full shuffle ({:.0} %)",
                variety.found,
                mixing.batch,
                variety.shuffled,
                variety.share() * 100.0
            ));
        }
    }
    if let Some(warning) = mixing.warning() {
        lines.push(format!("warning     {warning}"));
    }
}

fn folder_text(name: &str, folder: &FolderCheck, is_oriented: bool, lines: &mut Vec<String>) {
    let place = match folder.root.as_os_str().is_empty() {
        true => String::new(),
        false => format!(" files in {}", folder.root.display()),
    };
    lines.push(format!("{name:<11} {}{place}", folder.files));
    if folder.checked < folder.files {
        lines.push(format!(
            "checked     {} of them, spread over all",
            folder.checked
        ));
    }
    let good = folder.sizes.len() as u64;
    if let Some(mean_bytes) = folder.bytes.checked_div(good) {
        let formats: Vec<String> = folder
            .formats
            .iter()
            .map(|(format, count)| format!("{format} {count}"))
            .collect();
        lines.push(format!("formats     {}", formats.join(", ")));
        let (height, width) = (
            spread_of(folder, |s| s.height),
            spread_of(folder, |s| s.width),
        );
        lines.push(format!(
            "width       {} to {} px, median {}",
            width[0], width[2], width[1]
        ));
        lines.push(format!(
            "height      {} to {} px, median {}",
            height[0], height[2], height[1]
        ));
        lines.push(format!(
            "bytes       {} in total, {} per file, {:.3} per pixel",
            human_bytes(folder.bytes),
            human_bytes(mean_bytes),
            bytes_per_pixel(folder),
        ));
    }
    turned_text(folder, is_oriented, lines);
    if folder.warned > 0 {
        lines.push(format!(
            "warnings    {} files decode with harmless warnings",
            folder.warned
        ));
    }
    lines.push(format!("bad         {}", folder.bad.len()));
    let bad: Vec<String> = folder
        .bad
        .iter()
        .map(|(name, reason)| bad_line(name, reason, &folder.root))
        .collect();
    if !bad.is_empty() {
        lines.push(format!("  {}", join_first(&bad, "\n  ")));
    }
}

/// Names the files with an EXIF orientation, and the effect of `orient=True` on them.
fn turned_text(folder: &FolderCheck, is_oriented: bool, lines: &mut Vec<String>) {
    let turned = &folder.turned;
    if turned.is_empty() {
        return;
    }
    let name = |file: &TurnedFile| {
        let path = Path::new(&file.name);
        let path = path.strip_prefix(&folder.root).unwrap_or(path);
        path.display().to_string()
    };
    let names: Vec<String> = turned.iter().map(name).collect();
    lines.push(format!(
        "turned      {} by an EXIF orientation: {}",
        turned.len(),
        join_first(&names, ", ")
    ));
    let swapped = turned.iter().filter(|file| file.stored != file.displayed);
    let effect = format!(
        "which exchanges height and width of {} of them",
        swapped.count()
    );
    lines.push(match is_oriented {
        true => format!("            the pipeline turns them, {effect}"),
        false => {
            format!("            decoded as stored; .decode(orient=True) turns them, {effect}")
        }
    });
}

fn bad_line(name: &str, reason: &str, root: &Path) -> String {
    let path = Path::new(name);
    format!(
        "{}: {reason}",
        path.strip_prefix(root).unwrap_or(path).display()
    )
}

/// Returns the smallest, median and largest length of a side, or zeros without a good file.
pub(super) fn spread_of(folder: &FolderCheck, side: fn(&Size) -> u32) -> [u32; 3] {
    let mut sides: Vec<u32> = folder.sizes.iter().map(|(_, size)| side(size)).collect();
    sides.sort_unstable();
    match sides[..] {
        [] => [0; 3],
        [first, .., last] => [first, sides[sides.len() / 2], last],
        [only] => [only; 3],
    }
}

pub(super) fn bytes_per_pixel(folder: &FolderCheck) -> f64 {
    folder.bytes as f64 / folder.pixels.max(1) as f64
}
