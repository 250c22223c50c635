//! One trainer's connection: the handshake, its requests and its batches.

use std::io::{BufReader, BufWriter};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use infeed_raw::machine::thread_cpu_time;

use super::feeder_shared::{FeederShared, SESSIONS};
use super::queue::{FeederQueue, MAX_REQUESTS, ServeOutcome};
use crate::wire::WireError;
use crate::wire::bytes::Take;
use crate::wire::channel::{Channel, TLS_HANDSHAKE};
use crate::wire::frame::{self, Kind};
use crate::wire::hello::{self, Policy, Refusal, VerifiedTrainer};
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
    let (channel, peer) = match accept_connection(shared, stream) {
        Ok(peer) => peer,
        // An idle connection, a port scan or a health check; not a failed trainer.
        Err(WireError::Io(error)) => {
            count_refusal(shared);
            tracing::debug!(target: "infeed::feed", "{trainer}: the handshake failed: {error}");
            return Ok(());
        }
        Err(error) => {
            count_refusal(shared);
            return Err(error);
        }
    };
    drop(entry);
    if !shared.try_add_session() {
        count_refusal(shared);
        let full = room(format!(
            "the feeder already serves {SESSIONS} ranks, its limit"
        ));
        return refuse(shared, &channel, &peer, full);
    }
    let ended = serve_trainer(shared, &channel, trainer, &peer);
    shared.remove_session();
    ended
}

/// Accepts an encrypted or unencrypted connection, and runs the handshake up to the proof of the
/// token.
fn accept_connection(
    shared: &FeederShared,
    stream: TcpStream,
) -> Result<(Channel, VerifiedTrainer), WireError> {
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
    let peer = hello::accept_trainer(&socket, &shared.options.token, binding)?;
    Ok((channel, peer))
}

/// Answers a trainer that proved the token, and serves its requests.
fn serve_trainer(
    shared: &FeederShared,
    channel: &Channel,
    trainer: SocketAddr,
    peer: &VerifiedTrainer,
) -> Result<(), WireError> {
    let must_encrypt = shared.options.encryption.applies_to(trainer.ip());
    let answer = match must_encrypt && !channel.is_encrypted() {
        true => Err(Refusal {
            what: "encryption".to_owned(),
            trainer: "off".to_owned(),
            feeder: "required".to_owned(),
        }),
        false => assign_queue(shared, peer),
    };
    let (queue, partition) = match answer {
        Ok(found) => found,
        Err(refusal) => {
            count_refusal(shared);
            return refuse(shared, channel, peer, refusal);
        }
    };
    let stream = channel.stream();
    let ends = |_| shared.is_closing();
    let socket = Socket::new(channel, ANSWERING, &ends)?;
    hello::welcome(&socket, &shared.options.token, peer)?;
    let number = shared.next.fetch_add(1, Ordering::Relaxed);
    tracing::info!(
        target: "infeed::feed",
        "feeds rank {} of {}", peer.hello.rank, peer.hello.world_size
    );
    queue.add_trainer(number);
    let over = AtomicBool::new(false);
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            if let Err(error) = send_batches(shared, &queue, number, channel, &over) {
                tracing::info!(target: "infeed::feed", "lost the connection to a trainer: {error}");
            }
            over.store(true, Ordering::Release);
            let _ = stream.shutdown(Shutdown::Both);
        });
        let ended = receive_requests(shared, &queue, number, channel, &over, (peer, partition));
        over.store(true, Ordering::Release);
        let _ = stream.shutdown(Shutdown::Both);
        ended
    });
    queue.remove_trainer(number);
    ended
}

/// Sends a refusal to a trainer that proved the token, and returns the refusal as an error.
fn refuse(
    shared: &FeederShared,
    channel: &Channel,
    peer: &VerifiedTrainer,
    refusal: Refusal,
) -> Result<(), WireError> {
    let ends = |_| shared.is_closing();
    let socket = Socket::new(channel, ANSWERING, &ends)?;
    hello::refuse(&socket, &shared.options.token, peer, &refusal)?;
    Err(WireError::Refused(refusal))
}

fn count_refusal(shared: &FeederShared) {
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
fn assign_queue(
    shared: &FeederShared,
    peer: &VerifiedTrainer,
) -> Result<(std::sync::Arc<FeederQueue>, Partition), Refusal> {
    let hello = &peer.hello;
    let queue = shared
        .queue(hello.world_size, hello.for_device)
        .map_err(|error| room(error.chain()))?;
    if let Some(refusal) = hello::difference(&hello.facts, queue.maker().facts()) {
        return Err(refusal);
    }
    let partition = queue.maker().batches().partition(hello.rank);
    let partition = partition.map_err(|error| room(error.to_string()))?;
    Ok((queue, partition))
}

/// Reads a trainer's requests.
fn receive_requests(
    shared: &FeederShared,
    queue: &FeederQueue,
    number: u64,
    channel: &Channel,
    over: &AtomicBool,
    (peer, partition): (&VerifiedTrainer, Partition),
) -> Result<(), WireError> {
    let ends = |_| shared.is_closing() || over.load(Ordering::Acquire);
    let socket = Socket::new(channel, SILENCE, &ends)?;
    let mut from = BufReader::with_capacity(1 << 10, &socket);
    let rules = BatchRules {
        on_error: match peer.hello.policy {
            Policy::Stop => OnError::Stop,
            Policy::Substitute => OnError::Substitute,
            Policy::Skip => OnError::Skip,
        },
        digested: match peer.hello.pixels {
            true => DigestScope::Pixels,
            false => DigestScope::Ids,
        },
        limits: peer.hello.limits,
    };
    loop {
        let (kind, body) = match frame::control(&mut from, &[Kind::Request, Kind::KeepAlive]) {
            Ok(frame) => frame,
            Err(WireError::Io(error))
                if over.load(Ordering::Acquire)
                    || error.kind() == std::io::ErrorKind::UnexpectedEof =>
            {
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        if kind == Kind::KeepAlive {
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
        if !queue.request(request) {
            let what = format!("more than {MAX_REQUESTS} open requests");
            return Err(WireError::malformed(what));
        }
    }
}

/// Sends finished batches.
fn send_batches(
    shared: &FeederShared,
    queue: &FeederQueue,
    number: u64,
    channel: &Channel,
    over: &AtomicBool,
) -> Result<(), WireError> {
    let ends = |_| shared.is_closing() || over.load(Ordering::Acquire);
    let socket = Socket::new(channel, TAKING, &ends)?;
    let mut to = BufWriter::with_capacity(BUFFER, &socket);
    while !ends(false) {
        let batch = match queue.next_batch(number, SLICE) {
            ServeOutcome::Batch(batch) => batch,
            ServeOutcome::Timeout => continue,
            ServeOutcome::Broken(error) => return Err(WireError::malformed(error.chain())),
        };
        let before = thread_cpu_time();
        let sent = queue.maker().send(&batch, &mut to);
        let cpu = thread_cpu_time().saturating_sub(before);
        let cpu_ns = u64::try_from(cpu.as_nanos()).unwrap_or(u64::MAX);
        shared.cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
        drop(batch);
        queue.mark_sent(number);
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
