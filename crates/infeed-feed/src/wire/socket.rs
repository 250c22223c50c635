//! Blocking reads and writes that check a condition every few milliseconds, so that no wait is
//! endless.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use super::channel::{Binding, Channel};

/// Time between two checks.
pub const SLICE: Duration = Duration::from_millis(20);

/// One end of a connection, for one thread.
pub struct Socket<'a> {
    channel: &'a Channel,
    /// Longest wait for a byte.
    timeout: Cell<Duration>,
    /// Deadline of all reads and writes.
    until: Cell<Option<Instant>>,
    /// Time of the last check.
    last_check: Cell<Instant>,
    /// Condition that ends a read or write with an error. Its argument says whether the connection
    /// is stalled.
    ends: &'a dyn Fn(bool) -> bool,
}

impl<'a> Socket<'a> {
    /// Reads and writes a connection, and calls `ends` every few milliseconds.
    ///
    /// # Errors
    ///
    /// The operating system's errors.
    pub fn new(
        channel: &'a Channel,
        timeout: Duration,
        ends: &'a dyn Fn(bool) -> bool,
    ) -> io::Result<Socket<'a>> {
        let stream = channel.stream();
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SLICE))?;
        stream.set_write_timeout(Some(SLICE))?;
        Ok(Socket {
            channel,
            timeout: Cell::new(timeout),
            until: Cell::new(None),
            last_check: Cell::new(Instant::now()),
            ends,
        })
    }

    /// Sets the longest wait for a byte.
    pub fn set_timeout(&self, timeout: Duration) {
        self.timeout.set(timeout);
    }

    /// Limits the total time of all reads and writes from now on; `None` removes the limit.
    pub fn set_limit(&self, limit: Option<Duration>) {
        self.until
            .set(limit.and_then(|limit| Instant::now().checked_add(limit)));
    }

    /// Returns the first byte that arrives; a later read returns it again.
    ///
    /// # Errors
    ///
    /// As a read; if the other side closes the connection.
    pub(crate) fn peek(&self) -> io::Result<u8> {
        let mut first = [0];
        match self.wait(|stream| stream.peek(&mut first))? {
            0 => Err(ErrorKind::UnexpectedEof.into()),
            _ => Ok(first[0]),
        }
    }

    /// Runs the TLS handshake on an encrypted connection, and returns the binding.
    ///
    /// # Errors
    ///
    /// As a read or a write; if the other side does not use TLS 1.3.
    pub fn shake(&self) -> io::Result<Binding> {
        self.channel.shake(
            |into| self.wait(|mut stream| stream.read(into)),
            |bytes| self.wait(|mut stream| stream.write(bytes)),
        )
    }

    fn wait(&self, mut once: impl FnMut(&TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        let begun = Instant::now();
        let mut stalled = false;
        loop {
            let now = Instant::now();
            if self.until.get().is_some_and(|until| until <= now) {
                return Err(ErrorKind::TimedOut.into());
            }
            // Check also while bytes keep arriving.
            if now.duration_since(self.last_check.get()) > SLICE {
                self.last_check.set(now);
                if (self.ends)(stalled) {
                    return Err(ErrorKind::ConnectionAborted.into());
                }
            }
            match once(self.channel.stream()) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    stalled = true;
                    if begun.elapsed() >= self.timeout.get() {
                        return Err(ErrorKind::TimedOut.into());
                    }
                }
                done => return done,
            }
        }
    }
}

impl Read for &Socket<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.channel
            .read(into, |into| self.wait(|mut stream| stream.read(into)))
    }
}

impl Write for &Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.channel
            .write(bytes, |bytes| self.wait(|mut stream| stream.write(bytes)))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for Socket<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket")
            .field("channel", &self.channel)
            .finish_non_exhaustive()
    }
}
