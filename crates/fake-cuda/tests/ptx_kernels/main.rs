//! The shipped PTX, instruction by instruction, compared with the same kernels built for the host.

mod case;
mod gpu;
mod mutants;
mod noise;
mod shapes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use fake_cuda::ptx::Module;
use infeed_raw::kernel::{ENTRIES, PTX, PTX_SM80, RowView};
use infeed_raw::simd::{Dtype, Layout};

use case::{Case, GpuAddresses, Rows};
use gpu::TestGpu;
use noise::Noise;

/// Seed of the cases that all tests except the random ones share.
const SEED: u64 = 0x5eed_0b01;

fn shipped_module() -> Module {
    Module::parse(PTX.to_str().expect("text")).expect("all of it is supported")
}

/// Runs a case on both and compares the results. Calls `watch` with the lines of all instructions.
fn check(module: &Module, case: &Case, watch: impl FnMut(u32)) {
    let found = match case.on_ptx(module, watch) {
        Ok(found) => found,
        Err(fault) => panic!("{fault}\n{case}"),
    };
    let expected = case.on_host();
    let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "the first byte that differs\n{case}");
}

/// Returns the lines of a text that contain instructions.
fn instructions(text: &str) -> BTreeSet<u32> {
    let numbered = (1..).zip(text.lines().map(str::trim));
    let instructions = numbered.filter(|(_, line)| line.ends_with(';') && !line.starts_with('.'));
    instructions.map(|(n, _)| n).collect()
}

#[test]
fn every_entry_gives_the_bytes_of_the_host_for_every_shape() {
    let module = shipped_module();
    let mut noise = Noise(SEED);
    let text = PTX.to_str().expect("text");
    let mut entries = BTreeSet::new();
    let mut ran = vec![false; text.lines().count() + 1];
    for case in shapes::all(&mut noise) {
        check(&module, &case, |line| ran[line as usize] = true);
        entries.insert(case.entry());
    }
    let all: BTreeSet<&str> = ENTRIES
        .iter()
        .filter_map(|entry| entry.to_str().ok())
        .collect();
    assert_eq!(entries, all);
    assert_eq!(module.entries().collect::<BTreeSet<_>>(), all);

    let instructions = instructions(text);
    let mut never = instructions.clone();
    never.retain(|&line| !ran[line as usize]);
    let (never_ran, all) = (never.len(), instructions.len());
    println!("{never_ran} of {all} instructions are never run");
    // The rest is unreachable, but the compiler cannot know that: unaligned units of 16 bytes, the
    // fourth factor of three channels, a first class that is none, a single pixel that is not in
    // its line, images without channels.
    assert!(never_ran * 20 < all, "never run are lines {never:?}");
}

fn for_sm80() -> Module {
    Module::parse(PTX_SM80.to_str().expect("text")).expect("all of it is supported")
}

#[test]
fn kernels_of_newer_devices_give_the_bytes_of_the_host() {
    let module = for_sm80();
    let mut noise = Noise(SEED);
    let mut ran = BTreeSet::new();
    for case in shapes::all(&mut noise) {
        if module.entries().any(|entry| entry == case.entry()) {
            check(&module, &case, |_| ());
            ran.insert(case.entry());
        }
    }
    assert_eq!(ran, module.entries().collect::<BTreeSet<_>>());
    assert!(
        ran.iter()
            .all(|entry| ENTRIES.iter().any(|known| known.to_str() == Ok(entry)))
    );
}

/// Crops that begin at every byte of a word, mirrored or not, with outputs that begin at every
/// element.
#[test]
fn every_alignment_gives_the_bytes_of_the_host() {
    let (old, new) = (shipped_module(), for_sm80());
    let mut noise = Noise(SEED);
    let (height, width, line) = (2, 11, 40);
    for (dtype, layout) in [Dtype::U8, Dtype::F32, Dtype::F16, Dtype::BF16]
        .into_iter()
        .flat_map(|dtype| [Layout::Hwc, Layout::Chw].map(|layout| (dtype, layout)))
    {
        for (input, output, flags) in (0..16)
            .flat_map(|input| (0..8).map(move |output| (input, output)))
            .flat_map(|(input, output)| (0..4).map(move |flags| (input, output, flags)))
        {
            let view = RowView {
                offset: 0,
                row_bytes: line as u32,
                flags,
            };
            let case = Case {
                kernel: shapes::expand(&mut noise, (height, width), 3, dtype, layout),
                rows: Rows::Views(vec![view]),
                line: (height, 3 * width),
                input: (0..height * line).map(|_| noise.next() as u8).collect(),
                addresses: GpuAddresses {
                    input: 0x1000_0000_0000 + input,
                    output: 0x7100_0000_0000 + (output * dtype.bytes()) as u64,
                    rows_apart: 0,
                    lines_apart: 0,
                },
            };
            check(&old, &case, |_| ());
            if dtype == Dtype::BF16 {
                check(&new, &case, |_| ());
            }
        }
    }
}

