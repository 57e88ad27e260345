//! Replies as the families write them: held to what chat templates render in history, whole, split everywhere, cut
//! short and broken.

use super::{Expected, Functions, Part, Reply, Style};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{fs, path::PathBuf, sync::Arc};

fn fixture(name: &str) -> String {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/templates"));
    fs::read_to_string(folder.join(name)).expect(name)
}

fn style(template: &str) -> Style {
    Style::of(&fixture(&format!("lcpp__{template}.jinja")))
}

fn functions() -> Arc<Functions> {
    let weather = json!({"properties": {"city": {"type": "string"}, "unit": {"enum": ["c", "f"]}, "days": {
        "type": "integer"}, "where": {"type": "object"}}});
    Arc::new(Functions::new([("get_weather".to_owned(), weather), ("now".to_owned(), json!({}))]))
}

/// What a reply came to.
#[derive(Clone, Debug, Default, PartialEq)]
struct Came {
    text: String,
    reasoning: String,
    calls: Vec<(String, String)>,
    thought: Vec<std::ops::Range<usize>>,
}

impl Came {
    fn take(&mut self, parts: Vec<Part>) {
        for part in parts {
            match part {
                Part::Text(text) => self.text += &text,
                Part::Reasoning(text) => self.reasoning += &text,
                Part::Call { index, name } => {
                    assert_eq!(index, self.calls.len());
                    self.calls.push((name, String::new()));
                }
                Part::Arguments { index, text } => {
                    assert_eq!(index + 1, self.calls.len());
                    self.calls[index].1 += &text;
                }
            }
        }
    }

    fn json(&self) -> Vec<(String, Value)> {
        let value =
            |text: &str| serde_json::from_str(text).unwrap_or_else(|_| json!(format!("broken: {text}")));
        self.calls.iter().map(|(name, arguments)| (name.clone(), value(arguments))).collect()
    }
}

fn came<'a>(style: Style, opened: bool, pieces: impl IntoIterator<Item = &'a str>) -> Came {
    let mut reply = Reply::new(Expected { style, functions: functions(), calls: usize::MAX, opened });
    let mut came = Came::default();
    for piece in pieces {
        came.take(reply.push(piece));
    }
    came.take(reply.finish());
    assert_eq!(reply.push("more"), []);
    came.thought = reply.reasoning();
    came
}

fn whole(style: Style, text: &str) -> Came {
    came(style, false, [text])
}

/// A call of the weather in Paris.
fn paris() -> Vec<(String, Value)> {
    vec![("get_weather".to_owned(), json!({"city": "Paris"}))]
}

#[test]
fn what_templates_render_as_calls_is_read_back() {
    // Each template, and what its rendering of the assistant's turn begins with.
    for (template, head) in [
        ("Bielik-11B-v3.0-Instruct", ""),
        ("ByteDance-Seed-OSS", ""),
        ("CohereForAI-c4ai-command-r7b-12-2024-tool_use", ""),
        ("GLM-4.6", ""),
        ("GLM-4.7-Flash", ""),
        ("LFM2.5-8B-A1B", ""),
        ("MiMo-VL", ""),
        ("MiniMax-M1", ""),
        ("MiniMax-M2", ""),
        ("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", ""),
        ("NVIDIA-Nemotron-Nano-v2", ""),
        ("NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", ""),
        ("Qwen-QwQ-32B", ""),
        ("Qwen-Qwen2.5-7B-Instruct", ""),
        ("Qwen-Qwen3-0.6B", ""),
        ("Qwen3-Coder", ""),
        ("Qwen3.5-4B", ""),
        ("Reka-Edge", ""),
        ("Spark2.5", ""),
        ("StepFun3.5-Flash", ""),
        ("deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", ""),
        ("deepseek-ai-DeepSeek-V3.1", ""),
        ("deepseek-ai-DeepSeek-V3.2", ""),
        ("deepseek-ai-DeepSeek-V4", ""),
        ("google-gemma-4-31B-it", ""),
        ("ibm-granite-granite-4.0", ""),
        ("inclusionai-ling-3.0-flash", ""),
        ("meetkai-functionary-medium-v3.1", ""),
        ("meta-llama-Llama-3.1-8B-Instruct", "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"),
        ("meta-llama-Llama-3.2-3B-Instruct", "<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n"),
        ("mistralai-Ministral-3-14B-Reasoning-2512", ""),
        ("mistralai-Mistral-Nemo-Instruct-2407", ""),
        ("moonshotai-Kimi-K2", ""),
        ("openai-gpt-oss-120b", "<|end|><|start|>assistant"),
        ("openbmb-MiniCPM5-1B", ""),
        ("poolside-Laguna-S-2.1", ""),
        ("unsloth-Apriel-1.5", ""),
        ("unsloth-mistral-Devstral-Small-2507", ""),
        ("upstage-Solar-Open-100B", ""),
    ] {
        let goldens: Value =
            serde_json::from_str(&fixture(&format!("lcpp__{template}.json"))).expect(template);
        let turn = ["08_tool_roundtrip_dict_args", "09_tool_roundtrip_string_args"].iter().find_map(|case| {
            let text = goldens[case]["text"].as_str()?;
            let turn = &text[text.rfind("Weather?")? + "Weather?".len()..];
            turn.contains("get_weather").then(|| turn.to_owned())
        });
        let turn = turn.expect(template);
        let came = whole(style(template), turn.strip_prefix(head).expect(template));
        let want = json!({"city": "Zürich", "unit": "c"});
        assert_eq!(came.json().first(), Some(&("get_weather".to_owned(), want)), "{template}: {came:?}");
    }
}

