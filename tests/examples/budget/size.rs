//! The size of the whole program in memory: its code and its constants, without the debugging information.

use std::error::Error;
use std::fs;
use std::path::Path;

use lockwarden_tests::budget::Measure;

pub(crate) fn measure(program: &Path) -> Result<Measure, Box<dyn Error>> {
    let bytes = fs::read(program)?;
    let size = loaded(&bytes).ok_or_else(|| format!("{} is no ELF file of 64 bits", program.display()))?;
    Ok(Measure { name: "the program: code and constants", is: size / 1024 })
}

/// Bytes of an ELF file that are loaded; `None` for another file. See `man 5 elf`.
fn loaded(file: &[u8]) -> Option<u64> {
    const LOAD: u64 = 1;
    let number = |at: usize, length: usize| {
        let bytes = file.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0, |number, &byte| number << 8 | u64::from(byte)))
    };
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let start = usize::try_from(number(0x20, 8)?).ok()?;
    let (size, count) = (number(0x36, 2)?, number(0x38, 2)?);
    let mut total = 0;
    for part in 0..count {
        let at = start.checked_add(usize::try_from(part * size).ok()?)?;
        if number(at, 4)? == LOAD {
            total += number(at.checked_add(0x20)?, 8)?;
        }
    }
    Some(total)
}
