//! A card, opened: its primary context, which every other library of the process uses too, the
//! kernels loaded into it, and streams of its own.

use std::cell::Cell;
use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::driver::Driver;
use super::entries::Entries;
use super::error::{CudaError, NoCuda};
use super::pool::Pool;
use super::queue::Queue;

/// `CU_STREAM_NON_BLOCKING`: does not wait for the legacy default stream, nor that for it.
const NON_BLOCKING: c_uint = 1;

/// `CU_STREAM_CAPTURE_MODE_RELAXED`.
const RELAXED: c_uint = 2;

/// What `cuDeviceGetAttribute` is asked for.
mod attribute {
    use std::ffi::c_uint;

    /// `CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL`, of an address.
    pub(super) const POINTER_ORDINAL: c_uint = 9;
    pub(super) const MULTIPROCESSORS: c_uint = 16;
    pub(super) const CAPABILITY_MAJOR: c_uint = 75;
    pub(super) const CAPABILITY_MINOR: c_uint = 76;
}

/// A card, as the driver describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Card {
    /// Its number among those that the process may use, as in `cuda:0`.
    pub ordinal: usize,
    /// What it is called.
    pub name: String,
    /// Bytes of its memory.
    pub memory_bytes: usize,
    /// Compute capability, major and minor.
    pub capability: (i32, i32),
    /// Number of multiprocessors.
    pub multiprocessors: i32,
    /// Where it is on the bus, as `0000:3b:00.0`, which `/sys/bus/pci` knows too.
    pub bus: String,
    /// Version of CUDA that the driver is made for.
    pub driver: (i32, i32),
}

/// The cards that this process may use, without opening one. Allocates nothing on them.
///
/// # Errors
///
/// [`NoCuda`] with the reason: no driver, one that is too old, no card, a forked process.
///
/// # Cost
///
/// The first call loads the driver, which takes a second where no process keeps it awake.
pub fn probe() -> Result<Vec<Card>, NoCuda> {
    let driver = Driver::get()?;
    cards(driver).map_err(|error| match error {
        CudaError::NoCuda(reason) => reason,
        CudaError::Call {
            call, code, name, ..
        } => NoCuda::Failed {
            call,
            code,
            name: format!(" {name}"),
        },
        _ => NoCuda::NoCard,
    })
}

