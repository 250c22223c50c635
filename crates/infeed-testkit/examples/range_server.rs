//! Serves a folder as a local bucket:
//! `cargo run --release --example range_server -- photos bucket/photos`. Prints its URL first. A
//! line on standard input with a number of milliseconds sets the latency. The end of the input
//! stops the server.

use std::io::{self, BufRead as _, Write as _};
use std::path::Path;
use std::time::Duration;

use infeed_testkit::server::Server;

fn main() -> io::Result<()> {
    let mut args = std::env::args().skip(1);
    let (Some(folder), Some(prefix)) = (args.next(), args.next()) else {
        return Err(io::Error::other("name a folder and the keys' beginning"));
    };
    let server = Server::start()?;
    server.put_folder(&prefix, Path::new(&folder))?;
    println!("{}", server.url());
    io::stdout().flush()?;
    for line in io::stdin().lock().lines() {
        let milliseconds: f64 = line?.trim().parse().map_err(io::Error::other)?;
        server.set_latency(Duration::from_secs_f64(milliseconds / 1e3));
        println!("latency {milliseconds} ms");
        io::stdout().flush()?;
    }
    Ok(())
}
