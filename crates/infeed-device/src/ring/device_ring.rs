//! The ring: its settings, routes, streams and counters.

use std::fmt;
use std::sync::Arc as StdArc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use infeed_raw::kernel::Bilinear;

use crate::Device;
use infeed_core::error::Error;

use super::decoding::{RingDecoders, TransferTotals};
use super::gaps::Gap;
use super::ring_state::RingState;
use super::route::{self, Route};
use super::slots::Slots;
use super::stats::RingStats;
use super::sync::{self, Arc, Mutex};

/// Default number of slots: one held by the consumer, one ready, one being filled.
pub const SLOTS: usize = 3;

/// Value of `kept` that means all layouts.
pub(super) const ALL: usize = usize::MAX;

/// Sizes and limits of a ring.
#[derive(Clone, Copy, Debug)]
pub struct RingSettings {
    /// Rows of a full batch. A larger batch makes its slot grow.
    pub rows: usize,
    /// Number of slots for a consumer that keeps at most one batch.
    pub slots: usize,
    /// Time to wait for a consumer that holds all slots before the ring makes another. Applies only
    /// the first time: such a consumer will probably keep all slots again.
    pub timeout: Duration,
    /// Time that [`Ring::close`] waits for commands that consumers enqueued.
    pub closing: Duration,
}

impl RingSettings {
    /// Creates settings for batches of `rows` rows: [`SLOTS`] slots, a timeout of 50 ms, and 5 s
    /// for closing.
    pub fn new(rows: usize) -> RingSettings {
        RingSettings {
            rows,
            slots: SLOTS,
            timeout: Duration::from_millis(50),
            closing: Duration::from_secs(5),
        }
    }
}

/// Slots on one device, and the two streams that fill them. Dropping the ring closes it.
///
/// Any thread may call any method. Batches are sent in the order of the calls of
/// [`send`](Ring::send).
pub struct Ring<D: Device> {
    pub(super) shared: Arc<RingState<D>>,
    /// Routes of the columns, by layout.
    pub(super) layouts: Vec<Vec<Route>>,
    pub(super) settings: RingSettings,
    pub(super) copies: D::Queue,
    /// None if no column needs a kernel.
    pub(super) kernels: Option<D::Queue>,
    /// Filter weights for resizing images on the device.
    pub(super) weights: Mutex<Bilinear>,
    /// None if no column has files.
    pub(super) decoders: Option<Mutex<RingDecoders<D>>>,
    /// See [`RingStats::unpinned`].
    unpinned: StdArc<AtomicU64>,
    /// Index of the layout that slots keep memory for. [`ALL`] for every layout.
    pub(super) kept: AtomicUsize,
    /// Held while a batch is enqueued, so that streams get batches in one order.
    pub(super) sending: Mutex<()>,
    /// Number of sent batches and their transfers. One lock guards both, so that their ratio is
    /// always right.
    pub(super) counted: Mutex<(u64, TransferTotals)>,
    /// A wait that a test omits, to check that the simulated device finds the race.
    #[cfg(test)]
    pub(super) without: std::sync::atomic::AtomicU8,
}

impl<D: Device> Ring<D> {
    /// Creates a ring for batches with these columns, in field order. The ring allocates memory
    /// when it needs another slot.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] if sizes do not match; [`Error::Device`] if the device cannot create a
    /// stream.
    pub fn new(device: D, routes: Vec<Route>, settings: RingSettings) -> Result<Ring<D>, Error> {
        Ring::with_layouts(device, vec![routes], settings)
    }

