//! A proxy between a trainer and a feeder that injects network faults.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::Duration;

const SLICE: Duration = Duration::from_millis(5);

/// Faults between the feeder and the trainer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Weather {
    /// Delay of every part.
    pub(super) latency: Duration,
    /// Bytes after which a connection is reset.
    pub(super) reset_after: Option<u64>,
    /// Bytes after which the link is cut silently.
    pub(super) cut_after: Option<u64>,
    /// Bytes after which bytes arrive one by one.
    pub(super) drop_by_drop_after: Option<u64>,
    /// Distance between changed bytes, the handshake excepted.
    pub(super) changed_every: Option<u64>,
}

/// Bytes of a handshake, which faults do not change.
const HANDSHAKE: u64 = 100;

/// A running proxy. It ends when it is dropped.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    shared: Arc<ProxyShared>,
    listening: Option<JoinHandle<()>>,
}

struct ProxyShared {
    to: SocketAddr,
    weather: Mutex<Weather>,
    /// Whether the link is cut silently.
    cut: AtomicBool,
    closing: AtomicBool,
    connections: AtomicU64,
}

impl Proxy {
    pub(super) fn new(to: SocketAddr, weather: Weather) -> Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("it is bound");
        listener.set_nonblocking(true).expect("a socket");
        let shared = Arc::new(ProxyShared {
            to,
            weather: Mutex::new(weather),
            cut: AtomicBool::new(false),
            closing: AtomicBool::new(false),
            connections: AtomicU64::new(0),
        });
        let listening = thread::spawn({
            let shared = Arc::clone(&shared);
            move || shared.listen(&listener)
        });
        Proxy {
            address,
            shared,
            listening: Some(listening),
        }
    }

    pub(super) fn host(&self) -> String {
        self.address.to_string()
    }

    /// Lets nothing through from now on, or something again.
    pub(super) fn cut(&self, cut: bool) {
        self.shared.cut.store(cut, Ordering::SeqCst);
    }

    pub(super) fn set(&self, weather: Weather) {
        *self.shared.weather.lock().expect("no panic") = weather;
    }

    pub(super) fn connections(&self) -> u64 {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.closing.store(true, Ordering::SeqCst);
        if let Some(thread) = self.listening.take() {
            thread.join().expect("no panic");
        }
    }
}

impl ProxyShared {
    fn listen(self: &Arc<ProxyShared>, listener: &TcpListener) {
        let mut threads = Vec::new();
        while !self.closing.load(Ordering::SeqCst) {
            let Ok((trainer, _)) = listener.accept() else {
                thread::sleep(SLICE);
                continue;
            };
            let Ok(feeder) = TcpStream::connect(self.to) else {
                continue;
            };
            self.connections.fetch_add(1, Ordering::SeqCst);
            for (from, to, weathered) in [(&trainer, &feeder, false), (&feeder, &trainer, true)] {
                let from = from.try_clone().expect("a socket");
                let to = to.try_clone().expect("a socket");
                let shared = Arc::clone(self);
                threads.push(thread::spawn(move || shared.carry(from, to, weathered)));
            }
        }
        for thread in threads {
            thread.join().expect("no panic");
        }
    }

    /// Writes a part, byte by byte if configured; returns false if the peer is gone.
    fn hand_on(&self, part: &[u8], to: &mut TcpStream, drops: bool) -> bool {
        if !drops {
            return to.write_all(part).is_ok();
        }
        part.iter().all(|byte| {
            thread::sleep(SLICE);
            !self.closing.load(Ordering::SeqCst) && to.write_all(&[*byte]).is_ok()
        })
    }

    fn carry(&self, mut from: TcpStream, mut to: TcpStream, weathered: bool) {
        from.set_nonblocking(false).expect("a socket");
        from.set_read_timeout(Some(SLICE)).expect("a socket");
        let mut bytes = [0; 4096];
        let mut carried = 0_u64;
        while !self.closing.load(Ordering::SeqCst) {
            if self.cut.load(Ordering::SeqCst) {
                thread::sleep(SLICE);
                continue;
            }
            let read = match from.read(&mut bytes) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error)
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    continue;
                }
                Err(_) => break,
            };
            let part = &mut bytes[..read];
            if weathered {
                let weather = *self.weather.lock().expect("no panic");
                thread::sleep(weather.latency);
                let over = |limit: Option<u64>| limit.is_some_and(|limit| carried > limit);
                if over(weather.reset_after) {
                    break;
                }
                if over(weather.cut_after) {
                    continue;
                }
                if let Some(every) = weather.changed_every {
                    for (at, byte) in (carried..).zip(part.iter_mut()) {
                        if at > HANDSHAKE && at.is_multiple_of(every) {
                            *byte ^= 0x10;
                        }
                    }
                }
            }
            carried += read as u64;
            let drops = weathered && {
                let weather = *self.weather.lock().expect("no panic");
                weather
                    .drop_by_drop_after
                    .is_some_and(|after| carried > after)
            };
            if !self.hand_on(part, &mut to, drops) {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
        let _ = from.shutdown(Shutdown::Both);
    }
}
