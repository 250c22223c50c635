//! A decoder of JPEG batches: opened once, used for one batch after another.

use std::ffi::{c_int, c_uint};
use std::fmt;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use super::error::{NoDecoder, call_error, describe};
use super::functions::{INTERLEAVED, INTERPOLATED, Nvjpeg, backend_code, chroma, status};
use super::lane::{AcceptedFile, Arguments, FileBytes, Lane, LaneState, MemoryNeed};
use crate::cuda::context::Context;
use crate::cuda::copy::Transfer;
use crate::cuda::error::CudaError;
use crate::cuda::memory::GpuMemory;
use crate::cuda::queue::Queue;
use crate::cuda::reading::PendingRead;
use crate::jpeg_batch::{
    self, Backend, BadPositions, Baseline, DecoderSettings, ImagePosition, RejectedFile, Rejection,
    ScannedJpeg,
};
use crate::jpeg_encode::Subsampling;

/// Maximum number of batches in flight: while the GPU decodes one, the host reads the next.
const LANES: usize = 2;

/// Granularity of blocks on the GPU in bytes. Sizes differ between batches, and allocating a block
/// waits for the GPU.
const DEVICE_PADDING: usize = 8 << 20;

/// Granularity of blocks of pinned memory in bytes.
const PINNED_PADDING: usize = 1 << 20;

/// A JPEG decoder on a GPU.
///
/// # Threads
///
/// Only one thread at a time may use it. It may move between threads.
pub struct NvjpegDecoder {
    context: Arc<Context>,
    library: &'static Nvjpeg,
    /// `nvjpegHandle_t`; 0 until it is created.
    handle: usize,
    /// `nvjpegJpegStream_t` for parsing the header of a file; 0 until it is created.
    header: usize,
    lanes: Vec<Lane>,
    /// The lane of the last batch.
    turn: usize,
    backend: Backend,
    threads: c_int,
    /// Whether the decoder lost track of batches in flight.
    is_lost: bool,
}

/// A batch in flight.
#[must_use = "dropping it waits for the GPU"]
#[derive(Debug)]
pub struct NvjpegBatch {
    /// Holds the files until the GPU has read them.
    pub transfer: Transfer,
    /// The files that were not decoded, by number.
    pub rejected: Vec<RejectedFile>,
}

/// A call that returned a status other than success.
struct NvjpegFailure {
    call: &'static str,
    code: c_uint,
}

fn failure(call: &'static str, code: c_uint) -> Result<(), NvjpegFailure> {
    match code {
        status::SUCCESS => Ok(()),
        code => Err(NvjpegFailure { call, code }),
    }
}

impl NvjpegDecoder {
    /// Finds the library and prepares it for a GPU.
    ///
    /// # Errors
    ///
    /// [`NoDecoder`], with the reason and the fix.
    ///
    /// # Cost
    ///
    /// A fraction of a second, and some ten MB of the GPU's memory.
    pub fn open(
        context: &Arc<Context>,
        settings: &DecoderSettings,
    ) -> Result<NvjpegDecoder, NoDecoder> {
        let library = settings.search.find(context.gpu().driver.0)?;
        NvjpegDecoder::open_with(context, library, settings)
    }

    pub(super) fn open_with(
        context: &Arc<Context>,
        library: &'static Nvjpeg,
        settings: &DecoderSettings,
    ) -> Result<NvjpegDecoder, NoDecoder> {
        let _bound = context.bind()?;
        let backends = match &settings.backend {
            Some(backend) => std::slice::from_ref(backend),
            None => &[Backend::Engine, Backend::Cores],
        };
        let mut why = Vec::new();
        for &backend in backends {
            // Dropped, with everything that it created, if a call below fails.
            let mut decoder = NvjpegDecoder {
                context: Arc::clone(context),
                library,
                handle: 0,
                header: 0,
                lanes: Vec::new(),
                turn: 0,
                backend,
                threads: c_int::from(settings.threads.max(1)),
                is_lost: false,
            };
            match decoder.create() {
                Ok(()) => return Ok(decoder),
                Err(BackendFailure::Cuda(error)) => return Err(error.into()),
                Err(BackendFailure::Library(NvjpegFailure { code, .. }))
                    if code == status::ALLOCATOR_FAILURE =>
                {
                    return Err(decoder.no_memory("opening nvJPEG").into());
                }
                Err(BackendFailure::Library(NvjpegFailure { call, code })) => {
                    why.push(format!("{backend}: {call}: {}", describe(code)));
                }
                Err(BackendFailure::NoEngine) => why.push(format!("{backend}: not available")),
            }
        }
        Err(NoDecoder::NotOnThisGpu {
            file: library.file.clone(),
            gpu: context.gpu().name.clone(),
            why: why.join("; "),
        })
    }

