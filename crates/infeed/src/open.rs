//! Opening a pipeline: the path from a description to a running loader.
//!
//! [`Pipeline::open`] takes these steps. The two functions at the end of this file, `start` and
//! `prepare`, call steps 2 to 8 in this order. No thread of the loader runs before step 8.
//!
//! | # | step | call | file |
//! |--:|---|---|---|
//! | 1 | list the records, select some | [`SourceSpec::open`], [`Pipeline::select`] | `pipeline/source.rs`, `pipeline/select.rs` |
//! | 2 | bind user functions, find their outputs | `function_outputs::resolve` | `loader/function_outputs.rs` |
//! | 3 | check the description, plan each field | [`SamplePlan::over`] | `plan/sample_plan.rs` |
//! | 4 | choose the placement, plan the batch layouts | `Options::placement`, [`SamplePlan::for_device_by`] | `loader/options.rs`, `plan/device.rs` |
//! | 5 | compute the order, divide an epoch into batches | [`Pipeline::order`], `divide_epoch` | `pipeline/order.rs`, `loader/divide.rs` |
//! | 6 | divide memory and threads | `resources::divide` | `loader/resources.rs`, `loader/record_needs.rs`, `loader/budget.rs` |
//! | 7 | create the job and its limits | `PreparedRun::new` | `loader/start.rs` |
//! | 8 | start the threads, return the loader | `Loader::start` | `loader/start.rs`, `infeed-core/src/exec/executor.rs` |
//! | 9 | for devices: create rings, start the sender | `DeviceLoader::start` | `loader/device.rs` |
//!
//! [`SourceSpec::open`]: crate::pipeline::SourceSpec::open

use std::sync::Arc;

use crate::fields::scratch::Position;
use crate::loader::any::AnyLoader;
use crate::loader::device::{DeviceLoader, DevicesWithDecoders, check_slots};
use crate::loader::digest::DigestScope;
use crate::loader::divide::divide_epoch;
use crate::loader::remote::{BatchMaker, IN_TRANSFER};
use crate::loader::start::{PlannedRun, PreparedRun, TargetDevice};
use crate::loader::verify::{VerifyOptions, VerifyReport, replay};
use crate::loader::{Loader, Options, decoders, function_outputs, preview, resources};
use crate::maker::preview::PreviewStage;
use crate::pipeline::{Handle, Pipeline};
use crate::plan::device::{BatchLayouts, DecodeBy, Placement};
use crate::plan::{self, SamplePlan, warnings};
use infeed_core::batch::{ColumnSpec, PrepareSlab};
use infeed_core::error::Error;
use infeed_core::order::Order;
use infeed_core::sample::RecordId;
use infeed_device::{AnyDevice, Device};
use infeed_source::Source;

impl Pipeline {
    /// Opens the source, checks the description, and starts to prepare the first batch.
    ///
    /// # Errors
    ///
    /// [`Error::Config`], [`Error::Open`], [`Error::Budget`] or [`Error::Reserved`]; no thread runs
    /// then.
    pub fn open(&self, options: &Options) -> Result<Loader, Error> {
        self.open_with(&[], options)
    }

    /// As [`Pipeline::open`], with the handles that the description refers to.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`].
    pub fn open_with(&self, handles: &[Handle], options: &Options) -> Result<Loader, Error> {
        let source = self.open_source(handles)?;
        start(self, source, handles, options, None).map(|(loader, _)| loader)
    }

    /// As [`Pipeline::open`], over the caller's source instead of the description's. The
    /// description's selection applies to it.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`].
    pub fn open_over(&self, source: Arc<dyn Source>, options: &Options) -> Result<Loader, Error> {
        let source = self.select(source)?;
        start(self, source, &[], options, None).map(|(loader, _)| loader)
    }

    /// As [`Pipeline::open_over`], with batches in the layout for a device with `placement`. Serves
    /// to measure the host's work without a device.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`].
    pub fn open_for_device(
        &self,
        source: Arc<dyn Source>,
        placement: Placement,
        options: &Options,
    ) -> Result<Loader, Error> {
        let target = TargetDevice {
            placement,
            ready: PrepareSlab(Arc::new(|_| {})),
            slots: 0,
            decoder: None,
        };
        let source = self.select(source)?;
        start(self, source, &[], options, Some(target)).map(|(loader, _)| loader)
    }

    /// As [`Pipeline::open_with`], but delivers batches on `device`. At most `slots` batches exist
    /// there at once, including the consumer's current batch, unless the consumer holds more.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`], and [`Error::Device`].
    pub fn open_on<D: Device>(
        &self,
        device: D,
        placement: Placement,
        slots: usize,
        handles: &[Handle],
        options: &Options,
    ) -> Result<DeviceLoader<D>, Error> {
        self.open_on_all(vec![device], placement, slots, handles, options)
    }

