"""The packages of the real clients, with exact versions."""

PACKAGES = {
    "claude": "@anthropic-ai/claude-code@2.1.326",
    "codex": "@openai/codex@0.169.0",
    "gemini": "@google/gemini-cli@0.61.0",
    "opencode": "opencode-ai@1.18.33",
    "qwen": "@qwen-code/qwen-code@0.24.4",
    "copilot": "@github/copilot@1.0.102",
}
