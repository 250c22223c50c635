//! One feeder: connection, requests ahead, answers, and late or lost answers.

use std::cell::Cell;
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::busy::CpuLaps;
use super::receive::{self, ReceiveOutcome};
use super::trainer_shared::{Host, TrainerShared, add, lock};
use crate::hosts::FeederAddress;
use crate::wire::WireError;
use crate::wire::bytes::{Put, Take};
use crate::wire::channel::Channel;
use crate::wire::frame::{self, CONTROL_BYTES, Kind};
use crate::wire::hello::{self, Refusal};
use crate::wire::rows::{HEAD_BYTES, RowsHead};
use crate::wire::socket::{SLICE, Socket};
use infeed_core::exec::lease::{Lease, LeaseOutcome, ReturnReason};

/// Open requests per feeder: one that it makes, one in transfer, one waiting.
pub(super) const DEPTH: usize = 3;

/// Timeout of the connection, its encryption, and the first part of the handshake.
const CONNECTING: Duration = Duration::from_secs(3);

/// Timeout of a feeder's answer to the handshake. At its first trainer, a feeder opens the pipeline,
/// which may start Python processes and import modules.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Pause before a lost feeder is called again: the first one, doubled each time up to the longest.
const REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_secs(5);

/// Interval of messages that keep an idle connection open.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

/// Maximum duration of one batch's transfer, in deadlines. Limits a sender that only trickles
/// bytes.
const FRAME: u32 = 10;

/// Consecutive corrupt batches after which the connection is closed.
const STRIKES: u32 = 3;

/// Size of the read buffer. Longer rows are read directly into their slab.
const BUFFER: usize = 16 << 10;

/// Result of the first attempt to reach a feeder.
pub(super) enum ConnectOutcome {
    Connected,
    Refused(Refusal),
    Unreachable,
}

/// Body of a feeder's thread: keeps a connection while the loader is open.
pub(super) fn run(
    shared: &TrainerShared,
    number: usize,
    outcomes: &Sender<(usize, ConnectOutcome)>,
) {
    let host = &shared.hosts[number];
    let mut rest = REST;
    let mut is_reported = false;
    let mut report = |what: ConnectOutcome| {
        if !std::mem::replace(&mut is_reported, true) {
            // `open` may have stopped waiting.
            let _ = outcomes.send((number, what));
        }
    };
    let hosts = &shared.terms.feeders.hosts;
    while !shared.is_closed() {
        let address = host.update_address(hosts);
        if address.host.is_empty() {
            report(ConnectOutcome::Unreachable);
            std::thread::sleep(REST);
            continue;
        }
        let failed = match connect(shared, host, &address) {
            Ok(channel) => {
                rest = REST;
                host.able.store(true, Ordering::Release);
                shared.share_out();
                tracing::info!(target: "infeed::feeders", "{}: feeds this run", host.name());
                report(ConnectOutcome::Connected);
                let ended = run_connection(shared, host, &channel);
                host.able.store(false, Ordering::Release);
                shared.share_out();
                if !shared.is_over(host) {
                    add(&host.lost, 1);
                }
                ended
                    .err()
                    .map_or("the connection ended".to_owned(), |e| e.to_string())
            }
            Err(error) => {
                match &error {
                    WireError::Refused(refusal) => {
                        add(&host.refused, 1);
                        report(ConnectOutcome::Refused(refusal.clone()));
                    }
                    // Any process at that address can send this, so it does not end `open`.
                    WireError::Unproven(_) => {
                        add(&host.refused, 1);
                        report(ConnectOutcome::Unreachable);
                    }
                    _ => report(ConnectOutcome::Unreachable),
                }
                error.to_string()
            }
        };
        if shared.is_over(host) {
            rest = REST;
            continue;
        }
        let before = lock(&host.problem).replace(failed.clone());
        if before.as_ref() != Some(&failed) {
            tracing::warn!(
                target: "infeed::feeders",
                "{}: {failed}; its batches are made elsewhere until it reconnects", host.name()
            );
        }
        let until = Instant::now() + rest;
        while Instant::now() < until && !shared.is_over(host) {
            std::thread::sleep(SLICE.min(rest));
        }
        rest = match shared.is_over(host) {
            true => REST,
            false => (2 * rest).min(LONGEST_REST),
        };
    }
}

