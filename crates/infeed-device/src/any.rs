//! A device whose kind is chosen at run time by its name.
//!
//! Memory, streams, events and copies record their kind. A call that mixes kinds is rejected, in
//! the same way as a call with an object of another device of the same kind.

use std::sync::Arc;
use std::time::Duration;

use infeed_raw::cuda;
use infeed_raw::kernel::{Kernel, Table};
use infeed_raw::near::Node;
use infeed_raw::slab::Slab;

use super::cuda::Cuda;
use super::jpeg::{DecoderSettings, Decoding, ImagePosition, ScannedJpeg};
use super::ring::DeviceArray;
use super::sim::{Sim, SimDecoder, SimEvent, SimMemory, SimQueue, SimTransfer};
use super::{Device, DeviceError, HostSource};
use infeed_core::error::Error;

/// A device of any supported kind.
#[derive(Clone, Debug)]
pub enum AnyDevice {
    /// An NVIDIA GPU.
    Cuda(Cuda),
    /// A simulated device.
    Sim(Sim),
}

/// An object of one of the kinds of device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceKind<C, S> {
    /// An object of a GPU.
    Cuda(C),
    /// An object of a simulated device.
    Sim(S),
}

/// Memory of [`AnyDevice`].
pub type AnyMemory = DeviceKind<Arc<cuda::Memory>, Arc<SimMemory>>;

/// A stream of [`AnyDevice`]: created by the device, or by a consumer on a GPU.
pub type AnyQueue = DeviceKind<cuda::Queue, SimQueue>;

/// An event of [`AnyDevice`].
pub type AnyEvent = DeviceKind<cuda::Event, SimEvent>;

/// A copy from the host to [`AnyDevice`].
pub type AnyTransfer = DeviceKind<cuda::Transfer, SimTransfer>;

/// A decoder of [`AnyDevice`].
pub type AnyDecoder = DeviceKind<cuda::nvjpeg::Decoder, SimDecoder>;

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

impl<C, S> DeviceKind<C, S> {
    /// Returns the GPU's object.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Rejected`] if it belongs to a simulated device.
    fn of_gpu(&self, call: &'static str, what: &'static str) -> Result<&C, DeviceError> {
        match self {
            DeviceKind::Cuda(of) => Ok(of),
            DeviceKind::Sim(_) => Err(other_kind(call, what)),
        }
    }

    /// Returns the simulated device's object.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Rejected`] if it belongs to a GPU.
    fn of_sim(&self, call: &'static str, what: &'static str) -> Result<&S, DeviceError> {
        match self {
            DeviceKind::Sim(of) => Ok(of),
            DeviceKind::Cuda(_) => Err(other_kind(call, what)),
        }
    }
}

fn other_kind(call: &'static str, what: &'static str) -> DeviceError {
    let source = Arc::new(WrongDeviceKind { what });
    DeviceError::Rejected { call, source }
}

impl AnyDevice {
    /// Opens the device with this name: `cuda` (the same as `cuda:0`), `cuda:N`, or `sim` with
    /// optional rates as in [`SimConfig`](super::sim::SimConfig).
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for an unknown name; [`Error::Device`] if the device cannot be opened.
    pub fn open(name: &str) -> Result<AnyDevice, Error> {
        match cuda_ordinal(name)? {
            Some(ordinal) => Cuda::open(ordinal).map(AnyDevice::Cuda),
            None => Sim::parse(name).map(AnyDevice::Sim),
        }
    }
}

/// Returns the ordinal of the GPU that a device name means; None for a simulated device.
///
/// # Errors
///
/// [`Error::Config`] if the name is neither a GPU's nor a simulated device's.
pub fn cuda_ordinal(name: &str) -> Result<Option<usize>, Error> {
    let (kind, ordinal) = match name.split_once(':') {
        Some((kind, ordinal)) => (kind, ordinal),
        None => (name, "0"),
    };
    let problem = match kind {
        "sim" => return Ok(None),
        "cuda" => match ordinal.parse() {
            Ok(ordinal) => return Ok(Some(ordinal)),
            Err(_) => format!("{name:?} is not a device; GPUs are \"cuda:0\", \"cuda:1\", ..."),
        },
        "cpu" => "\"cpu\" is not a device; leave it out to keep batches on the host".to_owned(),
        _ => format!(
            "{name:?} is not a device; devices are \"cuda\", \"cuda:1\" and so on, and \"sim\", a \
             simulated device"
        ),
    };
    Err(Error::config("device", problem))
}

