//! Options of the clients of all services.

use std::time::Duration;

use object_store::{BackoffConfig, ClientOptions, HeaderValue, RetryConfig};

/// Maximum time to connect.
pub(super) const CONNECT: Duration = Duration::from_secs(10);

/// Options of all clients. Deadlines and retries are in `fetch.rs`.
pub(super) fn client_options() -> ClientOptions {
    ClientOptions::new()
        .with_allow_http(true)
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT)
        .with_user_agent(user_agent())
}

/// Name of the program in requests.
pub(super) fn user_agent() -> HeaderValue {
    HeaderValue::from_static(concat!("infeed/", env!("CARGO_PKG_VERSION")))
}

/// Disables the client's own retries: they would multiply with those of `fetch.rs` and would not be
/// counted.
pub(super) fn once() -> RetryConfig {
    RetryConfig {
        backoff: BackoffConfig::default(),
        max_retries: 0,
        retry_timeout: CONNECT,
    }
}
