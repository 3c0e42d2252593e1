//! what the fuzz targets check, checked here with their seeds, each as it is and in many broken forms. The targets
//! themselves run without end: `cargo +nightly fuzz run TARGET seeds/TARGET` in `fuzz`.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{rounds, tell};

#[path = "../../../../../fuzz/checks/mod.rs"]
mod checks;

fn fuzz() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let mut files: Vec<PathBuf> =
        fs::read_dir(fuzz().join("seeds").join(target)).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files.iter().map(|file| fs::read(file).unwrap()).collect()
}

/// The seed with a few things wrong: cut, doubled, bytes changed, mixed with another.
fn broken(dice: &mut fastrand::Rng, seed: &[u8], other: &[u8]) -> Vec<u8> {
    const ODD: &[u8] = b"\0\n\r\t \"\\{}[]:,/@#%.-=*\x1b\x7f\x80\xc3\xe2\xff09aZ";
    let mut bytes = seed.to_vec();
    for _ in 0..=dice.usize(..4) {
        let at = dice.usize(..=bytes.len());
        match dice.u8(..6) {
            0 => bytes.truncate(at),
            1 => bytes.insert(at, ODD[dice.usize(..ODD.len())]),
            2 if at < bytes.len() => bytes[at] = ODD[dice.usize(..ODD.len())],
            3 if at < bytes.len() => drop(bytes.remove(at)),
            4 => bytes.splice(at..at, other[dice.usize(..=other.len())..].iter().copied()).for_each(drop),
            _ if bytes.len() < 4096 => bytes.extend_from_within(at..),
            _ => {}
        }
    }
    bytes
}

/// How long this thread has worked. What others do on the machine meanwhile does not count.
fn worked() -> Duration {
    let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
    // Behind the name, which may have blanks: hundredths of a second in the program and in the kernel.
    let numbers = stat.rsplit_once(')').unwrap().1.split_whitespace().skip(11).take(2);
    Duration::from_millis(numbers.map(|number| 10 * number.parse::<u64>().unwrap()).sum())
}

#[test]
fn r_13_every_seed_and_its_broken_forms_pass_the_checks_of_its_target() {
    let many = rounds(150, 20_000);
    let mut total = 0;
    for (target, check) in checks::ALL {
        let seeds = seeds(target);
        assert!(seeds.len() >= 4, "{target} has hardly a seed");
        // The same dice every time: what fails once fails again.
        let mut dice = fastrand::Rng::with_seed(13);
        for seed in &seeds {
            let inputs = (0..many).map(|n| match n {
                0 => seed.clone(),
                _ => broken(&mut dice, seed, &seeds[n % seeds.len()]),
            });
            for input in inputs {
                let before = worked();
                let ended = std::panic::catch_unwind(|| check(&input));
                assert!(ended.is_ok(), "{target}: {:?}", String::from_utf8_lossy(&input));
                let took = worked() - before;
                // Schemas are checked on threads of their own, against a time that is looked at there.
                assert!(
                    took < Duration::from_secs(1),
                    "{target}: {took:?} for {:?}",
                    String::from_utf8_lossy(&input)
                );
                total += 1;
            }
        }
    }
    tell(format!("R-13 {total} inputs through {} checks", checks::ALL.len()));
}

#[test]
fn r_13_every_check_is_a_target_and_every_target_has_seeds() {
    let names: BTreeSet<String> = checks::ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    let stems = |folder: &str| -> BTreeSet<String> {
        let entries = fs::read_dir(fuzz().join(folder)).unwrap();
        let stems =
            entries.map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned());
        stems.filter(|stem| stem != "mod").collect()
    };
    for folder in ["fuzz_targets", "checks", "seeds"] {
        assert_eq!(stems(folder), names, "{folder}");
    }
    let manifest = fs::read_to_string(fuzz().join("Cargo.toml")).unwrap();
    for name in &names {
        assert!(
            manifest.contains(&format!("name = \"{name}\"\npath = \"fuzz_targets/{name}.rs\"")),
            "{name}"
        );
        let target = fs::read_to_string(fuzz().join(format!("fuzz_targets/{name}.rs"))).unwrap();
        assert!(target.contains(&format!("{name}::check(data)")), "{name}");
    }
}