    fn create(&mut self) -> Result<(), BackendFailure> {
        let functions = &self.library.functions;
        // Older libraries do not support flags.
        let flags: &[c_uint] = match self.library.version() >= (12, 1) {
            true => &[INTERPOLATED, 0],
            false => &[0],
        };
        for &flags in flags {
            let (backend, none, mut handle) = (backend_code(self.backend), ptr::null(), 0);
            // SAFETY: null allocators select the library's own; writes one handle. The context is
            // current, and the CUDA runtime inside of the library uses it.
            let code = unsafe { (functions.create)(backend, none, none, flags, &raw mut handle) };
            match failure("nvjpegCreateEx", code) {
                Err(NvjpegFailure { code, .. })
                    if flags != 0 && code == status::INVALID_PARAMETER => {}
                created => {
                    created?;
                    self.handle = handle;
                    break;
                }
            }
        }
        if self.backend == Backend::Engine
            && self.engines().is_some_and(|(engines, _)| engines == 0)
        {
            return Err(BackendFailure::NoEngine);
        }
        // SAFETY: a live handle and a number.
        let code = unsafe { (functions.device_padding)(DEVICE_PADDING, self.handle) };
        failure("nvjpegSetDeviceMemoryPadding", code)?;
        // SAFETY: as above.
        let code = unsafe { (functions.pinned_padding)(PINNED_PADDING, self.handle) };
        failure("nvjpegSetPinnedMemoryPadding", code)?;
        let mut header = 0;
        // SAFETY: a live handle; writes one handle.
        let code = unsafe { (functions.stream_create)(self.handle, &raw mut header) };
        failure("nvjpegJpegStreamCreate", code)?;
        self.header = header;
        for _ in 0..LANES {
            let done = self.context.event(false)?;
            self.lanes.push(Lane {
                states: Vec::new(),
                done,
                arguments: Arguments::default(),
            });
            // Created for the most frequent kind; states for other kinds are created when a batch
            // needs them.
            let kind = self.kind(Subsampling::Quarter);
            self.state(self.lanes.len() - 1, kind)?;
        }
        Ok(())
    }

    /// Returns the representative of the group of subsamplings that may share a call.
    fn kind(&self, subsampling: Subsampling) -> Subsampling {
        match self.backend {
            Backend::Engine => subsampling,
            Backend::Cores => Subsampling::None,
        }
    }

    /// Returns the index of a lane's state for files of a kind. Creates the state for the first
    /// such file.
    fn state(&mut self, turn: usize, kind: Subsampling) -> Result<usize, NvjpegFailure> {
        let states = &mut self.lanes[turn].states;
        if let Some(at) = states.iter().position(|state| state.subsampling == kind) {
            return Ok(at);
        }
        let mut handle = 0;
        // SAFETY: a live handle; writes one handle.
        let code = unsafe { (self.library.functions.state_create)(self.handle, &raw mut handle) };
        failure("nvjpegJpegStateCreate", code)?;
        states.push(LaneState {
            handle,
            subsampling: kind,
            files: 0,
            reserved: MemoryNeed::default(),
        });
        Ok(states.len() - 1)
    }

