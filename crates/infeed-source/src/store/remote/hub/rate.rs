//! The Hub's rate limits. The Hub counts requests per address and per account, and blocks clients
//! that do not wait.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use reqwest::Response;
use reqwest::header::RETRY_AFTER;
use tokio::time::Instant;

use super::answer::{HubProblem, header};
use crate::store::remote::each_process::EachProcess;

/// Wait after a rejected request whose answer names no time.
const UNKNOWN_WAIT: Duration = Duration::from_secs(10);

/// Maximum wait.
const LONGEST_WAIT: Duration = Duration::from_secs(86_400);

/// Limits of this process, by the address of the Hub.
static LIMITS: EachProcess<Mutex<HashMap<String, Arc<RateLimit>>>> = EachProcess::new();

/// The time before which a Hub accepts no request. All datasets of a process share it.
#[derive(Debug)]
pub(super) struct RateLimit {
    endpoint: String,
    until: Mutex<Option<Instant>>,
}

impl RateLimit {
    /// Returns the limit of a Hub.
    pub(super) fn of(endpoint: &str) -> Arc<RateLimit> {
        let mut limits = LIMITS
            .here(Mutex::default)
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let new = || {
            Arc::new(RateLimit {
                endpoint: endpoint.trim_end_matches('/').to_owned(),
                until: Mutex::default(),
            })
        };
        Arc::clone(limits.entry(endpoint.to_owned()).or_insert_with(new))
    }

    /// Whether a request may be made now.
    ///
    /// # Errors
    ///
    /// [`HubProblem::Limited`] with the time to wait for.
    pub(super) fn check(&self) -> Result<(), HubProblem> {
        let now = Instant::now();
        let until = *self.until.lock().unwrap_or_else(PoisonError::into_inner);
        match until.filter(|until| *until > now) {
            Some(until) => Err(self.limit_problem(until)),
            None => Ok(()),
        }
    }

    /// Notes the limit that an answer reports.
    ///
    /// # Errors
    ///
    /// [`HubProblem::Limited`] for an answer that rejects the request for the limit.
    pub(super) fn note(&self, answer: &Response) -> Result<(), HubProblem> {
        let status = answer.status().as_u16();
        let after = header(answer, RETRY_AFTER.as_str()).and_then(|text| text.trim().parse().ok());
        let left = header(answer, "ratelimit").and_then(remaining);
        let is_rejected = status == 429 || (status == 503 && after.is_some());
        let wait = match (is_rejected, after, left) {
            (true, Some(seconds), _)
            | (true, None, Some((_, seconds)))
            | (_, _, Some((0, seconds))) => Duration::from_secs(seconds),
            (true, None, None) => UNKNOWN_WAIT,
            (false, ..) => return Ok(()),
        };
        let until = self.close(wait.min(LONGEST_WAIT));
        match is_rejected {
            true => Err(self.limit_problem(until)),
            false => Ok(()),
        }
    }

    /// Closes the Hub for a time; returns the time at which it opens.
    fn close(&self, wait: Duration) -> Instant {
        let new = Instant::now() + wait;
        let mut until = self.until.lock().unwrap_or_else(PoisonError::into_inner);
        let is_open = until.is_none_or(|until| until <= Instant::now());
        let latest = until.map_or(new, |until| until.max(new));
        *until = Some(latest);
        drop(until);
        if is_open && !wait.is_zero() {
            tracing::warn!(
                "{} limits the number of requests: infeed makes no request to it for {} s. A token \
                 (HF_TOKEN) has a higher limit, and a cache on a disk (infeed.cache) saves the \
                 requests of later epochs",
                self.endpoint,
                wait.as_secs()
            );
        }
        latest
    }

    fn limit_problem(&self, until: Instant) -> HubProblem {
        let left = until.saturating_duration_since(Instant::now());
        let problem = format!(
            "{} limits the number of requests and accepts the next in {:.0} s; set HF_TOKEN for a \
             higher limit, wait, or set a longer INFEED_REMOTE_DEADLINE_S",
            self.endpoint,
            left.as_secs_f64().ceil()
        );
        HubProblem::Limited(until, problem)
    }
}

/// Number of requests that are left, and the seconds until there are more, of a header `RateLimit`:
/// `"api";r=0;t=120`. The smallest number counts if there are several limits.
fn remaining(text: &str) -> Option<(u64, u64)> {
    let limits = text.split(',').filter_map(|limit| {
        let number = |name: &str| {
            limit.split(';').find_map(|part| {
                let (key, value) = part.trim().split_once('=')?;
                (key == name).then(|| value.parse::<u64>().ok())?
            })
        };
        Some((number("r")?, number("t")?))
    });
    limits.min_by_key(|&(left, seconds)| (left, u64::MAX - seconds))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_limit_has_the_requests_left_and_the_time_to_the_next() {
        for (text, expected) in [
            ("\"api\";r=0;t=120", Some((0, 120))),
            ("\"resolvers\"; r=2999; t=55", Some((2999, 55))),
            ("\"a\";r=5;t=1, \"b\";r=0;t=9", Some((0, 9))),
            ("\"a\";r=0", None),
            ("r=x;t=1", None),
            ("", None),
        ] {
            assert_eq!(remaining(text), expected, "{text}");
        }
    }

    #[test]
    fn all_datasets_of_a_hub_wait_for_its_latest_limit() {
        let (one, two) = (
            RateLimit::of("http://limits"),
            RateLimit::of("http://limits"),
        );
        one.check().expect("open");

        one.close(Duration::from_secs(300));
        one.close(Duration::from_secs(5));

        let Err(HubProblem::Limited(until, text)) = two.check() else {
            panic!("closed");
        };
        assert!(until > Instant::now() + Duration::from_secs(290));
        assert!(
            text.contains("http://limits") && text.contains("300 s"),
            "{text}"
        );
        RateLimit::of("http://another").check().expect("open");
    }
}
