//! Why the consumer waits, what each remedy would gain, and whether it did.

mod findings;

pub use findings::{
    Explanation, Interval, LedgerEntry, Limit, Machine, NotTried, QueuePoint, Remedy, Resource,
    Run, Span, StageCost, Stall, Subject, VERSION, Verdict,
};
