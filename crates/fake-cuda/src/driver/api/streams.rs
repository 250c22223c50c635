//! Streams, events, and captures into graphs.

use std::ffi::c_uint;
use std::sync::{Arc, Mutex};

use super::{functions, give};
use crate::driver::stream::{Capture, FakeEvent, StreamPosition};
use crate::driver::{code, lock, thread};

/// `CU_EVENT_DISABLE_TIMING`.
const NO_TIMING: c_uint = 2;

/// `CU_STREAM_NON_BLOCKING`.
const NON_BLOCKING: c_uint = 1;

functions! {
    fn cuThreadExchangeStreamCaptureMode(_world, mode: *mut c_uint) {
        let before = thread::exchange_mode(*mode);
        give(mode, before)
    }

    fn cuStreamCreate(world, stream: *mut usize, flags: c_uint) {
        let made = world.here()?.stream(flags & NON_BLOCKING == 0);
        give(stream, world.streams.add(made))
    }

    fn cuStreamDestroy_v2(world, stream: usize) {
        let stream = world.streams.remove(stream)?;
        world.gpus[stream.gpu].destroy(&stream);
        Ok(())
    }

    fn cuStreamSynchronize(world, stream: usize) {
        world.check_not_captured()?;
        let (gpu, stream) = world.stream(stream)?;
        stream.tail().wait();
        gpu.works()
    }

    fn cuStreamWaitEvent(world, stream: usize, event: usize, flags: c_uint) {
        if flags != 0 {
            return Err(code::INVALID_VALUE);
        }
        let event = world.events.get(event)?;
        let (gpu, stream) = world.to_put(stream)?;
        // An event that was never recorded counts as done.
        let mark = lock(&event.mark).clone();
        if let Some(mark) = mark {
            gpu.put(&stream, Box::new(move || mark.wait()));
        }
        Ok(())
    }

    fn cuStreamIsCapturing(world, stream: usize, status: *mut c_uint) {
        let (gpu, found) = world.stream(stream)?;
        if stream < 2 && gpu.is_captured() {
            return Err(code::STREAM_CAPTURE_IMPLICIT);
        }
        give(status, match found.capture() {
            Capture::None => 0,
            Capture::Active => 1,
            Capture::Broken => 2,
        })
    }

    fn cuStreamBeginCapture_v2(world, stream: usize, mode: c_uint) {
        // Other modes only affect the calling thread; the tests need the global mode.
        if mode != 0 || stream < 2 {
            return Err(code::INVALID_VALUE);
        }
        let (_, stream) = world.stream(stream)?;
        world.begin_capture(&stream);
        Ok(())
    }

    fn cuStreamEndCapture(world, stream: usize, graph: *mut usize) {
        let (_, stream) = world.stream(stream)?;
        match world.end_capture(&stream) {
            Capture::Active => give(graph, 0),
            Capture::Broken => Err(code::STREAM_CAPTURE_INVALIDATED),
            Capture::None => Err(code::INVALID_VALUE),
        }
    }

    // Not in any real driver: blocks the stream forever, like a kernel that never ends.
    fn fake_hang(world, stream: usize) {
        let (gpu, stream) = world.to_put(stream)?;
        gpu.put(&stream, Box::new(|| StreamPosition::default().wait()));
        Ok(())
    }

    fn cuEventCreate(world, event: *mut usize, flags: c_uint) {
        let made = FakeEvent {
            gpu: world.here()?.ordinal,
            is_timed: flags & NO_TIMING == 0,
            mark: Mutex::default(),
        };
        give(event, world.events.add(Arc::new(made)))
    }

    fn cuEventDestroy_v2(world, event: usize) { world.events.remove(event).map(drop) }

    fn cuEventRecord(world, event: usize, stream: usize) {
        let event = world.events.get(event)?;
        let (gpu, stream) = world.to_put(stream)?;
        if event.gpu != gpu.ordinal {
            world.misuse("an event was recorded on another GPU's stream".to_owned());
            return Err(code::INVALID_HANDLE);
        }
        if event.is_timed {
            world.counts.count_timed();
        }
        let mark = Arc::<StreamPosition>::default();
        *lock(&event.mark) = Some(Arc::clone(&mark));
        gpu.put(&stream, Box::new(move || mark.reach()));
        Ok(())
    }

    fn cuEventQuery(world, event: usize) {
        world.check_not_captured()?;
        let event = world.events.get(event)?;
        world.gpus[event.gpu].works()?;
        let mark = lock(&event.mark).clone();
        match mark.is_none_or(|mark| mark.past().is_some()) {
            true => Ok(()),
            false => Err(code::NOT_READY),
        }
    }

    fn cuEventSynchronize(world, event: usize) {
        world.check_not_captured()?;
        let event = world.events.get(event)?;
        let mark = lock(&event.mark).clone();
        mark.inspect(|mark| mark.wait());
        world.gpus[event.gpu].works()
    }

    fn cuEventElapsedTime(world, ms: *mut f32, from: usize, to: usize) {
        let (from, to) = (world.events.get(from)?, world.events.get(to)?);
        if !from.is_timed || !to.is_timed {
            return Err(code::INVALID_HANDLE);
        }
        let past = |event: &FakeEvent| {
            let mark = lock(&event.mark).clone().ok_or(code::INVALID_HANDLE)?;
            mark.past().ok_or(code::NOT_READY)
        };
        let (from, to) = (past(&from)?, past(&to)?);
        let later = to.saturating_duration_since(from).as_secs_f64();
        let earlier = from.saturating_duration_since(to).as_secs_f64();
        give(ms, ((later - earlier) * 1e3) as f32)
    }
}
