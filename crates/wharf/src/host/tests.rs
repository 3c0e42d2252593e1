//! What cannot be seen from outside: a route that was given to one scope, followed in another.

use serde_json::json;

use super::{CallOptions, Host, LocalTool, NoArguments, Session};
use crate::policy::Permission;
use crate::wire::Json;

fn tool(name: &str) -> LocalTool {
    LocalTool::new(name, "Says where it is", async |_: NoArguments, _| Ok::<_, String>("here"))
}

fn session(host: &Host, name: &str) -> Session {
    host.session(name).permission(Permission::Yolo).start().unwrap()
}

/// The kind of error of a call along the route of that name in one scope, made in another; empty if it succeeds.
async fn followed(from: &Host, name: &str, to: &Host) -> &'static str {
    let route = from.scope.snapshot().route(name).unwrap().clone();
    let outcome = to.run(&route, &Json::from(json!({})), CallOptions::default()).await;
    outcome.error.as_deref().map_or("", crate::Error::kind)
}

#[tokio::test]
async fn l63_a_private_route_leads_nowhere_in_another_scope() {
    let host = Host::builder().start().await.unwrap();
    let (a, b) = (session(&host, "a"), session(&host, "b"));
    host.register(tool("shared")).unwrap();
    // The same name in both: only the owner tells them apart.
    a.register(tool("own")).unwrap();
    b.register(tool("own")).unwrap();
    host.register(tool("own")).unwrap();
    assert_eq!(followed(&a, "own", &a).await, "");
    for (from, to) in [(&*a, &*b), (&*b, &*a), (&*a, &host)] {
        assert_eq!(followed(from, "own", to).await, "unknown_tool");
    }
    for (from, to) in [(&host, &*a), (&*a, &*b), (&*b, &host)] {
        assert_eq!(followed(from, "shared", to).await, "", "what is shared is everyone's");
    }
    let late = a.scope.snapshot().route("own").unwrap().clone();
    a.close().await;
    let outcome = a.run(&late, &Json::from(json!({})), CallOptions::default()).await;
    assert_eq!(outcome.error.unwrap().kind(), "cancelled");
}

#[tokio::test]
async fn l21_a_route_is_judged_again_when_it_is_followed() {
    let host = Host::builder().start().await.unwrap();
    host.register(tool("shared")).unwrap();
    let nobody = host.session("nobody").start().unwrap();
    assert_eq!(followed(&host, "shared", &nobody).await, "denied", "however it came by the route");
}
