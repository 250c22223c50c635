//! A file or object that is open, and the memory that reading it takes.

use std::fs;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::store::{self, Bucket, BufferPool, Cache, RangeRequest};

/// A file that is about to be read.
pub(super) enum OpenFile<'a> {
    File {
        path: PathBuf,
        file: fs::File,
        length: u64,
        buffers: &'a Arc<BufferPool>,
    },
    Object {
        bucket: &'a Bucket,
        key: String,
        length: u64,
        version: Option<u64>,
        cache: Option<&'a Cache>,
        buffers: &'a Arc<BufferPool>,
    },
}

impl OpenFile<'_> {
    /// Bytes of memory that reading it holds.
    pub(crate) fn held_bytes(&self) -> u64 {
        match *self {
            OpenFile::File { length, .. } => store::held_bytes(length),
            OpenFile::Object { length, cache, .. } => store::held_bytes(match cache {
                Some(_) => Cache::max_read_bytes(length, length),
                None => length,
            }),
        }
    }

    /// Reads the content.
    pub(crate) fn read(self) -> io::Result<Bytes> {
        match self {
            OpenFile::File {
                path,
                file,
                length,
                buffers,
            } => store::read_file(&path, file, length, buffers),
            OpenFile::Object {
                bucket,
                key,
                length,
                version,
                cache,
                buffers,
            } => {
                let wanted = RangeRequest {
                    key: &key,
                    range: 0..length,
                    length,
                    version,
                };
                store::read(bucket, &wanted, cache, buffers)
            }
        }
    }
}
