//! Named sets of characters: Perl escapes, POSIX names, Unicode categories and scripts.
//!
//! Names are those of Go 1.26, whose tables are Unicode 15.0. The code points come from `regex-syntax`, which
//! is newer: later assignments are removed. Unchanged from the newer version: the category of U+1171E, and the
//! folding of single characters, which pairs U+019B and U+0264 with new capitals.

use regex_syntax::hir::{Class, ClassUnicode, ClassUnicodeRange, HirKind};

/// A set named by `\p{…}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Property {
    Any,
    Ascii,
    Assigned,
    Category(&'static str),
    Script(&'static str),
}

type AsciiRanges = &'static [(u8, u8)];

const DIGIT: AsciiRanges = &[(b'0', b'9')];
const WORD: AsciiRanges = &[(b'0', b'9'), (b'A', b'Z'), (b'_', b'_'), (b'a', b'z')];

/// The set of a Perl escape, and whether the escape means its complement.
pub(super) fn perl_class(escape: char) -> Option<(AsciiRanges, bool)> {
    // Unlike `[[:space:]]`, `\s` has no vertical tab.
    const SPACE: AsciiRanges = &[(b'\t', b'\n'), (0x0c, b'\r'), (b' ', b' ')];
    Some(match escape {
        'd' => (DIGIT, false),
        'D' => (DIGIT, true),
        's' => (SPACE, false),
        'S' => (SPACE, true),
        'w' => (WORD, false),
        'W' => (WORD, true),
        _ => return None,
    })
}

/// The set called `name` inside `[:name:]`.
pub(super) fn posix_class(name: &str) -> Option<AsciiRanges> {
    Some(match name {
        "alnum" => &[(b'0', b'9'), (b'A', b'Z'), (b'a', b'z')],
        "alpha" => &[(b'A', b'Z'), (b'a', b'z')],
        "ascii" => &[(0, 0x7f)],
        "blank" => &[(b'\t', b'\t'), (b' ', b' ')],
        "cntrl" => &[(0, 0x1f), (0x7f, 0x7f)],
        "digit" => DIGIT,
        "graph" => &[(b'!', b'~')],
        "lower" => &[(b'a', b'z')],
        "print" => &[(b' ', b'~')],
        "punct" => &[(b'!', b'/'), (b':', b'@'), (b'[', b'`'), (b'{', b'~')],
        "space" => &[(b'\t', b'\r'), (b' ', b' ')],
        "upper" => &[(b'A', b'Z')],
        "word" => WORD,
        "xdigit" => &[(b'0', b'9'), (b'A', b'F'), (b'a', b'f')],
        _ => return None,
    })
}

/// The property called `name` inside `\p{name}`. Letter case, spaces, hyphens and underscores do not matter.
pub(super) fn property(name: &str) -> Option<Property> {
    let name: String = name.chars().filter(|c| !matches!(c, '_' | '-' | ' ')).collect();
    let is = |other: &str| name.eq_ignore_ascii_case(other);
    if is("any") {
        return Some(Property::Any);
    }
    if is("ascii") {
        return Some(Property::Ascii);
    }
    if is("assigned") {
        return Some(Property::Assigned);
    }
    if let Some(category) = CATEGORIES.split(' ').find(|category| is(category)) {
        return Some(Property::Category(category));
    }
    if let Some((_, category)) = CATEGORY_ALIASES.iter().find(|(alias, _)| is(alias)) {
        return Some(Property::Category(category));
    }
    SCRIPTS.split(' ').find(|script| is(script)).map(Property::Script)
}

/// Properties already looked up, since a pattern may name the same one a thousand times.
#[derive(Default)]
pub(super) struct Properties {
    known: Vec<(Property, bool, ClassUnicode)>,
}

impl Properties {
    /// The code points of a property, with those of the other letter case when `fold` is set.
    pub(super) fn class(&mut self, property: Property, fold: bool) -> ClassUnicode {
        if let Some((.., class)) = self.known.iter().find(|known| (known.0, known.1) == (property, fold)) {
            return class.clone();
        }
        let class = property_class(property, fold);
        self.known.push((property, fold, class.clone()));
        class
    }
}

/// The code points of a property, with those of the other letter case when `fold` is set.
fn property_class(property: Property, fold: bool) -> ClassUnicode {
    let (mut class, folds) = match property {
        Property::Any => return ClassUnicode::new([ClassUnicodeRange::new('\0', char::MAX)]),
        Property::Ascii => (ClassUnicode::new([ClassUnicodeRange::new('\0', '\x7f')]), true),
        Property::Assigned => {
            let mut class = property_class(Property::Category("Cn"), false);
            negate(&mut class);
            return class;
        }
        // Surrogates do not occur in a `str`.
        Property::Category("Cs") => return ClassUnicode::empty(),
        Property::Category(name @ ("C" | "Cn")) => {
            let mut class = table(&format!(r"\p{{gc={name}}}"));
            class.union(&assigned_later());
            return class;
        }
        // Other sets are closed under folding; LC is not, but Go leaves it as it is.
        Property::Category(name) => {
            (table(&format!(r"\p{{gc={name}}}")), matches!(name, "L" | "Ll" | "Lt" | "Lu" | "M" | "Mn"))
        }
        Property::Script(name) => {
            (table(&format!(r"\p{{sc={name}}}")), matches!(name, "Common" | "Greek" | "Inherited"))
        }
    };
    let later = assigned_later();
    class.difference(&later);
    if fold && folds {
        class.case_fold_simple();
        class.difference(&later);
    }
    class
}

/// The code points that `regex-syntax` knows and Unicode 15.0 does not.
fn assigned_later() -> ClassUnicode {
    let mut class = table(r"\p{gc=Cn}");
    class.union(&table(r"\p{age=15.0}"));
    negate(&mut class);
    class
}

/// Replaces a set by its complement.
pub(super) fn negate(class: &mut ClassUnicode) {
    // `ClassUnicode::negate` gets it wrong when one range ends right before the surrogates and the next starts right
    // behind them. Joined to one range, which characters allow, they are harmless.
    let (before, behind) = ('\u{d7ff}', '\u{e000}');
    let ranges = class.ranges();
    if ranges.iter().any(|range| range.end() == before) && ranges.iter().any(|range| range.start() == behind) {
        class.push(ClassUnicodeRange::new(before, behind));
    }
    class.negate();
}

/// The code points of a class in the syntax of `regex-syntax`. The tests make sure that each name above is known there.
fn table(class: &str) -> ClassUnicode {
    match regex_syntax::parse(class).map(regex_syntax::hir::Hir::into_kind) {
        Ok(HirKind::Class(Class::Unicode(class))) => class,
        // A set of one.
        Ok(HirKind::Literal(literal)) => {
            let text = String::from_utf8_lossy(&literal.0);
            ClassUnicode::new(text.chars().map(|c| ClassUnicodeRange::new(c, c)))
        }
        _ => ClassUnicode::empty(),
    }
}

const CATEGORIES: &str = "\
    C Cc Cf Cn Co Cs L LC Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So Z Zl Zp \
    Zs";

const CATEGORY_ALIASES: &[(&str, &str)] = &[
    ("CasedLetter", "LC"),
    ("ClosePunctuation", "Pe"),
    ("CombiningMark", "M"),
    ("ConnectorPunctuation", "Pc"),
    ("Control", "Cc"),
    ("Cntrl", "Cc"),
    ("CurrencySymbol", "Sc"),
    ("DashPunctuation", "Pd"),
    ("DecimalNumber", "Nd"),
    ("Digit", "Nd"),
    ("EnclosingMark", "Me"),
    ("FinalPunctuation", "Pf"),
    ("Format", "Cf"),
    ("InitialPunctuation", "Pi"),
    ("Letter", "L"),
    ("LetterNumber", "Nl"),
    ("LineSeparator", "Zl"),
    ("LowercaseLetter", "Ll"),
    ("Mark", "M"),
    ("MathSymbol", "Sm"),
    ("ModifierLetter", "Lm"),
    ("ModifierSymbol", "Sk"),
    ("NonspacingMark", "Mn"),
    ("Number", "N"),
    ("OpenPunctuation", "Ps"),
    ("Other", "C"),
    ("OtherLetter", "Lo"),
    ("OtherNumber", "No"),
    ("OtherPunctuation", "Po"),
    ("OtherSymbol", "So"),
    ("ParagraphSeparator", "Zp"),
    ("PrivateUse", "Co"),
    ("Punctuation", "P"),
    ("Punct", "P"),
    ("Separator", "Z"),
    ("SpaceSeparator", "Zs"),
    ("SpacingMark", "Mc"),
    ("Surrogate", "Cs"),
    ("Symbol", "S"),
    ("TitlecaseLetter", "Lt"),
    ("Unassigned", "Cn"),
    ("UppercaseLetter", "Lu"),
];

/// Go 1.26 looks up the name without underscores in a table with underscores, and therefore does not find
/// scripts of several words (Go issue 77698, fixed in Go 1.27). They are omitted here, so that the same names
/// are rejected.
const SCRIPTS: &str = "\
    Adlam Ahom Arabic Armenian Avestan Balinese Bamum Batak Bengali Bhaiksuki Bopomofo Brahmi Braille \
    Buginese Buhid Carian Chakma Cham Cherokee Chorasmian Common Coptic Cuneiform Cypriot Cyrillic Deseret \
    Devanagari Dogra Duployan Elbasan Elymaic Ethiopic Georgian Glagolitic Gothic Grantha Greek Gujarati \
    Gurmukhi Han Hangul Hanunoo Hatran Hebrew Hiragana Inherited Javanese Kaithi Kannada Katakana Kawi \
    Kharoshthi Khmer Khojki Khudawadi Lao Latin Lepcha Limbu Lisu Lycian Lydian Mahajani Makasar Malayalam \
    Mandaic Manichaean Marchen Medefaidrin Miao Modi Mongolian Mro Multani Myanmar Nabataean Nandinagari \
    Newa Nko Nushu Ogham Oriya Osage Osmanya Palmyrene Phoenician Rejang Runic Samaritan Saurashtra Sharada \
    Shavian Siddham Sinhala Sogdian Soyombo Sundanese Syriac Tagalog Tagbanwa Takri Tamil Tangsa Tangut \
    Telugu Thaana Thai Tibetan Tifinagh Tirhuta Toto Ugaritic Vai Vithkuqi Wancho Yezidi Yi";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_code_points() {
        let names =
            CATEGORIES.split(' ').chain(CATEGORY_ALIASES.iter().map(|(alias, _)| *alias)).chain(SCRIPTS.split(' '));
        for name in names {
            let property = property(name).unwrap();
            let empty = property_class(property, false).ranges().is_empty();
            assert_eq!(empty, property == Property::Category("Cs"), "{name}");
        }
    }

    #[test]
    fn later_versions_of_unicode_are_unknown() {
        // U+2FFC was assigned in 15.1, U+1C89 in 16.0.
        for later in ['\u{2ffc}', '\u{1c89}'] {
            let contains =
                |class: ClassUnicode| class.iter().any(|range| range.start() <= later && later <= range.end());
            assert!(contains(property_class(Property::Category("Cn"), true)));
            assert!(contains(property_class(Property::Category("C"), true)));
            assert!(!contains(property_class(Property::Assigned, true)));
            assert!(!contains(property_class(Property::Category("S"), true)));
            assert!(!contains(property_class(Property::Category("L"), true)));
            assert!(!contains(property_class(Property::Script("Cyrillic"), true)));
        }
    }
}