impl Device for AnyDevice {
    type Memory = AnyMemory;
    type Queue = AnyQueue;
    type Event = AnyEvent;
    type Transfer = AnyTransfer;
    type Decoder = AnyDecoder;

    fn name(&self) -> String {
        match self {
            AnyDevice::Cuda(cuda) => cuda.name(),
            AnyDevice::Sim(sim) => sim.name(),
        }
    }

    fn node(&self) -> Option<Node> {
        match self {
            AnyDevice::Cuda(cuda) => cuda.node(),
            AnyDevice::Sim(sim) => sim.node(),
        }
    }

    fn pin(&self, slab: &mut Slab) -> Result<(), DeviceError> {
        match self {
            AnyDevice::Cuda(cuda) => cuda.pin(slab),
            AnyDevice::Sim(sim) => sim.pin(slab),
        }
    }

    fn memory(&self, bytes: usize) -> Result<Arc<AnyMemory>, DeviceError> {
        Ok(Arc::new(match self {
            AnyDevice::Cuda(cuda) => DeviceKind::Cuda(cuda.memory(bytes)?),
            AnyDevice::Sim(sim) => DeviceKind::Sim(sim.memory(bytes)?),
        }))
    }

    fn len(&self, memory: &AnyMemory) -> usize {
        match memory {
            DeviceKind::Cuda(memory) => memory.len(),
            DeviceKind::Sim(memory) => memory.len(),
        }
    }

    fn stream(&self) -> Result<AnyQueue, DeviceError> {
        match self {
            AnyDevice::Cuda(cuda) => cuda.stream().map(DeviceKind::Cuda),
            AnyDevice::Sim(sim) => sim.stream().map(DeviceKind::Sim),
        }
    }

    fn event(&self, timed: bool) -> Result<AnyEvent, DeviceError> {
        match self {
            AnyDevice::Cuda(cuda) => cuda.event(timed).map(DeviceKind::Cuda),
            AnyDevice::Sim(sim) => sim.event(timed).map(DeviceKind::Sim),
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
            AnyDevice::Cuda(cuda) => {
                let (queue, to) = (queue.of_gpu(CALL, STREAM)?, to.of_gpu(CALL, MEMORY)?);
                cuda.copy(*queue, from, bytes, to, at).map(DeviceKind::Cuda)
            }
            AnyDevice::Sim(sim) => {
                let (queue, to) = (queue.of_sim(CALL, STREAM)?, to.of_sim(CALL, MEMORY)?);
                sim.copy(*queue, from, bytes, to, at).map(DeviceKind::Sim)
            }
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
            AnyDevice::Cuda(cuda) => {
                let (from, to) = (from.of_gpu(CALL, MEMORY)?, to.of_gpu(CALL, MEMORY)?);
                cuda.copy_within(*queue.of_gpu(CALL, STREAM)?, from, to, bytes)
            }
            AnyDevice::Sim(sim) => {
                let (from, to) = (from.of_sim(CALL, MEMORY)?, to.of_sim(CALL, MEMORY)?);
                sim.copy_within(*queue.of_sim(CALL, STREAM)?, from, to, bytes)
            }
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
            AnyDevice::Cuda(cuda) => {
                let queue = *queue.of_gpu(CALL, STREAM)?;
                let (input, output) = (input.of_gpu(CALL, MEMORY)?, output.of_gpu(CALL, MEMORY)?);
                let table = match table {
                    Some((views, memory)) => Some((views, memory.of_gpu(CALL, MEMORY)?)),
                    None => None,
                };
                cuda.launch(queue, kernel, rows, input, table, output)
            }
            AnyDevice::Sim(sim) => {
                let queue = *queue.of_sim(CALL, STREAM)?;
                let (input, output) = (input.of_sim(CALL, MEMORY)?, output.of_sim(CALL, MEMORY)?);
                let table = match table {
                    Some((views, memory)) => Some((views, memory.of_sim(CALL, MEMORY)?)),
                    None => None,
                };
                sim.launch(queue, kernel, rows, input, table, output)
            }
        }
    }

