//! NVIDIA GPUs: [`Device`] over [`infeed_raw::cuda`], which documents why each call is sound.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use infeed_raw::cuda::nvjpeg::{NoDecoder, NvjpegDecoder};
use infeed_raw::cuda::{Context, CudaError, Event, GpuMemory, Queue, Transfer};
use infeed_raw::kernel::{Kernel, Table};
use infeed_raw::near::{self, Node};
use infeed_raw::nvml;
use infeed_raw::slab::Slab;

pub use infeed_raw::cuda::{Gpu, NoCuda, probe};

use super::check::{CheckedDevice, PixelTolerance};
use super::jpeg::{self, Backend, DecoderSettings, Decoding, ImagePosition, ScannedJpeg};
use super::named_device::{BusyShare, NamedDevice};
use super::{Device, DeviceError, HostSource};
use infeed_core::error::Error;

/// Environment variable with the path of nvJPEG. Used only if the library is not found elsewhere.
const LIBRARY: &str = "INFEED_NVJPEG";

/// Folders in which decoders look for NVIDIA's libraries; see [`set_library_folders`].
static FOLDERS: RwLock<Vec<PathBuf>> = RwLock::new(Vec::new());

/// Sets the folders in which decoders opened from now on look for nvJPEG before the system's
/// folders. Replaces the folders of an earlier call.
pub fn set_library_folders(folders: Vec<PathBuf>) {
    *FOLDERS.write().unwrap_or_else(PoisonError::into_inner) = folders;
}

/// Returns the library folders of NVIDIA's pip packages (`nvidia/*/lib`, such as
/// `nvidia/nvjpeg/lib` or `nvidia/cu13/lib`) in each package folder, in order.
pub fn library_folders<P: AsRef<Path>>(packages: impl IntoIterator<Item = P>) -> Vec<PathBuf> {
    let mut folders = Vec::new();
    for packages in packages {
        let Ok(entries) = packages.as_ref().join("nvidia").read_dir() else {
            continue;
        };
        let lib = entries.flatten().map(|entry| entry.path().join("lib"));
        let mut found: Vec<_> = lib.filter(|folder| folder.is_dir()).collect();
        found.sort();
        folders.extend(found);
    }
    folders
}

/// An NVIDIA GPU. Clones share one open context.
#[derive(Clone, Debug)]
pub struct Cuda {
    context: Arc<Context>,
}

impl Cuda {
    /// Returns the ordinal in a name of the kind `cuda`; `cuda` means `cuda:0`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if the part after the colon is not a number.
    pub(super) fn ordinal_of(name: &str) -> Result<usize, Error> {
        let ordinal = name.split_once(':').map_or("0", |(_, ordinal)| ordinal);
        ordinal.parse().map_err(|_| {
            let problem = format!("{name:?} is not a device; GPUs are \"cuda:0\", \"cuda:1\", ...");
            Error::config("device", problem)
        })
    }

    /// Opens a GPU and loads the kernels. `ordinal` counts the GPUs that are visible to the
    /// process.
    ///
    /// # Errors
    ///
    /// [`Error::Device`] with the fix: there is no driver, the driver is too old, the GPU does not
    /// exist, or the GPU cannot run the kernels.
    ///
    /// # Cost
    ///
    /// Takes seconds if no library of the process has used the GPU before.
    pub fn open(ordinal: usize) -> Result<Cuda, Error> {
        match Context::open(ordinal) {
            Ok(context) => Ok(Cuda { context }),
            Err(error) => Err(device_error("opening it", error).on(name(ordinal))),
        }
    }

    /// Returns the context, for code that shares memory with other libraries.
    pub fn context(&self) -> &Arc<Context> {
        &self.context
    }

    /// Returns the GPU's properties as the driver reports them.
    pub fn gpu(&self) -> &Gpu {
        self.context.gpu()
    }

    /// Returns the free and total bytes of the GPU's memory, over all processes.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub fn memory_info(&self) -> Result<(usize, usize), DeviceError> {
        device_result("its memory", self.context.memory_info())
    }

    /// Fills a slab from the beginning of a memory, after the commands in a stream, and waits. Only
    /// for checks: a loader copies nothing back to the host.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Bounds`] if the slab is longer than the memory; the driver's error.
    pub fn read(&self, queue: Queue, from: &GpuMemory, into: Slab) -> Result<Slab, DeviceError> {
        device_result("a copy to the host", self.context.read(queue, from, into))
    }
}

