//! A decoder of batches: opened once, used for one batch after another.

use std::ffi::{c_int, c_uint};
use std::fmt;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use super::error::{NoDecoder, describe, failed};
use super::functions::{INTERLEAVED, INTERPOLATED, Nvjpeg, chroma, status};
use super::lane::{Arguments, Files, Lane, Room, State, Taken};
use super::settings::{Settings, Way};
use crate::cuda::context::Context;
use crate::cuda::copy::Transfer;
use crate::cuda::error::CudaError;
use crate::cuda::memory::Memory;
use crate::cuda::queue::Queue;
use crate::cuda::reading::Reading;
use crate::jpeg_batch::{self, BadPlaces, Baseline, Place, Refusal, Refused, ScannedJpeg};
use crate::jpeg_encode::Subsampling;

/// Batches that may be under way: while the card decodes one, the next is read on the host.
const LANES: usize = 2;

/// Blocks on the card are multiples of so many bytes: sizes differ from batch to batch, and each
/// new block waits for the card.
const DEVICE_PADDING: usize = 8 << 20;

/// As much for blocks of pinned memory.
const PINNED_PADDING: usize = 1 << 20;

/// A decoder of JPEGs on a card.
///
/// # Threads
///
/// One at a time. It may move.
pub struct Decoder {
    context: Arc<Context>,
    library: &'static Nvjpeg,
    /// `nvjpegHandle_t`; 0 until it is made.
    handle: usize,
    /// `nvjpegJpegStream_t`, where the header of one file is read to; 0 until it is made.
    header: usize,
    lanes: Vec<Lane>,
    /// The lane of the last batch.
    turn: usize,
    way: Way,
    threads: c_int,
    /// Whether it is unknown what is under way.
    is_lost: bool,
}

/// A batch under way.
#[must_use = "dropping it waits for the card"]
#[derive(Debug)]
pub struct Decoding {
    /// Holds the files until the card has read them.
    pub transfer: Transfer,
    /// The files that were not decoded, by number.
    pub refused: Vec<Refused>,
}

/// A call that returned something else than success.
struct Told {
    call: &'static str,
    code: c_uint,
}

fn told(call: &'static str, code: c_uint) -> Result<(), Told> {
    match code {
        status::SUCCESS => Ok(()),
        code => Err(Told { call, code }),
    }
}

impl Decoder {
    /// Finds the library and readies it for a card.
    ///
    /// # Errors
    ///
    /// [`NoDecoder`], with the reason and the mend.
    ///
    /// # Cost
    ///
    /// Part of a second, and some ten MB of the card.
    pub fn open(context: &Arc<Context>, settings: &Settings) -> Result<Decoder, NoDecoder> {
        let library = settings.search.find(context.card().driver.0)?;
        Decoder::open_with(context, library, settings)
    }

    pub(super) fn open_with(
        context: &Arc<Context>,
        library: &'static Nvjpeg,
        settings: &Settings,
    ) -> Result<Decoder, NoDecoder> {
        let _bound = context.bind()?;
        let ways = match &settings.way {
            Some(way) => std::slice::from_ref(way),
            None => &[Way::Engine, Way::Cores],
        };
        let mut why = Vec::new();
        for &way in ways {
            // Dropped, and with it what was made of it, if anything below fails.
            let mut decoder = Decoder {
                context: Arc::clone(context),
                library,
                handle: 0,
                header: 0,
                lanes: Vec::new(),
                turn: 0,
                way,
                threads: c_int::from(settings.threads.max(1)),
                is_lost: false,
            };
            match decoder.create() {
                Ok(()) => return Ok(decoder),
                Err(Unmade::Cuda(error)) => return Err(error.into()),
                Err(Unmade::Library(Told { code, .. })) if code == status::ALLOCATOR_FAILURE => {
                    return Err(decoder.no_memory("opening nvJPEG").into());
                }
                Err(Unmade::Library(Told { call, code })) => {
                    why.push(format!("{way}: {call}: {}", describe(code)));
                }
                Err(Unmade::NoEngine) => why.push(format!("{way}: there is none")),
            }
        }
        Err(NoDecoder::NotOnThisCard {
            file: library.file.clone(),
            card: context.card().name.clone(),
            why: why.join("; "),
        })
    }

