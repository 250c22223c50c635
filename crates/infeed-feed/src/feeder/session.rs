//! One trainer's connection: the handshake, its requests and its batches.

use std::io::{BufReader, BufWriter};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use infeed_raw::machine::thread_cpu_time;

use super::line::{ASKED, Line, Served};
use super::shared::{FeederShared, SESSIONS};
use crate::wire::WireError;
use crate::wire::bytes::Take;
use crate::wire::channel::{Channel, TLS_HANDSHAKE};
use crate::wire::frame::{self, Kind};
use crate::wire::hello::{self, Met, Policy, Refusal};
use crate::wire::socket::Socket;
use infeed::loader::OnError;
use infeed::loader::digest::DigestScope;
use infeed::loader::remote::{BatchRequest, BatchRules};
use infeed_core::connections::ConnectionEntry;
use infeed_core::order::partition::Partition;

/// Time limit for proving the token.
const PROVING: Duration = Duration::from_secs(5);

/// Time limit for the answer.
const ANSWERING: Duration = Duration::from_secs(5);

/// Longest silence of a trainer, which sends a message every few seconds.
const SILENCE: Duration = Duration::from_secs(60);

/// Longest time without progress in sending a batch.
const TAKING: Duration = Duration::from_secs(30);

/// Size of the write buffer in bytes; longer rows are sent directly.
const BUFFER: usize = 64 << 10;

/// Interval between checks for the end of the session.
const SLICE: Duration = Duration::from_millis(50);

/// Runs a session to its end. `entry` counts the connection until the trainer has proved the token.
pub(super) fn run(
    shared: &FeederShared,
    stream: TcpStream,
    trainer: SocketAddr,
    entry: ConnectionEntry<'_>,
) -> Result<(), WireError> {
    let (channel, met) = match meet(shared, stream) {
        Ok(met) => met,
        // An idle connection, a port scan or a health check; not a failed trainer.
        Err(WireError::Io(error)) => {
            refused(shared);
            tracing::debug!(target: "infeed::feed", "{trainer}: the handshake failed: {error}");
            return Ok(());
        }
        Err(error) => {
            refused(shared);
            return Err(error);
        }
    };
    drop(entry);
    if !shared.take_place() {
        refused(shared);
        let full = room(format!(
            "the feeder already serves {SESSIONS} ranks, its limit"
        ));
        return refuse(shared, &channel, &met, full);
    }
    let ended = feed(shared, &channel, trainer, &met);
    shared.leave_place();
    ended
}

/// Accepts an encrypted or unencrypted connection, and runs the handshake up to the proof of the
/// token.
fn meet(shared: &FeederShared, stream: TcpStream) -> Result<(Channel, Met), WireError> {
    let ends = |_| shared.is_closing();
    let mut channel = Channel::plain(stream);
    let first = {
        let socket = Socket::new(&channel, PROVING, &ends)?;
        socket.set_limit(Some(PROVING));
        socket.peek()?
    };
    if first == TLS_HANDSHAKE {
        channel = Channel::accept(channel.into_stream(), &shared.key)?;
    }
    let socket = Socket::new(&channel, PROVING, &ends)?;
    socket.set_limit(Some(PROVING));
    let binding = socket.shake()?;
    let met = hello::meet_trainer(&socket, &shared.options.token, binding)?;
    Ok((channel, met))
}

/// Answers a trainer that proved the token, and serves its requests.
fn feed(
    shared: &FeederShared,
    channel: &Channel,
    trainer: SocketAddr,
    met: &Met,
) -> Result<(), WireError> {
    let must_encrypt = shared.options.encryption.applies_to(trainer.ip());
    let answer = match must_encrypt && !channel.is_encrypted() {
        true => Err(Refusal {
            what: "encryption".to_owned(),
            trainer: "off".to_owned(),
            feeder: "required".to_owned(),
        }),
        false => seat(shared, met),
    };
    let (line, partition) = match answer {
        Ok(found) => found,
        Err(refusal) => {
            refused(shared);
            return refuse(shared, channel, met, refusal);
        }
    };
    let stream = channel.stream();
    let ends = |_| shared.is_closing();
    let socket = Socket::new(channel, ANSWERING, &ends)?;
    hello::welcome(&socket, &shared.options.token, met)?;
    let number = shared.next.fetch_add(1, Ordering::Relaxed);
    tracing::info!(
        target: "infeed::feed",
        "feeds rank {} of {}", met.hello.rank, met.hello.world_size
    );
    line.sit(number);
    let over = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            if let Err(error) = send(shared, &line, number, channel, &over) {
                tracing::info!(target: "infeed::feed", "lost the connection to a trainer: {error}");
            }
            over.store(true, Ordering::Release);
            let _ = stream.shutdown(Shutdown::Both);
        });
        let ended = hear(shared, &line, number, channel, &over, (met, partition));
        over.store(true, Ordering::Release);
        let _ = stream.shutdown(Shutdown::Both);
        ended
    });
    line.leave(number);
    ended
}

