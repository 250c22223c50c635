//! Rows of a batch: samples, substitutes for bad records, and mixing.

use super::*;

impl RecordJob {
    /// Returns the mixing of a position's sample, if there is any. After the end of the order, the
    /// partner is near the repeated record.
    pub(super) fn mixing(&self, row_position: RowPosition) -> Option<Mixing> {
        let taken_from = row_position.taken_from?;
        let beyond = row_position.position - taken_from;
        let mut mixing = self.plan.mixing(position(row_position), || {
            let near = self.order.near(row_position.epoch, taken_from);
            near.start + beyond..near.end + beyond
        })?;
        mixing.partner -= beyond;
        Some(mixing)
    }

    /// Completes a row: sets the mark of a valid row if there is a sample in it.
    pub(super) fn finished(
        &self,
        tried: RowAttempts,
        at: Position,
        row: &mut BatchRow,
        worker: &mut WorkerScratch,
        rules: &BatchRules,
    ) -> FilledRow {
        if tried.written.is_some()
            && self.partition().tail() == Tail::Pad
            && let Some(RowCell::Slab(valid)) = row.cells.last_mut()
        {
            valid.bytes_mut().fill(1);
        }
        if !rules.hashes_rows() {
            return FilledRow::new(tried, at, row, rules);
        }
        worker.scratch.meter.start();
        let filled = FilledRow::new(tried, at, row, rules);
        worker.scratch.meter.lap(Stage::Write, &worker.counters);
        worker.scratch.meter.settle(&worker.counters);
        filled
    }

    /// Handles a row with a bad record; `at` is the position of that record.
    pub(super) fn instead(
        &self,
        sequence: Sequence,
        role: RecordRole,
        at: Position,
        error: Error,
        mut tried: RowAttempts,
    ) -> FillOutcome<RecordJob> {
        let rules = self.schedule.rules(sequence);
        if !error.is_bad_record() || rules.on_error == OnError::Stop {
            return FillOutcome::Failed(error);
        }
        let Some(record) = error.record().cloned() else {
            return FillOutcome::Failed(error);
        };
        tried.bad.push(BadRecord {
            record,
            epoch: at.epoch,
            position: self.row_position(sequence).position,
            reason: error.clone(),
        });
        if rules.on_error == OnError::Skip {
            return FillOutcome::Done(FilledRow::without_record(None, tried.bad, &rules));
        }
        let attempt = match role {
            RecordRole::Own => &mut tried.own,
            RecordRole::Partner => &mut tried.partner,
        };
        *attempt += 1;
        if u32::from(*attempt) > ATTEMPTS {
            return FillOutcome::Failed(error);
        }
        let substitute = self
            .order
            .substitute(at.epoch, at.position, u32::from(*attempt));
        self.again(sequence, role, substitute, tried)
    }

    /// Requests one more record for a row. Releases its other record, so that no row holds bytes
    /// while it waits for bytes.
    pub(super) fn again(
        &self,
        sequence: Sequence,
        role: RecordRole,
        record: u64,
        tried: RowAttempts,
    ) -> FillOutcome<RecordJob> {
        let reads = self.source.plan(&[record], self.fetched_bytes / ROOM);
        let Some(read) = reads.into_iter().find(|read| !read.records.is_empty()) else {
            return FillOutcome::Failed(Error::Panicked {
                text: format!(
                    "the source planned no read of {}",
                    self.source.id(record, None)
                ),
            });
        };
        let want = ReadPurpose {
            sequence,
            role,
            paired: false,
        };
        FillOutcome::Again(RecordRead {
            read: Some(read),
            wants: Arc::new([want]),
            tried,
            failed: None,
        })
    }

