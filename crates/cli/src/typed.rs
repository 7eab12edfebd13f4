//! Names options in errors as the user typed them: `-P` for `--streams`.

use std::ffi::OsString;

use linerate_core::plan::options;

/// An option of a test, by its key, as it was typed to this process.
pub(crate) fn option(key: &str) -> String {
    let of_key = options().iter().filter(|option| option.key == key);
    let (mut letters, mut aliases) = (Vec::new(), Vec::new());
    for option in of_key {
        letters.extend(option.short);
        aliases.extend(option.aliases);
    }
    here(&format!("--{key}"), &letters, &aliases)
}

/// An option with that letter and those other long names, as it was typed to this process.
pub(crate) fn here(option: &str, letters: &[char], aliases: &[&str]) -> String {
    let words: Vec<OsString> = std::env::args_os().collect();
    among(&words, option, letters, aliases)
}

/// The same on any command line; the long name if the option was not typed.
pub(crate) fn among(
    words: &[OsString],
    option: &str,
    letters: &[char],
    aliases: &[&str],
) -> String {
    let words = words.iter().skip(1).filter_map(|word| word.to_str());
    let mut names = words.filter_map(|word| match word.strip_prefix("--") {
        Some(long) => {
            let name = long.split('=').next().unwrap_or(long);
            let is_it = option.strip_prefix("--") == Some(name) || aliases.contains(&name);
            is_it.then(|| format!("--{name}"))
        }
        None => {
            let letter = word.strip_prefix('-')?.chars().next()?;
            letters.contains(&letter).then(|| format!("-{letter}"))
        }
    });
    names.next().unwrap_or_else(|| option.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_option_is_named_as_it_was_typed() {
        for (line, name) in [
            ("linerate stream h -P 0", "-P"),
            ("linerate stream h -P0", "-P"),
            ("linerate stream h --parallel=0", "--parallel"),
            ("linerate stream h --streams 0", "--streams"),
            ("linerate stream h", "--streams"),
        ] {
            let words: Vec<_> = line.split(' ').map(OsString::from).collect();
            let typed = among(&words, "--streams", &['P'], &["parallel"]);
            assert_eq!(typed, name, "{line}");
        }
    }
}
