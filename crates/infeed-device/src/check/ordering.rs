//! Order of a JPEG decoder's writes. A late command of another stream still reads the memory that
//! the decoder writes, with and without a wait on the host.

use std::sync::Arc;

use infeed_raw::jpeg_encode::Subsampling;
use infeed_raw::slab::Slab;

use super::checked_device::CheckedDevice;
use super::findings::{CheckFailure, Figure, Figures, wrong};
use super::jpeg::{cut, finish, jpeg, positions, scan_all};
use super::stress::BusyStream;
use crate::DeviceError;
use crate::jpeg::{ImagePosition, ScannedJpeg};

/// Number of tries, each with and without a wait on the host.
const TRIES: usize = 20;

/// Files of a batch.
const FILES: usize = 8;

/// Height and width of each file.
const SIZE: (u32, u32) = (240, 320);

/// The memory that the decoder writes, and the streams that use it.
struct OverwriteTest<'a, D: CheckedDevice> {
    device: &'a D,
    /// Stream of the late reader. `queue` is the decoder's.
    reader: D::Queue,
    queue: D::Queue,
    busy: BusyStream<D>,
    to: Arc<D::Memory>,
    copy: Arc<D::Memory>,
    positions: Vec<ImagePosition>,
    len: usize,
}

impl<D: CheckedDevice> OverwriteTest<'_, D> {
    fn decode(&self, decoder: &mut D::Decoder, jpegs: &[ScannedJpeg]) -> Result<(), CheckFailure> {
        let (queue, to) = (self.queue, &self.to);
        let decoding = self
            .device
            .decode(queue, decoder, jpegs, to, &self.positions)?;
        if let Some(rejected) = decoding.rejected_files().first() {
            return Err(wrong(format!("row {}: {}", rejected.row, rejected.why)));
        }
        Ok(())
    }

    /// Returns the pixels at all positions of a memory.
    fn pixels(&self, memory: &Arc<D::Memory>) -> Result<Vec<u8>, CheckFailure> {
        let seen = self
            .device
            .fetch(self.reader, memory, Slab::zeroed(1, self.len)?)?;
        let pixels = self
            .positions
            .iter()
            .map(|position| cut(seen.as_ref(), position));
        Ok(pixels.collect::<Vec<_>>().concat())
    }

    /// Decodes `new` while a late command has yet to read `old`. Returns whether that command read
    /// `new`.
    fn is_overwritten(
        &self,
        decoder: &mut D::Decoder,
        old: &[ScannedJpeg],
        new: &[ScannedJpeg],
        waits_on_host: bool,
    ) -> Result<bool, CheckFailure> {
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

/// Checks that a decoder called after a wait on the host does not overwrite memory that is still
/// read. Also counts how often it does without the wait.
///
/// # Errors
///
/// If a wait on the host does not keep the order, or the device fails.
pub(super) fn ordering<D: CheckedDevice>(
    device: &D,
    decoder: &mut D::Decoder,
    by: &str,
    figures: &mut Figures<'_>,
) -> Result<String, CheckFailure> {
    let (positions, len) = positions((0..FILES).map(|_| SIZE));
    let batch = |key: u64| {
        let files = (0..FILES as u64).map(|n| jpeg(key + n, SIZE, Subsampling::Quarter));
        scan_all(&files.collect::<Result<Vec<_>, _>>()?)
    };
    let (old, new) = (batch(100)?, batch(200)?);
    let reader = device.stream()?;
    let to = device.memory(len)?;
    let bench = OverwriteTest {
        device,
        reader,
        queue: device.stream()?,
        busy: BusyStream::new(device, reader)?,
        copy: device.memory(len)?,
        // The bytes between the positions are copied, too.
        to: fill_zeros(device, reader, to, len)?,
        positions,
        len,
    };
    let mut count = |waits_on_host: bool| -> Result<usize, CheckFailure> {
        let mut overwritten = 0;
        for _ in 0..TRIES {
            // The simulated device finds the missing order at any timing.
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

/// Allocates memory filled with zeros.
fn fill_zeros<D: CheckedDevice>(
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
