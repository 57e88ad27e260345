//! Stop strings, found in a text that grows.
//!
//! Each string is followed by its own automaton (Knuth, Morris and Pratt, 1977), so a byte costs the same however
//! long the text and the strings are.
//!
//! Invariants: the match that begins first wins, the shortest of several that begin at the same place; text is
//! handed out once no stop string can begin in it; the result does not depend on how the text was split.

/// One string and its automaton.
#[derive(Clone, Debug)]
struct Pattern {
    bytes: Vec<u8>,
    /// Length of the longest proper prefix that is a suffix of the first `index + 1` bytes.
    fallback: Vec<usize>,
    /// How many bytes of the string the text ends with.
    matched: usize,
}

impl Pattern {
    fn new(text: &str) -> Self {
        let bytes = text.as_bytes().to_vec();
        let mut fallback = vec![0; bytes.len()];
        let mut length = 0;
        for index in 1..bytes.len() {
            while length > 0 && bytes[index] != bytes[length] {
                length = fallback[length - 1];
            }
            if bytes[index] == bytes[length] {
                length += 1;
            }
            fallback[index] = length;
        }
        Self { bytes, fallback, matched: 0 }
    }

    /// Takes one byte. Returns whether the string is complete.
    fn step(&mut self, byte: u8) -> bool {
        while self.matched > 0 && self.bytes[self.matched] != byte {
            self.matched = self.fallback[self.matched - 1];
        }
        if self.bytes[self.matched] == byte {
            self.matched += 1;
        }
        let complete = self.matched == self.bytes.len();
        if complete {
            self.matched = self.fallback[self.matched - 1];
        }
        complete
    }
}

/// Looks for stop strings and holds back what could begin one.
#[derive(Clone, Debug)]
pub(super) struct StopFinder {
    patterns: Vec<Pattern>,
    /// Text that has not been handed out.
    held: String,
    /// Where `held` begins in the whole text, in bytes.
    held_from: usize,
    /// Bytes of the whole text so far.
    seen: usize,
    /// The best complete match so far: where it begins, and which string it is.
    found: Option<(usize, usize)>,
}

impl StopFinder {
    /// A finder for these strings. Empty ones match nothing.
    pub(super) fn new(stops: &[String]) -> Self {
        let patterns = stops.iter().map(|stop| Pattern::new(stop)).collect();
        Self { patterns, held: String::new(), held_from: 0, seen: 0, found: None }
    }

    /// Takes more text and appends what is certain to `out`. Returns the index of the string that ends the text, if
    /// one does; what comes after it is dropped.
    pub(super) fn push(&mut self, text: &str, out: &mut String) -> Option<usize> {
        if self.patterns.is_empty() {
            out.push_str(text);
            return None;
        }
        self.held.push_str(text);
        for byte in text.bytes() {
            if let Some((start, index)) = self.step(byte) {
                self.release(start, out);
                self.held.clear();
                return Some(index);
            }
        }
        self.release(self.certain(), out);
        None
    }

    /// The text ends here: hands out what was held, up to a stop string if one was complete; gives its index.
    pub(super) fn finish(&mut self, out: &mut String) -> Option<usize> {
        let end = self.found.map_or(self.seen, |(start, _)| start);
        self.release(end, out);
        self.held.clear();
        self.found.map(|(_, index)| index)
    }

    /// Takes one byte. Returns the match that has won, once none that begins earlier can be completed.
    fn step(&mut self, byte: u8) -> Option<(usize, usize)> {
        self.seen += 1;
        for (index, pattern) in
            self.patterns.iter_mut().enumerate().filter(|(_, pattern)| !pattern.bytes.is_empty())
        {
            if pattern.step(byte) {
                let start = self.seen - pattern.bytes.len();
                // Of two that are completed by the same byte, the longer begins first.
                if self.found.is_none_or(|(best, _)| start < best) {
                    self.found = Some((start, index));
                }
            }
        }
        self.found.filter(|&(start, _)| start <= self.open())
    }

    /// Where the earliest string that may still be completed begins; the end of the text if none.
    fn open(&self) -> usize {
        self.seen - self.patterns.iter().map(|pattern| pattern.matched).max().unwrap_or(0)
    }

