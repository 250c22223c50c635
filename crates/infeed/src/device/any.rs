//! A device of whichever kind its name says, for programs that learn it at run time.
//!
//! Memory, streams, events and copies know their kind. What belongs to a device of another kind is
//! refused, as each kind refuses what belongs to another device.

use std::sync::Arc;
use std::time::Duration;

use infeed_raw::cuda;
use infeed_raw::kernel::{Kernel, Table};
use infeed_raw::near::Node;
use infeed_raw::slab::Slab;

use super::cuda::Cuda;
use super::jpeg::{DecoderSettings, Decoding, Place, ScannedJpeg};
use super::ring::DeviceArray;
use super::sim::{Sim, SimDecoder, SimEvent, SimMemory, SimQueue, SimTransfer};
use super::{Device, DeviceError, HostSource};
use crate::error::Error;

/// A device of one of the kinds there are.
#[derive(Clone, Debug)]
pub enum Any {
    /// An NVIDIA card.
    Cuda(Cuda),
    /// A simulated one.
    Sim(Sim),
}

/// What belongs to a device of one of the kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind<C, S> {
    /// A card's.
    Cuda(C),
    /// A simulated device's.
    Sim(S),
}

/// Memory of [`Any`].
pub type AnyMemory = Kind<Arc<cuda::Memory>, Arc<SimMemory>>;

/// A stream of [`Any`]: one of the device's own, or a consumer's of a card.
pub type AnyQueue = Kind<cuda::Queue, SimQueue>;

/// An event of [`Any`].
pub type AnyEvent = Kind<cuda::Event, SimEvent>;

/// A copy from the host to [`Any`].
pub type AnyTransfer = Kind<cuda::Transfer, SimTransfer>;

/// A decoder of [`Any`].
pub type AnyDecoder = Kind<cuda::nvjpeg::Decoder, SimDecoder>;

const STREAM: &str = "the stream";
const MEMORY: &str = "the memory";
const EVENT: &str = "the event";
const DECODER: &str = "the decoder";

/// What belongs to devices of two kinds was to work together.
#[derive(Debug, thiserror::Error)]
#[error("{what} belongs to a device of another kind; give one of this device")]
struct OtherKind {
    what: &'static str,
}

impl<C, S> Kind<C, S> {
    /// What is a card's, to be given to a card.
    fn of_card(&self, call: &'static str, what: &'static str) -> Result<&C, DeviceError> {
        match self {
            Kind::Cuda(of) => Ok(of),
            Kind::Sim(_) => Err(other_kind(call, what)),
        }
    }

    /// What is a simulated device's, to be given to one.
    fn of_sim(&self, call: &'static str, what: &'static str) -> Result<&S, DeviceError> {
        match self {
            Kind::Sim(of) => Ok(of),
            Kind::Cuda(_) => Err(other_kind(call, what)),
        }
    }
}

fn other_kind(call: &'static str, what: &'static str) -> DeviceError {
    let source = Arc::new(OtherKind { what });
    DeviceError::Refused { call, source }
}

impl Any {
    /// Opens the device of a name: `cuda`, which is `cuda:0`, or another number; or `sim`, with or
    /// without rates as in [`SimConfig`](super::sim::SimConfig).
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for another name; [`Error::Device`] if it cannot be opened.
    pub fn open(name: &str) -> Result<Any, Error> {
        let (kind, rest) = match name.split_once(':') {
            Some((kind, rest)) => (kind, Some(rest)),
            None => (name, None),
        };
        match kind {
            "sim" => Sim::parse(name).map(Any::Sim),
            "cuda" => {
                let ordinal = rest.map_or(Ok(0), str::parse);
                let ordinal = ordinal.map_err(|_| {
                    let problem =
                        format!("{name:?} names no device; cards are \"cuda:0\", \"cuda:1\", ...");
                    Error::config("device", problem)
                })?;
                Cuda::open(ordinal).map(Any::Cuda)
            }
            "cpu" => {
                let problem = "\"cpu\" names no device: batches stay on the host where none is named; \
                               leave it out";
                Err(Error::config("device", problem))
            }
            _ => {
                let problem = format!(
                    "{name:?} names no device; there are \"cuda\", \"cuda:1\" and so on, and \
                     \"sim\", which simulates one"
                );
                Err(Error::config("device", problem))
            }
        }
    }
}

impl Device for Any {
    type Memory = AnyMemory;
    type Queue = AnyQueue;
    type Event = AnyEvent;
    type Transfer = AnyTransfer;
    type Decoder = AnyDecoder;

