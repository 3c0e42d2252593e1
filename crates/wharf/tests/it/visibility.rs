//! Who sees a connection: listing, finding and calling obey it, and closing a session ends what is its own and only that.

use std::sync::Arc;

use serde_json::json;
use wharf::config::Connect;
use wharf::host::{Docking, NoArguments};
use wharf::policy::Permission;
use wharf::session::Visibility;
use wharf::{CallOptions, Host, LocalTool, Session};
use wharf_testkit::{Puppet, Step};

use crate::support::{at, error, folder, host, is_alive, pid_in, puppet, quick, soon, until};

fn yolo(host: &Host, name: &str) -> Session {
    host.session(name).permission(Permission::Yolo).start().unwrap()
}

fn says(text: &str) -> Puppet {
    let reply = json!({"content": [{"type": "text", "text": text}]});
    Puppet::new().on("tool:echo", [Step::Reply(reply)])
}

fn shared(name: &str, script: &Puppet) -> Docking {
    Docking::new(puppet(name, script)).visibility(Visibility::Shared)
}

async fn said(host: &Host, tool: &str) -> String {
    let outcome = soon("a call", host.call(tool, json!({}))).await;
    assert!(outcome.success, "{outcome:?}");
    outcome.to_text()
}

async fn kind(host: &Host, tool: &str) -> &'static str {
    error(&soon("a call", host.call(tool, json!({}))).await).kind()
}

async fn tools(host: &Host) -> Vec<String> {
    host.tools().await.snapshot.tools().iter().map(|route| route.public.to_string()).collect()
}

#[tokio::test]
async fn l63_a_private_server_is_seen_found_and_called_by_its_owner_only() {
    let host = host([]).await;
    let (a, b) = (yolo(&host, "a"), yolo(&host, "b"));
    let names = a.connect(Docking::new(puppet("secret", &says("private")))).await.unwrap();
    assert_eq!(names, [Arc::from("secret_echo")]);
    assert_eq!(said(&a, "secret_echo").await, "private");
    assert_eq!(tools(&a).await, ["secret_echo"]);
    assert_eq!(a.connections()[0].1, Visibility::Private);
    for other in [&host, &*b] {
        assert!(tools(other).await.is_empty() && other.servers().is_empty());
        let outcome = other.call("secret_echo", json!({})).await;
        assert_eq!(error(&outcome).kind(), "unknown_tool");
        let near = other.call("secret_ech", json!({})).await;
        for outcome in [outcome, near] {
            let hint = error(&outcome).hint().unwrap();
            assert_eq!(hint, "there is none", "another's names are not suggested");
        }
        let outcome = other.call_tool("secret", "echo", json!({}), CallOptions::default()).await;
        assert_eq!(
            (error(&outcome).kind(), error(&outcome).hint().unwrap().as_str()),
            ("unknown_server", "there is none")
        );
        let refused = [
            other.find("secret", "echo").await.unwrap_err(),
            other.tools_of("secret").await.unwrap_err(),
            other.ensemble("secret").await.unwrap_err(),
            other.berth("secret").unwrap_err(),
        ];
        assert!(refused.iter().all(|error| error.kind() == "unknown_server"), "{refused:?}");
        assert!(!other.remove_server("secret").await);
    }
    assert_eq!(b.disconnect("secret").await.unwrap_err().kind(), "unknown_server");
    assert_eq!(b.allow("secret", None).unwrap_err().kind(), "unknown_server");
    assert_eq!(said(&a, "secret_echo").await, "private");
    host.close().await;
}

#[tokio::test]
async fn l63_two_private_servers_of_one_name_do_not_meet() {
    let host = host([puppet("pup", &says("of all"))]).await;
    let (a, b) = (yolo(&host, "a"), yolo(&host, "b"));
    // Listed before anything is private: what was seen then is no way in later.
    assert_eq!((said(&a, "pup_echo").await, said(&b, "pup_echo").await), ("of all".into(), "of all".into()));
    a.connect(Docking::new(puppet("pup", &says("of a")))).await.unwrap();
    b.connect(Docking::new(puppet("pup", &says("of b")))).await.unwrap();
    let (of_a, of_b) = (a.callable("pup", "echo").await.unwrap(), b.callable("pup", "echo").await.unwrap());
    for _ in 0..3 {
        assert_eq!(said(&a, "pup_echo").await, "of a");
        assert_eq!(said(&b, "pup_echo").await, "of b");
        assert_eq!(said(&host, "pup_echo").await, "of all");
        assert_eq!(of_a.call(json!({})).await.to_text(), "of a", "a callable is its maker's");
        assert_eq!(of_b.call(json!({})).await.to_text(), "of b");
    }
    a.disconnect("pup").await.unwrap();
    assert_eq!(said(&a, "pup_echo").await, "of all", "what its own hid is seen again");
    assert_eq!(error(&of_a.call(json!({})).await).kind(), "unknown_tool", "and never called by mistake");
    assert_eq!(of_b.call(json!({})).await.to_text(), "of b");
    host.close().await;
}

