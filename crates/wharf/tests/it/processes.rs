//! The processes behind servers: what they are started with, that they cannot hang us, and that nothing is left of them.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use wharf::config::{ServerConfig, Transport};
use wharf::names::ServerName;
use wharf::policy::Policy;
use wharf::secret::Secret;
use wharf::wire::Json;
use wharf::{Error, Host};
use wharf_testkit::{Era, Grandchild, Puppet, Step, puppet_path};

use crate::support::{
    at, builder, echo, effects, error, folder, held, is_alive, pid_in, pup, puppet, quick, soon, until,
    within,
};

fn grandchild(file: &Path, setsid: bool) -> Option<Grandchild> {
    Some(Grandchild { pid_file: file.to_owned(), setsid })
}

fn stdio(config: &mut ServerConfig) -> &mut wharf::config::Stdio {
    match &mut config.transport {
        Transport::Stdio(stdio) => stdio,
        _ => panic!("a puppet is a program"),
    }
}

/// What a puppet says it was started with.
async fn described(host: &Host, name: &str, file: &Path) -> Value {
    host.berth(name).unwrap().connect().await.unwrap();
    until("it is described", || file.exists()).await;
    serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap()
}

#[tokio::test]
async fn prc_01_a_server_that_ignores_the_end_of_input_and_sigterm_is_killed() {
    for (ignore_eof, ignore_term) in [(false, false), (true, false), (true, true)] {
        let files = folder();
        let pid = at(&files, "pid");
        let script =
            Puppet::new().pid(&pid).with(|s| (s.ignore_eof, s.ignore_term) = (ignore_eof, ignore_term));
        let host = pup(&script).await;
        assert!(echo(&host).await.success);
        let process = pid_in(&pid).await;
        soon("the end", host.close()).await;
        assert!(!is_alive(process), "{ignore_eof} {ignore_term}");
        assert!(!Path::new(&format!("/proc/{process}")).exists(), "it was reaped");
    }
}

#[tokio::test]
async fn prc_01_a_polite_server_has_its_time() {
    let files = folder();
    let (go, done) = (at(&files, "go"), at(&files, "done"));
    // The last line it reads is the end of input; what it does then, it does before it is killed.
    let script = Puppet::of(Era::Legacy).with(|s| s.ignore_eof = true).on(
        "notifications/initialized",
        [Step::WaitFor(go.clone()), Step::Count(done.clone()), Step::Exit(0)],
    );
    let host = builder().grace(Duration::from_secs(30)).server(puppet("pup", &script)).start().await.unwrap();
    assert!(echo(&host).await.success);
    let closing = tokio::spawn(async move { host.close().await });
    std::fs::write(&go, "").unwrap();
    soon("the end", closing).await.unwrap();
    assert_eq!(effects(&done), 1);
}

#[tokio::test]
async fn l18_closing_ends_what_the_server_started_also_outside_its_group() {
    for setsid in [false, true] {
        for ignore_eof in [false, true] {
            let files = folder();
            let below = at(&files, "below");
            let script = Puppet::new().with(|s| {
                s.spawn_grandchild = grandchild(&below, setsid);
                s.ignore_eof = ignore_eof;
            });
            let host = pup(&script).await;
            assert!(echo(&host).await.success);
            let process = pid_in(&below).await;
            assert!(is_alive(process));
            host.close().await;
            until("the grandchild is gone", || !is_alive(process)).await;
        }
    }
}

#[tokio::test]
async fn l18_a_server_that_crashes_leaves_nothing_of_its_group() {
    let files = folder();
    let (below, turn) = (at(&files, "below"), at(&files, "turn"));
    let steps = [Step::TurnsIn { file: turn, turns: vec![vec![Step::Kill], vec![Step::Honest]] }];
    let script =
        Puppet::new().on("tool:echo", steps).with(|s| s.spawn_grandchild = grandchild(&below, false));
    let host = pup(&script).await;
    host.tools().await;
    let process = pid_in(&below).await;
    assert_eq!(error(&echo(&host).await).kind(), "unknown_outcome");
    until("the grandchild is gone", || !is_alive(process)).await;
    host.close().await;
}

