//! Audio: WAV and FLAC files that become float32 samples.
//!
//! A sample decodes only the part of the file that its row holds.

use std::ops::Range;

use crate::fields::cells::put;
use crate::fields::failure::{PartFailure, SampleError, StageFailure};
use crate::fields::kind::{DrawnSample, KindPlan, PlanInput};
use crate::fields::scratch::FieldScratch;
use crate::pipeline::declared_kind::{DeclaredKind, WaveformCrop, WaveformSpec};
use infeed_codec::audio::{self, AudioHeader};
use infeed_codec::transform::Rng;
use infeed_core::batch::{ColumnKind, RowCell};
use infeed_core::counters::Stage;
use infeed_core::error::Error;
use infeed_core::random::hash_bytes;
use infeed_core::sample::{DType, Field, FieldKind, Record};

/// Most samples of a row.
const MAX_SAMPLES: u64 = 1 << 31;

/// A declared field of audio.
#[derive(Debug)]
struct WaveformPlan {
    spec: WaveformSpec,
    field: usize,
    /// Hash of the field's name; keys its draws apart from those of transforms and other fields.
    key: u64,
}

/// Plans the declared fields of audio.
pub(super) fn plan(
    input: &PlanInput<'_>,
    is_free: &dyn Fn(usize) -> bool,
) -> Result<Vec<Box<dyn KindPlan>>, Error> {
    let mut plans: Vec<Box<dyn KindPlan>> = Vec::new();
    for (name, DeclaredKind::Waveform(spec)) in &input.pipeline.declare {
        let wrong = |problem: String| Err(Error::config("declare", problem));
        let mut fields = input.fields.iter();
        let Some(field) = fields.position(|field| field.name == *name) else {
            if input.all {
                let fields = input.fields.iter();
                let names: Vec<&str> = fields.map(|field| field.name.as_str()).collect();
                return wrong(format!("no field `{name}`; use one of {names:?}"));
            }
            continue;
        };
        if let Some(problem) = problem(spec, &input.fields[field]) {
            return wrong(format!("`{name}`: {problem}"));
        }
        if !is_free(field) {
            return wrong(format!("`{name}` is declared twice; remove one"));
        }
        plans.push(Box::new(WaveformPlan {
            spec: spec.clone(),
            field,
            key: hash_bytes(name.as_bytes()),
        }));
    }
    Ok(plans)
}

/// Returns the reason why a declaration does not fit its field.
fn problem(spec: &WaveformSpec, field: &Field) -> Option<String> {
    if field.kind != FieldKind::Bytes {
        return Some("it is no field of bytes, so it has no files of audio".to_owned());
    }
    if spec.rate == 0 {
        return Some("rate is 0, it must be the samples per second of the files".to_owned());
    }
    if spec.channels == 0 {
        return Some("channels is 0, it must be at least 1".to_owned());
    }
    let samples = spec.samples?;
    let all = samples.checked_mul(spec.channels.into());
    (samples == 0 || all.is_none_or(|all| all > MAX_SAMPLES)).then(|| {
        format!("samples is {samples}, it must be 1 to {MAX_SAMPLES} with those of all channels")
    })
}

impl WaveformPlan {
    /// Reads the header of a record's file, and checks rate and channels.
    fn header(&self, record: &Record) -> Result<AudioHeader, SampleError> {
        let header = audio::header(&record.fields[self.field]).map_err(SampleError::Decode)?;
        let unlike = |found: String, expected: String, fix| {
            Err(SampleError::Shape {
                found,
                expected,
                fix,
            })
        };
        if header.rate != self.spec.rate {
            return unlike(
                format!("{} samples per second", header.rate),
                format!("{} samples per second", self.spec.rate),
                "resample the file, or declare its rate",
            );
        }
        if self.spec.channels > 1 && header.channels != self.spec.channels {
            return unlike(
                format!("a number of channels of {}", header.channels),
                self.spec.channels.to_string(),
                "declare channels=1 for their mean, or store the same channels in all files",
            );
        }
        Ok(header)
    }

    /// Returns the part of a file that its row holds.
    fn range(&self, sample: &DrawnSample<'_>, frames: u64) -> Range<u64> {
        let Some(samples) = self.spec.samples else {
            return 0..frames;
        };
        let rest = frames.saturating_sub(samples);
        let begin = match self.spec.crop {
            WaveformCrop::Start => 0,
            WaveformCrop::Center => rest / 2,
            WaveformCrop::Random => {
                let at = sample.at;
                let mut rng = Rng::new(sample.seed, at.epoch, at.position, self.key);
                // The limit of samples in a file is below 2^32.
                rng.below((rest + 1) as u32).into()
            }
        };
        begin..frames.min(begin + samples)
    }