/// Sends a refusal to a trainer that proved the token, and returns the refusal as an error.
fn refuse(
    shared: &FeederShared,
    channel: &Channel,
    met: &Met,
    refusal: Refusal,
) -> Result<(), WireError> {
    let ends = |_| shared.is_closing();
    let socket = Socket::new(channel, ANSWERING, &ends)?;
    hello::refuse(&socket, &shared.options.token, met, &refusal)?;
    Err(WireError::Refused(refusal))
}

fn refused(shared: &FeederShared) {
    shared.refused.fetch_add(1, Ordering::Relaxed);
}

/// Creates a refusal without a difference.
fn room(text: String) -> Refusal {
    Refusal {
        what: "room".to_owned(),
        trainer: String::new(),
        feeder: text,
    }
}

/// Returns the trainer's feeder job and partition, or the reason for rejecting it.
fn seat(shared: &FeederShared, met: &Met) -> Result<(std::sync::Arc<Line>, Partition), Refusal> {
    let hello = &met.hello;
    let line = shared
        .line(hello.world_size, hello.for_device)
        .map_err(|error| room(error.chain()))?;
    if let Some(refusal) = hello::difference(&hello.facts, line.maker().facts()) {
        return Err(refusal);
    }
    let partition = line.maker().batches().partition(hello.rank);
    let partition = partition.map_err(|error| room(error.to_string()))?;
    Ok((line, partition))
}

/// Reads a trainer's requests.
fn hear(
    shared: &FeederShared,
    line: &Line,
    number: u64,
    channel: &Channel,
    over: &AtomicBool,
    (met, partition): (&Met, Partition),
) -> Result<(), WireError> {
    let ends = |_| shared.is_closing() || over.load(Ordering::Acquire);
    let socket = Socket::new(channel, SILENCE, &ends)?;
    let mut from = BufReader::with_capacity(1 << 10, &socket);
    let rules = BatchRules {
        on_error: match met.hello.policy {
            Policy::Stop => OnError::Stop,
            Policy::Substitute => OnError::Substitute,
            Policy::Skip => OnError::Skip,
        },
        digested: match met.hello.pixels {
            true => DigestScope::Pixels,
            false => DigestScope::Ids,
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
        let mut take = Take::new(&body, "a request");
        let (epoch, step) = (take.u64()?, take.u64()?);
        take.end()?;
        let request = BatchRequest {
            partition: partition.clone(),
            epoch,
            step,
            rules,
            by: number,
        };
        if !BatchRequest::is_there(&request) {
            let what = format!("a request for epoch {epoch}, step {step}, which does not exist");
            return Err(WireError::malformed(what));
        }
        if !line.ask(request) {
            let what = format!("more than {ASKED} open requests");
            return Err(WireError::malformed(what));
        }
    }
}

/// Sends finished batches.
fn send(
    shared: &FeederShared,
    line: &Line,
    number: u64,
    channel: &Channel,
    over: &AtomicBool,
) -> Result<(), WireError> {
    let ends = |_| shared.is_closing() || over.load(Ordering::Acquire);
    let socket = Socket::new(channel, TAKING, &ends)?;
    let mut to = BufWriter::with_capacity(BUFFER, &socket);
    while !ends(false) {
        let batch = match line.serve(number, SLICE) {
            Served::Sheet(batch) => batch,
            Served::Timeout => continue,
            Served::Broken(error) => return Err(WireError::malformed(error.chain())),
        };
        let before = thread_cpu_time();
        let sent = line.maker().send(&batch, &mut to);
        let cpu = thread_cpu_time().saturating_sub(before);
        let cpu_ns = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        shared.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
        drop(batch);
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
