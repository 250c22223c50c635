//! The executor's state, which one lock guards: positions, fetched records and in-flight batches.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::config::BatchChoice;
use super::job::{Job, JoinedReads, Sequence};

pub(super) struct ExecutorState<J: Job> {
    /// False once the executor is dropped.
    pub(super) running: bool,
    /// True while a reset waits for threads to leave job code.
    pub(super) paused: bool,
    /// Incremented by every reset. Results of an older generation are discarded.
    pub(super) generation: u64,
    /// Threads inside job code.
    pub(super) busy: usize,
    /// First sequence number not planned yet.
    pub(super) planned: Sequence,
    /// End of the sequence numbers that the local threads may plan. `Sequence::MAX` if they fill
    /// all batches.
    pub(super) until: Sequence,
    /// First in-flight batch that neither the local threads nor a lease has taken. Unused with
    /// [`BatchChoice::All`].
    pub(super) untaken: u64,
    /// End of the requested batches.
    pub(super) requested: u64,
    /// Returned leases by batch number. True if only the local threads may take the batch.
    pub(super) returned: BTreeMap<u64, bool>,
    /// Number of unfinished batches of the local threads, and the most allowed.
    pub(super) own: usize,
    pub(super) own_most: usize,
    pub(super) planning: bool,
    pub(super) plan_fault: Option<(Sequence, J::Fault)>,
    /// Planned reads that have not started, with the first sequence number of each.
    pub(super) reads: VecDeque<(Sequence, J::Read)>,
    /// Reads out of turn.
    pub(super) urgent: VecDeque<J::Read>,
    /// Turn of the next read in order.
    pub(super) turn: u64,
    /// Reads in order in progress.
    pub(super) in_turn: usize,
    /// Fetched records that no worker has claimed.
    pub(super) fetched_records: BTreeMap<Sequence, J::FetchedData>,
    /// Those whose rows are expensive.
    pub(super) expensive: BTreeSet<Sequence>,
    /// Results that wait for the result of another read of their row.
    pub(super) parts: HashMap<Sequence, FetchedPart<J>>,
    /// Number of the oldest in-flight batch, `in_flight_batches[0]`.
    pub(super) front: u64,
    pub(super) in_flight_batches: VecDeque<InFlightState<J>>,
    pub(super) broken: Option<String>,
    /// Workers with a lower number may work.
    pub(super) working: usize,
    pub(super) idle_workers: usize,
    pub(super) idle_readers: usize,
}

/// Results of some of the reads of a row.
pub(super) struct FetchedPart<J: Job> {
    pub(super) data: J::FetchedData,
    pub(super) is_expensive: bool,
}

pub(super) enum InFlightState<J: Job> {
    /// The local threads will open it.
    Waiting,
    /// Leased, see [`lease`](super::lease).
    Leased(LeaseState),
    Filling(BatchInWork<J>),
    /// A worker is finishing the batch.
    Closing,
    Ready(Result<J::Batch, J::Fault>),
}

pub(super) struct BatchInWork<J: Job> {
    pub(super) in_flight: J::InFlight,
    /// Rows that no worker has claimed.
    pub(super) rows: Vec<Option<J::Row>>,
    pub(super) outcomes: Vec<Option<Result<J::RowOutput, J::Fault>>>,
    pub(super) missing: usize,
}

/// State of a leased batch.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LeaseState {
    /// Number of leases so far.
    pub(super) tries: u32,
    /// Whether a lease is filling its rows.
    pub(super) filling: bool,
}

impl<J: Job> ExecutorState<J> {
    /// Takes all fetched records that no worker has claimed. The caller drops them outside the
    /// lock, because dropping releases their permits.
    pub(super) fn take_fetched_records(
        &mut self,
    ) -> (
        BTreeMap<Sequence, J::FetchedData>,
        HashMap<Sequence, FetchedPart<J>>,
    ) {
        self.expensive.clear();
        (
            std::mem::take(&mut self.fetched_records),
            std::mem::take(&mut self.parts),
        )
    }

    pub(super) fn new(
        in_flight: u64,
        first: Sequence,
        own_most: usize,
        taking: BatchChoice,
        working: usize,
    ) -> ExecutorState<J> {
        let mut state = ExecutorState {
            running: true,
            paused: false,
            generation: 0,
            busy: 0,
            planned: first,
            until: first,
            untaken: in_flight,
            requested: 0,
            returned: BTreeMap::new(),
            own: 0,
            own_most,
            planning: false,
            plan_fault: None,
            reads: VecDeque::new(),
            urgent: VecDeque::new(),
            turn: 0,
            in_turn: 0,
            fetched_records: BTreeMap::new(),
            expensive: BTreeSet::new(),
            parts: HashMap::new(),
            front: in_flight,
            in_flight_batches: VecDeque::new(),
            broken: None,
            working,
            idle_workers: 0,
            idle_readers: 0,
        };
        state.begin_at(in_flight, first, taking);
        state
    }

    /// Continues at an in-flight batch, with no batch taken.
    pub(super) fn begin_at(&mut self, in_flight: u64, first: Sequence, taking: BatchChoice) {
        self.front = in_flight;
        self.planned = first;
        self.until = match taking {
            BatchChoice::All => Sequence::MAX,
            BatchChoice::Requested | BatchChoice::Shared { .. } => first,
        };
        self.untaken = in_flight;
        self.requested = match taking {
            BatchChoice::Requested => in_flight,
            BatchChoice::All | BatchChoice::Shared { .. } => u64::MAX,
        };
        self.returned.clear();
        self.own = 0;
        self.plan_fault = None;
    }

    /// Adds the result of a read. The row can be filled once all its reads are here.
    pub(super) fn add_fetched(&mut self, job: &J, sequence: Sequence, part: FetchedPart<J>) {
        let FetchedPart {
            data,
            mut is_expensive,
        } = part;
        let waiting = self.parts.remove(&sequence).map(|waiting| {
            is_expensive |= waiting.is_expensive;
            waiting.data
        });
        match job.join(waiting, data) {
            JoinedReads::Whole(fetched) => {
                if is_expensive {
                    self.expensive.insert(sequence);
                }
                drop(self.fetched_records.insert(sequence, fetched));
            }
            JoinedReads::Part(data) => {
                let part = FetchedPart { data, is_expensive };
                drop(self.parts.insert(sequence, part));
            }
        }
    }

    /// Returns the state of an in-flight batch at or after the front.
    pub(super) fn in_flight_mut(&mut self, in_flight: u64) -> &mut InFlightState<J> {
        let at = in_flight.saturating_sub(self.front) as usize;
        while self.in_flight_batches.len() <= at {
            self.in_flight_batches.push_back(InFlightState::Waiting);
        }
        &mut self.in_flight_batches[at]
    }
}
