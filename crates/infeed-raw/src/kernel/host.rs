//! The kernels as built by the host compiler: the same grid, one block after another.

use std::ffi::CStr;

use super::error::KernelError;
use super::launch::Launch;
use super::operation::Kernel;
use super::table::Table;

/// Runs blocks `from..to` of a launch. The pointer is that of the launch's argument.
type BlockRunner = unsafe extern "C" fn(arguments: *const u64, from: u32, to: u32);

macro_rules! entries {
    ($($name:literal => $run:ident),* $(,)?) => {
        unsafe extern "C" {
            $(fn $run(arguments: *const u64, from: u32, to: u32);)*
        }

        /// Names of all kernels in [`PTX`](super::PTX).
        pub const ENTRIES: &[&CStr] = &[$($name),*];

        /// The host function for each of them.
        const RUNS: &[BlockRunner] = &[$($run),*];
    };
}

entries! {
    c"infeed_expand_u8_hwc" => infeed_run_expand_u8_hwc,
    c"infeed_expand_f32_hwc" => infeed_run_expand_f32_hwc,
    c"infeed_expand_f16_hwc" => infeed_run_expand_f16_hwc,
    c"infeed_expand_bf16_hwc" => infeed_run_expand_bf16_hwc,
    c"infeed_expand_u8_chw" => infeed_run_expand_u8_chw,
    c"infeed_expand_f32_chw" => infeed_run_expand_f32_chw,
    c"infeed_expand_f16_chw" => infeed_run_expand_f16_chw,
    c"infeed_expand_bf16_chw" => infeed_run_expand_bf16_chw,
    c"infeed_onehot_u8_hwc" => infeed_run_onehot_u8_hwc,
    c"infeed_onehot_f32_hwc" => infeed_run_onehot_f32_hwc,
    c"infeed_onehot_f16_hwc" => infeed_run_onehot_f16_hwc,
    c"infeed_onehot_bf16_hwc" => infeed_run_onehot_bf16_hwc,
    c"infeed_onehot_u8_chw" => infeed_run_onehot_u8_chw,
    c"infeed_onehot_f32_chw" => infeed_run_onehot_f32_chw,
    c"infeed_onehot_f16_chw" => infeed_run_onehot_f16_chw,
    c"infeed_onehot_bf16_chw" => infeed_run_onehot_bf16_chw,
    c"infeed_classes" => infeed_run_classes,
    c"infeed_resize_u8_hwc" => infeed_run_resize_u8_hwc,
    c"infeed_resize_f32_hwc" => infeed_run_resize_f32_hwc,
    c"infeed_resize_f16_hwc" => infeed_run_resize_f16_hwc,
    c"infeed_resize_bf16_hwc" => infeed_run_resize_bf16_hwc,
    c"infeed_resize_u8_chw" => infeed_run_resize_u8_chw,
    c"infeed_resize_f32_chw" => infeed_run_resize_f32_chw,
    c"infeed_resize_f16_chw" => infeed_run_resize_f16_chw,
    c"infeed_resize_bf16_chw" => infeed_run_resize_bf16_chw,
    c"infeed_widen_i32" => infeed_run_widen_i32,
    c"infeed_widen_i64" => infeed_run_widen_i64,
}

/// Names of the kernels in [`PTX_SM80`](super::PTX_SM80).
pub const ENTRIES_SM80: &[&CStr] = &[c"infeed_expand_bf16_hwc", c"infeed_expand_bf16_chw"];

/// Runs a kernel whose lengths [`Kernel::check`] has accepted.
pub(super) fn run(
    kernel: &Kernel,
    rows: usize,
    input: &[u8],
    table: Option<Table<'_>>,
    output: &mut [u8],
) -> Result<(), KernelError> {
    let launch = Launch::of(
        kernel,
        rows,
        input.as_ptr().expose_provenance() as u64,
        table.map(|table| table.bytes().as_ptr().expose_provenance() as u64),
        output.as_mut_ptr().expose_provenance() as u64,
    )?;
    let at = ENTRIES.iter().position(|&entry| entry == launch.entry);
    let run = RUNS[at.expect("every entry is listed")];
    // SAFETY: the argument is the struct that the entry takes, with the addresses of slices that
    // are borrowed until this function returns, the output exclusively. `check` has verified that
    // every byte that the kernel accesses for this shape is inside of them, by the argument at the
    // head of the module. Loads and stores on the host need no alignment.
    unsafe { run(launch.arguments.as_ptr(), 0, launch.grid[0]) };
    Ok(())
}
