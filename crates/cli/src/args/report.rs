//! `linerate report`.

use std::path::PathBuf;

use clap::Args;

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Documents as --json or --output wrote them, or reports of them; - is stdin
    #[arg(required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Write the page to FILE (default stdout)
    #[arg(long, short, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Markdown for a ticket in place of HTML: the answer, tables, commands
    #[arg(long)]
    pub(crate) markdown: bool,
    /// Write each chart into the directory DIR as a file of SVG; without --output no page
    #[arg(long, value_name = "DIR")]
    pub(crate) svg: Option<PathBuf>,
}
