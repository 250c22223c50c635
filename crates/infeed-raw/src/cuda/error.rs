//! Errors of CUDA, with their fixes.

use std::ffi::c_uint;

/// Reason why CUDA is not available.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoCuda {
    /// The machine has no CUDA driver library.
    #[error(
        "no CUDA driver: {library} cannot be loaded ({why}); install NVIDIA's driver, or, in a \
         container, start it with its GPUs (--gpus all)"
    )]
    NoDriver {
        /// Name of the file.
        library: String,
        /// The system's error.
        why: String,
    },
    /// The driver lacks a function.
    #[error("the CUDA driver is too old: it has no {function}; install one for CUDA 11.0 or newer")]
    NoFunction {
        /// Name of the function.
        function: String,
    },
    /// The driver is older than the oldest supported one.
    #[error(
        "the CUDA driver is too old: it is made for CUDA {major}.{minor}; install one for CUDA \
         11.0 or newer"
    )]
    TooOld {
        /// Major CUDA version of the driver.
        major: i32,
        /// Minor CUDA version of the driver.
        minor: i32,
    },
    /// There is a driver, but no GPU that this process may use.
    #[error(
        "the CUDA driver finds no GPU; `nvidia-smi -L` lists them, and CUDA_VISIBLE_DEVICES may \
         hide them"
    )]
    NoGpu,
    /// The process was forked from one that had initialised CUDA.
    #[error(
        "CUDA does not survive a fork, and the parent of this process had initialised it; start \
         processes with spawn (multiprocessing.set_start_method(\"spawn\"))"
    )]
    Forked,
    /// The driver cannot start.
    #[error("the CUDA driver failed to start: {call} returned {code}{name}")]
    Failed {
        /// Function that failed.
        call: &'static str,
        /// Code that it returned.
        code: u32,
        /// Name of the code after a space; empty if the driver does not know it.
        name: String,
    },
}

/// A call to a GPU that failed, or that was rejected as invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// CUDA is not available.
    #[error(transparent)]
    NoCuda(#[from] NoCuda),
    /// No GPU has this number.
    #[error("there is no cuda:{ordinal}; {found} {}: {}", plural(*.found), range(*.found))]
    NoSuchGpu {
        /// Number requested.
        ordinal: usize,
        /// Number of GPUs.
        found: usize,
    },
    /// The process was forked after the GPU was opened.
    #[error(
        "CUDA does not survive a fork: process {opened_by} opened the GPU, but this is process \
         {here}; open the loader in the child, and start children with spawn"
    )]
    Forked {
        /// Process that opened the GPU.
        opened_by: u32,
        /// Process of the call.
        here: u32,
    },
    /// The GPU has not enough free memory.
    #[error(
        "{gpu} is out of memory: cannot allocate {requested} bytes ({free} of {total} are free); use \
         smaller or fewer batches, or a smaller model"
    )]
    OutOfMemory {
        /// Name of the GPU.
        gpu: String,
        /// Bytes requested.
        requested: usize,
        /// Free bytes.
        free: usize,
        /// Total bytes.
        total: usize,
    },
    /// A copy would leave its memory.
    #[error("bytes {at} to {at} + {bytes} are outside of {len} bytes")]
    OutOfRange {
        /// First byte.
        at: usize,
        /// Number of bytes.
        bytes: usize,
        /// Length of the memory.
        len: usize,
    },
    /// Objects of different GPUs, or of a GPU opened twice, were used together.
    #[error("the {what} belongs to another open GPU; use it only with the one that made it")]
    Foreign {
        /// Kind of the object: memory, an event, a stream.
        what: &'static str,
    },
    /// The consumer's stream is being captured into a CUDA graph.
    #[error(
        "the stream is being captured into a CUDA graph, which would hold one batch forever; take \
         the batch before the capture and copy it into a tensor that the graph reads"
    )]
    Capturing,
    /// A consumer's stream was destroyed, or belongs to another GPU.
    #[error(
        "{call} returned {code} {name}: the stream was destroyed or belongs to another GPU; keep a \
         stream until all batches used in it are dropped"
    )]
    NoStream {
        /// Function that failed.
        call: &'static str,
        /// Code that it returned.
        code: u32,
        /// Name of the code.
        name: String,
    },
    /// The embedded kernels cannot be loaded.
    #[error(
        "{gpu} cannot run the kernels of this build: {call} returned {code} {name}{log}; it needs \
         compute capability {least} and a driver for CUDA 11.0 or newer"
    )]
    Kernels {
        /// Name of the GPU and its compute capability.
        gpu: String,
        /// Function that failed.
        call: &'static str,
        /// Code that it returned.
        code: u32,
        /// Name of the code.
        name: String,
        /// Log of the driver's compiler.
        log: String,
        /// Compute capability that the kernels need.
        least: String,
    },
    /// Arguments of a command do not match its memories.
    #[error("{0}")]
    Mismatch(String),
    /// A function of nvJPEG failed for a whole batch.
    #[error("{call}: {what}")]
    Nvjpeg {
        /// Function that failed.
        call: &'static str,
        /// Code that it returned.
        code: u32,
        /// Meaning of the code, and the fix.
        what: String,
    },
    /// A function of the driver failed.
    #[error("{call} returned {code} {name}: {what}{fix}")]
    Call {
        /// Function that failed.
        call: &'static str,
        /// Code that it returned.
        code: u32,
        /// Name of the code.
        name: String,
        /// The driver's text for the code.
        what: String,
        /// The fix, after a semicolon; empty if there is no general one.
        fix: &'static str,
    },
}

impl CudaError {
    pub(super) fn call(
        call: &'static str,
        code: c_uint,
        described: Option<(String, String)>,
    ) -> CudaError {
        let (name, what) = described.unwrap_or_else(|| {
            (
                "(a code without a name)".to_owned(),
                "the driver is newer than this table of errors, or broken".to_owned(),
            )
        });
        CudaError::Call {
            call,
            code,
            name,
            what,
            fix: fix(code),
        }
    }

    /// The driver's code, if one of its functions failed.
    pub fn code(&self) -> Option<u32> {
        match self {
            CudaError::Call { code, .. }
            | CudaError::Kernels { code, .. }
            | CudaError::NoStream { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// The fix for a code.
fn fix(code: c_uint) -> &'static str {
    match code {
        3 => "; the parent of this process had initialised CUDA: start processes with spawn",
        46 => {
            "; another process uses the GPU exclusively: `nvidia-smi` shows the process and the \
             compute mode"
        }
        // A sticky error: every later call of the process returns it.
        700 | 702 | 710 | 714..=719 => {
            "; an earlier kernel failed, and this process can no longer use the GPU: run it again \
             with CUDA_LAUNCH_BLOCKING=1 to find the kernel"
        }
        214 | 220 | 226 => {
            "; the GPU reports broken memory or links: run `nvidia-smi -q` for details"
        }
        712 => "; the memory is already pinned by another library",
        802 => {
            "; the machine's fabric manager may not run: `systemctl status nvidia-fabricmanager`"
        }
        803 => "; the driver was updated under the running system: restart the machine",
        900..=908 => "; a CUDA graph is being captured: take batches outside of the capture",
        _ => "",
    }
}

fn plural(found: usize) -> &'static str {
    if found == 1 {
        "GPU is visible"
    } else {
        "GPUs are visible"
    }
}

fn range(found: usize) -> String {
    match found {
        0 => "none".to_owned(),
        1 => "cuda:0".to_owned(),
        n => format!("cuda:0 to cuda:{}", n - 1),
    }
}
