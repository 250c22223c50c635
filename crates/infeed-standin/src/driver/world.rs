//! All there is: cards, and what handles stand for.

use std::cell::Cell;
use std::collections::HashMap;
use std::ffi::c_uint;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use super::card::Card;
use super::code;
use super::lock;
use super::memory::Pinned;
use super::seen::Seen;
use super::settings::{Failing, Settings};
use super::stream::{Capture, Event, Stream};
use super::thread;
use crate::nvjpeg::Library;
use crate::ptx::Module;

/// A driver that was initialised.
pub(crate) struct World {
    pub(crate) settings: Settings,
    /// The process that did; its children have none.
    process: u32,
    pub(crate) cards: Vec<Card>,
    pub(crate) pinned: Pinned,
    pub(crate) seen: Seen,
    pub(crate) streams: Handles<Stream>,
    pub(crate) events: Handles<Event>,
    pub(crate) modules: Handles<Module>,
    pub(crate) functions: Handles<Function>,
    pub(crate) pools: Handles<Pool>,
    pub(crate) nvjpeg: Library,
    /// Calls that fail: those of the settings, and those that a test adds.
    failing: Mutex<Vec<Failing>>,
    /// Captures that forbid calls of threads that are not relaxed.
    captures: Mutex<Vec<Arc<Stream>>>,
}

/// A pool of memory.
pub(crate) struct Pool {
    pub(crate) card: usize,
}

/// A kernel of a module.
pub(crate) struct Function {
    pub(crate) module: Arc<Module>,
    pub(crate) entry: String,
    /// Of the module that it is gone with.
    pub(crate) of: usize,
}

/// Things by the numbers that stand for them.
pub(crate) struct Handles<T> {
    what: &'static str,
    things: Mutex<HashMap<usize, Arc<T>>>,
}

impl<T> Handles<T> {
    fn of(what: &'static str) -> Handles<T> {
        let things = Mutex::default();
        Handles { what, things }
    }

    /// A number that stood for nothing before, of whatever kind.
    pub(crate) fn add(&self, thing: Arc<T>) -> usize {
        // Above the numbers of the default streams.
        static NEXT: AtomicUsize = AtomicUsize::new(0x1000);
        let handle = NEXT.fetch_add(0x10, Ordering::SeqCst);
        lock(&self.things).insert(handle, thing);
        handle
    }

    /// # Errors
    ///
    /// The code for a number that stands for nothing.
    pub(crate) fn get(&self, handle: usize) -> Result<Arc<T>, c_uint> {
        let things = lock(&self.things);
        things.get(&handle).cloned().ok_or(code::INVALID_HANDLE)
    }