/// Connects. On success, both sides have proved the token.
fn connect(
    shared: &TrainerShared,
    host: &Host,
    address: &FeederAddress,
) -> Result<Channel, WireError> {
    let mut found = Err(io::Error::new(
        io::ErrorKind::NotFound,
        "the host has no address",
    ));
    for socket_address in address.host.to_socket_addrs()? {
        found = TcpStream::connect_timeout(&socket_address, CONNECTING);
        if found.is_ok() || shared.is_over(host) {
            break;
        }
    }
    let stream = found?;
    let feeders = &shared.terms.feeders;
    let channel = match feeders.encryption.applies_to(stream.peer_addr()?.ip()) {
        true => Channel::connect(stream)?,
        false => Channel::plain(stream),
    };
    let ends = |_| shared.is_over(host);
    let socket = Socket::new(&channel, CONNECTING, &ends)?;
    socket.set_limit(Some(CONNECTING));
    let binding = socket.shake()?;
    let token = address.token.as_ref().unwrap_or(&feeders.token);
    let wait = || {
        socket.set_timeout(ANSWER_TIMEOUT);
        socket.set_limit(Some(ANSWER_TIMEOUT));
    };
    hello::greet(&socket, token, binding, &shared.terms.hello, wait)?;
    Ok(channel)
}

/// Requests to a feeder.
#[derive(Debug, Default)]
struct FeederRequests {
    state: Mutex<HostState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct HostState {
    /// Open requests with their start times.
    open: Vec<(Lease, Instant)>,
    /// Leases that were returned because the feeder was too slow. Its answer may still come.
    late: Vec<Lease>,
    /// Start of a period in which the feeder is late. It gets no requests until it answers.
    slow: Option<Instant>,
    over: bool,
    /// Usual duration of an answer: a moving average.
    usual: Option<Duration>,
}

impl FeederRequests {
    fn lock(&self) -> MutexGuard<'_, HostState> {
        // No code panics while it holds the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }
}

impl HostState {
    /// Longest wait for an answer.
    fn deadline(&self, least: Duration) -> Duration {
        match self.usual {
            Some(usual) => least.max(usual.saturating_mul(5)),
            None => least.saturating_mul(5),
        }
    }

    /// Removes the request of an answer. Returns its lease, and its start time unless it is late.
    /// If a batch was requested twice, takes the later request.
    fn take_request(&mut self, in_flight: u64) -> Option<(Lease, Option<Instant>)> {
        let of_in_flight = |lease: &Lease| lease.in_flight() == in_flight;
        let open = self.open.iter().enumerate();
        let open = open.filter(|(_, (lease, _))| of_in_flight(lease));
        if let Some((at, _)) = open.max_by_key(|(_, (lease, _))| *lease) {
            let (lease, requested_at) = self.open.remove(at);
            return Some((lease, Some(requested_at)));
        }
        let at = self.late.iter().position(of_in_flight)?;
        Some((self.late.swap_remove(at), None))
    }
}

/// Sends requests and reads answers until the connection ends.
fn run_connection(shared: &TrainerShared, host: &Host, channel: &Channel) -> Result<(), WireError> {
    let stream = channel.stream();
    let requests = FeederRequests::default();
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            if let Err(error) = request_batches(shared, host, channel, &requests) {
                tracing::debug!(target: "infeed::feeders", "{}: {error}", host.name());
            }
            // The reader has nothing to wait for.
            requests.end();
            let _ = stream.shutdown(Shutdown::Both);
        });
        let ended = receive_answers(shared, host, channel, &requests);
        requests.end();
        let _ = stream.shutdown(Shutdown::Both);
        ended
    });
    let left = std::mem::take(&mut requests.lock().open);
    add(&host.redone, left.len() as u64);
    for (lease, _) in left {
        shared.batches.give_back(lease, ReturnReason::Lost);
    }
    ended
}

