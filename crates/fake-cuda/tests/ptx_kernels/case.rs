//! One launch: on the host, and as PTX at addresses that a GPU may use.

use std::collections::BTreeMap;
use std::fmt;

use fake_cuda::ptx::Module;
use infeed_raw::kernel::{Bilinear, Kernel, Launch, ResizeTable, ResizeView, RowView, Table};

use crate::gpu::TestGpu;
use crate::noise::Noise;

/// Positions of rows in the input.
#[derive(Debug)]
pub(crate) enum Rows {
    /// A number of contiguous rows.
    Dense(usize),
    Views(Vec<RowView>),
    Images(Images),
}

/// Images to resize to a height and a width.
#[derive(Clone, Debug)]
pub(crate) struct Images {
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) views: Vec<ResizeView>,
    /// Seed of random weights and first pixels, in place of those of a bilinear filter: a table may
    /// contain any that refer only to pixels of its image.
    pub(crate) wild: Option<u64>,
}

impl Images {
    fn table(&self) -> ResizeTable {
        let table = ResizeTable::of(self.height, self.width, &self.views, &mut Bilinear::new());
        let table = table.expect("sides of images");
        let Some(seed) = self.wild else { return table };
        let mut noise = Noise(seed);
        let mut bytes = table.bytes().to_vec();
        let mut taps_of = BTreeMap::new();
        for row in 0..self.views.len() {
            for (entry, to) in [(48 * row + 16, self.width), (48 * row + 32, self.height)] {
                let [at, taps, _, from] = [0, 4, 8, 12].map(|word| get(&bytes, entry + word));
                let (begin, most) = (4 * at as usize, taps.min(9) as usize);
                let known = taps_of.get(&(at, from)).copied();
                let taps = known.unwrap_or_else(|| 1 + noise.below(most) as u32);
                put(&mut bytes, entry + 4, taps);
                if taps_of.insert((at, from), taps).is_some() {
                    continue;
                }
                for first in (begin..).step_by(4).take(to) {
                    put(
                        &mut bytes,
                        first,
                        noise.below((from - taps + 1) as usize) as u32,
                    );
                }
                let weights = &mut bytes[begin + 4 * to..][..2 * to * taps as usize];
                weights.fill_with(|| noise.next() as u8);
            }
        }
        let table = ResizeTable::from_bytes(self.height, self.width, self.views.len(), bytes);
        table.expect("pixels of its images only")
    }
}

fn get(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().expect("4 bytes"))
}

fn put(bytes: &mut [u8], at: usize, word: u32) {
    bytes[at..at + 4].copy_from_slice(&word.to_ne_bytes());
}

impl Rows {
    pub(crate) fn count(&self) -> usize {
        match self {
            Rows::Dense(rows) => *rows,
            Rows::Views(views) => views.len(),
            Rows::Images(images) => images.views.len(),
        }
    }

    /// Calls `run` with the table of the rows.
    fn with_table<T>(&self, run: impl FnOnce(Option<Table<'_>>) -> T) -> T {
        match self {
            Rows::Dense(_) => run(None),
            Rows::Views(views) => run(Some(Table::Views(views))),
            Rows::Images(images) => run(Some(Table::Resize(&images.table()))),
        }
    }
}

/// A kernel, its input, and its addresses on a GPU.
pub(crate) struct Case {
    pub(crate) kernel: Kernel,
    pub(crate) rows: Rows,
    /// Bytes of a line of the input, if it has rows of one size, and the number of its lines.
    pub(crate) line: (usize, usize),
    pub(crate) input: Vec<u8>,
    pub(crate) addresses: GpuAddresses,
}

/// Addresses on a GPU.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GpuAddresses {
    pub(crate) input: u64,
    /// A multiple of an element's size.
    pub(crate) output: u64,
    /// Additional distances on the GPU between rows with views, and between their lines. Together
    /// they exceed 32 bits.
    pub(crate) rows_apart: u64,
    pub(crate) lines_apart: u32,
}

impl GpuAddresses {
    /// Returns random addresses: any alignment of the input, any valid alignment of the output, and
    /// some outputs inside of which the upper 32 bits of an address change.
    pub(crate) fn any(noise: &mut Noise, element: usize, output_len: usize) -> GpuAddresses {
        let shift = (element * noise.below(16 / element)) as u64;
        let half = (output_len as u64 / 2).next_multiple_of(16);
        GpuAddresses {
            input: 0x1000_0000_0000 + noise.choice(&[0, 0, 0, 4, 8, 1, 7, 14]),
            output: noise.choice(&[0x7100_0000_0000, 0x7101_0000_0000 - half])
                + noise.choice(&[0, shift]),
            rows_apart: 1 << 41,
            lines_apart: noise.choice(&[0, 0, 0x5000_0000, 0xe000_0010]),
        }
    }
}

