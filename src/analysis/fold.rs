//! Folding: a text in the form in which search compares it. NFKC, lower case, without marks, and letters that a keyboard
//! may lack in their plain spelling.
//!
//! Each grapheme is folded by itself, so that a match in the folded text leads back to the part of
//! the original that a reader sees.

use std::ops::Range;

use icu_normalizer::properties::CanonicalCombiningClassMapBorrowed;
use icu_normalizer::{ComposingNormalizerBorrowed, DecomposingNormalizerBorrowed};
use unicode_segmentation::UnicodeSegmentation as _;

/// Quotation marks of phrases in queries. Hebrew writes them within acronyms too.
pub(super) const QUOTES: [char; 4] = ['"', '“', '”', '„'];
/// Letters with a mark that makes them other letters of their alphabets.
const LETTERS_WITH_MARK: [char; 3] = ['й', 'ў', 'ї'];
/// Signs that stand at the end of a name and belong to no word.
const TRADE_MARKS: [char; 3] = ['™', '℠', '®'];

/// Bytes of ASCII that are folded in the time of another byte.
const ASCII_PER_BYTE: usize = 16;

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
            let after = &original[start + grapheme.len()..];
            if !(is_double_quote(grapheme) && is_within_hebrew(&original[..start], after)) {
                fold_grapheme(grapheme, &mut text);
            }
        }
        Self {
            text,
            graphemes: Some(graphemes),
            original_len: original.len(),
        }
    }

    /// Work of the folding, in bytes of a text that is not ASCII. ASCII takes a small part of it.
    pub(super) fn work(&self) -> usize {
        match self.graphemes {
            Some(_) => self.text.len(),
            None => self.text.len() / ASCII_PER_BYTE,
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
    if grapheme.starts_with(TRADE_MARKS) {
        return;
    }
    let mut chars = grapheme.chars();
    if let (Some(char), None) = (chars.next(), chars.next())
        && is_plain(char)
    {
        folded.push(char);
        return;
    }
    fold_marked(grapheme, folded);
}

fn fold_marked(grapheme: &str, folded: &mut String) {
    let compatible = ComposingNormalizerBorrowed::new_nfkc().normalize(grapheme);
    let lower = compatible.to_lowercase();
    let classes = CanonicalCombiningClassMapBorrowed::new();
    let mut bare = String::with_capacity(lower.len());
    for part in lower.split_inclusive(LETTERS_WITH_MARK) {
        let marked = part.trim_end_matches(LETTERS_WITH_MARK);
        DecomposingNormalizerBorrowed::new_nfd()
            .normalize(marked)
            .chars()
            .filter(|char| !is_mark(classes.get_u8(*char)) && !is_invisible(*char))
            .for_each(|char| push_plain(char, &mut bare));
        bare.push_str(&part[marked.len()..]);
    }
    folded.push_str(&ComposingNormalizerBorrowed::new_nfc().normalize(&bare));
}

/// Common letters that fold to themselves: they are most of the texts that are not ASCII.
fn is_plain(char: char) -> bool {
    matches!(
        char,
        'а'..='я' | 'א'..='ת' | 'ぁ'..='ゖ' | 'ァ'..='ヺ' | '一'..='鿿' | '가'..='힣'
    )
}

fn is_double_quote(grapheme: &str) -> bool {
    let mut chars = grapheme.chars();
    let first = chars.next();
    first.is_some_and(|char| char == '״' || QUOTES.contains(&char)) && chars.next().is_none()
}

/// Whether a mark between these texts is within a Hebrew word, as in an acronym.
pub(super) fn is_within_hebrew(before: &str, after: &str) -> bool {
    let is_letter = |char: char| matches!(char, 'א'..='ת');
    let is_point = |char: &char| matches!(char, '\u{591}'..='\u{5c7}');
    let last = before.chars().rev().find(|char| !is_point(char));
    last.is_some_and(is_letter) && after.chars().next().is_some_and(is_letter)
}

/// Adds the spelling of a letter that a plain keyboard has.
fn push_plain(char: char, text: &mut String) {
    let plain = match char {
        'ß' => "ss",
        'æ' => "ae",
        'œ' => "oe",
        'þ' => "th",
        'ø' => "o",
        'ł' => "l",
        'đ' | 'ð' => "d",
        'ħ' => "h",
        'ŧ' => "t",
        'ŋ' => "n",
        'ı' => "i",
        // A final sigma is a sigma.
        'ς' => "σ",
        '‘' | '’' | 'ʹ' | 'ʻ' | 'ʼ' | 'ʾ' | 'ʿ' | '׳' => "'",
        '♯' => "#",
        // Letters of Arabic that keyboards and writers interchange.
        'ى' | 'ی' => "ي",
        'ک' => "ك",
        'ة' => "ه",
        'ٱ' => "ا",
        '٠'..='٩' => return text.push(ascii_digit(char, '٠')),
        '۰'..='۹' => return text.push(ascii_digit(char, '۰')),
        _ => return text.push(char),
    };
    text.push_str(plain);
}

fn ascii_digit(digit: char, zero: char) -> char {
    let value = u32::from(digit) - u32::from(zero);
    char::from_digit(value, 10).unwrap_or(digit)
}

/// Marks by their canonical combining class: the points of Hebrew, Arabic and Syriac, and whatever
/// stands above or below a letter. Voiced kana and the vowels of Indic and Thai scripts are letters.
fn is_mark(class: u8) -> bool {
    matches!(class, 10..=36 | 200..)
}

/// Characters that no reader sees: joiners, direction marks, variation selectors, soft hyphens. The tatweel only makes an
/// Arabic word longer.
fn is_invisible(char: char) -> bool {
    matches!(
        char,
        '\u{ad}'
            | '\u{640}'
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
            ("Straße", "strasse"),
            ("мой мои\u{306} ёлка", "мой мой елка"),
            ("מנכ״ל צה\"ל \"שלום\"", "מנכל צהל \"שלום\""),
            ("Wideroom™", "wideroom"),
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

    #[test]
    fn plain_letters_fold_to_themselves() {
        for char in ('\0'..=char::MAX).filter(|char| is_plain(*char)) {
            let mut folded = String::new();
            fold_marked(char.encode_utf8(&mut [0; 4]), &mut folded);
            assert!(folded.chars().eq([char]), "{char}");
        }
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
