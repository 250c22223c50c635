//! The embedded kernels: loaded with a context, looked up once, launched with checked lengths.

use std::ffi::{CStr, c_uint, c_void};
use std::sync::Arc;

use super::context::Context;
use super::driver::code;
use super::error::CudaError;
use super::memory::{Memory, Writing};
use super::queue::Queue;
use crate::kernel::{
    Bilinear, ENTRIES, ENTRIES_SM80, Integer, Kernel, KernelError, PTX, PTX_SM80, ResizeTable,
    ResizeView, Table,
};
use crate::simd::{Dtype, Layout};

/// `CU_JIT_ERROR_LOG_BUFFER` and `CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES`.
const LOG: [c_uint; 2] = [5, 6];

/// `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE`, `CU_LAUNCH_PARAM_END`.
const PARAMETERS: [usize; 3] = [1, 2, 0];

/// Compute capability from which on a device runs [`PTX_SM80`].
const SM80: (i32, i32) = (8, 0);

/// Bytes of a pixel, before and after any kernel, at most.
const PIXEL: usize = 64;

impl Context {
    /// Loads the kernels. The driver compiles them here, or takes what it made the last time.
    ///
    /// There is no code for single generations: compiling takes 0.5 s of one core, once for each
    /// machine and driver (`ptxas` 12.9 and 13.5, 2026-11), while cubins of 260 to 370 KB for each of seven
    /// generations would add 2.0 MB, have to be made again with each kernel by NVIDIA's assembler, and no
    /// test without a GPU could run them.
    pub(super) fn load(&mut self) -> Result<(), CudaError> {
        self.load_module(PTX, ENTRIES)?;
        if self.card().capability >= SM80 {
            self.load_module(PTX_SM80, ENTRIES_SM80)?;
        }
        Ok(())
    }

