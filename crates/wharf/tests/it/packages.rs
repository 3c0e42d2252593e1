//! Packages of confined servers become two steps (l12, l17 and the hostile cases CMD-07, CMD-08): which command lines are taken apart and how,
//! and what happens when a package manager, here a script of ours, works, fails, hangs, floods or meets itself.

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use wharf::config::{self, PackageSettings, Profile, SandboxSetting, ServerConfig, Sources, edit};
use wharf::connect::program_of;
use wharf::event::Event;
use wharf::host::HostBuilder;
use wharf::names::ServerName;
use wharf::policy::{Lock, LockedServer, LockedSource, Policy};
use wharf::sandbox::Sandbox;
use wharf::sandbox::packages::{PackageOptions, PackageSpec, Source};
use wharf::{Error, Host, Side};
use wharf_testkit::{Puppet, example_path, puppet_path};

use crate::support::{soon, until};

fn read(line: &str) -> Result<Option<PackageSpec>, String> {
    let mut words = line.split_whitespace();
    let program = Path::new("/usr/bin").join(words.next().unwrap());
    PackageSpec::read(&program, &words.collect::<Vec<_>>())
}

#[test]
fn l12_a_launchers_command_line_is_a_package_and_arguments() {
    for (line, source, packages, version, command, args) in [
        ("npx -y pkg@1.2.3 --x y", Source::Npm, "pkg@1.2.3", Some("1.2.3"), None, "--x y"),
        ("npx --yes -q @a/b@1.2.3-rc.1", Source::Npm, "@a/b@1.2.3-rc.1", Some("1.2.3-rc.1"), None, ""),
        ("npx pkg -- x", Source::Npm, "pkg", None, None, "-- x"),
        ("npx -- pkg -y", Source::Npm, "pkg", None, None, "-y"),
        ("npx pkg@latest", Source::Npm, "pkg@latest", None, None, ""),
        ("npx -p pkg@1.0.0 cmd a", Source::Npm, "pkg@1.0.0", Some("1.0.0"), Some("cmd"), "a"),
        ("npx --package=pkg -p two cmd", Source::Npm, "pkg two", None, Some("cmd"), ""),
        ("npm exec pkg@1.0.0 -- --x", Source::Npm, "pkg@1.0.0", Some("1.0.0"), None, "--x"),
        ("uvx pkg==1.2 --x", Source::Uv, "pkg==1.2", Some("1.2"), None, "--x"),
        ("uvx pkg@1.2", Source::Uv, "pkg==1.2", Some("1.2"), None, ""),
        ("uvx pkg@latest", Source::Uv, "pkg", None, None, ""),
        ("uvx pkg[cli]@1.2", Source::Uv, "pkg[cli]==1.2", Some("1.2"), None, ""),
        ("uvx --from pkg==1 --with two cmd a", Source::Uv, "pkg==1 two", Some("1"), Some("cmd"), "a"),
        ("uv tool run pkg>=1", Source::Uv, "pkg>=1", None, None, ""),
        ("pipx run pkg==1.0 a", Source::Pip, "pkg==1.0", Some("1.0"), None, "a"),
        ("pipx run --spec pkg==1.0 cmd", Source::Pip, "pkg==1.0", Some("1.0"), Some("cmd"), ""),
    ] {
        let spec = read(line).unwrap().unwrap_or_else(|| panic!("{line}"));
        assert_eq!(spec.source, source, "{line}");
        let texts: Vec<&str> = spec.packages.iter().map(|p| p.text.as_str()).collect();
        assert_eq!(texts.join(" "), packages, "{line}");
        assert_eq!(spec.main().version.as_deref(), version, "{line}");
        assert_eq!(spec.command.as_deref(), command, "{line}");
        assert_eq!(spec.args.join(" "), args, "{line}");
    }
    let python = read("uvx -p 3.12 --offline --prerelease allow pkg").unwrap().unwrap();
    assert_eq!(python.python.as_deref(), Some("3.12"));
    assert_eq!(python.options, ["--offline", "--prerelease=allow"]);
}

#[test]
fn l12_what_fetches_nothing_is_left_alone() {
    for line in [
        "node server.js",
        "python3 -m server",
        "npm run start",
        "uv run server.py",
        "uvx python -m server",
        "pipx run server.py",
        "docker run x",
    ] {
        assert_eq!(read(line), Ok(None), "{line}");
    }
}

