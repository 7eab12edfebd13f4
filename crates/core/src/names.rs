//! Tables of the names that the variants of plain enums have.

/// Makes methods that give a variant its name: `Tool::name: Iperf3 "iperf3", Netperf "netperf";`.
macro_rules! names {
    ($($(#[$doc:meta])* $type:ident::$method:ident: $($variant:ident $name:literal),*;)*) => {
        $(impl $type {
            $(#[$doc])*
            pub fn $method(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)*
                }
            }
        })*
    };
}

pub(crate) use names;
