//! One feeder: connecting, asking ahead, reading what comes, and what happens when nothing does.

use std::cell::Cell;
use std::io::{self, BufReader, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::sync::atomic::Ordering;
use std::sync::mpsc::Sender;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::busy::CpuLaps;
use super::receive::{self, Came};
use super::{DEPTH, First, Host, Place, Shared, add, lock};
use crate::exec::lend::{Lease, Returned, Taken};
use crate::wire::WireError;
use crate::wire::bytes::{Put, Take};
use crate::wire::frame::{self, CONTROL_BYTES, Kind};
use crate::wire::hello;
use crate::wire::rows::{HEAD_BYTES, RowsHead};
use crate::wire::socket::{SLICE, Socket};

/// For the connection to be made, and for the handshake on it.
const CONNECTING: Duration = Duration::from_secs(3);

/// Rest before a lost feeder is called again: the first, doubled each time, and the last.
const REST: Duration = Duration::from_millis(50);
const LONGEST_REST: Duration = Duration::from_secs(5);

/// How often a feeder hears that the trainer is there, while it is asked for nothing.
const HERE: Duration = Duration::from_secs(5);

/// Deadlines that a batch may be on its way, once it comes: drops that never end are no answer.
const FRAME: u32 = 10;

/// Batches changed on the way, one after the other, before the connection is given up.
const STRIKES: u32 = 3;

/// Bytes that are read ahead of what is looked at. Rows that are longer go straight into their slab.
const BUFFER: usize = 16 << 10;

/// Body of a feeder's thread: keeps a connection for as long as the loader is open.
pub(super) fn run(shared: &Shared, number: usize, first: &Sender<(usize, First)>) {
    let host = &shared.hosts[number];
    let mut rest = REST;
    let mut told = false;
    let mut tell = |what: First| {
        if !std::mem::replace(&mut told, true) {
            // Who opens may have stopped waiting.
            let _ = first.send((number, what));
        }
    };
    let hosts = &shared.call.feeders.hosts;
    while !shared.is_closed() {
        let place = host.look(hosts);
        if place.host.is_empty() {
            tell(First::Unreachable);
            std::thread::sleep(REST);
            continue;
        }
        let failed = match connect(shared, host, &place) {
            Ok(stream) => {
                rest = REST;
                host.able.store(true, Ordering::Release);
                shared.share_out();
                tracing::info!(target: "infeed::feeders", "{}: feeds this run", host.name());
                tell(First::Connected);
                let ended = converse(shared, host, &stream);
                host.able.store(false, Ordering::Release);
                shared.share_out();
                if !shared.is_over(host) {
                    add(&host.lost, 1);
                }
                ended.err().map_or("it ended".to_owned(), |e| e.to_string())
            }
            Err(error) => {
                if let WireError::Refused(refusal) = &error {
                    add(&host.refused, 1);
                    tell(First::Refused(refusal.clone()));
                } else {
                    tell(First::Unreachable);
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
                "{}: {failed}; its batches are made elsewhere until it is back", host.name()
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

/// A connection on which both sides know each other.
fn connect(shared: &Shared, host: &Host, place: &Place) -> Result<TcpStream, WireError> {
    let mut found = Err(io::Error::new(
        io::ErrorKind::NotFound,
        "the host has no address",
    ));
    for address in place.host.to_socket_addrs()? {
        found = TcpStream::connect_timeout(&address, CONNECTING);
        if found.is_ok() || shared.is_over(host) {
            break;
        }
    }
    let stream = found?;
    let ends = |_| shared.is_over(host);
    let socket = Socket::new(&stream, CONNECTING, &ends)?;
    socket.set_limit(Some(CONNECTING));
    let token = place.token.as_ref();
    let token = token.unwrap_or(&shared.call.feeders.token);
    hello::greet(&socket, token, &shared.call.hello)?;
    Ok(stream)
}

/// What was asked of a feeder.
#[derive(Debug, Default)]
struct Asked {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// Asked for, and when.
    open: Vec<(Lease, Instant)>,
    /// Given back since it took too long. It may come all the same.
    late: Vec<Lease>,
    /// Since when it is late: it is asked for nothing until it answers.
    slow: Option<Instant>,
    over: bool,
    /// What it usually takes.
    usual: Option<Duration>,
}

impl Asked {
    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self) {
        self.lock().over = true;
        self.changed.notify_all();
    }
}

impl State {
    /// How long an answer may take.
    fn deadline(&self, least: Duration) -> Duration {
        match self.usual {
            Some(usual) => least.max(5 * usual),
            None => 5 * least,
        }
    }

    /// Takes what an answer is to, and when that was asked for, if not too long ago: of a tray that was
    /// asked for twice, the later.
    fn answered(&mut self, tray: u64) -> Option<(Lease, Option<Instant>)> {
        let of_tray = |lease: &Lease| lease.tray() == tray;
        let open = self.open.iter().enumerate();
        let open = open.filter(|(_, (lease, _))| of_tray(lease));
        if let Some((at, _)) = open.max_by_key(|(_, (lease, _))| *lease) {
            let (lease, asked) = self.open.remove(at);
            return Some((lease, Some(asked)));
        }
        let at = self.late.iter().position(of_tray)?;
        Some((self.late.swap_remove(at), None))
    }
}

/// Asks and hears until the connection ends.
fn converse(shared: &Shared, host: &Host, stream: &TcpStream) -> Result<(), WireError> {
    let asked = Asked::default();
    let ended = std::thread::scope(|scope| {
        scope.spawn(|| {
            if let Err(error) = ask(shared, host, stream, &asked) {
                tracing::debug!(target: "infeed::feeders", "{}: {error}", host.name());
            }
            // Whoever hears has nothing to wait for.
            asked.end();
            let _ = stream.shutdown(Shutdown::Both);
        });
        let ended = hear(shared, host, stream, &asked);
        asked.end();
        let _ = stream.shutdown(Shutdown::Both);
        ended
    });
    let left = std::mem::take(&mut asked.lock().open);
    add(&host.redone, left.len() as u64);
    for (lease, _) in left {
        shared.lender.give_back(lease, Returned::Lost);
    }
    ended
}

/// Asks for batches, a few ahead.
fn ask(shared: &Shared, host: &Host, stream: &TcpStream, asked: &Asked) -> Result<(), WireError> {
    let ends = |_| shared.is_over(host) || asked.lock().over;
    let patience = shared.call.feeders.deadline.max(CONNECTING);
    let socket = Socket::new(stream, patience, &ends)?;
    let steps = shared.lender.job().partition().steps();
    let mut said = Instant::now();
    loop {
        if ends(false) {
            return Ok(());
        }
        if said.elapsed() > HERE {
            say(&socket, Kind::Here, &[])?;
            said = Instant::now();
        }
        {
            let state = asked.lock();
            if state.open.len() + state.late.len() >= DEPTH || state.slow.is_some() {
                let woken = asked.changed.wait_timeout(state, SLICE * 5);
                drop(woken.unwrap_or_else(PoisonError::into_inner));
                continue;
            }
        }
        match shared.lender.take(SLICE * 5) {
            Taken::Tray(lease) => {
                let mut state = asked.lock();
                state.open.push((lease, Instant::now()));
                drop(state);
                let mut put = Put::default();
                put.u64(lease.tray() / steps).u64(lease.tray() % steps);
                say(&socket, Kind::Ask, &put.finish())?;
                said = Instant::now();
            }
            Taken::Timeout => {}
            Taken::Ended => return Ok(()),
        }
    }
}

fn say(mut socket: &Socket<'_>, kind: Kind, body: &[u8]) -> Result<(), WireError> {
    let mut frame = Vec::new();
    frame::write(&mut frame, kind, body)?;
    Ok(socket.write_all(&frame)?)
}

/// Reads what comes, and gives back what does not come in time.
fn hear(shared: &Shared, host: &Host, stream: &TcpStream, asked: &Asked) -> Result<(), WireError> {
    let least = shared.call.feeders.deadline;
    let heard = Cell::new(Instant::now());
    // Whether a batch is being read: what is asked for behind it cannot come before it is.
    let reading = Cell::new(false);
    // Whether rows of a tray are in these hands, for which a reset waits.
    let filling = Cell::new(false);
    let ends = |stalled| {
        let late = !reading.get() && find_late(shared, host, asked, heard.get());
        // Rows that are coming are let go between two of them, and the rest is read.
        let waited_for = stalled && filling.get() && shared.lender.is_stopping();
        late || asked.lock().over || shared.is_over(host) || waited_for
    };
    let socket = Socket::new(stream, Duration::MAX, &ends)?;
    let mut from = BufReader::with_capacity(BUFFER, &socket);
    let job = shared.lender.job();
    let rows_at = |step: u64| job.partition().rows_at(step) as usize;
    let steps = job.partition().steps();
    let mut strikes = 0;
    let mut cpu = CpuLaps::begin();
    loop {
        cpu.lap(&host.cpu_ns);
        socket.set_patience(Duration::MAX);
        socket.set_limit(None);
        let head = frame::head(&mut from, |kind| match kind {
            Kind::Rows => HEAD_BYTES,
            Kind::Declined => CONTROL_BYTES,
            _ => 0,
        })?;
        let receiving = shared.receiving.begin(&host.receiving_ns);
        reading.set(true);
        let deadline = asked.lock().deadline(least);
        socket.set_patience(deadline);
        socket.set_limit(Some(deadline.saturating_mul(FRAME)));
        let body = frame::body(&mut from, head)?;
        let declined = match head.kind {
            Kind::Rows => false,
            Kind::Declined => true,
            other => {
                let what = format!("{other:?} where rows may come");
                return Err(WireError::malformed(what));
            }
        };
        let (epoch, step) = RowsHead::name(&body)?;
        let tray = epoch.checked_mul(steps).and_then(|t| t.checked_add(step));
        let tray = tray.filter(|_| step < steps);
        let found = tray.and_then(|tray| asked.lock().answered(tray));
        let (Some(tray), Some((lease, asked_at))) = (tray, found) else {
            let what = format!("epoch {epoch}, step {step}, which it was not asked for");
            return Err(WireError::malformed(what));
        };
        // Before what it was asked for earlier had been read, nothing could come.
        let took = asked_at.map(|at| at.max(heard.get()).elapsed());
        if declined {
            let why = Take::new(&body[16..], "an answer").text(1024)?;
            tracing::debug!(
                target: "infeed::feeders",
                "{}: leaves epoch {epoch}, step {step} to this machine: {why}", host.name()
            );
            shared.lender.give_back(lease, Returned::Declined);
            add(&host.declined, 1);
            heard.set(Instant::now());
            reading.set(false);
            answered(shared, host, asked, took);
            continue;
        }
        let came = match RowsHead::decode(&body, &shared.call.layout, rows_at(step)) {
            Ok(head) => receive::check(&head, job, shared.call.hello.policy).and_then(|()| {
                let begun = shared.lender.begin(lease);
                filling.set(begun.is_some());
                let layout = &shared.call.layout;
                receive::columns(&mut from, head, layout, begun, &shared.lender, tray)
            }),
            Err(error) => Err(error),
        };
        filling.set(false);
        reading.set(false);
        drop(receiving);
        if came.is_err() {
            // Nobody else knows that this one is lost; if its rows were out, it came back with them.
            shared.lender.give_back(lease, Returned::Lost);
            add(&host.redone, 1);
        }
        match came? {
            Came::Filled(bytes) => {
                add(&host.batches, 1);
                add(&host.bytes, bytes);
                let took = asked_at.map(|at| at.elapsed()).unwrap_or_default();
                add(
                    &host.wait_ns,
                    u64::try_from(took.as_nanos()).unwrap_or(u64::MAX),
                );
                strikes = 0;
            }
            Came::Unwanted => {}
            Came::Corrupt => {
                add(&host.corrupt, 1);
                add(&host.redone, 1);
                strikes += 1;
                tracing::warn!(
                    target: "infeed::feeders",
                    "{}: bytes of epoch {epoch}, step {step} were changed on the way", host.name()
                );
                if strikes >= STRIKES {
                    return Err(WireError::Corrupt("one batch after the other"));
                }
            }
        }
        heard.set(Instant::now());
        answered(shared, host, asked, took);
    }
}

/// Enters that an answer came, after so long if it was in time.
fn answered(shared: &Shared, host: &Host, asked: &Asked, took: Option<Duration>) {
    let mut state = asked.lock();
    if let Some(took) = took {
        state.usual = Some(match state.usual {
            Some(usual) => (7 * usual + took) / 8,
            None => took,
        });
    }
    let was_slow = state.slow.take().is_some();
    drop(state);
    asked.changed.notify_all();
    if was_slow {
        host.able.store(true, Ordering::Release);
        shared.share_out();
    }
}

/// Gives back what did not come for too long, though nothing else did; whether the connection is to be
/// given up.
fn find_late(shared: &Shared, host: &Host, asked: &Asked, heard: Instant) -> bool {
    let mut state = asked.lock();
    if state.over {
        return true;
    }
    let deadline = state.deadline(shared.call.feeders.deadline);
    let is_late = |(_, asked): &(Lease, Instant)| heard.max(*asked).elapsed() > deadline;
    let late: Vec<Lease> = state
        .open
        .extract_if(.., |open| is_late(open))
        .map(|(lease, _)| lease)
        .collect();
    if late.is_empty() {
        let silent = |since: Instant| since.max(heard).elapsed() > 4 * deadline;
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
            "{}: no batch for {:.1} s; what it was asked for is made elsewhere",
            host.name(),
            deadline.as_secs_f64()
        );
    }
    add(&host.redone, late.len() as u64);
    for lease in late {
        shared.lender.give_back(lease, Returned::Lost);
    }
    false
}
