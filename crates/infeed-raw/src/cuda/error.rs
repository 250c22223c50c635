//! What can go wrong on a card, and what to do about it.

use std::ffi::c_uint;

/// Why there is no CUDA here.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoCuda {
    /// The driver's library is not on this machine.
    #[error(
        "no CUDA driver: {library} cannot be loaded ({why}); install NVIDIA's driver, or, in a \
         container, start it with its GPUs (--gpus all)"
    )]
    NoDriver {
        /// The file that was asked for.
        library: String,
        /// What the system says.
        why: String,
    },
    /// The driver lacks a function.
    #[error("the CUDA driver is too old: it has no {function}; install one for CUDA 11.0 or newer")]
    NoFunction {
        /// Its name in the library.
        function: String,
    },
    /// The driver is older than what is supported.
    #[error(
        "the CUDA driver is too old: it is made for CUDA {major}.{minor}; install one for CUDA \
         11.0 or newer"
    )]
    TooOld {
        /// Version of CUDA that it was made for.
        major: i32,
        /// Its second number.
        minor: i32,
    },
    /// There is a driver, and no card that this process may use.
    #[error(
        "the CUDA driver finds no GPU; `nvidia-smi -L` lists them, and CUDA_VISIBLE_DEVICES may \
         hide them"
    )]
    NoCard,
    /// The process was forked from one that had initialised CUDA.
    #[error(
        "CUDA does not survive a fork, and the parent of this process had initialised it; start \
         processes by spawn (multiprocessing.set_start_method(\"spawn\"))"
    )]
    Forked,
    /// The driver cannot start.
    #[error("the CUDA driver does not start: {call} gave {code}{name}")]
    Failed {
        /// Which function said so.
        call: &'static str,
        /// What it returned.
        code: u32,
        /// Name of the code with a space before it, as far as the driver knows it.
        name: String,
    },
}

/// A call to a card that failed, or that was not made because it could not be right.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CudaError {
    /// There is no CUDA here.
    #[error(transparent)]
    NoCuda(#[from] NoCuda),
    /// The number names no card.
    #[error("there is no cuda:{ordinal}; {found} {}: {}", plural(*.found), range(*.found))]
    NoSuchCard {
        /// What was asked for.
        ordinal: usize,
        /// How many there are.
        found: usize,
    },
    /// The process was forked after the card was opened.
    #[error(
        "CUDA does not survive a fork: process {opened_by} opened the card, and this is process \
         {here}; open the loader in the child, and start children by spawn"
    )]
    Forked {
        /// The process that opened it.
        opened_by: u32,
        /// The process that asks.
        here: u32,
    },
    /// The card has no such amount of memory left.
    #[error(
        "{card} has no memory for {asked} bytes: {free} of {total} are free; use smaller or fewer \
         batches ahead, or leave the model more room"
    )]
    OutOfMemory {
        /// Name of the card.
        card: String,
        /// Bytes that were asked for.
        asked: usize,
        /// Bytes that are free.
        free: usize,
        /// Bytes that it has.
        total: usize,
    },
    /// Bytes outside the memory they were to be copied to or from.
    #[error("bytes {at} to {at} + {bytes} lie outside of {len} bytes")]
    OutOfRange {
        /// First byte.
        at: usize,
        /// How many.
        bytes: usize,
        /// Length of the memory.
        len: usize,
    },
    /// Two things of different cards, or of a card opened twice, were to work together.
    #[error("a {what} of another opening of the card was used; each belongs to the one it is from")]
    Foreign {
        /// What it is: memory, an event, a stream.
        what: &'static str,
    },
    /// The consumer records a CUDA graph on its stream.
    #[error(
        "the stream is being captured into a CUDA graph, which would keep one batch for ever; \
         take the batch before the capture and copy it into a tensor that the graph reads"
    )]
    Capturing,
    /// A consumer's stream is no more, or never was one of this card.
    #[error(
        "{call} gave {code} {name}: the stream is no more, or is another card's; keep a stream until \
         the batches that were taken over in it are dropped"
    )]
    NoStream {
        /// Which function said so.
        call: &'static str,
        /// What it returned.
        code: u32,
        /// Name of the code.
        name: String,
    },
    /// The embedded kernels cannot be loaded.
    #[error(
        "{card} cannot run the kernels of this build: {call} gave {code} {name}{log}; compute \
         capability {least} is the least, and the driver must be for CUDA 11.0 or newer"
    )]
    Kernels {
        /// Name of the card and its compute capability.
        card: String,
        /// Which function said so.
        call: &'static str,
        /// What it returned.
        code: u32,
        /// Name of the code.
        name: String,
        /// What the driver's compiler said.
        log: String,
        /// Compute capability that the kernels were made for.
        least: String,
    },
    /// What is to be done does not fit the memory it is to be done with.
    #[error("{0}")]
    Mismatch(String),
    /// A function of nvJPEG failed, and not for one file of a batch.
    #[error("{call}: {what}")]
    Nvjpeg {
        /// The function.
        call: &'static str,
        /// What it returned.
        code: u32,
        /// What that means, and what to do about it.
        what: String,
    },
    /// A function of the driver failed.
    #[error("{call} gave {code} {name}: {what}{mend}")]
    Call {
        /// The function.
        call: &'static str,
        /// What it returned.
        code: u32,
        /// Name of the code.
        name: String,
        /// What the driver says of it.
        what: String,
        /// What to do about it, after a semicolon; empty where nothing general can be said.
        mend: &'static str,
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
            mend: mend(code),
        }
    }

    /// The driver's code, if a function of it failed.
    pub fn code(&self) -> Option<u32> {
        match self {
            CudaError::Call { code, .. }
            | CudaError::Kernels { code, .. }
            | CudaError::NoStream { code, .. } => Some(*code),
            _ => None,
        }
    }
}

/// What a user can do about a code.
fn mend(code: c_uint) -> &'static str {
    match code {
        3 => "; the parent of this process had initialised CUDA: start processes by spawn",
        46 => {
            "; another process has the card to itself: `nvidia-smi` shows which, and its compute \
             mode"
        }
        // A sticky error: every later call of the process returns it.
        700 | 702 | 710 | 714..=719 => {
            "; a kernel that ran before has failed, and the card is lost to this process: start \
             it again with CUDA_LAUNCH_BLOCKING=1 to see which"
        }
        214 | 220 | 226 => "; the card reports broken memory or links: `nvidia-smi -q` says more",
        712 => "; the memory is pinned already, by somebody else",
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
        "card is there"
    } else {
        "cards are there"
    }
}

fn range(found: usize) -> String {
    match found {
        0 => "none".to_owned(),
        1 => "cuda:0".to_owned(),
        n => format!("cuda:0 to cuda:{}", n - 1),
    }
}
