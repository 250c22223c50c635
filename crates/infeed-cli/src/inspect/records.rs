//! Inspects a source whose records are not separate files: reads every record through the source
//! and decodes its images and masks completely.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use infeed::fields::BoxCheck;
use infeed_core::order::mixing::BatchVariety;
use infeed_core::sample::{DType, Field, FieldKind, Pixels, Record};
use infeed_raw::machine::usable_cores;
use infeed_source::walk::{Claims, WalkBudget};
use infeed_source::{Source, damage_error};

use super::check::{Checker, FolderCheck, MaskContents};
use super::report::{RecordSummary, Report};
use crate::error::CliError;
use crate::files::spread;
use crate::interrupt;
use crate::target::Target;
use crate::terminal::bar;

/// Number of neighbouring records that a thread reads together, unless a group must be read as a
/// whole.
const CLAIM: u64 = 64;

/// Maximum bytes that the reads of one claim may hold.
const ROOM_BYTES: u64 = 64 << 20;

/// Results of one thread.
struct RecordsCheck {
    images: FolderCheck,
    masks: FolderCheck,
    damaged: Vec<(String, String)>,
    boxes: u64,
    /// Records with boxes that lie mostly outside the image, and the number of these boxes.
    outside: Vec<(String, u64)>,
    /// Record number and label.
    labels: Vec<(u64, i64)>,
    checked: u64,
}

/// Reads and checks at most `limit` records, spread over all.
///
/// # Errors
///
/// As opening the source, or an error of the storage. The problems of records are part of the
/// result.
pub(super) fn inspect_records(
    target: &Target,
    limit: usize,
    labels: &MaskContents,
) -> Result<Report, CliError> {
    let failed = |error: infeed::Error| CliError::from_error(&error);
    let source = target.pipeline.open_source(&[]).map_err(failed)?;
    let all: Vec<u64> = (0..source.len()).collect();
    let chosen: Vec<u64> = spread(&all, limit).copied().collect();
    let progress = bar(chosen.len() as u64, "records");
    let claims = claims(&*source, &chosen);
    let room = WalkBudget::default();
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Result<RecordsCheck, infeed::Error>>> = Mutex::default();
    thread::scope(|scope| {
        for _ in 0..usable_cores().min(claims.len()) {
            scope.spawn(|| {
                let mut walker = Walker::new(target, &*source, &room, labels);
                let mut outcome = Ok(());
                while !interrupt::is_requested() && outcome.is_ok() {
                    // Relaxed: each number is taken once. The scope's end orders the rest.
                    let Some(claim) = claims.get(next.fetch_add(1, Ordering::Relaxed)) else {
                        break;
                    };
                    outcome = walker.walk(claim);
                    progress.inc(claim.len() as u64);
                }
                let mut results = results.lock().unwrap_or_else(PoisonError::into_inner);
                results.push(outcome.map(|()| walker.into_check()));
            });
        }
    });
    progress.finish_and_clear();
    let results = results.into_inner().unwrap_or_else(PoisonError::into_inner);
    let mut sum: Option<RecordsCheck> = None;
    for found in results {
        let found = found.map_err(failed)?;
        match &mut sum {
            None => sum = Some(found),
            Some(sum) => sum.merge(found),
        }
    }
    let mut sum = sum.ok_or_else(|| CliError::Failed("the source holds no records".to_owned()))?;
    sum.damaged.sort();
    sum.outside.sort();
    report(target, &*source, sum, labels)
}

/// Divides the records into claims, so that a group that is read as a whole is read once.
fn claims<'a>(source: &dyn Source, chosen: &'a [u64]) -> Vec<&'a [u64]> {
    let ends = Claims::of(source, CLAIM);
    let mut claims = Vec::new();
    let mut rest = chosen;
    while !rest.is_empty() {
        let end = ends.end(0, rest.len() as u64, |place| rest[place as usize]);
        let (claim, others) = rest.split_at(end as usize);
        claims.push(claim);
        rest = others;
    }
    claims
}

fn report(
    target: &Target,
    source: &dyn Source,
    mut found: RecordsCheck,
    labels: &MaskContents,
) -> Result<Report, CliError> {
    found.labels.sort_unstable();
    for checked in [&mut found.images, &mut found.masks] {
        checked.turned.sort_by_key(|file| file.at);
    }
    let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
    for (_, label) in &found.labels {
        *counts.entry(*label).or_default() += 1;
    }
    let name = |label: i64| {
        let names = source.classes().unwrap_or_default();
        let named = usize::try_from(label).ok().and_then(|at| names.get(at));
        named.cloned().unwrap_or_else(|| label.to_string())
    };
    let every: Vec<i64> = found.labels.iter().map(|&(_, label)| label).collect();
    let failed = |error: infeed::Error| CliError::from_error(&error);
    let order = target.pipeline.order(source, &[]).map_err(failed)?;
    let groups = source.groups();
    let rows = target
        .pipeline
        .batch
        .size
        .or(target.pipeline.batch.per_rank);
    let mixing = (order.records() > 0).then(|| {
        // With the labels of only some records, batches would seem less mixed than they are.
        let known = (every.len() as u64 == source.len()).then_some(&every[..]);
        BatchVariety::of(&order, rows.unwrap_or(1), groups.as_deref(), known)
    });
    let fields = source.fields();
    let kind = |field: &Field| (field.name.clone(), describe_kind(&field.kind));
    let has = |wanted: fn(&FieldKind) -> bool| fields.iter().any(|field| wanted(&field.kind));
    Ok(Report {
        left_out: source.left_out(),
        is_oriented: target.orients(),
        mask_classes: labels.shares(&found.masks),
        images: has(is_image).then_some(found.images),
        masks: has(is_mask).then_some(found.masks),
        classes: counts
            .into_iter()
            .map(|(label, count)| (name(label), count))
            .collect(),
        records: Some(RecordSummary {
            count: source.len(),
            of: source.selection().map(|subset| subset.all()),
            selection: target.pipeline.selection(source, &order),
            checked: found.checked,
            groups: groups.map(|groups| (groups.ends.len(), groups.bytes.iter().sum())),
            fields: fields.iter().map(kind).collect(),
            damaged: found.damaged,
            boxes: found.boxes,
            outside: found.outside,
            mixing: mixing.filter(|mixing| mixing.groups.is_some() || mixing.labels.is_some()),
        }),
        ..Report::default()
    })
}