#[tokio::test]
async fn l18_a_server_that_closes_its_output_is_lost_and_ended_though_it_lives() {
    let files = folder();
    let (pid, turn) = (at(&files, "pid"), at(&files, "turn"));
    let turns = vec![vec![Step::CloseStdout, Step::Hang], vec![Step::Honest]];
    let script = Puppet::new()
        .pid(&pid)
        .with(|s| (s.ignore_eof, s.ignore_term) = (true, true))
        .on("tool:echo", [Step::TurnsIn { file: turn, turns }]);
    let host = pup(&script).await;
    host.tools().await;
    let process = pid_in(&pid).await;
    let outcome = echo(&host).await;
    let Error::UnknownOutcome { reason, .. } = error(&outcome) else { panic!("{outcome:?}") };
    assert!(reason.contains("closed its standard output"), "{reason}");
    until("it is gone", || !is_alive(process)).await;
    assert!(echo(&host).await.success, "and another one is in its place");
    host.close().await;
}

#[tokio::test]
async fn prc_03_nothing_is_left_when_wharf_itself_is_killed() {
    // A server that leaves at the end of its input leaves its group behind.
    for (setsid, stays) in [(false, false), (false, true), (true, true)] {
        let (files, scratch) = (folder(), folder());
        let (pid, below) = (at(&files, "pid"), at(&files, "below"));
        let script = Puppet::new().pid(&pid).with(|s| {
            s.spawn_grandchild = grandchild(&below, setsid);
            s.ignore_eof = stays;
            s.ignore_term = stays;
        });
        let mut held = held(&script, scratch.path());
        let (server, grandchild) = (pid_in(&pid).await, pid_in(&below).await);
        assert!(is_alive(server) && is_alive(grandchild), "they live as long as it does");
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1);
        held.kill().unwrap();
        held.wait().unwrap();
        until("nothing is left", || !is_alive(server) && !is_alive(grandchild)).await;
        until("its folder is gone", || std::fs::read_dir(scratch.path()).unwrap().count() == 0).await;
    }
}

#[tokio::test]
async fn prc_05_much_on_standard_error_blocks_nothing_and_only_its_end_is_kept() {
    let lines: Vec<String> = (0..40).map(|n| format!("line {n}")).collect();
    let files = folder();
    let turn = at(&files, "turn");
    for start in [
        vec![Step::StderrBytes { bytes: 1 << 20, lines: true }],
        vec![Step::StderrBytes { bytes: 100 << 20, lines: false }, Step::Stderr(String::new())],
    ] {
        let mut steps = start;
        steps.extend(lines.iter().map(|line| Step::Stderr(line.clone())));
        let script = Puppet::new().with(|s| s.start = steps).on("tool:echo", [Step::Exit(1)]);
        let host = pup(&script).await;
        let failure = error(&echo(&host).await).to_string();
        assert!(failure.contains("last words") && failure.contains("line 39"), "{failure}");
        assert!(
            failure.contains("line 28") && !failure.contains("line 27"),
            "only the last lines: {failure}"
        );
        assert!(failure.len() < 10_000, "{} bytes", failure.len());
        host.close().await;
    }
    // For ever: the puppet's thread never stops writing, and calls go on.
    let endless = [Step::Honest, Step::StderrBytes { bytes: 1 << 30, lines: true }];
    let turns = vec![endless.to_vec(), vec![Step::Honest]];
    let script = Puppet::new().on("tool:echo", [Step::TurnsIn { file: turn, turns }]);
    let host = pup(&script).await;
    for _ in 0..20 {
        assert!(echo(&host).await.success);
    }
    soon("the end", host.close()).await;
}

