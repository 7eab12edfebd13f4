//! How the C library finds the addresses of names.

/// Has a static program look names up in `/etc/hosts` and by DNS, with what the C library has built
/// in. Otherwise it would load the plug-ins that `/etc/nsswitch.conf` names, which were made for
/// the host's C library and not for its own. Does nothing in a program that is not static. To be
/// called before there are threads.
pub fn use_built_in() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        use std::ffi::{c_char, c_int};

        unsafe extern "C" {
            /// `nss.h`; libc has no declaration of it.
            fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
        }
        // SAFETY: both strings end with a zero and live as long as the program.
        unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
    }
}