    fn decoder(&self, settings: &DecoderSettings) -> Result<AnyDecoder, DeviceError> {
        match self {
            AnyDevice::Cuda(cuda) => cuda.decoder(settings).map(DeviceKind::Cuda),
            AnyDevice::Sim(sim) => sim.decoder(settings).map(DeviceKind::Sim),
        }
    }

    fn decoder_name(&self, decoder: &AnyDecoder) -> String {
        match (self, decoder) {
            (AnyDevice::Cuda(cuda), DeviceKind::Cuda(decoder)) => cuda.decoder_name(decoder),
            (AnyDevice::Sim(sim), DeviceKind::Sim(decoder)) => sim.decoder_name(decoder),
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
            (AnyDevice::Cuda(cuda), DeviceKind::Cuda(decoder)) => {
                let (queue, to) = (queue.of_gpu(CALL, STREAM)?, to.of_gpu(CALL, MEMORY)?);
                let decoding = cuda.decode(*queue, decoder, jpegs, to, positions)?;
                Ok(decoding.map(DeviceKind::Cuda))
            }
            (AnyDevice::Sim(sim), DeviceKind::Sim(decoder)) => {
                let (queue, to) = (queue.of_sim(CALL, STREAM)?, to.of_sim(CALL, MEMORY)?);
                let decoding = sim.decode(*queue, decoder, jpegs, to, positions)?;
                Ok(decoding.map(DeviceKind::Sim))
            }
            _ => Err(other_kind(CALL, DECODER)),
        }
    }

    fn record(&self, event: &AnyEvent, queue: AnyQueue) -> Result<(), DeviceError> {
        const CALL: &str = "recording an event";
        match self {
            AnyDevice::Cuda(cuda) => {
                cuda.record(event.of_gpu(CALL, EVENT)?, *queue.of_gpu(CALL, STREAM)?)
            }
            AnyDevice::Sim(sim) => {
                sim.record(event.of_sim(CALL, EVENT)?, *queue.of_sim(CALL, STREAM)?)
            }
        }
    }

    fn wait(&self, queue: AnyQueue, event: &AnyEvent) -> Result<(), DeviceError> {
        const CALL: &str = "a stream's wait for an event";
        match self {
            AnyDevice::Cuda(cuda) => {
                cuda.wait(*queue.of_gpu(CALL, STREAM)?, event.of_gpu(CALL, EVENT)?)
            }
            AnyDevice::Sim(sim) => {
                sim.wait(*queue.of_sim(CALL, STREAM)?, event.of_sim(CALL, EVENT)?)
            }
        }
    }

    fn is_done(&self, event: &AnyEvent) -> Result<bool, DeviceError> {
        const CALL: &str = "querying an event";
        match self {
            AnyDevice::Cuda(cuda) => cuda.is_done(event.of_gpu(CALL, EVENT)?),
            AnyDevice::Sim(sim) => sim.is_done(event.of_sim(CALL, EVENT)?),
        }
    }

    fn synchronize(&self, event: &AnyEvent) -> Result<(), DeviceError> {
        const CALL: &str = "waiting for an event";
        match self {
            AnyDevice::Cuda(cuda) => cuda.synchronize(event.of_gpu(CALL, EVENT)?),
            AnyDevice::Sim(sim) => sim.synchronize(event.of_sim(CALL, EVENT)?),
        }
    }

    fn synchronize_within(&self, event: &AnyEvent, limit: Duration) -> Result<bool, DeviceError> {
        const CALL: &str = "waiting for an event";
        match self {
            AnyDevice::Cuda(cuda) => cuda.synchronize_within(event.of_gpu(CALL, EVENT)?, limit),
            AnyDevice::Sim(sim) => sim.synchronize_within(event.of_sim(CALL, EVENT)?, limit),
        }
    }

    fn with_current<T>(&self, calls: impl FnOnce() -> T) -> T {
        match self {
            AnyDevice::Cuda(cuda) => cuda.with_current(calls),
            AnyDevice::Sim(sim) => sim.with_current(calls),
        }
    }

    fn free_behind(&self, event: &AnyEvent) -> Result<(), DeviceError> {
        const CALL: &str = "freeing memory behind an event";
        match self {
            AnyDevice::Cuda(cuda) => cuda.free_behind(event.of_gpu(CALL, EVENT)?),
            AnyDevice::Sim(sim) => sim.free_behind(event.of_sim(CALL, EVENT)?),
        }
    }

