//! An open GPU: its primary context, which all libraries of the process share, the kernels loaded
//! into it, and its own streams.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::driver::Driver;
use super::entries::Entries;
use super::error::{CudaError, NoCuda};
use super::pinned_memory::PinnedMemory;
use super::pool::Pool;
use super::queue::Queue;

/// `CU_STREAM_NON_BLOCKING`: the stream and the legacy default stream do not wait for each other.
const NON_BLOCKING: c_uint = 1;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_uint = 2;

/// Attributes that are queried with `cuDeviceGetAttribute`.
mod attribute {
    use std::ffi::c_uint;

    /// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`, of an address.
    pub(super) const POINTER_ORDINAL: c_uint = 9;
    pub(super) const MULTIPROCESSORS: c_uint = 16;
    pub(super) const CAPABILITY_MAJOR: c_uint = 75;
    pub(super) const CAPABILITY_MINOR: c_uint = 76;
}

/// Properties of a GPU, as the driver reports them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gpu {
    /// Number among the GPUs visible to the process, as in `cuda:0`.
    pub ordinal: usize,
    /// Product name.
    pub name: String,
    /// Bytes of memory.
    pub memory_bytes: usize,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Number of multiprocessors.
    pub multiprocessors: i32,
    /// PCI address, as `0000:3b:00.0`, the name in `/sys/bus/pci`.
    pub bus: String,
    /// CUDA version of the driver.
    pub driver: (i32, i32),
}

/// Lists the GPUs visible to this process without opening one. Allocates nothing on them.
///
/// # Errors
///
/// [`NoCuda`] with the reason: no driver, a driver that is too old, no GPU, a forked process.
///
/// # Cost
///
/// The first call loads the driver, which takes a second unless a process keeps it loaded.
pub fn probe() -> Result<Vec<Gpu>, NoCuda> {
    let driver = Driver::get()?;
    gpus(driver).map_err(|error| match error {
        CudaError::NoCuda(reason) => reason,
        CudaError::Call {
            call, code, name, ..
        } => NoCuda::Failed {
            call,
            code,
            name: format!(" {name}"),
        },
        _ => NoCuda::NoGpu,
    })
}

/// Returns the number of the GPU that owns an address, if there is a driver and it knows the
/// address.
pub fn gpu_of(address: u64) -> Option<usize> {
    let driver = Driver::get().ok()?;
    let mut ordinal: c_int = -1;
    // SAFETY: writes one integer for this attribute; the address is looked up and not followed.
    let code = unsafe {
        (driver.pointer_attribute)(
            (&raw mut ordinal).cast(),
            attribute::POINTER_ORDINAL,
            address,
        )
    };
    driver.check("cuPointerGetAttribute", code).ok()?;
    usize::try_from(ordinal).ok()
}

pub(super) fn gpus(driver: &Driver) -> Result<Vec<Gpu>, CudaError> {
    let mut count = 0;
    // SAFETY: writes one integer.
    driver.check("cuDeviceGetCount", unsafe {
        (driver.device_count)(&raw mut count)
    })?;
    let gpus = (0..count)
        .map(|ordinal| gpu(driver, ordinal))
        .collect::<Result<Vec<_>, _>>()?;
    if gpus.is_empty() {
        return Err(NoCuda::NoGpu.into());
    }
    Ok(gpus)
}

fn gpu(driver: &Driver, ordinal: c_int) -> Result<Gpu, CudaError> {
    let device = device(driver, ordinal)?;
    let attribute = |which: c_uint| {
        let mut value = 0;
        // SAFETY: writes one integer; the device comes from `cuDeviceGet`.
        let code = unsafe { (driver.device_attribute)(&raw mut value, which, device) };
        driver.check("cuDeviceGetAttribute", code).map(|()| value)
    };
    let text = |call, function: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_uint| {
        let mut bytes = [0_u8; 256];
        // SAFETY: writes a NUL-terminated string into at most `bytes.len()` bytes.
        let code = unsafe { function(bytes.as_mut_ptr().cast(), bytes.len() as c_int, device) };
        driver.check(call, code)?;
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or(c"(a name without a NUL)");
        Ok::<_, CudaError>(text.to_string_lossy().into_owned())
    };
    let mut memory_bytes = 0;
    // SAFETY: writes one integer; the device comes from `cuDeviceGet`.
    let code = unsafe { (driver.device_memory)(&raw mut memory_bytes, device) };
    driver.check("cuDeviceTotalMem", code)?;
    Ok(Gpu {
        ordinal: ordinal as usize,
        name: text("cuDeviceGetName", driver.device_name)?,
        memory_bytes,
        capability: (
            attribute(attribute::CAPABILITY_MAJOR)?,
            attribute(attribute::CAPABILITY_MINOR)?,
        ),
        multiprocessors: attribute(attribute::MULTIPROCESSORS)?,
        // The driver writes upper case; the folders in `/sys` are lower case.
        bus: text("cuDeviceGetPCIBusId", driver.device_bus)?.to_ascii_lowercase(),
        driver: driver.version(),
    })
}

