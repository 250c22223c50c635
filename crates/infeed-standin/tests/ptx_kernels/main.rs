//! The PTX that is shipped, instruction by instruction, against the same kernels built for the host.

mod card;
mod case;
mod mutants;
mod noise;
mod shapes;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Not;
use std::time::Instant;

use infeed_raw::kernel::{ENTRIES, PTX};
use infeed_standin::ptx::Module;

use case::Case;
use noise::Noise;

fn shipped() -> Module {
    Module::parse(PTX.to_str().expect("text")).expect("all of it is understood")
}

/// Runs a case on both, and returns how many instructions the PTX took.
fn check(module: &Module, case: &Case) -> u64 {
    let (found, ran) = match case.on_ptx(module) {
        Ok(ran) => ran,
        Err(fault) => panic!("{fault}\n{case}"),
    };
    let expected = case.on_host();
    let differs = found.iter().zip(&expected).position(|(a, b)| a != b);
    assert_eq!(differs, None, "the first byte that differs\n{case}");
    ran
}

#[test]
fn every_entry_gives_the_bytes_of_the_host_for_every_shape() {
    let module = shipped();
    let mut noise = Noise(0x5eed_0b01);
    let mut ran = BTreeSet::new();
    for case in shapes::all(&mut noise) {
        check(&module, &case);
        ran.insert(case.entry());
    }
    let all: BTreeSet<&str> = ENTRIES
        .iter()
        .filter_map(|entry| entry.to_str().ok())
        .collect();
    assert_eq!(ran, all);
    assert_eq!(module.entries().collect::<BTreeSet<_>>(), all);
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
        ran += check(&module, &shapes::any(&mut noise));
    }
    println!("{ran} instructions in {:?}", begin.elapsed());
}

/// What is found out about mutants of an entry: how many, and those that no case tells from what is
/// shipped.
fn survivors(
    noise: &mut Noise,
    text: &str,
    entry: &str,
    cases: &[(Case, Vec<u8>)],
    mutants: usize,
) -> Vec<String> {
    let mut survivors = Vec::new();
    for _ in 0..mutants {
        let mutant = mutants::mutant(noise, text, entry);
        // Some loops do not end.
        let module = Module::parse(&mutant.text)
            .expect(&mutant.is)
            .with_limit(1 << 18);
        let is_caught = cases.iter().any(|(case, expected)| {
            let found = case.on_ptx(&module);
            found.is_ok_and(|(found, _)| found == *expected).not()
        });
        if !is_caught {
            let mutants::Mutant { line, was, is, .. } = mutant;
            survivors.push(format!("{entry}, line {line}: {was} -> {is}"));
        }
    }
    survivors
}

#[test]
fn one_instruction_changed_is_found_out() {
    let text = PTX.to_str().expect("text");
    let mutants = std::env::var("MUTANTS").map_or(3, |n| n.parse().unwrap());
    let mut noise = Noise(0x5eed_0b03);
    let mut cases: BTreeMap<&str, Vec<(Case, Vec<u8>)>> = BTreeMap::new();
    for case in shapes::all(&mut noise) {
        let expected = case.on_host();
        cases
            .entry(case.entry())
            .or_default()
            .push((case, expected));
    }
    let begin = Instant::now();
    let mut count = 0;
    for (entry, cases) in &cases {
        let found = survivors(&mut noise, text, entry, cases, mutants);
        count += found.len();
        println!("{}", found.join("\n"));
    }
    println!("{count} of {} live, {:?}", 27 * mutants, begin.elapsed());
}