    fn trim(&self, limit: Duration) {
        match self {
            AnyDevice::Cuda(cuda) => cuda.trim(limit),
            AnyDevice::Sim(sim) => sim.trim(limit),
        }
    }

    fn give_back(&self, queue: AnyQueue) {
        match (self, queue) {
            (AnyDevice::Cuda(cuda), DeviceKind::Cuda(queue)) => cuda.give_back(queue),
            (AnyDevice::Sim(sim), DeviceKind::Sim(queue)) => sim.give_back(queue),
            // The stream belongs to another device, which keeps it.
            _ => {}
        }
    }

    fn drain(&self) -> Result<(), DeviceError> {
        match self {
            AnyDevice::Cuda(cuda) => cuda.drain(),
            AnyDevice::Sim(sim) => sim.drain(),
        }
    }

    fn elapsed(&self, from: &AnyEvent, to: &AnyEvent) -> Result<Duration, DeviceError> {
        const CALL: &str = "the time between events";
        match self {
            AnyDevice::Cuda(cuda) => {
                cuda.elapsed(from.of_gpu(CALL, EVENT)?, to.of_gpu(CALL, EVENT)?)
            }
            AnyDevice::Sim(sim) => sim.elapsed(from.of_sim(CALL, EVENT)?, to.of_sim(CALL, EVENT)?),
        }
    }
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
        match (self.device(), &**self.memory()) {
            (AnyDevice::Cuda(cuda), DeviceKind::Cuda(memory)) => {
                let bytes = self.bytes();
                let into = Slab::zeroed(1, bytes).map_err(|_| Error::OutOfMemory {
                    bytes: bytes as u64,
                })?;
                let read = cuda.read(cuda::Queue::LEGACY, memory, into);
                let read = read.map_err(|error| error.on(cuda.name()))?;
                Ok(read.as_ref().to_vec())
            }
            (_, DeviceKind::Sim(memory)) => Ok(memory.first(self.bytes())),
            (AnyDevice::Sim(sim), DeviceKind::Cuda(_)) => {
                Err(other_kind("a copy to the host", MEMORY).on(sim.name()))
            }
        }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn rejected(answer: Result<impl std::fmt::Debug, DeviceError>) -> String {
        let DeviceError::Rejected { call, source } = answer.expect_err("of another kind") else {
            panic!("it is rejected, and the device works on");
        };
        format!("{call}: {source}")
    }

    #[test]
    fn an_object_of_another_kind_of_device_is_rejected_and_named() {
        let sim = AnyDevice::open("sim").expect("every machine has one");
        let own = sim.stream().expect("a stream");
        let event = sim.event(false).expect("an event");
        let memory = sim.memory(8).expect("memory");
        let gpu = DeviceKind::Cuda(cuda::Queue::LEGACY);

        assert_eq!(
            rejected(sim.record(&event, gpu)),
            "recording an event: the stream belongs to a device of another kind; use one of this \
             device"
        );
        assert!(rejected(sim.wait(gpu, &event)).starts_with("a stream's wait"));
        let bytes: HostSource = Arc::new(vec![1, 2]);
        assert!(rejected(sim.copy(gpu, bytes, 2, &memory, 0)).starts_with("a copy from"));
        let to = sim.memory(8).expect("memory");
        assert!(rejected(sim.copy_within(gpu, &memory, &to, 8)).starts_with("a copy on"));

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
        let DeviceKind::Sim(memory) = &*to else {
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
        let DeviceKind::Sim(memory) = &*to else {
            panic!("memory of a simulated device");
        };
        let seen = memory.first(192);
        assert!(seen.iter().all(|level| level.abs_diff(200) < 4), "{seen:?}");

        assert!(
            rejected(any.decode(queue, &mut decoder, &files, &to, &positions))
                .starts_with("decoding JPEGs: row 1: 8 rows of 24 bytes")
        );
        let gpu = DeviceKind::Cuda(cuda::Queue::LEGACY);
        let foreign = any.decode(gpu, &mut decoder, &files[..1], &to, &positions[..1]);
        assert!(rejected(foreign).starts_with("decoding JPEGs: the stream belongs"));
    }
}
