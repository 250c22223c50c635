//! Rates of copies and kernels, the host's cost of a step, and the accuracy of measured gaps.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use infeed_raw::kernel::{Bilinear, Integer, Kernel, ResizeTable, Table};
use infeed_raw::simd::{Dtype, Layout};
use infeed_raw::slab::Slab;

use super::bytes::{memory_with_bytes, noise};
use super::checked_device::CheckedDevice;
use super::findings::{CheckFailure, Figure, Figures, wrong};
use super::kernels::{DTYPES, LAYOUTS, images, photograph, with_resize};
use super::pace::{Pace, Rotation};
use super::plan::Effort;
use crate::timing::{batch_times, time_commands};
use crate::{DeviceError, HostSource, Ring, RingSettings, Route};
use infeed_core::batch::{Array, Batch, Column, ColumnKind, ColumnSpec, Values};
use infeed_core::sample::DType;

fn rate(bytes: usize, one: Duration) -> f64 {
    bytes as f64 / one.as_secs_f64().max(1e-9) / 1e9
}

fn figure(name: String, value: f64, unit: &'static str) -> Figure {
    Figure { name, value, unit }
}

/// Returns the sizes of the timed copies in bytes. Kernels are compared with the largest.
fn sizes(effort: Effort) -> &'static [usize] {
    match effort {
        Effort::Small => &[1 << 20],
        Effort::Full => &[4 << 20, 16 << 20, 64 << 20, 256 << 20],
    }
}

/// Most copies in flight; at the limit, the check waits for the oldest.
const MAX_IN_FLIGHT: usize = 64;

/// Times copies to the device, to the host and on the device, from pinned and from pageable memory.
pub(super) fn copies<D: CheckedDevice>(
    device: &D,
    effort: Effort,
    figures: &mut Figures<'_>,
) -> Result<String, CheckFailure> {
    let queue = device.stream()?;
    let pace = Pace::of(effort);
    for &bytes in sizes(effort) {
        for pinned in [true, false] {
            let kind = if pinned { "pinned" } else { "pageable" };
            let here = device.memory(bytes)?;
            let mut slab = Slab::zeroed(1, bytes)?;
            slab.as_mut().fill(1);
            if pinned {
                device.pin(&mut slab)?;
            }
            let slab = Arc::new(slab);
            let mut in_flight = VecDeque::new();
            let one = pace.time_runs(device, queue, |_| {
                if in_flight.len() == MAX_IN_FLIGHT {
                    in_flight.pop_front();
                }
                let source = Arc::clone(&slab) as HostSource;
                in_flight.push_back(device.copy(queue, source, bytes, &here, 0)?);
                Ok(())
            })?;
            drop(in_flight);
            figures.push(figure(
                format!("copy/to=device/memory={kind}/bytes={bytes}"),
                rate(bytes, one),
                "GB/s",
            ));
            let slab =
                Arc::try_unwrap(slab).map_err(|_| wrong("a copy that is done holds its bytes"))?;
            let mut slab = Some(slab);
            let one = pace.each(|times| {
                let start = Instant::now();
                for _ in 0..times {
                    if let Some(into) = slab.take() {
                        slab = Some(device.fetch(queue, &here, into)?);
                    }
                }
                Ok::<_, DeviceError>(start.elapsed())
            })?;
            figures.push(figure(
                format!("copy/to=host/memory={kind}/bytes={bytes}"),
                rate(bytes, one),
                "GB/s",
            ));
            if !slab.is_some_and(|slab| slab.as_ref().iter().all(|&byte| byte == 1)) {
                return Err(wrong("bytes came back changed"));
            }
        }
        let buffers = Rotation::new(device, queue, pace, &vec![1; bytes], bytes)?;
        let one = pace.time_runs(device, queue, |run| {
            let (from, to) = buffers.at(run);
            device.copy_within(queue, from, to, bytes)
        })?;
        figures.push(figure(
            format!("copy/on=device/bytes={bytes}"),
            rate(2 * bytes, one),
            "GB/s read and written",
        ));
    }
    Ok(format!("{} sizes", sizes(effort).len()))
}

