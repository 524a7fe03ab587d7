//! The fuzz targets' checks on their seeds and on mutations of them, with the stable toolchain.
//!
//! The mutations come from a fixed sequence, so that a failure repeats; the failing input is printed.

#[path = "../../fuzz/checks.rs"]
mod checks;

use std::panic::catch_unwind;
use std::{env, fs};

/// How many mutations each check gets; `TINYAGENT_FUZZ_ROUNDS` changes it.
const ROUNDS: usize = 20_000;

/// Pieces that matter to the readers, put in at random places.
const PIECES: [&[u8]; 16] = [
    b"{",
    b"}",
    b"[",
    b"]",
    b"\"",
    b"\\",
    b"\\ud800",
    b"\\udc00",
    b",",
    b":",
    b"\n",
    b"\xe2\x80\xa8",
    b"\xff",
    b"9",
    b"\"event\":",
    b"null",
];

/// A small generator (xorshift64*), because the sequence must never change.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).expect("31 bits") % bound.max(1)
    }
}

fn mutated(seed: &[u8], sequence: &mut Sequence) -> Vec<u8> {
    let mut data = seed.to_vec();
    for _ in 0..=sequence.below(4) {
        let at = sequence.below(data.len() + 1);
        match sequence.below(4) {
            0 if at < data.len() => data[at] ^= 1 << sequence.below(8),
            1 => drop(data.splice(at..at, PIECES[sequence.below(PIECES.len())].iter().copied())),
            2 => drop(data.drain(at..(at + sequence.below(8)).min(data.len()))),
            _ => {
                let end = (at + sequence.below(40)).min(data.len());
                let copy = data[at..end].to_vec();
                let to = sequence.below(data.len() + 1);
                drop(data.splice(to..to, copy));
            }
        }
    }
    data
}

#[test]
fn every_reader_holds_its_promises_on_the_seeds_and_on_mutations_of_them() {
    let rounds =
        env::var("TINYAGENT_FUZZ_ROUNDS").ok().and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    for (name, check) in checks::ALL {
        let folder = format!("{}/fuzz/corpus/{name}", env!("CARGO_MANIFEST_DIR"));
        let seeds: Vec<Vec<u8>> = fs::read_dir(&folder)
            .expect(&folder)
            .map(|seed| fs::read(seed.expect("a seed").path()).expect("a file"))
            .collect();
        assert!(seeds.len() >= 3, "{folder} has too few seeds");
        let mut sequence = Sequence(0x9e37_79b9_7f4a_7c15);
        for round in 0..rounds + seeds.len() {
            let seed = &seeds[round % seeds.len()];
            let data = if round < seeds.len() { seed.clone() } else { mutated(seed, &mut sequence) };
            if catch_unwind(|| check(&data)).is_err() {
                panic!("{name} fails on {:?}", String::from_utf8_lossy(&data));
            }
        }
    }
}
