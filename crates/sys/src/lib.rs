//! linerate-sys
