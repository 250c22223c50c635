//! Rows that need another record: substitutes for bad records, and partners for mixing.

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
            from: ReadFrom::Source(read),
            wants: Arc::new([want]),
            tried,
        })
    }

    /// Makes the partner's sample, at the partner's position, and mixes it into a row.
    pub(super) fn mix(
        &self,
        (record, state): (&Record, PixelState),
        at: Position,
        mixing: &Mixing,
        row: &mut BatchRow,
        worker: &mut WorkerScratch,
        limits: RecordLimits,
    ) -> Result<(), Error> {
        let mut partner = std::mem::take(&mut worker.partner);
        worker.scratch.counted = 0;
        let made = self.sample((record, state), at, &mut partner, worker, limits);
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
}