#[tokio::test]
async fn l104_the_last_lines_of_a_server_stand_in_the_error_without_its_secrets() {
    let script = Puppet::new().with(|s| {
        s.stderr =
            vec!["token is hunter2-hunter2, also \u{1b}[31mred".into(), "and passed-through-secret".into()];
        s.start = vec![Step::Exit(2)];
    });
    let mut config = puppet("pup", &script);
    stdio(&mut config).env.insert("API_TOKEN".into(), Secret::new("hunter2-hunter2"));
    stdio(&mut config).env_passthrough.push("PASSED".into());
    let environment = [("PASSED".to_owned(), "passed-through-secret".to_owned())];
    let host = quick().environment(environment).server(config).start().await.unwrap();
    let failure = host.tools_of("pup").await.unwrap_err();
    let said = failure.to_string();
    assert!(
        said.contains("exit status 2") && said.contains("token is ***, also") && said.contains("and ***"),
        "{said}"
    );
    assert!(
        !said.contains("hunter2") && !said.contains("passed-through") && !said.contains('\u{1b}'),
        "{said}"
    );
    assert!(!format!("{failure:?}").contains("hunter2"));
    host.close().await;
}

#[tokio::test]
async fn prc_06_a_server_that_never_reads_times_out_and_harms_no_other() {
    let files = folder();
    let deaf = Puppet::of(Era::Legacy).with(|s| s.deaf_after = Some(4));
    let log = at(&files, "log");
    let servers = [puppet("deaf", &deaf), puppet("pup", &Puppet::new().log(&log))];
    let host = quick().servers(servers).start().await.unwrap();
    assert!(host.tools().await.failed.is_empty());
    let large = Json::from(json!({"message": "x".repeat(10_000_000)}));
    let time = Duration::from_millis(1500);
    let waiting = tokio::spawn({
        let (host, large) = (host.clone(), large.clone());
        async move { host.call_with("deaf_echo", large, within(time, None)).await }
    });
    for _ in 0..20 {
        assert!(echo(&host).await.success);
    }
    let outcome = soon("the timeout", waiting).await.unwrap();
    assert_eq!(error(&outcome).kind(), "timeout", "{:?}", outcome.error);
    let outcome = soon("the twin", host.call("pup_echo", large)).await;
    assert!(outcome.success && outcome.to_text().len() > 10_000_000, "a server that reads gets as much");
    let mut last = outcome;
    for _ in 0..5 {
        let more = Json::from(json!({"message": "x".repeat(10_000_000)}));
        last = host.call_with("deaf_echo", more, within(Duration::from_millis(10), None)).await;
    }
    assert!(last.reason.unwrap().contains("too much waits"), "what waits for it is bounded");
    soon("the end", host.close()).await;
}

#[tokio::test]
async fn prc_10_a_server_that_never_gets_ready_is_given_up_in_time() {
    let crash = Puppet::of(Era::Legacy).on("initialize", [Step::Exit(4)]);
    let crash_listing = Puppet::new().on("tools/list", [Step::Stderr("out of memory".into()), Step::Kill]);
    let hang = Puppet::of(Era::Legacy).on("initialize", [Step::Hang]);
    let silent = Puppet::of(Era::Silent);
    let frozen = Puppet::new().with(|s| s.start = vec![Step::Freeze, Step::Hang]);
    let cases = [
        (crash, "exit status 4"),
        (crash_listing, "out of memory"),
        (hang, "not ready within 3s"),
        (silent, "not ready within 3s"),
        (frozen, "not ready within 3s"),
    ];
    // All at once, because it takes its time.
    let given_up = cases.map(|(script, word)| async move {
        let files = folder();
        let pid = at(&files, "pid");
        let mut config = puppet("bad", &script.pid(&pid));
        if word.starts_with("not ready") {
            config.start_timeout = Duration::from_secs(3);
        }
        let host = quick().servers([config, puppet("pup", &Puppet::new())]).start().await.unwrap();
        let listing = soon("the list", host.tools()).await;
        let said = listing.failed[0].1.to_string();
        assert!(said.contains(word), "{word}: {said}");
        assert_eq!(listing.snapshot.tools().len(), 1, "the other one is listed");
        host.close().await;
        let process = pid_in(&pid).await;
        assert!(!is_alive(process), "{word}: nothing is left");
    });
    futures_util::future::join_all(given_up).await;
}

