//! One trainer's connection: the handshake, what it asks for, what it is sent.

use std::io::{BufReader, BufWriter};
use std::net::{Shutdown, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use infeed_raw::machine::thread_cpu_time;

use super::Shared;
use super::line::{ASKED, Line, Served};
use crate::loader::OnError;
use crate::loader::digest::Digested;
use crate::loader::names::{Named, Terms};
use crate::order::partition::Partition;
use crate::wire::WireError;
use crate::wire::bytes::Take;
use crate::wire::frame::{self, Kind};
use crate::wire::hello::{self, Met, Policy, Refusal};
use crate::wire::socket::Socket;

/// For the whole handshake.
const SHAKING: Duration = Duration::from_secs(10);

/// A trainer that says nothing for so long is gone; it speaks every few seconds.
const SILENCE: Duration = Duration::from_secs(60);

/// A trainer that takes no byte of a batch for so long is cut off.
const TAKING: Duration = Duration::from_secs(30);

/// Bytes gathered before they are sent; rows that are longer go as they are.
const BUFFER: usize = 64 << 10;

/// Between two looks at whether the session is over.
const SLICE: Duration = Duration::from_millis(50);

/// Runs a session to its end.
pub(super) fn run(shared: &Shared, stream: &TcpStream) -> Result<(), WireError> {
    let ends = |_| shared.is_closing();
    let socket = Socket::new(stream, SHAKING, &ends)?;
    socket.set_limit(Some(SHAKING));
    let token = &shared.options.token;
    let met = hello::meet_trainer(&socket, token).inspect_err(|_| refused(shared))?;
    let answer = seat(shared, &met);
    let (line, partition) = match answer {
        Ok(found) => found,
        Err(refusal) => {
            refused(shared);
            hello::refuse(&socket, &refusal)?;
            return Err(WireError::Refused(refusal));
        }
    };
    hello::welcome(&socket, token, &met)?;
    let number = shared.next.fetch_add(1, Ordering::Relaxed);
    tracing::info!(
        target: "infeed::feed",
        "feeds rank {} of {}", met.hello.rank, met.hello.world_size
    );
    line.sit(number);
    let over = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            if let Err(error) = send(shared, &line, number, stream, &over) {
                tracing::info!(target: "infeed::feed", "a trainer is gone: {error}");
            }
            over.store(true, Ordering::Release);
            let _ = stream.shutdown(Shutdown::Both);
        });
        let ended = hear(shared, &line, number, stream, &over, (&met, partition));
        over.store(true, Ordering::Release);
        let _ = stream.shutdown(Shutdown::Both);
        ended
    });
    line.leave(number);
    ended
}

fn refused(shared: &Shared) {
    shared.refused.fetch_add(1, Ordering::Relaxed);
}

/// The line that makes a trainer's batches, and its part of the order; or why it is not fed.
fn seat(shared: &Shared, met: &Met) -> Result<(std::sync::Arc<Line>, Partition), Refusal> {
    let hello = &met.hello;
    let room = |text: String| Refusal {
        what: "room".to_owned(),
        trainer: String::new(),
        feeder: text,
    };
    let line = shared
        .line(hello.world_size, hello.for_device)
        .map_err(|error| room(error.chain()))?;
    if let Some(refusal) = hello::difference(&hello.facts, line.maker().facts()) {
        return Err(refusal);
    }
    let partition = line.maker().partition(hello.rank);
    let partition = partition.map_err(|error| room(error.to_string()))?;
    Ok((line, partition))
}

/// Reads what a trainer asks for.
fn hear(
    shared: &Shared,
    line: &Line,
    number: u64,
    stream: &TcpStream,
    over: &AtomicBool,
    (met, partition): (&Met, Partition),
) -> Result<(), WireError> {
    let ends = |_| shared.is_closing() || over.load(Ordering::Acquire);
    let socket = Socket::new(stream, SILENCE, &ends)?;
    let mut from = BufReader::with_capacity(1 << 10, &socket);
    let terms = Terms {
        on_error: match met.hello.policy {
            Policy::Stop => OnError::Stop,
            Policy::Substitute => OnError::Substitute,
            Policy::Skip => OnError::Skip,
        },
        digested: match met.hello.pixels {
            true => Digested::Pixels,
            false => Digested::Ids,
        },
        limits: met.hello.limits,
    };
    loop {
        let (kind, body) = match frame::control(&mut from, &[Kind::Ask, Kind::Here]) {
            Ok(frame) => frame,
            Err(WireError::Io(error))
                if over.load(Ordering::Acquire)
                    || error.kind() == std::io::ErrorKind::UnexpectedEof =>
            {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if kind == Kind::Here {
            continue;
        }
        let mut take = Take::new(&body, "a question");
        let (epoch, step) = (take.u64()?, take.u64()?);
        take.end()?;
        let named = Named {
            partition,
            epoch,
            step,
            terms,
            by: number,
        };
        if !Named::is_there(&named) {
            let what = format!("a question for epoch {epoch}, step {step}, which there is not");
            return Err(WireError::malformed(what));
        }
        if !line.ask(named) {
            let what = format!("more than {ASKED} questions at once");
            return Err(WireError::malformed(what));
        }
    }
}

/// Sends what was made.
fn send(
    shared: &Shared,
    line: &Line,
    number: u64,
    stream: &TcpStream,
    over: &AtomicBool,
) -> Result<(), WireError> {
    let ends = |_| shared.is_closing() || over.load(Ordering::Acquire);
    let socket = Socket::new(stream, TAKING, &ends)?;
    let mut to = BufWriter::with_capacity(BUFFER, &socket);
    while !ends(false) {
        let sheet = match line.serve(number, SLICE) {
            Served::Sheet(sheet) => sheet,
            Served::Timeout => continue,
            Served::Broken(error) => return Err(WireError::malformed(error.chain())),
        };
        let before = thread_cpu_time();
        let sent = line.maker().send(&sheet, &mut to);
        let cpu = thread_cpu_time().saturating_sub(before);
        let cpu_ns = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        shared.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
        drop(sheet);
        line.sent(number);
        let (bytes, were_rows) = sent?;
        let count = match were_rows {
            true => &shared.batches,
            false => &shared.declined,
        };
        count.fetch_add(1, Ordering::Relaxed);
        shared.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
    Ok(())
}
