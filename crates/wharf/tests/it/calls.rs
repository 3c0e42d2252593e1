//! Calls from end to end, over puppets.

use serde_json::json;
use wharf_testkit::{Era, Puppet};

use crate::support::{host, puppet};

#[tokio::test]
async fn l50_a_tool_is_listed_and_called_in_both_eras() {
    for era in [Era::Legacy, Era::Modern, Era::Both] {
        let host = host([puppet("pup", &Puppet::of(era))]).await;
        let listing = host.tools().await;
        assert!(listing.failed.is_empty(), "{:?}", listing.failed);
        let outcome = host.call("pup_echo", json!({"message": "hello"})).await;
        assert!(outcome.success, "{outcome:?}");
        assert!(outcome.to_text().contains("hello"));
        host.close().await;
    }
}
