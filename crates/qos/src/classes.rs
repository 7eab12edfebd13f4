//! Reservations, limits and priorities as classes of HTB.

use linerate_core::units::BitRate;

use crate::policy::{Adapter, PolicyFile};

/// The classes of one adapter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassPlan {
    /// What the link carries.
    pub rate: BitRate,
    /// The classes: the root's, then one for each policy that has one, then the default.
    pub classes: Vec<Class>,
    /// `major << 16 | minor` of each policy of the file; `None` without a class.
    pub of_policy: Vec<Option<u32>>,
    /// Of what no policy takes.
    pub default: u32,
}

/// One class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Class {
    /// `major << 16 | minor`.
    pub id: u32,
    /// The class above it; `None` for the root's.
    pub parent: Option<u32>,
    /// What it has for sure, bits per second.
    pub rate: BitRate,
    /// What it never exceeds.
    pub ceil: BitRate,
    /// 0 (offered first) to 7.
    pub priority: u8,
}

/// Why there are no classes.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ClassError {
    /// Nobody knows what the link carries.
    #[error(
        "adapter `{adapter}` needs `rate`: its driver tells no speed, and a policy of it reserves or limits"
    )]
    NoRate {
        /// Its name.
        adapter: String,
    },
}

impl ClassPlan {
    /// The classes of `adapter`, whose driver tells `speed`; `None` if no policy of it asks for one.
    ///
    /// # Errors
    /// [`ClassError`].
    pub fn of(
        file: &PolicyFile,
        adapter: &Adapter,
        speed: Option<BitRate>,
    ) -> Result<Option<Self>, ClassError> {
        let _ = (file, adapter, speed);
        todo!()
    }
}