    fn create(&mut self) -> Result<(), Unmade> {
        let functions = &self.library.functions;
        // Older libraries know no flags.
        let flags: &[c_uint] = match self.library.version() >= (12, 1) {
            true => &[INTERPOLATED, 0],
            false => &[0],
        };
        for &flags in flags {
            let (backend, none, mut handle) = (self.way.backend(), ptr::null(), 0);
            // SAFETY: no allocators, which means its own, and writes one handle. The context is
            // current, which the runtime inside of the library takes.
            let code = unsafe { (functions.create)(backend, none, none, flags, &raw mut handle) };
            match told("nvjpegCreateEx", code) {
                Err(Told { code, .. }) if flags != 0 && code == status::INVALID_PARAMETER => {}
                created => {
                    created?;
                    self.handle = handle;
                    break;
                }
            }
        }
        if self.way == Way::Engine && self.engines().is_some_and(|(engines, _)| engines == 0) {
            return Err(Unmade::NoEngine);
        }
        // SAFETY: a live handle; takes a number.
        let code = unsafe { (functions.device_padding)(DEVICE_PADDING, self.handle) };
        told("nvjpegSetDeviceMemoryPadding", code)?;
        // SAFETY: as above.
        let code = unsafe { (functions.pinned_padding)(PINNED_PADDING, self.handle) };
        told("nvjpegSetPinnedMemoryPadding", code)?;
        let mut header = 0;
        // SAFETY: a live handle, and writes one handle.
        let code = unsafe { (functions.stream_create)(self.handle, &raw mut header) };
        told("nvjpegJpegStreamCreate", code)?;
        self.header = header;
        for _ in 0..LANES {
            let done = self.context.event(false)?;
            self.lanes.push(Lane {
                states: Vec::new(),
                done,
                arguments: Arguments::default(),
            });
            // The most frequent kind; others are made when a batch has them.
            let kind = self.kind(Subsampling::Quarter);
            self.state(self.lanes.len() - 1, kind)?;
        }
        Ok(())
    }

    /// Files that may be in one call, by the subsampling that stands for all of them.
    fn kind(&self, subsampling: Subsampling) -> Subsampling {
        match self.way {
            Way::Engine => subsampling,
            Way::Cores => Subsampling::None,
        }
    }

    /// Number of a lane's state for files of a kind, which is created for the first of them.
    fn state(&mut self, turn: usize, kind: Subsampling) -> Result<usize, Told> {
        let states = &mut self.lanes[turn].states;
        if let Some(at) = states.iter().position(|state| state.subsampling == kind) {
            return Ok(at);
        }
        let mut handle = 0;
        // SAFETY: a live handle, and writes one handle.
        let code = unsafe { (self.library.functions.state_create)(self.handle, &raw mut handle) };
        told("nvjpegJpegStateCreate", code)?;
        states.push(State {
            handle,
            subsampling: kind,
            files: 0,
            reserved: Room::default(),
        });
        Ok(states.len() - 1)
    }

    /// Reserves room for a call in advance, where the library can and the state has too little.
    fn reserve(&mut self, turn: usize, at: usize, needed: &Room) {
        let state = &mut self.lanes[turn].states[at];
        let Some(function) = self.library.functions.reserve else {
            return;
        };
        if state.reserved.holds(needed) {
            return;
        }
        state.reserved = state.reserved.grown(needed);
        // It is initialised for what it has room for.
        state.files = 0;
        let Room { files, width, .. } = state.reserved;
        let number = |n: u64| c_int::try_from(n).unwrap_or(c_int::MAX);
        // Where it fails, the library allocates during the call, which says so if there is no memory.
        //
        // SAFETY: a live handle and a state of it with nothing under way; takes numbers.
        unsafe {
            function(
                self.handle,
                state.handle,
                number(files as u64),
                number(u64::from(width)),
                number(state.reserved.height()),
                chroma(state.subsampling),
                INTERLEAVED,
            )
        };
    }

    /// What decodes.
    pub fn way(&self) -> Way {
        self.way
    }

    /// The library's file.
    pub fn file(&self) -> &str {
        &self.library.file
    }

    /// Its version, major and minor.
    pub fn version(&self) -> (i32, i32) {
        self.library.version()
    }

