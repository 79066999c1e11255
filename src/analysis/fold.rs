//! Folding: a text in the form in which search compares it. NFKC, lower case, without marks.
//!
//! Each grapheme is folded by itself, so that a match in the folded text leads back to the part of
//! the original that a reader sees.

use std::ops::Range;

use icu_normalizer::properties::CanonicalCombiningClassMapBorrowed;
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use unicode_segmentation::UnicodeSegmentation as _;

/// A folded text, and the way back to the original.
pub(super) struct FoldedText {
    pub(super) text: String,
    /// Graphemes: the start of each in the folded text, and in the original. `None` for ASCII, where
    /// both are equal.
    graphemes: Option<Vec<(usize, usize)>>,
    original_len: usize,
}

impl FoldedText {
    pub(super) fn of(original: &str) -> Self {
        if original.is_ascii() {
            return Self {
                text: original.to_ascii_lowercase(),
                graphemes: None,
                original_len: original.len(),
            };
        }
        let mut text = String::with_capacity(original.len());
        let mut graphemes = Vec::new();
        for (start, grapheme) in original.grapheme_indices(true) {
            graphemes.push((text.len(), start));
            fold_grapheme(grapheme, &mut text);
        }
        Self {
            text,
            graphemes: Some(graphemes),
            original_len: original.len(),
        }
    }

    /// The graphemes of the original that hold this range of the folded text.
    pub(super) fn original(&self, range: &Range<usize>) -> Range<usize> {
        let Some(graphemes) = &self.graphemes else {
            return range.clone();
        };
        // If several graphemes have one offset, all but the last folded to nothing.
        let after = |offset: usize| graphemes.partition_point(|(folded, _)| *folded <= offset);
        let first = after(range.start).saturating_sub(1);
        let start = graphemes.get(first).map_or(0, |(_, original)| *original);
        let end = graphemes
            .get(after(range.end.saturating_sub(1)))
            .map_or(self.original_len, |(_, original)| *original);
        start..end
    }
}

fn fold_grapheme(grapheme: &str, folded: &mut String) {
    if let [byte] = grapheme.as_bytes() {
        folded.push(char::from(byte.to_ascii_lowercase()));
        return;
    }
    let compatible = ComposingNormalizerBorrowed::new_nfkc().normalize(grapheme);
    let lower = compatible.to_lowercase();
    let classes = CanonicalCombiningClassMapBorrowed::new();
    let bare: String = DecomposingNormalizerBorrowed::new_nfd()
        .normalize(&lower)
        .chars()
        .filter(|char| !is_mark(classes.get_u8(*char)) && !is_invisible(*char))
        // A final sigma is a sigma.
        .map(|char| if char == 'ς' { 'σ' } else { char })
        .collect();
    folded.push_str(&ComposingNormalizerBorrowed::new_nfc().normalize(&bare));
}

/// Marks by their canonical combining class: the points of Hebrew, Arabic and Syriac, and whatever
/// stands above or below a letter. Voiced kana and the vowels of Indic and Thai scripts are letters.
fn is_mark(class: u8) -> bool {
    matches!(class, 10..=36 | 200..)
}

/// Characters that no reader sees: joiners, direction marks, variation selectors, soft hyphens.
fn is_invisible(char: char) -> bool {
    matches!(
        char,
        '\u{ad}'
            | '\u{200b}'..='\u{200f}'
            | '\u{202a}'..='\u{202e}'
            | '\u{2060}'..='\u{2069}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
    )
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn folded(text: &str) -> String {
        FoldedText::of(text).text
    }

    #[test]
    fn spellings_of_one_word_fold_to_one_text() {
        for (text, expected) in [
            ("ÉCOLE", "ecole"),
            ("e\u{301}cole", "ecole"),
            ("ﬁnancial", "financial"),
            ("Ａ１", "a1"),
            ("ΟΔΟΣ", "οδοσ"),
            ("οδος", "οδοσ"),
            ("שָׁלוֹם", "שלום"),
            ("مُحَمَّد", "محمد"),
            ("が", "が"),
            ("\u{304b}\u{3099}", "が"),
            ("ｶﾞ", "ガ"),
            ("한국", "한국"),
            ("\u{1112}\u{1161}\u{11ab}국", "한국"),
            ("ผู้", "ผู้"),
            ("co\u{ad}op", "coop"),
        ] {
            assert_eq!(folded(text), expected, "{text}");
        }
    }

    #[test]
    fn a_range_of_the_folded_text_leads_to_its_graphemes() {
        let text = "xx ﬁn é!";
        let folded = FoldedText::of(text);
        let at = folded.text.find("in").unwrap();
        assert_eq!(&text[folded.original(&(at..at + 2))], "ﬁn");
        let at = folded.text.find('e').unwrap();
        assert_eq!(&text[folded.original(&(at..at + 1))], "é");
    }

    proptest! {
        #[test]
        fn folding_twice_is_folding_once_and_ranges_are_of_the_original(text in "\\PC{0,40}") {
            let once = FoldedText::of(&text);
            prop_assert_eq!(&FoldedText::of(&once.text).text.to_lowercase(), &once.text.to_lowercase());
            for (start, char) in once.text.char_indices() {
                let range = once.original(&(start..start + char.len_utf8()));
                prop_assert!(text.get(range.clone()).is_some_and(|part| !part.is_empty()), "{:?}", range);
            }
        }
    }
}
