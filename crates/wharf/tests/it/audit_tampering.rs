//! A log that somebody was at: changed, thinned out, cut short, taken away. It shows.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use serde_json::json;
use wharf::LocalTool;
use wharf::event::{Fact, Kind};
use wharf::host::NoArguments;
use wharf::names::ServerName;
use wharf::store::{Audit, AuditOptions, Finding, Log, Verified};

use crate::audit::{log_in, of_kind, records};
use crate::support::{builder, folder, until};

/// A log with so many records more.
async fn log_with(log: &Path, records: usize) {
    let audit = Audit::open(log, AuditOptions::default()).unwrap();
    let server = ServerName::parse("pup").unwrap();
    for number in 0..records {
        audit.trail().note(|| Fact::new(Kind::Lost).of(&server).because(&number.to_string())).await;
    }
    audit.flush().await.unwrap();
}

fn verify(log: &Path) -> Verified {
    Log::open(log).unwrap().verify().unwrap()
}

fn change(log: &Path, sql: &str) {
    assert!(Connection::open(log).unwrap().execute_batch(sql).is_ok(), "{sql}");
}

#[tokio::test]
async fn log_04_a_change_a_removal_and_a_cut_are_found() {
    let tampered: [(&str, Finding); 6] = [
        (
            "UPDATE audit SET record = replace(record, '\"pup\"', '\"cat\"') WHERE seq = 4",
            Finding::Changed(4),
        ),
        ("UPDATE audit SET hash = zeroblob(32) WHERE seq = 4", Finding::Changed(4)),
        ("DELETE FROM audit WHERE seq = 4", Finding::Missing(4, 4)),
        ("DELETE FROM audit WHERE seq BETWEEN 3 AND 5", Finding::Missing(3, 5)),
        ("DELETE FROM audit WHERE seq > 5", Finding::Cut(5, 8)),
        ("DELETE FROM audit WHERE seq < 3", Finding::Missing(1, 2)),
    ];
    for (sql, finding) in tampered {
        let files = folder();
        let log = log_in(&files);
        log_with(&log, 8).await;
        let honest = verify(&log);
        assert_eq!((honest.records, &honest.findings[..]), (8, &[][..]));
        change(&log, sql);
        assert!(verify(&log).findings.contains(&finding), "{sql}: {:?}", verify(&log));
    }
}

#[tokio::test]
async fn log_04_the_oldest_records_do_not_go_unseen_under_another_anchor() {
    let files = folder();
    let log = log_in(&files);
    log_with(&log, 5).await;
    change(
        &log,
        "INSERT INTO anchor SELECT 1, seq, hash FROM audit WHERE seq = 2; DELETE FROM audit WHERE seq < 3;",
    );
    assert_eq!(verify(&log).findings, [Finding::Beheaded(2)]);
}

#[tokio::test]
async fn log_04_a_log_that_was_cut_goes_on_and_says_so() {
    let files = folder();
    let log = log_in(&files);
    log_with(&log, 5).await;
    change(&log, "DELETE FROM audit WHERE seq > 3");
    log_with(&log, 2).await;
    let all = records(&log);
    let gap = of_kind(&all, "gap");
    assert_eq!(gap.len(), 1, "{all:#?}");
    // Numbers that were given once are not given again.
    assert_eq!(gap[0]["seq"], 6);
    let found = verify(&log);
    assert!(matches!(&found.findings[..], [Finding::Gap(6, why)] if why.contains("ended at 3")), "{found:?}");
}

#[tokio::test]
async fn log_04_the_head_is_not_anybodys_to_write() {
    for (file, damage) in
        [("state/audit.db.head", true), ("state/audit.db.head", false), ("state/audit.db.key", false)]
    {
        let files = folder();
        let log = log_in(&files);
        log_with(&log, 3).await;
        let file = files.path().join(file);
        match damage {
            true => {
                let text = std::fs::read_to_string(&file).unwrap();
                std::fs::write(&file, text.replace("\"seq\":3", "\"seq\":2")).unwrap();
            }
            false => std::fs::remove_file(&file).unwrap(),
        }
        let found = verify(&log);
        assert!(matches!(found.findings[..], [Finding::Head(_)]), "{file:?}: {found:?}");
    }
}

#[tokio::test]
async fn log_04_a_log_that_is_taken_away_while_it_is_written_stops_nothing_for_good() {
    let files = folder();
    let log = log_in(&files);
    let audit = Audit::open(&log, AuditOptions::default()).unwrap();
    let host = builder().audit(&audit).start().await.unwrap();
    host.register(LocalTool::new("local", "Here", async |_: NoArguments, _| Ok::<_, String>("here")))
        .unwrap();
    assert!(host.call("local", json!({})).await.success);
    audit.flush().await.unwrap();
    for ending in ["", "-wal", "-shm"] {
        std::fs::remove_file(files.path().join(format!("state/audit.db{ending}"))).unwrap();
    }
    // Seen with the next group, and told: what is written into a file that is gone is not on record.
    host.call("local", json!({})).await;
    audit.flush().await.unwrap_err();
    until("it is kept again", || audit.trail().ready().is_ok()).await;
    assert!(host.call("local", json!({})).await.success);
    host.close().await;
    let found = verify(&log);
    assert!(matches!(&found.findings[..], [Finding::Gap(..)]), "{found:?}");
    assert!(of_kind(&records(&log), "call").len() >= 2, "the call of the time between is kept");
}

#[tokio::test]
async fn l95_old_records_go_and_the_chain_goes_on() {
    let files = folder();
    let log = log_in(&files);
    log_with(&log, 5).await;
    until("they are old enough", || {
        let youngest = records(&log).pop().unwrap()["at"].as_u64().unwrap();
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        now.as_micros() > u128::from(youngest) + 1000
    })
    .await;
    let options = AuditOptions { keep_for: Some(Duration::from_millis(1)), ..AuditOptions::default() };
    drop(Audit::open(&log, options).unwrap());
    log_with(&log, 2).await;
    let all = records(&log);
    assert_eq!(all[0]["kind"], "pruned", "{all:#?}");
    assert_eq!((all.len(), &all[0]["seq"]), (3, &json!(6)));
    assert_eq!(verify(&log).findings, []);
    assert_eq!(verify(&log).records, 3);
}

#[tokio::test]
async fn l95_two_processes_write_one_chain() {
    let files = folder();
    let log = log_in(&files);
    let writing = (0..4).map(|_| log_with(&log, 20));
    futures_util::future::join_all(writing).await;
    assert_eq!(records(&log).len(), 80);
    assert_eq!(verify(&log).findings, []);
}

#[tokio::test]
async fn r_08_what_a_killed_writer_of_the_log_left_is_removed() {
    let files = folder();
    let log = log_in(&files);
    log_with(&log, 1).await;
    let beside = |ending: &str| {
        let mut name = log.as_os_str().to_owned();
        name.push(ending);
        std::path::PathBuf::from(name)
    };
    for (ending, seconds) in [(".head.1-0", 120), (".key.1-0", 120), (".head.2-0", 5)] {
        let file = std::fs::File::create(beside(ending)).unwrap();
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(seconds)).unwrap();
    }
    log_with(&log, 1).await;
    assert!(!beside(".head.1-0").exists() && !beside(".key.1-0").exists());
    // Somebody may still be writing this one, and the head itself is what it was.
    assert!(beside(".head.2-0").exists() && beside(".head").exists() && beside(".key").exists());
    assert!(verify(&log).findings.is_empty());
}