#[test]
fn cmd_07_what_is_not_understood_is_not_guessed() {
    for line in [
        "npx",
        "npx -y",
        "npx -c x",
        "npx --call=x",
        "npx --no-install pkg",
        "npx --unknown pkg",
        "npx -p",
        "npx ./pkg",
        "npx github:a/b",
        "npx https://x.example/y.tgz",
        "npx -p pkg ../cmd",
        "npx -p pkg /bin/sh",
        "uvx --index-url x pkg",
        "uvx --from git+https://x.example/y pkg",
        "uvx --from pkg /bin/sh",
        "uvx ./pkg",
        "bunx pkg",
        "bun x pkg",
    ] {
        assert!(read(line).is_err(), "{line}: {:?}", read(line));
    }
    assert!(read("npx pkg").is_ok());
}

/// A place with package managers of our making.
struct Shop {
    folder: TempDir,
    cache: PathBuf,
}

/// What `npm` does in most tests: leaves one package whose command is the puppet, as a script for our `node`.
const HONEST: &str = r#"
mkdir -p node_modules/pkg node_modules/.bin
echo '{"name": "pkg", "bin": {"pkg": "run.js"}}' > node_modules/pkg/package.json
printf '#!/usr/bin/env node\n' > node_modules/pkg/run.js
echo '{"packages": {"": {}, "node_modules/pkg": {"version": "1.2.3", "integrity": "sha512-abc"}, "node_modules/b": {"version": "2.0.0"}}}' > package-lock.json
"#;

impl Shop {
    fn open(npm: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let shop = Self { cache: folder.path().join("cache"), folder };
        std::fs::create_dir(shop.folder.path().join("out")).unwrap();
        shop.stock("npm", &format!("echo \"$@\" >> {0}/npm.args; env >> {0}/npm.env\n{npm}", shop.path()));
        shop.stock("npx", "exit 9");
        let script = Puppet::default().args().join("' '");
        shop.stock(
            "node",
            &format!(
                "echo \"$@\" >> {}/out/node.args\nexec {} '{script}'",
                shop.path(),
                puppet_path().display()
            ),
        );
        shop
    }

    fn path(&self) -> String {
        self.folder.path().display().to_string()
    }

    fn stock(&self, name: &str, script: &str) {
        std::fs::create_dir_all(self.folder.path().join("bin")).unwrap();
        let file = self.folder.path().join("bin").join(name);
        std::fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn said(&self, file: &str) -> String {
        std::fs::read_to_string(self.folder.path().join(file)).unwrap_or_default()
    }

    fn environment(&self) -> BTreeMap<String, String> {
        let path = format!("{}/bin:/usr/bin:/bin", self.path());
        let pairs = [
            ("PATH", path.as_str()),
            ("HOME", "/nowhere"),
            ("AWS_SECRET_ACCESS_KEY", "hush"),
            ("SSH_AUTH_SOCK", "/nowhere"),
            ("npm_config_registry", "http://user:swordfish@registry.example/"),
            ("NPM_CONFIG_CACHE", "/nowhere"),
            ("npm_config_script_shell", "/bin/evil"),
        ];
        pairs.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    }

    fn builder(&self, change: impl FnOnce(&mut PackageOptions)) -> HostBuilder {
        let mut options = PackageOptions::new(&self.cache);
        options.home = Some(self.folder.path().join("home"));
        change(&mut options);
        let name = ServerName::parse("pup").unwrap();
        let mut server = ServerConfig::stdio(name, "npx", ["-y", "pkg@1.2.3", "--deep"]);
        server.sandbox = Some(SandboxSetting::On(Box::new(Profile {
            read: vec![puppet_path(), self.folder.path().join("bin")],
            write: vec![self.folder.path().join("out")],
            ..Profile::default()
        })));
        let sandbox = Sandbox::new(example_path("cell")).home("/nowhere");
        Host::builder().environment(self.environment()).sandbox(sandbox).packages(options).server(server)
    }

    async fn host(&self) -> Host {
        self.builder(|_| {}).start().await.unwrap()
    }

    /// The folders in the cache.
    fn kept(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.cache).into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
    }

    async fn fails(&self, change: impl FnOnce(&mut PackageOptions)) -> Error {
        let host = self.builder(change).start().await.unwrap();
        let error = cannot_connect(&host).await;
        host.close().await;
        error
    }
}

async fn cannot_connect(host: &Host) -> Error {
    soon("a connection", host.berth("pup").unwrap().connection()).await.expect_err("an error")
}

