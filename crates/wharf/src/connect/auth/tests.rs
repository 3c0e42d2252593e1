//! The parts that read what others wrote.

use http::HeaderMap;
use http::header::WWW_AUTHENTICATE;

use super::challenge::Challenge;

fn read(text: &str) -> Option<Challenge> {
    Challenge::read(&HeaderMap::from_iter([(WWW_AUTHENTICATE, text.parse().unwrap())]))
}

#[test]
fn l81_a_challenge_is_read_in_every_spelling() {
    let whole = r#"Bearer error="insufficient_scope", scope="a:b  c", resource_metadata="https://x/y?z=1,2""#;
    let read_whole = read(whole).unwrap();
    assert!(read_whole.wants_more());
    assert_eq!(read_whole.scopes.as_deref(), Some(&["a:b".to_owned(), "c".to_owned()][..]));
    assert_eq!(read_whole.resource_metadata.as_deref(), Some("https://x/y?z=1,2"));
    // Behind another scheme, in another case, without quotes, with an escape.
    let other =
        read(r#"Basic realm="Bearer scope=\"no\"", bearer resource_metadata=https://x/y, scope="q\uoted""#);
    let other = other.unwrap();
    assert_eq!(other.resource_metadata.as_deref(), Some("https://x/y"));
    assert_eq!(other.scopes.as_deref(), Some(&["quoted".to_owned()][..]));
    assert_eq!(read("Bearer"), Some(Challenge::default()));
    assert_eq!(read("Basic realm=x"), None);
    assert_eq!(read(r#"Bearer scope="unclosed"#).unwrap().scopes.unwrap(), ["unclosed"]);
    assert_eq!(read("=,=,\"\\"), None);
}