/// Template, text, words and calls of a reply.
type Case = (&'static str, &'static str, &'static str, Vec<(String, Value)>);

/// Replies of each format.
fn replies() -> Vec<Case> {
    let call = |name: &str, arguments: Value| (name.to_owned(), arguments);
    let both = || vec![call("get_weather", json!({"city": "Paris"})), call("now", json!({}))];
    vec![
        (
            "Qwen-Qwen3-0.6B",
            "Well.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>\n<tool_call>{\"name\":\"now\"}</tool_call>",
            "Well.",
            both(),
        ),
        (
            "Qwen-Qwen3-0.6B",
            "<tool_call>{\"arguments\": {\"city\": \"a </tool_call> b\"}, \"name\": \"get_weather\"}</tool_call> Done.",
            "Done.",
            vec![call("get_weather", json!({"city": "a </tool_call> b"}))],
        ),
        (
            "Qwen-Qwen3-0.6B",
            "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"where\": {\"at\": [1, {\"x\": -2.5e3}]}, \"city\": \"a\nb\"}}</tool_call>",
            "",
            vec![call("get_weather", json!({"where": {"at": [1, {"x": -2500.0}]}, "city": "a\nb"}))],
        ),
        (
            "Qwen3-Coder",
            "<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n12.0\n</parameter>\n<parameter=where>\nfn main() {}\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
            "",
            vec![
                call("get_weather", json!({"city": "Paris", "days": 12, "where": "fn main() {}"})),
                call("now", json!({})),
            ],
        ),
        (
            "Qwen3-Coder",
            "Look: <function=get_weather>\n<parameter=city>\na\n\n<b>\n</parameter>\n</function>",
            "Look:",
            vec![call("get_weather", json!({"city": "a\n\n<b>"}))],
        ),
        (
            "GLM-4.6",
            "<tool_call>get_weather\n<arg_key>city</arg_key>\n<arg_value>Paris</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n</tool_call><tool_call>now</tool_call>",
            "",
            vec![call("get_weather", json!({"city": "Paris", "days": 3})), call("now", json!({}))],
        ),
        (
            "openbmb-MiniCPM5-1B",
            "<function name=\"get_weather\"><param name=\"city\"><![CDATA[a </param>\n& b]]></param><param name=\"days\">2</param></function><function name=\"now\"></function>",
            "",
            vec![call("get_weather", json!({"city": "a </param>\n& b", "days": 2})), call("now", json!({}))],
        ),
        (
            "openbmb-MiniCPM5-1B",
            "<function name=\"get_weather\"><param name=\"city\"><b></param></function>",
            "",
            vec![call("get_weather", json!({"city": "<b>"}))],
        ),
        (
            "openbmb-MiniCPM5-1B",
            "<function name=\"get_weather\"><param name=\"city\"></param></function>",
            "",
            vec![call("get_weather", json!({"city": ""}))],
        ),
        (
            "MiniMax-M2",
            "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"city\">Paris</parameter>\n</invoke>\n<invoke name=\"now\">\n</invoke>\n</minimax:tool_call>",
            "",
            both(),
        ),
        (
            "deepseek-ai-DeepSeek-V3.2",
            "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"city\" string=\"true\">Paris</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" string=\"false\">4</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
            "",
            vec![call("get_weather", json!({"city": "Paris", "days": 4}))],
        ),
        (
            "mistralai-Mistral-Nemo-Instruct-2407",
            "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}, \"id\": \"a\"}, {\"name\": \"now\", \"arguments\": {}}]",
            "",
            both(),
        ),
        (
            "unsloth-mistral-Devstral-Small-2507",
            "[TOOL_CALLS]get_weather[ARGS]{\"city\": \"Paris\"}[TOOL_CALLS]now[CALL_ID]x1[ARGS]{}",
            "",
            both(),
        ),
        (
            "meta-llama-Llama-3.1-8B-Instruct",
            "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"city\": \"Paris\"}}; {\"name\": \"now\", \"parameters\": {}}",
            "",
            both(),
        ),
        ("meta-llama-Llama-3.1-8B-Instruct", "{\"city\": \"Paris\"}", "{\"city\": \"Paris\"}", vec![]),
        (
            "LFM2.5-8B-A1B",
            "<|tool_call_start|>[get_weather(city='Pa\\'ris', days=3, where={'a': [True, None]}), now()]<|tool_call_end|>Now.",
            "Now.",
            vec![
                call("get_weather", json!({"city": "Pa'ris", "days": 3, "where": {"a": [true, null]}})),
                call("now", json!({})),
            ],
        ),
        (
            "moonshotai-Kimi-K2",
            "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"city\": \"Paris\"}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>",
            "",
            both(),
        ),
        (
            "deepseek-ai-DeepSeek-V3.1",
            "So.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Paris\"}<｜tool▁call▁end｜><｜tool▁call▁begin｜>now<｜tool▁sep｜>{}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "So.",
            both(),
        ),
        (
            "deepseek-ai-DeepSeek-R1-Distill-Qwen-32B",
            "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": \"Paris\"}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
            "",
            paris(),
        ),
        (
            "google-gemma-4-31B-it",
            "<|tool_call>call:get_weather{city:<|\"|>a \"b\", {c}<|\"|>,days:3,where:{x:[1,<|\"|>y<|\"|>]}}<tool_call|><|tool_call>call:now{}<tool_call|>",
            "",
            vec![
                call("get_weather", json!({"city": "a \"b\", {c}", "days": 3, "where": {"x": [1, "y"]}})),
                call("now", json!({})),
            ],
        ),
        (
            "openai-gpt-oss-120b",
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather <|constrain|>json<|message|>{\"city\": \"Paris\"}<|call|>",
            "",
            paris(),
        ),
        (
            "openai-gpt-oss-120b",
            "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>It is <b>.",
            "It is <b>.",
            vec![],
        ),
    ]
}

#[test]
fn calls_of_every_format_are_read() {
    for (template, text, words, calls) in replies() {
        let came = whole(style(template), text);
        assert_eq!((came.text.as_str(), came.json()), (words, calls), "{template}: {text}");
    }
}

/// Code where an object is declared: what it says is kept, letter by letter, and the reply goes on.
#[test]
fn code_in_the_place_of_an_object_is_a_string() {
    let line = "fn f(a: &[u8]) -> Vec<u8> { a.iter().map(|x| x ^ 0x2f).collect() } // {\"a\": 1} </b>\n";
    let code = line.repeat(4096_usize.div_ceil(line.len()));
    let code = code.trim_end();
    let text = format!(
        "<tool_call>\n<function=get_weather>\n<parameter=where>\n{code}\n</parameter>\n</function>\n</tool_call>\n\
         <tool_call>\n<function=now>\n</function>\n</tool_call>"
    );
    let want = [("get_weather".to_owned(), json!({"where": code})), ("now".to_owned(), json!({}))];
    let coder = style("Qwen3-Coder");
    assert_eq!(whole(coder, &text).json(), want);
    let pieces = split(&text, &[7, 60, 61, 1000, 4000, text.len() - 30]);
    assert_eq!(came(coder, false, pieces.iter().map(String::as_str)).json(), want);
}

#[test]
fn reasoning_is_told_from_words() {
    let qwen = style("Qwen-Qwen3-0.6B");
    let came = whole(qwen, "<think>\nHm <b>.\n</think>\n\nYes <think> is a tag.");
    assert_eq!((came.reasoning.as_str(), came.text.as_str()), ("Hm <b>.", "Yes <think> is a tag."));
    assert_eq!(came.thought.first(), Some(&(0..24)));
    let came = self::came(qwen, true, ["Hm.</think>\n\n<tool_call>{\"name\": \"now\"}</tool_call>"]);
    assert_eq!((came.reasoning.as_str(), came.text.as_str(), came.calls.len()), ("Hm.", "", 1));
    let came = whole(style("google-gemma-4-31B-it"), "<|channel>thought\nHm.<channel|>Yes.");
    assert_eq!((came.reasoning.as_str(), came.text.as_str()), ("Hm.", "Yes."));
    let came = whole(
        style("openai-gpt-oss-120b"),
        "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Yes.",
    );
    assert_eq!((came.reasoning.as_str(), came.text.as_str()), ("Hm.", "Yes."));
    assert_eq!(came.thought.first(), Some(&(0..40)));
    assert!(qwen.opened("<|im_start|>assistant\n<think>\n") && !qwen.opened("<think></think>\n"));
    // A text without tags is as it was, white space included.
    assert_eq!(whole(qwen, " a\n\n").text, " a\n\n");
}

#[test]
fn what_is_no_call_is_text_and_what_follows_is_still_read() {
    let call = "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}</tool_call>";
    for text in [
        "Use <tool_call> so.",
        "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>",
        "<tool_call>{\"name\": \"get_weather\", \"arguments\": [1]}",
        "<tool_call>{name: 'get_weather'}</tool_call>",
        "<tool_call>{\"name\": \"get_weather\"",
        "<tool_ca",
    ] {
        let hermes = style("Qwen-Qwen2.5-7B-Instruct");
        assert_eq!(whole(hermes, text), Came { text: text.to_owned(), ..Came::default() });
        assert_eq!(whole(hermes, &format!("{text} {call}")).json().last(), paris().last(), "{text}");
    }
    // What breaks once a call has begun stays with it, and the next call is read.
    let broken = "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"city\": Paris}}</tool_call>";
    let came = whole(style("Qwen-Qwen2.5-7B-Instruct"), &format!("{broken}{call}"));
    assert_eq!(came.calls[0].1, "{\"city\": Paris}}");
    assert_eq!((came.calls.len(), came.text.as_str()), (2, ""));
    // Tags that break off close a call, and are text.
    let came = whole(style("Qwen3-Coder"), "<function=get_weather>\n<parameter=city>\na\n</parameter>\noops");
    assert_eq!((came.json()[0].1.clone(), came.text.as_str()), (json!({"city": "a"}), "oops"));
}

#[test]
fn at_most_as_many_calls_come_as_are_wanted() {
    let style = style("Qwen-Qwen2.5-7B-Instruct");
    let mut reply = Reply::new(Expected { style, functions: functions(), calls: 1, opened: false });
    let mut came = Came::default();
    came.take(reply.push(&"<tool_call>{\"name\": \"now\"}</tool_call>\n".repeat(3)));
    came.take(reply.finish());
    assert_eq!((came.calls.len(), came.text.trim()), (1, ""));
}

#[test]
fn arguments_come_as_they_are_written() {
    let style = style("Qwen3-Coder");
    let mut reply = Reply::new(Expected { style, functions: functions(), calls: 9, opened: false });
    let head = "<tool_call><function=get_weather><parameter=city>";
    let call = Part::Call { index: 0, name: "get_weather".to_owned() };
    let arguments = |text: &str| Part::Arguments { index: 0, text: text.to_owned() };
    assert_eq!(reply.push(head), [call, arguments("{\"city\": \"")]);
    assert_eq!(reply.push("New \"Yo"), [arguments("New \\\"Yo")]);
    assert_eq!(reply.push("rk\n</para"), [arguments("rk")]);
    assert_eq!(reply.push("meter></function></tool_call>"), [arguments("\"}")]);
}

fn split(text: &str, cuts: &[usize]) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let mut places: Vec<usize> = cuts.iter().map(|cut| cut % (characters.len() + 1)).collect();
    places.extend([0, characters.len()]);
    places.sort_unstable();
    places.windows(2).map(|pair| characters[pair[0]..pair[1]].iter().collect()).collect()
}

#[test]
fn every_single_cut_gives_the_same() {
    for (template, text, ..) in replies() {
        let want = whole(style(template), text);
        for cut in 0..text.chars().count() {
            let pieces = split(text, &[cut]);
            assert_eq!(
                came(style(template), false, pieces.iter().map(String::as_str)),
                want,
                "{template} {cut}"
            );
        }
    }
}

proptest! {
    /// Replies of every format, parts of them replaced by something else, in any pieces.
    #[test]
    fn any_split_of_anything_gives_the_same(
        which in 0..22_usize,
        damage in (0..200_usize, 0..30_usize, "[<>{}\\[\\]\",:=a|/ \n]{0,4}"),
        harm in any::<bool>(),
        cuts in proptest::collection::vec(0..1000_usize, 0..20),
    ) {
        let all = replies();
        let (template, text, ..) = &all[which % all.len()];
        let mut characters: Vec<char> = text.chars().collect();
        if harm {
            let from = damage.0 % characters.len();
            let to = (from + damage.1).min(characters.len());
            characters.splice(from..to, damage.2.chars());
        }
        let text: String = characters.into_iter().collect();
        let want = whole(style(template), &text);
        let pieces = split(&text, &cuts);
        prop_assert_eq!(&came(style(template), false, pieces.iter().map(String::as_str)), &want);
        // Nothing is lost but white space where there is neither call nor reasoning.
        let plain = want.calls.is_empty() && want.reasoning.is_empty() && want.thought.is_empty();
        if plain && *template != "openai-gpt-oss-120b" {
            prop_assert_eq!(want.text, text);
        }
    }
}
