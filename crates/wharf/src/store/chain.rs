//! How records hang together: each one's hash covers the one before it.

use sha2::{Digest, Sha256};

/// A place in the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) seq: u64,
    pub(super) hash: [u8; 32],
}

/// Where every chain begins.
pub(super) const START: Link = Link { seq: 0, hash: [0; 32] };

impl Link {
    /// The place of the record that follows.
    pub(super) fn next(&self, seq: u64, record: &[u8]) -> Self {
        let hash = Sha256::new().chain_update(self.hash).chain_update(record).finalize();
        Self { seq, hash: hash.into() }
    }
}

/// Bytes as people compare them.
pub(super) fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| digits(*byte)).map(char::from).collect()
}

/// The same of a hash.
pub(super) fn hex_digits(hash: &[u8; 32]) -> [u8; 64] {
    let mut hex = [0; 64];
    for (two, byte) in hex.chunks_exact_mut(2).zip(hash) {
        two.copy_from_slice(&digits(*byte));
    }
    hex
}

fn digits(byte: u8) -> [u8; 2] {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]
}

/// And back.
pub(super) fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}