    /// Reserves memory for a call in advance, if the library supports it and the state has too
    /// little.
    fn reserve(&mut self, turn: usize, at: usize, needed: &MemoryNeed) {
        let state = &mut self.lanes[turn].states[at];
        let Some(function) = self.library.functions.reserve else {
            return;
        };
        if state.reserved.holds(needed) {
            return;
        }
        state.reserved = state.reserved.grow_to(needed);
        // A state must be initialised for the reserved sizes.
        state.files = 0;
        let MemoryNeed { files, width, .. } = state.reserved;
        let number = |n: u64| c_int::try_from(n).unwrap_or(c_int::MAX);
        // If this fails, the library allocates during the call, which then reports a lack of
        // memory.
        //
        // SAFETY: a live handle and one of its states with no work in flight; takes numbers.
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

    /// Returns the part of the GPU that decodes.
    pub fn backend(&self) -> Backend {
        self.backend
    }

    /// Returns the file of the library.
    pub fn file(&self) -> &str {
        &self.library.file
    }

    /// Returns the version of the library, major and minor.
    pub fn version(&self) -> (i32, i32) {
        self.library.version()
    }

    /// Returns the number of engines of the GPU, and the cores of each; None if the library does
    /// not report them.
    pub fn engines(&self) -> Option<(u32, u32)> {
        let function = self.library.functions.engines?;
        let (mut engines, mut cores) = (0, 0);
        // SAFETY: a live handle; writes two integers.
        let code = unsafe { function(self.handle, &raw mut engines, &raw mut cores) };
        (code == status::SUCCESS).then_some((engines, cores))
    }

    /// Decodes each file into its position in `to`, as red, green and blue. Commands that are put
    /// on the queue afterwards see the pixels.
    ///
    /// With [`Backend::Engine`], the library writes as soon as it is called, regardless of the
    /// queue's pending commands and waits: the caller must have waited on the host for all commands
    /// that use the positions.
    ///
    /// Files that nvJPEG rejects are returned by number, and the others are decoded. `as_ref` of a
    /// file must return the same bytes for as long as it lives, as buffers do.
    ///
    /// # Errors
    ///
    /// [`CudaError::Mismatch`] if a position leaves the memory or overlaps another, or the number
    /// of positions differs from the number of files; [`CudaError::Foreign`],
    /// [`CudaError::Capturing`]; [`CudaError::Nvjpeg`]; the driver's error.
    ///
    /// # Cost
    ///
    /// The host reads the headers, copies the bytes to pinned memory, and waits for the batch
    /// before the last one. The engine takes one call for each chroma subsampling, the cores one
    /// call for all. A file that nvJPEG rejects only while it decodes costs a few more calls: the
    /// batch is halved until the file is alone.
    pub fn decode(
        &mut self,
        queue: Queue,
        jpegs: &[ScannedJpeg],
        to: &Arc<GpuMemory>,
        positions: &[ImagePosition],
    ) -> Result<NvjpegBatch, CudaError> {
        let context = Arc::clone(&self.context);
        if self.is_lost {
            let why =
                "the decoder lost track of a batch when the GPU failed; open the decoder again";
            return Err(CudaError::Mismatch(why.to_owned()));
        }
        let bytes: Vec<&[u8]> = jpegs.iter().map(ScannedJpeg::bytes).collect();
        let (files, count) = (jpegs.len(), positions.len());
        let misplaced = |bad: BadPositions| CudaError::Mismatch(bad.to_string());
        if files != count {
            let positions = count;
            return Err(misplaced(BadPositions::Count { files, positions }));
        }
        jpeg_batch::span(positions, to.len()).map_err(misplaced)?;
        context.same(to)?;
        let _bound = context.bind()?;
        let stream = context.stream_of(queue)?;
        let (mut taken, mut rejected) = (Vec::with_capacity(files), Vec::new());
        for (row, (jpeg, position)) in jpegs.iter().zip(positions).enumerate() {
            let header = jpeg.header;
            let checked = jpeg.check(position);
            match checked.and_then(|()| self.agrees(bytes[row], &header)) {
                Ok(()) => taken.push(AcceptedFile { row, header }),
                Err(why) => rejected.push(RejectedFile { row, why }),
            }
        }
        // One call decodes the files of one kind.
        taken.sort_by_key(|file| chroma(self.kind(file.header.subsampling)));
        // Created first: if this fails, nothing is in flight.
        let reading = PendingRead::new(context.event(false)?, FileBytes::share(jpegs));
        let transfer = Transfer::new(reading, Arc::clone(to));
        let turn = (self.turn + 1) % LANES;
        // From here on, only this batch uses the lane.
        self.lanes[turn].done.synchronize()?;
        self.turn = turn;
        self.lanes[turn].arguments = Arguments::of(&taken, &bytes, to, positions);

        // Waits for kernels that still read a table in this memory.
        let writing = to.to_write(queue)?;
        writing.wait()?;
        let ran = self.run(turn, &taken, queue, stream).and_then(|left| {
            writing.finish()?;
            transfer.done_event().record(queue)?;
            self.lanes[turn].done.record(queue)?;
            to.used_on(queue)?;
            Ok(left)
        });
        match ran {
            Ok(left) => {
                rejected.extend(left.into_iter().map(|(nth, code)| RejectedFile {
                    row: taken[nth].row,
                    why: refusal(describe(code)),
                }));
                rejected.sort_by_key(|rejected| rejected.row);
                Ok(NvjpegBatch { transfer, rejected })
            }
            Err(error) => {
                // The events do not cover this batch, so they must not be queried.
                if context.finish(queue).is_err() {
                    self.is_lost = true;
                    std::mem::forget(transfer);
                }
                Err(error)
            }
        }
    }

    /// Checks that the library reads the same header from a file as the scan did.
    fn agrees(&self, bytes: &[u8], header: &Baseline) -> Result<(), Rejection> {
        let functions = &self.library.functions;
        let failure = |code| match code {
            status::SUCCESS => Ok(()),
            code => Err(refusal(describe(code))),
        };
        // SAFETY: a live handle and stream; pointer and length are those of `bytes`, which outlives
        // the call. The library keeps no pointer to the bytes: the arguments disable saving of
        // metadata and stream.
        failure(unsafe {
            (functions.parse)(self.handle, bytes.as_ptr(), bytes.len(), 0, 0, self.header)
        })?;
        let (mut width, mut height, mut components) = (0, 0, 0);
        // SAFETY: a live stream that has parsed a file; writes two integers.
        failure(unsafe { (functions.frame_size)(self.header, &raw mut width, &raw mut height) })?;
        // SAFETY: a live stream that has parsed a file; writes one integer.
        failure(unsafe { (functions.components)(self.header, &raw mut components) })?;
        let expected = match header.subsampling {
            Subsampling::Gray => 1,
            _ => 3,
        };
        if (width, height, components) != (header.width, header.height, expected) {
            return Err(refusal(format!(
                "it reads {width}x{height} with {components} components"
            )));
        }
        let Some(supported) = functions
            .supported
            .filter(|_| self.backend == Backend::Engine)
        else {
            return Ok(());
        };
        let mut is_not = -1;
        // SAFETY: a live handle and a stream that has parsed a file; writes one integer.
        failure(unsafe { supported(self.handle, self.header, &raw mut is_not) })?;
        match is_not {
            0 => Ok(()),
            _ => Err(refusal("the engine does not support this file".to_owned())),
        }
    }

    /// Decodes the files of a lane's arguments, with one call for each kind if possible. Finds the
    /// files that cannot be decoded by halving, each with its status.
    fn run(
        &mut self,
        turn: usize,
        taken: &[AcceptedFile],
        queue: Queue,
        stream: usize,
    ) -> Result<Vec<(usize, c_uint)>, CudaError> {
        let files = taken.len();
        let mut left = Vec::new();
        let kind = |file: &AcceptedFile| self.kind(file.header.subsampling);
        let groups = taken.chunk_by(|one, other| kind(one) == kind(other));
        let groups: Vec<_> = groups.map(|group| (kind(&group[0]), group)).collect();
        let mut begin = 0;
        for (kind, group) in groups {
            let at = match self.state(turn, kind) {
                Ok(at) => at,
                Err(NvjpegFailure { call, code }) if code == status::ALLOCATOR_FAILURE => {
                    return Err(self.no_memory(call));
                }
                Err(NvjpegFailure { call, code }) => {
                    return Err(call_error(call, code, String::new()));
                }
            };
            self.reserve(turn, at, &MemoryNeed::of(group));
            let range = begin..begin + group.len();
            begin = range.end;
            left.extend(self.decode_range((turn, at), range, queue, stream)?);
        }
        let is_devices = |code| matches!(code, status::EXECUTION_FAILED | status::INTERNAL_ERROR);
        if !left.is_empty() && left.len() == files && left.iter().all(|&(_, code)| is_devices(code))
        {
            // The whole batch failed, which no single file explains.
            let (_, code) = left[0];
            let fix = "; decode on the host, and check whether the GPU runs anything else";
            return Err(call_error("nvjpegDecodeBatched", code, fix.to_owned()));
        }
        Ok(left)
    }

    /// Decodes a range of a lane's arguments with one of its states. Returns the files that cannot
    /// be decoded.
    fn decode_range(
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
                // The state is reused, and the failed call may have started work.
                self.context.finish(queue)?;
            }
            is_first = false;
            let called = self.batch((turn, at), range.clone(), stream);
            let Err(NvjpegFailure { call, code }) = called else {
                continue;
            };
            // The event is reset before it is reused.
            self.lanes[turn].states[at].files = 0;
            if code == status::ALLOCATOR_FAILURE {
                return Err(self.no_memory(call));
            }
            if !status::OF_A_FILE.contains(&code) {
                return Err(call_error(call, code, String::new()));
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
    ) -> Result<(), NvjpegFailure> {
        let functions = &self.library.functions;
        let lane = &mut self.lanes[turn];
        let state = &mut lane.states[at];
        let files = range.len();
        if state.files != files {
            let count = c_int::try_from(files).map_err(|_| NvjpegFailure {
                call: "nvjpegDecodeBatchedInitialize",
                code: status::INVALID_PARAMETER,
            })?;
            // SAFETY: a live handle and one of its states with no work in flight; takes numbers.
            let code = unsafe {
                (functions.initialize)(self.handle, state.handle, count, self.threads, INTERLEAVED)
            };
            failure("nvjpegDecodeBatchedInitialize", code)?;
            state.files = files;
        }
        let Arguments {
            data,
            lengths,
            images,
        } = &mut lane.arguments;
        let (data, lengths) = (&data[range.clone()], &lengths[range.clone()]);
        let images = &mut images[range];
        // SAFETY: the three arrays have as many entries as the state is initialised for, and are
        // kept until the lane's event is done. Each address and length is that of a file's bytes,
        // which the caller's transfer holds and no code writes to meanwhile. Each image has an
        // address from which `height * pitch` bytes are inside of a memory of this context; the
        // same transfer holds that memory, and no two images overlap. Height, width and components
        // are those that this library has read from the same bytes. The stream is alive and belongs
        // to this context.
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
        failure("nvjpegDecodeBatched", code)
    }

    fn no_memory(&self, call: &'static str) -> CudaError {
        let (free, total) = self.context.memory_info().unwrap_or_default();
        let fix = format!(
            ": {free} of {total} bytes of the GPU are free; decode smaller batches, or use a \
             smaller model"
        );
        call_error(call, status::ALLOCATOR_FAILURE, fix)
    }
}

/// Reason why a backend did not create a decoder.
enum BackendFailure {
    Library(NvjpegFailure),
    NoEngine,
    Cuda(CudaError),
}

impl From<NvjpegFailure> for BackendFailure {
    fn from(failure: NvjpegFailure) -> BackendFailure {
        BackendFailure::Library(failure)
    }
}

impl From<CudaError> for BackendFailure {
    fn from(error: CudaError) -> BackendFailure {
        BackendFailure::Cuda(error)
    }
}

fn refusal(what: String) -> Rejection {
    let decoder = "nvJPEG";
    Rejection::Decoder { decoder, what }
}

impl Drop for NvjpegDecoder {
    fn drop(&mut self) {
        let is_idle = !self.is_lost
            && self
                .lanes
                .iter()
                .all(|lane| lane.done.synchronize().is_ok());
        let bound = match is_idle {
            true => self.context.bind().ok(),
            // It is unknown whether the GPU still works for the decoder, so the decoder is leaked.
            // In a forked child, the decoder belongs to the parent.
            false => None,
        };
        if bound.is_none() {
            self.lanes.drain(..).for_each(std::mem::forget);
            return;
        }
        let functions = &self.library.functions;
        for state in self.lanes.iter().flat_map(|lane| &lane.states) {
            // SAFETY: a state that was created and has no work in flight, destroyed once.
            unsafe { (functions.state_destroy)(state.handle) };
        }
        if self.header != 0 {
            // SAFETY: created before, destroyed once.
            unsafe { (functions.stream_destroy)(self.header) };
        }
        if self.handle != 0 {
            // SAFETY: created before, destroyed once, after its states and streams.
            unsafe { (functions.destroy)(self.handle) };
        }
    }
}

impl fmt::Debug for NvjpegDecoder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("backend", &self.backend)
            .field("file", &self.library.file)
            .finish_non_exhaustive()
    }
}