/// Measures kernels over batches of common sizes, in bytes read and written per second. Also
/// measures how much time it saves to send bytes instead of float32.
pub(super) fn kernels<D: CheckedDevice>(
    device: &D,
    effort: Effort,
    figures: &mut Figures<'_>,
) -> Result<String, CheckFailure> {
    let queue = device.stream()?;
    let (rows, side, masks) = match effort {
        Effort::Small => (4, 32, (2, 24, 32)),
        Effort::Full => (256, 224, (8, 720, 960)),
    };
    let (mask_rows, height, width) = masks;
    let mut of = vec![];
    for (dtype, layout) in variants() {
        let variant = format!("to={dtype:?}/layout={layout:?}").to_lowercase();
        let expand = photograph((side, side), 3, dtype, layout);
        of.push((format!("expand/{variant}"), expand, rows));
        let one_hot = Kernel::OneHot {
            height,
            width,
            classes: 32,
            dtype,
            layout,
        };
        of.push((format!("one_hot/{variant}/classes=32"), one_hot, mask_rows));
    }
    let classes = Kernel::Classes {
        height,
        width,
        colours: (0..32).map(|n| [n, n, n]).collect(),
        classes: (0..32).collect(),
        unknown: 255,
    };
    of.push(("classes/colours=32".to_owned(), classes, mask_rows));
    for dtype in [Integer::I32, Integer::I64] {
        let widen = Kernel::Widen {
            height,
            width,
            dtype,
            unknown: -100,
        };
        let variant = format!("to={dtype:?}").to_lowercase();
        of.push((format!("widen/{variant}"), widen, mask_rows));
    }
    let pace = Pace::of(effort);
    for (name, kernel, rows) in &of {
        let sizes = (kernel.input_bytes(*rows), kernel.output_bytes(*rows));
        let (Some(from_bytes), Some(to_bytes)) = sizes else {
            return Err(wrong(format!("{name}: its size overflows")));
        };
        let buffers = Rotation::new(device, queue, pace, &noise(5, from_bytes), to_bytes)?;
        let one = pace.time_runs(device, queue, |run| {
            let (from, to) = buffers.at(run);
            device.launch(queue, kernel, *rows, from, None, to)
        })?;
        figures.push(figure(
            format!("kernel/{name}/rows={rows}"),
            rate(from_bytes + to_bytes, one),
            "GB/s read and written",
        ));
    }
    let resized = resizes(device, queue, pace, (rows, side), figures)?;
    as_bytes_or_floats(device, queue, pace, (rows, side), figures)?;
    Ok(format!("{} kernels", of.len() + resized))
}

/// Returns every dtype in every layout.
fn variants() -> impl Iterator<Item = (Dtype, Layout)> {
    let layouts = |dtype| LAYOUTS.map(|layout| (dtype, layout));
    DTYPES.into_iter().flat_map(layouts)
}

/// Times resizes of crops as `RandomResizedCrop` draws them, from half the side to twice the side,
/// including the copy of the table. Also times the host's computation of a table for new and for
/// repeated lengths. Returns the number of kernels.
fn resizes<D: CheckedDevice>(
    device: &D,
    queue: D::Queue,
    pace: Pace,
    (rows, side): (usize, usize),
    figures: &mut Figures<'_>,
) -> Result<usize, CheckFailure> {
    let length =
        |key: u64| (side / 2) as u64 + infeed_core::random::hash(&[key]) % (3 * side as u64 / 2);
    let sizes: Vec<(u32, u32)> = (0..rows as u64)
        .map(|row| (length(2 * row) as u32, length(2 * row + 1) as u32))
        .collect();
    let (views, from_bytes) = images(&sizes, 3);
    let mut weights = Bilinear::new();
    let mut made = None;
    for lengths in ["new", "known"] {
        let start = Instant::now();
        made = Some(ResizeTable::of(side, side, &views, &mut weights)?);
        figures.push(figure(
            format!("table/of=resize/lengths={lengths}/rows={rows}"),
            start.elapsed().as_secs_f64() * 1e3,
            "ms",
        ));
    }
    let Some(table) = made else { return Ok(0) };
    let position = device.memory(table.bytes().len())?;
    let table = Some((Table::Resize(&table), &position));
    let input = noise(6, from_bytes);
    for (dtype, layout) in variants() {
        let kernel = with_resize(photograph((side, side), 3, dtype, layout));
        let to_bytes = kernel
            .output_bytes(rows)
            .ok_or_else(|| wrong("the size of a batch overflows"))?;
        let buffers = Rotation::new(device, queue, pace, &input, to_bytes)?;
        let one = pace.time_runs(device, queue, |run| {
            let (from, to) = buffers.at(run);
            device.launch(queue, &kernel, rows, from, table, to)
        })?;
        let variant = format!("to={dtype:?}/layout={layout:?}").to_lowercase();
        figures.push(figure(
            format!("kernel/resize/with=table/{variant}/rows={rows}"),
            rate(from_bytes + to_bytes, one),
            "GB/s read and written",
        ));
    }
    Ok(variants().count())
}

