//! Snippets: the part of a text around its first match.

use std::ops::Range;

use unicode_segmentation::UnicodeSegmentation as _;

/// Characters of a snippet, about.
const CHARACTERS: usize = 200;
/// Characters before the first match.
const BEFORE: usize = 60;

/// A part of a snippet: a match, or the text between matches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnippetSpan {
    pub text: String,
    pub is_match: bool,
}

/// The part of a text around its first match, with the other matches in it. `ranges` are in order
/// and do not overlap.
pub fn snippet(text: &str, ranges: &[Range<usize>]) -> Vec<SnippetSpan> {
    let Some(first) = ranges.first() else {
        return Vec::new();
    };
    let window = window(text, first);
    let mut parts = Vec::new();
    let mut add = |range: Range<usize>, is_match| {
        if !range.is_empty() {
            let text = text[range].to_owned();
            parts.push(SnippetSpan { text, is_match });
        }
    };
    let mut at = window.start;
    for range in ranges {
        let range = range.start.max(at)..range.end.min(window.end);
        if range.start >= range.end {
            break;
        }
        add(at..range.start, false);
        at = range.end;
        add(range, true);
    }
    add(at..window.end, false);
    parts
}

/// The shown range, cut between words where one ends nearby, and never inside a grapheme.
fn window(text: &str, first: &Range<usize>) -> Range<usize> {
    let before = text[..first.start].grapheme_indices(true).rev();
    let mut shown: Vec<_> = before.take(BEFORE + 1).collect();
    let start = match shown.len() > BEFORE {
        false => 0,
        true => {
            shown.pop();
            shown.reverse();
            let space = shown.iter().position(|(_, one)| one.trim().is_empty());
            match space {
                Some(number) if number + 1 < shown.len() => shown[number + 1].0,
                _ => shown[0].0,
            }
        }
    };
    let mut ends = text[start..].grapheme_indices(true).skip(CHARACTERS);
    let Some((len, _)) = ends.next() else {
        return start..text.len();
    };
    let end = start + len;
    let tail = first.end.max(start)..end;
    let space = text
        .get(tail.clone())
        .and_then(|shown| shown.rfind(char::is_whitespace));
    start..space.map_or(end, |at| tail.start + at)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::analysis::{SearchQuery, find};

    fn parts(query: &str, text: &str) -> Vec<(String, bool)> {
        let found = find(&SearchQuery::parse(query).unwrap(), [text]).unwrap();
        let parts = snippet(text, &found.ranges).into_iter();
        parts.map(|part| (part.text, part.is_match)).collect()
    }

    #[test]
    fn a_short_text_is_shown_whole() {
        assert_eq!(
            parts("soup noon", "Soup at noon?"),
            [
                ("Soup", true),
                (" at ", false),
                ("noon", true),
                ("?", false)
            ]
            .map(|(text, is_match)| (text.to_owned(), is_match))
        );
    }

    #[test]
    fn a_long_text_is_cut_between_words_around_the_first_match() {
        let text = format!("{}needle {}", "hay ".repeat(100), "straw ".repeat(100));
        let parts = parts("needle", &text);
        let shown: String = parts.iter().map(|(text, _)| text.as_str()).collect();
        assert!(text.contains(&shown) && shown.starts_with("hay") && shown.ends_with("straw"));
        assert!(
            (150..=CHARACTERS).contains(&shown.chars().count()),
            "{shown}"
        );
        assert_eq!(parts[1], ("needle".to_owned(), true));
    }

    proptest! {
        #[test]
        fn a_snippet_is_a_part_of_the_text(before in "\\PC{0,150}", word in "[a-z中]{1,9}", after in "\\PC{0,300}") {
            let text = format!("{before} {word} {after}");
            let found = find(&SearchQuery::parse(&word).unwrap(), [text.as_str()]).unwrap();
            let parts = snippet(&text, &found.ranges);
            let shown: String = parts.iter().map(|part| part.text.as_str()).collect();
            prop_assert!(text.contains(&shown));
            prop_assert!(parts.iter().any(|part| part.is_match));
        }
    }
}
