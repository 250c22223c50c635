//! A device whose kind is chosen at run time by its name.
//!
//! `kinds!` is the table of kinds. Memory, streams, events and copies record their kind. A call
//! that mixes kinds is rejected, in the same way as a call with an object of another device of the
//! same kind.
#![cfg_attr(
    not(feature = "cuda"),
    allow(
        unreachable_patterns,
        reason = "objects of one kind cannot be mixed with another's"
    )
)]

use std::sync::Arc;
use std::time::Duration;

use infeed_raw::kernel::{Kernel, Table};
use infeed_raw::near::Node;
use infeed_raw::slab::Slab;

use super::check::{self, CheckPlan, FindingLog};
#[cfg(feature = "cuda")]
use super::cuda::Cuda;
use super::jpeg::{DecoderSettings, Decoding, ImagePosition, ScannedJpeg};
use super::named_device::{BusyShare, NamedDevice};
use super::ring::DeviceArray;
use super::sim::Sim;
use super::{Device, DeviceError, HostSource};
use infeed_core::error::Error;

const STREAM: &str = "the stream";
const MEMORY: &str = "the memory";
const EVENT: &str = "the event";
const DECODER: &str = "the decoder";

/// Error of a call that mixes objects of two kinds of device.
#[derive(Debug, thiserror::Error)]
#[error("{what} belongs to a device of another kind; use one of this device")]
struct WrongDeviceKind {
    what: &'static str,
}

fn other_kind(call: &'static str, what: &'static str) -> DeviceError {
    let source = Arc::new(WrongDeviceKind { what });
    DeviceError::Rejected { call, source }
}

/// Returns the object if it belongs to a kind of device, or the error of a call with it.
macro_rules! own {
    ($object:expr, $any:ident::$kind:ident, $call:expr, $name:expr) => {
        match $object {
            $any::$kind(own) => own,
            _ => return Err(other_kind($call, $name)),
        }
    };
}