#[tokio::test]
async fn l17_a_package_is_fetched_once_and_run_from_the_cache() {
    let shop = Shop::open(HONEST);
    std::fs::create_dir_all(shop.folder.path().join("home")).unwrap();
    std::fs::write(shop.folder.path().join("home/.npmrc"), "").unwrap();
    let host = shop.host().await;
    let mut events = host.events().subscribe();
    let outcome = soon("a call", host.call("pup_echo", serde_json::json!({}))).await;
    assert!(outcome.error.is_none(), "{outcome:?}");
    host.close().await;
    let mut told = Vec::new();
    while let Ok(event) = events.try_recv() {
        match event {
            Event::PackageWanted { package, .. } => told.push(format!("wanted {package}")),
            Event::PackageFetched { package, version, integrity, others, .. } => {
                told.push(format!("fetched {package} {version} {} {others}", integrity[0]));
            }
            _ => {}
        }
    }
    assert_eq!(told, ["wanted pkg@1.2.3", "fetched pkg 1.2.3 sha512-abc 1"]);

    let spec = PackageSpec::read(Path::new("/bin/npx"), &["-y", "pkg@1.2.3"]).unwrap().unwrap();
    let fetched = spec.find(&PackageOptions::new(&shop.cache)).unwrap();
    assert_eq!(fetched.main().integrity, ["sha512-abc"]);
    assert_eq!(shop.kept(), [fetched.folder.file_name().unwrap().to_string_lossy()]);
    let script = fetched.folder.join("node_modules/pkg/run.js");
    assert!(
        shop.said("out/node.args").starts_with(&format!("{} --deep\n", script.display())),
        "{}",
        shop.said("out/node.args")
    );

    // The second time nobody is asked: it works without a network, and without npm.
    std::fs::remove_file(shop.folder.path().join("bin/npm")).unwrap();
    let host = shop.host().await;
    assert!(soon("a call", host.call("pup_echo", serde_json::json!({}))).await.error.is_none());
    host.close().await;
    assert_eq!(shop.said("npm.args").lines().count(), 1);
}

#[tokio::test]
async fn l17_a_server_that_is_not_confined_fetches_by_itself() {
    let shop = Shop::open(HONEST);
    shop.stock("npx", &format!("exec {}/bin/node", shop.path()));
    let mut server = ServerConfig::stdio(ServerName::parse("pup").unwrap(), "npx", ["-y", "pkg@1.2.3"]);
    server.sandbox = Some(SandboxSetting::Off);
    let options = PackageOptions::new(&shop.cache);
    let builder = Host::builder().environment(shop.environment()).packages(options).server(server);
    let host = builder.start().await.unwrap();
    assert!(soon("a call", host.call("pup_echo", serde_json::json!({}))).await.error.is_none());
    host.close().await;
    assert!(shop.kept().is_empty() && shop.said("npm.args").is_empty());
}

#[tokio::test]
async fn cmd_02_a_package_manager_gets_the_registrys_settings_and_nothing_else() {
    let shop = Shop::open(HONEST);
    std::fs::create_dir_all(shop.folder.path().join("home")).unwrap();
    std::fs::write(shop.folder.path().join("home/.npmrc"), "").unwrap();
    let host = shop.host().await;
    assert!(soon("a call", host.call("pup_echo", serde_json::json!({}))).await.error.is_none());
    host.close().await;
    let args = shop.said("npm.args");
    for option in ["--ignore-scripts=true", "--allow-git=none", "--allow-remote=none", "--git=/bin/false"] {
        assert!(args.contains(option), "{args}");
    }
    assert!(args.trim_end().ends_with("-- pkg@1.2.3"), "{args}");
    let env = shop.said("npm.env");
    for absent in ["hush", "SSH_AUTH_SOCK", "/nowhere", "evil"] {
        assert!(!env.contains(absent), "{absent}: {env}");
    }
    assert!(env.contains("npm_config_registry=http://user:swordfish@registry.example/"), "{env}");
    assert!(env.contains(&format!("npm_config_userconfig={}/home/.npmrc", shop.path())), "{env}");
    let home = env.lines().find_map(|line| line.strip_prefix("HOME=")).unwrap();
    assert!(home.starts_with(shop.cache.to_str().unwrap()) && !Path::new(home).exists(), "{home}");

    let open = Shop::open(HONEST);
    let host = open.builder(|options| options.scripts_of = vec!["pkg".into()]).start().await.unwrap();
    assert!(soon("a call", host.call("pup_echo", serde_json::json!({}))).await.error.is_none());
    host.close().await;
    assert!(open.said("npm.args").contains("--ignore-scripts=false"));
    // What another package may, this one may not.
    let other = Shop::open(HONEST);
    let host = other.builder(|options| options.scripts_of = vec!["other".into()]).start().await.unwrap();
    assert!(soon("a call", host.call("pup_echo", serde_json::json!({}))).await.error.is_none());
    host.close().await;
    assert!(other.said("npm.args").contains("--ignore-scripts=true"));
}

