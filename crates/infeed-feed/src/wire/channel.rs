//! A TCP connection between a trainer and a feeder, encrypted or not.
//!
//! Encrypted connections use TLS 1.3. The feeder makes a key pair when it starts and presents the
//! raw public key, which proves no identity. The token proves it: both sides put a value that only
//! the two ends of this TLS session can compute into the MACs of the [handshake](super::hello). An
//! attacker in the middle has two sessions with two values, so its MACs do not verify.
//!
//! Source: RFC 8446 (TLS 1.3), RFC 7250 (raw public keys), RFC 9266 (channel binding
//! `tls-exporter`).

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ring::rand::SystemRandom;
use ring::signature::Ed25519KeyPair;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, ring as provider, verify_tls13_signature_with_raw_key};
use rustls::pki_types::{
    CertificateDer, PrivateKeyDer, ServerName, SubjectPublicKeyInfoDer, UnixTime,
};
use rustls::server::AlwaysResolvesServerRawPublicKeys;
use rustls::sign::CertifiedKey;
use rustls::version::TLS13;
use rustls::{
    ClientConfig, ClientConnection, DigitallySignedStruct, ServerConfig, ServerConnection,
    SignatureScheme,
};

use super::error::WireError;

/// Size of the receive buffer in bytes: several TLS records.
const INCOMING: usize = 64 << 10;

/// First byte of a TLS connection: the type of a handshake record.
pub(crate) const TLS_HANDSHAKE: u8 = 22;

/// Value that binds the token's MACs to one TLS session.
pub type Binding = [u8; 32];

/// Binding of an unencrypted connection.
pub const UNENCRYPTED: Binding = [0; 32];

/// Connections between a trainer and its feeders that are encrypted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encryption {
    /// All except loopback connections, which stay on one machine.
    #[default]
    Remote,
    /// All.
    Always,
    /// None. The trainer and each feeder must both be set to this.
    Never,
}

impl Encryption {
    /// Whether a connection to this address is encrypted.
    pub fn applies_to(self, peer: IpAddr) -> bool {
        match self {
            Encryption::Remote => !peer.to_canonical().is_loopback(),
            Encryption::Always => true,
            Encryption::Never => false,
        }
    }
}

/// One end of a connection. One thread may read while another writes.
#[derive(Debug)]
pub struct Channel {
    stream: TcpStream,
    tls: Option<Tls>,
}

/// A TLS session and its buffers. Threads take the locks in the order of the fields, and never hold
/// `session` during a system call.
#[derive(Debug)]
struct Tls {
    incoming: Mutex<Incoming>,
    outgoing: Mutex<Vec<u8>>,
    session: Mutex<rustls::Connection>,
}

/// Received encrypted bytes.
#[derive(Debug)]
struct Incoming {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

/// A feeder's key pair, created when it starts.
#[derive(Clone, Debug)]
pub(crate) struct FeederKey(Arc<ServerConfig>);

impl FeederKey {
    /// Creates a key pair.
    ///
    /// # Errors
    ///
    /// If the operating system has no random numbers.
    pub(crate) fn new() -> io::Result<FeederKey> {
        let pair = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new())
            .map_err(|_| io::Error::other("the operating system has no random numbers"))?;
        let private = PrivateKeyDer::Pkcs8(pair.as_ref().to_vec().into());
        let key = provider::sign::any_supported_type(&private).map_err(tls_error)?;
        let public = key
            .public_key()
            .ok_or_else(|| io::Error::other("the key pair has no public key"))?;
        let public = CertificateDer::from(public.as_ref().to_vec());
        let key = Arc::new(CertifiedKey::new(vec![public], key));
        let mut config = ServerConfig::builder_with_provider(suites())
            .with_protocol_versions(&[&TLS13])
            .map_err(tls_error)?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(key)));
        // Sessions are never resumed.
        config.send_tls13_tickets = 0;
        Ok(FeederKey(Arc::new(config)))
    }
}

impl Channel {
    /// Creates an unencrypted connection.
    pub fn plain(stream: TcpStream) -> Channel {
        Channel { stream, tls: None }
    }

    /// Creates the feeder's end of an encrypted connection.
    ///
    /// # Errors
    ///
    /// [`WireError::Io`] if TLS cannot be set up.
    pub(crate) fn accept(stream: TcpStream, key: &FeederKey) -> Result<Channel, WireError> {
        let session = ServerConnection::new(Arc::clone(&key.0)).map_err(tls_error)?;
        Ok(Channel::over(stream, session.into()))
    }

    /// Creates the trainer's end of an encrypted connection.
    ///
    /// # Errors
    ///
    /// [`WireError::Io`] if TLS cannot be set up, or if the peer's address cannot be read.
    pub fn connect(stream: TcpStream) -> Result<Channel, WireError> {
        let verifier = Arc::new(AnyKey(suites()));
        let mut config = ClientConfig::builder_with_provider(suites())
            .with_protocol_versions(&[&TLS13])
            .map_err(tls_error)?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth();
        config.resumption = rustls::client::Resumption::disabled();
        let name = ServerName::from(stream.peer_addr()?.ip());
        let session = ClientConnection::new(Arc::new(config), name).map_err(tls_error)?;
        Ok(Channel::over(stream, session.into()))
    }

