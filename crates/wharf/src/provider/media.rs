//! Pictures and documents of a result, checked before a provider sees them.
//!
//! In: base64 and what a server says it is. Out: what its bytes say it is, if that is a format that models read; a
//! provider refuses a whole request because of one wrong label. Nothing is decoded beyond its first bytes' meaning.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};
use base64::engine::{DecodePaddingMode, general_purpose};

/// The most base64 of one picture or document, in bytes: what the strictest provider takes (3.75 MB before encoding).
pub const DATA_MAX: usize = 5_000_000;

/// A format that models read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Format {
    /// `image/png`
    Png,
    /// `image/jpeg`
    Jpeg,
    /// `image/gif`
    Gif,
    /// `image/webp`
    Webp,
    /// `application/pdf`
    Pdf,
}

/// Servers leave the padding out, or break the lines.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Recognises the format by the bytes, whatever the label says, and writes the base64 in the one form that every
/// provider takes. An error says why it cannot be shown to a model.
pub(super) fn check(base64: &str) -> Result<(Format, String), &'static str> {
    if base64.len() > DATA_MAX {
        return Err("too large to show");
    }
    let digits: Vec<u8> = base64.bytes().filter(|b| !b.is_ascii_whitespace()).collect();
    let bytes = LENIENT.decode(&digits).map_err(|_| "not valid base64")?;
    let format = Format::of(&bytes).ok_or("not in a format that models read")?;
    Ok((format, general_purpose::STANDARD.encode(bytes)))
}

// === impl Format ===

impl Format {
    fn of(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some(Self::Png),
            [0xff, 0xd8, 0xff, ..] => Some(Self::Jpeg),
            [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some(Self::Gif),
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some(Self::Webp),
            [b'%', b'P', b'D', b'F', b'-', ..] => Some(Self::Pdf),
            _ => None,
        }
    }

    /// Its media type.
    pub fn mime(self) -> &'static str {
        match self {
            Self::Png => "image/png",
            Self::Jpeg => "image/jpeg",
            Self::Gif => "image/gif",
            Self::Webp => "image/webp",
            Self::Pdf => "application/pdf",
        }
    }

    /// Its short name, as Bedrock has it.
    pub fn word(self) -> &'static str {
        self.mime().rsplit('/').next().unwrap_or_default()
    }

    /// Whether it is a picture.
    pub fn is_image(self) -> bool {
        self != Self::Pdf
    }
}
