//! Text of users: its bounds and its characters.

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextError {
    #[error("must not be blank")]
    Blank,
    #[error("has {bytes} bytes of UTF-8, and {bytes_max} is the most")]
    TooLong { bytes: usize, bytes_max: usize },
    #[error("must not hold control characters")]
    Control,
    #[error("must not hold control characters other than tab, line feed and carriage return")]
    ControlInBody,
    #[error(
        "must not hold invisible or bidirectional format characters; U+200C and U+200D may be in it"
    )]
    Invisible,
}

/// Mark at the start of a UTF-8 file, as some editors write it. It is no part of the text.
pub const BYTE_ORDER_MARK: &[u8] = "\u{feff}".as_bytes();

/// The text of a file or stream without its byte order mark.
pub fn without_byte_order_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// A short line of text, as history may hold it: not blank, bounded, no control characters.
pub fn parse_line(text: &str, bytes_max: usize) -> Result<(), TextError> {
    if text.len() > bytes_max {
        return Err(TextError::TooLong {
            bytes: text.len(),
            bytes_max,
        });
    }
    if text.chars().all(char::is_whitespace) {
        return Err(TextError::Blank);
    }
    if text.chars().any(char::is_control) {
        return Err(TextError::Control);
    }
    Ok(())
}

/// A name from a client: a line of visible characters, and joiners between them.
pub fn parse_name(text: &str, bytes_max: usize) -> Result<(), TextError> {
    parse_line(text, bytes_max)?;
    if text.chars().any(is_invisible) {
        return Err(TextError::Invisible);
    }
    if is_blank(text) {
        return Err(TextError::Blank);
    }
    Ok(())
}

/// Whether a client's message must not contain the character: C0 and C1 controls and DEL, except
/// tab, line feed and carriage return.
pub fn is_refused_in_body(char: char) -> bool {
    char.is_control() && !matches!(char, '\t' | '\n' | '\r')
}

/// Whether a text shows nothing: it has white space and invisible characters alone.
pub(super) fn is_blank(text: &str) -> bool {
    !text.chars().any(is_shown)
}

/// Whether the character shows by itself: no blank, nothing invisible.
pub(super) fn is_shown(char: char) -> bool {
    !char.is_whitespace() && !is_joiner(char) && !is_variation_selector(char) && !is_invisible(char)
}

/// Bidi_Control of Unicode: a character that changes the order in which others are shown.
pub(super) fn is_bidirectional_control(char: char) -> bool {
    matches!(char, '\u{61c}' | '\u{200e}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// ZERO WIDTH NON-JOINER and ZERO WIDTH JOINER: many scripts, and emoji of several parts, need them.
fn is_joiner(char: char) -> bool {
    matches!(char, '\u{200c}' | '\u{200d}')
}

/// Variation selectors: they choose the shape of an emoji, or of a Mongolian or Chinese character.
fn is_variation_selector(char: char) -> bool {
    matches!(char, '\u{180b}'..='\u{180d}' | '\u{180f}' | '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}')
}

/// An invisible character, or one that changes the direction of others: a name with it looks like
/// another name.
///
/// Default_Ignorable_Code_Point and general category Cf of Unicode 16, line and paragraph separators, and the letters that are blank; but
/// joiners, variation selectors, and the format characters that are drawn (Arabic number signs and the like).
fn is_invisible(char: char) -> bool {
    if is_joiner(char) || is_variation_selector(char) {
        return false;
    }
    matches!(
        char,
        '\u{ad}'
        | '\u{34f}'
        | '\u{61c}'
        | '\u{115f}'..='\u{1160}'
        | '\u{17b4}'..='\u{17b5}'
        | '\u{180e}'
        | '\u{200b}'..='\u{200f}'
        | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}'
        | '\u{2800}'
        | '\u{3164}'
        | '\u{feff}'
        | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}'
        | '\u{13430}'..='\u{1343f}'
        | '\u{1bca0}'..='\u{1bca3}'
        | '\u{1d159}'
        | '\u{1d173}'..='\u{1d17a}'
        | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_shows_all_that_it_holds() {
        let parse = |text: &str| parse_name(text, 64);
        for name in [
            "Zoë",
            "Ann-Marie O’Neil",
            "نگار\u{200c}ها",
            "👩\u{200d}👩\u{200d}👧 ❤\u{fe0f}",
            "葛\u{e0100}城",
            "שרה",
            "\u{600}١",
        ] {
            assert_eq!(parse(name), Ok(()), "{name}");
        }
        for char in [
            '\u{ad}',
            '\u{61c}',
            '\u{115f}',
            '\u{1160}',
            '\u{180e}',
            '\u{200b}',
            '\u{200e}',
            '\u{200f}',
            '\u{2028}',
            '\u{202a}',
            '\u{202e}',
            '\u{2060}',
            '\u{2064}',
            '\u{2066}',
            '\u{2069}',
            '\u{206f}',
            '\u{2800}',
            '\u{3164}',
            '\u{feff}',
            '\u{ffa0}',
            '\u{fff9}',
            '\u{e0001}',
            '\u{e0020}',
            '\u{e007f}',
        ] {
            assert_eq!(
                parse(&format!("bo{char}b")),
                Err(TextError::Invisible),
                "{:?}",
                char.escape_unicode().to_string()
            );
        }
        for blank in ["", " ", "\u{2003}", "\u{200d}", " \u{200c}\u{200d}\u{fe0f}"] {
            assert_eq!(parse(blank), Err(TextError::Blank), "{blank:?}");
        }
        assert_eq!(parse("a\tb"), Err(TextError::Control));
        assert!(matches!(
            parse(&"x".repeat(65)),
            Err(TextError::TooLong { .. })
        ));
    }

    #[test]
    fn a_line_of_history_may_hold_what_names_may_not_hold_any_more() {
        assert_eq!(parse_line("bo\u{202e}b", 64), Ok(()));
        assert_eq!(parse_line("bo\u{7}b", 64), Err(TextError::Control));
    }
}
