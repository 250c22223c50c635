//! Sends many batches through a ring, some expanded on the device and some unchanged, to a stream
//! with random delays. Compares every read with the batch that was sent. A second run omits the
//! release, and must find a difference.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use infeed_raw::kernel::Kernel;
use infeed_raw::simd::{Dtype, Layout};
use infeed_raw::slab::Slab;

use super::bytes::{memory_with_bytes, noise};
use super::checked_device::CheckedDevice;
use super::findings::{CheckFailure, wrong};
use super::kernels::photograph;
use crate::timing::time_commands;
use crate::{DeviceError, Ring, RingSettings, Route};
use infeed_core::batch::{Array, Batch, Column, ColumnKind, ColumnSpec, Values};
use infeed_core::random;
use infeed_core::sample::DType;

/// Maximum number of steps.
const STEPS: u64 = 2000;

/// Minimum number of steps: every slot is reused several times.
const MIN_STEPS: u64 = 16;

/// Most batches by which the consumer lags.
const BEHIND: usize = 8;

/// Rows of a batch. With `SIDE`, they are large enough that a copy takes some time.
const ROWS: usize = 16;
const SIDE: usize = 48;

/// Delays a stream by copies between two memories.
pub(super) struct BusyStream<D: CheckedDevice> {
    from: Arc<D::Memory>,
    to: Arc<D::Memory>,
    /// Number of copies that take as long as the longest delay.
    pub(super) most: u64,
}

impl<D: CheckedDevice> BusyStream<D> {
    pub(super) fn new(device: &D, queue: D::Queue) -> Result<BusyStream<D>, DeviceError> {
        let mut busy = BusyStream {
            from: memory_with_bytes(device, queue, &noise(0, D::BUSY_BYTES))?,
            to: device.memory(D::BUSY_BYTES)?,
            most: 0,
        };
        busy.on(device, queue, 1)?;
        const TIMES: u64 = 8;
        let taken = time_commands(device, queue, || busy.on(device, queue, TIMES))?;
        let most = D::LATE.as_secs_f64() / (taken.as_secs_f64() / TIMES as f64).max(1e-7);
        busy.most = most.clamp(2.0, 2000.0) as u64;
        Ok(busy)
    }

    pub(super) fn on(&self, device: &D, queue: D::Queue, times: u64) -> Result<(), DeviceError> {
        let one = || device.copy_within(queue, &self.from, &self.to, D::BUSY_BYTES);
        (0..times).try_for_each(|_| one())
    }
}

/// Copies of a batch's columns on the device, until they are compared.
struct ConsumerCopy<D: CheckedDevice> {
    step: u64,
    image: Arc<D::Memory>,
    label: Arc<D::Memory>,
    done: D::Event,
}

/// Whether the consumer names its stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Release {
    /// The consumer names the stream on which it reads.
    Named,
    /// The consumer waits on the host until the batch is ready, and then reads on a stream that the
    /// ring does not know. No event orders this read before the next batch in that memory.
    Unnamed,
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

/// Returns the expected image of a step on the device.
fn expected_image(kernel: &Kernel, step: u64) -> Result<Vec<u8>, CheckFailure> {
    let mut output = vec![0; kernel.output_bytes(ROWS).unwrap_or_default()];
    kernel.run(ROWS, &image_of(step), None, &mut output)?;
    Ok(output)
}

