//! Regular expressions in RE2's syntax.

use cel::regex::Regex;

use crate::bytes::text;

/// Any pattern is read or refused with a reason; matches lie in the text, in order, and all ways of searching agree.
pub fn cel_regex(data: &[u8]) {
    let (lengths, rest) = data.split_at(data.len().min(1));
    let length = usize::from(lengths.first().copied().unwrap_or_default());
    let (pattern, haystack) = rest.split_at(rest.len().min(length));
    let (pattern, haystack) = (text(pattern), text(haystack));
    let regex = match Regex::new(&pattern) {
        Ok(regex) => regex,
        Err(error) => {
            assert!(error.to_string().starts_with("error parsing regexp: "), "{error}");
            return;
        }
    };
    let (Ok(matched), Ok(found), Ok(captures)) =
        (regex.is_match(&haystack), regex.find(&haystack), regex.captures(&haystack))
    else {
        return;
    };
    assert_eq!(matched, found.is_some(), "`{pattern}` in {haystack:?}");
    assert_eq!(found, captures.map(|captures| captures.range()), "`{pattern}` in {haystack:?}");
    let Ok(all) = regex.find_iter(&haystack) else { panic!("`{pattern}` is found once, but not many times") };
    let mut end = 0;
    for (index, range) in all.enumerate() {
        assert!(index > 0 || Some(&range) == found.as_ref(), "`{pattern}` in {haystack:?}");
        assert!(range.start >= end && haystack.get(range.clone()).is_some(), "`{pattern}` in {haystack:?}: {range:?}");
        end = range.end;
    }
}