    /// Makes the partner's sample, at the partner's position, and mixes it into a row.
    pub(super) fn mix(
        &self,
        record: &Record,
        at: Position,
        mixing: &Mixing,
        row: &mut BatchRow,
        worker: &mut WorkerScratch,
        limits: RecordLimits,
    ) -> Result<(), Error> {
        let mut partner = std::mem::take(&mut worker.partner);
        worker.scratch.counted = 0;
        let made = self.sample(record, at, &mut partner, worker, limits);
        worker.scratch.counted = 1;
        let mixed = made.and_then(|()| {
            worker.scratch.meter.start();
            let mixed = self.plan.mix(mixing, &mut partner, row);
            worker.scratch.meter.lap(Stage::Write, &worker.counters);
            mixed.map_err(|failure| sample_error(&*self.source, record.index, failure))
        });
        // Release a row larger than the kept scratch, like large scratch.
        worker.partner = match self.plan.spare_row_bytes() <= self.kept_bytes {
            true => partner,
            false => self.plan.spare_row(),
        };
        mixed
    }

    /// Returns the sequence number after the run that begins with `from`. The source decides the
    /// length. Groups that can only be read whole form one run, so that no group is read twice.
    pub(super) fn run_end(&self, from: Sequence, until: Sequence) -> Sequence {
        if !self.source.groups().is_some_and(|groups| groups.whole) {
            return from + self.source.run_length().max(1);
        }
        if !self.schedule.is_in_order() {
            return until;
        }
        let begin = self.partition().row_position(from);
        // With a filled tail, the beginning of the epoch, or padding, follows its end.
        let window_end = begin.taken_from.map_or(u64::MAX, |position| {
            let epoch_start = begin.position - position;
            epoch_start + self.order.epoch(begin.epoch).window_end(position)
        });
        let (mut low, mut high) = (from + 1, from + self.order.len().max(1));
        // Binary search for the end of the window: epoch and position grow with the sequence
        // number.
        while low < high {
            let middle = low + (high - low) / 2;
            let row_position = self.partition().row_position(middle);
            match (row_position.epoch, row_position.position) < (begin.epoch, window_end) {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        low
    }

    /// Makes the sample of a record within the memory limits of workers.
    pub(super) fn sample(
        &self,
        record: &Record,
        at: Position,
        row: &mut BatchRow,
        worker: &mut WorkerScratch,
        limits: RecordLimits,
    ) -> Result<(), Error> {
        let WorkerScratch {
            scratch, counters, ..
        } = worker;
        // The partner's row counts as scratch.
        let beside = match self.plan.mixes() {
            true => self.plan.spare_row_bytes(),
            false => 0,
        };
        let mut large = None;
        let mut admit = |needed: u64| {
            let needed = needed.saturating_add(beside);
            if needed <= self.kept_bytes.min(limits.scratch) {
                return Ok(());
            }
            let refused = |limit_bytes| SampleError::TooLarge {
                purpose: "decoding",
                needed_bytes: needed,
                limit_bytes,
            };
            if needed > limits.scratch {
                return Err(refused(limits.scratch));
            }
            let granted = self.large.take(needed);
            large = Some(granted.map_err(|_| refused(self.large.limit_bytes()))?);
            Ok(())
        };
        let result = self
            .plan
            .run(record, at, row, scratch, counters, &mut admit);
        if large.is_some() {
            scratch.shrink();
        }
        let warnings = std::mem::take(&mut scratch.warnings);
        if warnings > 0 {
            self.warnings.fetch_add(warnings, Ordering::Relaxed);
        }
        result.map_err(|failure| sample_error(&*self.source, record.index, failure))
    }

    /// Checks the size of a row outside slabs. A limit per row bounds the total of all rows.
    pub(super) fn within_row_limit(
        &self,
        record: &Record,
        row: &BatchRow,
        limits: RecordLimits,
    ) -> Result<(), Error> {
        let own = row.cells.iter().map(|cell| match cell {
            RowCell::Own { bytes, .. } => bytes.len() as u64,
            RowCell::Slab(_) => 0,
        });
        let needed_bytes = own.sum();
        let limit_bytes = self.row_bytes.min(limits.row);
        if needed_bytes <= limit_bytes {
            return Ok(());
        }
        Err(Error::RecordTooLarge {
            record: self.source.id(record.index, None),
            purpose: "a row of its batch",
            needed_bytes,
            limit_bytes,
        })
    }
}

/// Returns the position that keys a row's random draws.
pub(super) fn position(row_position: RowPosition) -> Position {
    Position {
        epoch: row_position.epoch,
        position: row_position.position,
    }
}
