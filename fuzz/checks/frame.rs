//! Any bytes as one frame: no panic, and every part that comes out is JSON of its own and lies in the frame.

use bytes::Bytes;
use wharf::wire::{Json, Message, parse_frame};

pub(crate) fn check(data: &[u8]) {
    let part = |json: &Json| {
        assert!(Json::parse(json.bytes().clone(), 127).is_ok(), "a part is not JSON");
        assert!(data.windows(json.bytes().len()).any(|w| w == &json.bytes()[..]), "a part was rebuilt");
    };
    let messages = parse_frame(Bytes::copy_from_slice(data), 127);
    assert!(!messages.is_empty(), "a frame vanished");
    for message in &messages {
        match message {
            Ok(Message::Request { id, params, .. }) => {
                part(id);
                params.iter().for_each(part);
            }
            Ok(Message::Notification { params, .. }) => params.iter().for_each(part),
            Ok(Message::Response { outcome: Ok(result), .. }) => part(result),
            Ok(Message::Response { outcome: Err(error), .. }) => drop(error.to_string()),
            Err(malformed) => assert!(malformed.reason.len() < 1024, "an error repeats the frame"),
        }
    }
}
