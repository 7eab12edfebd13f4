//! Charts as PNG, by resvg (docs/adr/0014-pictures-and-tables-by-features.md).

use anyhow::{Context, anyhow};
use resvg::tiny_skia::{Pixmap, Transform};
use resvg::usvg::fontdb::{Family, Query, Style, Weight};
use resvg::usvg::{Options, Tree};

use crate::failure::Failure;

/// Draws with the fonts of this host.
pub(super) struct Painter(Options<'static>);

impl Painter {
    /// # Errors
    /// This host has no font.
    pub(super) fn new() -> Result<Self, Failure> {
        let mut options = Options::default();
        let fonts = options.fontdb_mut();
        fonts.load_system_fonts();
        let sans = Query {
            families: &[Family::SansSerif],
            ..Query::default()
        };
        if fonts.query(&sans).is_none() {
            // What the configuration prefers is not installed: the plainest of what is.
            let upright = fonts.faces().filter(|face| face.style == Style::Normal);
            let named = upright.filter_map(|face| Some((face, face.families.first()?.0.clone())));
            let plainest = named.min_by_key(|(face, name)| {
                let is_other = face.weight != Weight::NORMAL || face.monospaced;
                (is_other, !name.contains("Sans"))
            });
            let (_, family) = plainest.ok_or_else(no_font)?;
            fonts.set_sans_serif_family(family);
        }
        Ok(Self(options))
    }

    /// The picture, so many pixels wide.
    ///
    /// # Errors
    /// It is no SVG, or there is no memory for so many pixels.
    pub(super) fn png(&self, svg: &str, pixels: u32) -> anyhow::Result<Vec<u8>> {
        let tree = Tree::from_str(svg, &self.0)?;
        let zoom = pixels as f32 / tree.size().width();
        let height = (tree.size().height() * zoom).ceil() as u32;
        let mut drawn = Pixmap::new(pixels, height).context("no memory for so many pixels")?;
        resvg::render(
            &tree,
            Transform::from_scale(zoom, zoom),
            &mut drawn.as_mut(),
        );
        Ok(drawn.encode_png()?)
    }
}

fn no_font() -> Failure {
    Failure::unsupported(anyhow!(
        "--png: no font is installed, and charts have words; install one, such as the package fonts-dejavu-core"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_drawn_and_a_picture_has_the_width_that_was_asked_for() {
        let Ok(painter) = Painter::new() else {
            linerate_testkit::skip(linerate_testkit::Need::Fonts, "no font is installed");
            return;
        };
        let svg = |text: &str| {
            format!(
                "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"90\" height=\"30\">\
                 <style>text{{font:12px system-ui,sans-serif}}</style><text y=\"20\">{text}</text></svg>"
            )
        };
        let drawn = |text: &str| {
            let png = painter.png(&svg(text), 300).expect("an SVG");
            Pixmap::decode_png(&png).expect("a PNG")
        };
        let (empty, words) = (drawn(""), drawn("Mbit/s"));
        assert_eq!((words.width(), words.height()), (300, 100));
        assert!(empty.data().iter().all(|byte| *byte == 0));
        let inked = words.pixels().iter().filter(|pixel| pixel.alpha() > 128);
        assert!(inked.count() > 300);
    }
}
