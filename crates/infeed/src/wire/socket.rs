//! A socket that is never waited for without end: reads and writes look up now and then.

use std::cell::Cell;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// Between two looks.
pub const SLICE: Duration = Duration::from_millis(20);

/// One end of a connection, for one thread.
pub struct Socket<'a> {
    stream: &'a TcpStream,
    /// Longest wait for a byte.
    patience: Cell<Duration>,
    /// When all of it has to be over.
    until: Cell<Option<Instant>>,
    /// When it looked up last.
    looked: Cell<Instant>,
    /// Asked now and then, with whether nothing comes or goes; true ends the conversation with an
    /// error.
    ends: &'a dyn Fn(bool) -> bool,
}

impl<'a> Socket<'a> {
    /// Over a connection whose reads and writes look up; `ends` is asked then.
    ///
    /// # Errors
    ///
    /// As the operating system's.
    pub fn new(
        stream: &'a TcpStream,
        patience: Duration,
        ends: &'a dyn Fn(bool) -> bool,
    ) -> io::Result<Socket<'a>> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SLICE))?;
        stream.set_write_timeout(Some(SLICE))?;
        Ok(Socket {
            stream,
            patience: Cell::new(patience),
            until: Cell::new(None),
            looked: Cell::new(Instant::now()),
            ends,
        })
    }

    /// Waits so long for a byte from now on.
    pub fn set_patience(&self, patience: Duration) {
        self.patience.set(patience);
    }

    /// Gives all reads and writes from now on so long together; None for as long as bytes come.
    pub fn set_limit(&self, limit: Option<Duration>) {
        self.until
            .set(limit.and_then(|limit| Instant::now().checked_add(limit)));
    }

    fn wait(&self, mut once: impl FnMut(&TcpStream) -> io::Result<usize>) -> io::Result<usize> {
        let begun = Instant::now();
        let mut stalled = false;
        loop {
            let now = Instant::now();
            if self.until.get().is_some_and(|until| until <= now) {
                return Err(ErrorKind::TimedOut.into());
            }
            // Also where bytes keep coming.
            if now.duration_since(self.looked.get()) > SLICE {
                self.looked.set(now);
                if (self.ends)(stalled) {
                    return Err(ErrorKind::ConnectionAborted.into());
                }
            }
            match once(self.stream) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    stalled = true;
                    if begun.elapsed() >= self.patience.get() {
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
        self.wait(|mut stream| stream.read(into))
    }
}

impl Write for &Socket<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.wait(|mut stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl std::fmt::Debug for Socket<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Socket")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}