    /// As [`Pipeline::open_on`], with each batch split into equal parts, one per device, in order.
    /// One loader reads and prepares the same rows as for one device. Each device has `slots`
    /// slots.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open_on`], and [`Error::Config`] if the devices do not divide the batch
    /// evenly.
    pub fn open_on_all<D: Device>(
        &self,
        devices: Vec<D>,
        placement: Placement,
        slots: usize,
        handles: &[Handle],
        options: &Options,
    ) -> Result<DeviceLoader<D>, Error> {
        check_slots(slots)?;
        let source = self.open_source(handles)?;
        let devices = DevicesWithDecoders::new(devices, placement, slots, options)?;
        start_on(self, source, handles, options, placement, devices)
    }

    /// As [`Pipeline::open_on`], over the caller's source. The description's selection applies to
    /// it.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open_on`].
    pub fn open_on_over<D: Device>(
        &self,
        device: D,
        placement: Placement,
        slots: usize,
        source: Arc<dyn Source>,
        options: &Options,
    ) -> Result<DeviceLoader<D>, Error> {
        let source = self.select(source)?;
        let devices = DevicesWithDecoders::new(vec![device], placement, slots, options)?;
        start_on(self, source, &[], options, placement, devices)
    }

    /// Opens the pipeline for devices by name, or for the host if there are no names.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open_with`] and [`Pipeline::open_on_all`]; [`Error::Device`] for a name that
    /// is no device of this machine.
    pub fn open_any(
        &self,
        devices: &[String],
        placement: Placement,
        slots: usize,
        handles: &[Handle],
        options: &Options,
    ) -> Result<AnyLoader, Error> {
        if devices.is_empty() {
            return Ok(AnyLoader::from(self.open_with(handles, options)?));
        }
        let devices = devices.iter().map(|name| AnyDevice::open(name));
        let devices = devices.collect::<Result<Vec<_>, Error>>()?;
        let loader = self.open_on_all(devices, placement, slots, handles, options)?;
        Ok(AnyLoader::from(loader))
    }

    /// Opens the pipeline for batches on request, of one of `options.world_size` ranks. `source`
    /// has the selected records. With `for_device`, rows have the layout for a device that expands
    /// them. The pipeline has no functions on batches, because the process that consumes the
    /// batches calls them.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`].
    pub fn open_on_request(
        &self,
        source: Arc<dyn Source>,
        handles: &[Handle],
        options: &Options,
        for_device: bool,
    ) -> Result<BatchMaker, Error> {
        let placement = match for_device {
            true => Placement::Device,
            false => Placement::Host,
        };
        let run = prepare(self, source, handles, options, None, placement, IN_TRANSFER)?;
        BatchMaker::start(run, options)
    }

    /// Checks the description as far as possible without reading its data. Palettes are read.
    ///
    /// # Errors
    ///
    /// As [`SamplePlan::new`].
    pub fn check(&self) -> Result<(), Error> {
        plan::check(self)
    }

    /// Returns the description with its functions bound and their outputs filled in. For unknown
    /// outputs, reads the first record, makes a sample and calls the functions with it. Functions
    /// on batches get a batch of that sample, with as many rows as a rank's batch if there are
    /// `ranks`.
    ///
    /// # Errors
    ///
    /// [`Error::Config`] for a function that is not available; the exception of a function; or the
    /// error of the first records if all of them are bad.
    pub fn resolve_functions(
        &self,
        source: &dyn Source,
        handles: &[Handle],
        ranks: u64,
    ) -> Result<Pipeline, Error> {
        function_outputs::resolve(self, source, handles, ranks)
    }

    /// Opens the source and returns the columns of a batch, in field order.
    ///
    /// # Errors
    ///
    /// As [`SamplePlan::new`], [`Pipeline::resolve_functions`], or the source's own errors.
    pub fn describe(&self, handles: &[Handle]) -> Result<Vec<ColumnSpec>, Error> {
        let (plan, _) = self.plan_samples(handles)?;
        Ok(plan.delivered_columns().to_vec())
    }

    /// Opens the source and describes the selected records and the stages.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::describe`], [`Pipeline::select`] and [`Pipeline::order`].
    pub fn explain(&self, handles: &[Handle]) -> Result<String, Error> {
        let (plan, source) = self.plan_samples(handles)?;
        let order = self.order(&*source, handles)?;
        Ok(format!("{}{plan}", self.selection(&*source, &order)))
    }

    /// As [`Pipeline::explain`], for batches on a device with `placement`. `decode` selects the
    /// decoder of image files.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::explain`]; [`Error::Config`] if the device cannot decode any file.
    pub fn explain_on(
        &self,
        handles: &[Handle],
        placement: Placement,
        decode: DecodeBy,
    ) -> Result<String, Error> {
        let options = Options {
            decode,
            ..Options::default()
        };
        decoders::check(&options, Some(placement))?;
        let (mut plan, source) = self.plan_samples(handles)?;
        plan.for_device_by(decode, options.placement(placement), false)?;
        let order = self.order(&*source, handles)?;
        Ok(format!("{}{plan}", self.selection(&*source, &order)))
    }

    /// Returns one sample after each stage. Runs on the calling thread.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`], or the error of the record.
    pub fn preview(
        &self,
        handles: &[Handle],
        position: u64,
        epoch: u64,
    ) -> Result<(RecordId, Vec<PreviewStage>), Error> {
        let (plan, source) = self.plan_samples(handles)?;
        let order = self.order(&*source, handles)?;
        preview::stages(&plan, &*source, &order, Position { epoch, position })
    }

