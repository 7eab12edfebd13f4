//! Names of addresses, by the system's resolver.

use std::ffi::CStr;
use std::io;
use std::net::{IpAddr, SocketAddr};

use socket2::SockAddr;

/// The name of an address, as /etc/nsswitch.conf says: hosts file, DNS, … `None` if it has none. It
/// may take many seconds.
///
/// # Errors
/// The resolver failed: no server answers, out of memory.
pub fn reverse_lookup(address: IpAddr) -> io::Result<Option<String>> {
    let address = SockAddr::from(SocketAddr::new(address, 0));
    let mut name = [0u8; libc::NI_MAXHOST as usize];
    // SAFETY: the address lives and has the length that is passed along; the call writes a
    // NUL-terminated name of at most the buffer's length.
    let result = unsafe {
        libc::getnameinfo(
            address.as_ptr().cast(),
            address.len(),
            name.as_mut_ptr().cast(),
            name.len() as libc::socklen_t,
            std::ptr::null_mut(),
            0,
            libc::NI_NAMEREQD,
        )
    };
    match result {
        0 => {
            let name = CStr::from_bytes_until_nul(&name).map_err(io::Error::other)?;
            Ok(Some(name.to_string_lossy().into_owned()))
        }
        libc::EAI_NONAME => Ok(None),
        libc::EAI_SYSTEM => Err(io::Error::last_os_error()),
        other => Err(io::Error::other(format!("the resolver failed with code {other}"))),
    }
}
