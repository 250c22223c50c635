//! The unsafe corner of infeed.
