//! The abstraction of a device, which CUDA and the simulated device implement.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::{Duration, Instant};

use infeed_raw::host::HostSource;
use infeed_raw::kernel::{Kernel, Table};
use infeed_raw::near::Node;
use infeed_raw::slab::Slab;

use super::error::DeviceError;
use super::jpeg::{DecoderSettings, Decoding, ImagePosition, ScannedJpeg};

/// Memory, and copies and kernels in streams that events order.
///
/// Commands of one stream run in order. Commands of two streams run in any order unless an event
/// orders them. Any thread may call any method. Methods enqueue work and return; only
/// [`synchronize`](Device::synchronize), dropping a transfer early, and freeing memory wait for the
/// device. Clones are handles of the same device.
pub trait Device: Clone + Debug + Send + Sync + 'static {
    /// Bytes on the device, at an address that is a multiple of 256. Dropping a memory frees it,
    /// but only after the commands that use it: the implementation defers the free, or waits.
    type Memory: Debug + Send + Sync + 'static;
    /// Handle of a stream that the device or a consumer created.
    type Queue: Copy + Debug + Eq + Send + Sync + 'static;
    /// A mark in a stream. The caller may drop it or record it again at any time: a wait refers to
    /// the record that was current when the wait was enqueued.
    type Event: Debug + Send + Sync + 'static;
    /// A copy from the host in flight. It keeps the host's bytes alive. Dropping it waits until the
    /// device has read them.
    type Transfer: Debug + Send + 'static;
    /// Decodes batches of JPEGs one after another.
    type Decoder: Debug + Send + 'static;

    /// Returns the name as users write it, such as `cuda:0`.
    fn name(&self) -> String;

    /// Returns the NUMA node of the device, if the machine has several and reports it.
    fn node(&self) -> Option<Node> {
        None
    }

    /// Prepares a slab for copies at the full rate of the bus (pins it). May be called again for
    /// the same slab.
    ///
    /// # Errors
    ///
    /// The driver's error. Copies from such a slab still work, but slower.
    fn pin(&self, slab: &mut Slab) -> Result<(), DeviceError>;

    /// Allocates memory with unspecified contents.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfMemory`].
    fn memory(&self, bytes: usize) -> Result<Arc<Self::Memory>, DeviceError>;

    /// Returns the number of bytes of a memory.
    fn len(&self, memory: &Self::Memory) -> usize;

    /// Creates a stream. It lives as long as the device and waits for no other stream.
    ///
    /// # Errors
    ///
    /// The driver's error.
    fn stream(&self) -> Result<Self::Queue, DeviceError>;

    /// Creates an event. [`elapsed`](Device::elapsed) needs `timed` events.
    ///
    /// # Errors
    ///
    /// The driver's error.
    fn event(&self, timed: bool) -> Result<Self::Event, DeviceError>;

    /// Copies the first `bytes` of `from` to `to[at..]`.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Bounds`] if either is too short; the driver's error.
    fn copy(
        &self,
        queue: Self::Queue,
        from: HostSource,
        bytes: usize,
        to: &Arc<Self::Memory>,
        at: usize,
    ) -> Result<Self::Transfer, DeviceError>;

    /// Copies the first `bytes` of one memory to the beginning of another.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Bounds`] if either is too short or both are the same memory; the driver's
    /// error.
    fn copy_within(
        &self,
        queue: Self::Queue,
        from: &Arc<Self::Memory>,
        to: &Arc<Self::Memory>,
        bytes: usize,
    ) -> Result<(), DeviceError>;

    /// Runs a kernel over `rows` rows, from the beginning of `input` to the beginning of `output`.
    /// Both may be longer than the rows. If there is a `table`, the host checks it, and the device
    /// copies it to the memory given with it before the kernel reads it. The views or images of the
    /// table may lie anywhere in the input.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Bounds`] if a memory is too short or input and output are the same;
    /// [`DeviceError::Failed`] if the kernel rejects its arguments, or the driver fails.
    fn launch(
        &self,
        queue: Self::Queue,
        kernel: &Kernel,
        rows: usize,
        input: &Arc<Self::Memory>,
        table: Option<(Table<'_>, &Arc<Self::Memory>)>,
        output: &Arc<Self::Memory>,
    ) -> Result<(), DeviceError>;

    /// Creates a decoder of JPEGs.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoDecoder`], with the reason and the fix, if the device has none; the
    /// driver's error.
    fn decoder(&self, settings: &DecoderSettings) -> Result<Self::Decoder, DeviceError>;

    /// Returns a name for everything in the decoder that affects pixels: the library, its version,
    /// and the part of the device that decodes.
    fn decoder_name(&self, decoder: &Self::Decoder) -> String;

    /// Decodes each file into its position in `to`, as red, green and blue.
    ///
    /// **Order.** A decoder may write as soon as it is called: GPUs have engines that ignore
    /// streams. So the caller must first wait on the host ([`synchronize`](Device::synchronize))
    /// for all commands that use the bytes from the first position to the last. Commands that enter
    /// `queue` afterwards run after the decoding.
    ///
    /// The decoder rejects a file by its number if the file is of an unsupported kind, or if its
    /// size differs from its position. It decodes the others. It also rejects files that it finds
    /// broken while it decodes; a GPU's decoder does not find all of them. The contents of a
    /// rejected file's position, and of the bytes between positions, are unspecified.
    ///
    /// This call may wait until the batch before the last one is decoded.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Rejected`] if a position leaves the memory or overlaps another, or the number
    /// of positions differs from the number of files; the driver's error.
    fn decode(
        &self,
        queue: Self::Queue,
        decoder: &mut Self::Decoder,
        jpegs: &[ScannedJpeg],
        to: &Arc<Self::Memory>,
        positions: &[ImagePosition],
    ) -> Result<Decoding<Self::Transfer>, DeviceError>;

    /// Records an event after the commands that are in the stream now.
    ///
    /// # Errors
    ///
    /// The stream does not exist any more; the driver's error.
    fn record(&self, event: &Self::Event, queue: Self::Queue) -> Result<(), DeviceError>;

    /// Makes later commands of a stream wait, on the device, for the event's last record. Waiting
    /// for an event that was never recorded has no effect.
    ///
    /// # Errors
    ///
    /// As [`record`](Device::record).
    fn wait(&self, queue: Self::Queue, event: &Self::Event) -> Result<(), DeviceError>;

    /// Whether everything before the event's last record is done. True if there is no record.
    ///
    /// # Errors
    ///
    /// The error of a command that failed earlier.
    fn is_done(&self, event: &Self::Event) -> Result<bool, DeviceError>;

    /// Blocks the calling thread until the event's last record is done.
    ///
    /// # Errors
    ///
    /// The error of a command that failed earlier.
    fn synchronize(&self, event: &Self::Event) -> Result<(), DeviceError>;

    /// Whether a kernel that waits for an event on the device slows down the kernels of other
    /// streams, so that a wait on the host is better.
    fn is_slowed_by_waits(&self) -> bool {
        false
    }

    /// Blocks the calling thread until the event's last record is done, for at most `limit`.
    /// Returns whether it is done.
    ///
    /// # Errors
    ///
    /// As [`synchronize`](Device::synchronize).
    fn synchronize_within(
        &self,
        event: &Self::Event,
        limit: Duration,
    ) -> Result<bool, DeviceError> {
        // No driver has a wait with a time limit. A millisecond of latency does not matter when a
        // loader closes, or for a batch that is needed a step later.
        const BETWEEN: Duration = Duration::from_millis(1);
        let begun = Instant::now();
        while !self.is_done(event)? {
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return Ok(false);
            }
            std::thread::park_timeout(left.min(BETWEEN));
        }
        Ok(true)
    }

    /// Runs `calls`, which calls the device many times. Prepares the thread once for all calls, if
    /// the device needs that.
    fn with_current<T>(&self, calls: impl FnOnce() -> T) -> T {
        calls()
    }

    /// Makes memory that is dropped from now on be freed after the event's last record. Devices
    /// that support it free in stream order; others wait here.
    ///
    /// # Errors
    ///
    /// As [`synchronize`](Device::synchronize).
    fn free_behind(&self, event: &Self::Event) -> Result<(), DeviceError> {
        self.synchronize(event)
    }

    /// Returns dropped memory that the device keeps for reuse to the operating system. Waits at
    /// most `limit` for commands that use the memory.
    fn trim(&self, limit: Duration) {
        let _ = limit;
    }

    /// Returns one of the device's own streams, so that the next call of [`stream`](Device::stream)
    /// reuses it. The caller must not enqueue anything more in it.
    fn give_back(&self, queue: Self::Queue) {
        let _ = queue;
    }

    /// Returns the time from one event to another on the device's clock. Zero if `to` came first.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Untimed`] unless both are timed, recorded and done.
    fn elapsed(&self, from: &Self::Event, to: &Self::Event) -> Result<Duration, DeviceError>;
}