impl CheckedDevice for Cuda {
    const LATE: Duration = Duration::from_millis(4);
    const BUSY_BYTES: usize = 64 << 20;
    const BACKENDS: &'static [Option<Backend>] = &[Some(Backend::Engine), Some(Backend::Cores)];
    // A decoder may round differently in each of three steps, and may interpolate chroma from fewer
    // samples.
    const APART: PixelTolerance = PixelTolerance {
        full: 1.5,
        sampled: 6.0,
    };

    fn fetch(
        &self,
        queue: Self::Queue,
        from: &Arc<Self::Memory>,
        into: Slab,
    ) -> Result<Slab, DeviceError> {
        self.read(queue, from, into)
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let gpu = self.gpu();
        vec![
            ("name", gpu.name.clone()),
            ("capability", format_version(gpu.capability)),
            ("multiprocessors", gpu.multiprocessors.to_string()),
            ("memory_bytes", gpu.memory_bytes.to_string()),
            ("bus", gpu.bus.clone()),
            ("utilisation", utilisation(&gpu.bus)),
            ("driver_cuda", format_version(gpu.driver)),
        ]
    }
}

impl NamedDevice for Cuda {
    const KIND: &'static str = "cuda";
    const NAMES: &'static str = "\"cuda\", \"cuda:1\" and so on";
    const IS_SIMULATED: bool = false;

    fn open_named(name: &str) -> Result<Cuda, Error> {
        Cuda::open(Cuda::ordinal_of(name)?)
    }

    fn host_copy(&self, memory: &Arc<GpuMemory>, bytes: usize) -> Result<Vec<u8>, Error> {
        let into = Slab::zeroed(1, bytes).map_err(|_| Error::OutOfMemory {
            bytes: bytes as u64,
        })?;
        let read = self.read(Queue::LEGACY, memory, into);
        let read = read.map_err(|error| error.on(self.name()))?;
        Ok(read.as_ref().to_vec())
    }

    fn busy_share(&self) -> Option<BusyShare> {
        let gpu = nvml::MonitoredGpu::at(&self.gpu().bus)?;
        Some(Box::new(move || gpu.utilisation().map(|found| found.busy)))
    }
}

/// Returns the share of the time that the GPU was busy, as NVIDIA's management library (NVML)
/// reports it.
fn utilisation(bus: &str) -> String {
    let found = nvml::MonitoredGpu::at(bus).and_then(|gpu| gpu.utilisation());
    found.map_or("unknown".to_owned(), |found| {
        format!("{:.0} % busy", 100.0 * found.busy)
    })
}

fn format_version((major, minor): (i32, i32)) -> String {
    format!("{major}.{minor}")
}

fn name(ordinal: usize) -> String {
    format!("cuda:{ordinal}")
}

/// Converts a CUDA error into a device error. Errors that all devices have keep their variant.
fn device_error(command: &'static str, error: CudaError) -> DeviceError {
    match error {
        CudaError::OutOfMemory {
            requested, free, ..
        } => DeviceError::OutOfMemory {
            requested_bytes: requested as u64,
            free_bytes: free as u64,
        },
        CudaError::OutOfRange { at, bytes, len } => DeviceError::Bounds {
            command,
            of: "a memory",
            needed_bytes: (at as u64).saturating_add(bytes as u64),
            found_bytes: len as u64,
        },
        error @ (CudaError::Capturing | CudaError::Foreign { .. }) => DeviceError::Rejected {
            call: command,
            source: Arc::new(error),
        },
        error @ CudaError::NoStream { .. } => DeviceError::NoStream {
            call: command,
            source: Arc::new(error),
        },
        error => DeviceError::Failed {
            call: command,
            source: Arc::new(error),
        },
    }
}

fn device_result<T>(command: &'static str, result: Result<T, CudaError>) -> Result<T, DeviceError> {
    result.map_err(|error| device_error(command, error))
}

