//! What the help ends with: lines that can be typed as they are, but for the model's name.

/// Of the whole program.
pub(super) const ALL: &str = "\
Examples:
  tandem chat --model SmolLM2-135M-Instruct.gguf     talk in the terminal
  tandem generate -m model.gguf -p \"Why is the sky blue?\"
  tandem serve -m model.gguf                         then open http://127.0.0.1:8080

A model is a GGUF file, or a folder as MLX and Hugging Face have it. `tandem COMMAND -h` shows what a command
takes most often, `tandem COMMAND --help` everything.";

/// Of `tandem chat`.
pub(super) const CHAT: &str = "\
Examples:
  tandem chat -m model.gguf
  tandem chat -m model.gguf --system \"Answer in one sentence.\" --temperature 0
  tandem chat -m model.gguf < questions.txt          each line is a message

/help shows what can be typed besides messages. Ctrl-C stops an answer, and at the prompt it leaves.";

/// Of `tandem generate`.
pub(super) const GENERATE: &str = "\
Examples:
  tandem generate -m model.gguf -p \"What is the capital of France?\"
  tandem generate -m model.gguf -p - < question.txt
  tandem generate -m model.gguf --raw -p \"Once upon a time\" --max-tokens 64 --seed 1";

/// Of `tandem serve`.
pub(super) const SERVE: &str = "\
Examples:
  tandem serve -m model.gguf                         then open http://127.0.0.1:8080
  tandem serve -m DIR --port 9000 --rows 32 --temperature 0.7
  curl http://127.0.0.1:8080/v1/chat/completions -H 'Content-Type: application/json' \\
       -d '{\"messages\": [{\"role\": \"user\", \"content\": \"Hello!\"}]}'";