/// Number of the card that an address lies on, if there is a driver and it knows the address.
pub fn card_of(address: u64) -> Option<usize> {
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

pub(super) fn cards(driver: &Driver) -> Result<Vec<Card>, CudaError> {
    let mut count = 0;
    // SAFETY: writes one integer.
    driver.check("cuDeviceGetCount", unsafe {
        (driver.device_count)(&raw mut count)
    })?;
    let cards = (0..count)
        .map(|ordinal| card(driver, ordinal))
        .collect::<Result<Vec<_>, _>>()?;
    if cards.is_empty() {
        return Err(NoCuda::NoCard.into());
    }
    Ok(cards)
}

fn card(driver: &Driver, ordinal: c_int) -> Result<Card, CudaError> {
    let device = device(driver, ordinal)?;
    let attribute = |which: c_uint| {
        let mut value = 0;
        // SAFETY: writes one integer; the device is one that `cuDeviceGet` gave.
        let code = unsafe { (driver.device_attribute)(&raw mut value, which, device) };
        driver.check("cuDeviceGetAttribute", code).map(|()| value)
    };
    let text = |call, function: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> c_uint| {
        let mut bytes = [0_u8; 256];
        // SAFETY: writes a string with its end into at most the bytes there are.
        let code = unsafe { function(bytes.as_mut_ptr().cast(), bytes.len() as c_int, device) };
        driver.check(call, code)?;
        let text = CStr::from_bytes_until_nul(&bytes).unwrap_or(c"(a name without an end)");
        Ok::<_, CudaError>(text.to_string_lossy().into_owned())
    };
    let mut memory_bytes = 0;
    // SAFETY: writes one integer; the device is one that `cuDeviceGet` gave.
    let code = unsafe { (driver.device_memory)(&raw mut memory_bytes, device) };
    driver.check("cuDeviceTotalMem", code)?;
    Ok(Card {
        ordinal: ordinal as usize,
        name: text("cuDeviceGetName", driver.device_name)?,
        memory_bytes,
        capability: (
            attribute(attribute::CAPABILITY_MAJOR)?,
            attribute(attribute::CAPABILITY_MINOR)?,
        ),
        multiprocessors: attribute(attribute::MULTIPROCESSORS)?,
        // The driver writes capitals, which the system's folders do not have.
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
/// A child of a fork can do nothing with a card that its parent opened. Every call compares the
/// process with the one that opened it and says so; what is dropped in a child is left alone.
pub struct Context {
    pub(super) driver: &'static Driver,
    /// Tells contexts apart: a queue or an event of another is refused.
    pub(super) id: u64,
    opened_by: u32,
    card: Card,
    device: c_int,
    handle: usize,
    pub(super) entries: Entries,
    /// Streams made here, destroyed with it.
    streams: Mutex<Streams>,
    /// Events without timing that nothing uses. Made and destroyed for each copy, they would be a fifth
    /// of the calls of a step.
    events: Mutex<Vec<usize>>,
    /// None where the driver has none.
    pub(super) pool: Option<Pool>,
}

/// Streams of a context.
#[derive(Default)]
struct Streams {
    all: Vec<usize>,
    /// Streams that their user gave back.
    idle: Vec<usize>,
}

impl Context {
    /// Opens a GPU: retains its primary context, loads the kernels and runs each once. While a GPU is
    /// open in this process, this returns a share of the same context: a second loader loads nothing and
    /// launches nothing, which would delay the training of the first.
    ///
    /// # Errors
    ///
    /// [`CudaError::NoCuda`], [`CudaError::NoSuchCard`], [`CudaError::Kernels`] when the GPU is
    /// too old for them, and what the driver returns otherwise.
    ///
    /// # Cost
    ///
    /// Seconds where the process has not used the GPU before; its context takes a few hundred
    /// MB of the GPU, which all libraries of the process share. The driver compiles the kernels
    /// when they are loaded (about 0.5 s), and keeps the result on disk for the next process.
    pub fn open(ordinal: usize) -> Result<Arc<Context>, CudaError> {
        let driver = Driver::get()?;
        // A forked child, which might find this locked by a thread that it does not have, has just got
        // an error. Held while the GPU is opened, so that two threads do not open it twice.
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
        let cards = cards(driver)?;
        let found = cards.len();
        let card = cards
            .into_iter()
            .nth(ordinal)
            .ok_or(CudaError::NoSuchCard { ordinal, found })?;
        let device = device(driver, ordinal as c_int)?;
        let mut handle = 0;
        // SAFETY: writes one handle; the device is one that `cuDeviceGet` gave.
        let code = unsafe { (driver.primary_retain)(&raw mut handle, device) };
        driver.check("cuDevicePrimaryCtxRetain", code)?;
        // From here on its drop gives back what was taken, whatever fails below.
        let mut context = Context {
            driver,
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            opened_by: std::process::id(),
            card,
            device,
            handle,
            entries: Entries::none(),
            streams: Mutex::default(),
            events: Mutex::default(),
            pool: None,
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

    /// The card.
    pub fn card(&self) -> &Card {
        &self.card
    }

    /// Free and total bytes of its memory, of all processes together.
    ///
    /// # Errors
    ///
    /// What the driver says.
    pub fn memory_info(&self) -> Result<(usize, usize), CudaError> {
        let _bound = self.bind()?;
        let (mut free, mut total) = (0, 0);
        // SAFETY: writes two integers; the context is current.
        let code = unsafe { (self.driver.memory_info)(&raw mut free, &raw mut total) };
        self.driver.check("cuMemGetInfo", code)?;
        Ok((free, total))
    }

    /// A stream of its own, which lives as long as this. It does not wait for the legacy default
    /// stream, on which frameworks that know no streams work.
    ///
    /// # Errors
    ///
    /// What the driver says.
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

    /// Takes a stream back, for the next caller of [`stream`](Context::stream). What is still put there
    /// is then in the order of both.
    pub fn give_back(&self, queue: Queue) {
        let mut streams = self.streams();
        if let Some(stream) = queue.handle_in(self.id).filter(|_| queue.is_own())
            && !streams.idle.contains(&stream)
        {
            streams.idle.push(stream);
        }
    }

    /// Runs `calls` with the context current on this thread, which the driver calls among them then need
    /// not do one by one.
    ///
    /// `calls` must leave the thread's current context as they find it. A log subscriber that runs in
    /// them must, too.
    pub fn with_current<T>(&self, calls: impl FnOnce() -> T) -> T {
        // In a forked child each call returns the error.
        let _bound = self.bind();
        calls()
    }

    /// Waits until everything that was put on a queue so far is done.
    ///
    /// # Errors
    ///
    /// What the driver says, of this and of what was done asynchronously.
    pub fn finish(&self, queue: Queue) -> Result<(), CudaError> {
        let _bound = self.bind()?;
        let stream = self.stream_of(queue)?;
        // SAFETY: a live stream, by `stream_of`.
        let code = unsafe { (self.driver.stream_synchronize)(stream) };
        self.driver.check("cuStreamSynchronize", code)
    }

    /// Waits until everything that was put on the card so far is done, by whomever of the process, on
    /// streams that are no more, too.
    ///
    /// # Errors
    ///
    /// [`CudaError::Capturing`]; what the driver says, of this and of what was done asynchronously.
    pub fn finish_all(&self) -> Result<(), CudaError> {
        let _bound = self.bind()?;
        // SAFETY: the context is current, which is all that it needs.
        let code = unsafe { (self.driver.context_synchronize)() };
        if super::driver::code::OF_CAPTURES.contains(&code) {
            return Err(CudaError::Capturing);
        }
        self.driver.check("cuCtxSynchronize", code)
    }

    /// The stream that a queue names, to be given a command of this context.
    ///
    /// A handle that is returned is alive: a stream of this context is destroyed with it alone,
    /// and that one of the consumer lives is the promise with which its queue was made. Where that was
    /// broken the driver mostly notices, and then this says so.
    pub(super) fn stream_of(&self, queue: Queue) -> Result<usize, CudaError> {
        let Some(stream) = queue.handle_in(self.id) else {
            return Err(CudaError::Foreign { what: "stream" });
        };
        if queue.is_own() {
            // Nobody can capture it: its handle is never given away.
            return Ok(stream);
        }
        let mut status = 0;
        // SAFETY: a live stream, and writes one integer.
        let code = unsafe { (self.driver.stream_capturing)(stream, &raw mut status) };
        // Of the legacy stream the driver says this while any other is captured that waits for it;
        // asking has then not disturbed the capture.
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
    pub(super) fn bind(&self) -> Result<Bound<'_>, CudaError> {
        let outer = CURRENT.get();
        if outer == self.id {
            // A guard of this thread lives, so this process is the one that opened the GPU.
            return Ok(Bound {
                context: self,
                before: None,
                _thread: PhantomData,
            });
        }
        self.check_process()?;
        // SAFETY: a context that was retained and not released.
        let code = unsafe { (self.driver.context_push)(self.handle) };
        self.driver.check("cuCtxPushCurrent", code)?;
        let mut mode = RELAXED;
        // While another thread captures a graph in the global mode, which is the frameworks'
        // default, a mere query of an event would break its capture. None of the calls here is
        // part of a graph, so they are made in the mode in which they are nobody's business.
        //
        // SAFETY: reads and writes one integer; concerns this thread alone.
        let code = unsafe { (self.driver.capture_mode)(&raw mut mode) };
        let mode = (code == super::driver::code::SUCCESS).then_some(mode);
        CURRENT.set(self.id);
        Ok(Bound {
            context: self,
            before: Some(Before { mode, outer }),
            _thread: PhantomData,
        })
    }

    /// # Errors
    ///
    /// [`CudaError::Forked`] in a child of the process that opened it, where locks may be held by threads
    /// that are not there.
    pub(super) fn check_process(&self) -> Result<(), CudaError> {
        let (opened_by, here) = (self.opened_by, std::process::id());
        match here == opened_by || CURRENT.get() == self.id {
            true => Ok(()),
            false => Err(CudaError::Forked { opened_by, here }),
        }
    }

    /// Handles of events without timing that nothing uses.
    pub(super) fn idle_events(&self) -> MutexGuard<'_, Vec<usize>> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all streams made here have done what they were given. Errors of what ran are
    /// not told: those who wait for a result get them.
    pub(super) fn finish_own(&self, _bound: &Bound<'_>) {
        for &stream in &self.streams().all {
            // SAFETY: made here and destroyed in drop alone.
            unsafe { (self.driver.stream_synchronize)(stream) };
        }
    }

    /// All streams that were made here and may be in use.
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
            // A forked child, or a driver that is going down with the process: the handles mean
            // nothing here, and end with the process that they belong to.
            return;
        };
        self.finish_own(&bound);
        for event in std::mem::take(&mut *self.idle_events()) {
            // SAFETY: made in `event`, and put here by the one that was dropped; destroyed once.
            unsafe { (self.driver.event_destroy)(event) };
        }
        for stream in std::mem::take(&mut *self.streams()).all {
            // SAFETY: made here, destroyed once; queues that name it need this context.
            unsafe { (self.driver.stream_destroy)(stream) };
        }
        if let Some(pool) = &self.pool {
            pool.close(self.driver);
        }
        // SAFETY: once, and nobody who could launch holds this any more.
        unsafe { self.entries.unload(self.driver) };
        drop(bound);
        // SAFETY: retained once in `open_with`, released once. Memory, events and transfers hold
        // a share of this, so none of them is left.
        unsafe { (self.driver.primary_release)(self.device) };
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context")
            .field("card", &self.card)
            .finish_non_exhaustive()
    }
}

/// Shows that a context is current on this thread, and puts back what was before.
pub(super) struct Bound<'a> {
    context: &'a Context,
    /// None where a guard around this one does it.
    before: Option<Before>,
    /// What is current belongs to a thread, and so does this.
    _thread: PhantomData<*const c_void>,
}

/// What a guard restores.
struct Before {
    /// The thread's mode towards captures, if it was changed.
    mode: Option<c_uint>,
    /// As in [`CURRENT`].
    outer: u64,
}

impl Drop for Bound<'_> {
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
        // SAFETY: takes off what `bind` put on; guards of one thread are dropped in the reverse
        // order of their making, being locals. If they were not, the thread's own context would
        // still be below all of them.
        unsafe { (self.context.driver.context_pop)(&raw mut popped) };
    }
}