    /// Engines of the card, and cores of each; none if the library does not tell.
    pub fn engines(&self) -> Option<(u32, u32)> {
        let function = self.library.functions.engines?;
        let (mut engines, mut cores) = (0, 0);
        // SAFETY: a live handle, and writes two integers.
        let code = unsafe { function(self.handle, &raw mut engines, &raw mut cores) };
        (code == status::SUCCESS).then_some((engines, cores))
    }

    /// Decodes each file into its place in `to`, as red, green and blue. Commands that are put on the queue
    /// afterwards see the pixels.
    ///
    /// By [`Way::Engine`] the library writes as soon as it is called, whatever the queue still has to do
    /// or to wait for: the caller has waited on the host for all commands that use the places.
    ///
    /// Files that nvJPEG rejects are returned by number, and the others are decoded. `as_ref` of a file gives
    /// the same bytes for as long as it lives, as buffers do.
    ///
    /// # Errors
    ///
    /// [`CudaError::Mismatch`] if a place leaves the memory or shares bytes with another, or there is
    /// not one for each file; [`CudaError::Foreign`], [`CudaError::Capturing`];
    /// [`CudaError::Nvjpeg`]; what the driver says.
    ///
    /// # Cost
    ///
    /// The host reads the headers, and copies the bytes to pinned memory. It waits for the batch
    /// before the last. One call for each chroma subsampling by the engine, one for all by the cores. A
    /// file that nvJPEG rejects only when it decodes costs a few more calls: halves are tried until it is
    /// alone.
    pub fn decode(
        &mut self,
        queue: Queue,
        jpegs: &[ScannedJpeg],
        to: &Arc<Memory>,
        places: &[Place],
    ) -> Result<Decoding, CudaError> {
        let context = Arc::clone(&self.context);
        if self.is_lost {
            let why = "the decoder lost track of a batch when the card failed; open it anew";
            return Err(CudaError::Mismatch(why.to_owned()));
        }
        let bytes: Vec<&[u8]> = jpegs.iter().map(ScannedJpeg::bytes).collect();
        let (files, count) = (jpegs.len(), places.len());
        let misplaced = |bad: BadPlaces| CudaError::Mismatch(bad.to_string());
        if files != count {
            let places = count;
            return Err(misplaced(BadPlaces::Count { files, places }));
        }
        jpeg_batch::span(places, to.len()).map_err(misplaced)?;
        context.same(to)?;
        let _bound = context.bind()?;
        let stream = context.stream_of(queue)?;
        let (mut taken, mut refused) = (Vec::with_capacity(files), Vec::new());
        for (row, (jpeg, place)) in jpegs.iter().zip(places).enumerate() {
            let header = jpeg.header;
            let checked = jpeg.check(place);
            match checked.and_then(|()| self.agrees(bytes[row], &header)) {
                Ok(()) => taken.push(Taken { row, header }),
                Err(why) => refused.push(Refused { row, why }),
            }
        }
        // One call for each kind.
        taken.sort_by_key(|file| chroma(self.kind(file.header.subsampling)));
        // Made first, so that nothing is under way if they cannot be.
        let reading = Reading::new(context.event(false)?, Files::shared(jpegs));
        let transfer = Transfer::new(reading, Arc::clone(to));
        let turn = (self.turn + 1) % LANES;
        // Nobody touches the lane from here on but this batch.
        self.lanes[turn].done.synchronize()?;
        self.turn = turn;
        self.lanes[turn].arguments = Arguments::of(&taken, &bytes, to, places);

        // Not where a kernel may still read its table.
        let writing = to.to_write(queue)?;
        writing.wait()?;
        let ran = self.run(turn, &taken, queue, stream).and_then(|left| {
            writing.done()?;
            transfer.done().record(queue)?;
            self.lanes[turn].done.record(queue)?;
            to.used_on(queue)?;
            Ok(left)
        });
        match ran {
            Ok(left) => {
                refused.extend(left.into_iter().map(|(nth, code)| Refused {
                    row: taken[nth].row,
                    why: refusal(describe(code)),
                }));
                refused.sort_by_key(|refused| refused.row);
                Ok(Decoding { transfer, refused })
            }
            Err(error) => {
                // The events say nothing of this batch then, so nobody must ask them.
                if context.finish(queue).is_err() {
                    self.is_lost = true;
                    std::mem::forget(transfer);
                }
                Err(error)
            }
        }
    }