    fn certain(&self) -> usize {
        self.found.map_or(self.open(), |(start, _)| start.min(self.open()))
    }

    fn release(&mut self, end: usize, out: &mut String) {
        let count = end.saturating_sub(self.held_from);
        out.push_str(&self.held[..count]);
        self.held.drain(..count);
        self.held_from += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The definition: the match that begins first, the shortest of those.
    fn reference(text: &str, stops: &[String]) -> (String, Option<usize>) {
        let matches = stops.iter().enumerate().filter(|(_, stop)| !stop.is_empty());
        let best =
            matches.filter_map(|(index, stop)| Some((text.find(stop.as_str())?, stop.len(), index))).min();
        best.map_or((text.to_owned(), None), |(start, _, index)| (text[..start].to_owned(), Some(index)))
    }

    /// Feeds pieces; a string that is complete when the text ends counts as its end.
    fn run<'a>(pieces: impl IntoIterator<Item = &'a str>, stops: &[&str]) -> (Vec<String>, Option<usize>) {
        let stops: Vec<String> = stops.iter().map(|&stop| stop.to_owned()).collect();
        let mut finder = StopFinder::new(&stops);
        let mut parts = Vec::new();
        for piece in pieces {
            let mut part = String::new();
            let stopped = finder.push(piece, &mut part);
            parts.push(part);
            if stopped.is_some() {
                return (parts, stopped);
            }
        }
        let mut rest = String::new();
        finder.finish(&mut rest);
        parts.push(rest);
        (parts, finder.found.map(|(_, index)| index))
    }

    #[test]
    fn a_stop_over_two_pieces_is_cut_exactly_before_it() {
        assert_eq!(run(["an oak", " elm tree"], &["oak elm"]).0, ["an ", ""]);
        assert_eq!(run(["an oak", " tree"], &["oak elm"]).0, ["an ", "oak tree", ""]);
    }

    #[test]
    fn what_could_begin_a_stop_is_held_until_the_end() {
        assert_eq!(run(["a<", "/"], &["</s>"]), (vec!["a".to_owned(), String::new(), "</".to_owned()], None));
    }

    #[test]
    fn every_stop_is_live_from_the_first_byte_and_the_earliest_wins() {
        assert_eq!(run(["x\n", "abcdefgh"], &["abcdef", "\n"]), (vec!["x".to_owned()], Some(1)));
        // "bc" is complete first, but "abcd" begins before it.
        assert_eq!(
            run(["xab", "c", "d"], &["bc", "abcd"]),
            (vec!["x".into(), String::new(), String::new()], Some(1))
        );
        assert_eq!(run(["xab", "c", "e"], &["bc", "abcd"]).0, ["x", "", "a"]);
        assert_eq!(run(["xabc"], &["bc", "abcd"]), (vec!["x".to_owned(), "a".to_owned()], Some(0)));
    }

    #[test]
    fn the_shortest_of_those_at_one_place_wins() {
        assert_eq!(run(["a\n\nb"], &["\n\n", "\n"]), (vec!["a".to_owned()], Some(1)));
    }

    #[test]
    fn no_stops_and_empty_stops_hold_nothing() {
        assert_eq!(run(["ab", "c"], &[]).0, ["ab", "c", ""]);
        assert_eq!(run(["ab", "c"], &[""]).0, ["ab", "c", ""]);
    }

    proptest! {
        /// A small alphabet makes overlaps and repetitions likely.
        #[test]
        fn any_split_gives_the_definition(
            pieces in proptest::collection::vec("[abé🦉]{0,5}", 0..12),
            stops in proptest::collection::vec("[abé🦉]{1,6}", 0..4),
        ) {
            let text = pieces.concat();
            let borrowed: Vec<&str> = stops.iter().map(String::as_str).collect();
            let (parts, stopped) = run(pieces.iter().map(String::as_str), &borrowed);
            let (want, index) = reference(&text, &stops);
            prop_assert_eq!((parts.concat(), stopped.is_some()), (want, index.is_some()));
            if let (Some(got), Some(index)) = (stopped, index) {
                prop_assert_eq!(&stops[got], &stops[index]);
            }
        }
    }
}