#[tokio::test]
async fn prc_11_sixty_servers_at_once_are_all_listed() {
    let servers = (0..60).map(|n| puppet(&format!("s{n}"), &Puppet::new()));
    let host = quick().servers(servers).start().await.unwrap();
    let listing = soon("the list", host.tools()).await;
    assert!(listing.failed.is_empty(), "{:?}", listing.failed);
    assert_eq!(listing.snapshot.tools().len(), 60);
    let calls = (0..60).map(|n| {
        let host = &host;
        async move { host.call(&format!("s{n}_echo"), json!({"message": n.to_string()})).await }
    });
    let outcomes = soon("the calls", futures_util::future::join_all(calls)).await;
    assert!(outcomes.iter().enumerate().all(|(n, o)| o.to_text().contains(&format!("\"{n}\""))));
    soon("the end", host.close()).await;
}

/// Descriptors of this process that lead to pipes, and zombies below it.
fn leftovers() -> (usize, usize) {
    let pipes = std::fs::read_dir("/proc/self/fd").unwrap().flatten();
    let pipes = pipes
        .filter(|e| std::fs::read_link(e.path()).is_ok_and(|to| to.to_string_lossy().starts_with("pipe:")));
    let own = std::process::id().to_string();
    let zombies = std::fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let stat = std::fs::read_to_string(entry.path().join("stat")).unwrap_or_default();
        let mut rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest).split_whitespace();
        rest.next() == Some("Z") && rest.next() == Some(&own)
    });
    (pipes.count(), zombies.count())
}

#[test]
fn prc_12_many_restarts_leave_no_zombie_no_descriptor_no_folder() {
    // In a process of its own, where no other test opens anything.
    let rounds = if std::env::var_os("WHARF_ALL").is_some_and(|all| all == "1") { "1000" } else { "100" };
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "processes::restart_rounds", "--nocapture"])
        .env("WHARF_RESTART_ROUNDS", rounds)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success());
}

/// The rounds of the test above; alone it does one.
#[tokio::test]
async fn restart_rounds() {
    let rounds: usize = std::env::var("WHARF_RESTART_ROUNDS").map_or(1, |n| n.parse().unwrap());
    let scratch = folder();
    let host = quick().scratch(scratch.path()).server(puppet("pup", &Puppet::new())).start().await.unwrap();
    let berth = host.berth("pup").unwrap();
    let mut before = None;
    for round in 0..rounds {
        berth.connect().await.unwrap();
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 1, "it has a folder of its own");
        if round % 2 == 0 {
            assert!(echo(&host).await.success);
        }
        berth.disconnect().await;
        assert_eq!(std::fs::read_dir(scratch.path()).unwrap().count(), 0, "which goes with it");
        if round == 0 && rounds > 1 {
            until("readers are done", || leftovers().1 == 0).await;
            before = Some(leftovers().0);
        }
    }
    if let Some(before) = before {
        until("nothing is left", || leftovers() == (before, 0)).await;
    }
}

