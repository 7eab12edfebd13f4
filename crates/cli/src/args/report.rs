//! Options of `report`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Documents as --json or --output wrote them, or reports; - is stdin
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Write the page to FILE (default stdout)
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Markdown instead of HTML, for a ticket: the answer, tables, commands
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Write each chart as SVG into directory DIR; a page only with --output
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
    /// The same as PNG, 300 to 6000 pixels wide (default 1800); needs a build with png
    #[arg(long, value_name = "DIR[=WIDTH]", value_parser = pictures)]
    pub(crate) png: Option<Pictures>,
}

/// Where pictures are written, and their width.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pictures {
    pub(crate) directory: PathBuf,
    pub(crate) pixels: u32,
}

fn pictures(text: &str) -> Result<Pictures, String> {
    let is_number = |end: &str| !end.is_empty() && end.bytes().all(|byte| byte.is_ascii_digit());
    let (directory, pixels) = match text.rsplit_once('=') {
        Some((directory, width)) if is_number(width) => (directory, width.parse().unwrap_or(0)),
        _ => (text, 1800),
    };
    if !(300..=6000).contains(&pixels) {
        return Err("the width must be 300 to 6000 pixels".to_owned());
    }
    Ok(Pictures {
        directory: directory.into(),
        pixels,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_may_be_followed_by_a_width() {
        let of = |text: &str| pictures(text).map(|it| (it.directory, it.pixels));
        assert_eq!(of("a"), Ok(("a".into(), 1800)));
        assert_eq!(of("a=b=300"), Ok(("a=b".into(), 300)));
        assert_eq!(of("a=b"), Ok(("a=b".into(), 1800)));
        assert!(of("a=299").is_err() && of("a=99999999999999").is_err());
    }
}