    /// Checks that the library reads from a file what its scan has read.
    fn agrees(&self, bytes: &[u8], header: &Baseline) -> Result<(), Refusal> {
        let functions = &self.library.functions;
        let told = |code| match code {
            status::SUCCESS => Ok(()),
            code => Err(refusal(describe(code))),
        };
        // SAFETY: a live handle and stream; pointer and length are those of `bytes`, which outlives
        // the call. Nothing of it is kept: neither metadata nor the stream are to be saved.
        told(unsafe {
            (functions.parse)(self.handle, bytes.as_ptr(), bytes.len(), 0, 0, self.header)
        })?;
        let (mut width, mut height, mut components) = (0, 0, 0);
        // SAFETY: a live stream that was parsed, and writes two integers.
        told(unsafe { (functions.frame_size)(self.header, &raw mut width, &raw mut height) })?;
        // SAFETY: a live stream that was parsed, and writes one integer.
        told(unsafe { (functions.components)(self.header, &raw mut components) })?;
        let expected = match header.subsampling {
            Subsampling::Gray => 1,
            _ => 3,
        };
        if (width, height, components) != (header.width, header.height, expected) {
            return Err(refusal(format!(
                "it reads {width}x{height} of {components} components"
            )));
        }
        let Some(supported) = functions.supported.filter(|_| self.way == Way::Engine) else {
            return Ok(());
        };
        let mut is_not = -1;
        // SAFETY: a live handle and a stream that was parsed, and writes one integer.
        told(unsafe { supported(self.handle, self.header, &raw mut is_not) })?;
        match is_not {
            0 => Ok(()),
            _ => Err(refusal("the engine does not decode such a file".to_owned())),
        }
    }

    /// Decodes the files of a lane's arguments, with one call for each kind if it can be. Those that
    /// cannot, each with a status, are found by halving.
    fn run(
        &mut self,
        turn: usize,
        taken: &[Taken],
        queue: Queue,
        stream: usize,
    ) -> Result<Vec<(usize, c_uint)>, CudaError> {
        let files = taken.len();
        let mut left = Vec::new();
        let kind = |file: &Taken| self.kind(file.header.subsampling);
        let groups = taken.chunk_by(|one, other| kind(one) == kind(other));
        let groups: Vec<_> = groups.map(|group| (kind(&group[0]), group)).collect();
        let mut begin = 0;
        for (kind, group) in groups {
            let at = match self.state(turn, kind) {
                Ok(at) => at,
                Err(Told { call, code }) if code == status::ALLOCATOR_FAILURE => {
                    return Err(self.no_memory(call));
                }
                Err(Told { call, code }) => return Err(failed(call, code, String::new())),
            };
            self.reserve(turn, at, &Room::of(group));
            let range = begin..begin + group.len();
            begin = range.end;
            left.extend(self.halved((turn, at), range, queue, stream)?);
        }
        let is_devices = |code| matches!(code, status::EXECUTION_FAILED | status::INTERNAL_ERROR);
        if !left.is_empty() && left.len() == files && left.iter().all(|&(_, code)| is_devices(code))
        {
            // Not one file of the batch was decoded, and for no reason of theirs.
            let (_, code) = left[0];
            let fix = "; decode on the host, and check whether the GPU runs anything else";
            return Err(failed("nvjpegDecodeBatched", code, fix.to_owned()));
        }
        Ok(left)
    }

    /// Decodes a range of a lane's arguments by one of its states; the files that cannot be decoded.
    fn halved(
        &mut self,
        (turn, at): (usize, usize),
        range: Range<usize>,
        queue: Queue,
        stream: usize,
    ) -> Result<Vec<(usize, c_uint)>, CudaError> {
        let mut left = Vec::new();
        let mut ranges = vec![range];
        let mut is_first = true;
        while let Some(range) = ranges.pop() {
            if !is_first {
                // The state is used again, and what failed may have begun something.
                self.context.finish(queue)?;
            }
            is_first = false;
            let called = self.batch((turn, at), range.clone(), stream);
            let Err(Told { call, code }) = called else {
                continue;
            };
            // It is reset before it is used again.
            self.lanes[turn].states[at].files = 0;
            if code == status::ALLOCATOR_FAILURE {
                return Err(self.no_memory(call));
            }
            if !status::OF_A_FILE.contains(&code) {
                return Err(failed(call, code, String::new()));
            }
            match range.len() {
                1 => left.push((range.start, code)),
                len => {
                    let middle = range.start + len / 2;
                    ranges.extend([middle..range.end, range.start..middle]);
                }
            }
        }
        Ok(left)
    }