    fn name(&self) -> String {
        match self {
            Any::Cuda(cuda) => cuda.name(),
            Any::Sim(sim) => sim.name(),
        }
    }

    fn node(&self) -> Option<Node> {
        match self {
            Any::Cuda(cuda) => cuda.node(),
            Any::Sim(sim) => sim.node(),
        }
    }

    fn pin(&self, slab: &mut Slab) -> Result<(), DeviceError> {
        match self {
            Any::Cuda(cuda) => cuda.pin(slab),
            Any::Sim(sim) => sim.pin(slab),
        }
    }

    fn memory(&self, bytes: usize) -> Result<Arc<AnyMemory>, DeviceError> {
        Ok(Arc::new(match self {
            Any::Cuda(cuda) => Kind::Cuda(cuda.memory(bytes)?),
            Any::Sim(sim) => Kind::Sim(sim.memory(bytes)?),
        }))
    }

    fn len(&self, memory: &AnyMemory) -> usize {
        match memory {
            Kind::Cuda(memory) => memory.len(),
            Kind::Sim(memory) => memory.len(),
        }
    }

    fn stream(&self) -> Result<AnyQueue, DeviceError> {
        match self {
            Any::Cuda(cuda) => cuda.stream().map(Kind::Cuda),
            Any::Sim(sim) => sim.stream().map(Kind::Sim),
        }
    }

