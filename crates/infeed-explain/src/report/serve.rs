//! A small HTTP server for one page of text, which a collector fetches every few seconds.
//!
//! It uses only `std::net`. A collector sends one `GET` without a body, and the server closes the
//! connection after the answer. Each connection has a thread, a time limit and a size limit. The
//! number of connections is limited: at the limit, the server closes the oldest, so that idle
//! clients cannot block a collector. An HTTP library would bring an async runtime for the ten lines
//! below that read a request.
//!
//! Source: RFC 9112, sections 2 and 3.

use std::io::{self, Read, Write};
use std::net::ToSocketAddrs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::prometheus::PROMETHEUS_TYPE;
use infeed_core::connections::Connections;

/// Maximum time to receive a request, and again to send the answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a request in bytes.
const REQUEST_BYTES: usize = 8 * 1024;
/// Maximum number of concurrent connections, in total and per address.
const CONNECTIONS: usize = 64;
const CONNECTIONS_PER_ADDRESS: usize = 32;
/// Pause after a failed accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Answers `GET /metrics` until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    shared: Arc<ServerState>,
    thread: Option<JoinHandle<()>>,
}

/// State shared by the server's threads and its owner.
#[derive(Debug)]
struct ServerState {
    timeout: Duration,
    closing: Mutex<bool>,
    closed: Condvar,
    connections: Connections,
}

/// Serves the text of `source` at `http://ADDRESS/metrics`, on a thread named `infeed-metrics`.
///
/// Every machine that reaches the address can read the counters: `127.0.0.1:9095` is for this
/// machine only, `0.0.0.0:9095` for the network. Port 0 picks a free port; see
/// [`MetricsServer::address`].
///
/// # Errors
///
/// If the address cannot be bound, for example because its port is in use, or if no thread can be
/// created.
pub fn serve_metrics(
    addr: impl ToSocketAddrs,
    source: impl Fn() -> String + Send + Sync + 'static,
) -> io::Result<MetricsServer> {
    serve_within(TIMEOUT, addr, source)
}

/// As [`serve_metrics`], with a maximum time to receive a request, and again to send the answer.
fn serve_within(
    timeout: Duration,
    addr: impl ToSocketAddrs,
    source: impl Fn() -> String + Send + Sync + 'static,
) -> io::Result<MetricsServer> {
    let listener = TcpListener::bind(addr)?;
    let address = listener.local_addr()?;
    let shared = Arc::new(ServerState {
        timeout,
        closing: Mutex::new(false),
        closed: Condvar::new(),
        connections: Connections::new(CONNECTIONS, CONNECTIONS_PER_ADDRESS),
    });
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
    /// Returns the bound address with the actual port.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
    /// Ends the answers in progress and waits for the threads.
    fn drop(&mut self) {
        *self.shared.lock() = true;
        // Reads and writes of the threads return at once.
        self.shared.connections.close_all();
        self.shared.closed.notify_all();
        // Accepting cannot be interrupted, but a connection ends it. If no connection is possible,
        // the queue of connections is full, and the thread is not blocked in accept.
        let _ = TcpStream::connect_timeout(&reachable(self.address), ACCEPT_PAUSE);
        if let Some(thread) = self.thread.take() {
            // The panic hook already reported a panic of `source`.
            let _ = thread.join();
        }
    }
}