impl Device for Cuda {
    type Memory = GpuMemory;
    type Queue = Queue;
    type Event = Event;
    type Transfer = Transfer;
    type Decoder = NvjpegDecoder;

    fn name(&self) -> String {
        name(self.gpu().ordinal)
    }

    fn node(&self) -> Option<Node> {
        near::node_of(&self.gpu().bus)
    }

    fn pin(&self, slab: &mut Slab) -> Result<(), DeviceError> {
        device_result("pinning memory", self.context.pin(slab))
    }

    fn memory(&self, bytes: usize) -> Result<Arc<GpuMemory>, DeviceError> {
        device_result("allocating", self.context.memory(bytes)).map(Arc::new)
    }

    fn len(&self, memory: &GpuMemory) -> usize {
        memory.len()
    }

    fn stream(&self) -> Result<Queue, DeviceError> {
        device_result("making a stream", self.context.stream())
    }

    fn event(&self, timed: bool) -> Result<Event, DeviceError> {
        device_result("making an event", self.context.event(timed))
    }

    fn copy(
        &self,
        queue: Queue,
        from: HostSource,
        bytes: usize,
        to: &Arc<GpuMemory>,
        at: usize,
    ) -> Result<Transfer, DeviceError> {
        let copied = self.context.copy(queue, from, bytes, to, at);
        device_result("a copy from the host", copied)
    }

    fn copy_within(
        &self,
        queue: Queue,
        from: &Arc<GpuMemory>,
        to: &Arc<GpuMemory>,
        bytes: usize,
    ) -> Result<(), DeviceError> {
        const COMMAND: &str = "a copy on the device";
        check_distinct(COMMAND, from, to, bytes)?;
        device_result(COMMAND, self.context.copy_within(queue, from, to, bytes))
    }

