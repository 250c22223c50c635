//! The measurements that a what-if prediction starts from.

use crate::findings::{Run, Subject};
use crate::measure::storage::Storage;
use crate::measure::survey::Survey;
use crate::model::interval::Interval;
use crate::model::supply::Supply;

/// Results that the explanation already has.
pub(crate) struct WhatIfInputs<'a> {
    pub(crate) run: &'a Run,
    pub(crate) subject: &'a Subject,
    pub(crate) survey: &'a Survey,
    pub(crate) storage: Option<&'a Storage>,
    /// Samples per second of the cores, from memory.
    pub(crate) own: Interval,
    /// The rate that each resource allows now.
    pub(crate) now: &'a Supply,
}