fn is_image(kind: &FieldKind) -> bool {
    matches!(kind, FieldKind::Image(Pixels::Encoded))
}

fn is_mask(kind: &FieldKind) -> bool {
    matches!(kind, FieldKind::Mask(Pixels::Encoded))
}

/// Returns whether a field is an integer that names a class.
fn is_label(field: &Field) -> bool {
    let scalar = FieldKind::Tensor {
        dtype: DType::Int64,
        shape: Vec::new(),
    };
    field.name == "label" && field.kind == scalar
}

fn describe_kind(kind: &FieldKind) -> String {
    let raw = |what: &str, pixels: &Pixels| match pixels {
        Pixels::Encoded => format!("{what}, encoded"),
        Pixels::Raw {
            size,
            channels,
            depth,
        } => format!("{what} {size}, {channels} channels of {depth:?}"),
    };
    match kind {
        FieldKind::Image(pixels) => raw("image", pixels),
        FieldKind::Mask(pixels) => raw("mask", pixels),
        FieldKind::Tensor { dtype, shape } => format!("tensor {} {shape:?}", dtype.name()),
        FieldKind::Bytes => "bytes".to_owned(),
        FieldKind::Text => "text".to_owned(),
        FieldKind::Ragged { dtype } => format!("ragged {}", dtype.name()),
    }
}

impl RecordsCheck {
    fn merge(&mut self, other: RecordsCheck) {
        self.images.merge(other.images);
        self.masks.merge(other.masks);
        self.damaged.extend(other.damaged);
        self.boxes += other.boxes;
        self.outside.extend(other.outside);
        self.labels.extend(other.labels);
        self.checked += other.checked;
    }
}

/// Decoders and results of one thread.
struct Walker<'a> {
    source: &'a dyn Source,
    room: &'a WalkBudget,
    images: Checker<'a>,
    masks: Checker<'a>,
    box_check: Option<BoxCheck>,
    damaged: Vec<(String, String)>,
    boxes: u64,
    outside: Vec<(String, u64)>,
    labels: Vec<(u64, i64)>,
    checked: u64,
}

impl<'a> Walker<'a> {
    fn new(
        target: &Target,
        source: &'a dyn Source,
        room: &'a WalkBudget,
        labels: &'a MaskContents,
    ) -> Walker<'a> {
        Walker {
            source,
            room,
            images: Checker::new(&MaskContents::None, target.orients()),
            masks: Checker::new(labels, target.orients()),
            box_check: BoxCheck::new(&target.pipeline, source.fields()),
            damaged: Vec::new(),
            boxes: 0,
            outside: Vec::new(),
            labels: Vec::new(),
            checked: 0,
        }
    }

    fn walk(&mut self, claim: &[u64]) -> Result<(), infeed::Error> {
        let source = self.source;
        for read in source.plan(claim, ROOM_BYTES) {
            let mut brought = Vec::with_capacity(read.records.len());
            // Holds the memory until the records are checked.
            let mut held = Vec::new();
            let mut admit = |bytes| self.room.admit(bytes, || false).map(|one| held.push(one));
            source
                .read(&read, &mut admit, &mut |place, found| {
                    brought.push((claim[place], found));
                })
                .map_err(|error| error.about(source))?;
            for (number, found) in brought {
                self.checked += 1;
                match found {
                    Ok(record) => self.check(&record),
                    Err(cause) => {
                        let error = damage_error(source, number, cause);
                        let name = error.record().map(ToString::to_string);
                        let name = name.unwrap_or_default();
                        let reason = error.chain();
                        // The list already has the record's name before the reason.
                        let rest = reason.strip_prefix(&format!("cannot use {name}: "));
                        let reason = rest.unwrap_or(&reason).to_owned();
                        self.damaged.push((name, reason));
                    }
                }
            }
        }
        Ok(())
    }

    fn check(&mut self, record: &Record) {
        let source = self.source;
        let name = || source.id(record.index, None).name;
        for (field, bytes) in source.fields().iter().zip(&record.fields) {
            let at = record.index as usize;
            if is_image(&field.kind) {
                self.images.found.files += 1;
                self.images.check(at, name, bytes);
            } else if is_mask(&field.kind) {
                self.masks.found.files += 1;
                self.masks.check(at, name, bytes);
            } else if let (true, Ok(bytes)) = (is_label(field), bytes[..].try_into()) {
                self.labels.push((record.index, i64::from_le_bytes(bytes)));
            }
        }
        match self.box_check.as_mut().map(|boxes| boxes.count(record)) {
            None => {}
            Some(Ok(count)) => {
                self.boxes += count.boxes;
                if count.outside > 0 {
                    self.outside.push((name(), count.outside));
                }
            }
            Some(Err(error)) => self.damaged.push((name(), error.to_string())),
        }
    }

    fn into_check(self) -> RecordsCheck {
        RecordsCheck {
            images: self.images.found,
            masks: self.masks.found,
            damaged: self.damaged,
            boxes: self.boxes,
            outside: self.outside,
            labels: self.labels,
            checked: self.checked,
        }
    }
}
