//! The loopback device of a new network namespace, which is there but asleep.

use rustix::net::netlink::SocketAddrNetlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, recv, sendto, socket_with};

/// Wakes it.
pub(super) fn up() -> Result<(), String> {
    wake().map_err(|e| format!("its loopback device cannot be used: {e}"))
}

fn wake() -> rustix::io::Result<()> {
    // Without a protocol it is the one about routes and devices.
    let kernel = socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    sendto(&kernel, &request(), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut answer = [0_u8; 256];
    let (_, length) = recv(&kernel, &mut answer, RecvFlags::empty())?;
    // An answer has a header of 16 bytes, and then the error, negative, or zero.
    let error = answer.get(16..20).filter(|_| length >= 20).and_then(|bytes| bytes.try_into().ok());
    match error.map(i32::from_ne_bytes) {
        Some(0) => Ok(()),
        Some(error) => Err(rustix::io::Errno::from_raw_os_error(-error)),
        None => Err(rustix::io::Errno::PROTO),
    }
}

/// `RTM_NEWLINK` for the first device, which is always the loopback: up.
fn request() -> Vec<u8> {
    const LENGTH: u32 = 32;
    const NEW_LINK: u16 = 16;
    const REQUEST_AND_ACKNOWLEDGE: u16 = 0x5;
    const UP: u32 = 1;
    let mut bytes = Vec::new();
    bytes.extend(LENGTH.to_ne_bytes());
    bytes.extend(NEW_LINK.to_ne_bytes());
    bytes.extend(REQUEST_AND_ACKNOWLEDGE.to_ne_bytes());
    // Sequence number and sender, then the family, padding and the kind of device, which all may be zero.
    bytes.extend([0; 12]);
    bytes.extend(1_i32.to_ne_bytes());
    bytes.extend(UP.to_ne_bytes());
    bytes.extend(UP.to_ne_bytes());
    bytes
}