/// Returns the batch of a step and the number of its layout, drawn at random: pixels that a kernel
/// expands, or the expanded image.
fn batch_of(kernel: &Kernel, step: u64) -> Result<(usize, Batch), CheckFailure> {
    let array = |bytes: &[u8], shape: Vec<usize>, dtype| Array::own(bytes, shape, dtype);
    let layout = (random::hash(&[step, 78]) % 2) as usize;
    let image = match layout {
        0 => array(&image_of(step), vec![ROWS, SIDE, SIDE, 3], DType::UInt8)?,
        _ => {
            let whole = expected_image(kernel, step)?;
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
    Ok((layout, batch))
}

/// Number of steps, and number of steps that read something other than the batch that was sent.
struct StressResult {
    steps: u64,
    wrong: u64,
}

fn stress<D: CheckedDevice>(
    device: &D,
    lasting: Duration,
    backend: Release,
) -> Result<StressResult, CheckFailure> {
    let start = Instant::now();
    let consumer = device.stream()?;
    let busy = BusyStream::new(device, consumer)?;
    let kernel = photograph((SIDE, SIDE), 3, Dtype::BF16, Layout::Chw);
    let whole = spec("image", DType::BFloat16, &[3, SIDE, SIDE]);
    let label = Route::copy(spec("label", DType::Int64, &[]));
    let pixels = spec("image", DType::UInt8, &[SIDE, SIDE, 3]);
    let expanding = Route::expand(pixels, kernel.clone(), whole.clone());
    let layouts = vec![
        vec![expanding, label.clone()],
        vec![Route::copy(whole), label],
    ];
    let ring = Ring::with_layouts(device.clone(), layouts, RingSettings::new(ROWS))?;
    let send = |step| -> Result<_, CheckFailure> {
        let (layout, batch) = batch_of(&kernel, step)?;
        Ok(ring.send_as(layout, batch)?)
    };
    let image_bytes = kernel.output_bytes(ROWS).unwrap_or_default();
    let label_bytes = ROWS * 8;
    // A separate stream, so that a comparison does not wait for the consumer's later commands.
    let reader = device.stream()?;
    let compared = |taken: &ConsumerCopy<D>| -> Result<u64, CheckFailure> {
        let expected = expected_image(&kernel, taken.step)?;
        device.wait(reader, &taken.done)?;
        let image = device.fetch(reader, &taken.image, Slab::zeroed(1, image_bytes)?)?;
        let label = device.fetch(reader, &taken.label, Slab::zeroed(1, label_bytes)?)?;
        device.record(&taken.done, reader)?;
        device.wait(consumer, &taken.done)?;
        let right = image.as_ref() == expected && label.as_ref() == noise(!taken.step, label_bytes);
        Ok(u64::from(!right))
    };
    // Comparing blocks the host, so some steps are compared later.
    let mut free = Vec::new();
    for _ in 0..BEHIND {
        free.push(ConsumerCopy {
            step: 0,
            image: device.memory(image_bytes)?,
            label: device.memory(label_bytes)?,
            done: device.event(false)?,
        });
    }
    let mut taken: VecDeque<ConsumerCopy<D>> = VecDeque::new();
    let mut seen = StressResult { steps: 0, wrong: 0 };
    // Send two batches ahead of the consumer, as a loader does.
    let mut ahead = VecDeque::new();
    for step in 0..2 {
        ahead.push_back(send(step)?);
    }
    for step in 0..STEPS {
        if start.elapsed() >= lasting && step >= MIN_STEPS {
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
        match backend {
            Release::Named => batch.ready_on(consumer)?,
            Release::Unnamed => batch.synchronize()?,
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

/// Checks that a consumer that names its stream gets every batch as it was sent.
pub(super) fn with_release<D: CheckedDevice>(
    device: &D,
    lasting: Duration,
) -> Result<String, CheckFailure> {
    let before = device.complaints().len();
    let seen = stress(device, lasting, Release::Named)?;
    let complaints = device.complaints();
    if let Some(first) = complaints.get(before) {
        let more = complaints.len() - before - 1;
        return Err(wrong(format!("{first}, and {more} more")));
    }
    if seen.wrong > 0 {
        return Err(wrong(format!(
            "{} of {} batches differ from the batches sent",
            seen.wrong, seen.steps
        )));
    }
    Ok(format!("{} steps, each as it was sent", seen.steps))
}

/// Checks that a consumer that does not name its stream reads wrong bytes. This shows that the
/// check above can fail.
pub(super) fn without_release<D: CheckedDevice>(
    device: &D,
    lasting: Duration,
) -> Result<String, CheckFailure> {
    let before = device.complaints().len();
    let seen = stress(device, lasting, Release::Unnamed)?;
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