#[tokio::test]
async fn env_01_the_environment_of_a_server_is_exactly_what_it_is_to_be() {
    let files = folder();
    let file = at(&files, "described");
    let mut config = puppet("pup", &Puppet::new().with(|s| s.describe_file = Some(file.clone())));
    stdio(&mut config).env.insert("API_KEY".into(), Secret::new("its-own"));
    stdio(&mut config).env_passthrough.push("WANTED".into());
    let world = [
        ("PATH", "/usr/bin:/bin"),
        ("HOME", "/home/somebody"),
        ("LANG", "C.UTF-8"),
        ("AWS_SECRET_ACCESS_KEY", "no"),
        ("GITHUB_TOKEN", "no"),
        ("SSH_AUTH_SOCK", "/no"),
        ("OTEL_EXPORTER_OTLP_HEADERS", "no"),
        ("CUSTOM_SECRET", "no"),
        ("LD_PRELOAD", "/no"),
        ("NODE_OPTIONS", "--no"),
        ("PYTHONPATH", "/no"),
        ("WANTED", "yes"),
    ];
    let world = world.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let host = builder().environment(world).scratch(files.path()).server(config).start().await.unwrap();
    let said = described(&host, "pup", &file).await;
    let env: BTreeMap<String, String> = serde_json::from_value(said["env"].clone()).unwrap();
    let expected = [
        ("API_KEY", "its-own"),
        ("HOME", "/home/somebody"),
        ("LANG", "C.UTF-8"),
        ("PATH", "/usr/bin:/bin"),
        ("WANTED", "yes"),
    ];
    assert_eq!(env, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
    host.close().await;
}

#[tokio::test]
async fn env_07_servers_do_not_see_each_others_secrets() {
    let files = folder();
    let (one, two) = (at(&files, "one"), at(&files, "two"));
    let server = |name: &str, file: &Path, secret: &str| {
        let mut config = puppet(name, &Puppet::new().with(|s| s.describe_file = Some(file.to_owned())));
        stdio(&mut config).env.insert("API_KEY".into(), Secret::new(secret));
        config
    };
    let servers = [server("one", &one, "first-secret"), server("two", &two, "second-secret")];
    let host = builder().servers(servers).start().await.unwrap();
    let (one, two) = (described(&host, "one", &one).await, described(&host, "two", &two).await);
    assert_eq!(
        (&one["env"]["API_KEY"], &two["env"]["API_KEY"]),
        (&json!("first-secret"), &json!("second-secret"))
    );
    assert!(!one.to_string().contains("second-secret") && !two.to_string().contains("first-secret"));
    for (own, other) in [(&one, "second-secret"), (&two, "first-secret")] {
        let pid = &own["pid"];
        let all = std::fs::read(format!("/proc/{pid}/environ")).unwrap();
        assert!(!String::from_utf8_lossy(&all).contains(other));
        let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!String::from_utf8_lossy(&line).contains("-secret"), "and none stands in the arguments");
    }
    let own = std::fs::read("/proc/self/environ").unwrap();
    assert!(!String::from_utf8_lossy(&own).contains("first-secret"));
    host.close().await;
}