/// Counts instructions of a thread for 8 elements; a GPU needs an issue slot for each.
#[test]
fn bytes_of_crops_are_loaded_by_the_word() {
    let mut noise = Noise(SEED);
    let (height, width) = (8, 96);
    for (name, module) in [("sm_60", shipped_module()), ("sm_80", for_sm80())] {
        let text = if name == "sm_60" { PTX } else { PTX_SM80 };
        let lines: Vec<&str> = text.to_str().expect("text").lines().collect();
        for (input, flags) in [(0, 0), (4, 0), (1, 0), (1, 1)] {
            let view = RowView {
                offset: 0,
                row_bytes: 3 * width as u32 + 32,
                flags,
            };
            let case = Case {
                kernel: shapes::expand(&mut noise, (height, width), 3, Dtype::BF16, Layout::Hwc),
                rows: Rows::Views(vec![view]),
                line: (height, 3 * width),
                input: vec![7; height * (3 * width + 32)],
                addresses: GpuAddresses {
                    input: 0x1000_0000_0000 + input,
                    output: 0x7100_0000_0000,
                    rows_apart: 0,
                    lines_apart: 0,
                },
            };
            let (mut ran, mut bytes) = (0_u64, 0_u64);
            check(&module, &case, |line| {
                ran += 1;
                bytes += u64::from(lines[line as usize - 1].contains("ld.global.b8"));
            });
            let threads = (height * width * 3 / 8) as u64;
            println!(
                "{name}, input at {input}, flags {flags}: {} a thread",
                ran / threads
            );
            assert_eq!(bytes, 0, "{name}, input at {input}, flags {flags}");
        }
    }
}

#[test]
fn shapes_and_views_of_any_size_give_the_bytes_of_the_host() {
    let module = shipped_module();
    let seed = 0x5eed_0b02;
    println!("seed {seed:#x}");
    let mut noise = Noise(seed);
    let begin = Instant::now();
    let mut ran = 0;
    for _ in 0..600 {
        check(&module, &shapes::any(&mut noise), |_| ran += 1);
    }
    println!("{ran} instructions in {:?}", begin.elapsed());
}

/// Cases of an entry with the host's results.
type ExpectedOutputs = Vec<(Case, Vec<u8>)>;

/// Returns the mutants of an entry that behave like the shipped PTX in all cases, of `mutants`
/// tried.
fn survivors(
    noise: &mut Noise,
    entry: &str,
    cases: &ExpectedOutputs,
    mutants: usize,
) -> Vec<String> {
    let text = PTX.to_str().expect("text");
    let mut survivors = Vec::new();
    for _ in 0..mutants {
        let mutant = mutants::mutant(noise, text, entry);
        // Some loops do not end.
        let module = Module::parse(&mutant.text)
            .expect(&mutant.is)
            .with_limit(1 << 22);
        let is_alike = |(case, expected): &(Case, Vec<u8>)| {
            case.on_ptx(&module, |_| ()).as_ref() == Ok(expected)
        };
        if cases.iter().all(is_alike) {
            let mutants::Mutant { line, was, is, .. } = mutant;
            survivors.push(format!("{entry}, line {line}: {was} -> {is}"));
        }
    }
    survivors
}

/// Verifies the cases: nearly every changed instruction changes a result.
#[test]
fn changed_instructions_are_detected() {
    // `MUTANTS=100` tries 100 mutants for each entry.
    let each = std::env::var("MUTANTS").map_or(6, |each| each.parse().expect("a number"));
    let mut noise = Noise(SEED);
    let mut cases: BTreeMap<&str, ExpectedOutputs> = BTreeMap::new();
    for case in shapes::all(&mut noise) {
        let expected = case.on_host();
        cases
            .entry(case.entry())
            .or_default()
            .push((case, expected));
    }
    let mut live = Vec::new();
    for (entry, cases) in &cases {
        live.extend(survivors(&mut noise, entry, cases, each));
    }
    let all = each * cases.len();
    println!("{} of {all} survive:\n{}", live.len(), live.join("\n"));
    // The survivors compute the same result differently (a fast path is not taken, a thread finds
    // its range empty later), or change unused or unreachable code.
    assert!(live.len() * 6 <= all, "{} of {all} survive", live.len());
}

#[test]
fn no_text_causes_a_panic() {
    let shipped = PTX.to_str().expect("text");
    let end = shipped.find("\n}\n").expect("an entry") + 3;
    let text = &shipped.as_bytes()[..end];
    let mut seed = 0x5eed_0b04_u64;
    let mut below = |end: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (seed >> 33) as usize % end
    };
    let mut understood = 0;
    for _ in 0..1500 {
        let mut bytes = text.to_vec();
        for _ in 0..1 + below(3) {
            // Any byte may be changed or be the last one.
            let (at, from) = (below(bytes.len()), below(bytes.len()));
            match below(4) {
                0 => bytes
                    .drain(at..(at + below(9)).min(text.len() / 2).max(at))
                    .for_each(drop),
                _ => bytes[at] = bytes[from],
            }
        }
        let Ok(module) = Module::parse(&String::from_utf8_lossy(&bytes)) else {
            continue;
        };
        understood += 1;
        let entry = module.entries().next().expect("an entry").to_owned();
        let argument = vec![0x11; module.parameter_bytes(&entry).expect("there")];
        let mut memory = TestGpu::new(0x1111_1111_1111_1111, 64);
        memory.add(0x1111_1111_1111_1111, &[0; 64]);
        // The run must not panic.
        let _ = module
            .with_limit(2000)
            .run(&entry, 1, 4, &argument, &memory);
    }
    assert!(
        understood > 100,
        "some texts are still valid PTX: {understood}"
    );
}
