//! Many rules: tables.

use crate::policy::Family;
use crate::rules::RuleSet;

use super::CompileError;
use super::generator::{Generator, Layer};

/// The tables of families with many rules.
#[derive(Debug, Default)]
pub(super) struct Tables {
    pub(super) content: Vec<u8>,
}

impl Tables {
    pub(super) fn of(_rules: &RuleSet) -> Result<Self, CompileError> {
        Ok(Self::default())
    }

    pub(super) fn has(&self, _family: Family) -> bool {
        false
    }
}

impl Generator<'_> {
    pub(super) fn ask_tables(&mut self, _family: Family, _layer: Layer) {}

    pub(super) fn take_from_tables(&mut self, _family: Family, _layer: Layer) {}
}
