"""Who can be asked about a wall, behind one small protocol.

Part of `supervisor`. `rules` is embedded and needs nobody; `chat` makes a triage model of anything that
answers a question in text: `openai` and `anthropic` over HTTP (`post`), `command` as a program.
"""
