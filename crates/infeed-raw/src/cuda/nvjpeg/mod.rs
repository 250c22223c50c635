//! JPEG decoding on NVIDIA GPUs: batches of files into one memory, through nvJPEG.
//!
//! Nothing is linked. [`NvjpegDecoder::open`] looks for the library ([`Search`](crate::jpeg_batch::Search)) and returns
//! [`NoDecoder`] with the reason if there is none.
//!
//! **Accepted files.** Baseline files only ([`Baseline`](crate::jpeg_batch::Baseline)). The host
//! reads them from the header to the end before the library sees them. Then the library reads the
//! header, and both must find the same size, which must be that of the position in memory. The
//! decoder rejects all other files by their number and decodes the rest of the batch.
//!
//! **Pixels.** They differ from those of libjpeg-turbo: the inverse transform and the interpolation
//! of chroma are computed differently. Libraries from version 12.1 on interpolate chroma, which is
//! nearer to libjpeg-turbo.
//!
//! **Undetected damage.** If the markers of a file are intact and the data between them is damaged,
//! the GPU decodes wrong pixels, and the library may not report it. The host's decoder does report
//! it. Engines are also known to have left out an image and reported success. If every image
//! matters, compare pixels, as `gpu-check` does.
//!
//! **Soundness.**
//!
//! - The library promises to write only `height * pitch` bytes from an address on, for the size
//!   that it reads from the header. That size was queried from the same library and compared with
//!   the host's own reading. The bytes are inside of the memory and in no other file's position.
//! - The bytes that the library reads and the memory that it writes are held until the GPU has
//!   reached an event after the work.
//! - A state of the library is used for one batch at a time. It is reused and destroyed only after
//!   the event of its last batch is done. If that cannot be determined, the state is leaked.
//! - The engine writes as soon as it is called: neither the stream of the call nor a pending wait
//!   on that stream delays it (nvJPEG 12.3 to 13.2). The decoder waits on the host for kernels that
//!   read a table in the memory; its caller waits on the host for all other commands that use the
//!   memory.
//! - Results are numbers of any value, not an enum.
//!
//! **Unproved assumption.** The library keeps its promise for every file. It is NVIDIA's, in binary
//! form, as the driver is; only files of the simplest kind reach it.
//!
//! **Memory.** The library allocates memory on the GPU and the host by itself. Callbacks would
//! report the amount, but would run infeed's code in the library's threads and under its locks, and
//! could not free memory earlier: the library frees it after the device is done. To make growth
//! rare, blocks are padded, and the decoder reserves memory for the largest batch so far and a
//! quarter more.
//!
//! **Kinds of files.** A call on the engine has files of one chroma subsampling: on GPUs with
//! several engines, calls that mix them are known to fail.

mod decoder;
mod error;
mod find;
mod functions;
mod lane;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod tests_find;

pub use decoder::{NvjpegBatch, NvjpegDecoder};
pub use error::NoDecoder;