/// Address of the table.
const TABLE: u64 = 0x7200_0000_0010;

impl Case {
    pub(crate) fn entry(&self) -> &'static str {
        let launch = self.launch(&self.on_gpu());
        launch.entry.to_str().expect("a name in PTX")
    }

    fn launch(&self, rows: &Rows) -> Launch {
        let table = match rows {
            Rows::Dense(_) => None,
            _ => Some(TABLE),
        };
        let launch = self.kernel.launch(
            rows.count(),
            self.addresses.input,
            table,
            self.addresses.output,
        );
        launch.expect("everything fits")
    }

    /// Computes the output on the host.
    pub(crate) fn on_host(&self) -> Vec<u8> {
        let rows = self.rows.count();
        let mut output = vec![0; self.kernel.output_bytes(rows).expect("small")];
        let ran = self
            .rows
            .with_table(|table| self.kernel.run(rows, &self.input, table, &mut output));
        ran.expect("everything fits");
        output
    }

    /// Computes the output with the PTX. Calls `watch` with the line of every instruction. Only the
    /// lines of the rows and the table can be read. Only the output can be written, each byte once.
    pub(crate) fn on_ptx(
        &self,
        module: &Module,
        watch: impl FnMut(u32),
    ) -> Result<Vec<u8>, String> {
        let rows = self.on_gpu();
        let launch = self.launch(&rows);
        let len = self.kernel.output_bytes(rows.count()).expect("small");
        let mut gpu = TestGpu::new(self.addresses.output, len);
        self.fill(&mut gpu, &rows);
        let argument: Vec<u8> = launch
            .arguments
            .iter()
            .flat_map(|word| word.to_ne_bytes())
            .collect();
        let entry = launch.entry.to_str().expect("a name in PTX");
        let ([grid, _, _], [block, _, _]) = (launch.grid, launch.block);
        let ran = module.run_watched(entry, grid, block, &argument, &gpu, watch);
        ran.map_err(|fault| fault.to_string())?;
        let missing = "some bytes were not written";
        gpu.output().ok_or_else(|| missing.to_owned())
    }

    /// Returns the rows with their positions on the GPU.
    fn on_gpu(&self) -> Rows {
        let GpuAddresses {
            rows_apart,
            lines_apart,
            ..
        } = self.addresses;
        match &self.rows {
            Rows::Dense(rows) => Rows::Dense(*rows),
            Rows::Views(views) => Rows::Views(
                views
                    .iter()
                    .zip(0..)
                    .map(|(view, row)| RowView {
                        offset: view.offset + row * rows_apart,
                        row_bytes: view.row_bytes + lines_apart,
                        flags: view.flags,
                    })
                    .collect(),
            ),
            Rows::Images(images) => {
                let views = images.views.iter().zip(0..).map(|(view, row)| ResizeView {
                    offset: view.offset + row * rows_apart,
                    row_bytes: view.row_bytes + lines_apart,
                    ..*view
                });
                Rows::Images(Images {
                    views: views.collect(),
                    ..images.clone()
                })
            }
        }
    }

    /// Adds lines and table to the readable memory.
    fn fill(&self, gpu: &mut TestGpu, on_gpu: &Rows) {
        on_gpu.with_table(|table| {
            if let Some(table) = table {
                gpu.add(TABLE, table.bytes());
            }
        });
        // For each row: its start and the distance between lines, on the host and on the GPU.
        let mut lines = |host: (u64, u32), there: (u64, u32), height: usize, line: usize| {
            for y in 0..height as u64 {
                let from = (host.0 + y * u64::from(host.1)) as usize;
                let to = self.addresses.input + there.0 + y * u64::from(there.1);
                gpu.add(to, &self.input[from..from + line]);
            }
        };
        match (&self.rows, on_gpu) {
            (Rows::Views(host), Rows::Views(there)) => {
                for (host, there) in host.iter().zip(there) {
                    let (height, line) = self.line;
                    lines(
                        (host.offset, host.row_bytes),
                        (there.offset, there.row_bytes),
                        height,
                        line,
                    );
                }
            }
            (Rows::Images(host), Rows::Images(there)) => {
                let pixel = self.line.1;
                for (host, there) in host.views.iter().zip(&there.views) {
                    let (height, line) = (host.height as usize, host.width as usize * pixel);
                    lines(
                        (host.offset, host.row_bytes),
                        (there.offset, there.row_bytes),
                        height,
                        line,
                    );
                }
            }
            _ => gpu.add(self.addresses.input, &self.input),
        }
    }
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case {
            kernel,
            rows,
            addresses,
            ..
        } = self;
        write!(f, "{kernel:?}\n{rows:?}\n{addresses:x?}")
    }
}
