//! The embedded kernels: loaded with a context, looked up once, launched with checked lengths.

use std::ffi::{CStr, c_uint, c_void};
use std::sync::Arc;

use super::context::Context;
use super::driver::code;
use super::error::CudaError;
use super::memory::{GpuMemory, MemoryWriteGuard};
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

/// Compute capability from which a device runs [`PTX_SM80`].
const SM80: (i32, i32) = (8, 0);

/// Largest number of bytes of a pixel, before or after any kernel.
const PIXEL: usize = 64;

impl Context {
    /// Loads the kernels. The driver compiles them or uses its cached result.
    ///
    /// The build contains no code for single GPU generations: compiling takes 0.5 s on one core,
    /// once for each machine and driver (`ptxas` 12.9 and 13.5, 2026-11). Cubins of 260 to 370 KB
    /// for each of seven generations would add 2.0 MB. They would have to be rebuilt by NVIDIA's
    /// assembler after each change of a kernel, and could not be tested without a GPU.
    pub(super) fn load(&mut self) -> Result<(), CudaError> {
        self.load_module(PTX, ENTRIES)?;
        if self.gpu().capability >= SM80 {
            self.load_module(PTX_SM80, ENTRIES_SM80)?;
        }
        Ok(())
    }

    /// Loads a module. Its kernels replace those with the same names.
    fn load_module(&mut self, ptx: &CStr, entries: &[&'static CStr]) -> Result<(), CudaError> {
        let bound = self.bind()?;
        let (driver, gpu) = (self.driver, self.gpu().clone());
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
            let (major, minor) = gpu.capability;
            CudaError::Kernels {
                gpu: format!("{} (compute capability {major}.{minor})", gpu.name),
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
        // SAFETY: writes one handle. The image is NUL-terminated text. There are two options with a
        // value each: a buffer, and its length in place of a pointer, as these options require. The
        // buffer outlives the call, after which nothing writes to it.
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
            // SAFETY: writes one handle; the module is loaded, and the name is NUL-terminated.
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
        // Kept even if a function is missing, so that the module is unloaded.
        self.entries.modules.push(module);
        self.entries.functions.extend(functions);
        missing.map_or(Ok(()), Err)
    }

    /// Launches every kernel once on one pixel, so that the driver's work at a first launch does
    /// not delay a training step.
    pub(super) fn warm_up(self: &Arc<Context>) -> Result<(), CudaError> {
        let queue = self.stream()?;
        let mismatch = |error: KernelError| CudaError::Mismatch(error.to_string());
        let image = one_image().map_err(mismatch)?;
        // One pixel fits: no kernel reads or writes more.
        let (input, output) = (Arc::new(self.memory(PIXEL)?), Arc::new(self.memory(PIXEL)?));
        let table_memory = Arc::new(self.memory(image.bytes().len())?);
        let launched = self.with_current(|| {
            one_of_each().iter().try_for_each(|kernel| {
                let is_resize = matches!(kernel, Kernel::Resize { .. });
                let table = is_resize.then(|| (Table::from(&image), &table_memory));
                self.launch(queue, kernel, 1, &input, table, &output)
            })
        });
        let finished = launched.and_then(|()| self.finish(queue));
        self.give_back(queue);
        finished
    }

    /// Runs a kernel over `rows` rows of `input` into `output`, in the order of a queue. A `table`
    /// gives the positions of the rows. It is first copied to the memory passed with it, so that
    /// the GPU reads the table that was checked.
    ///
    /// The memories may be dropped at once; the drop waits for the kernel.
    ///
    /// # Errors
    ///
    /// [`CudaError::Mismatch`] with the error of [`Kernel::check`], or if input, output and table
    /// are not three memories; [`CudaError::Foreign`], [`CudaError::Capturing`]; the driver's
    /// error.
    pub fn launch(
        self: &Arc<Context>,
        queue: Queue,
        kernel: &Kernel,
        rows: usize,
        input: &Arc<GpuMemory>,
        table: Option<(Table<'_>, &Arc<GpuMemory>)>,
        output: &Arc<GpuMemory>,
    ) -> Result<(), CudaError> {
        let mismatch = |error: KernelError| CudaError::Mismatch(error.to_string());
        let (reported, table_memory) = (
            table.map(|(table, _)| table),
            table.map(|(_, table_memory)| table_memory),
        );
        // The memories may be longer than the rows.
        let dense = kernel.input_bytes(rows).filter(|_| reported.is_none());
        let from_bytes = dense.unwrap_or(input.len());
        let to_bytes = kernel.output_bytes(rows).unwrap_or(usize::MAX);
        kernel
            .check(rows, from_bytes, reported, to_bytes)
            .map_err(mismatch)?;
        input.check(0, from_bytes)?;
        output.check(0, to_bytes)?;
        let all = [Some(input), table_memory, Some(output)];
        let mut seen: Vec<&Arc<GpuMemory>> = Vec::with_capacity(all.len());
        for memory in all.into_iter().flatten() {
            self.same(memory)?;
            if seen.iter().any(|other| Arc::ptr_eq(other, memory)) {
                let why =
                    "input and output of a kernel are the same memory; use another for the output";
                return Err(CudaError::Mismatch(why.to_owned()));
            }
            seen.push(memory);
        }
        let addresses = (
            input.address(),
            table_memory.map(|p| p.address()),
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
        // All threads take both locks in this order, so that two threads cannot deadlock.
        let (writing, table_guard) = match table_memory {
            Some(table_memory) if table_memory.address() < output.address() => {
                let guard = table_memory.to_write_table(queue)?;
                (output.to_write(queue)?, Some(guard))
            }
            Some(table_memory) => {
                let writing = output.to_write(queue)?;
                (writing, Some(table_memory.to_write_table(queue)?))
            }
            None => (output.to_write(queue)?, None),
        };
        let _bound = self.bind()?;
        let stream = self.stream_of(queue)?;
        if let Some((table, table_memory)) = table {
            self.send(queue, table, table_memory)?;
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
        // SAFETY: the function belongs to a module that is loaded as long as this context. It takes
        // one parameter, which is passed with its length and which the driver copies before it
        // returns. The kernel stays inside of its memories, by the argument at the head of
        // `kernel`: `check` compared the kernel with these lengths, and the memories are that long.
        // The table that the kernel reads is the one that was checked: it was copied just before on
        // the same stream, and `table_guard` ensures that no command writes to it until the kernel
        // is done. The memories belong to this context; the stream is alive.
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
        // Recorded after the table's copy, even if the launch failed.
        let marked = table_guard.map_or(Ok(()), MemoryWriteGuard::finish);
        self.driver.check("cuLaunchKernel", code)?;
        writing.finish().and(marked)?;
        // The table's copy is already on the queue, so the table is kept until the copy and the
        // kernel after it are done.
        seen.iter().try_for_each(|memory| memory.used_on(queue))
    }

    /// Copies a table to the GPU.
    fn send(
        self: &Arc<Context>,
        queue: Queue,
        table: Table<'_>,
        table_memory: &Arc<GpuMemory>,
    ) -> Result<(), CudaError> {
        let bytes = table.bytes().len();
        let staged = table_memory.stage(table.bytes());
        let from = staged.unwrap_or_else(|| table.to_arc());
        let transfer = self.put(queue, from, bytes, table_memory, 0)?;
        // Waiting for the copy would mean waiting for the whole queue.
        table_memory.keep(transfer.within());
        Ok(())
    }
}

/// Returns the minimum compute capability of the kernels, as their PTX states it.
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

/// An image of one pixel with three channels, at the beginning of an input.
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

/// Returns one kernel for every entry, for one pixel.
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
