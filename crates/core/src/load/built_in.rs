//! The mixes that linerate has: files as a user writes them.

/// The mix where none is named.
pub const DEFAULT_MIX: &str = "rrul";

const BUILT_IN: &[(&str, &str)] = &[
    ("rrul", include_str!("mixes/rrul.toml")),
    ("rrul_be", include_str!("mixes/rrul_be.toml")),
    ("tcp_nup", include_str!("mixes/tcp_nup.toml")),
    ("tcp_ndown", include_str!("mixes/tcp_ndown.toml")),
    ("tcp_8up", include_str!("mixes/tcp_8up.toml")),
    ("voip", include_str!("mixes/voip.toml")),
    ("video", include_str!("mixes/video.toml")),
    ("gaming", include_str!("mixes/gaming.toml")),
    ("web", include_str!("mixes/web.toml")),
    ("incast", include_str!("mixes/incast.toml")),
    ("burst", include_str!("mixes/burst.toml")),
];

/// The text of the mix of that name.
pub fn built_in(name: &str) -> Option<&'static str> {
    let found = BUILT_IN.iter().find(|(known, _)| *known == name);
    found.map(|(_, text)| *text)
}

/// The names of all of them.
pub fn names() -> impl Iterator<Item = &'static str> {
    BUILT_IN.iter().map(|(name, _)| *name)
}
