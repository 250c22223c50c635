//! Connections: reads requests one after another and writes responses.

use std::io::{self, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use bytes::Bytes;

use super::answer::{Answer, Body, answer};
use super::bucket::ServerShared;
use super::head::{RequestHead, kind, parse};
use super::request::{ReceivedRequest, RequestFault, RequestKind};
use super::write::write;

/// Interval at which an idle connection checks whether the server closes.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Maximum size of a request's head in bytes.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Maximum size of a request's body in bytes.
const MAX_BODY_BYTES: u64 = 1 << 30;

/// Accepts connections until the server closes.
pub(super) fn accept(listener: &TcpListener, shared: &Arc<ServerShared>) {
    let mut connections = Vec::new();
    for stream in listener.incoming() {
        if shared.closing() {
            break;
        }
        let Ok(stream) = stream else { continue };
        let shared = Arc::clone(shared);
        // The client notices a broken connection.
        connections.push(thread::spawn(move || drop(serve(stream, &shared))));
    }
    for connection in connections {
        let _ = connection.join();
    }
}

fn serve(mut stream: TcpStream, shared: &ServerShared) -> io::Result<()> {
    stream.set_read_timeout(Some(POLL_INTERVAL))?;
    stream.set_nodelay(true)?;
    let mut pending = Vec::new();
    while let Some(mut head) = next_head(&mut stream, &mut pending, shared)? {
        let kind = kind(&head);
        let (fault, latency) = {
            let mut state = shared.lock();
            (state.next_fault(kind), state.latency)
        };
        if fault == Some(RequestFault::WholeFile) {
            head.range = None;
        }
        let body = match fault {
            Some(RequestFault::Cut(after)) if kind.changes() => {
                body(&mut stream, &mut pending, after.min(head.length), shared)?;
                break;
            }
            _ => body(&mut stream, &mut pending, head.length, shared)?,
        };
        let Some(body) = body else { break };
        let found = {
            let mut state = shared.lock();
            let found = match (kind.changes(), fault) {
                (false, _) => answer(&state, &head),
                // A request that fails with a status changes nothing.
                (true, Some(RequestFault::Status(status))) => Answer::status(kind, status),
                (true, _) => write(&mut state, &head, kind, &body),
            };
            state.log.push(ReceivedRequest {
                kind,
                key: head.path.clone(),
                range: found.range,
            });
            let is_read =
                |(key, _): &mut (String, Bytes)| kind == RequestKind::Read && *key == head.path;
            if let Some((key, bytes)) = state.replacement.take_if(is_read) {
                state.put(&key, bytes);
            }
            found
        };
        if fault == Some(RequestFault::Lost) {
            break;
        }
        if !shared.sleep(latency) || !give(&mut stream, found, fault, &head, shared)? {
            break;
        }
    }
    Ok(())
}

/// Reads the next request. None if there is none.
fn next_head(
    stream: &mut TcpStream,
    pending: &mut Vec<u8>,
    shared: &ServerShared,
) -> io::Result<Option<RequestHead>> {
    let mut buffer = [0; 4096];
    loop {
        if let Some(end) = pending.windows(4).position(|four| four == b"\r\n\r\n") {
            let head = String::from_utf8_lossy(&pending[..end]).into_owned();
            pending.drain(..end + 4);
            return Ok(parse(&head));
        }
        match stream.read(&mut buffer) {
            Ok(0) => return Ok(None),
            Ok(more) => pending.extend_from_slice(&buffer[..more]),
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
        if shared.closing() || pending.len() > MAX_HEAD_BYTES {
            return Ok(None);
        }
    }
}

/// Reads the body of a request. None if the client sends fewer bytes.
fn body(
    stream: &mut TcpStream,
    pending: &mut Vec<u8>,
    length: u64,
    shared: &ServerShared,
) -> io::Result<Option<Bytes>> {
    if length > MAX_BODY_BYTES {
        return Ok(None);
    }
    let mut body = Vec::with_capacity(length as usize);
    let there = pending.len().min(length as usize);
    body.extend(pending.drain(..there));
    let mut buffer = vec![0; 64 << 10];
    while body.len() < length as usize {
        let most = buffer.len().min(length as usize - body.len());
        match stream.read(&mut buffer[..most]) {
            Ok(0) => return Ok(None),
            Ok(more) => body.extend_from_slice(&buffer[..more]),
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
        if shared.closing() {
            return Ok(None);
        }
    }
    Ok(Some(body.into()))
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

/// Writes a response with its fault. Returns false if the connection must close.
fn give(
    stream: &mut TcpStream,
    answer: Answer,
    fault: Option<RequestFault>,
    head: &RequestHead,
    shared: &ServerShared,
) -> io::Result<bool> {
    let mut answer = answer;
    let bare = head.method == "HEAD";
    match fault {
        Some(RequestFault::Status(status)) => {
            answer = Answer::status(answer.kind, status);
        }
        Some(RequestFault::Stall) => {
            while shared.sleep(Duration::from_secs(1)) {
                if is_closed(stream) {
                    break;
                }
            }
            return Ok(false);
        }
        Some(RequestFault::Delay(time)) => {
            shared.sleep(time);
        }
        Some(RequestFault::Short(by)) => {
            let left = answer.body.bytes.len().saturating_sub(by as usize);
            answer.body.bytes.truncate(left);
        }
        Some(RequestFault::Long(by)) => answer.body.more(by as usize),
        Some(RequestFault::Trailing(by)) => {
            answer.body.more(by as usize);
            answer.body.chunked = true;
        }
        Some(RequestFault::Endless) => answer.body.chunked = true,
        Some(RequestFault::OtherRange) if answer.status == 206 => answer.shift(),
        _ => {}
    }
    let Body { bytes, chunked } = &answer.body;
    let mut text = format!("HTTP/1.1 {} Status\r\n", answer.status);
    for (key, value) in &answer.headers {
        text += &format!("{key}: {value}\r\n");
    }
    text += &match chunked {
        true => "transfer-encoding: chunked\r\n\r\n".to_owned(),
        false => format!(
            "content-length: {}\r\n\r\n",
            answer.length.unwrap_or(bytes.len() as u64)
        ),
    };
    stream.write_all(text.as_bytes())?;
    if bare {
        return Ok(true);
    }
    match fault {
        Some(RequestFault::Cut(after)) if (after as usize) < bytes.len() => {
            stream.write_all(&bytes[..after as usize])?;
            stream.flush()?;
            return Ok(false);
        }
        Some(RequestFault::Drip(size, every)) => {
            for piece in bytes.chunks(size.max(1)) {
                if !shared.sleep(every) {
                    return Ok(false);
                }
                stream.write_all(piece)?;
            }
        }
        _ if *chunked => {
            stream.write_all(format!("{:x}\r\n", bytes.len()).as_bytes())?;
            stream.write_all(bytes)?;
            if fault == Some(RequestFault::Endless) {
                stream.write_all(b"\r\n")?;
                return Ok(false);
            }
            stream.write_all(b"\r\n0\r\n\r\n")?;
        }
        _ => stream.write_all(bytes)?,
    }
    Ok(true)
}

/// Returns whether the client has closed the connection.
fn is_closed(stream: &TcpStream) -> bool {
    match stream.peek(&mut [0]) {
        Ok(0) => true,
        Ok(_) => false,
        Err(error) => !is_timeout(&error),
    }
}
