//! Any bytes as JSON: accepted exactly where `serde_json` accepts them (but for numbers it cannot hold), kept byte for
//! byte, and refused strictly exactly where a key stands twice, or is one that `serde_json` keeps for itself.

use serde_json::Value;
use wharf::wire::{Json, JsonError};

pub(crate) fn check(data: &[u8]) {
    let ours = Json::parse(data.to_vec(), 127);
    match (&ours, serde_json::from_slice::<Value>(data)) {
        (Ok(json), Ok(value)) => {
            assert_eq!(
                json.as_str(),
                std::str::from_utf8(data).unwrap().trim_matches([' ', '\t', '\r', '\n'])
            );
            assert_eq!(json.to::<Value>().unwrap(), value);
        }
        (Err(_), Err(_)) => {}
        (Ok(_), Err(e)) => assert!(e.to_string().starts_with("number out of range"), "{e}"),
        (Err(e), Ok(_)) => panic!("refused: {e}"),
    }
    match (ours, Json::parse_strict(data.to_vec(), 127)) {
        (Ok(a), Ok(b)) => assert_eq!(a, b),
        (Ok(_), Err(JsonError::DuplicateKey(_))) => {}
        (Ok(_), Err(e)) => assert!(e.to_string().starts_with("a key of the JSON library's own"), "{e}"),
        (Err(a), Err(b)) => assert_eq!(a, b),
        (Err(_), Ok(_)) => panic!("strict is laxer"),
    }
}
