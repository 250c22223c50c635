//! The executor's state: its start and access to in-flight batches.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use super::{BatchChoice, ExecutorState, InFlightState, Job, Sequence};

impl<J: Job> ExecutorState<J> {
    /// Takes all fetched records that no worker has claimed. The caller drops them outside the
    /// lock, because dropping releases their permits.
    pub(super) fn take_fetched_records(
        &mut self,
    ) -> (
        BTreeMap<Sequence, J::Fetched>,
        HashMap<Sequence, J::Fetched>,
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
            asked: 0,
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
            BatchChoice::Asked | BatchChoice::Shared { .. } => first,
        };
        self.untaken = in_flight;
        self.asked = match taking {
            BatchChoice::Asked => in_flight,
            BatchChoice::All | BatchChoice::Shared { .. } => u64::MAX,
        };
        self.returned.clear();
        self.own = 0;
        self.plan_fault = None;
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
