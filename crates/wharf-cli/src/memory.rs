//! Where this program's memory comes from: jemalloc where it is known to serve well, or else the C library.
//!
//! A call takes some twenty blocks and gives them back at its end. The C library keeps seven of a size at hand for a
//! thread, so with a hundred calls in flight most of them go the long way (`docs/decisions/0024-memory-for-many-calls.md`).

#[cfg(all(feature = "jemalloc", target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
mod of_jemalloc {
    use std::ptr::null_mut;

    use tikv_jemalloc_sys::mallctl;
    use tikv_jemallocator::Jemalloc;

    #[global_allocator]
    static JEMALLOC: Jemalloc = Jemalloc;

    /// One place for all threads: one of them has nearly all the work. What is free goes back to the system after a second.
    /// They are looked for by this name when the program starts.
    #[expect(unsafe_code, reason = "the name is jemalloc's own, and nothing else here has it")]
    #[unsafe(export_name = "_rjem_malloc_conf")]
    static SETTINGS: &[u8; 63] = b"narenas:1,tcache_max:1024,dirty_decay_ms:1000,muzzy_decay_ms:0\0";

    /// Gives what is free back to the system now: by itself it does so only while something is taken or given back.
    #[expect(unsafe_code, reason = "jemalloc is told so in C")]
    pub(crate) fn give_back() {
        let all = c"arena.4096.purge";
        // SAFETY: the name ends with a zero, and this order takes nothing and tells nothing. A failure changes nothing.
        let _ = unsafe { mallctl(all.as_ptr(), null_mut(), null_mut(), null_mut(), 0) };
    }
}

#[cfg(all(feature = "jemalloc", target_os = "linux", target_env = "gnu", target_arch = "x86_64"))]
pub(crate) use of_jemalloc::give_back;

/// Gives what is free back to the system now.
#[cfg(not(all(feature = "jemalloc", target_os = "linux", target_env = "gnu", target_arch = "x86_64")))]
pub(crate) fn give_back() {}