#[tokio::test]
async fn l63_what_one_session_shares_the_others_use_and_only_it_takes_back() {
    let files = folder();
    let pid = at(&files, "pid");
    let host = host([]).await;
    let (a, b) = (yolo(&host, "a"), yolo(&host, "b"));
    a.connect(shared("pup", &says("for all").pid(&pid))).await.unwrap();
    let process = pid_in(&pid).await;
    for session in [&a, &b] {
        assert_eq!(session.connections()[0].1, Visibility::Shared);
        assert_eq!(said(session, "pup_echo").await, "for all");
    }
    assert_eq!(said(&host, "pup_echo").await, "for all");
    assert_eq!(pid_in(&pid).await, process, "one process serves them all");
    let denied = b.disconnect("pup").await.unwrap_err();
    assert!(denied.kind() == "denied" && denied.to_string().contains("ownership"), "{denied}");
    assert!(is_alive(process));
    let taken = b.connect(shared("pup", &says("mine"))).await.unwrap_err();
    assert!(taken.hint().unwrap().contains("shared already"), "{taken:?}");
    let taken = a.connect(shared("pup", &says("mine"))).await.unwrap_err();
    assert!(taken.hint().unwrap().contains("disconnect `pup` first"), "{taken:?}");
    a.disconnect("pup").await.unwrap();
    assert!(!is_alive(process));
    assert_eq!((kind(&b, "pup_echo").await, kind(&host, "pup_echo").await), ("unknown_tool", "unknown_tool"));
    host.close().await;
}

#[tokio::test]
async fn l63_connecting_one_name_many_times_at_once_docks_one_server() {
    let files = folder();
    let host = quick().start().await.unwrap();
    let session = yolo(&host, "a");
    let pids: Vec<_> = (0..6).map(|n| at(&files, &format!("pid{n}"))).collect();
    let connects = pids.iter().map(|pid| session.connect(shared("pup", &says("it").pid(pid))));
    let ended = futures_util::future::join_all(connects).await;
    assert_eq!(ended.iter().filter(|ended| ended.is_ok()).count(), 1, "{ended:?}");
    let mut alive = 0;
    for pid in pids.iter().filter(|pid| pid.exists()) {
        alive += usize::from(is_alive(pid_in(pid).await));
    }
    assert_eq!(alive, 1, "whoever came too late has left nothing behind");
    assert_eq!(said(&session, "pup_echo").await, "it");
    session.disconnect("pup").await.unwrap();

    // The very same server is one connection, and whoever comes too late does not close it.
    let script = says("same");
    let connects = (0..6).map(|_| session.connect(Docking::new(puppet("pup", &script))));
    let ended = futures_util::future::join_all(connects).await;
    assert_eq!(ended.iter().filter(|ended| ended.is_ok()).count(), 1, "{ended:?}");
    assert!(session.berth("pup").unwrap().connected());
    assert_eq!(said(&session, "pup_echo").await, "same");
    host.close().await;
}

#[tokio::test]
async fn l63_a_server_that_cannot_be_connected_is_not_kept() {
    let files = folder();
    let pid = at(&files, "pid");
    let host = quick().start().await.unwrap();
    let session = yolo(&host, "a");
    let broken = Puppet::new()
        .pid(&pid)
        .on("tools/list", [Step::ReplyError { code: -32000, message: "out of order".into(), data: None }]);
    for visibility in [Visibility::Private, Visibility::Shared] {
        let docking = Docking::new(puppet("pup", &broken)).visibility(visibility);
        assert_eq!(session.connect(docking).await.unwrap_err().kind(), "rpc");
        assert!(!is_alive(pid_in(&pid).await) && session.servers().is_empty() && host.servers().is_empty());
    }
    let mut off = puppet("pup", &says("off").pid(&pid));
    off.enabled = false;
    std::fs::remove_file(&pid).unwrap();
    assert_eq!(session.connect(Docking::new(off)).await.unwrap_err().kind(), "denied");
    assert!(!pid.exists());
    // A person who gives up in the middle leaves nothing either.
    let slow = says("late").pid(&pid).with(|s| s.start_delay_ms = 600_000);
    let connecting = session.connect(shared("pup", &slow));
    tokio::select! {
        ended = connecting => panic!("{ended:?}"),
        _ = pid_in(&pid) => {}
    }
    let process = pid_in(&pid).await;
    until("it is gone", || !is_alive(process)).await;
    let mut manual = puppet("pup", &says("fine"));
    manual.connect = Connect::Manual;
    session.connect(Docking::new(manual)).await.unwrap();
    assert_eq!(said(&session, "pup_echo").await, "fine");
    host.close().await;
}

