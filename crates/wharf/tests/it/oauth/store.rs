//! Logins in files: sealed, for their owner alone, and each in its place.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use wharf::connect::{Outline, SealedFiles, TokenStore};
use wharf::secret::Secret;

use crate::support::folder;

fn outline() -> Outline {
    let issuer = "https://auth.example".to_owned();
    Outline { issuer, expires: None, renewable: true, scopes: vec!["read".into()], wanted: Vec::new() }
}

#[test]
fn l81_a_login_in_a_file_is_sealed_and_its_owners_alone() {
    let place = folder();
    let at = place.path().join("logins");
    let store = SealedFiles::new(&at);
    assert_eq!(store.get("srv").unwrap(), None);
    let text = Secret::new("access-token-in-the-clear");
    store.put("srv", &text, &outline()).unwrap();
    assert_eq!(SealedFiles::new(&at).get("srv").unwrap(), Some(text));
    assert_eq!(SealedFiles::new(&at).outline("srv"), Some(outline()));
    let mode = |path: &std::path::Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&at), 0o700);
    for file in fs::read_dir(&at).unwrap() {
        let path = file.unwrap().path();
        assert_eq!(mode(&path), 0o600, "{path:?}");
        let bytes = fs::read(&path).unwrap();
        assert!(!String::from_utf8_lossy(&bytes).contains("in-the-clear"), "{path:?}");
    }
    assert!(store.remove("srv").unwrap());
    assert!(!store.remove("srv").unwrap());
    assert_eq!((store.get("srv").unwrap(), store.outline("srv")), (None, None));
}

#[test]
fn l81_a_login_that_was_changed_swapped_or_opened_to_others_is_refused() {
    let place = folder();
    let store = SealedFiles::new(place.path());
    store.put("one", &Secret::new("first"), &outline()).unwrap();
    store.put("two", &Secret::new("second"), &outline()).unwrap();
    let [one, two] = ["one", "two"].map(|name| place.path().join(format!("{name}.sealed")));
    let good = fs::read(&one).unwrap();
    // Another server's login in this one's place.
    fs::write(&one, fs::read(&two).unwrap()).unwrap();
    assert!(store.get("one").is_err());
    // A flipped letter, half of it, nothing of it.
    let mut flipped = good.clone();
    let last = flipped.len() - 6;
    flipped[last] = if flipped[last] == b'A' { b'B' } else { b'A' };
    for broken in [&flipped[..], &good[..good.len() / 2], b"", b"wharf-login-1 "] {
        fs::write(&one, broken).unwrap();
        assert!(store.get("one").unwrap_err().hint().unwrap().contains("log in again"));
    }
    // The control, and then the same with a door open.
    fs::write(&one, &good).unwrap();
    assert_eq!(store.get("one").unwrap(), Some(Secret::new("first")));
    for path in [&one, &place.path().join("key")] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
        assert!(store.get("one").is_err(), "{path:?}");
        fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    assert_eq!(store.get("one").unwrap(), Some(Secret::new("first")));
}

#[test]
fn l81_one_user_of_a_login_at_a_time() {
    let place = folder();
    let (one, two) = (SealedFiles::new(place.path()), SealedFiles::new(place.path()));
    let lock = one.try_lock("srv").unwrap().unwrap();
    assert!(two.try_lock("srv").unwrap().is_none());
    assert!(two.try_lock("other").unwrap().is_some());
    drop(lock);
    assert!(two.try_lock("srv").unwrap().is_some());
}

#[test]
fn l81_a_key_stays_in_its_folder() {
    let place = folder();
    let store = SealedFiles::new(place.path().join("logins"));
    store.put("../../srv", &Secret::new("text"), &outline()).unwrap();
    assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1);
    assert_eq!(store.get("../../srv").unwrap(), Some(Secret::new("text")));
}