    /// Like [`new`](Ring::new), for batches of several layouts. On the device, the columns of all
    /// layouts must be the same: a kernel can compute a column in one layout that arrives computed
    /// in another. Every slot can hold a batch of any layout.
    ///
    /// # Errors
    ///
    /// As [`new`](Ring::new).
    pub fn with_layouts(
        device: D,
        layouts: Vec<Vec<Route>>,
        settings: RingSettings,
    ) -> Result<Ring<D>, Error> {
        if settings.slots == 0 {
            return Err(Error::config("device", "a ring has at least one slot"));
        }
        if settings.rows == 0 {
            return Err(Error::config("device", "a batch has at least one row"));
        }
        for route in layouts.iter().flatten() {
            route.check(settings.rows)?;
        }
        route::check_alike(&layouts)?;
        let slots = Slots::new(settings.slots, settings.timeout);
        let shared = RingState::new(device, slots, settings.closing);
        let device = &shared.device;
        let copies = shared.or_fail(device.stream())?;
        let kernels = match layouts.iter().flatten().any(Route::has_kernel) {
            true => Some(shared.or_fail(device.stream())?),
            false => None,
        };
        Ok(Ring {
            shared: Arc::new(shared),
            layouts,
            settings,
            copies,
            kernels,
            weights: Mutex::new(Bilinear::new()),
            decoders: None,
            unpinned: StdArc::default(),
            kept: AtomicUsize::new(ALL),
            sending: Mutex::new(()),
            counted: Mutex::new((0, TransferTotals::default())),
            #[cfg(test)]
            without: std::sync::atomic::AtomicU8::new(0),
        })
    }

    /// Sets the counter of the host memory that its owner could not pin for this device:
    /// [`RingStats::unpinned`].
    #[must_use]
    pub fn with_unpinned(mut self, bytes: StdArc<AtomicU64>) -> Ring<D> {
        self.unpinned = bytes;
        self
    }

    /// Sets the decoder. Columns with files need it ([`Upload::Decode`](super::Upload::Decode)).
    #[must_use]
    pub fn with_decoder(mut self, decoder: D::Decoder) -> Ring<D> {
        self.decoders = Some(Mutex::new(RingDecoders::new(decoder)));
        self
    }

    /// Returns the device.
    pub fn device(&self) -> &D {
        &self.shared.device
    }

    /// Returns the routes of the first layout, in field order.
    pub fn routes(&self) -> &[Route] {
        &self.layouts[0]
    }

    /// Returns the routes of each layout.
    pub fn layouts(&self) -> &[Vec<Route>] {
        &self.layouts
    }

    /// Makes slots keep memory for this layout only. With None (the default), they keep memory for
    /// every layout that a batch in them had. Memory that is too large is freed when its slot is
    /// reused.
    pub fn keep(&self, layout: Option<usize>) {
        // Relaxed: a sender that sees the new value late only frees the memory later.
        self.kept.store(layout.unwrap_or(ALL), Ordering::Relaxed);
    }

    /// Whether [`send`](Ring::send) would return without waiting for the consumer, now or within
    /// `timeout`. The answer is reliable only if the caller is the only sender.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed.
    pub fn has_room(&self, timeout: Duration) -> Result<bool, Error> {
        self.shared.check()?;
        self.shared.settle();
        Ok(self.shared.slots.has_room(timeout))
    }

    /// Returns the counters, with all gaps known so far.
    ///
    /// # Errors
    ///
    /// [`Error::Forked`]; [`Error::Device`] if the device failed.
    pub fn stats(&self) -> Result<RingStats, Error> {
        self.shared.check()?;
        self.shared.poll()?;
        let counts = self.shared.slots.counts();
        let known = sync::lock(&self.shared.gaps);
        let (gaps, late) = (known.totals(), known.late());
        drop(known);
        let (batches, sums) = *sync::lock(&self.counted);
        Ok(RingStats {
            batches,
            transfers: sums.transfers,
            bytes: sums.bytes,
            jpegs: sums.files,
            slots: counts.made,
            ahead: counts.ahead,
            free: counts.free,
            overflow: counts.overflow,
            unpinned: self.unpinned.load(Ordering::Relaxed),
            gaps,
            late,
            times: sync::lock(&self.shared.times).totals(),
        })
    }

    /// Takes the gaps that became known since the last call, in the order of steps. At most the
    /// latest 4096.
    pub fn take_gaps(&self) -> Vec<Gap> {
        if self.shared.is_forked() {
            return Vec::new();
        }
        sync::lock(&self.shared.gaps).take()
    }
}

impl<D: Device> fmt::Debug for Ring<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring")
            .field("device", &self.shared.name)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
