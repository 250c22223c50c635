//! JPEGs decoded by NVIDIA cards: batches of files into one memory, through nvJPEG.
//!
//! Nothing is linked. The library is looked for when [`Decoder::open`] is called ([`Search`]), and
//! [`NoDecoder`] says why there is none.
//!
//! **Which files.** Plain ones ([`Baseline`](crate::jpeg_batch::Baseline)): they are read from header
//! to end on the host before the library sees them, and again by the library, and both must find the
//! same size, which is that of the place in memory. All others are refused by their number, and the
//! rest of the batch is decoded.
//!
//! **Which pixels.** Not those of libjpeg-turbo: the inverse transform and the chroma between samples
//! are computed otherwise. Where the library can (12.1 and newer), chroma is interpolated, which is
//! nearer to it.
//!
//! **What is not noticed.** A file that is whole by its markers and damaged between them: the
//! card decodes something, and the library may not tell. The host's decoder does tell. And engines
//! are known to have left out an image and reported success; whoever relies on each can look at the
//! pixels, as `gpu-check` does.
//!
//! **Why it is sound.**
//!
//! - What the library writes is bounded by its promise: `height * pitch` bytes from the address on,
//!   for the size that it reads from the header. That size was asked of the same library, compared
//!   with our own reading, and the bytes are inside of the memory and in nobody else's place.
//! - What it reads is held until an event behind the work is past, and so is the memory it writes.
//! - A state of the library is used for one batch at a time. It is used again, and destroyed, only
//!   when the event behind its last batch is past. If that cannot be found out, it stays for good.
//! - The engine writes as soon as it is called: neither the stream of the call nor a wait that is pending
//!   there holds it back (nvJPEG 12.3 to 13.2). The decoder waits on the host for kernels that read a
//!   table in the memory; for all other commands that use it, its caller waits on the host.
//! - Results are numbers of any value, not an enum.
//!
//! **What cannot be proved.** That the library keeps its promise for every file. It is NVIDIA's, in
//! binary form, as the driver is; the files that reach it are cut down to the plainest kind.
//!
//! **Whose memory.** The library allocates what it needs on the card and the host by itself. Callbacks
//! would tell how much that is, but would run our code in its threads and under its locks, and could
//! free no better than it does: after the device is done. So that it seldom has to grow, its blocks are
//! padded, and the decoder reserves room for the largest batch so far and a quarter more.
//!
//! **Kinds of files.** The engine gets files of one chroma subsampling in a call: on GPUs with several
//! engines, calls that mix them are known to fail.

mod decoder;
mod error;
mod find;
mod functions;
mod lane;
mod settings;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_find;

pub use decoder::{Decoder, Decoding};
pub use error::NoDecoder;
pub use find::Search;
pub use settings::{Backend, Settings};