fn device(driver: &Driver, ordinal: c_int) -> Result<c_int, CudaError> {
    let mut device = 0;
    // SAFETY: writes one integer.
    let code = unsafe { (driver.device_get)(&raw mut device, ordinal) };
    driver.check("cuDeviceGet", code)?;
    Ok(device)
}

/// Contexts that are open in this process, by the number of their GPU.
static OPEN: Mutex<Vec<(usize, Weak<Context>)>> = Mutex::new(Vec::new());

thread_local! {
    /// Number of the context that the innermost guard of this thread has made current; 0 for none.
    static CURRENT: Cell<u64> = const { Cell::new(0) };
}

/// An open GPU. Everything on it holds a share, so it is closed last.
///
/// # Threads
///
/// Any thread may call anything. Each call makes the GPU's context current on its thread and
/// restores the context that was current before: these calls run on threads of the consumer too,
/// whose current GPU they must not change. A thread that makes many calls does that once for all of
/// them ([`with_current`](Context::with_current)).
///
/// # Fork
///
/// A forked child cannot use a GPU that its parent opened. Every call compares process numbers and
/// returns an error in a child; dropping an object there does nothing.
pub struct Context {
    pub(super) driver: &'static Driver,
    /// Number of the context, so that a queue or an event of another is rejected.
    pub(super) id: u64,
    opened_by: u32,
    gpu: Gpu,
    device: c_int,
    handle: usize,
    pub(super) entries: Entries,
    /// Streams made by this context, destroyed with it.
    streams: Mutex<Streams>,
    /// Unused events without timing. Creating and destroying events for each copy would be a fifth
    /// of the calls of a step.
    events: Mutex<Vec<usize>>,
    /// None if the driver has no pools.
    pub(super) pool: Option<Pool>,
    /// Host memory that this context has pinned.
    pub(super) pinned: PinnedMemory,
}

/// Streams of a context.
#[derive(Default)]
struct Streams {
    all: Vec<usize>,
    /// Streams that [`give_back`](Context::give_back) returned.
    idle: Vec<usize>,
}