#[test]
fn l12_how_packages_are_fetched_is_the_users_own_to_say() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("wharf.toml");
    let load = |text: &str, project: bool| {
        edit::write_atomically(&path, text).unwrap();
        let mut sources = Sources::default();
        if project {
            sources.trust.trust(&path, text.as_bytes()).unwrap();
            sources.folders = vec![folder.path().into()];
        } else {
            sources.user = Some(path.clone());
        }
        config::load(&sources)
    };
    let text = "[packages]\nscripts = [\"a\", \"@b/c\"]\ntime = \"10m\"\nsize = \"2GB\"\n";
    let found = load(text, false).unwrap().packages;
    assert_eq!(found.scripts, ["a", "@b/c"]);
    assert_eq!((found.time, found.size), (Some(Duration::from_secs(600)), Some(2 << 30)));
    assert_eq!(load("", false).unwrap().packages, PackageSettings::default());
    let project = load(text, true).unwrap();
    assert!(project.problems[0].message.contains("may not say how packages are fetched"), "{project:?}");
    assert_eq!(project.packages, PackageSettings::default());
    for wrong in ["scripts = true", "script = []", "size = \"1KB\"", "size = 5", "time = \"soon\""] {
        assert!(load(&format!("[packages]\n{wrong}\n"), false).is_err(), "{wrong}");
    }
}

#[tokio::test]
async fn l12_a_failure_says_whose_it_is_and_leaves_nothing() {
    let nothing_left = |shop: &Shop| assert!(shop.kept().is_empty(), "{:?}", shop.kept());
    for (npm, side, retryable, words) in [
        ("echo 'npm error code E404' >&2; exit 1", Side::Caller, false, "there is no package `pkg@1.2.3`"),
        ("echo 'npm error code ETARGET' >&2; exit 1", Side::Caller, false, "there is no package"),
        ("echo 'npm error code E401' >&2; exit 1", Side::Caller, false, "does not let us have"),
        ("echo 'npm error code ENOSPC' >&2; exit 1", Side::Us, false, "cannot be kept"),
        (
            "echo 'request to http://user:swordfish@registry.example/ failed' >&2; exit 1",
            Side::Server,
            true,
            "could not be fetched",
        ),
        ("exit 0", Side::Caller, false, "cannot be run"),
        (
            "mkdir -p node_modules/pkg; echo '{\"bin\": \"../../../../x\"}' > node_modules/pkg/package.json; echo '{\"packages\": {}}' > package-lock.json",
            Side::Caller,
            false,
            "cannot be run",
        ),
    ] {
        let shop = Shop::open(npm);
        let error = shop.fails(|_| {}).await;
        assert_eq!((error.side(), error.is_retryable()), (side, retryable), "{npm}: {error}");
        assert!(error.to_string().contains(words), "{npm}: {error}");
        assert!(!error.to_string().contains("swordfish"), "{error}");
        assert!(shop.said("out/node.args").is_empty());
        nothing_left(&shop);
    }
    let shop = Shop::open(HONEST);
    std::fs::remove_file(shop.folder.path().join("bin/npm")).unwrap();
    let environment = [("PATH".to_owned(), format!("{}/bin", shop.path()))];
    let host = shop.builder(|_| {}).environment(environment).start().await.unwrap();
    let error = cannot_connect(&host).await;
    assert!(error.to_string().contains("`npm` was not found"), "{error}");
    assert!(error.hint().unwrap().contains("Node.js"));
    host.close().await;
    nothing_left(&shop);
}