#[tokio::test]
async fn env_10_a_server_gets_three_descriptors_and_no_other() {
    let files = folder();
    let file = at(&files, "described");
    // One that every child would inherit.
    let kept = std::fs::File::open("/dev/null").unwrap();
    let inheritable = rustix::io::dup(&kept).unwrap();
    assert!(!rustix::io::fcntl_getfd(&inheritable).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    let servers = [
        puppet("first", &Puppet::new()),
        puppet("pup", &Puppet::new().with(|s| s.describe_file = Some(file.clone()))),
    ];
    let host = builder().servers(servers).start().await.unwrap();
    host.berth("first").unwrap().connect().await.unwrap();
    let said = described(&host, "pup", &file).await;
    let fds: BTreeSet<String> = serde_json::from_value(said["fds"].clone()).unwrap();
    // The fourth is the folder in which the puppet reads this list.
    assert_eq!(fds, ["0", "1", "2", "3"].map(str::to_owned).into());
    drop(inheritable);
    host.close().await;
}

#[tokio::test]
async fn l18_a_server_starts_in_an_empty_folder_of_its_own_that_goes_with_it() {
    let files = folder();
    let (file, scratch) = (at(&files, "described"), folder());
    let script = Puppet::new().with(|s| s.describe_file = Some(file.clone()));
    let host = builder().scratch(scratch.path()).server(puppet("pup", &script)).start().await.unwrap();
    let said = described(&host, "pup", &file).await;
    let cwd = Path::new(said["cwd"].as_str().unwrap()).to_owned();
    assert_eq!(cwd.parent().unwrap(), scratch.path().canonicalize().unwrap());
    assert_eq!(std::fs::read_dir(&cwd).unwrap().count(), 0);
    assert_eq!(cwd.metadata().unwrap().permissions().mode() & 0o777, 0o700);
    std::fs::write(cwd.join("rubbish"), "x").unwrap();
    host.close().await;
    assert!(!cwd.exists());

    let own = folder();
    let mut config = puppet("pup", &script);
    stdio(&mut config).cwd = Some(own.path().to_owned());
    std::fs::remove_file(&file).unwrap();
    let host = builder().server(config).start().await.unwrap();
    let said = described(&host, "pup", &file).await;
    assert_eq!(Path::new(said["cwd"].as_str().unwrap()), own.path().canonicalize().unwrap());
    host.close().await;
    assert!(own.path().exists(), "a folder that was named is not ours to remove");
}

/// A host whose server is called by its bare name, looked up in this `PATH`.
async fn by_name(path: &str) -> (Host, ServerConfig) {
    let mut config = puppet("pup", &Puppet::new());
    stdio(&mut config).command = "mcp-puppet".into();
    let policy = Policy::strict().with_sandbox(false).with_commands(["mcp-puppet"]);
    let environment = [("PATH".to_owned(), path.to_owned())];
    let host = Host::builder().policy(policy).environment(environment).server(config.clone());
    (host.start().await.unwrap(), config)
}

#[tokio::test]
async fn cmd_10_a_bare_name_is_what_path_says_and_never_the_folder_we_are_in() {
    let bin = folder();
    std::os::unix::fs::symlink(puppet_path(), at(&bin, "mcp-puppet")).unwrap();
    let good = bin.path().display().to_string();
    for path in [good.clone(), format!(":.::bin:{good}"), format!("/nonexistent:{good}:/usr/bin")] {
        let (host, _) = by_name(&path).await;
        assert!(echo(&host).await.success, "{path}");
        host.close().await;
    }
    for path in ["", ".", "..", "bin", ":", "/nonexistent"] {
        let (host, _) = by_name(path).await;
        let failure = host.tools_of("pup").await.unwrap_err().to_string();
        assert!(failure.contains("not found on `PATH`"), "{path}: {failure}");
    }
}

#[tokio::test]
async fn cmd_17_what_is_no_program_of_ours_is_passed_over() {
    let (odd, bin) = (folder(), folder());
    std::os::unix::fs::symlink(puppet_path(), at(&bin, "mcp-puppet")).unwrap();
    let path = format!("{}:{}", odd.path().display(), bin.path().display());
    let place = at(&odd, "mcp-puppet");
    type Make = fn(&Path);
    let makes: [(&str, Make); 4] = [
        ("a folder", |p| std::fs::create_dir(p).unwrap()),
        ("a pipe", |p| {
            let mode = rustix::fs::Mode::from_raw_mode(0o777);
            rustix::fs::mknodat(rustix::fs::CWD, p, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        }),
        ("not executable", |p| std::fs::write(p, "#!/bin/false\n").unwrap()),
        ("a program that changes who we are", |p| {
            std::fs::copy("/bin/false", p).unwrap();
            std::fs::set_permissions(p, std::fs::Permissions::from_mode(0o4755)).unwrap();
        }),
    ];
    for (what, make) in makes {
        make(&place);
        let (host, config) = by_name(&path).await;
        assert!(soon(what, echo(&host)).await.success, "{what}: the next of that name is taken");
        host.close().await;
        // Named by its path it is refused.
        let mut direct = config;
        let command = place.display().to_string();
        stdio(&mut direct).command.clone_from(&command);
        direct.name = ServerName::parse("direct").unwrap();
        let policy = Policy::strict().with_sandbox(false).with_commands([command]);
        let host = Host::builder().policy(policy).server(direct).start().await.unwrap();
        let failure = host.tools_of("direct").await.unwrap_err();
        assert!(matches!(failure, Error::Connection { .. }), "{what}: {failure}");
        if place.is_dir() {
            std::fs::remove_dir(&place).unwrap()
        } else {
            std::fs::remove_file(&place).unwrap()
        }
    }
}
