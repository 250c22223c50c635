//! The conveyor's state: how it begins, and what is always true of it.

use std::collections::{BTreeMap, HashMap, VecDeque};

use super::{Job, State, Taking, Ticket, TrayState};

impl<J: Job> State<J> {
    /// All that was read and not begun, for dropping it outside the lock: that gives bytes back.
    pub(super) fn take_parcels(
        &mut self,
    ) -> (BTreeMap<Ticket, J::Parcel>, HashMap<Ticket, J::Parcel>) {
        (
            std::mem::take(&mut self.parcels),
            std::mem::take(&mut self.parts),
        )
    }

    pub(super) fn new(
        tray: u64,
        first: Ticket,
        own_most: usize,
        taking: Taking,
        working: usize,
    ) -> State<J> {
        let mut state = State {
            running: true,
            paused: false,
            generation: 0,
            busy: 0,
            planned: first,
            until: first,
            untaken: tray,
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
            parcels: BTreeMap::new(),
            parts: HashMap::new(),
            front: tray,
            trays: VecDeque::new(),
            broken: None,
            working,
            idle_workers: 0,
            idle_readers: 0,
        };
        state.begin_at(tray, first, taking);
        state
    }

    /// Goes on at a tray, with nothing taken.
    pub(super) fn begin_at(&mut self, tray: u64, first: Ticket, taking: Taking) {
        self.front = tray;
        self.planned = first;
        self.until = match taking {
            Taking::All => Ticket::MAX,
            Taking::Asked | Taking::Shared { .. } => first,
        };
        self.untaken = tray;
        self.asked = match taking {
            Taking::Asked => tray,
            Taking::All | Taking::Shared { .. } => u64::MAX,
        };
        self.returned.clear();
        self.own = 0;
        self.plan_fault = None;
    }

    /// The state of a tray, from the front on.
    pub(super) fn tray_mut(&mut self, tray: u64) -> &mut TrayState<J> {
        let at = tray.saturating_sub(self.front) as usize;
        while self.trays.len() <= at {
            self.trays.push_back(TrayState::Waiting);
        }
        &mut self.trays[at]
    }
}