    fn over(stream: TcpStream, session: rustls::Connection) -> Channel {
        let tls = Tls {
            incoming: Mutex::new(Incoming {
                bytes: vec![0; INCOMING].into(),
                start: 0,
                end: 0,
            }),
            outgoing: Mutex::default(),
            session: Mutex::new(session),
        };
        Channel {
            stream,
            tls: Some(tls),
        }
    }

    /// Returns the TCP connection.
    pub fn stream(&self) -> &TcpStream {
        &self.stream
    }

    /// Returns the TCP connection and drops the TLS state.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.stream
    }

    /// Whether the connection is encrypted.
    pub fn is_encrypted(&self) -> bool {
        self.tls.is_some()
    }

    /// Runs the TLS handshake on an encrypted connection, and returns the binding. `receive` and
    /// `send` transfer encrypted bytes.
    pub(super) fn shake(
        &self,
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
        mut send: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<Binding> {
        let Some(tls) = &self.tls else {
            return Ok(UNENCRYPTED);
        };
        let mut incoming = lock(&tls.incoming);
        loop {
            tls.send_pending(&mut send)?;
            let mut session = lock(&tls.session);
            if !session.is_handshaking() {
                let label = b"EXPORTER-Channel-Binding";
                return session
                    .export_keying_material(UNENCRYPTED, label, Some(&[]))
                    .map_err(tls_error);
            }
            if incoming.feed(&mut session)? {
                continue;
            }
            drop(session);
            if incoming.receive(&mut receive)? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Reads bytes; `receive` reads from the TCP connection.
    pub(super) fn read(
        &self,
        into: &mut [u8],
        mut receive: impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return receive(into);
        };
        let mut incoming = lock(&tls.incoming);
        loop {
            let mut session = lock(&tls.session);
            match session.reader().read(into) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
            if incoming.feed(&mut session)? {
                continue;
            }
            drop(session);
            // A frame contains its length, so a TCP end without TLS's close message cannot truncate
            // a frame.
            if incoming.receive(&mut receive)? == 0 {
                return Ok(0);
            }
        }
    }

    /// Writes some of the bytes and returns their number; `send` writes to the TCP connection.
    pub(super) fn write(
        &self,
        bytes: &[u8],
        mut send: impl FnMut(&[u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let Some(tls) = &self.tls else {
            return send(bytes);
        };
        let taken = lock(&tls.session).writer().write(bytes)?;
        tls.send_pending(&mut send)?;
        Ok(taken)
    }
}

impl Tls {
    /// Sends the bytes that the session has encrypted.
    fn send_pending(&self, send: &mut impl FnMut(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        let mut outgoing = lock(&self.outgoing);
        outgoing.clear();
        {
            let mut session = lock(&self.session);
            while session.wants_write() {
                session.write_tls(&mut *outgoing)?;
            }
        }
        let mut left = &outgoing[..];
        while !left.is_empty() {
            match send(left)? {
                0 => return Err(ErrorKind::WriteZero.into()),
                sent => left = &left[sent..],
            }
        }
        Ok(())
    }
}

impl Incoming {
    /// Receives bytes into the empty buffer; returns their number.
    fn receive(
        &mut self,
        receive: &mut impl FnMut(&mut [u8]) -> io::Result<usize>,
    ) -> io::Result<usize> {
        self.start = 0;
        self.end = 0;
        self.end = receive(&mut self.bytes)?;
        Ok(self.end)
    }

    /// Passes received bytes to the session; returns false if there are none.
    fn feed(&mut self, session: &mut rustls::Connection) -> io::Result<bool> {
        if self.start == self.end {
            return Ok(false);
        }
        let mut left = &self.bytes[self.start..self.end];
        session.read_tls(&mut left)?;
        self.start = self.end - left.len();
        session.process_new_packets().map_err(tls_error)?;
        Ok(true)
    }
}

/// Accepts any public key, because the token proves its owner.
#[derive(Debug)]
struct AnyKey(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyKey {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not used".to_owned()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        key: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let key = SubjectPublicKeyInfoDer::from(key.as_ref());
        let algorithms = &self.0.signature_verification_algorithms;
        verify_tls13_signature_with_raw_key(message, &key, signature, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

/// Cipher suites. AES with 128-bit keys comes first, because it is the fastest.
fn suites() -> Arc<CryptoProvider> {
    use provider::cipher_suite::{TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256};

    Arc::new(CryptoProvider {
        cipher_suites: vec![TLS13_AES_128_GCM_SHA256, TLS13_CHACHA20_POLY1305_SHA256],
        ..provider::default_provider()
    })
}

fn tls_error(error: rustls::Error) -> io::Error {
    io::Error::other(format!("encryption failed: {error}"))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // If a panic left the session inconsistent, its next record fails.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
