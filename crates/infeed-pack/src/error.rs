//! Reasons why a record cannot be written.

/// The reason why pixels cannot be written although they were read. The caller adds the record's
/// name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PackError {
    /// A transform produced new values in a mask.
    #[error("{new} values are not among the values of the original mask")]
    NewValues {
        /// Number of new values.
        new: usize,
    },
    /// JPEG does not support these pixels.
    #[error("a JPEG holds 1 or 3 channels of 8 bits, not {channels} of {bits}; use png")]
    NotJpeg {
        /// Channels of the image.
        channels: usize,
        /// Bits per sample.
        bits: usize,
    },
    /// WebP does not support these pixels.
    #[error("a WebP holds 1 to 4 channels of 8 bits, not {channels} of {bits}; use png")]
    NotWebp {
        /// Channels of the image.
        channels: usize,
        /// Bits per sample.
        bits: usize,
    },
    /// A number exceeds the widest type of the format.
    #[error("a number in `{field}` exceeds int64, the widest type of the format")]
    WideNumber {
        /// Name of the field.
        field: String,
    },
    /// Bytes of a text field are not UTF-8.
    #[error("field `{field}` is not UTF-8")]
    NotText {
        /// Name of the field.
        field: String,
    },
    /// A field is longer than the format supports.
    #[error("{bytes} bytes in one field exceed the {limit} of the format")]
    TooLong {
        /// Bytes of the field.
        bytes: u64,
        /// Maximum bytes.
        limit: u64,
    },
    /// Error of the JPEG library.
    #[error(transparent)]
    Jpeg(#[from] infeed_raw::jpeg_encode::EncodeError),
    /// Error of the PNG library.
    #[error(transparent)]
    Png(#[from] png::EncodingError),
    /// Error of the WebP library.
    #[error(transparent)]
    Webp(#[from] image_webp::EncodingError),
}
