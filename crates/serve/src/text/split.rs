//! How texts are split into words before merging: the patterns behind the names that GGUF files carry.
//!
//! A GGUF file stores a name (`tokenizer.ggml.pre`) where a `tokenizer.json` stores the patterns themselves. Each
//! pattern below is the one in the named model family's published `tokenizer.json`. Several patterns are applied in
//! turn, each to what the one before has left whole; what lies between matches is kept.

/// The words of GPT-2.
const WORDS: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";

/// One digit, or any other single number.
const DIGIT: &str = r"\p{N}";

const LLAMA_3: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const QWEN_2: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}",
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const QWEN_3_5: &str = concat!(
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}",
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const GPT_4O: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
    r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const TEKKEN: &str = concat!(
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+",
    r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*",
    r"|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

const DEEPSEEK_LLM_LETTERS: &str = concat!(
    r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗ",
    r"ὙὛὝὟ-\x{1F7D}ᾀ-ᾴᾶ-ᾼ\x{1FBE}ῂ-ῄῆ-ῌῐ-\x{1FD3}ῖ-\x{1FDB}ῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\x{2126}ℨ\x{212A}-ℭℯ-ℴℹℼ",
    r"-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+"
);

const DEEPSEEK_HAN: &str = r"[一-龥ࠀ-一가-퟿]+";

const DEEPSEEK_3_WORDS: &str = concat!(
    r##"[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"##,
    r"| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
);

/// How one family splits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// Applied in turn.
    pub(super) patterns: &'static [&'static str],
    /// Whether a word that is a token as a whole is not merged up from its letters.
    pub(super) whole_words: bool,
    /// Whether texts begin with the begin token unless the file says otherwise.
    pub(super) add_begin: bool,
}

const fn split(patterns: &'static [&'static str]) -> Split {
    Split { patterns, whole_words: false, add_begin: false }
}

/// The split of a name; `None` for a name that is not known.
pub(super) fn by_name(name: &str) -> Option<Split> {
    Some(match name {
        "gpt-2" | "phi-2" | "gigachat" | "a.x-4.0" | "mellum" | "exaone4" | "mpt" | "olmo" | "jais"
        | "trillion" | "granite-docling" => split(&[WORDS]),
        "smollm" | "starcoder" | "refact" | "command-r" | "codeshell" | "exaone" | "minerva-7b"
        | "mellum2" => split(&[DIGIT, WORDS]),
        "llama3" | "llama-v3" | "llama-bpe" | "falcon3" | "falcon-h1" | "pixtral" | "midm-2.0" | "lfm2" => {
            Split { patterns: &[LLAMA_3], whole_words: true, add_begin: true }
        }
        "dbrx" | "smaug-bpe" | "chatglm-bpe" | "glm4" | "glm5" => split(&[LLAMA_3]),
        "qwen2" | "deepseek-r1-qwen" | "stablelm2" | "hunyuan" | "solar-open" | "megrez" | "grok-2" => {
            split(&[QWEN_2])
        }
        "qwen35" => split(&[QWEN_3_5]),
        "gpt-4o" | "llama4" | "kanana2" | "minimax-m2" => split(&[GPT_4O]),
        "tekken" => Split { patterns: &[TEKKEN], whole_words: true, add_begin: true },
        "deepseek-llm" => split(&[
            r"[\r\n]",
            DEEPSEEK_LLM_LETTERS,
            r"\s?[!-/:-~！-／：-～‘-‟　-。]+",
            r"\s+$",
            DEEPSEEK_HAN,
            r"\p{N}+",
        ]),
        "deepseek-coder" => split(&[r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_HAN, DIGIT]),
        "deepseek-v3" | "hunyuan-dense" | "joyai-llm" => {
            split(&[r"\p{N}{1,3}", r"[一-龥぀-ゟ゠-ヿ]+", DEEPSEEK_3_WORDS])
        }
        "falcon" => split(&[r"[\p{P}\$\+<=>\^~\|`]+", WORDS, r"[0-9][0-9][0-9]"]),
        // What old files without a name, or with this one, are split by.
        "default" | "" => split(&[r"[\p{P}\$\+<=>\^~\|]+", WORDS, r"\p{N}+", r"[0-9][0-9][0-9]"]),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokenizers::pre_tokenizers::split::SplitPattern;
    use tokenizers::{SplitDelimiterBehavior, pre_tokenizers};

    #[test]
    fn every_pattern_compiles() {
        for name in
            ["gpt-2", "smollm", "llama3", "glm4", "qwen2", "qwen35", "gpt-4o", "tekken", "falcon", "default"]
                .into_iter()
                .chain(["deepseek-llm", "deepseek-coder", "deepseek-v3"])
        {
            for pattern in by_name(name).expect(name).patterns {
                let pattern = SplitPattern::Regex((*pattern).to_owned());
                let split =
                    pre_tokenizers::split::Split::new(pattern, SplitDelimiterBehavior::Isolated, false);
                assert!(split.is_ok(), "{name}");
            }
        }
        assert_eq!(by_name("no such split"), None);
    }
}