/// Sends the same batch as float32, and as the uint8 from which a kernel computes it.
fn as_bytes_or_floats<D: CheckedDevice>(
    device: &D,
    queue: D::Queue,
    pace: Pace,
    (rows, side): (usize, usize),
    figures: &mut Figures<'_>,
) -> Result<(), CheckFailure> {
    let kernel = photograph((side, side), 3, Dtype::F32, Layout::Chw);
    let pixels = rows * side * side * 3;
    let (staging, output) = (device.memory(pixels)?, device.memory(4 * pixels)?);
    let mut ms = [0.0; 2];
    for (floats, ms) in [false, true].into_iter().zip(&mut ms) {
        let bytes = if floats { 4 * pixels } else { pixels };
        let mut slab = Slab::zeroed(1, bytes)?;
        slab.as_mut().fill(3);
        device.pin(&mut slab)?;
        let source: HostSource = Arc::new(slab);
        let to = if floats { &output } else { &staging };
        let mut in_flight = VecDeque::new();
        let one = pace.time_runs(device, queue, |_| {
            if in_flight.len() == MAX_IN_FLIGHT {
                in_flight.pop_front();
            }
            in_flight.push_back(device.copy(queue, Arc::clone(&source), bytes, to, 0)?);
            if !floats {
                device.launch(queue, &kernel, rows, &staging, None, &output)?;
            }
            Ok(())
        })?;
        *ms = one.as_secs_f64() * 1e3;
        let name = if floats { "float32" } else { "uint8" };
        figures.push(figure(
            format!("to_device/as={name}/rows={rows}"),
            *ms,
            "ms",
        ));
    }
    figures.push(figure(
        format!("to_device/float32_over_uint8/rows={rows}"),
        ms[1] / ms[0].max(1e-9),
        "times as long",
    ));
    Ok(())
}

fn spec(dtype: DType, shape: &[usize]) -> ColumnSpec {
    let kind = ColumnKind::Fixed {
        dtype,
        shape: shape.to_vec(),
    };
    ColumnSpec {
        name: "image".to_owned(),
        kind,
    }
}

/// Returns a ring of images and a batch for it in pinned memory.
fn ring_of<D: CheckedDevice>(
    device: &D,
    rows: usize,
    side: usize,
) -> Result<(Ring<D>, Batch), CheckFailure> {
    let kernel = photograph((side, side), 3, Dtype::BF16, Layout::Chw);
    let route = Route::expand(
        spec(DType::UInt8, &[side, side, 3]),
        kernel,
        spec(DType::BFloat16, &[3, side, side]),
    );
    let ring = Ring::new(device.clone(), vec![route], RingSettings::new(rows))?;
    let mut slab = Slab::zeroed(rows, side * side * 3)?;
    device.pin(&mut slab)?;
    let image = Array::of_slab(slab, vec![rows, side, side, 3], DType::UInt8)
        .ok_or_else(|| wrong("a slab is as long as its rows"))?;
    let batch = Batch {
        columns: vec![Column {
            name: "image".to_owned(),
            values: Values::Array(image),
        }],
        records: (0..rows as u64).collect(),
        epoch: 0,
        step: 0,
    };
    Ok((ring, batch))
}

/// Measures the host's time for sending a batch, and for taking one.
pub(super) fn host_cost<D: CheckedDevice>(
    device: &D,
    effort: Effort,
    figures: &mut Figures<'_>,
) -> Result<String, CheckFailure> {
    let (rows, side, steps) = match effort {
        Effort::Small => (4, 32, 16),
        Effort::Full => (256, 224, 200),
    };
    let (ring, batch) = ring_of(device, rows, side)?;
    let consumer = device.stream()?;
    let done = device.event(false)?;
    let (mut sending, mut taking) = (Vec::new(), Vec::new());
    let mut ahead = Some(ring.send(batch.clone())?);
    for step in 1..=steps {
        let mut next = batch.clone();
        next.step = step;
        let start = Instant::now();
        let next = ring.send(next)?;
        sending.push(start.elapsed());
        let Some(sent) = ahead.replace(next) else {
            break;
        };
        let start = Instant::now();
        let batch = sent.hand_over(Some(ring.ask(consumer)?))?;
        let array = batch.array("image")?;
        batch.ready_on(consumer)?;
        drop((array, batch));
        taking.push(start.elapsed());
        // Otherwise, the next call would wait for the bus, or for the driver's queue.
        device.record(&done, consumer)?;
        device.synchronize(&done)?;
    }
    drop(ahead);
    ring.close()?;
    let mut reported = Vec::new();
    for (name, times) in [("send", &mut sending), ("take", &mut taking)] {
        times.sort_unstable();
        let at =
            |share: f64| times[((times.len() - 1) as f64 * share) as usize].as_secs_f64() * 1e6;
        for (point, us) in [("median", at(0.5)), ("p99", at(0.99))] {
            figures.push(figure(
                format!("host/call={name}/rows={rows}/{point}"),
                us,
                "us",
            ));
        }
        reported.push(format!("{name} {:.1} us", at(0.5)));
    }
    Ok(format!("medians: {}", reported.join(", ")))
}

