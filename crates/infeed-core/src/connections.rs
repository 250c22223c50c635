//! Limits the number of unauthenticated connections.
//!
//! At the limit, the list closes the oldest connection instead of rejecting the new one. A real
//! client sends its request within milliseconds, so the oldest connection is most likely idle. Idle
//! connections therefore never lock out a real client.

use std::collections::HashMap;
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Shortest time between two log messages about a full list.
const REPORTING: Duration = Duration::from_secs(60);

/// Open, unauthenticated connections.
#[derive(Debug)]
pub struct Connections {
    limit: usize,
    limit_per_address: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// In the order of acceptance.
    open: Vec<Open>,
    next: u64,
    /// Time of the last log message about a full list.
    reported: Option<Instant>,
}

#[derive(Debug)]
struct Open {
    number: u64,
    address: IpAddr,
    stream: TcpStream,
}

/// A connection in the list. Dropping the entry removes the connection from the list.
#[derive(Debug)]
pub struct ConnectionEntry<'a> {
    connections: &'a Connections,
    number: u64,
    /// Message to log. Set when another connection was closed for this one and the last message is
    /// at least 60 s old.
    pub report: Option<String>,
}

impl Connections {
    /// Creates an empty list with one limit for all addresses together and one per address.
    pub fn new(limit: usize, limit_per_address: usize) -> Connections {
        Connections {
            limit,
            limit_per_address,
            state: Mutex::default(),
        }
    }

    /// Adds a connection. Closes the oldest one if a limit is reached.
    ///
    /// # Errors
    ///
    /// If the operating system cannot duplicate the socket.
    pub fn enter(
        &self,
        stream: &TcpStream,
        client: SocketAddr,
    ) -> std::io::Result<ConnectionEntry<'_>> {
        let stream = stream.try_clone()?;
        let address = client.ip().to_canonical();
        let mut state = self.lock();
        let mut report = None;
        if let Some((at, limit)) = self.to_close(&state.open, address) {
            let closed = state.open.remove(at);
            // The client may have closed the connection already.
            let _ = closed.stream.shutdown(Shutdown::Both);
            let now = Instant::now();
            let recent = |last: Instant| now.duration_since(last) < REPORTING;
            if !state.reported.is_some_and(recent) {
                state.reported = Some(now);
                report = Some(format!(
                    "the limit of {limit} is reached: closed the oldest idle connection, from {}, for \
                     the new one from {address}",
                    closed.address
                ));
            }
        }
        let number = state.next;
        state.next += 1;
        state.open.push(Open {
            number,
            address,
            stream,
        });
        Ok(ConnectionEntry {
            connections: self,
            number,
            report,
        })
    }

    /// Returns the index of the connection to close before `address` gets another one, and the
    /// limit that is reached. None below both limits.
    fn to_close(&self, open: &[Open], address: IpAddr) -> Option<(usize, String)> {
        let oldest = |address| open.iter().position(|other| other.address == address);
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for other in open {
            *counts.entry(other.address).or_default() += 1;
        }
        if counts.get(&address) >= Some(&self.limit_per_address) {
            let limit = format!("{} connections from one address", self.limit_per_address);
            return oldest(address).map(|at| (at, limit));
        }
        if open.len() >= self.limit {
            // Close the oldest connection of the address that has the most.
            let (&most, _) = counts.iter().max_by_key(|(_, count)| **count)?;
            let limit = format!("{} connections", self.limit);
            return oldest(most).map(|at| (at, limit));
        }
        None
    }

    /// Closes every connection in the list.
    pub fn close_all(&self) {
        for open in &self.lock().open {
            // The client may have closed the connection already.
            let _ = open.stream.shutdown(Shutdown::Both);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every statement leaves the state consistent, so a poisoned lock is usable.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for ConnectionEntry<'_> {
    fn drop(&mut self) {
        let mut state = self.connections.lock();
        state.open.retain(|open| open.number != self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::TcpListener;

    use super::*;

    /// Returns connected pairs: the server's stream and the client's.
    fn pairs(count: usize) -> Vec<(TcpStream, TcpStream)> {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("it is bound");
        let pair = |_| {
            let client = TcpStream::connect(address).expect("it listens");
            (listener.accept().expect("a client").0, client)
        };
        (0..count).map(pair).collect()
    }

    fn is_closed(client: &mut TcpStream) -> bool {
        let wait = Some(Duration::from_millis(50));
        client.set_read_timeout(wait).expect("a socket");
        matches!(client.read(&mut [0]), Ok(0))
    }

    #[test]
    fn the_oldest_connection_of_an_address_is_closed_at_its_limit() {
        let connections = Connections::new(10, 2);
        let mut pairs = pairs(4);
        let from = |text: &str| text.parse().expect("an address");

        let other = connections.enter(&pairs[0].0, from("10.0.0.2:1"));
        let first = connections.enter(&pairs[1].0, from("10.0.0.1:1"));
        let second = connections.enter(&pairs[2].0, from("10.0.0.1:2"));
        assert!(first.as_ref().expect("added").report.is_none());
        let third = connections.enter(&pairs[3].0, from("10.0.0.1:3"));

        let report = third.as_ref().expect("added").report.clone();
        let report = report.expect("a limit is reached");
        assert!(
            report.contains("2 connections from one address"),
            "{report}"
        );
        let closed: Vec<bool> = pairs.iter_mut().map(|(_, end)| is_closed(end)).collect();
        assert_eq!(closed, [false, true, false, false]);
        drop((other, first, second, third));
        assert!(connections.lock().open.is_empty());
    }

    #[test]
    fn at_the_limit_of_all_the_address_with_most_connections_gives_one_up() {
        let connections = Connections::new(3, 2);
        let mut pairs = pairs(5);
        let addresses = ["10.0.0.3:1", "10.0.0.1:1", "10.0.0.1:2", "10.0.0.2:1"];
        let mut entries = Vec::new();

        for ((stream, _), address) in pairs.iter().zip(addresses) {
            let address = address.parse().expect("an address");
            entries.push(connections.enter(stream, address).expect("added"));
        }

        let closed: Vec<bool> = pairs.iter_mut().map(|(_, end)| is_closed(end)).collect();
        assert_eq!(closed, [false, true, false, false, false]);
        let report = entries[3].report.as_deref().expect("a limit is reached");
        assert!(report.contains("limit of 3 connections"), "{report}");
        connections.close_all();
        assert!(is_closed(&mut pairs[0].1));
    }
}