    /// Loads a module, whose kernels take the place of those of the same names.
    fn load_module(&mut self, ptx: &CStr, entries: &[&'static CStr]) -> Result<(), CudaError> {
        let bound = self.bind()?;
        let (driver, card) = (self.driver, self.card().clone());
        let mut log = vec![0_u8; 8192];
        let mut options = LOG;
        let mut values = [
            log.as_mut_ptr().cast::<c_void>(),
            std::ptr::without_provenance_mut(log.len()),
        ];
        let failed = |call, code, log: &[u8]| {
            let (name, _) = driver.describe(code).unwrap_or_default();
            let log = CStr::from_bytes_until_nul(log).unwrap_or_default();
            let log = log.to_string_lossy();
            let (major, minor) = card.capability;
            CudaError::Kernels {
                card: format!("{} (compute capability {major}.{minor})", card.name),
                call,
                code,
                name,
                log: match log.trim() {
                    "" => String::new(),
                    text => format!(" ({text})"),
                },
                least: least_capability(ptx),
            }
        };
        let mut module = 0;
        // SAFETY: writes one handle. The image is text with an end. Two options and a value for
        // each: a buffer, and its length in place of a pointer, as these options want it; the
        // buffer outlives the call, which is the last to write to it.
        let code = unsafe {
            (driver.module_load)(
                &raw mut module,
                ptx.as_ptr().cast(),
                options.len() as c_uint,
                options.as_mut_ptr(),
                values.as_mut_ptr(),
            )
        };
        if code::OF_KERNELS.contains(&code) {
            return Err(failed("cuModuleLoadData", code, &log));
        }
        driver.check("cuModuleLoadData", code)?;
        let mut functions = Vec::with_capacity(entries.len());
        let mut missing = None;
        for &entry in entries {
            let mut function = 0;
            // SAFETY: writes one handle; a module that is loaded, and a name with an end.
            let code =
                unsafe { (driver.module_function)(&raw mut function, module, entry.as_ptr()) };
            if code != code::SUCCESS {
                missing = Some(failed(
                    "cuModuleGetFunction",
                    code,
                    entry.to_bytes_with_nul(),
                ));
                break;
            }
            functions.push((entry, function));
        }
        drop(bound);
        // Kept also if a function is missing, so that it is unloaded.
        self.entries.modules.push(module);
        self.entries.functions.extend(functions);
        missing.map_or(Ok(()), Err)
    }

    /// Launches every kernel once, on a pixel: what the driver does at a first launch must not
    /// land in a training step.
    pub(super) fn warm_up(self: &Arc<Context>) -> Result<(), CudaError> {
        let queue = self.stream()?;
        let mismatch = |error: KernelError| CudaError::Mismatch(error.to_string());
        let image = one_image().map_err(mismatch)?;
        // A pixel, of which no kernel reads or writes more than this.
        let (input, output) = (Arc::new(self.memory(PIXEL)?), Arc::new(self.memory(PIXEL)?));
        let place = Arc::new(self.memory(image.bytes().len())?);
        let launched = self.with_current(|| {
            one_of_each().iter().try_for_each(|kernel| {
                let is_resize = matches!(kernel, Kernel::Resize { .. });
                let table = is_resize.then(|| (Table::from(&image), &place));
                self.launch(queue, kernel, 1, &input, table, &output)
            })
        });
        let finished = launched.and_then(|()| self.finish(queue));
        self.give_back(queue);
        finished
    }

    /// Runs a kernel over `rows` rows of `input` into `output`, in the order of a queue. A
    /// `table` says where the rows lie; it is written to the memory beside it first, so that the
    /// card reads the table that was checked.
    ///
    /// The memories may be dropped at once; that waits for the kernel.
    ///
    /// # Errors
    ///
    /// [`CudaError::Mismatch`] with what [`Kernel::check`] says, or if input, output and table
    /// are not three memories; [`CudaError::Foreign`], [`CudaError::Capturing`]; what the driver
    /// says.
    pub fn launch(
        self: &Arc<Context>,
        queue: Queue,
        kernel: &Kernel,
        rows: usize,
        input: &Arc<Memory>,
        table: Option<(Table<'_>, &Arc<Memory>)>,
        output: &Arc<Memory>,
    ) -> Result<(), CudaError> {
        let mismatch = |error: KernelError| CudaError::Mismatch(error.to_string());
        let (told, place) = (table.map(|(table, _)| table), table.map(|(_, place)| place));
        // The rows may be fewer than the memories have room for.
        let dense = kernel.input_bytes(rows).filter(|_| told.is_none());
        let from_bytes = dense.unwrap_or(input.len());
        let to_bytes = kernel.output_bytes(rows).unwrap_or(usize::MAX);
        kernel
            .check(rows, from_bytes, told, to_bytes)
            .map_err(mismatch)?;
        input.check(0, from_bytes)?;
        output.check(0, to_bytes)?;
        let all = [Some(input), place, Some(output)];
        let mut seen: Vec<&Arc<Memory>> = Vec::with_capacity(all.len());
        for memory in all.into_iter().flatten() {
            self.same(memory)?;
            if seen.iter().any(|other| Arc::ptr_eq(other, memory)) {
                let why = "a kernel reads and writes one memory; give it another for its output";
                return Err(CudaError::Mismatch(why.to_owned()));
            }
            seen.push(memory);
        }
        let addresses = (
            input.address(),
            place.map(|p| p.address()),
            output.address(),
        );
        let mut launch = kernel
            .launch(rows, addresses.0, addresses.1, addresses.2)
            .map_err(mismatch)?;
        if launch.is_empty() {
            return Ok(());
        }
        let function = *self.entries.functions.get(launch.entry).ok_or_else(|| {
            let name = launch.entry.to_string_lossy();
            CudaError::Mismatch(format!("no kernel {name} is loaded"))
        })?;
        // Who takes two takes them in one order.
        let (writing, table_leave) = match place {
            Some(place) if place.address() < output.address() => {
                let leave = place.to_write_table(queue)?;
                (output.to_write(queue)?, Some(leave))
            }
            Some(place) => {
                let writing = output.to_write(queue)?;
                (writing, Some(place.to_write_table(queue)?))
            }
            None => (output.to_write(queue)?, None),
        };
        let _bound = self.bind()?;
        let stream = self.stream_of(queue)?;
        if let Some((table, place)) = table {
            self.send(queue, table, place)?;
        }
        let mut bytes = size_of_val(launch.arguments.as_slice());
        let [pointer, size, end] = PARAMETERS.map(std::ptr::without_provenance_mut::<c_void>);
        let mut extra = [
            pointer,
            launch.arguments.as_mut_ptr().cast(),
            size,
            (&raw mut bytes).cast(),
            end,
        ];
        let ([x, y, z], [bx, by, bz]) = (launch.grid, launch.block);
        // SAFETY: a function of a module that is loaded as long as this context, and the one
        // parameter it takes, which the driver copies before it returns, with its length. The
        // kernel stays inside of its memories, by the argument at the head of `kernel`: `check`
        // has held it against these lengths, the memories are that long, and the table that it
        // reads is the one that was checked, put there on the same stream just before, and nobody
        // writes there until the kernel is done, which `table_leave` sees to. The memories are of
        // this context; the stream is alive.
        let code = unsafe {
            (self.driver.launch)(
                function,
                x,
                y,
                z,
                bx,
                by,
                bz,
                0,
                stream,
                std::ptr::null_mut(),
                extra.as_mut_ptr(),
            )
        };
        // Behind the table's copy, whether or not the kernel is there too.
        let marked = table_leave.map_or(Ok(()), Writing::done);
        self.driver.check("cuLaunchKernel", code)?;
        writing.done().and(marked)?;
        // The table has a copy on the queue already, and is kept until that is done; the kernel
        // behind it reads it too.
        seen.iter().try_for_each(|memory| memory.used_on(queue))
    }

    /// Writes a table to the card.
    fn send(
        self: &Arc<Context>,
        queue: Queue,
        table: Table<'_>,
        place: &Arc<Memory>,
    ) -> Result<(), CudaError> {
        let bytes = table.bytes().len();
        let staged = place.stage(table.bytes());
        let from = staged.unwrap_or_else(|| table.shared());
        let transfer = self.put(queue, from, bytes, place, 0)?;
        // Waiting for it here would be waiting for all that is on the queue.
        place.keep(transfer.within());
        Ok(())
    }
}

/// Compute capability that the kernels were made for, as their text says.
fn least_capability(ptx: &CStr) -> String {
    let text = ptx.to_string_lossy();
    let digits = text
        .split(".target sm_")
        .nth(1)
        .map(|rest| rest.chars().take_while(char::is_ascii_digit).collect())
        .unwrap_or_default();
    let digits: String = digits;
    match digits.split_at_checked(digits.len().saturating_sub(1)) {
        Some((major, minor)) if !major.is_empty() => format!("{major}.{minor}"),
        _ => "(unknown)".to_owned(),
    }
}

/// An image of one pixel, of three channels, at the beginning of an input.
fn one_image() -> Result<ResizeTable, KernelError> {
    let view = ResizeView {
        offset: 0,
        row_bytes: 3,
        flags: 0,
        height: 1,
        width: 1,
    };
    ResizeTable::of(1, 1, &[view], &mut Bilinear::new())
}

/// A kernel for every entry, for one pixel.
fn one_of_each() -> Vec<Kernel> {
    let mut kernels = vec![Kernel::Classes {
        height: 1,
        width: 1,
        colours: vec![[0; 3]],
        classes: vec![0],
        unknown: 255,
    }];
    kernels.extend([Integer::I32, Integer::I64].map(|dtype| Kernel::Widen {
        height: 1,
        width: 1,
        dtype,
        unknown: 255,
    }));
    for dtype in [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::BF16] {
        for layout in [Layout::Hwc, Layout::Chw] {
            kernels.push(Kernel::Expand {
                height: 1,
                width: 1,
                channels: 3,
                dtype,
                layout,
                scale: [1.0; 4],
                bias: [0.0; 4],
            });
            kernels.push(Kernel::Resize {
                height: 1,
                width: 1,
                channels: 3,
                dtype,
                layout,
                scale: [1.0; 4],
                bias: [0.0; 4],
            });
            kernels.push(Kernel::OneHot {
                height: 1,
                width: 1,
                classes: 2,
                dtype,
                layout,
            });
        }
    }
    kernels
}
