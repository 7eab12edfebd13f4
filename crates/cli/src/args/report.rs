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
}