/// Compares the ring's measured times of copies and kernels with the times of the same commands
/// alone, which are a lower bound.
pub(super) fn own_times<D: CheckedDevice>(
    device: &D,
    effort: Effort,
    figures: &mut Figures<'_>,
) -> Result<String, CheckFailure> {
    const STEPS: u64 = 12;
    let (rows, side) = match effort {
        Effort::Small => (4, 32),
        Effort::Full => (256, 224),
    };
    let (ring, batch) = ring_of(device, rows, side)?;
    let alone = batch_times(device, ring.routes(), rows)?;
    for step in 0..STEPS {
        let mut next = batch.clone();
        next.step = step;
        ring.send(next)?.hand_over(None)?.synchronize()?;
    }
    let reported = ring.stats()?.times;
    // Use the minimum: other work and low clocks only make commands slower.
    let again = batch_times(device, ring.routes(), rows)?;
    ring.close()?;
    if (reported.batches, reported.bytes) != (STEPS, STEPS * alone.bytes) {
        return Err(wrong(format!(
            "times of {} batches of {STEPS} are reported, {} bytes of {}",
            reported.batches,
            reported.bytes,
            STEPS * alone.bytes
        )));
    }
    let us = |time: Duration, times: u64| time.as_secs_f64() * 1e6 / times as f64;
    let mut notes = Vec::new();
    for (what, alone, reported) in [
        (
            "copying",
            alone.copying.min(again.copying),
            reported.copying,
        ),
        (
            "expanding",
            alone.expanding.min(again.expanding),
            reported.expanding,
        ),
    ] {
        let (alone, reported) = (us(alone, 1), us(reported, STEPS));
        figures.push(figure(
            format!("batch/{what}/alone/rows={rows}"),
            alone,
            "us",
        ));
        figures.push(figure(
            format!("batch/{what}/in=ring/rows={rows}"),
            reported,
            "us",
        ));
        notes.push(format!("{what} {reported:.1} us, alone {alone:.1} us"));
        if reported < 0.8 * alone {
            return Err(wrong(notes.join("; ")));
        }
    }
    Ok(notes.join("; "))
}

/// Injects a delay between a consumer's request and the batch. The measured gap must be at least
/// that long, and no longer than the host waits for the batch.
pub(super) fn gap<D: CheckedDevice>(
    device: &D,
    figures: &mut Figures<'_>,
) -> Result<String, CheckFailure> {
    const DELAY: Duration = Duration::from_millis(20);
    let (ring, batch) = ring_of(device, 4, 32)?;
    let (consumer, other) = (device.stream()?, device.stream()?);
    // The first batch includes initialization.
    ring.send(batch.clone())?.hand_over(None)?.synchronize()?;

    let bytes = D::BUSY_BYTES;
    let from = memory_with_bytes(device, other, &noise(9, bytes))?;
    let to = device.memory(bytes)?;
    let once = || device.copy_within(other, &from, &to, bytes);
    once()?;
    let each = time_commands(device, other, once)?.max(Duration::from_nanos(100));
    let times = (DELAY.as_nanos() / each.as_nanos()).clamp(1, 10_000);
    let begun = Instant::now();
    let request = ring.ask(consumer)?;
    // The gap begins before the delay.
    let has_begun = device.event(false)?;
    device.record(&has_begun, consumer)?;
    device.synchronize(&has_begun)?;
    let delay = time_commands(device, other, || (0..times).try_for_each(|_| once()))?;
    let late = ring.send(batch)?.hand_over(Some(request))?;
    late.ready_on(consumer)?;
    late.synchronize()?;
    let elapsed = begun.elapsed();
    drop(late);
    ring.stats()?;
    let gaps = ring.take_gaps();
    ring.close()?;

    let [gap] = gaps.as_slice() else {
        return Err(wrong(format!(
            "{} gaps are reported for one batch",
            gaps.len()
        )));
    };
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    figures.push(figure("gap/injected".to_owned(), ms(delay), "ms"));
    figures.push(figure("gap/measured".to_owned(), ms(gap.waited), "ms"));
    let reported = format!(
        "{:.2} ms injected, {:.2} ms measured, {:.2} ms on the host",
        ms(delay),
        ms(gap.waited),
        ms(elapsed)
    );
    // The clocks of the device and the host differ a little.
    if gap.waited < delay * 49 / 50 || gap.waited > elapsed * 51 / 50 {
        return Err(wrong(reported));
    }
    Ok(reported)
}
