//! Batches to the accelerator, ahead of the consumer.
//!
//! [`Device`] is the seam: memory, copies and kernels in streams that events order, implemented by
//! CUDA and by a simulated device ([`sim`]). [`ring`] sends batches through it and is the same code
//! over both. Who may touch which memory when, and why, is in this folder's README.

pub mod any;
pub mod busy;
pub mod check;
pub mod cuda;
pub mod jpeg;
pub mod ring;
pub mod sim;
pub mod timing;

use std::fmt::Debug;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use infeed_raw::kernel::{Kernel, Table};
use infeed_raw::near::Node;
use infeed_raw::slab::Slab;

use crate::error::{Cause, Error};

pub use any::Any;
pub use cuda::Cuda;
pub use jpeg::{DecoderSettings, Decoding, Place, ScannedJpeg};
pub use ring::{
    DeviceArray, DeviceBatch, Ring, RingStats, Route, SLOTS, Sent, SentTimes, Settings, Upload,
};
pub use sim::Sim;

/// Bytes on the host that a copy reads: shared, so that they stay until it has.
pub type HostSource = Arc<dyn AsRef<[u8]> + Send + Sync>;

/// Memory, copies and kernels in streams that events order.
///
/// Commands of one stream run one after another, commands of two streams in any order unless an
/// event says otherwise. Every method is called from any thread and enqueues; nothing here waits
/// for the device but [`synchronize`](Device::synchronize), [`drain`](Device::drain), a transfer dropped
/// early, and the freeing of memory. Clones are handles of one device.
pub trait Device: Clone + Debug + Send + Sync + 'static {
    /// Bytes on the device, at an address that is a multiple of 256. Freed when dropped, though not
    /// before the commands that were enqueued on it are done: an implementation keeps it, or waits.
    type Memory: Debug + Send + Sync + 'static;
    /// Names a stream: one of the device's own, or a consumer's.
    type Queue: Copy + Debug + Eq + Send + Sync + 'static;
    /// A mark in a stream. It may be dropped or recorded again at any time: what waits for it has
    /// taken note of the mark that it was at that moment.
    type Event: Debug + Send + Sync + 'static;
    /// A copy from the host under way. It holds the host's bytes; dropping it waits until they have
    /// been read.
    type Transfer: Debug + Send + 'static;
    /// Decodes batches of JPEGs, one after another.
    type Decoder: Debug + Send + 'static;

    /// As users name it, such as `cuda:0`.
    fn name(&self) -> String;

    /// The part of the machine that it hangs on, where the machine has several and tells.
    fn node(&self) -> Option<Node> {
        None
    }

    /// Readies a slab for copies at the full rate of the bus. May be called again for the same slab.
    ///
    /// # Errors
    ///
    /// If the driver refuses. Copies from such a slab still work, but slower.
    fn pin(&self, slab: &mut Slab) -> Result<(), DeviceError>;

    /// Allocates. What the memory holds is not specified.
    ///
    /// # Errors
    ///
    /// [`DeviceError::OutOfMemory`].
    fn memory(&self, bytes: usize) -> Result<Arc<Self::Memory>, DeviceError>;

    /// Number of bytes of a memory.
    fn len(&self, memory: &Self::Memory) -> usize;

    /// Makes a stream, which lives as long as the device and waits for no other.
    ///
    /// # Errors
    ///
    /// If the driver refuses.
    fn stream(&self) -> Result<Self::Queue, DeviceError>;

    /// Makes an event; `timed` ones can be given to [`elapsed`](Device::elapsed).
    ///
    /// # Errors
    ///
    /// If the driver refuses.
    fn event(&self, timed: bool) -> Result<Self::Event, DeviceError>;

    /// Copies the first `bytes` of `from` to `to[at..]`.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Bounds`] if either is too short; what the driver refuses.
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
    /// [`DeviceError::Bounds`] if either is too short or both are one; what the driver refuses.
    fn copy_within(
        &self,
        queue: Self::Queue,
        from: &Arc<Self::Memory>,
        to: &Arc<Self::Memory>,
        bytes: usize,
    ) -> Result<(), DeviceError>;

    /// Runs a kernel over `rows` rows from the beginning of `input` to the beginning of `output`;
    /// either may be longer than the rows take. A `table` is checked as it is on the host, and copied
    /// to the memory beside it before the kernel uses it there; its views, or images, may lie anywhere
    /// in the input.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Bounds`] if a memory is too short or input and output are one;
    /// [`DeviceError::Failed`] if the kernel does not take them, or the driver refuses.
    fn launch(
        &self,
        queue: Self::Queue,
        kernel: &Kernel,
        rows: usize,
        input: &Arc<Self::Memory>,
        table: Option<(Table<'_>, &Arc<Self::Memory>)>,
        output: &Arc<Self::Memory>,
    ) -> Result<(), DeviceError>;

    /// Makes a decoder of JPEGs.
    ///
    /// # Errors
    ///
    /// [`DeviceError::NoDecoder`], with the reason and the mend, if the device has none; what it
    /// refuses.
    fn decoder(&self, settings: &DecoderSettings) -> Result<Self::Decoder, DeviceError>;

    /// What decodes, as far as pixels depend on it: a library with its version, and what of the device
    /// it uses.
    fn decoder_name(&self, decoder: &Self::Decoder) -> String;

    /// Decodes each file into its place in `to`, as red, green and blue.
    ///
    /// **Order.** A decoder may write as soon as it is called: GPUs have engines that no stream holds back.
    /// So the caller waits on the host ([`synchronize`](Device::synchronize)) for all commands that use
    /// the bytes from the first place to the last. Commands that enter `queue` afterwards come after
    /// the decoding.
    ///
    /// Files that the decoder does not take, or that are not of the size of their places, are refused
    /// by number, and the others are decoded. So are files that the decoder finds broken while it decodes
    /// them; a GPU's decoder does not find all of them. The contents of the place of a refused file, and
    /// of the bytes between places, are not specified.
    ///
    /// The host may wait for the batch before the last.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Refused`] if a place leaves the memory or shares bytes with another, or there is
    /// not one for each file; what the device refuses.
    fn decode(
        &self,
        queue: Self::Queue,
        decoder: &mut Self::Decoder,
        jpegs: &[ScannedJpeg],
        to: &Arc<Self::Memory>,
        places: &[Place],
    ) -> Result<Decoding<Self::Transfer>, DeviceError>;

    /// Puts an event at the end of what is in a stream now.
    ///
    /// # Errors
    ///
    /// If there is no such stream any more; what the driver refuses.
    fn record(&self, event: &Self::Event, queue: Self::Queue) -> Result<(), DeviceError>;

    /// Makes what enters a stream from now on wait, on the device, for the event's last record. An
    /// event that was never recorded is not waited for.
    ///
    /// # Errors
    ///
    /// As [`record`](Device::record).
    fn wait(&self, queue: Self::Queue, event: &Self::Event) -> Result<(), DeviceError>;

    /// Whether everything before the event's last record is done; true if there is none.
    ///
    /// # Errors
    ///
    /// What a command that ran meanwhile failed with.
    fn is_done(&self, event: &Self::Event) -> Result<bool, DeviceError>;

    /// Blocks the calling thread until the event's last record is done.
    ///
    /// # Errors
    ///
    /// What a command that ran meanwhile failed with.
    fn synchronize(&self, event: &Self::Event) -> Result<(), DeviceError>;

    /// Blocks the calling thread until everything that was enqueued so far is done, in all streams, in
    /// those that are no more, too: for who cannot ask a stream any more.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Refused`] while a stream is being captured into a graph; what a command that ran
    /// meanwhile failed with.
    fn drain(&self) -> Result<(), DeviceError>;

    /// Blocks the calling thread until the event's last record is done, at most for `limit`. Returns whether
    /// it is.
    ///
    /// # Errors
    ///
    /// As [`synchronize`](Device::synchronize).
    fn synchronize_within(
        &self,
        event: &Self::Event,
        limit: Duration,
    ) -> Result<bool, DeviceError> {
        // No driver has such a wait. It is for the end of a loader, where nothing is urgent.
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

    /// As [`drain`](Device::drain), at most for `limit`. Returns whether everything is done.
    ///
    /// # Errors
    ///
    /// As [`drain`](Device::drain).
    fn drain_within(&self, limit: Duration) -> Result<bool, DeviceError> {
        let (sender, drained) = mpsc::sync_channel(1);
        let device = self.clone();
        let thread = std::thread::Builder::new().name("infeed-drain".to_owned());
        // No driver gives up a wait: what is still waiting then is left to itself.
        let spawned = thread.spawn(move || drop(sender.send(device.drain())));
        if spawned.is_err() {
            return Ok(false);
        }
        match drained.recv_timeout(limit) {
            Ok(drained) => drained.map(|()| true),
            Err(_) => Ok(false),
        }
    }

    /// Runs `calls`, in which this thread makes many calls of the device: where each of them needs the
    /// thread prepared, it is prepared once.
    fn with_current<T>(&self, calls: impl FnOnce() -> T) -> T {
        calls()
    }

    /// Frees memory that is dropped from now on behind the event's last record: on the device where that frees
    /// in the order of a stream, else by waiting here.
    ///
    /// # Errors
    ///
    /// As [`synchronize`](Device::synchronize).
    fn free_behind(&self, event: &Self::Event) -> Result<(), DeviceError> {
        self.synchronize(event)
    }

    /// Gives memory that was dropped, and that the device keeps for later, back to others. Waits at most for
    /// `limit` until what used it is done.
    fn trim(&self, limit: Duration) {
        let _ = limit;
    }

    /// Takes back a stream of the device's own, to which nothing more is put, for the next caller of
    /// [`stream`](Device::stream).
    fn give_back(&self, queue: Self::Queue) {
        let _ = queue;
    }

    /// Time from one event to another on the device's clock; zero if `to` came first.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Untimed`] unless both are timed, recorded and done.
    fn elapsed(&self, from: &Self::Event, to: &Self::Event) -> Result<Duration, DeviceError>;
}

/// What a device could not do. Which device that is, [`Error::Device`] says.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The device has no memory left.
    #[error("it has no {asked_bytes} bytes of memory left ({free_bytes} are free)")]
    OutOfMemory {
        /// Bytes asked for.
        asked_bytes: u64,
        /// Bytes that are free there.
        free_bytes: u64,
    },

    /// A command would pass the end of a memory, or read what it writes.
    #[error("{command} needs {needed_bytes} bytes of {of}, which has {found_bytes}")]
    Bounds {
        /// Which command.
        command: &'static str,
        /// Of what: the input, the output.
        of: &'static str,
        /// Bytes needed.
        needed_bytes: u64,
        /// Bytes there are; 0 where input and output are one memory.
        found_bytes: u64,
    },

    /// A time was asked of events that have none.
    #[error("no time lies between two events of which one is not timed, not recorded or not done")]
    Untimed,

    /// The device decodes no JPEGs.
    #[error("it decodes no JPEGs")]
    NoDecoder {
        /// Why, and the mend.
        source: Cause,
    },

    /// A command was not enqueued because it could not be right, such as one in a stream that is being
    /// captured into a graph. The device works on.
    #[error("{call} was not asked of the device")]
    Refused {
        /// The command.
        call: &'static str,
        /// Why, and the mend.
        source: Cause,
    },

    /// A command was not enqueued because its stream is no more. The device works on.
    #[error("{call} names a stream that is no more")]
    NoStream {
        /// The command.
        call: &'static str,
        /// What the device's library said, and the mend.
        source: Cause,
    },

    /// A call failed.
    #[error("{call} failed")]
    Failed {
        /// The call, as its library names it.
        call: &'static str,
        /// What it said, and the mend.
        source: Cause,
    },
}

impl DeviceError {
    /// Whether an error of the engine says that a device has no memory left, or gives none now. It works
    /// on.
    pub(crate) fn denies_memory(error: &Error) -> bool {
        let Error::Device { source, .. } = error else {
            return false;
        };
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&**source);
        while let Some(error) = cause {
            if let Some(DeviceError::OutOfMemory { .. } | DeviceError::Refused { .. }) =
                error.downcast_ref()
            {
                return true;
            }
            cause = error.source();
        }
        false
    }

    /// As an error of the engine, about `device`.
    pub fn on(self, device: impl Into<String>) -> Error {
        Error::Device {
            device: device.into(),
            source: Arc::new(self),
        }
    }
}
