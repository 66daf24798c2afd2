"""Claude Code's command-line program, as the Agent SDK brings it: four turns, each on the prefix cache of the one in front of it."""
import asyncio
import pathlib
import tempfile
import unittest

import claude_agent_sdk as sdk
import session_model
from serving import Server

LIMIT = 120  # seconds for the session
TEXTS = ["The file says seven.", "Seven is what I read.", "Still seven.", "That was all."]


class ClaudeCode(unittest.TestCase):
    def test_four_turns(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "home").mkdir()
            (folder / "work").mkdir()
            file = folder / "work" / "number.txt"
            file.write_text(f"seven {session_model.then('k2')}\n")
            replies = {"k1": "I read it.\n" + session_model.call("Read", file_path=str(file)), "k2": TEXTS[0],
                       **{f"{name}1": text for name, text in zip("lmn", TEXTS[1:])}}
            with Server(session_model.write(folder / "model", replies, context=131072)) as server:
                turns = asyncio.run(asyncio.wait_for(self.lead(server, folder), LIMIT))
        self.assertEqual([text for text, _, _ in turns], TEXTS)
        self.assertEqual([calls for _, calls, _ in turns], [[("Read", {"file_path": str(file)})], [], [], []])
        cached = [usage["cache_read_input_tokens"] for _, _, usage in turns]
        computed = [usage["input_tokens"] for _, _, usage in turns]
        self.assertEqual(cached, sorted(set(cached)), "each turn finds more than the one in front of it")
        for found, new in zip(cached[1:], computed[1:]):
            self.assertGreater(found, 10 * new)

    async def lead(self, server, folder):
        """[(text, calls, usage)] of each turn"""
        options = sdk.ClaudeAgentOptions(
            cwd=folder / "work", model=server.model, tools=["Read"], allowed_tools=["Read"], setting_sources=[], max_turns=4,
            system_prompt={"type": "preset", "preset": "claude_code"},
            env={"ANTHROPIC_BASE_URL": server.url, "ANTHROPIC_AUTH_TOKEN": "none", "ANTHROPIC_SMALL_FAST_MODEL": server.model, "HOME": str(folder / "home"),
                 "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "DISABLE_TELEMETRY": "1", "API_TIMEOUT_MS": "60000"})
        turns = []
        async with sdk.ClaudeSDKClient(options) as client:
            for name, words in zip("klmn", ["Read the number.", "What did you read?", "And again?", "Thank you."]):
                await client.query(f"{words} {session_model.then(name + '1')}")
                text, calls, usage = "", [], {}
                async for message in client.receive_response():
                    if isinstance(message, sdk.AssistantMessage):
                        calls += [(block.name, block.input) for block in message.content if isinstance(block, sdk.ToolUseBlock)]
                    if isinstance(message, sdk.ResultMessage):
                        self.assertFalse(message.is_error, message)
                        text, usage = message.result, message.usage
                turns.append((text, calls, usage))
        return turns


if __name__ == "__main__":
    unittest.main()