/// Defines [`AnyDevice`] and its objects with one variant for each kind of device.
macro_rules! kinds {
    ($($(#[$doc:meta])* $kind:ident => $device:ty,)*) => {
        /// A device of any supported kind.
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub enum AnyDevice {
            $($(#[$doc])* $kind($device),)*
        }

        /// Memory of [`AnyDevice`].
        #[allow(missing_docs)]
        #[derive(Clone, Debug)]
        #[non_exhaustive]
        pub enum AnyMemory {
            $($kind(Arc<<$device as Device>::Memory>),)*
        }

        /// A stream of [`AnyDevice`]: created by the device, or by a consumer on a GPU.
        #[allow(missing_docs)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum AnyQueue {
            $($kind(<$device as Device>::Queue),)*
        }

        /// An event of [`AnyDevice`].
        #[allow(missing_docs)]
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum AnyEvent {
            $($kind(<$device as Device>::Event),)*
        }

        /// A copy from the host to [`AnyDevice`].
        #[allow(missing_docs)]
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum AnyTransfer {
            $($kind(<$device as Device>::Transfer),)*
        }

        /// A decoder of [`AnyDevice`].
        #[allow(missing_docs)]
        #[derive(Debug)]
        #[non_exhaustive]
        pub enum AnyDecoder {
            $($kind(<$device as Device>::Decoder),)*
        }

        impl AnyDevice {
            /// Opens the device with this name: `cuda` (the same as `cuda:0`), `cuda:N`, or `sim`
            /// with optional rates as in [`SimConfig`](super::sim::SimConfig).
            ///
            /// # Errors
            ///
            /// [`Error::Config`] for an unknown name; [`Error::Device`] if the device cannot be
            /// opened.
            pub fn open(name: &str) -> Result<AnyDevice, Error> {
                match kind_of(name) {
                    $(<$device>::KIND => <$device>::open_named(name).map(AnyDevice::$kind),)*
                    _ => Err(unknown(name)),
                }
            }

            /// Returns the name of the kind, such as `cuda`.
            pub fn kind(&self) -> &'static str {
                match self {
                    $(AnyDevice::$kind(_) => <$device>::KIND,)*
                }
            }

            /// Returns whether the rates of the device are configured and not those of hardware.
            pub fn is_simulated(&self) -> bool {
                match self {
                    $(AnyDevice::$kind(_) => <$device>::IS_SIMULATED,)*
                }
            }

            pub(super) fn busy_share(&self) -> Option<BusyShare> {
                match self {
                    $(AnyDevice::$kind(device) => device.busy_share(),)*
                }
            }

            pub(super) fn check(&self, plan: &CheckPlan, log: &mut FindingLog<'_>) {
                match self {
                    $(AnyDevice::$kind(device) => check::check(device, plan, log),)*
                }
            }

            fn host_copy(&self, memory: &AnyMemory, bytes: usize) -> Result<Vec<u8>, Error> {
                match (self, memory) {
                    $((AnyDevice::$kind(device), AnyMemory::$kind(memory)) => {
                        device.host_copy(memory, bytes)
                    })*
                    _ => Err(other_kind("a copy to the host", MEMORY).on(self.name())),
                }
            }
        }

        /// Returns whether a device of this name is simulated.
        pub fn is_simulated(name: &str) -> bool {
            match kind_of(name) {
                $(<$device>::KIND => <$device>::IS_SIMULATED,)*
                _ => false,
            }
        }

        /// Names of the devices of all kinds in messages.
        const NAMES: &[&str] = &[$(<$device>::NAMES),*];

        /// Names of all kinds of device in this build.
        pub const KINDS: &[&str] = &[$(<$device>::KIND),*];

        impl Device for AnyDevice {
            type Memory = AnyMemory;
            type Queue = AnyQueue;
            type Event = AnyEvent;
            type Transfer = AnyTransfer;
            type Decoder = AnyDecoder;

            fn name(&self) -> String {
                match self {
                    $(AnyDevice::$kind(device) => device.name(),)*
                }
            }

            fn node(&self) -> Option<Node> {
                match self {
                    $(AnyDevice::$kind(device) => device.node(),)*
                }
            }

            fn pin(&self, slab: &mut Slab) -> Result<(), DeviceError> {
                match self {
                    $(AnyDevice::$kind(device) => device.pin(slab),)*
                }
            }

            fn memory(&self, bytes: usize) -> Result<Arc<AnyMemory>, DeviceError> {
                Ok(Arc::new(match self {
                    $(AnyDevice::$kind(device) => AnyMemory::$kind(device.memory(bytes)?),)*
                }))
            }

            fn len(&self, memory: &AnyMemory) -> usize {
                match memory {
                    $(AnyMemory::$kind(memory) => memory.len(),)*
                }
            }

            fn stream(&self) -> Result<AnyQueue, DeviceError> {
                match self {
                    $(AnyDevice::$kind(device) => device.stream().map(AnyQueue::$kind),)*
                }
            }

            fn event(&self, timed: bool) -> Result<AnyEvent, DeviceError> {
                match self {
                    $(AnyDevice::$kind(device) => device.event(timed).map(AnyEvent::$kind),)*
                }
            }

            fn copy(
                &self,
                queue: AnyQueue,
                from: HostSource,
                bytes: usize,
                to: &Arc<AnyMemory>,
                at: usize,
            ) -> Result<AnyTransfer, DeviceError> {
                const CALL: &str = "a copy from the host";
                match self {
                    $(AnyDevice::$kind(device) => {
                        let queue = own!(queue, AnyQueue::$kind, CALL, STREAM);
                        let to = own!(&**to, AnyMemory::$kind, CALL, MEMORY);
                        device.copy(queue, from, bytes, to, at).map(AnyTransfer::$kind)
                    })*
                }
            }

            fn copy_within(
                &self,
                queue: AnyQueue,
                from: &Arc<AnyMemory>,
                to: &Arc<AnyMemory>,
                bytes: usize,
            ) -> Result<(), DeviceError> {
                const CALL: &str = "a copy on the device";
                match self {
                    $(AnyDevice::$kind(device) => {
                        let from = own!(&**from, AnyMemory::$kind, CALL, MEMORY);
                        let to = own!(&**to, AnyMemory::$kind, CALL, MEMORY);
                        let queue = own!(queue, AnyQueue::$kind, CALL, STREAM);
                        device.copy_within(queue, from, to, bytes)
                    })*
                }
            }

            fn launch(
                &self,
                queue: AnyQueue,
                kernel: &Kernel,
                rows: usize,
                input: &Arc<AnyMemory>,
                table: Option<(Table<'_>, &Arc<AnyMemory>)>,
                output: &Arc<AnyMemory>,
            ) -> Result<(), DeviceError> {
                const CALL: &str = "a kernel";
                match self {
                    $(AnyDevice::$kind(device) => {
                        let queue = own!(queue, AnyQueue::$kind, CALL, STREAM);
                        let input = own!(&**input, AnyMemory::$kind, CALL, MEMORY);
                        let output = own!(&**output, AnyMemory::$kind, CALL, MEMORY);
                        let table = match table {
                            Some((views, memory)) => {
                                Some((views, own!(&**memory, AnyMemory::$kind, CALL, MEMORY)))
                            }
                            None => None,
                        };
                        device.launch(queue, kernel, rows, input, table, output)
                    })*
                }
            }

            fn decoder(&self, settings: &DecoderSettings) -> Result<AnyDecoder, DeviceError> {
                match self {
                    $(AnyDevice::$kind(device) => {
                        device.decoder(settings).map(AnyDecoder::$kind)
                    })*
                }
            }

            fn decoder_name(&self, decoder: &AnyDecoder) -> String {
                match (self, decoder) {
                    $((AnyDevice::$kind(device), AnyDecoder::$kind(decoder)) => {
                        device.decoder_name(decoder)
                    })*
                    _ => "of a device of another kind".to_owned(),
                }
            }

            fn decode(
                &self,
                queue: AnyQueue,
                decoder: &mut AnyDecoder,
                jpegs: &[ScannedJpeg],
                to: &Arc<AnyMemory>,
                positions: &[ImagePosition],
            ) -> Result<Decoding<AnyTransfer>, DeviceError> {
                const CALL: &str = "decoding JPEGs";
                match (self, decoder) {
                    $((AnyDevice::$kind(device), AnyDecoder::$kind(decoder)) => {
                        let queue = own!(queue, AnyQueue::$kind, CALL, STREAM);
                        let to = own!(&**to, AnyMemory::$kind, CALL, MEMORY);
                        let decoding = device.decode(queue, decoder, jpegs, to, positions)?;
                        Ok(decoding.map(AnyTransfer::$kind))
                    })*
                    _ => Err(other_kind(CALL, DECODER)),
                }
            }

            fn record(&self, event: &AnyEvent, queue: AnyQueue) -> Result<(), DeviceError> {
                const CALL: &str = "recording an event";
                match self {
                    $(AnyDevice::$kind(device) => {
                        let event = own!(event, AnyEvent::$kind, CALL, EVENT);
                        device.record(event, own!(queue, AnyQueue::$kind, CALL, STREAM))
                    })*
                }
            }

            fn wait(&self, queue: AnyQueue, event: &AnyEvent) -> Result<(), DeviceError> {
                const CALL: &str = "a stream's wait for an event";
                match self {
                    $(AnyDevice::$kind(device) => {
                        let queue = own!(queue, AnyQueue::$kind, CALL, STREAM);
                        device.wait(queue, own!(event, AnyEvent::$kind, CALL, EVENT))
                    })*
                }
            }

            fn is_done(&self, event: &AnyEvent) -> Result<bool, DeviceError> {
                const CALL: &str = "querying an event";
                match self {
                    $(AnyDevice::$kind(device) => {
                        device.is_done(own!(event, AnyEvent::$kind, CALL, EVENT))
                    })*
                }
            }

            fn synchronize(&self, event: &AnyEvent) -> Result<(), DeviceError> {
                const CALL: &str = "waiting for an event";
                match self {
                    $(AnyDevice::$kind(device) => {
                        device.synchronize(own!(event, AnyEvent::$kind, CALL, EVENT))
                    })*
                }
            }

            fn synchronize_within(
                &self,
                event: &AnyEvent,
                limit: Duration,
            ) -> Result<bool, DeviceError> {
                const CALL: &str = "waiting for an event";
                match self {
                    $(AnyDevice::$kind(device) => {
                        let event = own!(event, AnyEvent::$kind, CALL, EVENT);
                        device.synchronize_within(event, limit)
                    })*
                }
            }

            fn with_current<T>(&self, calls: impl FnOnce() -> T) -> T {
                match self {
                    $(AnyDevice::$kind(device) => device.with_current(calls),)*
                }
            }

            fn free_behind(&self, event: &AnyEvent) -> Result<(), DeviceError> {
                const CALL: &str = "freeing memory behind an event";
                match self {
                    $(AnyDevice::$kind(device) => {
                        device.free_behind(own!(event, AnyEvent::$kind, CALL, EVENT))
                    })*
                }
            }

            fn trim(&self, limit: Duration) {
                match self {
                    $(AnyDevice::$kind(device) => device.trim(limit),)*
                }
            }

            fn give_back(&self, queue: AnyQueue) {
                match (self, queue) {
                    $((AnyDevice::$kind(device), AnyQueue::$kind(queue)) => {
                        device.give_back(queue)
                    })*
                    // The stream belongs to another device, which keeps it.
                    _ => {}
                }
            }

            fn is_slowed_by_waits(&self) -> bool {
                match self {
                    $(AnyDevice::$kind(device) => device.is_slowed_by_waits(),)*
                }
            }

            fn elapsed(&self, from: &AnyEvent, to: &AnyEvent) -> Result<Duration, DeviceError> {
                const CALL: &str = "the time between events";
                match self {
                    $(AnyDevice::$kind(device) => device.elapsed(
                        own!(from, AnyEvent::$kind, CALL, EVENT),
                        own!(to, AnyEvent::$kind, CALL, EVENT),
                    ),)*
                }
            }
        }
    };
}

#[cfg(feature = "cuda")]
kinds! {
    /// An NVIDIA GPU.
    Cuda => Cuda,
    /// A simulated device.
    Sim => Sim,
}

// The same list without the kinds of the cargo feature.
#[cfg(not(feature = "cuda"))]
kinds! {
    /// A simulated device.
    Sim => Sim,
}

/// Returns the part of a name that identifies the kind of device.
fn kind_of(name: &str) -> &str {
    name.split_once(':').map_or(name, |(kind, _)| kind)
}

/// Returns the error for a name that is of no kind in this build.
fn unknown(name: &str) -> Error {
    let problem = match kind_of(name) {
        "cuda" => return Error::missing_feature("device", name, "cuda"),
        "cpu" => "\"cpu\" is not a device; leave it out to keep batches on the host".to_owned(),
        _ => format!(
            "{name:?} is not a device; devices are {}",
            NAMES.join(", and ")
        ),
    };
    Error::config("device", problem)
}

impl DeviceArray<AnyDevice> {
    /// Copies the array to the host once it is ready. Only for tests and checks: a training loop
    /// copies nothing back.
    ///
    /// # Errors
    /// [`Error::Forked`]; [`Error::Device`] if the device failed; [`Error::OutOfMemory`] if the
    /// host has no memory left.
    pub fn to_host(&self) -> Result<Vec<u8>, Error> {
        self.synchronize()?;
        self.device().host_copy(self.memory(), self.bytes())
    }
}

impl DeviceArray<Sim> {
    /// Copies the array to the host once it is ready, like a consumer on the host.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed.
    pub fn to_host(&self) -> Result<Vec<u8>, Error> {
        self.synchronize()?;
        Ok(self.memory().first(self.bytes()))
    }
}

/// Returns the ordinal of the GPU that a device name means; None for a device of another kind.
///
/// # Errors
///
/// [`Error::Config`] if the name is not that of a device.
#[cfg(feature = "cuda")]
pub fn cuda_ordinal(name: &str) -> Result<Option<usize>, Error> {
    match kind_of(name) {
        Cuda::KIND => Cuda::ordinal_of(name).map(Some),
        kind if KINDS.contains(&kind) => Ok(None),
        _ => Err(unknown(name)),
    }
}

#[cfg(feature = "cuda")]
impl AnyDevice {
    /// Returns the GPU, if consumers of its arrays use CUDA.
    pub fn cuda(&self) -> Option<&Cuda> {
        match self {
            AnyDevice::Cuda(cuda) => Some(cuda),
            _ => None,
        }
    }
}

#[cfg(feature = "cuda")]
impl AnyMemory {
    /// Returns the memory of a GPU, if consumers use it with CUDA. Others read a copy on the host.
    pub fn cuda(&self) -> Option<&Arc<infeed_raw::cuda::GpuMemory>> {
        match self {
            AnyMemory::Cuda(memory) => Some(memory),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use infeed_raw::cuda;

    use super::*;

    fn rejection_text(answer: Result<impl std::fmt::Debug, DeviceError>) -> String {
        let DeviceError::Rejected { call, source } = answer.expect_err("of another kind") else {
            panic!("it is rejected, and the device works on");
        };
        format!("{call}: {source}")
    }

    #[test]
    fn a_gpu_names_the_feature_cuda_where_it_is_missing() {
        // Only a build without the feature reaches this call with the name of a GPU.
        assert_eq!(
            unknown("cuda:1").to_string(),
            "device: cuda:1 needs the cargo feature `cuda` of the crate `infeed`, which this build \
             lacks; enable it"
        );
    }

    #[test]
    fn an_object_of_another_kind_of_device_is_rejected_and_named() {
        let sim = AnyDevice::open("sim").expect("every machine has one");
        let own = sim.stream().expect("a stream");
        let event = sim.event(false).expect("an event");
        let memory = sim.memory(8).expect("memory");
        let gpu = AnyQueue::Cuda(cuda::Queue::LEGACY);

        assert_eq!(
            rejection_text(sim.record(&event, gpu)),
            "recording an event: the stream belongs to a device of another kind; use one of this \
             device"
        );
        assert!(rejection_text(sim.wait(gpu, &event)).starts_with("a stream's wait"));
        let bytes: HostSource = Arc::new(vec![1, 2]);
        assert!(rejection_text(sim.copy(gpu, bytes, 2, &memory, 0)).starts_with("a copy from"));
        let to = sim.memory(8).expect("memory");
        assert!(rejection_text(sim.copy_within(gpu, &memory, &to, 8)).starts_with("a copy on"));

        sim.record(&event, own).expect("it works on");
        sim.synchronize(&event).expect("it works on");
    }

    #[test]
    fn calls_reach_the_named_device() {
        let any = AnyDevice::open("sim:latency=1us").expect("every machine has one");
        let queue = any.stream().expect("a stream");
        let (from, to) = (any.memory(4).expect("four"), any.memory(4).expect("four"));
        let (begun, done) = (any.event(true).expect("one"), any.event(true).expect("one"));

        any.record(&begun, queue).expect("a record");
        let source: HostSource = Arc::new(vec![7_u8, 8, 9, 10]);
        drop(any.copy(queue, source, 4, &from, 0).expect("a copy"));
        any.copy_within(queue, &from, &to, 4).expect("a copy");
        any.record(&done, queue).expect("a record");
        any.synchronize(&done).expect("it comes");

        assert!(any.is_done(&begun).expect("an answer"));
        assert!(any.elapsed(&begun, &done).expect("a time") >= Duration::from_micros(2));
        assert_eq!(any.len(&to), 4);
        let AnyMemory::Sim(memory) = &*to else {
            panic!("memory of a simulated device");
        };
        assert_eq!(memory.first(4), [7, 8, 9, 10]);
    }

    #[test]
    fn jpegs_are_decoded_by_the_decoder_of_the_device() {
        use infeed_raw::jpeg_encode::{Subsampling, encode};

        let any = AnyDevice::open("sim:latency=0ns").expect("every machine has one");
        let mut decoder = any.decoder(&Default::default()).expect("it has one");
        let (queue, to) = (any.stream().expect("one"), any.memory(192).expect("memory"));
        let file = encode(&[200; 192], 8, 8, 95, Subsampling::None).expect("it encodes");
        let file = ScannedJpeg::scan(Arc::new(file)).expect("a plain file");
        let files = [file.clone(), file];
        let positions = [
            ImagePosition::dense(0, 8, 8),
            ImagePosition::dense(192, 8, 8),
        ];
        let one = any.decode(queue, &mut decoder, &files[..1], &to, &positions[..1]);
        drop(one.expect("a batch").transfer);
        let AnyMemory::Sim(memory) = &*to else {
            panic!("memory of a simulated device");
        };
        let seen = memory.first(192);
        assert!(seen.iter().all(|level| level.abs_diff(200) < 4), "{seen:?}");

        assert!(
            rejection_text(any.decode(queue, &mut decoder, &files, &to, &positions))
                .starts_with("decoding JPEGs: row 1: 8 rows of 24 bytes")
        );
        let gpu = AnyQueue::Cuda(cuda::Queue::LEGACY);
        let foreign = any.decode(gpu, &mut decoder, &files[..1], &to, &positions[..1]);
        assert!(rejection_text(foreign).starts_with("decoding JPEGs: the stream belongs"));
    }
}
