//! State of the driver: GPUs, and the objects behind handles.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::call_log;
use super::code;
use super::counts::DriverCounts;
use super::gpu::FakeGpu;
use super::lock;
use super::memory::PinnedRanges;
use super::settings::{FailingCall, FakeSettings};
use super::stream::{Capture, FakeEvent, Stream};
use super::thread;
use crate::nvjpeg::library::NvjpegObjects;
use crate::ptx::Module;

/// An initialised driver.
pub(crate) struct Driver {
    pub(crate) settings: FakeSettings,
    /// The process that initialised the driver; child processes cannot use it.
    process: u32,
    pub(crate) gpus: Vec<FakeGpu>,
    pub(crate) pinned: PinnedRanges,
    pub(crate) counts: DriverCounts,
    pub(crate) streams: HandleTable<Stream>,
    pub(crate) events: HandleTable<FakeEvent>,
    pub(crate) modules: HandleTable<Module>,
    pub(crate) functions: HandleTable<LoadedKernel>,
    pub(crate) pools: HandleTable<FakePool>,
    pub(crate) nvjpeg: NvjpegObjects,
    /// Calls that fail: from the settings, and those that a test added.
    failing: Mutex<Vec<FailingCall>>,
    /// Captures, which forbid some calls on threads that are not relaxed.
    captures: Mutex<Vec<Arc<Stream>>>,
}

/// A memory pool.
pub(crate) struct FakePool {
    pub(crate) gpu: usize,
}

/// A kernel of a module.
pub(crate) struct LoadedKernel {
    pub(crate) module: Arc<Module>,
    pub(crate) entry: String,
    /// Handle of the module that owns the function.
    pub(crate) of: usize,
}

/// Objects by their handles.
pub(crate) struct HandleTable<T> {
    what: &'static str,
    things: Mutex<HashMap<usize, Arc<T>>>,
}

impl<T> HandleTable<T> {
    fn of(what: &'static str) -> HandleTable<T> {
        let things = Mutex::default();
        HandleTable { what, things }
    }

    /// Adds an object. Returns a handle that was never used for an object of any kind.
    pub(crate) fn add(&self, thing: Arc<T>) -> usize {
        // Larger than the handles of the default streams.
        static NEXT: AtomicUsize = AtomicUsize::new(0x1000);
        let handle = NEXT.fetch_add(0x10, Ordering::SeqCst);
        lock(&self.things).insert(handle, thing);
        handle
    }

    /// # Errors
    ///
    /// The code for an invalid handle.
    pub(crate) fn get(&self, handle: usize) -> Result<Arc<T>, c_uint> {
        let things = lock(&self.things);
        things.get(&handle).cloned().ok_or(code::INVALID_HANDLE)
    }

    /// # Errors
    ///
    /// The code for an invalid handle.
    pub(crate) fn remove(&self, handle: usize) -> Result<Arc<T>, c_uint> {
        let removed = lock(&self.things).remove(&handle);
        removed.ok_or_else(|| {
            current().misuse(format!(
                "{} {handle:#x} was removed, but does not exist",
                self.what
            ));
            code::INVALID_HANDLE
        })
    }

    pub(crate) fn retain(&self, keep: impl Fn(&T) -> bool) {
        lock(&self.things).retain(|_, thing| keep(thing));
    }

    pub(crate) fn live(&self) -> usize {
        lock(&self.things).len()
    }

    pub(crate) fn all(&self) -> Vec<Arc<T>> {
        lock(&self.things).values().cloned().collect()
    }
}

static WORLD: OnceLock<Result<Driver, String>> = OnceLock::new();

thread_local! {
    /// The driver of a test that runs on this thread.
    static OWN: Cell<Option<&'static Driver>> = const { Cell::new(None) };
}

/// Sets a separate driver for this thread, until the thread ends.
pub(crate) fn set_own(world: Driver) -> &'static Driver {
    let world = Box::leak(Box::new(world));
    OWN.set(Some(world));
    world
}

/// Returns the driver, after [`initialise`] was called.
pub(crate) fn current() -> &'static Driver {
    get().expect("calls are made after cuInit")
}

