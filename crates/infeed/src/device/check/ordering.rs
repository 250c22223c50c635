//! Order of a JPEG decoder's writes: it decodes into memory that a late command of another stream still reads,
//! with and without a wait on the host before.

use std::sync::Arc;

use infeed_raw::jpeg_encode::Subsampling;
use infeed_raw::slab::Slab;

use super::jpeg::{cut, finish, jpeg, places, scanned};
use super::stress::Busy;
use super::{Checked, Figure, Figures, Wrong, wrong};
use crate::device::DeviceError;
use crate::device::jpeg::{Place, ScannedJpeg};

/// Tries with a wait on the host, and without one.
const TRIES: usize = 20;

/// Files of a batch.
const FILES: usize = 8;

/// Height and width of each.
const SIZE: (u32, u32) = (240, 320);

/// Memory that is decoded to, and the streams that use it.
struct Bench<'a, D: Checked> {
    device: &'a D,
    /// Streams of the late reader and of the decoder.
    reader: D::Queue,
    queue: D::Queue,
    busy: Busy<D>,
    to: Arc<D::Memory>,
    copy: Arc<D::Memory>,
    places: Vec<Place>,
    len: usize,
}

impl<D: Checked> Bench<'_, D> {
    fn decode(&self, decoder: &mut D::Decoder, jpegs: &[ScannedJpeg]) -> Result<(), Wrong> {
        let (queue, to) = (self.queue, &self.to);
        let decoding = self
            .device
            .decode(queue, decoder, jpegs, to, &self.places)?;
        if let Some(refused) = decoding.refused().first() {
            return Err(wrong(format!("row {}: {}", refused.row, refused.why)));
        }
        Ok(())
    }

    /// Pixels of all places of a memory.
    fn pixels(&self, memory: &Arc<D::Memory>) -> Result<Vec<u8>, Wrong> {
        let seen = self
            .device
            .fetch(self.reader, memory, Slab::zeroed(1, self.len)?)?;
        let pixels = self.places.iter().map(|place| cut(seen.as_ref(), place));
        Ok(pixels.collect::<Vec<_>>().concat())
    }

    /// Decodes `new` while a late command still has to read `old`; whether that read `new`.
    fn is_overwritten(
        &self,
        decoder: &mut D::Decoder,
        old: &[ScannedJpeg],
        new: &[ScannedJpeg],
        waits_on_host: bool,
    ) -> Result<bool, Wrong> {
        let device = self.device;
        self.decode(decoder, old)?;
        finish(device, self.queue)?;
        let expected = self.pixels(&self.to)?;
        let read = device.event(false)?;
        self.busy.on(device, self.reader, self.busy.most)?;
        device.copy_within(self.reader, &self.to, &self.copy, self.len)?;
        device.record(&read, self.reader)?;
        device.wait(self.queue, &read)?;
        if waits_on_host {
            device.synchronize(&read)?;
        }
        self.decode(decoder, new)?;
        finish(device, self.queue)?;
        finish(device, self.reader)?;
        Ok(self.pixels(&self.copy)? != expected)
    }
}

/// Checks that a decoder which the host calls after a wait overwrites nothing that is still read, and
/// reports how often it does without that wait.
///
/// # Errors
///
/// If a wait on the host does not keep the order, or the device fails.
pub(super) fn ordering<D: Checked>(
    device: &D,
    decoder: &mut D::Decoder,
    by: &str,
    figures: &mut Figures<'_>,
) -> Result<String, Wrong> {
    let (places, len) = places((0..FILES).map(|_| SIZE));
    let batch = |key: u64| {
        let files = (0..FILES as u64).map(|n| jpeg(key + n, SIZE, Subsampling::Quarter));
        scanned(&files.collect::<Result<Vec<_>, _>>()?)
    };
    let (old, new) = (batch(100)?, batch(200)?);
    let reader = device.stream()?;
    let to = device.memory(len)?;
    let bench = Bench {
        device,
        reader,
        queue: device.stream()?,
        busy: Busy::new(device, reader)?,
        copy: device.memory(len)?,
        // What lies between the places is copied, too.
        to: zeroed(device, reader, to, len)?,
        places,
        len,
    };
    let mut count = |waits_on_host: bool| -> Result<usize, Wrong> {
        let mut overwritten = 0;
        for _ in 0..TRIES {
            // A device that notices the missing order finds it whatever the timing was.
            let before = device.complaints().len();
            let is_seen = bench.is_overwritten(decoder, &old, &new, waits_on_host)?;
            let is_found = is_seen || device.complaints().len() > before;
            overwritten += usize::from(is_found);
        }
        figures.push(Figure {
            name: format!("jpeg/by={by}/overwritten/host waits={waits_on_host}"),
            value: overwritten as f64,
            unit: "of 20",
        });
        Ok(overwritten)
    };
    let with_wait = count(true)?;
    if with_wait > 0 {
        return Err(wrong(format!(
            "{with_wait} of {TRIES} reads saw pixels of a batch that was decoded after the host had \
             waited for them"
        )));
    }
    let without_wait = count(false)?;
    Ok(format!(
        "reads that saw a later batch: 0 of {TRIES} with a wait on the host, {without_wait} without"
    ))
}

/// The memory with zeros in it.
fn zeroed<D: Checked>(
    device: &D,
    queue: D::Queue,
    memory: Arc<D::Memory>,
    len: usize,
) -> Result<Arc<D::Memory>, DeviceError> {
    let zeros = Arc::new(vec![0_u8; len]);
    drop(device.copy(queue, zeros, len, &memory, 0)?);
    finish(device, queue)?;
    Ok(memory)
}