#[tokio::test]
async fn l63_closing_or_dropping_a_session_ends_its_own_and_only_that() {
    for dropped in [false, true] {
        let files = folder();
        let [of_host, of_a, given, of_b] = ["host", "a", "given", "b"].map(|name| at(&files, name));
        let host = quick().server(puppet("base", &says("base").pid(&of_host))).start().await.unwrap();
        let (a, b) = (yolo(&host, "a"), yolo(&host, "b"));
        a.connect(Docking::new(puppet("own", &says("a").pid(&of_a)))).await.unwrap();
        a.connect(shared("given", &says("given").pid(&given))).await.unwrap();
        b.connect(Docking::new(puppet("own", &says("b").pid(&of_b)))).await.unwrap();
        let greet = LocalTool::new("greet", "Greets", async |_: NoArguments, _| Ok::<_, String>("hello"));
        a.register(greet).unwrap();
        assert_eq!(said(&a, "greet").await, "hello");
        assert_eq!(kind(&b, "greet").await, "unknown_tool", "a session's function is its own");
        assert_eq!(said(&a, "base_echo").await, "base");
        let gone = pid_in(&of_a).await;
        if dropped {
            let clone = a.clone();
            drop(a);
            assert_eq!(said(&clone, "own_echo").await, "a", "not before the last clone");
            drop(clone);
            until("its process is gone", || !is_alive(gone)).await;
        } else {
            let callable = a.callable("own", "echo").await.unwrap();
            a.close().await;
            assert!(!is_alive(gone), "closing waits for the end");
            a.close().await;
            for tool in ["own_echo", "base_echo", "greet", "nothing"] {
                assert_eq!(kind(&a, tool).await, "cancelled");
            }
            assert_eq!(error(&callable.call(json!({})).await).kind(), "cancelled");
            assert!(tools(&a).await.is_empty() && a.servers().is_empty());
            let late = a.connect(Docking::new(puppet("new", &Puppet::new()))).await.unwrap_err();
            assert_eq!(late.kind(), "cancelled");
            assert_eq!(a.berth("own").unwrap_err().kind(), "cancelled");
            assert_eq!(a.berth(puppet("x", &Puppet::new())).unwrap_err().kind(), "cancelled");
            let greet = LocalTool::new("late", "Late", async |_: NoArguments, _| Ok::<_, String>(""));
            assert_eq!(a.register(greet).unwrap_err().kind(), "cancelled");
            assert!(!is_alive(gone) && pid_in(&of_a).await == gone, "and nothing was started again");
        }
        for (pid, session, tool) in
            [(&of_host, &*b, "base_echo"), (&of_b, &*b, "own_echo"), (&given, &host, "given_echo")]
        {
            assert!(is_alive(pid_in(pid).await));
            said(session, tool).await;
        }
        let left = [pid_in(&of_host).await, pid_in(&of_b).await, pid_in(&given).await];
        host.close().await;
        assert!(
            left.iter().all(|pid| !is_alive(*pid)),
            "closing the host leaves nothing, of sessions neither"
        );
    }
}

#[tokio::test]
async fn l63_a_call_under_way_ends_when_its_session_is_closed() {
    let files = folder();
    let began = at(&files, "began");
    let host = quick().start().await.unwrap();
    let session = yolo(&host, "a");
    let hangs = Puppet::new().on("tool:echo", [Step::Count(began.clone()), Step::Hang]);
    session.connect(Docking::new(puppet("pup", &hangs))).await.unwrap();
    let calling = tokio::spawn({
        let session = session.clone();
        async move { session.call("pup_echo", json!({})).await }
    });
    until("the call is under way", || began.exists()).await;
    session.close().await;
    let outcome = soon("the call", calling).await.unwrap();
    assert!(!outcome.success && outcome.error.is_some(), "{outcome:?}");
}

#[tokio::test]
async fn l63_a_session_can_hide_a_shared_tool_by_one_of_its_own() {
    let host = host([]).await;
    let tool = |name: &str, says: &'static str| {
        LocalTool::new(name, "Says", move |_: NoArguments, _| std::future::ready(Ok::<_, String>(says)))
    };
    host.register(tool("who", "the host")).unwrap();
    host.register(tool("b_c", "of a").in_set("a")).unwrap();
    let session = yolo(&host, "a");
    assert_eq!(said(&session, "who").await, "the host");
    assert_eq!(&*session.register(tool("who", "the session")).unwrap(), "who");
    assert_eq!(
        (said(&session, "who").await, said(&host, "who").await),
        ("the session".into(), "the host".into())
    );
    // Two sets whose names run together: the name that registering gave is the name that leads there.
    let name = session.register(tool("c", "of a_b").in_set("a_b")).unwrap();
    assert_eq!(said(&session, &name).await, "of a_b");
    assert_eq!(said(&host, "a_b_c").await, "of a");
    assert!(session.unregister("who") && !session.unregister("who"));
    assert_eq!(said(&session, "who").await, "the host");
}