/// Returns the driver, if it was initialised.
pub(crate) fn get() -> Option<&'static Driver> {
    let shared = || WORLD.get().and_then(|world| world.as_ref().ok());
    OWN.get().or_else(shared)
}

/// `cuInit`.
///
/// # Errors
///
/// The code for a child of an initialised process, for no GPUs, or for invalid settings.
pub(crate) fn initialise() -> Result<(), c_uint> {
    let world = match OWN.get() {
        Some(world) => Ok(world),
        None => WORLD.get_or_init(Driver::of_environment).as_ref(),
    };
    match world {
        Ok(world) if world.is_forked() => Err(code::NOT_INITIALIZED),
        Ok(world) if world.gpus.is_empty() => Err(code::NO_DEVICE),
        Ok(world) => world.fails("cuInit").map_or(Ok(()), Err),
        Err(why) => {
            eprintln!("fake CUDA driver: {why}");
            Err(code::UNKNOWN)
        }
    }
}

/// Checks a call before it runs: counts it, returns the code that it is configured to fail with,
/// and rejects it before `cuInit` and in child processes.
pub(crate) fn run_call(
    function: &'static str,
    arguments: &[u64],
    uninitialised: c_uint,
    body: impl FnOnce(&'static Driver) -> Result<(), c_uint>,
) -> c_uint {
    if OWN.get().is_some() {
        call_log::log(function, arguments);
    }
    // Child processes first: if another thread of the parent held a lock, it is never released
    // here.
    let Some(world) = get().filter(|world| !world.is_forked()) else {
        return uninitialised;
    };
    match world.fails(function) {
        Some(code) => code,
        None => body(world).err().unwrap_or(0),
    }
}

impl Driver {
    fn of_environment() -> Result<Driver, String> {
        Driver::new(FakeSettings::of_environment()?)
    }

    /// # Errors
    ///
    /// If the system has no addresses left.
    pub(crate) fn new(settings: FakeSettings) -> Result<Driver, String> {
        let gpu = |ordinal| FakeGpu::new(ordinal, settings.memory_bytes, settings.delay);
        let gpus = (0..settings.gpus).map(gpu).collect::<Result<_, _>>()?;
        Ok(Driver {
            gpus,
            failing: Mutex::new(settings.failing.clone()),
            settings,
            process: std::process::id(),
            pinned: PinnedRanges::default(),
            counts: DriverCounts::default(),
            streams: HandleTable::of("stream"),
            events: HandleTable::of("event"),
            modules: HandleTable::of("module"),
            functions: HandleTable::of("function"),
            pools: HandleTable::of("pool"),
            nvjpeg: NvjpegObjects::default(),
            captures: Mutex::default(),
        })
    }

    /// Whether this is a child of the process that initialised the driver.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// Returns the code that a call is configured to fail with. Counts the call.
    fn fails(&self, function: &'static str) -> Option<c_uint> {
        let nth = self.counts.call(function);
        let failing = lock(&self.failing);
        let mut failing = failing.iter();
        let one = failing.find(|one| one.function == function && [0, nth].contains(&one.nth));
        one.map(|one| one.code)
    }

    /// Makes calls fail from now on: the `nth` after this, or all if `nth` is 0.
    pub(crate) fn fail(&self, function: &str, code: c_uint, nth: u64) {
        let made = lock(&self.counts.calls).get(function).copied();
        let nth = if nth == 0 { 0 } else { made.unwrap_or(0) + nth };
        let function = function.to_owned();
        let failing = FailingCall {
            function,
            code,
            nth,
        };
        lock(&self.failing).push(failing);
    }

    /// Removes all failures.
    pub(crate) fn fail_nothing(&self) {
        lock(&self.failing).clear();
    }

    /// Records a caller's mistake. In a test's separate driver, this ends the process: the call may
    /// come from C, or from the thread of a stream, so the test cannot fail otherwise.
    pub(crate) fn misuse(&self, what: String) {
        if self.settings.is_strict {
            eprintln!("the fake driver was misused: {what}");
            std::process::abort();
        }
        self.counts.misuse(what);
    }

    /// Returns the GPU with this number.
    ///
    /// # Errors
    ///
    /// The code for an invalid number.
    pub(crate) fn gpu(&'static self, device: i32) -> Result<&'static FakeGpu, c_uint> {
        let ordinal = usize::try_from(device).ok();
        let gpu = ordinal.and_then(|ordinal| self.gpus.get(ordinal));
        gpu.ok_or(code::INVALID_DEVICE)
    }

    /// Returns the GPU of a retained context.
    ///
    /// # Errors
    ///
    /// The code for an invalid context.
    pub(crate) fn gpu_of(&'static self, context: usize) -> Result<&'static FakeGpu, c_uint> {
        let mut gpus = self.gpus.iter();
        let gpu = gpus.find(|gpu| gpu.context() == context && gpu.is_retained());
        gpu.ok_or(code::INVALID_CONTEXT)
    }

    /// Returns the GPU of this thread's current context.
    ///
    /// # Errors
    ///
    /// The code for no context, or the code of the error that made the GPU unusable.
    pub(crate) fn here(&'static self) -> Result<&'static FakeGpu, c_uint> {
        let gpu = self.gpu_of(thread::top().ok_or(code::INVALID_CONTEXT)?)?;
        gpu.works()?;
        Ok(gpu)
    }

    /// Returns the stream with this handle, for a call that enqueues a command.
    ///
    /// # Errors
    ///
    /// The code for an invalid handle, or for a stream of another GPU than this thread's.
    pub(crate) fn stream(
        &'static self,
        handle: usize,
    ) -> Result<(&'static FakeGpu, Arc<Stream>), c_uint> {
        let gpu = self.here()?;
        let stream = match handle {
            0 | 1 => gpu.legacy(),
            2 => gpu.per_thread(),
            // NVIDIA's driver does not check the handle: it ends the process, or reads memory that
            // it uses for something else.
            handle => self.streams.get(handle).inspect_err(|_| {
                self.misuse("a stream that was destroyed was used".to_owned());
            })?,
        };
        if stream.gpu != gpu.ordinal {
            self.misuse(format!(
                "a stream of cuda:{} in a call for cuda:{}",
                stream.gpu, gpu.ordinal
            ));
            return Err(code::INVALID_HANDLE);
        }
        Ok((gpu, stream))
    }

    /// As [`stream`](Driver::stream), for a stream that is not captured: this driver does not
    /// record commands into graphs.
    ///
    /// # Errors
    ///
    /// In addition, the codes for calls that a capture forbids.
    pub(crate) fn to_put(
        &'static self,
        handle: usize,
    ) -> Result<(&'static FakeGpu, Arc<Stream>), c_uint> {
        let (gpu, stream) = self.stream(handle)?;
        if stream.capture() != Capture::None {
            stream.set_capture(Capture::Broken);
            self.misuse("a command was put on a stream that is captured".to_owned());
            return Err(code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if handle < 2 && gpu.is_captured() {
            return Err(code::STREAM_CAPTURE_IMPLICIT);
        }
        Ok((gpu, stream))
    }

    /// Checks a call that a capture forbids.
    ///
    /// # Errors
    ///
    /// The code for an invalid capture, if this thread is not relaxed.
    pub(crate) fn check_not_captured(&self) -> Result<(), c_uint> {
        if thread::is_relaxed() {
            return Ok(());
        }
        let captures = lock(&self.captures);
        if captures.is_empty() {
            return Ok(());
        }
        for stream in captures.iter() {
            stream.set_capture(Capture::Broken);
        }
        self.misuse("a call has invalidated a capture".to_owned());
        Err(code::STREAM_CAPTURE_UNSUPPORTED)
    }

    pub(crate) fn begin_capture(&self, stream: &Arc<Stream>) {
        stream.set_capture(Capture::Active);
        lock(&self.captures).push(Arc::clone(stream));
    }

    /// Ends a capture. Returns its previous state.
    pub(crate) fn end_capture(&self, stream: &Arc<Stream>) -> Capture {
        lock(&self.captures).retain(|other| !Arc::ptr_eq(other, stream));
        stream.set_capture(Capture::None)
    }

    /// Returns the GPU that owns an address.
    pub(crate) fn gpu_with(&self, address: u64) -> Option<&FakeGpu> {
        let mut gpus = self.gpus.iter();
        gpus.find(|gpu| gpu.memory.block(address).is_some())
    }
}
