//! A small HTTP server for one page of text, which a collector fetches every few seconds.
//!
//! It stands on `std::net` alone. The whole of HTTP that a collector speaks here is one `GET`
//! without a body and one answer on a connection that is then closed; requests are answered one
//! after another, each within a time and a size. A server library would bring an executor, or
//! threads without a bound, for the ten lines below that read a request line.
//!
//! Source: RFC 9112, sections 2 and 3.

use std::io::{self, Read, Write};
use std::net::ToSocketAddrs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::prometheus::PROMETHEUS_TYPE;

/// A client has this long for its request, and again for taking the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// A request that is longer is refused.
const REQUEST_BYTES: usize = 8 * 1024;
/// How long the server rests when the system has no connection to give, such as for want of file
/// descriptors.
const REST: Duration = Duration::from_secs(1);

/// Answers `GET /metrics` until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

/// What the server's thread and its owner share.
#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    closed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    closing: bool,
    /// The connection that is being answered, so that closing need not wait for its client.
    current: Option<TcpStream>,
}

/// Serves what `source` gives at `http://ADDRESS/metrics`, on a thread named `infeed-metrics`.
///
/// Whoever reaches the address can read the counts: `127.0.0.1:9095` is for this machine only,
/// `0.0.0.0:9095` for the network. Port 0 takes a free one; see [`MetricsServer::address`].
///
/// # Errors
///
/// If the address cannot be bound, for instance because its port is taken, or if no thread can be
/// made.
pub fn serve_metrics(
    addr: impl ToSocketAddrs,
    source: impl Fn() -> String + Send + 'static,
) -> io::Result<MetricsServer> {
    let listener = TcpListener::bind(addr)?;
    let address = listener.local_addr()?;
    let shared = Arc::new(Shared::default());
    let thread = thread::Builder::new()
        .name("infeed-metrics".to_owned())
        .spawn({
            let shared = Arc::clone(&shared);
            move || run(&listener, &shared, &source)
        })?;
    Ok(MetricsServer {
        address,
        shared,
        thread: Some(thread),
    })
}

impl MetricsServer {
    /// Where it listens, with the port that was taken.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    /// Ends the answer under way, and waits for the thread.
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.closing = true;
            if let Some(stream) = &state.current {
                // Reads and writes of the thread return at once. A connection that its client has
                // closed already needs no closing.
                let _ = stream.shutdown(Shutdown::Both);
            }
        }
        self.shared.closed.notify_all();
        // Accepting cannot be interrupted, but a connection ends it. Where none can be made the
        // queue of connections is full, and the thread is not waiting for one.
        let _ = TcpStream::connect_timeout(&reachable(self.address), REST);
        if let Some(thread) = self.thread.take() {
            // A panic of `source` was told by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing under the lock can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An address under which this machine reaches what listens at `address`.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

fn run(listener: &TcpListener, shared: &Shared, source: &dyn Fn() -> String) {
    loop {
        let accepted = listener.accept();
        let mut state = shared.lock();
        if state.closing {
            return;
        }
        match accepted {
            Ok((mut stream, client)) => {
                state.current = stream.try_clone().ok();
                drop(state);
                if let Err(error) = answer(&mut stream, source) {
                    // The client's doing: it left, or it was too slow.
                    tracing::debug!(%client, %error, "a request for metrics was not answered");
                }
                shared.lock().current = None;
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept a request for metrics; trying again");
                // Until closed, or for a moment: the system is asked again, not at once.
                let rested = shared.closed.wait_timeout(state, REST);
                drop(rested.unwrap_or_else(PoisonError::into_inner));
            }
        }
    }
}

/// Reads one request and answers it.
fn answer(stream: &mut TcpStream, source: &dyn Fn() -> String) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let head = read_head(stream)?;
    let (status, kind, body) = match &head {
        None => (
            "431 Request Header Fields Too Large",
            "text/plain",
            "the request is too long\n".to_owned(),
        ),
        Some(head) => match route(head) {
            Route::Metrics => ("200 OK", PROMETHEUS_TYPE, source()),
            Route::OtherMethod => (
                "405 Method Not Allowed\r\nAllow: GET",
                "text/plain",
                "only GET is answered here\n".to_owned(),
            ),
            Route::OtherPath => (
                "404 Not Found",
                "text/plain",
                "the metrics are at /metrics\n".to_owned(),
            ),
            Route::NotHttp => (
                "400 Bad Request",
                "text/plain",
                "this is no HTTP/1.1 request\n".to_owned(),
            ),
        },
    };
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    stream.write_all(answer.as_bytes())?;
    stream.shutdown(Shutdown::Write)
}

