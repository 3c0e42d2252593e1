//! The part of the machine that every program needs: its libraries and runtimes, its certificates, its clock.
//!
//! In: nothing but the machine. Out: what is let into every sandbox, and the few files of `/etc` that we write ourselves,
//! because the machine's say more than a server needs to know.

use std::path::Path;

use super::grants::Grants;
use super::plan::Mount;

/// Programs, libraries and what they are configured by. Nothing in here is anybody's own.
const SYSTEM: [&str; 40] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/libx32",
    "/nix/store",
    "/etc/alternatives",
    "/etc/ca-certificates",
    "/etc/ca-certificates.conf",
    "/etc/crypto-policies",
    "/etc/debian_version",
    "/etc/fonts",
    "/etc/gai.conf",
    "/etc/ld.so.cache",
    "/etc/ld.so.conf",
    "/etc/ld.so.conf.d",
    "/etc/locale.alias",
    "/etc/localtime",
    "/etc/magic",
    "/etc/mime.types",
    "/etc/networks",
    "/etc/os-release",
    "/etc/pki/ca-trust/extracted",
    "/etc/pki/tls/cert.pem",
    "/etc/pki/tls/certs",
    "/etc/pki/tls/openssl.cnf",
    "/etc/protocols",
    "/etc/python3",
    "/etc/python3.11",
    "/etc/python3.12",
    "/etc/python3.13",
    "/etc/rpc",
    "/etc/services",
    // Not the whole of /etc/ssl: the private keys are beside it.
    "/etc/ssl/cert.pem",
    "/etc/ssl/certs",
    "/etc/ssl/openssl.cnf",
    "/etc/static",
    "/etc/timezone",
];

/// Lets the system in.
pub(super) fn grant(grants: &mut Grants<'_>) {
    SYSTEM.iter().for_each(|path| grants.system(path));
}

/// The files that we write: who one is, and that one is alone.
pub(super) fn texts(home: &Path, (user, group): (u32, u32)) -> Vec<Mount> {
    let home = home.display();
    let root =
        if user == 0 { String::new() } else { "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n".to_owned() };
    let file = |at: &str, text: String| Mount::Text { at: at.into(), text };
    vec![
        file("/etc/passwd", format!("{root}server:x:{user}:{group}:server:{home}:/bin/sh\n")),
        file("/etc/group", format!("server:x:{group}:\n")),
        file("/etc/hosts", "127.0.0.1 localhost\n::1 localhost\n".into()),
        file("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n".into()),
    ]
}