/// Requests batches, a few ahead.
fn request_batches(
    shared: &TrainerShared,
    host: &Host,
    channel: &Channel,
    requests: &FeederRequests,
) -> Result<(), WireError> {
    let ends = |_| shared.is_over(host) || requests.lock().over;
    let timeout = shared.terms.feeders.deadline.max(CONNECTING);
    let socket = Socket::new(channel, timeout, &ends)?;
    let steps = shared.batches.partition().steps();
    let mut last_sent = Instant::now();
    loop {
        if ends(false) {
            return Ok(());
        }
        if last_sent.elapsed() > KEEP_ALIVE {
            send_frame(&socket, Kind::KeepAlive, &[])?;
            last_sent = Instant::now();
        }
        {
            let state = requests.lock();
            if state.open.len() + state.late.len() >= DEPTH || state.slow.is_some() {
                let woken = requests.changed.wait_timeout(state, SLICE * 5);
                drop(woken.unwrap_or_else(PoisonError::into_inner));
                continue;
            }
        }
        match shared.batches.take(SLICE * 5) {
            LeaseOutcome::Batch(lease) => {
                let mut state = requests.lock();
                state.open.push((lease, Instant::now()));
                drop(state);
                let mut put = Put::default();
                put.u64(lease.in_flight() / steps)
                    .u64(lease.in_flight() % steps);
                send_frame(&socket, Kind::Request, &put.finish())?;
                last_sent = Instant::now();
            }
            LeaseOutcome::Timeout => {}
            LeaseOutcome::Ended => return Ok(()),
        }
    }
}

fn send_frame(mut socket: &Socket<'_>, kind: Kind, body: &[u8]) -> Result<(), WireError> {
    let mut frame = Vec::new();
    frame::write(&mut frame, kind, body)?;
    Ok(socket.write_all(&frame)?)
}

/// Reads answers, and returns leases whose answer does not come in time.
fn receive_answers(
    shared: &TrainerShared,
    host: &Host,
    channel: &Channel,
    requests: &FeederRequests,
) -> Result<(), WireError> {
    let least = shared.terms.feeders.deadline;
    let last_answer = Cell::new(Instant::now());
    // Whether a batch is being read: later answers cannot come before its end.
    let reading = Cell::new(false);
    // Whether this thread has rows of an in-flight batch, which a reset waits for.
    let filling = Cell::new(false);
    let ends = |stalled| {
        let late = !reading.get() && find_late(shared, host, requests, last_answer.get());
        // Between rows, `receive::columns` releases the batch by itself. A stalled read cannot.
        let waited_for = stalled && filling.get() && shared.batches.is_stopping();
        late || requests.lock().over || shared.is_over(host) || waited_for
    };
    let socket = Socket::new(channel, Duration::MAX, &ends)?;
    let mut from = BufReader::with_capacity(BUFFER, &socket);
    let job = &shared.batches;
    let rows_at = |step: u64| job.partition().rows_at(step) as usize;
    let steps = job.partition().steps();
    let mut strikes = 0;
    let mut cpu = CpuLaps::begin();
    loop {
        cpu.lap(&host.cpu_ns);
        socket.set_timeout(Duration::MAX);
        socket.set_limit(None);
        let head = frame::head(&mut from, |kind| match kind {
            Kind::Rows => HEAD_BYTES,
            Kind::Declined => CONTROL_BYTES,
            _ => 0,
        })?;
        let receiving = shared.receiving.begin(&host.receiving_ns);
        reading.set(true);
        let deadline = requests.lock().deadline(least);
        socket.set_timeout(deadline);
        socket.set_limit(Some(deadline.saturating_mul(FRAME)));
        let body = frame::body(&mut from, head)?;
        let declined = match head.kind {
            Kind::Rows => false,
            Kind::Declined => true,
            other => {
                let what = format!("{other:?} instead of rows");
                return Err(WireError::malformed(what));
            }
        };
        let (epoch, step) = RowsHead::name(&body)?;
        let in_flight = epoch.checked_mul(steps).and_then(|t| t.checked_add(step));
        let in_flight = in_flight.filter(|_| step < steps);
        let found = in_flight.and_then(|in_flight| requests.lock().take_request(in_flight));
        let (Some(in_flight), Some((lease, requested_at))) = (in_flight, found) else {
            let what = format!("epoch {epoch}, step {step}, which was not requested");
            return Err(WireError::malformed(what));
        };
        // A feeder answers in order, so this answer could not start before the previous one ended.
        let took = requested_at.map(|at| at.max(last_answer.get()).elapsed());
        if declined {
            let why = Take::new(&body[16..], "an answer").text(1024)?;
            tracing::debug!(
                target: "infeed::feeders",
                "{}: declines epoch {epoch}, step {step}: {why}", host.name()
            );
            add(&host.declined, 1);
            shared.batches.give_back(lease, ReturnReason::Declined);
            last_answer.set(Instant::now());
            reading.set(false);
            record_answer(shared, host, requests, took);
            continue;
        }
        let received = match RowsHead::decode(&body, &shared.terms.layout, rows_at(step)) {
            Ok(head) => receive::check(&head, job, shared.terms.hello.policy).and_then(|()| {
                let begun = shared.batches.begin(lease);
                filling.set(begun.is_some());
                let layout = &shared.terms.layout;
                receive::columns(&mut from, head, layout, begun, &shared.batches, in_flight)
            }),
            Err(error) => Err(error),
        };
        filling.set(false);
        reading.set(false);
        drop(receiving);
        if received.is_err() {
            // This lease is no longer in `open`, so only this code can return it. If its rows were
            // taken, dropping them has returned it already.
            add(&host.redone, 1);
            shared.batches.give_back(lease, ReturnReason::Lost);
        }
        match received? {
            ReceiveOutcome::Filled(batch) => {
                // Counters include every batch that a consumer has.
                add(&host.batches, 1);
                add(&host.bytes, batch.bytes);
                let took = requested_at.map(|at| at.elapsed()).unwrap_or_default();
                add(
                    &host.wait_ns,
                    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
                );
                batch.finish();
                strikes = 0;
            }
            ReceiveOutcome::Unwanted => {}
            ReceiveOutcome::Corrupt => {
                add(&host.corrupt, 1);
                add(&host.redone, 1);
                strikes += 1;
                tracing::warn!(
                    target: "infeed::feeders",
                    "{}: checksum mismatch in epoch {epoch}, step {step}", host.name()
                );
                if strikes >= STRIKES {
                    return Err(WireError::Corrupt("consecutive batches"));
                }
            }
        }
        last_answer.set(Instant::now());
        record_answer(shared, host, requests, took);
    }
}

