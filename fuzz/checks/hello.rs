//! Any bytes as the first of a TLS connection: no server behind can read another name from them than the proxy did, and
//! nothing is judged before it is whole.

use rustls::server::Acceptor;
use wharf::sandbox::egress::read_hello;

/// The name that a TLS library reads; the outer `None` where it sees no hello.
fn by_others(mut bytes: &[u8]) -> Option<Option<String>> {
    let mut acceptor = Acceptor::default();
    while !bytes.is_empty() {
        acceptor.read_tls(&mut bytes).ok()?;
        if let Some(accepted) = acceptor.accept().ok()? {
            return Some(accepted.client_hello().server_name().map(str::to_ascii_lowercase));
        }
    }
    None
}

pub(crate) fn check(data: &[u8]) {
    let Some((&cut, data)) = data.split_first() else { return };
    let Some(read) = read_hello(data) else { return };
    if let Ok(ours) = &read
        && let Some(theirs) = by_others(data)
    {
        // An address is no name to a library, and is to us.
        assert!(theirs.is_none() || theirs == *ours, "{theirs:?} and not {ours:?}");
    }
    // What was read of a part is what is read of the whole.
    let part = &data[..data.len() * usize::from(cut) / 256];
    if let Some(Ok(early)) = read_hello(part) {
        assert_eq!(Ok(early), read, "it was judged too early");
    }
}
