//! Many batches through a ring, some expanded there and some as they are, read by a stream that is late
//! at random: what was read must be what was sent. And the same with the release left out, which must
//! be found.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use infeed_raw::kernel::Kernel;
use infeed_raw::simd::{Dtype, Layout};
use infeed_raw::slab::Slab;

use super::kernels::photograph;
use super::{Checked, Wrong, filled, noise, wrong};
use crate::batch::{Array, Batch, Column, ColumnKind, ColumnSpec, Values};
use crate::device::timing::timed;
use crate::device::{DeviceError, Ring, Route, Settings};
use crate::random;
use crate::sample::DType;

/// Steps at most.
const STEPS: u64 = 2000;

/// And at least: each slot was used again, several times.
const LEAST: u64 = 16;

/// Batches that the consumer may be late.
const BEHIND: usize = 8;

/// Rows of a batch, and the side of its images: large enough that a copy takes a while.
const ROWS: usize = 16;
const SIDE: usize = 48;

/// What a stream does to be late: copies between two memories of its own.
pub(super) struct Busy<D: Checked> {
    from: Arc<D::Memory>,
    to: Arc<D::Memory>,
    /// Copies that take as long as the stream is to be late at most.
    pub(super) most: u64,
}

impl<D: Checked> Busy<D> {
    pub(super) fn new(device: &D, queue: D::Queue) -> Result<Busy<D>, DeviceError> {
        let mut busy = Busy {
            from: filled(device, queue, &noise(0, D::BUSY_BYTES))?,
            to: device.memory(D::BUSY_BYTES)?,
            most: 0,
        };
        busy.on(device, queue, 1)?;
        const TIMES: u64 = 8;
        let taken = timed(device, queue, || busy.on(device, queue, TIMES))?;
        let most = D::LATE.as_secs_f64() / (taken.as_secs_f64() / TIMES as f64).max(1e-7);
        busy.most = most.clamp(2.0, 2000.0) as u64;
        Ok(busy)
    }

    pub(super) fn on(&self, device: &D, queue: D::Queue, times: u64) -> Result<(), DeviceError> {
        let one = || device.copy_within(queue, &self.from, &self.to, D::BUSY_BYTES);
        (0..times).try_for_each(|_| one())
    }
}

/// What the consumer copied out of a batch, until it is compared.
struct Taken<D: Checked> {
    step: u64,
    image: Arc<D::Memory>,
    label: Arc<D::Memory>,
    done: D::Event,
}

/// The consumer's way with a batch.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// It says on which stream it reads.
    Told,
    /// It waits on the host until the batch is there and reads on a stream that nobody knows of: no
    /// event stands between its reading and the next batch in that memory.
    Untold,
}

fn spec(name: &str, dtype: DType, shape: &[usize]) -> ColumnSpec {
    let kind = ColumnKind::Fixed {
        dtype,
        shape: shape.to_vec(),
    };
    ColumnSpec {
        name: name.to_owned(),
        kind,
    }
}

fn image_of(step: u64) -> Vec<u8> {
    noise(step + 1, ROWS * SIDE * SIDE * 3)
}

/// What the image of a step is on the device.
fn expanded(kernel: &Kernel, step: u64) -> Result<Vec<u8>, Wrong> {
    let mut output = vec![0; kernel.output_bytes(ROWS).unwrap_or_default()];
    kernel.run(ROWS, &image_of(step), None, &mut output)?;
    Ok(output)
}

/// The batch of a step, and which form it has, at random: pixels that a kernel expands, or what that
/// makes of them.
fn batch_of(kernel: &Kernel, step: u64) -> Result<(usize, Batch), Wrong> {
    let array = |bytes: &[u8], shape: Vec<usize>, dtype| Array::own(bytes, shape, dtype);
    let form = (random::hash(&[step, 78]) % 2) as usize;
    let image = match form {
        0 => array(&image_of(step), vec![ROWS, SIDE, SIDE, 3], DType::UInt8)?,
        _ => {
            let whole = expanded(kernel, step)?;
            array(&whole, vec![ROWS, 3, SIDE, SIDE], DType::BFloat16)?
        }
    };
    let label = array(&noise(!step, ROWS * 8), vec![ROWS], DType::Int64)?;
    let column = |name: &str, array| Column {
        name: name.to_owned(),
        values: Values::Array(array),
    };
    let batch = Batch {
        columns: vec![column("image", image), column("label", label)],
        records: (0..ROWS as u64)
            .map(|row| step * ROWS as u64 + row)
            .collect(),
        epoch: 0,
        step,
    };
    Ok((form, batch))
}

/// How many steps were made, and how many of them gave something else than was sent.
struct Seen {
    steps: u64,
    wrong: u64,
}