    fn launch(
        &self,
        queue: Queue,
        kernel: &Kernel,
        rows: usize,
        input: &Arc<GpuMemory>,
        table: Option<(Table<'_>, &Arc<GpuMemory>)>,
        output: &Arc<GpuMemory>,
    ) -> Result<(), DeviceError> {
        const COMMAND: &str = "a kernel";
        let writes = kernel.output_bytes(rows).unwrap_or(usize::MAX);
        check_distinct(COMMAND, input, output, writes)?;
        let launched = self
            .context
            .launch(queue, kernel, rows, input, table, output);
        device_result(COMMAND, launched)
    }

    fn decoder(&self, settings: &DecoderSettings) -> Result<NvjpegDecoder, DeviceError> {
        let mut settings = settings.clone();
        let file = &mut settings.search.file;
        *file = file.take().or_else(|| {
            let named = std::env::var_os(LIBRARY)?;
            Some(PathBuf::from(named))
        });
        let folders = FOLDERS.read().unwrap_or_else(PoisonError::into_inner);
        settings.search.folders.extend(folders.iter().cloned());
        drop(folders);
        match NvjpegDecoder::open(&self.context, &settings) {
            Ok(decoder) => Ok(decoder),
            Err(NoDecoder::Cuda(error)) => Err(device_error("opening its decoder", error)),
            Err(none) => Err(DeviceError::NoDecoder {
                source: Arc::new(none),
            }),
        }
    }

    fn decoder_name(&self, decoder: &NvjpegDecoder) -> String {
        let (major, minor) = decoder.version();
        format!("nvJPEG {major}.{minor}, {}", decoder.backend())
    }

    fn decode(
        &self,
        queue: Queue,
        decoder: &mut NvjpegDecoder,
        jpegs: &[ScannedJpeg],
        to: &Arc<GpuMemory>,
        positions: &[ImagePosition],
    ) -> Result<Decoding<Transfer>, DeviceError> {
        jpeg::span(jpegs.len(), positions, to.len())?;
        let decoding = device_result(
            "decoding JPEGs",
            decoder.decode(queue, jpegs, to, positions),
        )?;
        // nvJPEG reports all errors when it is called.
        Ok(Decoding::new(decoding.transfer, decoding.rejected, None))
    }

    fn record(&self, event: &Event, queue: Queue) -> Result<(), DeviceError> {
        device_result("recording an event", event.record(queue))
    }

    fn wait(&self, queue: Queue, event: &Event) -> Result<(), DeviceError> {
        device_result("a stream's wait for an event", event.hold(queue))
    }

    fn is_done(&self, event: &Event) -> Result<bool, DeviceError> {
        device_result("querying an event", event.is_done())
    }

    fn synchronize(&self, event: &Event) -> Result<(), DeviceError> {
        device_result("waiting for an event", event.synchronize())
    }

    fn with_current<T>(&self, calls: impl FnOnce() -> T) -> T {
        self.context.with_current(calls)
    }

    fn free_behind(&self, event: &Event) -> Result<(), DeviceError> {
        device_result(
            "freeing memory behind an event",
            self.context.free_behind(event),
        )
    }

    fn trim(&self, limit: Duration) {
        if let Ok(Some(freed)) = self.context.free_event() {
            // The next loader that closes releases memory that is still in use.
            let _ = self.synchronize_within(&freed, limit);
        }
        self.context.trim();
    }

    fn give_back(&self, queue: Queue) {
        self.context.give_back(queue);
    }

    /// On an H200, each kernel of a training step started 0.7 us later while a kernel of another
    /// stream waited for an event: 0.8 ms in a ResNet-50's step of 1017 kernels (2026-11).
    fn is_slowed_by_waits(&self) -> bool {
        true
    }

    fn elapsed(&self, from: &Event, to: &Event) -> Result<Duration, DeviceError> {
        /// CUDA's codes for events without timing or never recorded (400), and not yet done (600).
        const UNTIMED: [u32; 2] = [400, 600];
        from.until(to).map_err(|error| match error.code() {
            Some(code) if UNTIMED.contains(&code) => DeviceError::Untimed,
            _ => device_error("the time between events", error),
        })
    }
}

/// Checks that two memories differ.
fn check_distinct(
    command: &'static str,
    from: &Arc<GpuMemory>,
    to: &Arc<GpuMemory>,
    bytes: usize,
) -> Result<(), DeviceError> {
    if !Arc::ptr_eq(from, to) {
        return Ok(());
    }
    Err(DeviceError::Bounds {
        command,
        of: "another memory for its output",
        needed_bytes: bytes.max(1) as u64,
        found_bytes: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_that_cannot_be_opened_is_named_with_the_reason() {
        let Err(error) = Cuda::open(99) else {
            panic!("no machine has a hundred GPUs");
        };

        let Error::Device { device, source } = &error else {
            panic!("{error:?}");
        };
        assert_eq!(device, "cuda:99");
        let cause = std::error::Error::source(source).expect("the driver's words");
        let text = cause.to_string();
        let known = ["no CUDA driver", "too old", "no GPU", "no cuda:99"];
        assert!(known.iter().any(|part| text.contains(part)), "{text}");
    }

    #[test]
    fn libraries_of_packages_are_in_the_folders_of_nvidia() {
        let root = tempfile::tempdir().expect("a folder");
        for folder in ["a/nvidia/nvjpeg/lib", "a/nvidia/cu13/lib", "c/nvidia/cufft"] {
            std::fs::create_dir_all(root.path().join(folder)).expect("folders");
        }
        let packages = ["b", "c", "a"].map(|name| root.path().join(name));

        let found = library_folders(packages);

        let expected = ["a/nvidia/cu13/lib", "a/nvidia/nvjpeg/lib"];
        assert_eq!(found, expected.map(|folder| root.path().join(folder)));
    }

    #[test]
    fn errors_that_every_device_has_keep_their_numbers() {
        let memory = CudaError::OutOfMemory {
            gpu: "a GPU".to_owned(),
            requested: 10,
            free: 4,
            total: 20,
        };
        let DeviceError::OutOfMemory {
            requested_bytes,
            free_bytes,
        } = device_error("allocating", memory)
        else {
            panic!("it is out of memory");
        };
        assert_eq!((requested_bytes, free_bytes), (10, 4));

        let range = CudaError::OutOfRange {
            at: usize::MAX,
            bytes: 9,
            len: 8,
        };
        assert_eq!(
            device_error("a copy from the host", range).to_string(),
            "a copy from the host needs 18446744073709551615 bytes of a memory, which has 8"
        );
    }
}