#[tokio::test]
async fn l12_fetching_is_bounded_in_time_and_size() {
    let slow = Shop::open("echo $$ > ../../pid; sleep 600 & wait");
    let error = slow.fails(|options| options.time = Duration::from_secs(1)).await;
    assert!(error.is_retryable() && error.to_string().contains("took longer than 1 s"), "{error}");
    let pid: u32 = slow.said("pid").trim().parse().unwrap();
    until("npm is gone", || !crate::support::is_alive(pid)).await;
    until("its folder is gone", || slow.kept().is_empty()).await;

    let large = Shop::open(&format!("{HONEST}\nhead -c 3000000 /dev/zero > node_modules/pkg/large"));
    let error = large.fails(|options| options.size = 2 << 20).await;
    assert!(error.to_string().contains("larger than 2 MiB"), "{error}");
    assert!(large.kept().is_empty());
    let host = large.builder(|options| options.size = 4 << 20).start().await.unwrap();
    assert!(soon("a call", host.call("pup_echo", serde_json::json!({}))).await.error.is_none());
    host.close().await;
}

#[tokio::test]
async fn l12_two_that_fetch_the_same_do_not_clash() {
    // Each waits until the other has begun, so that they surely meet.
    let meet = "touch ../../begun-$$; while [ $(ls ../../begun-* | wc -l) -lt 2 ]; do sleep 0.02; done";
    let shop = Arc::new(Shop::open(&format!("{meet}\n{HONEST}")));
    let call = async |host: &Host| soon("a call", host.call("pup_echo", serde_json::json!({}))).await;
    let (one, two) = (shop.host().await, shop.host().await);
    let (first, second) = tokio::join!(call(&one), call(&two));
    assert!(first.error.is_none() && second.error.is_none(), "{first:?} {second:?}");
    one.close().await;
    two.close().await;
    assert_eq!(shop.said("npm.args").lines().count(), 2);
    until("one folder is left", || shop.kept().len() == 1).await;
}

#[tokio::test]
async fn l17_what_is_broken_in_the_cache_is_fetched_again() {
    let shop = Shop::open(HONEST);
    let call = async || {
        let host = shop.host().await;
        let outcome = soon("a call", host.call("pup_echo", serde_json::json!({}))).await;
        host.close().await;
        assert!(outcome.error.is_none(), "{outcome:?}");
    };
    call().await;
    let folder = shop.cache.join(&shop.kept()[0]);
    std::fs::remove_file(folder.join("node_modules/pkg/run.js")).unwrap();
    call().await;
    std::fs::write(folder.join("wharf-package.json"), "{}").unwrap();
    call().await;
    call().await;
    assert_eq!(shop.said("npm.args").lines().count(), 3);
    assert_eq!(shop.kept().len(), 1);
}

#[tokio::test]
async fn l19_fetched_packages_are_held_to_the_lockfile() {
    let shop = Shop::open(HONEST);
    let config = ServerConfig::stdio(ServerName::parse("pup").unwrap(), "npx", ["-y", "pkg@1.2.3", "--deep"]);
    let (_, npx) = program_of(&config, &shop.environment()).await.unwrap();
    let connect = async |accepted: &[&str]| {
        let locked = LockedServer {
            source: Some(LockedSource::of(&config)),
            programs: accepted.iter().map(|&hash| hash.to_owned()).collect(),
            ..LockedServer::default()
        };
        let lock = Lock::new().with(config.name.clone(), locked);
        let policy = Policy::strict().with_lock(Some(Arc::new(lock)));
        let host = shop.builder(|_| {}).policy(policy).start().await.unwrap();
        let connected = soon("a connection", host.berth("pup").unwrap().connection()).await.map(drop);
        host.close().await;
        connected
    };
    let error = connect(&[&npx]).await.unwrap_err();
    assert!(error.to_string().contains("`lock.package`"), "{error}");
    assert!(error.hint().unwrap().contains("wharf diff pup"), "{error:?}");
    let spec = PackageSpec::read(Path::new("/bin/npx"), &["-y", "pkg@1.2.3"]).unwrap().unwrap();
    let fetched = spec.find(&PackageOptions::new(&shop.cache)).unwrap();
    assert_eq!(fetched.words(), "package pkg 1.2.3 and 1 other");
    connect(&[&npx, &fetched.digest()]).await.unwrap();
    // The same package with another of those that it needs is another thing to accept.
    std::fs::remove_dir_all(&shop.cache).unwrap();
    shop.stock("npm", &HONEST.replace("2.0.0", "2.0.1"));
    let error = connect(&[&npx, &fetched.digest()]).await.unwrap_err();
    assert!(error.to_string().contains("`lock.package`"), "{error}");
    let other = spec.find(&PackageOptions::new(&shop.cache)).unwrap();
    assert_ne!(other.digest(), fetched.digest());
    connect(&[&npx, &other.digest()]).await.unwrap();
}