/// Reads up to the empty line that ends the head of a request; None if it is too long.
fn read_head(stream: &mut TcpStream) -> io::Result<Option<Vec<u8>>> {
    let until = Instant::now() + PATIENCE;
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > REQUEST_BYTES {
            return Ok(None);
        }
        // What is left of the time for all of it: a client that sends a byte now and then does not
        // get it anew each time.
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        match stream.read(&mut part)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => head.extend_from_slice(&part[..read]),
        }
    }
    Ok((head.len() <= REQUEST_BYTES).then_some(head))
}

/// What a request asks for.
#[derive(Debug, PartialEq)]
enum Route {
    Metrics,
    OtherMethod,
    OtherPath,
    NotHttp,
}

fn route(head: &[u8]) -> Route {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else {
        return Route::NotHttp;
    };
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else {
        return Route::NotHttp;
    };
    let path = target.split('?').next().unwrap_or_default();
    match (version.starts_with("HTTP/1."), path, method) {
        (false, _, _) => Route::NotHttp,
        (_, "/metrics", "GET") => Route::Metrics,
        (_, "/metrics", _) => Route::OtherMethod,
        _ => Route::OtherPath,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server() -> MetricsServer {
        serve_metrics("127.0.0.1:0", || "infeed_samples_total 7\n".to_owned()).expect("a free port")
    }

    fn ask(server: &MetricsServer, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        // A refused request may end with a reset, after its answer.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn metrics_are_given_to_whoever_gets_them() {
        let server = server();

        for path in ["/metrics", "/metrics?name=infeed"] {
            let answer = ask(
                &server,
                &format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n"),
            );

            assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
            assert!(answer.contains("Content-Type: text/plain; version=0.0.4"));
            assert!(answer.contains("Content-Length: 23\r\n"));
            assert!(answer.ends_with("\r\n\r\ninfeed_samples_total 7\n"));
        }
    }

    #[test]
    fn other_requests_are_told_what_is_wrong_with_them() {
        let server = server();
        let long = format!("GET /metrics HTTP/1.1\r\nX: {}\r\n\r\n", "x".repeat(9000));

        for (request, status) in [
            ("GET / HTTP/1.1\r\n\r\n", "404"),
            ("POST /metrics HTTP/1.1\r\n\r\n", "405"),
            ("GET /metrics\r\n\r\n", "400"),
            ("\u{1}\u{2}\r\n\r\n", "400"),
            (long.as_str(), "431"),
        ] {
            let answer = ask(&server, request);

            assert!(
                answer.starts_with(&format!("HTTP/1.1 {status} ")),
                "{answer}"
            );
        }
        let answer = ask(&server, "GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200"), "it still answers");
    }

    #[test]
    fn dropping_it_frees_the_port_and_waits_for_no_client() {
        let server = server();
        let address = server.address();
        let begun = Instant::now();
        // One that says nothing, and one in the queue behind it.
        let _silent = TcpStream::connect(address).expect("it listens");
        let _queued = TcpStream::connect(address).expect("it listens");

        drop(server);

        assert!(begun.elapsed() < PATIENCE, "{:?}", begun.elapsed());
        assert!(TcpStream::connect(address).is_err(), "nobody listens");
        serve_metrics(address, String::new).expect("the port is free");
    }

    #[test]
    fn a_port_that_is_taken_is_an_error() {
        let server = server();

        let error = serve_metrics(server.address(), String::new).expect_err("taken");

        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