fn stress<D: Checked>(device: &D, lasting: Duration, way: Way) -> Result<Seen, Wrong> {
    let start = Instant::now();
    let consumer = device.stream()?;
    let busy = Busy::new(device, consumer)?;
    let kernel = photograph((SIDE, SIDE), 3, Dtype::BF16, Layout::Chw);
    let whole = spec("image", DType::BFloat16, &[3, SIDE, SIDE]);
    let label = Route::copy(spec("label", DType::Int64, &[]));
    let pixels = spec("image", DType::UInt8, &[SIDE, SIDE, 3]);
    let expanding = Route::expand(pixels, kernel.clone(), whole.clone());
    let forms = vec![
        vec![expanding, label.clone()],
        vec![Route::copy(whole), label],
    ];
    let ring = Ring::of_forms(device.clone(), forms, Settings::new(ROWS))?;
    let send = |step| -> Result<_, Wrong> {
        let (form, batch) = batch_of(&kernel, step)?;
        Ok(ring.send_as(form, batch)?)
    };
    let image_bytes = kernel.output_bytes(ROWS).unwrap_or_default();
    let label_bytes = ROWS * 8;
    // Comparing must not wait for what the consumer does later, so it has a stream of its own.
    let reader = device.stream()?;
    let compared = |taken: &Taken<D>| -> Result<u64, Wrong> {
        let expected = expanded(&kernel, taken.step)?;
        device.wait(reader, &taken.done)?;
        let image = device.fetch(reader, &taken.image, Slab::zeroed(1, image_bytes)?)?;
        let label = device.fetch(reader, &taken.label, Slab::zeroed(1, label_bytes)?)?;
        device.record(&taken.done, reader)?;
        device.wait(consumer, &taken.done)?;
        let right = image.as_ref() == expected && label.as_ref() == noise(!taken.step, label_bytes);
        Ok(u64::from(!right))
    };
    // What is compared is waited for, so it is some steps behind.
    let mut free = Vec::new();
    for _ in 0..BEHIND {
        free.push(Taken {
            step: 0,
            image: device.memory(image_bytes)?,
            label: device.memory(label_bytes)?,
            done: device.event(false)?,
        });
    }
    let mut taken: VecDeque<Taken<D>> = VecDeque::new();
    let mut seen = Seen { steps: 0, wrong: 0 };
    // Two batches ahead of the consumer, as a loader has them.
    let mut ahead = VecDeque::new();
    for step in 0..2 {
        ahead.push_back(send(step)?);
    }
    for step in 0..STEPS {
        if start.elapsed() >= lasting && step >= LEAST {
            break;
        }
        let mut copies = match free.pop() {
            Some(copies) => copies,
            None => {
                let oldest = taken.pop_front();
                let oldest = oldest.ok_or_else(|| wrong("no memory to copy to"))?;
                seen.wrong += compared(&oldest)?;
                oldest
            }
        };
        let Some(sent) = ahead.pop_front() else { break };
        let batch = sent.hand_over(None)?;
        match way {
            Way::Told => batch.ready_on(consumer)?,
            Way::Untold => batch.synchronize()?,
        }
        busy.on(device, consumer, random::hash(&[step, 77]) % busy.most)?;
        for (name, to, bytes) in [
            ("image", &copies.image, image_bytes),
            ("label", &copies.label, label_bytes),
        ] {
            let array = batch
                .array(name)?
                .ok_or_else(|| wrong("a column is missing"))?;
            device.copy_within(consumer, array.memory(), to, bytes)?;
        }
        drop(batch);
        device.record(&copies.done, consumer)?;
        copies.step = step;
        taken.push_back(copies);
        ahead.push_back(send(step + 2)?);
        seen.steps += 1;
    }
    for rest in &taken {
        seen.wrong += compared(rest)?;
    }
    drop(ahead);
    ring.close()?;
    Ok(seen)
}

/// A consumer that says what it does gets every batch as it was sent.
pub(super) fn with_release<D: Checked>(device: &D, lasting: Duration) -> Result<String, Wrong> {
    let before = device.complaints().len();
    let seen = stress(device, lasting, Way::Told)?;
    let complaints = device.complaints();
    if let Some(first) = complaints.get(before) {
        let more = complaints.len() - before - 1;
        return Err(wrong(format!("{first}, and {more} more")));
    }
    if seen.wrong > 0 {
        return Err(wrong(format!(
            "{} of {} batches were not what was sent",
            seen.wrong, seen.steps
        )));
    }
    Ok(format!("{} steps, each as it was sent", seen.steps))
}

/// A consumer that does not gets others: else the check above could not fail.
pub(super) fn without_release<D: Checked>(device: &D, lasting: Duration) -> Result<String, Wrong> {
    let before = device.complaints().len();
    let seen = stress(device, lasting, Way::Untold)?;
    let complaints = device.complaints().len() - before;
    if complaints == 0 && seen.wrong == 0 {
        return Err(wrong(format!(
            "{} steps without a release, and each was as it was sent: the stress is too mild to \
             show that a release is needed",
            seen.steps
        )));
    }
    Ok(format!(
        "{} of {} batches were overwritten, {complaints} uses out of order",
        seen.wrong, seen.steps
    ))
}
