//! Any bytes as the head of a request: what the gateway takes for one is the same to an independent reader, wherever it is
//! cut nothing else comes out, and its body ends in one place only.

use std::collections::BTreeSet;

use wharf::gateway::read_request_head;

pub(crate) fn check(data: &[u8]) {
    let Some((&cut, data)) = data.split_first() else { return };
    let mut fields = [httparse::EMPTY_HEADER; 128];
    let mut theirs = httparse::Request::new(&mut fields);
    let parsed = theirs.parse(data);
    let is_whole = matches!(parsed, Ok(httparse::Status::Complete(_)));
    let names: BTreeSet<String> = match is_whole {
        true => theirs.headers.iter().map(|field| field.name.to_ascii_lowercase()).collect(),
        false => BTreeSet::new(),
    };
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let read = read_request_head(data, &names);
    if let Ok(Some(ours)) = &read {
        assert_eq!(parsed, Ok(httparse::Status::Complete(ours.taken)), "they read another head, or none");
        assert_eq!(theirs.method, Some(ours.method.as_str()));
        let target = theirs.path.unwrap_or_default();
        assert!(target.contains(&ours.path), "{target:?}: {:?}", ours.path);
        if target.starts_with('/') {
            let (target, _) = target.split_once('#').unwrap_or((target, ""));
            let (path, query) =
                target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
            assert_eq!((path, query), (ours.path.as_str(), ours.query.as_deref()));
        }
        let values = |name: &str| -> Vec<&[u8]> {
            let named = theirs.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
            named.map(|field| field.value).collect()
        };
        for (name, (is_there, value)) in names.iter().zip(&ours.fields) {
            if matches!(*name, "content-length" | "transfer-encoding") {
                continue;
            }
            let expected = match values(name).as_slice() {
                [one] => std::str::from_utf8(one).ok().filter(|one| one.is_ascii()),
                _ => None,
            };
            // What stands at the end of a value is blank to some and not to others.
            assert_eq!(value.as_deref().map(str::trim), expected.map(str::trim), "{name}");
            assert!(is_there, "{name}");
        }
        let (lengths, encodings) = (values("content-length"), values("transfer-encoding"));
        assert!(lengths.len() + encodings.len() <= 1, "two ends");
        match ours.length {
            Some(length) if lengths.len() == 1 => {
                assert_eq!(std::str::from_utf8(lengths[0]).unwrap().trim().parse(), Ok(length));
            }
            Some(length) => assert_eq!((length, encodings.len()), (0, 0)),
            None => assert_eq!(encodings.len(), 1),
        }
        for end in [usize::from(cut) % ours.taken, ours.taken - 1] {
            assert_eq!(read_request_head(&data[..end], &names), Ok(None), "half of it is enough");
        }
        assert_eq!(read_request_head(&data[..ours.taken], &names), read, "what is behind it matters");
    }
}