impl ServerState {
    fn lock(&self) -> MutexGuard<'_, bool> {
        // No code under the lock can panic half way.
        self.closing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns an address at which this machine reaches a listener on `address`.
fn reachable(mut address: SocketAddr) -> SocketAddr {
    if address.ip().is_unspecified() {
        address.set_ip(match address.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    address
}

fn run(listener: &TcpListener, shared: &ServerState, source: &(dyn Fn() -> String + Sync)) {
    thread::scope(|scope| {
        loop {
            let accepted = listener.accept();
            let closing = shared.lock();
            if *closing {
                return;
            }
            let entered = accepted.and_then(|(stream, client)| {
                // Under the lock, so that a new connection is either closed with the others or
                // rejected.
                let entry = shared.connections.enter(&stream, client)?;
                let thread = thread::Builder::new().name("infeed-metrics".to_owned());
                let answer = move || {
                    if let Err(error) = answer(stream, shared.timeout, source) {
                        // The client left, was too slow, or was the oldest at the limit.
                        tracing::debug!(%client, %error, "a request for metrics was not answered");
                    }
                    if let Some(report) = &entry.report {
                        tracing::warn!("metrics: {report}");
                    }
                };
                thread.spawn_scoped(scope, answer).map(drop)
            });
            if let Err(error) = entered {
                tracing::warn!(%error, "cannot accept a request for metrics; trying again");
                // Waits before the next attempt, and returns early when the server closes.
                let rested = shared.closed.wait_timeout(closing, ACCEPT_PAUSE);
                drop(rested.unwrap_or_else(PoisonError::into_inner));
            }
        }
    });
}

/// Reads one request and answers it.
fn answer(mut stream: TcpStream, timeout: Duration, source: &dyn Fn() -> String) -> io::Result<()> {
    stream.set_write_timeout(Some(timeout))?;
    let head = read_head(&mut stream, timeout)?;
    let (status, kind, body) = match &head {
        None => (
            "431 Request Header Fields Too Large",
            "text/plain",
            "the request is too long\n".to_owned(),
        ),
        Some(head) => match route(head) {
            RequestTarget::Metrics => ("200 OK", PROMETHEUS_TYPE, source()),
            RequestTarget::OtherMethod => (
                "405 Method Not Allowed\r\nAllow: GET",
                "text/plain",
                "only GET is supported\n".to_owned(),
            ),
            RequestTarget::OtherPath => (
                "404 Not Found",
                "text/plain",
                "the metrics are at /metrics\n".to_owned(),
            ),
            RequestTarget::NotHttp => (
                "400 Bad Request",
                "text/plain",
                "this is not an HTTP/1.1 request\n".to_owned(),
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

/// Reads up to the empty line that ends the head of a request. None if the head is too long.
fn read_head(stream: &mut TcpStream, timeout: Duration) -> io::Result<Option<Vec<u8>>> {
    let until = Instant::now() + timeout;
    let mut head = Vec::new();
    let mut part = [0; 1024];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() > REQUEST_BYTES {
            return Ok(None);
        }
        // The timeout covers the whole head, so a client cannot extend it with single bytes.
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

/// Target of a request.
#[derive(Debug, PartialEq)]
enum RequestTarget {
    Metrics,
    OtherMethod,
    OtherPath,
    NotHttp,
}

fn route(head: &[u8]) -> RequestTarget {
    let line = head.split(|&byte| byte == b'\r').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else {
        return RequestTarget::NotHttp;
    };
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else {
        return RequestTarget::NotHttp;
    };
    let path = target.split('?').next().unwrap_or_default();
    match (version.starts_with("HTTP/1."), path, method) {
        (false, _, _) => RequestTarget::NotHttp,
        (_, "/metrics", "GET") => RequestTarget::Metrics,
        (_, "/metrics", _) => RequestTarget::OtherMethod,
        _ => RequestTarget::OtherPath,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A test that waits for this timeout of a connection exceeds the time limit of tests.
    const HOUR: Duration = Duration::from_secs(3600);

    fn server() -> MetricsServer {
        let metrics = || "infeed_samples_total 7\n".to_owned();
        serve_within(HOUR, "127.0.0.1:0", metrics).expect("a free port")
    }

    fn ask(server: &MetricsServer, request: &str) -> String {
        let mut stream = TcpStream::connect(server.address()).expect("it listens");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        // A rejected request may end with a reset after its answer.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    #[test]
    fn get_requests_receive_the_metrics() {
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
    fn other_requests_receive_an_error_that_names_the_problem() {
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
    fn idle_connections_do_not_block_a_collector() {
        let server = server();
        let connect = |_| TcpStream::connect(server.address()).expect("it listens");
        let _idle: Vec<TcpStream> = (0..500).map(connect).collect();

        let answer = ask(&server, "GET /metrics HTTP/1.1\r\n\r\n");

        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }

    #[test]
    fn dropping_the_server_frees_the_port_and_waits_for_no_client() {
        let server = server();
        let address = server.address();
        // A client that sends nothing, and another one behind it in the queue.
        let _silent = TcpStream::connect(address).expect("it listens");
        let _queued = TcpStream::connect(address).expect("it listens");

        drop(server);

        assert!(TcpStream::connect(address).is_err(), "the port is closed");
        serve_metrics(address, String::new).expect("the port is free");
    }

    #[test]
    fn a_port_in_use_is_an_error() {
        let server = server();

        let error = serve_metrics(server.address(), String::new).expect_err("taken");

        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }
}
