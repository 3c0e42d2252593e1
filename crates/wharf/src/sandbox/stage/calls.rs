//! The system calls that a confined server may not make.
//!
//! In: whether it may have Unix sockets. Out: two filters on this process and everything it starts. What is refused is
//! what no server needs and what has been the way out of sandboxes: mounting, further namespaces, watching other
//! processes, programs for the kernel, its keys, raw sockets, typing into a terminal, giving a file another's identity.

use std::collections::BTreeMap;

use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen as Width, SeccompCmpOp as Is, SeccompCondition as Condition,
    SeccompFilter, SeccompRule as Rule, TargetArch, apply_filter,
};

type Rules = BTreeMap<i64, Vec<Rule>>;

/// Calls that are refused whatever their arguments.
const NEVER: &[i64] = &[
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_chroot,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_ptrace,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_process_madvise,
    libc::SYS_pidfd_getfd,
    libc::SYS_kcmp,
    libc::SYS_bpf,
    libc::SYS_perf_event_open,
    libc::SYS_userfaultfd,
    libc::SYS_keyctl,
    libc::SYS_add_key,
    libc::SYS_request_key,
    libc::SYS_io_uring_setup,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_fanotify_init,
    libc::SYS_name_to_handle_at,
    libc::SYS_open_by_handle_at,
    libc::SYS_quotactl,
    libc::SYS_acct,
    libc::SYS_swapon,
    libc::SYS_swapoff,
    libc::SYS_reboot,
    libc::SYS_syslog,
    libc::SYS_vhangup,
    libc::SYS_settimeofday,
    libc::SYS_clock_settime,
    libc::SYS_clock_adjtime,
    libc::SYS_adjtimex,
    libc::SYS_sethostname,
    libc::SYS_setdomainname,
    libc::SYS_init_module,
    libc::SYS_finit_module,
    libc::SYS_delete_module,
    libc::SYS_kexec_load,
    libc::SYS_lookup_dcookie,
    libc::SYS_mknodat,
];

/// The same, on the machines that have them.
#[cfg(target_arch = "x86_64")]
const OLD: &[i64] = &[
    libc::SYS_iopl,
    libc::SYS_ioperm,
    libc::SYS_modify_ldt,
    libc::SYS__sysctl,
    libc::SYS_uselib,
    libc::SYS_ustat,
    libc::SYS_kexec_file_load,
    libc::SYS_mknod,
];
#[cfg(not(target_arch = "x86_64"))]
const OLD: &[i64] = &[];

/// Calls that give a file its mode, and which argument that is.
const MODES: &[(i64, u8)] = &[
    (libc::SYS_fchmod, 1),
    (libc::SYS_fchmodat, 2),
    (libc::SYS_fchmodat2, 2),
    (libc::SYS_openat, 3),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_chmod, 1),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_open, 2),
    #[cfg(target_arch = "x86_64")]
    (libc::SYS_creat, 1),
];

/// Refuses them, for this process and everything it will start. It can not be undone.
pub(super) fn refuse(unix_sockets: bool) -> Result<(), String> {
    load(rules(unix_sockets)?, libc::EPERM)?;
    // Its arguments cannot be looked at; with this answer libraries turn to `clone`, whose can.
    load(BTreeMap::from([(libc::SYS_clone3, Vec::new())]), libc::ENOSYS)
}

fn load(rules: Rules, answer: i32) -> Result<(), String> {
    let failed = |e: &dyn std::fmt::Display| format!("system calls cannot be refused: {e}");
    let machine = TargetArch::try_from(std::env::consts::ARCH).map_err(|e| failed(&e))?;
    let answer = SeccompAction::Errno(answer.unsigned_abs());
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, machine).map_err(|e| failed(&e))?;
    let program: BpfProgram = filter.try_into().map_err(|e: seccompiler::BackendError| failed(&e))?;
    apply_filter(&program).map_err(|e| failed(&e))
}

fn rules(unix_sockets: bool) -> Result<Rules, String> {
    let built = |unix_sockets| -> Result<Rules, seccompiler::BackendError> {
        let mut rules: Rules = NEVER.iter().chain(OLD).map(|call| (*call, Vec::new())).collect();
        rules.insert(libc::SYS_clone, namespaces()?);
        rules.insert(libc::SYS_socket, sockets(unix_sockets)?);
        rules.insert(libc::SYS_ioctl, vec![exactly(1, libc::TIOCSTI)?, exactly(1, libc::TIOCLINUX)?]);
        for (call, at) in MODES {
            let identity = [libc::S_ISUID, libc::S_ISGID].map(|bit| has(*at, u64::from(bit)));
            rules.insert(*call, identity.into_iter().collect::<Result<_, _>>()?);
        }
        Ok(rules)
    };
    let mut rules = built(unix_sockets).map_err(|e| format!("system calls cannot be refused: {e}"))?;
    refuse_x32(&mut rules);
    Ok(rules)
}

/// The other way into the same kernel, by other numbers: refused for every call that has a rule.
fn refuse_x32(rules: &mut Rules) {
    const X32: i64 = 0x4000_0000;
    /// Calls that have a number of their own there: ioctl, ptrace, kexec_load, process_vm_readv and -writev.
    const OWN: [i64; 5] = [514, 521, 528, 539, 540];
    if cfg!(target_arch = "x86_64") {
        let twins: Vec<i64> = rules.keys().copied().chain(OWN).chain([libc::SYS_clone3]).collect();
        rules.extend(twins.into_iter().map(|call| (call | X32, Vec::new())));
    }
}

/// A new process, yes; a new world, no.
fn namespaces() -> Result<Vec<Rule>, seccompiler::BackendError> {
    let worlds = [
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWNS,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ];
    worlds.into_iter().map(|world| has(0, u64::from(world.unsigned_abs()))).collect()
}

/// Sockets of the internet, which lead nowhere but to us, and the one that tells of the machine's own addresses.
fn sockets(unix: bool) -> Result<Vec<Rule>, seccompiler::BackendError> {
    let family = |family: i32, is: Is| Condition::new(0, Width::Dword, is, u64::from(family.unsigned_abs()));
    let kind = |kind: i32, is: fn(u64) -> Is| {
        const KIND: u64 = 0xf;
        Condition::new(1, Width::Dword, is(KIND), u64::from(kind.unsigned_abs()))
    };
    let mut other = vec![
        family(libc::AF_INET, Is::Ne)?,
        family(libc::AF_INET6, Is::Ne)?,
        family(libc::AF_NETLINK, Is::Ne)?,
    ];
    if unix {
        other.push(family(libc::AF_UNIX, Is::Ne)?);
    }
    let route = Condition::new(2, Width::Dword, Is::Ne, 0)?;
    Ok(vec![
        Rule::new(other)?,
        Rule::new(vec![family(libc::AF_INET, Is::Eq)?, kind(libc::SOCK_RAW, Is::MaskedEq)?])?,
        Rule::new(vec![family(libc::AF_INET6, Is::Eq)?, kind(libc::SOCK_RAW, Is::MaskedEq)?])?,
        Rule::new(vec![family(libc::AF_NETLINK, Is::Eq)?, route])?,
    ])
}

fn exactly(argument: u8, value: u64) -> Result<Rule, seccompiler::BackendError> {
    // The kernel looks at the lower half only, and so must we.
    Rule::new(vec![Condition::new(argument, Width::Dword, Is::Eq, value)?])
}

fn has(argument: u8, bit: u64) -> Result<Rule, seccompiler::BackendError> {
    Rule::new(vec![Condition::new(argument, Width::Dword, Is::MaskedEq(bit), bit)?])
}
