//! The PTX that is shipped, instruction by instruction, against the same kernels built for the
//! host.

mod card;
mod case;
mod mutants;
mod noise;
mod shapes;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use infeed_raw::kernel::{ENTRIES, PTX};
use infeed_standin::ptx::Module;

use case::Case;
use noise::Noise;

/// Of the cases that all tests but the random ones share.
const SEED: u64 = 0x5eed_0b01;

fn shipped() -> Module {
    Module::parse(PTX.to_str().expect("text")).expect("all of it is understood")
}

/// Runs a case on both, and tells of the lines of all instructions.
fn check(module: &Module, case: &Case, watch: impl FnMut(u32)) {
    let found = match case.on_ptx(module, watch) {
        Ok(found) => found,
        Err(fault) => panic!("{fault}\n{case}"),
    };
    let expected = case.on_host();
    let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "the first byte that differs\n{case}");
}

/// Lines of a text that hold instructions.
fn instructions(text: &str) -> BTreeSet<u32> {
    let numbered = (1..).zip(text.lines().map(str::trim));
    let instructions = numbered.filter(|(_, line)| line.ends_with(';') && !line.starts_with('.'));
    instructions.map(|(n, _)| n).collect()
}

#[test]
fn every_entry_gives_the_bytes_of_the_host_for_every_shape() {
    let module = shipped();
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
    // What is left is what no launch comes to, and the compiler cannot know it: units of 16 bytes
    // that are not aligned, the fourth factor of three channels, a first class that is none, a
    // single pixel that is not in its line, images without channels.
    assert!(never_ran * 20 < all, "never run are lines {never:?}");
}

#[test]
fn shapes_and_views_of_any_size_give_the_bytes_of_the_host() {
    let module = shipped();
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

/// Cases of an entry, and what the host makes of each.
type Known = Vec<(Case, Vec<u8>)>;

/// The mutants of an entry that no case tells from what is shipped, of so many.
fn survivors(noise: &mut Noise, entry: &str, cases: &Known, mutants: usize) -> Vec<String> {
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

/// The PTX is not compared with itself: nearly everything that could be otherwise shows.
#[test]
fn one_instruction_changed_is_found_out() {
    // More of them: MUTANTS=100, for an entry.
    let each = std::env::var("MUTANTS").map_or(6, |each| each.parse().expect("a number"));
    let mut noise = Noise(SEED);
    let mut cases: BTreeMap<&str, Known> = BTreeMap::new();
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
    println!("{} of {all} live:\n{}", live.len(), live.join("\n"));
    // Those that live come to the same by another way (a fast path is not taken, a thread finds
    // late that it has nothing to do), or change what is not used or never run.
    assert!(live.len() * 6 <= all, "{} of {all} live", live.len());
}
