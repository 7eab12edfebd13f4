//! The page of the table of treatments.

use linerate_core::treatment::{Entry, Scope, acts_words, refused, sysctls, table};

use super::Style;
use super::page::{Emphasis, Page};

/// Every treatment with its scope and range, what it needs, how it is applied, read back and
/// undone; the kernel settings that may be treated; and what is refused.
pub fn treatments(style: Style) -> String {
    let mut page = Page::new(style);
    for scope in [Scope::Socket, Scope::Device, Scope::Route, Scope::Host] {
        page.gap();
        page.title(&format!("treatments of a {}", scope.name()));
        page.indented(scope.ends());
        let own = table().iter().filter(|entry| entry.scope == scope);
        own.for_each(|entry| one(&mut page, entry));
    }
    page.gap();
    page.title("keys of sysctl:");
    for sysctl in sysctls() {
        page.plain(&format!("  {}={}", sysctl.key, sysctl.value));
        detail(&mut page, "", sysctl.means);
        if sysctl.acts.is_some() {
            detail(&mut page, "acts", acts_words(sysctl.acts));
        }
        let also = sysctl.changes_also.iter();
        also.for_each(|also| detail(&mut page, "changes also", also));
    }
    page.gap();
    page.title("refused");
    for (name, why) in refused() {
        page.plain(&format!("  {name}"));
        detail(&mut page, "", why);
    }
    page.finish()
}

fn one(page: &mut Page, entry: &Entry) {
    page.gap();
    let name = format!("  {} ", entry.name);
    page.paragraph(Emphasis::None, &name, HANG, entry.means);
    detail(page, "acts", acts_words(entry.acts));
    detail(page, "values", &entry.range());
    detail(page, "needs", entry.needs);
    detail(page, "applied", entry.applied);
    detail(page, "read back", entry.read_back);
    detail(page, "undone", entry.undone);
    let also = entry.changes_also.iter();
    also.for_each(|also| detail(page, "changes also", also));
}

fn detail(page: &mut Page, name: &str, text: &str) {
    page.paragraph(Emphasis::None, &format!("    {name}"), HANG, text);
}

/// Width of the names and labels.
const HANG: usize = 20;
