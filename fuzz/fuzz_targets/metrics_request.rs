//! Requests of any bytes to the address of the metrics: each gets an answer, or the end of the
//! connection.
#![no_main]

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::OnceLock;

use infeed_explain::report::{MetricsServer, serve_metrics};
use libfuzzer_sys::fuzz_target;

fn server() -> &'static MetricsServer {
    static SERVER: OnceLock<MetricsServer> = OnceLock::new();
    SERVER.get_or_init(|| serve_metrics("127.0.0.1:0", || "metrics".to_owned()).expect("a server"))
}

fuzz_target!(|bytes: &[u8]| {
    // Fails for a second when all ports were used.
    let Ok(mut stream) = TcpStream::connect(server().address()) else {
        return;
    };
    if stream.write_all(bytes).is_err() || stream.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let mut answer = Vec::new();
    if stream.read_to_end(&mut answer).is_ok() && !answer.is_empty() {
        assert!(
            answer.starts_with(b"HTTP/1.1 "),
            "{}",
            answer.escape_ascii()
        );
    }
});