    /// Decodes a range of a lane's arguments with one call of one of its states.
    fn batch(
        &mut self,
        (turn, at): (usize, usize),
        range: Range<usize>,
        stream: usize,
    ) -> Result<(), Told> {
        let functions = &self.library.functions;
        let lane = &mut self.lanes[turn];
        let state = &mut lane.states[at];
        let files = range.len();
        if state.files != files {
            let count = c_int::try_from(files).map_err(|_| Told {
                call: "nvjpegDecodeBatchedInitialize",
                code: status::INVALID_PARAMETER,
            })?;
            // SAFETY: a live handle and a state of it with nothing under way; takes numbers.
            let code = unsafe {
                (functions.initialize)(self.handle, state.handle, count, self.threads, INTERLEAVED)
            };
            told("nvjpegDecodeBatchedInitialize", code)?;
            state.files = files;
        }
        let Arguments {
            data,
            lengths,
            images,
        } = &mut lane.arguments;
        let (data, lengths) = (&data[range.clone()], &lengths[range.clone()]);
        let images = &mut images[range];
        // SAFETY: three arrays of as many entries as the state is initialised for, which stay until
        // the lane's event is past. Each address and length is that of a file's bytes, which the
        // caller's transfer holds, and nobody writes to them meanwhile. Each image has an address
        // from which on `height * pitch` bytes are inside of a memory of this context, which that
        // transfer holds, too; they are in no other image. Height, width and components are those
        // that this library has read from the same bytes. The stream is alive and of this context.
        let code = unsafe {
            (functions.decode)(
                self.handle,
                state.handle,
                data.as_ptr(),
                lengths.as_ptr(),
                images.as_mut_ptr(),
                stream,
            )
        };
        told("nvjpegDecodeBatched", code)
    }

    fn no_memory(&self, call: &'static str) -> CudaError {
        let (free, total) = self.context.memory_info().unwrap_or_default();
        let mend = format!(
            ": {free} of {total} bytes of the card are free; decode smaller batches, or leave the \
             model less"
        );
        failed(call, status::ALLOCATOR_FAILURE, mend)
    }
}

/// Why a decoder was not made by one way.
enum Unmade {
    Library(Told),
    NoEngine,
    Cuda(CudaError),
}

impl From<Told> for Unmade {
    fn from(told: Told) -> Unmade {
        Unmade::Library(told)
    }
}

impl From<CudaError> for Unmade {
    fn from(error: CudaError) -> Unmade {
        Unmade::Cuda(error)
    }
}

fn refusal(what: String) -> Refusal {
    let decoder = "nvJPEG";
    Refusal::Decoder { decoder, what }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        let is_idle = !self.is_lost
            && self
                .lanes
                .iter()
                .all(|lane| lane.done.synchronize().is_ok());
        let bound = match is_idle {
            true => self.context.bind().ok(),
            // Nobody can tell whether the card still works for it: it stays for good. In a forked
            // child it is the parent's.
            false => None,
        };
        if bound.is_none() {
            self.lanes.drain(..).for_each(std::mem::forget);
            return;
        }
        let functions = &self.library.functions;
        for state in self.lanes.iter().flat_map(|lane| &lane.states) {
            // SAFETY: a state that was made and has nothing under way, destroyed once.
            unsafe { (functions.state_destroy)(state.handle) };
        }
        if self.header != 0 {
            // SAFETY: made, and destroyed once.
            unsafe { (functions.stream_destroy)(self.header) };
        }
        if self.handle != 0 {
            // SAFETY: made, and destroyed once, after what is of it.
            unsafe { (functions.destroy)(self.handle) };
        }
    }
}

impl fmt::Debug for Decoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("way", &self.way)
            .field("file", &self.library.file)
            .finish_non_exhaustive()
    }
}