impl Context {
    /// Opens a GPU: retains its primary context, loads the kernels and runs each once. While a GPU
    /// is open in this process, this returns a share of the same context: a second loader loads and
    /// launches nothing, which would delay the training that uses the first.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoCuda`], [`CudaError::NoSuchGpu`], [`CudaError::Kernels`] if the GPU is too
    /// old for the kernels; otherwise the driver's error.
    ///
    /// # Cost
    ///
    /// Seconds where the process has not used the GPU before; its context takes a few hundred
    /// MB of the GPU, which all libraries of the process share. The driver compiles the kernels
    /// when they are loaded (about 0.5 s), and keeps the result on disk for the next process.
    pub fn open(ordinal: usize) -> Result<Arc<Context>, CudaError> {
        let driver = Driver::get()?;
        // `Driver::get` returns an error in a forked child, where another thread's lock would never
        // be released. The lock is held while the GPU is opened, so that two threads do not open it
        // twice.
        let mut open = OPEN.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|(_, context)| context.strong_count() > 0);
        let mut same = open.iter().filter(|(number, _)| *number == ordinal);
        if let Some(context) = same.find_map(|(_, context)| context.upgrade()) {
            return Ok(context);
        }
        let context = Context::open_with(driver, ordinal)?;
        context.warm_up()?;
        open.push((ordinal, Arc::downgrade(&context)));
        Ok(context)
    }

    pub(super) fn open_with(
        driver: &'static Driver,
        ordinal: usize,
    ) -> Result<Arc<Context>, CudaError> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let gpus = gpus(driver)?;
        let found = gpus.len();
        let gpu = gpus
            .into_iter()
            .nth(ordinal)
            .ok_or(CudaError::NoSuchGpu { ordinal, found })?;
        let device = device(driver, ordinal as c_int)?;
        let mut handle = 0;
        // SAFETY: writes one handle; the device comes from `cuDeviceGet`.
        let code = unsafe { (driver.primary_retain)(&raw mut handle, device) };
        driver.check("cuDevicePrimaryCtxRetain", code)?;
        // From here on, dropping the context releases everything that was acquired if a later call
        // fails.
        let mut context = Context {
            driver,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            opened_by: std::process::id(),
            gpu,
            device,
            handle,
            entries: Entries::none(),
            streams: Mutex::default(),
            events: Mutex::default(),
            pool: None,
            pinned: PinnedMemory::default(),
        };
        context.load()?;
        let others = (0..found).filter(|&other| other != ordinal);
        let others = others.map(|other| self::device(driver, other as c_int));
        let others = others.collect::<Result<Vec<_>, _>>()?;
        let bound = context.bind()?;
        let pool = Pool::new(driver, device, &others);
        drop(bound);
        context.pool = pool;
        Ok(Arc::new(context))
    }

    /// The GPU's properties.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Free and total bytes of the GPU's memory, over all processes.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub fn memory_info(&self) -> Result<(usize, usize), CudaError> {
        let _bound = self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers; the context is current.
        let code = unsafe { (self.driver.memory_info)(&raw mut free, &raw mut total) };
        self.driver.check("cuMemGetInfo", code)?;
        Ok((free, total))
    }

    /// Makes a stream that lives as long as the context. The stream does not wait for the legacy
    /// default stream, which frameworks without stream support use.
    ///
    /// # Errors
    ///
    /// The driver's error.
    pub fn stream(&self) -> Result<Queue, CudaError> {
        let _bound = self.bind()?;
        if let Some(stream) = self.streams().idle.pop() {
            return Ok(Queue::own(stream, self.id));
        }
        let mut stream = 0;
        // SAFETY: writes one handle; the context is current.
        let code = unsafe { (self.driver.stream_create)(&raw mut stream, NON_BLOCKING) };
        self.driver.check("cuStreamCreate", code)?;
        self.streams().all.push(stream);
        Ok(Queue::own(stream, self.id))
    }

    /// Takes a stream back for the next caller of [`stream`](Context::stream). Commands of the old
    /// and the new owner share its order.
    pub fn give_back(&self, queue: Queue) {
        let mut streams = self.streams();
        if let Some(stream) = queue.handle_in(self.id).filter(|_| queue.is_own())
            && !streams.idle.contains(&stream)
        {
            streams.idle.push(stream);
        }
    }

    /// Runs `calls` with the context current on this thread, so that each driver call among them
    /// need not bind it.
    ///
    /// `calls` must leave the thread's current context as they find it. So must a log subscriber
    /// that runs inside them.
    pub fn with_current<T>(&self, calls: impl FnOnce() -> T) -> T {
        // In a forked child each call returns the error.
        let _bound = self.bind();
        calls()
    }

    /// Waits until all commands put on a queue so far are done.
    ///
    /// # Errors
    ///
    /// The driver's error, of this call or of an earlier command.
    pub fn finish(&self, queue: Queue) -> Result<(), CudaError> {
        let _bound = self.bind()?;
        let stream = self.stream_of(queue)?;
        // SAFETY: a live stream, by `stream_of`.
        let code = unsafe { (self.driver.stream_synchronize)(stream) };
        self.driver.check("cuStreamSynchronize", code)
    }

    /// Returns the handle of a queue's stream, for a command of this context.
    ///
    /// The handle is valid: this context destroys its own streams only when it is dropped, and the
    /// caller that made a consumer's queue promised that its stream lives. If the caller broke that
    /// promise, this may return the driver's error, but the driver can also end the process
    /// (580.159, 2026-11).
    pub(super) fn stream_of(&self, queue: Queue) -> Result<usize, CudaError> {
        let Some(stream) = queue.handle_in(self.id) else {
            return Err(CudaError::Foreign { what: "stream" });
        };
        if queue.is_own() {
            // The handle is never exposed, so no consumer can capture the stream.
            return Ok(stream);
        }
        let mut status = 0;
        // SAFETY: a live stream; writes one integer.
        let code = unsafe { (self.driver.stream_capturing)(stream, &raw mut status) };
        // For the legacy stream, the driver returns this code while another stream that waits for
        // the legacy stream is captured. The query does not disturb the capture.
        if code == super::driver::code::CAPTURE_IMPLICIT {
            return Err(CudaError::Capturing);
        }
        if super::driver::code::OF_STREAMS.contains(&code) {
            let name = self.driver.describe(code).map(|(name, _)| name);
            return Err(CudaError::NoStream {
                call: "cuStreamIsCapturing",
                code,
                name: name.unwrap_or_default(),
            });
        }
        self.driver.check("cuStreamIsCapturing", code)?;
        if status != 0 {
            return Err(CudaError::Capturing);
        }
        Ok(stream)
    }

    /// Makes the context current on this thread until the guard is dropped.
    pub(super) fn bind(&self) -> Result<CurrentContext<'_>, CudaError> {
        let outer = CURRENT.get();
        if outer == self.id {
            // Another guard of this thread exists, so this process opened the GPU.
            return Ok(CurrentContext {
                context: self,
                before: None,
                _thread: PhantomData,
            });
        }
        self.check_process()?;
        // SAFETY: the context was retained and not released.
        let code = unsafe { (self.driver.context_push)(self.handle) };
        self.driver.check("cuCtxPushCurrent", code)?;
        let mut mode = RELAXED;
        // While another thread captures a graph in the global mode, the default of frameworks, even
        // a query of an event would break its capture. No call here is part of a graph, so the
        // thread uses the relaxed mode.
        //
        // SAFETY: reads and writes one integer; affects only this thread.
        let code = unsafe { (self.driver.capture_mode)(&raw mut mode) };
        let mode = (code == super::driver::code::SUCCESS).then_some(mode);
        CURRENT.set(self.id);
        Ok(CurrentContext {
            context: self,
            before: Some(PreviousContext { mode, outer }),
            _thread: PhantomData,
        })
    }

    /// # Errors
    ///
    /// [`CudaError::Forked`] in a child of the process that opened the GPU, where threads that held
    /// locks do not exist.
    pub(super) fn check_process(&self) -> Result<(), CudaError> {
        let (opened_by, here) = (self.opened_by, std::process::id());
        match here == opened_by || CURRENT.get() == self.id {
            true => Ok(()),
            false => Err(CudaError::Forked { opened_by, here }),
        }
    }

    /// Handles of unused events without timing.
    pub(super) fn idle_events(&self) -> MutexGuard<'_, Vec<usize>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all streams of this context are done. Ignores errors of their commands: callers
    /// that wait for a result receive them.
    pub(super) fn finish_own(&self, _bound: &CurrentContext<'_>) {
        for &stream in &self.streams().all {
            // SAFETY: created by this context, which destroys it only in `drop`.
            unsafe { (self.driver.stream_synchronize)(stream) };
        }
    }

    /// All streams of this context that may be in use.
    pub(super) fn own_streams(&self) -> Vec<Queue> {
        let streams = self.streams();
        let own = streams
            .all
            .iter()
            .map(|&stream| Queue::own(stream, self.id));
        own.collect()
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        let Ok(bound) = self.bind() else {
            // In a forked child, or while the driver shuts down with the process, the handles are
            // invalid. They end with the process that owns them.
            return;
        };
        self.finish_own(&bound);
        for event in std::mem::take(&mut *self.idle_events()) {
            // SAFETY: created in `event` and stored here when the event was dropped; destroyed
            // once.
            unsafe { (self.driver.event_destroy)(event) };
        }
        for stream in std::mem::take(&mut *self.streams()).all {
            // SAFETY: created by this context, destroyed once; queues with this handle need this
            // context.
            unsafe { (self.driver.stream_destroy)(stream) };
        }
        if let Some(pool) = &self.pool {
            pool.close(self.driver);
        }
        // SAFETY: called once; no object that could launch a kernel holds a share of this context
        // any more.
        unsafe { self.entries.unload(self.driver) };
        drop(bound);
        // SAFETY: retained once in `open_with`, released once. Memory, events and transfers hold a
        // share of this context, so none of them exists any more.
        unsafe { (self.driver.primary_release)(self.device) };
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("gpu", &self.gpu)
            .finish_non_exhaustive()
    }
}

/// Guard that keeps a context current on this thread, and restores the previous state.
pub(super) struct CurrentContext<'a> {
    context: &'a Context,
    /// None if an outer guard restores it.
    before: Option<PreviousContext>,
    /// The current context belongs to a thread, so the guard must stay on it.
    _thread: PhantomData<*const c_void>,
}

/// The state that a guard restores.
struct PreviousContext {
    /// The thread's capture mode, if it was changed.
    mode: Option<c_uint>,
    /// Number of the outer guard's context, as in [`CURRENT`].
    outer: u64,
}

impl Drop for CurrentContext<'_> {
    fn drop(&mut self) {
        let Some(before) = self.before.take() else {
            return;
        };
        CURRENT.set(before.outer);
        if let Some(mut mode) = before.mode {
            // SAFETY: reads and writes one integer.
            unsafe { (self.context.driver.capture_mode)(&raw mut mode) };
        }
        let mut popped = 0;
        // SAFETY: pops the context that `bind` pushed. Guards of one thread are local variables, so
        // they are dropped in reverse order. Even if they were not, the thread's previous context
        // would still be below all of them.
        unsafe { (self.context.driver.context_pop)(&raw mut popped) };
    }
}
