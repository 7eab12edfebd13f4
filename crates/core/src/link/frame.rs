//! STUB
#![allow(missing_docs, unused_variables)]
use super::{Corruption, Ecn};
use crate::plan::Family;
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Offload { pub needs_checksum: bool, pub gso: Gso, pub ecn: bool, pub header_bytes: u16, pub gso_bytes: u16, pub checksum_start: u16, pub checksum_offset: u16 }
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Gso { #[default] None, Tcp4, Tcp6, Udp }
#[derive(Debug, Clone, Copy)]
pub struct Layout { pub family: Family, pub ip_bytes: u32, pub ecn: Ecn }
#[derive(Debug, Clone, Copy, Default)]
pub struct RouterAddresses { pub v4: Option<std::net::Ipv4Addr>, pub v6: Option<std::net::Ipv6Addr> }
pub fn layout(frame: &[u8]) -> Option<Layout> {
    let t = u16::from_be_bytes([*frame.get(12)?, *frame.get(13)?]);
    let ip_bytes = (frame.len() - 14) as u32;
    match t { 0x800 => Some(Layout{family: Family::Ipv4, ip_bytes, ecn: Ecn::NotEct}), 0x86dd => Some(Layout{family: Family::Ipv6, ip_bytes, ecn: Ecn::NotEct}), _ => None }
}
pub struct Cutter<'a> { f: Option<&'a [u8]>, o: Offload }
impl<'a> Cutter<'a> {
    pub fn new(f: &'a [u8], o: Offload) -> Self { Self { f: Some(f), o } }
    pub fn next_into(&mut self, b: &mut Vec<u8>) -> Option<Offload> { let f = self.f.take()?; b.clear(); b.extend_from_slice(f); Some(self.o) }
}
pub fn complete_checksum(frame: &mut [u8], offload: &mut Offload) {}
pub fn mark_ce(frame: &mut [u8]) -> bool { false }
pub fn corrupt(frame: &mut [u8], offload: &mut Offload, c: Corruption) {}
pub fn too_big(frame: &[u8], r: &RouterAddresses, mtu: u32) -> Option<Vec<u8>> { None }
pub fn fragments(frame: &[u8], mtu: u32, each: impl FnMut(&[u8])) {}
