//! Log messages of the engine, printed to the standard error.

use std::sync::OnceLock;

use infeed_core::log::{Level, LogSink, send_to};

/// The least important level that is printed. None prints nothing.
static LEVEL: OnceLock<Option<Level>> = OnceLock::new();

/// Prints messages from now on. Returns the function that received them before.
///
/// The environment variable `INFEED_LOG` chooses the level: `off`, `error`, `warn` (the default),
/// `info` or `debug`.
pub(crate) fn start() -> Option<LogSink> {
    LEVEL.get_or_init(|| {
        let value = std::env::var("INFEED_LOG").unwrap_or_default();
        level(&value).unwrap_or_else(|| {
            print_err!(
                "infeed: INFEED_LOG={value}: expected off, error, warn, info or debug; using warn"
            );
            Some(Level::WARN)
        })
    });
    send_to(Some(print))
}

/// Parses a level. An empty text is the default. None if the text is no level.
fn level(text: &str) -> Option<Option<Level>> {
    match text {
        "off" => Some(None),
        "error" => Some(Some(Level::ERROR)),
        "" | "warn" => Some(Some(Level::WARN)),
        "info" => Some(Some(Level::INFO)),
        "debug" => Some(Some(Level::DEBUG)),
        _ => None,
    }
}

fn print(level: Level, _target: &str, text: &str) {
    let chosen = LEVEL.get().copied().flatten();
    if chosen.is_none_or(|chosen| level > chosen) {
        return;
    }
    let name = match level {
        Level::ERROR => "error",
        Level::WARN => "warning",
        Level::INFO => "info",
        _ => "debug",
    };
    print_err!("infeed: {name}: {text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_the_documented_ones() {
        assert_eq!(level(""), Some(Some(Level::WARN)));
        assert_eq!(level("off"), Some(None));
        assert_eq!(level("debug"), Some(Some(Level::DEBUG)));
        assert_eq!(level("loud"), None);
    }
}
