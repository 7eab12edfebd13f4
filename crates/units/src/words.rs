//! The words of plain enums.

/// Gives plain enums the list of their variants, and a method with the word for each. An entry is
/// the enum, the name of that method, and each word with its variant.
#[macro_export]
macro_rules! words {
    ($($type:ident $method:ident { $($word:literal $variant:ident),* $(,)? })*) => {
        $(impl $type {
            /// All variants.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];
            /// The words of all variants.
            pub const WORDS: &'static [&'static str] = &[$($word),*];

            /// The word for this variant.
            pub fn $method(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// The variant with this word.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }
        })*
    };
}