    /// Bytes of a row, and of the decoded samples of its file.
    fn bytes(&self, record: &Record) -> (u64, u64) {
        let Ok(header) = self.header(record) else {
            return (0, 0);
        };
        let bytes = |samples: u64, channels: u16| {
            let all = samples.saturating_mul(channels.into());
            all.saturating_mul(DType::Float32.bytes() as u64)
        };
        let row = self.spec.samples.unwrap_or(header.frames);
        // A shorter file is padded in its row.
        let decoded = row.min(header.frames);
        let decoded = bytes(decoded, header.channels);
        (bytes(row, self.spec.channels), decoded)
    }

    fn decode(
        &self,
        sample: &DrawnSample<'_>,
        cell: &mut RowCell,
        scratch: &mut FieldScratch,
    ) -> Result<(), SampleError> {
        let file = &sample.record.fields[self.field];
        let header = self.header(sample.record)?;
        let range = self.range(sample, header.frames);
        scratch.lap(Stage::Write);
        let numbers = &mut scratch.numbers;
        audio::decode(file, &header, range, numbers).map_err(SampleError::Decode)?;
        if self.spec.channels == 1 && header.channels > 1 {
            average(numbers, header.channels.into());
        }
        let (bytes_in, bytes_out) = (file.len() as u64, 4 * numbers.len() as u64);
        let counters = &scratch.counters;
        counters.count(Stage::Decode, scratch.counted, bytes_in, bytes_out);
        scratch.meter.lap(Stage::Decode, counters);
        match cell {
            RowCell::Slab(row) => write_padded(numbers, row.bytes_mut()),
            RowCell::Own { .. } => {
                let channels = usize::from(self.spec.channels);
                let samples = self.spec.samples.map(|samples| samples as usize * channels);
                let samples = samples.unwrap_or(numbers.len());
                let mut bytes = vec![0; samples * DType::Float32.bytes()];
                write_padded(numbers, &mut bytes);
                put(cell, bytes);
            }
        }
        Ok(())
    }
}

/// Replaces the samples of all channels by their mean.
fn average(samples: &mut Vec<f32>, channels: usize) {
    let frames = samples.len() / channels;
    for frame in 0..frames {
        let all = &samples[frame * channels..][..channels];
        let sum: f64 = all.iter().map(|sample| f64::from(*sample)).sum();
        samples[frame] = (sum / channels as f64) as f32;
    }
    samples.truncate(frames);
}

/// Writes numbers to a row, and zeros after them.
fn write_padded(numbers: &[f32], row: &mut [u8]) {
    let (written, rest) = row.split_at_mut(size_of_val(numbers).min(row.len()));
    let cells = written.as_chunks_mut().0.iter_mut();
    cells
        .zip(numbers)
        .for_each(|(to, number)| *to = number.to_ne_bytes());
    rest.fill(0);
}

impl KindPlan for WaveformPlan {
    fn columns(&self) -> Vec<(usize, ColumnKind)> {
        let dtype = DType::Float32;
        let item: Vec<usize> = match self.spec.channels {
            1 => Vec::new(),
            channels => vec![channels.into()],
        };
        let kind = match self.spec.samples {
            Some(samples) => ColumnKind::Fixed {
                dtype,
                shape: [vec![samples as usize], item].concat(),
            },
            None => ColumnKind::Ragged { dtype, item },
        };
        vec![(self.field, kind)]
    }

    fn describe(&self, _: usize) -> &'static str {
        match self.spec.channels {
            1 => "decode audio, mean of channels",
            _ => "decode audio",
        }
    }

    fn needs_contents(&self) -> bool {
        true
    }

    fn scratch_bytes(&self, sample: &DrawnSample<'_>) -> u64 {
        // User functions get the row in working memory.
        let (row, decoded) = self.bytes(sample.record);
        row.saturating_add(decoded)
    }

    fn row_bytes(&self, sample: &DrawnSample<'_>) -> u64 {
        match self.spec.samples {
            Some(_) => 0,
            None => self.bytes(sample.record).0,
        }
    }

    fn write(
        &self,
        sample: &DrawnSample<'_>,
        cells: &mut [RowCell],
        scratch: &mut FieldScratch,
    ) -> Result<(), PartFailure> {
        let written = self.decode(sample, &mut cells[self.field], scratch);
        written.map_err(|error| {
            let failure: StageFailure = error.in_field(self.field);
            failure.into()
        })
    }
}
