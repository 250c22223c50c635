//! The batch, row and rules of each sequence number.

use std::ops::Range;
use std::sync::Arc;

use super::digest::DigestScope;
use super::remote::requests::RequestedBatches;
use super::rules::BatchRules;
use infeed_core::exec::{RowLocation, Sequence};
use infeed_core::order::partition::{Partition, RowPosition};

/// The order in which a job makes batches.
#[derive(Debug)]
pub(super) struct BatchSchedule {
    partition: Partition,
    rules: BatchRules,
    /// Rows of a sequence number: 1, or several that are copied together.
    run: u64,
    /// Set if batches follow the order of requests; otherwise they follow the order of the run.
    requests: Option<Arc<RequestedBatches>>,
}

impl BatchSchedule {
    /// Creates the order of the run.
    pub(super) fn in_order(partition: Partition, rules: BatchRules) -> BatchSchedule {
        BatchSchedule {
            partition,
            rules,
            run: 1,
            requests: None,
        }
    }

    /// Gives each sequence number `run` neighbouring rows of a batch from now on. The last one of a
    /// batch has fewer rows if `run` does not divide the batch. Only for batches in the order of the
    /// run.
    pub(super) fn in_runs(self, run: u64) -> BatchSchedule {
        BatchSchedule { run, ..self }
    }

    /// Whether sequence numbers stand for several rows.
    pub(super) fn is_in_runs(&self) -> bool {
        self.run > 1
    }

    /// Sequence numbers of the largest batch, if they stand for several rows. A shorter batch has as
    /// many, and the last ones have no rows.
    fn stride(&self) -> u64 {
        self.partition.rows().div_ceil(self.run)
    }

    /// Returns the rows of a sequence number, numbered across epochs as those of the
    /// [`Partition`].
    pub(super) fn rows(&self, sequence: Sequence) -> Range<u64> {
        if !self.is_in_runs() {
            return sequence..sequence + 1;
        }
        let (epoch, step) = self.batch(sequence / self.stride());
        let rows = self.partition.rows_at(step);
        let begin = (sequence % self.stride() * self.run).min(rows);
        let first = self.partition.sequence(epoch, step);
        first + begin..first + (begin + self.run).min(rows)
    }

    /// Makes the requested batches from now on.
    pub(super) fn on_request(self, requests: Arc<RequestedBatches>) -> BatchSchedule {
        BatchSchedule {
            requests: Some(requests),
            ..self
        }
    }

    /// Whether batches follow the order of the run.
    pub(super) fn is_in_order(&self) -> bool {
        self.requests.is_none()
    }

    /// Division of an epoch into batches. Requested batches have the same one, except for the rank.
    pub(super) fn partition(&self) -> &Partition {
        &self.partition
    }

    /// Content of digests of batches that nothing else decides.
    pub(super) fn digest_scope(&self) -> DigestScope {
        self.rules.digested
    }

    /// Returns the rules for the row of a sequence number.
    pub(super) fn rules(&self, sequence: Sequence) -> BatchRules {
        let requests = self.requests.as_ref();
        let request = requests.and_then(|requests| requests.at(sequence));
        request.map_or(self.rules, |request| request.rules)
    }

    /// Returns epoch and step of an in-flight batch.
    pub(super) fn batch(&self, in_flight: u64) -> (u64, u64) {
        let requests = self.requests.as_ref();
        let steps = self.partition.steps();
        match requests.and_then(|requests| requests.get(in_flight)) {
            Some(request) => (request.epoch, request.step),
            None => (in_flight / steps, in_flight % steps),
        }
    }

    /// Returns the location of a sequence number's row in the order.
    pub(super) fn row_position(&self, sequence: Sequence) -> RowPosition {
        match &self.requests {
            None => self.partition.row_position(sequence),
            Some(requests) => requests.row_position(sequence),
        }
    }

    /// Returns the location of a sequence number's row in its batch, or of its run of rows.
    pub(super) fn place(&self, sequence: Sequence) -> RowLocation {
        if let Some(requests) = &self.requests {
            return requests.place(sequence);
        }
        if self.is_in_runs() {
            return RowLocation {
                in_flight: sequence / self.stride(),
                row: (sequence % self.stride()) as usize,
            };
        }
        let row_position = self.partition.row_position(sequence);
        RowLocation {
            in_flight: row_position.epoch * self.partition.steps() + row_position.step,
            row: row_position.row,
        }
    }

    /// Returns the sequence number of a batch's first row.
    pub(super) fn first(&self, in_flight: u64) -> Sequence {
        if let Some(requests) = &self.requests {
            return requests.first(in_flight);
        }
        if self.is_in_runs() {
            return in_flight.saturating_mul(self.stride());
        }
        let steps = self.partition.steps();
        self.partition
            .sequence(in_flight / steps, in_flight % steps)
    }

    /// Returns the end of the rows that may be read together from `from` on, at most `until`.
    pub(super) fn rows_end(&self, from: Sequence, until: Sequence) -> Sequence {
        match &self.requests {
            None => until,
            Some(requests) => requests.rows_end(from, &self.partition).min(until),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::loader::remote::BatchRequest;
    use crate::loader::rules::{OnError, RecordLimits};
    use infeed_core::order::partition::Tail;

    fn partition(rank: u64) -> Partition {
        Partition::new(20, 4, rank, 2, Tail::Keep).expect("two ranks")
    }

    fn rules(on_error: OnError) -> BatchRules {
        BatchRules {
            on_error,
            digested: DigestScope::Ids,
            limits: RecordLimits::NONE,
        }
    }

    #[test]
    fn a_requested_batch_has_the_rows_of_its_rank_and_the_rules_of_its_request() {
        let requests = Arc::new(RequestedBatches::new(partition(0).rows()));
        let schedule = BatchSchedule::in_order(partition(0), rules(OnError::Stop));
        let schedule = schedule.on_request(Arc::clone(&requests));
        let in_order = BatchSchedule::in_order(partition(1), rules(OnError::Stop));
        requests.push(BatchRequest {
            partition: partition(1),
            epoch: 3,
            step: 2,
            rules: rules(OnError::Skip),
            by: 0,
        });

        assert_eq!(schedule.batch(0), (3, 2));
        assert_eq!(schedule.rules(1).on_error, OnError::Skip);
        let first = in_order.first(3 * partition(1).steps() + 2);
        for row in 0..partition(1).rows() {
            assert_eq!(
                schedule.row_position(row).position,
                in_order.row_position(first + row).position
            );
        }

        requests.pop();
        assert_eq!(
            schedule.rules(1).on_error,
            OnError::Stop,
            "it is not in flight"
        );
    }
}