    /// # Errors
    ///
    /// The code for a number that stands for nothing.
    pub(crate) fn remove(&self, handle: usize) -> Result<Arc<T>, c_uint> {
        let removed = lock(&self.things).remove(&handle);
        removed.ok_or_else(|| {
            current().misuse(format!(
                "{} {handle:#x} is not there to be removed",
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

static WORLD: OnceLock<Result<World, String>> = OnceLock::new();

thread_local! {
    /// The driver of a test that runs on this thread.
    static OWN: Cell<Option<&'static World>> = const { Cell::new(None) };
}

/// Gives this thread a driver, which only its calls use, for as long as it runs.
pub(crate) fn set_own(world: World) -> &'static World {
    let world = Box::leak(Box::new(world));
    OWN.set(Some(world));
    world
}

/// The driver, once [`initialise`] was called.
pub(crate) fn current() -> &'static World {
    get().expect("calls are made after cuInit")
}

/// The same, if it was.
pub(crate) fn get() -> Option<&'static World> {
    let shared = || WORLD.get().and_then(|world| world.as_ref().ok());
    OWN.get().or_else(shared)
}

/// `cuInit`.
///
/// # Errors
///
/// The code for a child of a process that did, for no cards, and for settings that cannot be read.
pub(crate) fn initialise() -> Result<(), c_uint> {
    let world = match OWN.get() {
        Some(world) => Ok(world),
        None => WORLD.get_or_init(World::of_environment).as_ref(),
    };
    match world {
        Ok(world) if world.is_forked() => Err(code::NOT_INITIALIZED),
        Ok(world) if world.cards.is_empty() => Err(code::NO_DEVICE),
        Ok(world) => world.fails("cuInit").map_or(Ok(()), Err),
        Err(why) => {
            eprintln!("stand-in of the CUDA driver: {why}");
            Err(code::UNKNOWN)
        }
    }
}

/// What a call has to say before it does anything: it is counted, may be told to fail, and is refused with
/// a code of its library before `cuInit` and in children of the process that called it.
pub(crate) fn called(
    function: &'static str,
    arguments: &[u64],
    uninitialised: c_uint,
    body: impl FnOnce(&'static World) -> Result<(), c_uint>,
) -> c_uint {
    if OWN.get().is_some() {
        thread::log(function, arguments);
    }
    // Children first of all: a lock that another thread of the parent held is held for ever there.
    let Some(world) = get().filter(|world| !world.is_forked()) else {
        return uninitialised;
    };
    match world.fails(function) {
        Some(code) => code,
        None => body(world).err().unwrap_or(0),
    }
}

impl World {
    fn of_environment() -> Result<World, String> {
        World::new(Settings::of_environment()?)
    }

    /// # Errors
    ///
    /// The system has no addresses left.
    pub(crate) fn new(settings: Settings) -> Result<World, String> {
        let card = |ordinal| Card::new(ordinal, settings.memory_bytes, settings.delay);
        let cards = (0..settings.cards).map(card).collect::<Result<_, _>>()?;
        Ok(World {
            cards,
            failing: Mutex::new(settings.failing.clone()),
            settings,
            process: std::process::id(),
            pinned: Pinned::default(),
            seen: Seen::default(),
            streams: Handles::of("stream"),
            events: Handles::of("event"),
            modules: Handles::of("module"),
            functions: Handles::of("function"),
            pools: Handles::of("pool"),
            nvjpeg: Library::default(),
            captures: Mutex::default(),
        })
    }

    /// Whether this is a child of the process that initialised the driver.
    pub(crate) fn is_forked(&self) -> bool {
        self.process != std::process::id()
    }

    /// What a call was told to give in place of what it does; the call is counted.
    fn fails(&self, function: &'static str) -> Option<c_uint> {
        let nth = self.seen.call(function);
        let failing = lock(&self.failing);
        let mut failing = failing.iter();
        let one = failing.find(|one| one.function == function && [0, nth].contains(&one.nth));
        one.map(|one| one.code)
    }

    /// Makes calls fail from now on: the `nth` from here, or all if it is 0.
    pub(crate) fn fail(&self, function: &str, code: c_uint, nth: u64) {
        let made = lock(&self.seen.calls).get(function).copied();
        let nth = if nth == 0 { 0 } else { made.unwrap_or(0) + nth };
        let function = function.to_owned();
        let failing = Failing {
            function,
            code,
            nth,
        };
        lock(&self.failing).push(failing);
    }

    /// Makes no call fail any more.
    pub(crate) fn fail_nothing(&self) {
        lock(&self.failing).clear();
    }

    /// Records what a caller did wrong. In a test's own driver it ends the process: the call may come from
    /// C, or from the thread of a stream, so the test cannot fail otherwise.
    pub(crate) fn misuse(&self, what: String) {
        if self.settings.is_strict {
            eprintln!("the fake driver was misused: {what}");
            std::process::abort();
        }
        self.seen.misuse(what);
    }

    /// The card by its number.
    ///
    /// # Errors
    ///
    /// The code for none.
    pub(crate) fn card(&'static self, device: i32) -> Result<&'static Card, c_uint> {
        let ordinal = usize::try_from(device).ok();
        let card = ordinal.and_then(|ordinal| self.cards.get(ordinal));
        card.ok_or(code::INVALID_DEVICE)
    }

    /// The card of a context that is retained.
    ///
    /// # Errors
    ///
    /// The code for none.
    pub(crate) fn card_of(&'static self, context: usize) -> Result<&'static Card, c_uint> {
        let mut cards = self.cards.iter();
        let card = cards.find(|card| card.context() == context && card.is_retained());
        card.ok_or(code::INVALID_CONTEXT)
    }

    /// The card that calls of this thread are for.
    ///
    /// # Errors
    ///
    /// The code for no context, and what the card was lost by.
    pub(crate) fn here(&'static self) -> Result<&'static Card, c_uint> {
        let card = self.card_of(thread::top().ok_or(code::INVALID_CONTEXT)?)?;
        card.works()?;
        Ok(card)
    }

    /// The stream of a number, for a call that puts something there.
    ///
    /// # Errors
    ///
    /// The code for none, and for one of another card than this thread's.
    pub(crate) fn stream(
        &'static self,
        handle: usize,
    ) -> Result<(&'static Card, Arc<Stream>), c_uint> {
        let card = self.here()?;
        let stream = match handle {
            0 | 1 => card.legacy(),
            2 => card.per_thread(),
            handle => self.streams.get(handle)?,
        };
        if stream.card != card.ordinal {
            self.misuse(format!(
                "a stream of cuda:{} in a call for cuda:{}",
                stream.card, card.ordinal
            ));
            return Err(code::INVALID_HANDLE);
        }
        Ok((card, stream))
    }

    /// The same, of a stream that is not captured: nothing here is recorded into graphs.
    ///
    /// # Errors
    ///
    /// And the codes for what a capture forbids.
    pub(crate) fn to_put(
        &'static self,
        handle: usize,
    ) -> Result<(&'static Card, Arc<Stream>), c_uint> {
        let (card, stream) = self.stream(handle)?;
        if stream.capture() != Capture::None {
            stream.set_capture(Capture::Broken);
            self.misuse("something was put on a stream that is captured".to_owned());
            return Err(code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if handle < 2 && card.is_captured() {
            return Err(code::STREAM_CAPTURE_IMPLICIT);
        }
        Ok((card, stream))
    }

    /// What a call that a capture forbids begins with.
    ///
    /// # Errors
    ///
    /// The code for a capture, which is broken with it, if this thread is not relaxed.
    pub(crate) fn not_captured(&self) -> Result<(), c_uint> {
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
        self.misuse("a call has broken a capture".to_owned());
        Err(code::STREAM_CAPTURE_UNSUPPORTED)
    }

    pub(crate) fn begin_capture(&self, stream: &Arc<Stream>) {
        stream.set_capture(Capture::Active);
        lock(&self.captures).push(Arc::clone(stream));
    }

    /// Ends it; what it was.
    pub(crate) fn end_capture(&self, stream: &Arc<Stream>) -> Capture {
        lock(&self.captures).retain(|other| !Arc::ptr_eq(other, stream));
        stream.set_capture(Capture::None)
    }

    /// The card that has an address.
    pub(crate) fn card_with(&self, address: u64) -> Option<&Card> {
        let mut cards = self.cards.iter();
        cards.find(|card| card.memory.block(address).is_some())
    }
}