    /// Replays steps and compares them. Calls `go_on` after each step, and about ten times per
    /// second, with the number of finished steps and the number to replay. The replay ends when
    /// `go_on` returns false.
    ///
    /// # Errors
    ///
    /// As [`Pipeline::open`]; [`Error::Config`] for a file of another run; [`Error::Write`] if the
    /// file cannot be written; or the error that stopped a replay.
    pub fn verify(
        &self,
        handles: &[Handle],
        verify: &VerifyOptions,
        go_on: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<VerifyReport, Error> {
        let source = self.open_source(handles)?;
        let open = |options: &Options| {
            let opened = start(self, Arc::clone(&source), handles, options, None);
            opened.map(|(loader, _)| loader)
        };
        replay(verify, open, go_on)
    }

    /// Returns the plan and its source; no thread runs.
    fn plan_samples(&self, handles: &[Handle]) -> Result<(SamplePlan, Arc<dyn Source>), Error> {
        let source = self.open_source(handles)?;
        let pipeline = function_outputs::resolve(self, &*source, handles, 1)?;
        let plan = SamplePlan::over(&pipeline, &*source)?;
        Ok((plan, source))
    }
}

/// Opens a loader that sends its batches to devices.
fn start_on<D: Device>(
    pipeline: &Pipeline,
    source: Arc<dyn Source>,
    handles: &[Handle],
    options: &Options,
    placement: Placement,
    devices: DevicesWithDecoders<D>,
) -> Result<DeviceLoader<D>, Error> {
    let target = devices.target(placement);
    let (loader, layouts) = start(pipeline, source, handles, options, Some(target))?;
    DeviceLoader::start(loader, layouts, devices)
}

/// Opens a loader over its selected records. Also returns the layouts in which batches reach the
/// target device.
fn start(
    pipeline: &Pipeline,
    source: Arc<dyn Source>,
    handles: &[Handle],
    options: &Options,
    target: Option<TargetDevice>,
) -> Result<(Loader, BatchLayouts), Error> {
    let wanted = target.as_ref().map(|target| target.placement);
    decoders::check(options, wanted)?;
    let options = options.with_fixed_workers();
    let placement = options.placement(wanted.unwrap_or(Placement::Host));
    let remote_batches = options.remote_batches();
    let run = prepare(
        pipeline,
        source,
        handles,
        &options,
        target,
        placement,
        remote_batches,
    )?;
    Loader::start(run, options)
}

/// Plans a run and divides memory. `placement` is the one with which the run begins.
/// `remote_batches` in-flight batches are added to those of one machine's threads.
fn prepare(
    pipeline: &Pipeline,
    source: Arc<dyn Source>,
    handles: &[Handle],
    options: &Options,
    target: Option<TargetDevice>,
    placement: Placement,
    remote_batches: usize,
) -> Result<PreparedRun, Error> {
    // Step 2: functions.
    let pipeline = function_outputs::resolve(pipeline, &*source, handles, options.world_size)?;

    // Step 3: the plan.
    let mut plan = SamplePlan::over(&pipeline, &*source)?;
    warnings::log(&pipeline, &*source);

    // Step 4: layouts. A digest of bytes covers expanded rows, which are equal for all placements.
    let by_bytes = options.digest != DigestScope::Ids;
    let mut layouts = plan.for_device_by(options.decode, placement, by_bytes)?;

    // Step 5: order and batches.
    let global = pipeline.batch.global_rows(options.world_size)?;
    let tail = pipeline.batch.settled_tail()?;
    pipeline.check_selection()?;
    let order = match options.epoch_records {
        Some(len) => chosen_order(&pipeline, len, &*source, options)?,
        None => pipeline.order(&*source, handles)?,
    };
    let partition = divide_epoch(&plan, &order, global, tail, options)?;

    // Step 6: memory and threads.
    let resources = resources::divide(
        &pipeline,
        &*source,
        &mut plan,
        &mut layouts,
        &partition,
        options,
        remote_batches,
    )?;

    // Step 7: the job.
    let planned = PlannedRun {
        pipeline,
        source,
        plan,
        layouts,
        order,
        partition,
        resources,
        target,
    };
    PreparedRun::new(planned, options)
}

/// Returns an order of `len` positions, whose records the program chooses.
fn chosen_order(
    pipeline: &Pipeline,
    len: u64,
    source: &dyn Source,
    options: &Options,
) -> Result<Order, Error> {
    let batch = &pipeline.batch;
    let others = [
        ("weights", pipeline.weights.is_some()),
        ("repeat", pipeline.repeat.is_some()),
        ("batches of one group", pipeline.batch_groups.is_some()),
        ("max_tokens", batch.max_tokens.is_some()),
        ("feeders", options.remote.is_some()),
    ];
    match others.iter().find(|(_, is_set)| *is_set) {
        Some((name, _)) => {
            let problem = format!("the program chooses the records, so there are no {name}");
            Err(Error::config("epoch_records", problem))
        }
        None => Ok(Order::from_choices(len, source.len())),
    }
}
