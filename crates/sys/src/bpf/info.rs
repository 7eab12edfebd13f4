//! The kernel's description of an object (`BPF_OBJ_GET_INFO_BY_FD`).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::BpfError;
use super::call::{Attributes, BpfCommand, bpf};
use crate::message;

/// A map's id, kind and sizes (`struct bpf_map_info`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MapInfo {
    /// Id of the map.
    pub id: u32,
    /// Kind of the map, a value of `enum bpf_map_type`.
    pub kind: u32,
    /// Bytes of a key.
    pub key_bytes: u32,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Maximum number of entries.
    pub entries: u32,
    /// Name of the map.
    pub name: String,
}

/// The program and interface of a link (`struct bpf_link_info`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LinkInfo {
    /// Id of the attached program.
    pub program: u32,
    /// Index of the interface; 0 once the interface is gone.
    pub interface: u32,
}

impl MapInfo {
    pub(super) fn of(map: BorrowedFd<'_>) -> Result<Self, BpfError> {
        let info = read::<40>(map).map_err(BpfError::new("examine", "a map"))?;
        let name = &info[24..40];
        let end = name.iter().position(|b| *b == 0).unwrap_or(name.len());
        Ok(Self {
            kind: u32_at(&info, 0),
            id: u32_at(&info, 4),
            key_bytes: u32_at(&info, 8),
            value_bytes: u32_at(&info, 12),
            entries: u32_at(&info, 16),
            name: String::from_utf8_lossy(&name[..end]).into_owned(),
        })
    }
}

impl LinkInfo {
    pub(super) fn of(link: BorrowedFd<'_>) -> Result<Self, BpfError> {
        let info = read::<24>(link).map_err(BpfError::new("examine", "a link"))?;
        let kind = u32_at(&info, 0);
        if kind != TCX {
            let source = io::Error::from_raw_os_error(libc::EINVAL);
            return Err(BpfError::new("use as a link of TCX", "another object")(source));
        }
        Ok(Self { program: u32_at(&info, 8), interface: u32_at(&info, 16) })
    }
}

pub(super) fn program_id(program: BorrowedFd<'_>) -> Result<u32, BpfError> {
    // type, id.
    let info = read::<8>(program).map_err(BpfError::new("examine", "a program"))?;
    Ok(u32_at(&info, 4))
}

/// The first bytes of an object's description.
fn read<const LENGTH: usize>(object: BorrowedFd<'_>) -> io::Result<[u8; LENGTH]> {
    let mut info = [0; LENGTH];
    let mut attributes = Attributes::new()
        .u32(0, object.as_raw_fd() as u32)
        .u32(4, LENGTH as u32)
        .output(8, &mut info);
    // SAFETY: the length of the buffer stands beside it.
    unsafe { bpf(BpfCommand::ObjInfo, &mut attributes)? };
    Ok(info)
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    message::u32_at(bytes, offset).expect("the field is within the structure")
}

/// `BPF_LINK_TYPE_TCX`.
const TCX: u32 = 11;
