//! What an agent remembers: changed by calls that succeed, untouched by those that do not, and never lost to each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use wharf::host::{Context, Docking, NoArguments, Reply};
use wharf::outcome::Outcome;
use wharf::policy::Permission;
use wharf::session::{Extensions, Memory, Transaction};
use wharf::wire::Json;
use wharf::{Host, LocalTool, Session};
use wharf_testkit::{Puppet, Step};

use crate::support::{error, host, puppet, soon, within};

/// How many there are.
#[derive(Clone, Debug, Default, PartialEq)]
struct Count(u64);
/// What was said last.
#[derive(Clone, Debug, PartialEq)]
struct Last(String);

fn more(by: u64) -> impl Fn(Option<&Count>) -> Count + Send + Sync + 'static {
    move |before| Count(before.map_or(0, |count| count.0) + by)
}

fn counted(host: &Host) -> u64 {
    host.state().get::<Count>().map_or(0, |count| count.0)
}

fn change(context: &Context) {
    context.state().update(more(100));
    context.state().set(Last("half done".into()));
}

fn doing<F, R>(name: &str, run: impl Fn(Context) -> F + Send + Sync + 'static) -> LocalTool
where
    F: Future<Output = Result<R, String>> + Send + 'static,
    R: Into<Reply> + 'static,
{
    LocalTool::new(name, "Does something", move |_: NoArguments, context| run(context))
}

async fn session_with(tools: impl IntoIterator<Item = LocalTool>) -> Session {
    let host = host([]).await;
    let session = host.session("main").permission(Permission::Yolo).start().unwrap();
    for tool in tools {
        session.register(tool).unwrap();
    }
    session
}

#[tokio::test]
async fn l61_changes_are_seen_inside_the_call_at_once_and_outside_when_it_has_succeeded() {
    let counts = doing("counts", async |context: Context| {
        context.state().update(more(1));
        context.state().set(Last("counted".into()));
        let inside = context.state().get::<Count>().unwrap().0;
        let outside = counted(context.host());
        Ok(format!("{inside} {outside}"))
    });
    let session = session_with([counts]).await;
    let before = session.state();
    assert_eq!(session.call("counts", json!({})).await.to_text(), "1 0");
    assert_eq!(session.call("counts", json!({})).await.to_text(), "2 1");
    assert_eq!(*session.state().get::<Last>().unwrap(), Last("counted".into()));
    assert!(before.get::<Count>().is_none(), "a snapshot stays as it was");
    let other = session.session("other").permission(Permission::Yolo).start().unwrap();
    assert_eq!(counted(&other), 0, "each agent remembers its own");
}

#[tokio::test(start_paused = true)]
async fn l61_a_call_that_fails_panics_ends_late_or_is_given_up_leaves_no_trace() {
    let fails = doing("fails", async |context: Context| {
        change(&context);
        Err::<(), _>("it went wrong".into())
    });
    let panics = doing("panics", async |context: Context| {
        change(&context);
        assert_eq!(counted(context.host()), 100, "the panic that is wanted");
        Ok(())
    });
    let panics_changing = doing("panics_changing", async |context: Context| {
        change(&context);
        context.state().update(|_: Option<&Count>| -> Count { panic!("in the change itself") });
        Ok(())
    });
    let late = doing("late", async |context: Context| {
        change(&context);
        tokio::time::sleep(Duration::from_secs(100)).await;
        Ok(())
    });
    let session = session_with([fails, panics, panics_changing, late]).await;
    let begun = session.memory().begin();
    begun.update(more(5));
    session.memory().commit(&begun).unwrap();
    for tool in ["fails", "panics", "panics_changing"] {
        assert!(session.call(tool, json!({})).await.is_error(), "{tool}");
    }
    let timed = within(Duration::from_secs(1), None);
    assert_eq!(error(&session.call_with("late", Json::empty_object(), timed).await).kind(), "timeout");
    tokio::time::timeout(Duration::from_secs(1), session.call("late", json!({}))).await.unwrap_err();
    assert_eq!(counted(&session), 5);
    assert!(session.state().get::<Last>().is_none());
    assert!(session.call("late", json!({})).await.success, "the same call, when it succeeds");
    assert_eq!(counted(&session), 105);
}

#[tokio::test]
async fn l61_a_change_that_panics_when_it_is_committed_changes_nothing() {
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let waits = Arc::clone(&gate);
    let picky = doing("picky", move |context| {
        let waits = Arc::clone(&waits);
        async move {
            context.state().update(|before: Option<&Count>| match before {
                None => Count(1),
                Some(_) => panic!("it wanted to be the first"),
            });
            context.state().set(Last("picky".into()));
            waits.acquire().await.unwrap().forget();
            Ok(())
        }
    });
    let session = session_with([picky]).await;
    let calling = session.call("picky", json!({}));
    tokio::pin!(calling);
    assert!(futures_util::poll!(&mut calling).is_pending());
    let other = session.memory().begin();
    other.update(more(7));
    session.memory().commit(&other).unwrap();
    gate.add_permits(1);
    let outcome = calling.await;
    assert_eq!(error(&outcome).kind(), "internal", "{outcome:?}");
    assert_eq!(counted(&session), 7);
    assert!(session.state().get::<Last>().is_none());
}

#[derive(Deserialize, JsonSchema)]
struct By {
    by: u64,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn l61_calls_side_by_side_lose_nothing_of_each_other() {
    let add = LocalTool::new("add", "Adds", async |By { by }: By, context: Context| {
        context.state().update(more(by));
        tokio::task::yield_now().await;
        context.state().update(move |before: Option<&Vec<u64>>| {
            let mut all = before.cloned().unwrap_or_default();
            all.push(by);
            all
        });
        tokio::task::yield_now().await;
        Ok::<_, String>(())
    });
    let session = session_with([add]).await;
    let calls = (1..=200).map(|by| {
        let session = session.clone();
        tokio::spawn(async move { session.call("add", json!({"by": by})).await.success })
    });
    let ended = futures_util::future::join_all(calls).await;
    assert!(ended.into_iter().all(|ended| ended.unwrap()));
    assert_eq!(counted(&session), (1..=200).sum::<u64>());
    let mut all = Vec::clone(&*session.state().get::<Vec<u64>>().unwrap());
    all.sort_unstable();
    assert_eq!(all, (1..=200).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn l61_of_values_set_side_by_side_one_wins_and_the_others_are_told() {
    let barrier = Arc::new(tokio::sync::Barrier::new(8));
    let meet = Arc::clone(&barrier);
    let set = LocalTool::new("set", "Sets", move |By { by }: By, context: Context| {
        let meet = Arc::clone(&meet);
        async move {
            context.state().set(Last(by.to_string()));
            context.state().update(more(1));
            meet.wait().await;
            Ok::<_, String>(by.to_string())
        }
    });
    let session = session_with([set]).await;
    let calls = (0..8).map(|by| {
        let session = session.clone();
        tokio::spawn(async move { session.call("set", json!({"by": by})).await })
    });
    let ended: Vec<Outcome> =
        futures_util::future::join_all(calls).await.into_iter().map(Result::unwrap).collect();
    let winners: Vec<_> = ended.iter().filter(|outcome| outcome.success).collect();
    assert_eq!(winners.len(), 1);
    assert_eq!(session.state().get::<Last>().unwrap().0, winners[0].to_text());
    assert_eq!(counted(&session), 1, "nothing of the others was kept, what could have been neither");
    for lost in ended.iter().filter(|outcome| !outcome.success) {
        assert_eq!(error(lost).kind(), "conflict");
        assert!(
            error(lost).to_string().contains("Last") && error(lost).hint().unwrap().contains("the tool ran")
        );
        assert!(!lost.raw.is_null(), "what the tool said is not lost");
    }
}

#[test]
fn l61_a_change_may_look_at_anything_and_a_transaction_is_committed_once() {
    let memory = Arc::new(Memory::default());
    let (transaction, seen) = (Arc::new(memory.begin()), Arc::new(AtomicUsize::new(0)));
    let (of_itself, of_all, times) = (Arc::clone(&transaction), Arc::clone(&memory), Arc::clone(&seen));
    transaction.set(Last("x".into()));
    transaction.update(move |before: Option<&Count>| {
        times.fetch_add(1, Ordering::SeqCst);
        // Neither of these may wait for itself.
        let last = of_itself.get::<Last>().map_or(0, |last| last.0.len() as u64);
        let _ = of_all.state().get::<Count>();
        Count(before.map_or(0, |count| count.0) + last)
    });
    let other = memory.begin();
    other.update(more(10));
    memory.commit(&other).unwrap();
    memory.commit(&transaction).unwrap();
    assert_eq!((memory.state().get::<Count>().unwrap().0, seen.load(Ordering::SeqCst)), (11, 2));
    memory.commit(&transaction).unwrap();
    memory.commit(&other).unwrap();
    assert_eq!(memory.state().get::<Count>().unwrap().0, 11, "twice is once");
}

#[tokio::test]
async fn l61_what_servers_answer_is_reduced_into_the_state_if_they_succeed() {
    let failed = json!({"content": [{"type": "text", "text": "no"}], "isError": true});
    let script = Puppet::new()
        .plain_tool("echo")
        .plain_tool("fails")
        .plain_tool("refuses")
        .on("tool:fails", [Step::Reply(failed)])
        .on("tool:refuses", [Step::ReplyError { code: 1, message: "no".into(), data: None }]);
    let host = host([]).await;
    let session = host.session("main").permission(Permission::Yolo).start().unwrap();
    session.connect(Docking::new(puppet("pup", &script))).await.unwrap();
    session.register(doing("local", async |_| Ok("also"))).unwrap();
    session.reduce(|before: Option<&Count>, _: &Outcome| more(1)(before));
    session.reduce(|_: Option<&Last>, outcome: &Outcome| Last(outcome.to_text()));
    assert!(session.call("pup_echo", json!({"a": 1})).await.success);
    assert_eq!((counted(&session), session.state().get::<Last>().unwrap().0.as_str()), (1, r#"{"a":1}"#));
    for tool in ["pup_fails", "pup_refuses", "pup_nothing"] {
        assert!(!session.call(tool, json!({})).await.success);
        assert!(!session.call("pup_echo", json!([])).await.success, "arguments that do not fit");
    }
    assert_eq!(counted(&session), 1);
    let calls = futures_util::future::join_all((0..30).map(|_| session.call("pup_echo", json!({})))).await;
    assert!(calls.iter().all(|outcome| outcome.success));
    assert!(session.call("local", json!({})).await.success);
    assert_eq!((counted(&session), session.state().get::<Last>().unwrap().0.as_str()), (32, "also"));
    session.reduce(|_: Option<&u8>, outcome: &Outcome| {
        assert!(outcome.to_text() != "also", "a reducer that panics");
        1_u8
    });
    let outcome = session.call("local", json!({})).await;
    assert_eq!(error(&outcome).kind(), "internal");
    assert_eq!((counted(&session), counted(&host)), (32, 0));
    host.close().await;
}

#[tokio::test]
async fn l61_a_call_in_a_call_commits_by_itself() {
    let inner = doing("inner", async |context: Context| {
        context.state().update(more(1));
        Ok(())
    });
    let outer = doing("outer", async |context: Context| {
        context.state().update(more(10));
        assert!(context.host().call("inner", json!({})).await.success);
        Ok(())
    });
    let fails = doing("fails", async |context: Context| {
        context.state().update(more(100));
        assert!(context.host().call("inner", json!({})).await.success);
        Err::<(), _>("after all".into())
    });
    let session = session_with([inner, outer, fails]).await;
    assert!(soon("a call in a call", session.call("outer", json!({}))).await.success);
    assert_eq!(counted(&session), 11);
    assert!(session.call("fails", json!({})).await.is_error());
    assert_eq!(counted(&session), 12, "what it called has happened");
}

#[test]
fn l62_a_scopes_own_thing_hides_the_shared_one_and_is_not_seen_below() {
    let shared = Extensions::default();
    assert!(shared.insert(String::from("shared")).is_none());
    let (a, b) = (shared.above(), shared.above());
    assert_eq!(*a.get::<String>().unwrap(), "shared");
    assert!(a.insert(String::from("of a")).is_none());
    assert_eq!(*a.insert(String::from("of a, later")).unwrap(), "of a");
    assert_eq!((&**a.get::<String>().unwrap(), &**b.get::<String>().unwrap()), ("of a, later", "shared"));
    assert!(b.remove::<String>().is_none(), "what is shared is not its to take away");
    assert_eq!(*a.remove::<String>().unwrap(), "of a, later");
    assert_eq!(*a.get::<String>().unwrap(), "shared");
    shared.insert(7_u8);
    assert_eq!(*a.get::<u8>().unwrap(), 7, "what comes later is seen too");
    assert!(a.get::<u16>().is_none());
    a.insert(wharf::secret::Secret::new("not for show"));
    assert!(format!("{a:?}").contains("Secret") && !format!("{a:?}").contains("not for show"));
}

/// One step of one of several transactions.
#[derive(Clone, Debug)]
enum Move {
    Begin(usize),
    Set(usize, usize, u64),
    Add(usize, usize, u64),
    Commit(usize),
    Drop(usize),
}

struct SliceA(u64);
struct SliceB(u64);

fn get(transaction: &Transaction, slice: usize) -> Option<u64> {
    if slice == 0 {
        transaction.get::<SliceA>().map(|s| s.0)
    } else {
        transaction.get::<SliceB>().map(|s| s.0)
    }
}

/// A transaction as one would write it on paper: what it saw, which versions it saw, and what it does.
#[derive(Clone)]
struct Model {
    seen: [Option<u64>; 2],
    versions: [u64; 2],
    steps: Vec<(usize, bool, u64)>,
}

fn apply(values: &mut [Option<u64>; 2], &(slice, is_set, number): &(usize, bool, u64)) {
    values[slice] = Some(if is_set { number } else { values[slice].unwrap_or(0) + number });
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let one = prop_oneof![
        2 => (0..3_usize).prop_map(Move::Begin),
        2 => (0..3_usize, 0..2_usize, 0..100_u64).prop_map(|(t, s, n)| Move::Set(t, s, n)),
        4 => (0..3_usize, 0..2_usize, 1..100_u64).prop_map(|(t, s, n)| Move::Add(t, s, n)),
        3 => (0..3_usize).prop_map(Move::Commit),
        1 => (0..3_usize).prop_map(Move::Drop),
    ];
    proptest::collection::vec(one, 1..60)
}

proptest! {
    #[test]
    fn l61_any_order_of_transactions_ends_as_on_paper(moves in moves()) {
        let memory = Memory::default();
        let mut open: [Option<(Transaction, Model)>; 3] = [None, None, None];
        let (mut values, mut versions) = ([None; 2], [0_u64; 2]);
        for step in moves {
            match step {
                Move::Begin(t) => {
                    open[t] = Some((memory.begin(), Model { seen: values, versions, steps: Vec::new() }));
                }
                Move::Set(t, slice, number) => if let Some((transaction, model)) = &mut open[t] {
                    if slice == 0 { transaction.set(SliceA(number)) } else { transaction.set(SliceB(number)) }
                    model.steps.push((slice, true, number));
                    apply(&mut model.seen, model.steps.last().unwrap());
                },
                Move::Add(t, slice, number) => if let Some((transaction, model)) = &mut open[t] {
                    if slice == 0 {
                        transaction.update(move |s: Option<&SliceA>| SliceA(s.map_or(0, |s| s.0) + number));
                    } else {
                        transaction.update(move |s: Option<&SliceB>| SliceB(s.map_or(0, |s| s.0) + number));
                    }
                    model.steps.push((slice, false, number));
                    apply(&mut model.seen, model.steps.last().unwrap());
                },
                Move::Commit(t) => if let Some((transaction, model)) = open[t].take() {
                    let disturbed = |slice: usize| model.versions[slice] != versions[slice];
                    let lost = model.steps.iter().any(|&(slice, is_set, _)| is_set && disturbed(slice));
                    prop_assert_eq!(memory.commit(&transaction).is_err(), lost);
                    if !lost {
                        model.steps.iter().for_each(|step| apply(&mut values, step));
                        for (slice, version) in versions.iter_mut().enumerate() {
                            *version += u64::from(model.steps.iter().any(|step| step.0 == slice));
                        }
                    }
                },
                Move::Drop(t) => open[t] = None,
            }
            for (transaction, model) in open.iter().flatten() {
                prop_assert_eq!([get(transaction, 0), get(transaction, 1)], model.seen);
            }
            let now = memory.begin();
            prop_assert_eq!([get(&now, 0), get(&now, 1)], values);
        }
    }
}