    fn event(&self, timed: bool) -> Result<AnyEvent, DeviceError> {
        match self {
            Any::Cuda(cuda) => cuda.event(timed).map(Kind::Cuda),
            Any::Sim(sim) => sim.event(timed).map(Kind::Sim),
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
            Any::Cuda(cuda) => {
                let (queue, to) = (queue.of_card(CALL, STREAM)?, to.of_card(CALL, MEMORY)?);
                cuda.copy(*queue, from, bytes, to, at).map(Kind::Cuda)
            }
            Any::Sim(sim) => {
                let (queue, to) = (queue.of_sim(CALL, STREAM)?, to.of_sim(CALL, MEMORY)?);
                sim.copy(*queue, from, bytes, to, at).map(Kind::Sim)
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
            Any::Cuda(cuda) => {
                let (from, to) = (from.of_card(CALL, MEMORY)?, to.of_card(CALL, MEMORY)?);
                cuda.copy_within(*queue.of_card(CALL, STREAM)?, from, to, bytes)
            }
            Any::Sim(sim) => {
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
            Any::Cuda(cuda) => {
                let queue = *queue.of_card(CALL, STREAM)?;
                let (input, output) = (input.of_card(CALL, MEMORY)?, output.of_card(CALL, MEMORY)?);
                let table = match table {
                    Some((told, memory)) => Some((told, memory.of_card(CALL, MEMORY)?)),
                    None => None,
                };
                cuda.launch(queue, kernel, rows, input, table, output)
            }
            Any::Sim(sim) => {
                let queue = *queue.of_sim(CALL, STREAM)?;
                let (input, output) = (input.of_sim(CALL, MEMORY)?, output.of_sim(CALL, MEMORY)?);
                let table = match table {
                    Some((told, memory)) => Some((told, memory.of_sim(CALL, MEMORY)?)),
                    None => None,
                };
                sim.launch(queue, kernel, rows, input, table, output)
            }
        }
    }

    fn decoder(&self, settings: &DecoderSettings) -> Result<AnyDecoder, DeviceError> {
        match self {
            Any::Cuda(cuda) => cuda.decoder(settings).map(Kind::Cuda),
            Any::Sim(sim) => sim.decoder(settings).map(Kind::Sim),
        }
    }

    fn decoder_name(&self, decoder: &AnyDecoder) -> String {
        match (self, decoder) {
            (Any::Cuda(cuda), Kind::Cuda(decoder)) => cuda.decoder_name(decoder),
            (Any::Sim(sim), Kind::Sim(decoder)) => sim.decoder_name(decoder),
            _ => "of a device of another kind".to_owned(),
        }
    }

    fn decode(
        &self,
        queue: AnyQueue,
        decoder: &mut AnyDecoder,
        jpegs: &[ScannedJpeg],
        to: &Arc<AnyMemory>,
        places: &[Place],
    ) -> Result<Decoding<AnyTransfer>, DeviceError> {
        const CALL: &str = "decoding JPEGs";
        match (self, decoder) {
            (Any::Cuda(cuda), Kind::Cuda(decoder)) => {
                let (queue, to) = (queue.of_card(CALL, STREAM)?, to.of_card(CALL, MEMORY)?);
                let decoding = cuda.decode(*queue, decoder, jpegs, to, places)?;
                Ok(decoding.map(Kind::Cuda))
            }
            (Any::Sim(sim), Kind::Sim(decoder)) => {
                let (queue, to) = (queue.of_sim(CALL, STREAM)?, to.of_sim(CALL, MEMORY)?);
                let decoding = sim.decode(*queue, decoder, jpegs, to, places)?;
                Ok(decoding.map(Kind::Sim))
            }
            _ => Err(other_kind(CALL, DECODER)),
        }
    }

    fn record(&self, event: &AnyEvent, queue: AnyQueue) -> Result<(), DeviceError> {
        const CALL: &str = "recording an event";
        match self {
            Any::Cuda(cuda) => {
                cuda.record(event.of_card(CALL, EVENT)?, *queue.of_card(CALL, STREAM)?)
            }
            Any::Sim(sim) => sim.record(event.of_sim(CALL, EVENT)?, *queue.of_sim(CALL, STREAM)?),
        }
    }

    fn wait(&self, queue: AnyQueue, event: &AnyEvent) -> Result<(), DeviceError> {
        const CALL: &str = "a stream's wait for an event";
        match self {
            Any::Cuda(cuda) => {
                cuda.wait(*queue.of_card(CALL, STREAM)?, event.of_card(CALL, EVENT)?)
            }
            Any::Sim(sim) => sim.wait(*queue.of_sim(CALL, STREAM)?, event.of_sim(CALL, EVENT)?),
        }
    }

    fn is_done(&self, event: &AnyEvent) -> Result<bool, DeviceError> {
        const CALL: &str = "asking for an event";
        match self {
            Any::Cuda(cuda) => cuda.is_done(event.of_card(CALL, EVENT)?),
            Any::Sim(sim) => sim.is_done(event.of_sim(CALL, EVENT)?),
        }
    }

    fn synchronize(&self, event: &AnyEvent) -> Result<(), DeviceError> {
        const CALL: &str = "waiting for an event";
        match self {
            Any::Cuda(cuda) => cuda.synchronize(event.of_card(CALL, EVENT)?),
            Any::Sim(sim) => sim.synchronize(event.of_sim(CALL, EVENT)?),
        }
    }

    fn synchronize_within(&self, event: &AnyEvent, limit: Duration) -> Result<bool, DeviceError> {
        const CALL: &str = "waiting for an event";
        match self {
            Any::Cuda(cuda) => cuda.synchronize_within(event.of_card(CALL, EVENT)?, limit),
            Any::Sim(sim) => sim.synchronize_within(event.of_sim(CALL, EVENT)?, limit),
        }
    }

    fn with_current<T>(&self, calls: impl FnOnce() -> T) -> T {
        match self {
            Any::Cuda(cuda) => cuda.with_current(calls),
            Any::Sim(sim) => sim.with_current(calls),
        }
    }

    fn free_behind(&self, event: &AnyEvent) -> Result<(), DeviceError> {
        const CALL: &str = "freeing memory behind an event";
        match self {
            Any::Cuda(cuda) => cuda.free_behind(event.of_card(CALL, EVENT)?),
            Any::Sim(sim) => sim.free_behind(event.of_sim(CALL, EVENT)?),
        }
    }

    fn trim(&self, limit: Duration) {
        match self {
            Any::Cuda(cuda) => cuda.trim(limit),
            Any::Sim(sim) => sim.trim(limit),
        }
    }

    fn give_back(&self, queue: AnyQueue) {
        match (self, queue) {
            (Any::Cuda(cuda), Kind::Cuda(queue)) => cuda.give_back(queue),
            (Any::Sim(sim), Kind::Sim(queue)) => sim.give_back(queue),
            // Of another device, which has it still.
            _ => {}
        }
    }

    fn drain(&self) -> Result<(), DeviceError> {
        match self {
            Any::Cuda(cuda) => cuda.drain(),
            Any::Sim(sim) => sim.drain(),
        }
    }

    fn elapsed(&self, from: &AnyEvent, to: &AnyEvent) -> Result<Duration, DeviceError> {
        const CALL: &str = "the time between events";
        match self {
            Any::Cuda(cuda) => cuda.elapsed(from.of_card(CALL, EVENT)?, to.of_card(CALL, EVENT)?),
            Any::Sim(sim) => sim.elapsed(from.of_sim(CALL, EVENT)?, to.of_sim(CALL, EVENT)?),
        }
    }
}

impl DeviceArray<Any> {
    /// Its bytes, once they are ready. For trying out and for checks: nothing of a training loop goes
    /// back to the host.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed since; [`Error::OutOfMemory`] if the
    /// host has no memory left.
    pub fn to_host(&self) -> Result<Vec<u8>, Error> {
        self.synchronize()?;
        match (self.device(), &**self.memory()) {
            (Any::Cuda(cuda), Kind::Cuda(memory)) => {
                let bytes = self.bytes();
                let into = Slab::zeroed(1, bytes).map_err(|_| Error::OutOfMemory {
                    bytes: bytes as u64,
                })?;
                let read = cuda.read(cuda::Queue::LEGACY, memory, into);
                let read = read.map_err(|error| error.on(cuda.name()))?;
                Ok(read.as_ref().to_vec())
            }
            (_, Kind::Sim(memory)) => Ok(memory.first(self.bytes())),
            (Any::Sim(sim), Kind::Cuda(_)) => {
                Err(other_kind("a copy to the host", MEMORY).on(sim.name()))
            }
        }
    }
}

impl DeviceArray<Sim> {
    /// Its bytes, once they are ready, as a consumer on the host reads them.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed since.
    pub fn to_host(&self) -> Result<Vec<u8>, Error> {
        self.synchronize()?;
        Ok(self.memory().first(self.bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(answer: Result<impl std::fmt::Debug, DeviceError>) -> String {
        let DeviceError::Refused { call, source } = answer.expect_err("of another kind") else {
            panic!("it is refused, and the device works on");
        };
        format!("{call}: {source}")
    }

    #[test]
    fn what_belongs_to_a_device_of_another_kind_is_refused_by_name() {
        let sim = Any::open("sim").expect("every machine has one");
        let own = sim.stream().expect("a stream");
        let event = sim.event(false).expect("an event");
        let memory = sim.memory(8).expect("memory");
        let card = Kind::Cuda(cuda::Queue::LEGACY);

        assert_eq!(
            refused(sim.record(&event, card)),
            "recording an event: the stream belongs to a device of another kind; give one of this \
             device"
        );
        assert!(refused(sim.wait(card, &event)).starts_with("a stream's wait"));
        let bytes: HostSource = Arc::new(vec![1, 2]);
        assert!(refused(sim.copy(card, bytes, 2, &memory, 0)).starts_with("a copy from"));
        let to = sim.memory(8).expect("memory");
        assert!(refused(sim.copy_within(card, &memory, &to, 8)).starts_with("a copy on"));

        sim.record(&event, own).expect("it works on");
        sim.synchronize(&event).expect("it works on");
    }

    #[test]
    fn it_does_what_the_device_of_its_name_does() {
        let any = Any::open("sim:latency=1us").expect("every machine has one");
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
        let Kind::Sim(memory) = &*to else {
            panic!("memory of a simulated device");
        };
        assert_eq!(memory.first(4), [7, 8, 9, 10]);
    }

    #[test]
    fn it_decodes_jpegs_by_the_decoder_of_its_device() {
        use infeed_raw::jpeg_encode::{Subsampling, encode};

        let any = Any::open("sim:latency=0ns").expect("every machine has one");
        let mut decoder = any.decoder(&Default::default()).expect("it has one");
        let (queue, to) = (any.stream().expect("one"), any.memory(192).expect("memory"));
        let file = encode(&[200; 192], 8, 8, 95, Subsampling::None).expect("it encodes");
        let file = ScannedJpeg::scan(Arc::new(file)).expect("a plain file");
        let files = [file.clone(), file];
        let places = [Place::dense(0, 8, 8), Place::dense(192, 8, 8)];
        let one = any.decode(queue, &mut decoder, &files[..1], &to, &places[..1]);
        drop(one.expect("a batch").transfer);
        let Kind::Sim(memory) = &*to else {
            panic!("memory of a simulated device");
        };
        let seen = memory.first(192);
        assert!(seen.iter().all(|level| level.abs_diff(200) < 4), "{seen:?}");

        assert!(
            refused(any.decode(queue, &mut decoder, &files, &to, &places))
                .starts_with("decoding JPEGs: row 1: 8 rows of 24 bytes")
        );
        let card = Kind::Cuda(cuda::Queue::LEGACY);
        let foreign = any.decode(card, &mut decoder, &files[..1], &to, &places[..1]);
        assert!(refused(foreign).starts_with("decoding JPEGs: the stream belongs"));
    }
}