/// Records that an answer came. `took` is its duration, unless it was late.
fn record_answer(
    shared: &TrainerShared,
    host: &Host,
    requests: &FeederRequests,
    took: Option<Duration>,
) {
    let mut state = requests.lock();
    if let Some(took) = took {
        state.usual = Some(match state.usual {
            Some(usual) => (7 * usual + took) / 8,
            None => took,
        });
    }
    let was_slow = state.slow.take().is_some();
    drop(state);
    requests.changed.notify_all();
    if was_slow {
        host.able.store(true, Ordering::Release);
        shared.share_out();
    }
}

/// Returns the leases whose answers are late. The result is whether to close the connection.
fn find_late(
    shared: &TrainerShared,
    host: &Host,
    requests: &FeederRequests,
    last_answer: Instant,
) -> bool {
    let mut state = requests.lock();
    if state.over {
        return true;
    }
    let deadline = state.deadline(shared.terms.feeders.deadline);
    let is_late =
        |(_, requested_at): &(Lease, Instant)| last_answer.max(*requested_at).elapsed() > deadline;
    let late: Vec<Lease> = state
        .open
        .extract_if(.., |open| is_late(open))
        .map(|(lease, _)| lease)
        .collect();
    if late.is_empty() {
        let silent = |since: Instant| since.max(last_answer).elapsed() > deadline.saturating_mul(4);
        return state.slow.is_some_and(silent);
    }
    state.late.extend(&late);
    let was_slow = state.slow.replace(Instant::now()).is_some();
    drop(state);
    if !was_slow {
        host.able.store(false, Ordering::Release);
        shared.share_out();
        tracing::warn!(
            target: "infeed::feeders",
            "{}: no batch for {:.1} s; its open batches are made elsewhere",
            host.name(),
            deadline.as_secs_f64()
        );
    }
    add(&host.redone, late.len() as u64);
    for lease in late {
        shared.batches.give_back(lease, ReturnReason::Lost);
    }
    false
}
