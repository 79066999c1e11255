//! Values of string literals: escapes, surrogate pairs, and the indentation of block strings.

use std::borrow::Cow;

const BLOCK: &str = "\"\"\"";

/// Value and length of the literal at the start of the text.
pub(super) fn read(text: &str) -> Result<(Cow<'_, str>, usize), &'static str> {
    if text.starts_with(BLOCK) {
        return block(text);
    }
    let mut value = String::new();
    let mut plain = 1;
    let mut at = 1;
    while let Some(&byte) = text.as_bytes().get(at) {
        match byte {
            b'"' => {
                let rest = &text[plain..at];
                let value = if value.is_empty() {
                    Cow::Borrowed(rest)
                } else {
                    Cow::Owned(value + rest)
                };
                return Ok((value, at + 1));
            }
            b'\n' | b'\r' => break,
            b'\\' => {
                value += &text[plain..at];
                let (character, length) =
                    escape(&text[at + 1..]).ok_or("a string has an invalid escape")?;
                value.push(character);
                at += 1 + length;
                plain = at;
            }
            _ => at += 1,
        }
    }
    Err("a string has no end")
}

/// Character of an escape, and its length without the backslash.
fn escape(text: &str) -> Option<(char, usize)> {
    let simple = match text.bytes().next()? {
        quoted @ (b'"' | b'\\' | b'/') => char::from(quoted),
        b'b' => '\u{8}',
        b'f' => '\u{c}',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => return unicode(&text[1..]).map(|(character, length)| (character, 1 + length)),
        _ => return None,
    };
    Some((simple, 1))
}

fn unicode(text: &str) -> Option<(char, usize)> {
    if let Some(rest) = text.strip_prefix('{') {
        let digits = rest.find('}')?;
        return Some((char::from_u32(hex(&rest[..digits])?)?, digits + 2));
    }
    let first = hex(text.get(..4)?)?;
    if let Some(character) = char::from_u32(first) {
        return Some((character, 4));
    }
    let second = hex(text.get(4..)?.strip_prefix("\\u")?.get(..4)?)?;
    let pair = [u16::try_from(first).ok()?, u16::try_from(second).ok()?];
    let character = char::decode_utf16(pair).next()?.ok()?;
    Some((character, 10))
}

fn hex(digits: &str) -> Option<u32> {
    let is_hex = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    if is_hex {
        u32::from_str_radix(digits, 16).ok()
    } else {
        None
    }
}

fn block(text: &str) -> Result<(Cow<'_, str>, usize), &'static str> {
    let mut at = BLOCK.len();
    let mut raw = String::new();
    loop {
        let rest = text.get(at..).unwrap_or_default();
        let quotes = rest.find(BLOCK).ok_or("a block string has no end")?;
        let part = &rest[..quotes];
        at += quotes + BLOCK.len();
        match part.strip_suffix('\\') {
            Some(escaped) => raw = raw + escaped + BLOCK,
            None => return Ok((Cow::Owned(dedent(&(raw + part))), at)),
        }
    }
}

/// The specification's `BlockStringValue`: lines without their common indentation, and without blank
/// lines around them.
fn dedent(raw: &str) -> String {
    let lines = raw.replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<_> = lines.split('\n').collect();
    let indent = |line: &str| line.len() - line.trim_start_matches([' ', '\t']).len();
    let is_blank = |line: &&str| indent(line) == line.len();
    let common = lines[1..]
        .iter()
        .filter(|line| !is_blank(line))
        .map(|line| indent(line))
        .min();
    let first = lines.iter().position(|line| !is_blank(line));
    let last = lines.iter().rposition(|line| !is_blank(line));
    let (Some(first), Some(last)) = (first, last) else {
        return String::new();
    };
    let kept: Vec<_> = (first..=last)
        .map(|number| match common {
            Some(common) if number > 0 => lines[number].get(common..).unwrap_or_default(),
            _ => lines[number],
        })
        .collect();
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_escape_has_its_character() {
        for (text, value) in [
            (r#""""#, ""),
            (r#""a""#, "a"),
            (r#""\"\\\/\b\f\n\r\t""#, "\"\\/\u{8}\u{c}\n\r\t"),
            (r#""\u00e9""#, "é"),
            (r#""\uD83D\uDE00""#, "😀"),
            (r#""\u{1F600}\u{41}\u{00000041}""#, "😀AA"),
            ("\"\"\"a \\\"\"\" b\"\"\"", "a \"\"\" b"),
            (r#""""""""#, ""),
            (r#""""\n \u0041 \ ""x""""#, "\\n \\u0041 \\ \"\"x"),
            (
                "\"\"\"\n    a\n      b\r\n\r    c\n  \t\"\"\"",
                "a\n  b\n\nc",
            ),
            ("\"\"\"  a\n   b\n    c\"\"\"", "  a\nb\n c"),
            ("\"\"\" \n \"\"\"", ""),
        ] {
            let (read, length) = read(text).unwrap();
            assert_eq!((read.as_ref(), length), (value, text.len()), "{text}");
        }
    }

    #[test]
    fn an_invalid_escape_is_refused() {
        for text in [
            r#""\x""#,
            r#""\u12""#,
            r#""\uD83D""#,
            r#""\uD83D\u0041""#,
            r#""\uDE00\uD83D""#,
            r#""\u{D83D}""#,
            r#""\u{}""#,
            r#""\u{110000}""#,
            r#""\u{1F600""#,
            r#""\u+041""#,
            r#""\""#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
